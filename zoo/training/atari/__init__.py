"""Atari agents trained in minutes on one GPU."""
