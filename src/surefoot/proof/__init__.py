"""Episodes in, a certificate out: numpy and scipy only."""
