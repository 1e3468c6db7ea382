"""What a command does, as one function that Python users have too."""
