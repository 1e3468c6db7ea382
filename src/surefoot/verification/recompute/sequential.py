"""Why a run stopped by itself, once more from the raw returns: whether the reason it gives was one where it stopped.

That its bounds hold wherever it stops is for ``bets``: by Ville's inequality each holds at all times together.
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
    """What a run was for, and why it stopped: None for ``budget`` if it was no such run."""

    budget: float
    until: float | None
    require: float | None
    stopped: str


def stop_of(choice: Any) -> Stop | None:
    """Read why a run stopped; None if it did not stop by itself."""
    if choice is None:
        return None
    if not isinstance(choice, dict) or set(choice) != {"budget", "until", "require", "stopped"}:
        raise CannotRecomputeError("a run that stopped must say its budget, what it waited for, and why it stopped")
    numbers = [choice[key] for key in ("budget", "until", "require") if choice[key] is not None]
    right = choice["budget"] is not None and all(isinstance(one, int | float) and math.isfinite(one) for one in numbers)
    if not right or any(isinstance(one, bool) for one in numbers) or choice["stopped"] not in REASONS:
        raise CannotRecomputeError(f"this is no reason to have stopped: {choice!r}")
    return Stop(**choice)


def looks_of(n: int, block: int) -> list[int]:
    """Return after how many returns the run was looked at: after each block, later when there are 2% more."""
    looks, following = [], 1
    for size in range(block, n + 1, block):
        if size >= following:
            looks.append(size)
            following = int(size * 1.02) + 1
    return looks


def unfounded(returns: Floats, claim: Claim, stop: Stop, lower: float, planned: int, block: int) -> list[str]:
    """Say why the run cannot have stopped here for the reason it gives; ``lower`` is the limit at its budget."""
    n = returns.size
    radius = stop.budget / claim.sigma
    if stop.stopped == "all played":
        return [] if n == planned else [f"of {planned} episodes {n} were played"]
    if stop.stopped == "stopped by hand":
        return []
    if n not in looks_of(n, block)[-1:]:
        return [f"after {n} episodes nobody looked"]
    hair = 1e-7 * (abs(lower) + abs(claim.floor) + 1)
    if stop.stopped == "proved":
        proved = stop.require is not None and lower >= stop.require - hair
        return [] if proved else [f"{stop.require!r} is not proved: the limit is {lower:.9g}"]
    if stop.stopped == "close enough":
        values, counts = np.unique(returns, return_counts=True)
        possible = mean_left(claim.floor, values, np.cumsum(counts[::-1])[::-1] / n, radius)
        near = stop.until is not None and possible - lower <= stop.until + hair
        return [] if near else [f"the limit {lower:.9g} may still grow to {possible:.9g}"]
    return _not_refuted(returns, claim, stop, radius, looks_of(n, block))


def _not_refuted(returns: Floats, claim: Claim, stop: Stop, radius: float, looks: Sequence[int]) -> list[str]:
    """Refuted is a value above an upper limit of the worst case itself, asked for when the returns have doubled."""
    asked, following = [], 1000
    for look in looks:
        if look >= following:
            asked.append(look)
            following = 2 * look
    if stop.require is None or claim.ceiling is None or asked[-1:] != [returns.size]:
        return ["nothing was to be refuted here"]
    band = replace(claim, method="band", alpha=claim.alpha / 2 ** len(asked))
    points, stay, _ = family(-returns, -claim.ceiling, -claim.floor, band, mirrored=True)
    # P(X >= x) <= 1 - P(X <= y) for every y < x
    reach = np.concatenate([[1.0], 1 - np.maximum.accumulate(stay[::-1])])
    gaps = np.diff(np.concatenate([[claim.floor], -points[::-1], [claim.ceiling]]))
    left = np.where((reach > 0) & (reach < 1), ndtr(ndtri(np.clip(reach, 1e-300, 1)) - radius), reach)
    most = claim.floor + float(gaps @ (reach if radius == 0 else left))
    return [] if most < stop.require * (1 + math.copysign(1e-9, stop.require)) else [f"{most:.9g} may still be proved"]
