"""The names of the attacks in ``registry``, for readers without torch."""

NAMES = (
    "paper",
    "adaptive",
    "random",
    "constant-direction",
    "uniform",
    "single-step",
    "structured",
    "learned",
    "strongest",
)
