"""Bounds rounded outward, and numbers as text."""

from __future__ import annotations

import math
import sys
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Of what was observed above the floor: far more than floating-point error, too little to be seen.
OUTWARD = 1e-9
# Digits of a budget as typed by a user; one with more is the product of another norm's factor.
_MOST_DIGITS = 12


def rounded_lower(lower: ArrayLike, floor: float, observed: tuple[float, float]) -> NDArray[np.float64]:
    """Round lower bounds down, relative to what was observed and not to a ceiling that may be far above it.

    None exceeds the highest return observed: whatever the method, larger returns that did not occur prove nothing.
    """
    top = max(floor, observed[1])
    margin = OUTWARD * (top - floor) + 16 * sys.float_info.epsilon * max(abs(floor), abs(top))
    return np.clip(np.asarray(lower) - margin, floor, top)


def rounded_upper(upper: ArrayLike, ceiling: float, observed: tuple[float, float]) -> NDArray[np.float64]:
    """Round upper bounds up: the mirror image."""
    return -rounded_lower(-np.asarray(upper), -ceiling, (-observed[1], -observed[0]))


def format_lower(value: float, digits: int = 2) -> str:
    """Format a certified lower bound, rounded down."""
    return _format_rounded(value, digits, ROUND_FLOOR)


def format_upper(value: float, digits: int = 2) -> str:
    """Format a certified upper bound, rounded up."""
    return _format_rounded(value, digits, ROUND_CEILING)


def format_estimate(mean: float, sem: float | None, digits: int = 2) -> str:
    """Format an estimate with its standard error, where it has one."""
    if sem is None:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ± {sem:.{digits}f}"


def format_budget(value: float) -> str:
    """Format a budget with all digits as typed; a computed one is rounded down: its bounds hold below it."""
    given = Decimal(repr(float(value)))
    if len(given.normalize().as_tuple().digits) <= _MOST_DIGITS:
        return format_exact(value)
    return format_exact(float(given.normalize(Context(prec=6, rounding=ROUND_FLOOR))))


def format_exact(value: float) -> str:
    """Format what was asked for with all its digits: a budget rounded up would claim more than was proved."""
    text = f"{Decimal(repr(float(value))).normalize():f}"
    if len(text) > 20:
        return repr(float(value))
    return text


def format_percent(confidence: float) -> str:
    """Format a confidence with all its digits: 99.9999999999% is not 100%."""
    return f"{(Decimal(repr(float(confidence))) * 100).normalize():f}%"


def count_decimals(floor: float, ceiling: float | None, estimate: float) -> int:
    """Return decimals that show a thousandth of the range of the return, at least two."""
    top = ceiling
    if top is None:
        top = max(estimate, floor + 1)
    spread = top - floor
    if not 0 < spread < math.inf:
        return 2
    return max(2, 3 - math.floor(math.log10(spread)))


def _format_rounded(value: float, digits: int, direction: str) -> str:
    # In decimal arithmetic, because in binary the multiplication and the division may round the other way.
    step = Decimal(1).scaleb(-digits)
    rounded = Decimal(repr(float(value))).quantize(step, direction, Context(prec=2000))
    # Zero has no sign.
    if rounded == 0:
        rounded = abs(rounded)
    return f"{rounded:f}"


def format_noise(sigma: float, action_sigma: float) -> str:
    """Return the noise on observations, the least where features differ, and on actions in a few words."""
    on_actions = f"sigma {format_exact(action_sigma)} on actions"
    if action_sigma == 0:
        return f"sigma {format_exact(sigma)}"
    if sigma == 0:
        return on_actions
    return f"sigma {format_exact(sigma)}, {on_actions}"
