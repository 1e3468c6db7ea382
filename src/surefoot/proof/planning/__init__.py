"""Plans made on earlier returns: they decide how tight bounds are, never whether they are true."""
