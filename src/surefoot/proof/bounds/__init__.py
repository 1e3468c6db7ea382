"""Arrays in, arrays out, nothing about games: Theorem 1, exact limits, bands, and their worst case."""
