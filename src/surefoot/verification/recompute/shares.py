"""Shares of alpha: that they are shares of one alpha, and what a bound at one scaled budget implies at others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scipy.special import ndtr, ndtri

SHARE = 1e-5  # relative: shares are found by halving to about 1e-7


def unshared(shares: Sequence[float], alpha: float) -> list[str]:
    """Return why bounds at these shares would not hold simultaneously at alpha, by the union bound."""
    # A comparison with NaN is false.
    if not all(share >= 0 for share in shares):
        return ["a share of alpha is below 0"]
    used = sum(shares)
    if used > alpha * (1 + 1e-12):
        return [f"the bets use alpha {used:.12g}, the certificate {alpha:.12g}"]
    return []


def carried(bound: float, proved: float, wanted: float, floor: float, ceiling: float | None) -> float:
    """Return what a bound at one scaled budget implies at another: the same at a smaller, g of it at a larger one."""
    if wanted <= proved:
        return bound
    if ceiling is None:
        return floor
    share = min(max((bound - floor) / (ceiling - floor), 0.0), 1.0)
    return float(min(bound, floor + (ceiling - floor) * ndtr(ndtri(share) - (wanted - proved)) * (1 - 1e-12)))


def alike(recorded: Any, planned: float | None, within: float) -> bool:
    """Return whether a recorded number is the planned one, up to rounding."""
    if planned is None or not isinstance(recorded, int | float):
        return recorded is planned
    return abs(recorded - planned) <= within * abs(planned)
