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
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import betainc, betaincinv, gammaln, ndtr, ndtri
from scipy.stats import poisson

Floats = NDArray[np.float64]
METHODS = ("band", "per-threshold", "dkw", "binary")
# A band's local level is searched for: this much of the exact level is accepted, see least_level.
TIGHTEST = 0.98
MANY = 100_000  # returns, from which on a good guess of a level saves time


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

    @property
    def scaled_budgets(self) -> list[float]:
        """The budgets in units of sigma, on which alone bounds depend."""
        return [budget / self.sigma for budget in self.budgets]


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
    lower = _bound_means(returns, claim.floor, claim.ceiling, claim, mirrored=False)
    if claim.ceiling is None:
        return lower, None
    mirror = _bound_means(-returns, -claim.ceiling, -claim.floor, claim, mirrored=True)
    return lower, Side(-mirror.best, -mirror.least)


def _bound_means(returns: Floats, floor: float, ceiling: float | None, claim: Claim, *, mirrored: bool) -> Side:
    """Return the lower bounds of the mean at each budget."""
    points, best, least = bound_tails(returns, floor, ceiling, claim, mirrored=mirrored)
    sides = np.empty((2, len(claim.budgets)))
    for place, radius in enumerate(claim.scaled_budgets):
        sides[0, place] = mean_left(floor, points, best, radius)
        sides[1, place] = mean_left(floor, points, least, radius)
    return Side(sides[0], sides[1])


def bound_tails(
    returns: Floats, floor: float, ceiling: float | None, claim: Claim, *, mirrored: bool
) -> tuple[Floats, Floats, Floats]:
    """Return points x, the best bounds of P(X >= x) that the method can claim, and the least that it would claim."""
    points, counts = _count_reached(returns, floor, ceiling, claim, mirrored)
    n = returns.size
    if claim.method == "band":
        best = _bound_by_rank(n, counts, local_level(n, claim.alpha))
        least = _bound_by_rank(n, counts, least_level(n, claim.alpha))
        return points, best, least
    if claim.method == "dkw":
        # Dvoretzky, Kiefer, Wolfowitz with Massart's constant.
        reach = np.maximum(counts / n - math.sqrt(math.log(2 / claim.alpha) / (2 * n)), 0)
    else:
        # A union bound over the thresholds.
        reach = proportion_at_least(counts, n, claim.alpha / points.size)
    return points, reach, reach


def _count_reached(
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
        points = _space_thresholds(floor, ceiling, claim.step, mirrored)
    else:
        points, counts = np.unique(returns, return_counts=True)
        n_below = np.concatenate([[0], np.cumsum(counts)[:-1]])
        return points, returns.size - n_below
    return points, count_reached(returns, points)


def count_reached(returns: Floats, points: Floats) -> NDArray[np.int64]:
    """Return how many returns are at least each point."""
    n_below = np.searchsorted(np.sort(returns), points, side="left")
    return np.asarray(returns.size - n_below, dtype=np.int64)


def _space_thresholds(floor: float, ceiling: float, step: float, mirrored: bool) -> Floats:
    """Return floor + step, floor + 2 step, ... and the ceiling; mirrored: the negatives of those below the ceiling."""
    if mirrored:
        floor, ceiling = -ceiling, -floor
    count = max(1, math.ceil((ceiling - floor) / step - 1e-9))
    grid = np.append(floor + step * np.arange(count), ceiling)
    if mirrored:
        return -grid[-2::-1]
    return grid[1:]


def mean_left(floor: float, points: Floats, reach: Floats, radius: float) -> float:
    """Return floor + sum of (x_j - x_(j-1)) Phi(Phi^-1(r_j) - radius), r_j the best bound at x_j or beyond."""
    left = np.maximum.accumulate(reach[::-1])[::-1]
    if radius != 0:
        # At 0 and 1 the quantile is infinite, and nothing is lost.
        left = np.where((left > 0) & (left < 1), ndtr(ndtri(left) - radius), left)
    return floor + float(np.diff(points, prepend=floor) @ left)


def proportion_at_least(counts: NDArray[np.int64], n: int, alpha: float) -> Floats:
    """Return Clopper-Pearson bounds by halving: the p at which ``counts`` or more of n have probability alpha."""
    low = np.zeros(counts.size)
    high = (counts > 0).astype(np.float64)
    k = np.maximum(counts, 1).astype(np.float64)
    for _ in range(100):
        middle = (low + high) / 2
        unlikely = betainc(k, n - k + 1, middle) <= alpha
        low = np.where(unlikely, middle, low)
        high = np.where(unlikely, high, middle)
    return low


def _bound_by_rank(n: int, counts: NDArray[np.int64], level: float) -> Floats:
    """Return the band's bound where ``counts`` outcomes reached: that of the last checked rank up to it."""
    return _limits_of_ranks(n, level)[np.searchsorted(checked_ranks(n), counts, side="right")]


@lru_cache(maxsize=8)
def _limits_of_ranks(n: int, level: float) -> Floats:
    """Return the band's bound at each checked rank, after that of none: both sides of a certificate use the same."""
    return np.append(0.0, proportion_at_least(checked_ranks(n), n, level))


@lru_cache(maxsize=8)
def local_level(n: int, alpha: float) -> float:
    """Return the level a at which n ordered uniforms all exceed their a-quantiles with probability 1 - alpha."""
    ranks = checked_ranks(n)
    if _allow_rounding(ranks) > 0.02 * alpha or n > 10_000_000:
        # The method's own rule: where rounding could matter, the union bound.
        return alpha / ranks.size
    # A secant search for log(-log(1 - risk)), which is nearly linear in log(level).
    aim = math.log(-math.log1p(-alpha))
    level = alpha / max(1.0, 7 * math.log(n))
    if n > MANY:
        # It falls about as 1 / log(n), and a tenth of the returns takes a tenth of the time.
        level = local_level(n // 10, alpha) * math.log(n // 10) / math.log(n)
    slope = 0.93
    before: tuple[float, float] | None = None
    within = 1e-5 if n <= 10_000 else 1e-4
    for _ in range(30):
        quantiles = np.asarray(betaincinv(ranks, n - ranks + 1.0, level), dtype=np.float64)
        risk = min(max(risk_of(n, ranks, quantiles), 1e-300), 1 - 1e-15)
        if abs(risk / alpha - 1) < within:
            return level
        x = math.log(level)
        y = math.log(-math.log1p(-risk))
        if before is not None and x != before[0]:
            slope = min(max((y - before[1]) / (x - before[0]), 0.2), 50.0)
        is_near = before is not None and n > MANY and abs(risk / alpha - 1) < 0.01
        before = (x, y)
        level = min(math.exp(x + (aim - y) / slope), 1 - 1e-12)
        if is_near:
            # Through two points so near the end is known to 1e-5, and asking once more would take seconds.
            return level
    raise CannotRecomputeError(f"no local level was found for n = {n} and alpha = {alpha}")


def least_level(n: int, alpha: float) -> float:
    """Return the least local level that a search within 2% would have ended at, with its allowance for rounding."""
    return local_level(n, alpha) * (TIGHTEST - min(0.02, _allow_rounding(checked_ranks(n)) / alpha))


def _allow_rounding(ranks: NDArray[np.int64]) -> float:
    """Return what the method allows for the rounding of a band's error probability."""
    return 4e-12 * (ranks.size + 10)


def checked_ranks(n: int) -> NDArray[np.int64]:
    """Return the ranks that the band bounds: distances 1, 2, ... from both ends, growing like a tenth of their root."""
    found: set[int] = set()
    distance = 1
    while 2 * distance <= n + 1:
        found |= {distance, n + 1 - distance}
        distance += max(1, int(0.1 * math.sqrt(distance) * max(1.0, (distance / 1e4) ** 0.25)))
    return np.array(sorted(found), dtype=np.int64)


def risk_of(n: int, ranks: Sequence[int] | NDArray[np.int64], limits: Floats) -> float:
    """Return P(the k-th smallest of n uniforms < its bound, for some checked k).

    Uniforms are the points of a Poisson process of rate n, given that it has n points. The k-th exceeds its bound
    exactly if fewer than k points lie below the bound: carry the distribution of their number from bound to bound.
    """
    mass = np.ones(1)  # probabilities that ``lowest``, lowest + 1, ... points lie below the bound
    lowest = 0
    before = 0.0
    for rank, limit in zip(np.asarray(ranks).tolist(), limits.tolist(), strict=True):
        rate = n * (limit - before)
        # Beyond ten standard deviations there is nothing that a float would show.
        jumps = np.arange(max(0, int(rate - 10 * math.sqrt(rate))), int(rate + 10 * math.sqrt(rate)) + 30)
        mass = _convolve(mass, np.exp(jumps * math.log(max(rate, 1e-300)) - rate - gammaln(jumps + 1.0)))
        lowest += int(jumps[0])
        far = n * limit - 10 * math.sqrt(n * limit * (1 - limit)) - 50
        n_dropped = max(0, int(far) - lowest)
        # Fewer than ``rank`` points, else the bound is violated.
        mass = mass[n_dropped : max(rank - lowest, 0)]
        lowest += n_dropped
        before = limit
    still = n - lowest - np.arange(mass.size)
    return 1 - float(mass @ poisson.pmf(still, n * (1 - before))) / float(poisson.pmf(n, n))


def _convolve(mass: Floats, jumps: Floats) -> Floats:
    if mass.size * jumps.size < 200_000:
        return np.convolve(mass, jumps)
    size = mass.size + jumps.size - 1
    padded = next_fast_len(size, real=True)
    return np.maximum(irfft(rfft(mass, padded) * rfft(jumps, padded), padded)[:size], 0.0)
