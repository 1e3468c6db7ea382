"""Environments that run many episodes in parallel."""
