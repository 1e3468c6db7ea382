"""Arrays in, arrays out, no environments: Theorem 1, exact bounds, bands, and their worst case."""
