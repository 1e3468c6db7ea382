"""A plan in, episodes out: the one loop that every episode goes through."""
