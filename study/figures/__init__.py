"""Figures of the paper, each drawn from committed numbers."""
