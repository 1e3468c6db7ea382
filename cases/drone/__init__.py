"""Landing a drone whose position is spoofed."""
