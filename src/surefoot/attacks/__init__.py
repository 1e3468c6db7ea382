"""Attackers: they read a View and propose perturbations; the channel keeps the budget."""
