"""Why a sequential run stopped, recomputed from the raw returns: whether its stated reason was true where it stopped.

``bets`` shows that its bounds hold wherever it stops: by Ville's inequality each holds simultaneously at all times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from surefoot.verification.recompute.bands import CannotRecomputeError, Claim, family, mean_left

Floats = NDArray[np.float64]
REASONS = ("proved", "close enough", "refuted", "all played", "stopped by hand")


@dataclass(frozen=True)
class Stop:
    """The goal of a run, and why it stopped; ``budget`` is None if the run was not sequential."""

    budget: float
    until: float | None
    require: float | None
    stopped: str


def stop_of(choice: Any) -> Stop | None:
    """Read why a run stopped; None if it was not sequential."""
    if choice is None:
        return None
    if not isinstance(choice, dict) or set(choice) != {"budget", "until", "require", "stopped"}:
        raise CannotRecomputeError("a sequential run must state its budget, its goal, and why it stopped")
    numbers = [choice[key] for key in ("budget", "until", "require") if choice[key] is not None]
    right = choice["budget"] is not None and all(isinstance(one, int | float) and math.isfinite(one) for one in numbers)
    if not right or any(isinstance(one, bool) for one in numbers) or choice["stopped"] not in REASONS:
        raise CannotRecomputeError(f"unknown reason for stopping: {choice!r}")
    return Stop(**choice)


def looks_of(n: int, block: int) -> list[int]:
    """Return after how many returns the stopping rule was checked: after each block, later when there are 2% more."""
    looks, following = [], 1
    for size in range(block, n + 1, block):
        if size >= following:
            looks.append(size)
            following = int(size * 1.02) + 1
    return looks


def unfounded(returns: Floats, claim: Claim, stop: Stop, lower: float, planned: int, block: int) -> list[str]:
    """Return why the run cannot have stopped here for the reason it gives; ``lower`` is the bound at its budget."""
    n = returns.size
    radius = stop.budget / claim.sigma
    if stop.stopped == "all played":
        return [] if n == planned else [f"only {n} of {planned} episodes were run"]
    if stop.stopped == "stopped by hand":
        return []
    if n not in looks_of(n, block)[-1:]:
        return [f"the stopping rule is not checked after {n} episodes"]
    margin = 1e-7 * (abs(lower) + abs(claim.floor) + 1)
    if stop.stopped == "proved":
        proved = stop.require is not None and lower >= stop.require - margin
        return [] if proved else [f"{stop.require!r} is not proved: the bound is {lower:.9g}"]
    if stop.stopped == "close enough":
        values, counts = np.unique(returns, return_counts=True)
        possible = mean_left(claim.floor, values, np.cumsum(counts[::-1])[::-1] / n, radius)
        near = stop.until is not None and possible - lower <= stop.until + margin
        return [] if near else [f"the bound {lower:.9g} may still grow to {possible:.9g}"]
    return _not_refuted(returns, claim, stop, radius, looks_of(n, block))


def _not_refuted(returns: Floats, claim: Claim, stop: Stop, radius: float, looks: Sequence[int]) -> list[str]:
    """Refuted is a value above an upper bound of the worst case itself, asked for when the returns have doubled."""
    asked, following = [], 1000
    for look in looks:
        if look >= following:
            asked.append(look)
            following = 2 * look
    if stop.require is None or claim.ceiling is None or asked[-1:] != [returns.size]:
        return ["there was nothing to refute here"]
    band = replace(claim, method="band", alpha=claim.alpha / 2 ** len(asked))
    points, stay, _ = family(-returns, -claim.ceiling, -claim.floor, band, mirrored=True)
    # P(X >= x) <= 1 - P(X <= y) for every y < x
    reach = np.concatenate([[1.0], 1 - np.maximum.accumulate(stay[::-1])])
    gaps = np.diff(np.concatenate([[claim.floor], -points[::-1], [claim.ceiling]]))
    left = np.where((reach > 0) & (reach < 1), ndtr(ndtri(np.clip(reach, 1e-300, 1)) - radius), reach)
    most = claim.floor + float(gaps @ (reach if radius == 0 else left))
    return [] if most < stop.require * (1 + math.copysign(1e-9, stop.require)) else [f"{most:.9g} may still be proved"]
