"""Stable-Baselines3 models in and out, as data."""
