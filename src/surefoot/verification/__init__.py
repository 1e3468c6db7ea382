"""Checks a certificate without trusting the code that wrote it: an independent reading and recomputation."""
