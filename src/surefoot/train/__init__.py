"""One algorithm, one file, read from top to bottom."""
