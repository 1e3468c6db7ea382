"""Checking a certificate without trusting what made it: a second reading of the files, a second computation."""
