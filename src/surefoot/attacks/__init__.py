"""Adversaries: they read a View and propose offsets; the channel keeps the budget."""
