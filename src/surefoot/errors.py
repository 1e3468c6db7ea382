"""The one exception for what a caller can mend: it says what was expected, what came, and what to do."""


class InputError(ValueError):
    """Bad input. The command turns it into one line on stderr and exit code 2."""
