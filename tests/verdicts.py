"""What a verification found wrong."""


def problems(verdict):
    """Return the checks that failed or could not be made, with what they say."""
    return {check.name: check.detail for check in verdict.checks if check.result in ("failed", "impossible")}
