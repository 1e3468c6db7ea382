"""The bounds of a certificate, recomputed independently from the raw returns, in few lines.

Nothing of surefoot is imported here, so that an error there cannot hide here. With S(x) = P(X >= x) under noise alone,
n returns give lower bounds r(x) <= S(x), simultaneously true with probability 1 - alpha, and then (policy smoothing,
Theorem 1, integrated) under any attack with l2 budget B,

    E[Y] >= floor + sum over steps of r:  width of the step * Phi(Phi^-1(r) - B / sigma).

Upper bounds are the lower bounds of the mirror image: returns times -1, floor and ceiling exchanged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.signal import fftconvolve
from scipy.special import betainc, betaincinv, ndtr, ndtri
from scipy.stats import poisson

Floats = NDArray[np.float64]
METHODS = ("band", "per-threshold", "dkw", "dkw-one-sided", "binary")
TIGHTEST = 0.98  # a band's local level is searched for: this much of the exact level is accepted, see least_level


class CannotRecomputeError(Exception):
    """The certificate has something that cannot be recomputed here, or that its method does not allow."""


@dataclass(frozen=True)
class Claim:
    """What a certificate says its bounds were computed from."""

    method: str
    alpha: float
    sigma: float
    floor: float
    ceiling: float | None
    budgets: tuple[float, ...]
    step: float | None = None


@dataclass(frozen=True)
class Side:
    """One bound per budget: the ``best`` that the method can claim, and the ``least`` that it would have claimed."""

    best: Floats
    least: Floats


def recompute(returns: Floats, claim: Claim) -> tuple[Side, Side | None]:
    """Return the lower bounds of the mean at each budget and, where a ceiling is known, the upper ones."""
    if claim.method not in METHODS:
        known = ", ".join(METHODS)
        raise CannotRecomputeError(f"the method {claim.method!r} is not computed here; known are {known}")
    lower = _side(returns, claim.floor, claim.ceiling, claim, mirrored=False)
    if claim.ceiling is None:
        return lower, None
    mirror = _side(-returns, -claim.ceiling, -claim.floor, claim, mirrored=True)
    return lower, Side(-mirror.best, -mirror.least)


def _side(returns: Floats, floor: float, ceiling: float | None, claim: Claim, *, mirrored: bool) -> Side:
    points, best, least = family(returns, floor, ceiling, claim, mirrored=mirrored)
    radii = [budget / claim.sigma for budget in claim.budgets]
    return Side(*(np.array([mean_left(floor, points, reach, radius) for radius in radii]) for reach in (best, least)))


def family(
    returns: Floats, floor: float, ceiling: float | None, claim: Claim, *, mirrored: bool
) -> tuple[Floats, Floats, Floats]:
    """Return points x, the best bounds of P(X >= x) that the method can claim, and the least that it would claim."""
    points, counts = _counted(returns, floor, ceiling, claim, mirrored)
    n = returns.size
    if claim.method == "band":
        level = local_level(n, claim.alpha)
        least = least_level(n, claim.alpha)
        return points, _limits_by_rank(n, counts, level), _limits_by_rank(n, counts, least)
    if claim.method.startswith("dkw"):
        sides = 2 if claim.method == "dkw" else 1
        reach = np.maximum(counts / n - math.sqrt(math.log(sides / claim.alpha) / (2 * n)), 0)
    else:
        reach = proportion_at_least(counts, n, claim.alpha / points.size)
    return points, reach, reach


def _counted(
    returns: Floats, floor: float, ceiling: float | None, claim: Claim, mirrored: bool
) -> tuple[Floats, NDArray[np.int64]]:
    """Return the thresholds above the floor, ascending, and how many returns reached each."""
    if claim.method == "binary":
        if ceiling is None or not np.isin(returns, (floor, ceiling)).all():
            raise CannotRecomputeError("the binary method allows only the returns floor and ceiling")
        points = np.array([ceiling])
    elif claim.method == "per-threshold":
        if ceiling is None or claim.step is None or not claim.step > 0:
            raise CannotRecomputeError("per-threshold bounds need a ceiling and the spacing of their thresholds")
        points = _thresholds(floor, ceiling, claim.step, mirrored)
    else:
        points, counts = np.unique(returns, return_counts=True)
        n_below = np.concatenate([[0], np.cumsum(counts)[:-1]])
        return points, returns.size - n_below
    return points, reached(returns, points)


def reached(returns: Floats, points: Floats) -> NDArray[np.int64]:
    """Return how many returns are at least each point."""
    n_below = np.searchsorted(np.sort(returns), points, side="left")
    return np.asarray(returns.size - n_below, dtype=np.int64)


def _thresholds(floor: float, ceiling: float, step: float, mirrored: bool) -> Floats:
    """Return floor + step, floor + 2 step, ... and the ceiling; mirrored: the negatives of those below the ceiling."""
    low, high = (-ceiling, -floor) if mirrored else (floor, ceiling)
    count = max(1, math.ceil((high - low) / step - 1e-9))
    grid = np.append(low + step * np.arange(count), high)
    return -grid[-2::-1] if mirrored else grid[1:]


def mean_left(floor: float, points: Floats, reach: Floats, radius: float) -> float:
    """Return floor + sum of (x_j - x_(j-1)) Phi(Phi^-1(r_j) - radius), r_j the best bound at x_j or beyond."""
    best = np.maximum.accumulate(reach[::-1])[::-1]
    left = best if radius == 0 else np.where((best > 0) & (best < 1), ndtr(ndtri(best) - radius), best)
    return floor + float(np.diff(points, prepend=floor) @ left)


def proportion_at_least(counts: NDArray[np.int64], n: int, alpha: float) -> Floats:
    """Return Clopper-Pearson bounds by halving: the p at which ``counts`` or more of n have probability alpha."""
    low, high = np.zeros(counts.size), (counts > 0).astype(np.float64)
    k = np.maximum(counts, 1).astype(np.float64)
    for _ in range(100):
        middle = (low + high) / 2
        unlikely = betainc(k, n - k + 1, middle) <= alpha
        low, high = np.where(unlikely, middle, low), np.where(unlikely, high, middle)
    return low


def _limits_by_rank(n: int, counts: NDArray[np.int64], level: float) -> Floats:
    """Return the band's bound where ``counts`` outcomes reached: that of the last checked rank up to it."""
    ranks = checked_ranks(n)
    limits = proportion_at_least(ranks, n, level)
    return np.append(0.0, limits)[np.searchsorted(ranks, counts, side="right")]


@lru_cache(maxsize=8)
def local_level(n: int, alpha: float) -> float:
    """Return the level a at which n ordered uniforms all exceed their a-quantiles with probability 1 - alpha."""
    ranks = checked_ranks(n)
    if _rounding(ranks) > 0.02 * alpha or n > 10_000_000:
        return alpha / ranks.size  # the method's own rule: where rounding could matter, the union bound
    aim = math.log(-math.log1p(-alpha))
    level, slope, before = alpha / max(1.0, 7 * math.log(n)), 0.93, None
    for _ in range(30):
        quantiles = np.asarray(betaincinv(ranks, n - ranks + 1.0, level), dtype=np.float64)
        risk = min(max(risk_of(n, ranks, quantiles), 1e-300), 1 - 1e-15)
        if abs(risk / alpha - 1) < (1e-5 if n <= 10_000 else 1e-4):
            return level
        here = (math.log(level), math.log(-math.log1p(-risk)))
        if before is not None and here[0] != before[0]:
            slope = min(max((here[1] - before[1]) / (here[0] - before[0]), 0.2), 50.0)
        before, level = here, min(math.exp(here[0] + (aim - here[1]) / slope), 1 - 1e-12)
    raise CannotRecomputeError(f"no local level was found for n = {n} and alpha = {alpha}")


def least_level(n: int, alpha: float) -> float:
    """Return the least local level that a search within 2% would have ended at, with its allowance for rounding."""
    return local_level(n, alpha) * (TIGHTEST - min(0.02, _rounding(checked_ranks(n)) / alpha))


def _rounding(ranks: NDArray[np.int64]) -> float:
    """Return what the method allows for the rounding of a band's error probability."""
    return 4e-12 * (ranks.size + 10)


def checked_ranks(n: int) -> NDArray[np.int64]:
    """Return the ranks that the band bounds: distances 1, 2, ... from both ends, growing like a tenth of their root."""
    found, distance = set(), 1
    while 2 * distance <= n + 1:
        found |= {distance, n + 1 - distance}
        distance += max(1, int(0.1 * math.sqrt(distance) * max(1.0, (distance / 1e4) ** 0.25)))
    return np.array(sorted(found), dtype=np.int64)


def risk_of(n: int, ranks: Sequence[int] | NDArray[np.int64], limits: Floats) -> float:
    """Return P(the k-th smallest of n uniforms < its bound, for some checked k).

    Uniforms are the points of a Poisson process of rate n, given that it has n points. The k-th exceeds its bound
    exactly if fewer than k points lie below the bound: carry the distribution of their number from bound to bound.
    """
    mass, lowest, before = np.ones(1), 0, 0.0
    for rank, limit in zip(np.asarray(ranks).tolist(), limits.tolist(), strict=True):
        rate = n * (limit - before)
        jumps = np.arange(max(0, int(rate - 10 * math.sqrt(rate))), int(rate + 10 * math.sqrt(rate)) + 30)
        mass, lowest = _convolved(mass, poisson.pmf(jumps, rate)), lowest + int(jumps[0])
        far = n * limit - 10 * math.sqrt(n * limit * (1 - limit)) - 50
        drop = max(0, int(far) - lowest)
        mass, lowest, before = mass[drop : max(rank - lowest, 0)], lowest + drop, limit
    still = n - lowest - np.arange(mass.size)
    return 1 - float(mass @ poisson.pmf(still, n * (1 - before))) / float(poisson.pmf(n, n))


def _convolved(mass: Floats, jumps: Floats) -> Floats:
    if mass.size * jumps.size < 200_000:
        return np.convolve(mass, jumps)
    return np.maximum(fftconvolve(mass, jumps), 0.0)
