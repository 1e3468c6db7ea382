"""The names of the attacks in ``registry``, for readers without torch."""

NAMES = (
    "paper",
    "flips",
    "adaptive",
    "random",
    "constant-direction",
    "uniform",
    "single-step",
    "structured",
    "learned",
    "strongest",
)
