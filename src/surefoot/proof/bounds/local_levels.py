"""The level at which every order statistic may be bounded by itself so that all the bounds hold simultaneously.

V_(1) <= ... <= V_(n) are ordered independent uniforms. Each V_(k) has the distribution Beta(k, n - k + 1), so its
lower bound at local level a is ell(k) = betaincinv(k, n - k + 1, a). This module finds an a such that

    P( V_(k) >= ell(k) for all checked k ) >= 1 - alpha.

How: the uniforms are the points of a Poisson process N of rate n on [0, 1], given N(1) = n, and V_(k) >=
ell(k) says N(ell(k)) <= k - 1. N is a Markov chain with independent Poisson increments, so the distribution of N,
restricted to the paths that kept all constraints so far, is carried from one ell(k) to the next by a
convolution.

Why it errs on the safe side: states far below the boundary and far jumps are dropped, which can only lower
the computed probability of keeping all constraints; rounding is covered by ``_STEP_ERROR`` per step; and the a
that is returned is one for which the computation was done, not one that was interpolated. Where rounding
would matter (alpha below about 10^-6) and beyond 10^7 points, the union bound a = alpha / (number of checked
ranks) is used instead.

For large n not every rank is checked: all of them near both ends, then about ten per standard deviation, and
fewer towards the middle (at n = 10^7 one per 0.7 standard deviations at the median, where that is 0.0001 in
probability). Between checked ranks V_(k) >= V_(j) >= ell(j) for j < k, so ell as a step function stays valid.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.special import gammaln

from surefoot.errors import InputError
from surefoot.proof.bounds.binomial import lower_limit

_STEP_ERROR = 4e-12  # per step: exp and log-factorials of numbers up to 10^4, and the convolution
_LARGEST = 10_000_000
_FINE = 10_000  # up to this n an error probability within 0.1% of alpha is cheap to find; beyond, within 1% has to do
_JUMPS = 8.0  # standard deviations of a Poisson increment that are kept: the rest has probability 10^-15
_DIRECT = 400_000  # products up to which a convolution is faster term by term than by Fourier transform
# alpha / a, as measured for alpha = 0.05: only where the search starts, never what is returned unverified.
_LOG_SIZES = (0.0, 2.3, 4.6, 6.9, 9.2, 11.5, 13.8, 16.1)
_RATIOS = (1.0, 6.35, 20.5, 41.6, 65.3, 90.4, 118.0, 146.0)


def order_limits(n: int, alpha: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the checked ranks k, ascending, and ell(k): P(V_(k) >= ell(k) for all of them) >= 1 - alpha."""
    ranks = checked_ranks(n)
    return ranks, lower_limit(ranks, n, local_level(n, alpha))


@lru_cache(maxsize=256)
def local_level(n: int, alpha: float) -> float:
    """Return the local level a for n points and a simultaneous confidence of 1 - alpha."""
    if n < 1 or not 0 < alpha < 1:
        raise InputError(f"expected n >= 1 and alpha strictly between 0 and 1, got n = {n}, alpha = {alpha}")
    ranks = checked_ranks(n)
    rounding = _STEP_ERROR * (ranks.size + 10)
    best = alpha / ranks.size  # valid whatever happens below, by the union bound
    if rounding > 0.02 * alpha or n > _LARGEST:
        return best
    near = 0.999 if n <= _FINE else 0.99
    search = _LevelSearch(aim=alpha * (1 + near) / 2, level=max(best, _guess_level(n, alpha)))
    for _ in range(20):
        risk = violation(n, ranks, lower_limit(ranks, n, search.level), alpha) + rounding
        if risk <= alpha:
            best = max(best, search.level)
            if risk >= near * alpha:
                break
        search.move_on(risk)
    return best


def checked_ranks(n: int) -> NDArray[np.int64]:
    """Return the ranks, ascending, at which the order statistics are bounded: all near both ends."""
    distances = []
    distance = 1
    while distance <= (n + 1) // 2:
        distances.append(distance)
        coarser = max(1.0, (distance / 1e4) ** 0.25)
        distance += max(1, int(0.1 * math.sqrt(distance) * coarser))
    near = np.array(distances, dtype=np.int64)
    return np.unique(np.concatenate([near, n + 1 - near]))


def violation(n: int, ranks: NDArray[np.int64], limits: NDArray[np.float64], alpha: float) -> float:
    """Return P(V_(k) < bound(k) for some rank), never too small but for rounding; alpha says what to drop."""
    depth = math.sqrt(2 * math.log(1e6 / alpha))
    rates = n * np.diff(limits, prepend=0.0)
    table = gammaln(np.arange(1.0, rates.max() + _JUMPS * math.sqrt(rates.max()) + 22))
    expected = (n * limits).tolist()
    spread = np.sqrt(n * limits * (1 - limits)).tolist()
    # the distribution of N at the last ell(k), restricted to paths that kept all constraints: of N = lowest, ...
    mass = np.ones(1)
    lowest = 0
    for index, (rank, rate) in enumerate(zip(ranks.tolist(), rates.tolist(), strict=True)):
        if rate > 0:
            first, jumps = _poisson_jumps(rate, table)
            mass = _convolve(mass, jumps)
            lowest += first
        # states far below the boundary are dropped; of the others rank - 1 and fewer keep this constraint
        cut = max(lowest, int(expected[index] - depth * spread[index] - depth**2 / 3 - 1))
        mass = mass[cut - lowest : max(rank - lowest, 0)]
        lowest = cut
        if mass.size == 0:
            return 1.0
    # given N(1) = n: the points that are left come after the last ell(k)
    remaining = n - (lowest + np.arange(mass.size, dtype=np.float64))
    last = n * (1 - float(limits[-1]))
    if last > 0:
        arrive = np.exp(remaining * math.log(last) - last - gammaln(remaining + 1))
    else:
        arrive = (remaining == 0).astype(np.float64)
    return 1 - float(mass @ arrive) / _poisson_at_mean(n)


def _poisson_jumps(rate: float, log_factorials: NDArray[np.float64]) -> tuple[int, NDArray[np.float64]]:
    """Return the smallest jump that matters and the probabilities of it and the following ones."""
    width = _JUMPS * math.sqrt(rate) + 18
    first = max(0, int(rate - width))
    jumps = np.arange(first, int(rate + width) + 2)
    return first, np.exp(jumps * math.log(rate) - rate - log_factorials[jumps])


def _convolve(mass: NDArray[np.float64], jumps: NDArray[np.float64]) -> NDArray[np.float64]:
    if mass.size * jumps.size < _DIRECT:
        return np.convolve(mass, jumps)
    size = mass.size + jumps.size - 1
    length = fft.next_fast_len(size, real=True)
    product = fft.irfft(fft.rfft(mass, length) * fft.rfft(jumps, length), length)[:size]
    return np.maximum(product, 0.0)


def _poisson_at_mean(n: int) -> float:
    """Return n^n e^-n / n!, by Stirling's series where the terms themselves would lose digits."""
    if n < 50:
        return math.exp(n * math.log(n) - n - math.lgamma(n + 1))
    return math.exp(-1 / (12 * n) + 1 / (360 * n**3)) / math.sqrt(2 * math.pi * n)


def _guess_level(n: int, alpha: float) -> float:
    ratio = float(np.interp(math.log(n), _LOG_SIZES, _RATIOS))
    if n <= 10 * _FINE:
        return alpha / ratio
    smaller = float(np.interp(math.log(_FINE), _LOG_SIZES, _RATIOS))
    return local_level(_FINE, alpha) * smaller / ratio


class _LevelSearch:
    """A secant search for the level of an error probability p, in log(level) and log(-log(1 - p)): nearly a line."""

    def __init__(self, aim: float, level: float) -> None:
        self.aim = math.log(-math.log1p(-aim))
        self.level = level
        self._slope = 0.93
        self._last: tuple[float, float] | None = None

    def move_on(self, risk: float) -> None:
        """Move on to the next level, given the error probability of this one."""
        here = (math.log(self.level), math.log(-math.log1p(-min(max(risk, 1e-12), 1 - 1e-12))))
        if self._last is not None and here[0] != self._last[0]:
            slope = (here[1] - self._last[1]) / (here[0] - self._last[0])
            self._slope = min(max(slope, 0.3), 30.0)
        self._last = here
        self.level = min(math.exp(here[0] + (self.aim - here[1]) / self._slope), 0.999999)
