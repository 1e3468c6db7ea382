"""T7: what remains of the mean when M episodes that really reset share one certain budget.

(a) M episodes, one after the other, are one game of bounded length, and its return is their sum. If each starts from
the same distribution whatever happened before, and the agent is reset, then without attack the sum T has the M-fold
convolution of the distribution of one return. An attacker with a budget for all M together is an attacker of that one
game, so Theorem 2 applies to it: with floor a of one return, E[sum of Y] >= L_c(T), the integral from M a of
g_c(P(T >= x)). It is at least M times the bound of T2 with all of the budget in every episode, and at least T5.

(b) From a band: bounds of P(X >= x) are the survival function of a distribution that is stochastically smaller than X,
with all that is missing at the floor. Sums of stochastically smaller variables are stochastically smaller, so are
variables that are rounded down, and L_c grows with P(T >= x). Hence values may be rounded down to a lattice.

(c) Probabilities are added and multiplied, never subtracted: each keeps its relative precision, and P(T < x) is rounded
up by more than all rounding errors together before it is shifted (g_c is steep near 1, where P(T < x) is tiny). The
relative error of a product is the sum of those of its factors, so it grows like M.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot.errors import InputError
from surefoot.proof.bounds.bands import Band
from surefoot.proof.bounds.gaussian_shift import shift_up

Floats = NDArray[np.float64]

_CELLS = 4096  # of a lattice, at most: with more, two neighbors become the lower one
_BELOW = 1e-9  # by which the cells of a lattice that is not one of whole numbers are smaller than they need be
_ROUNDING = 1e-9  # relative, at least
_ROUNDING_EACH = 1e-12  # relative, for each episode: more than a sum of as many products as there are cells loses
_LEAST = 1e-290  # no probability is taken for smaller: what is smaller is rounded to 0


def sum_mean_lower(band: Band, floor: float, n_episodes: int, scaled_budget: ArrayLike) -> Floats:
    """Return, for each scaled budget, a lower bound of the mean return per episode of n that share the budget."""
    if n_episodes < 1 or band.points[0] < floor:
        raise InputError(f"expected at least one episode and no point below the floor {floor:g}, got {n_episodes}")
    scaled = np.asarray(scaled_budget, dtype=np.float64)
    best = np.maximum.accumulate(band.survival_lower[::-1])[::-1]
    # (b) what is missing lies at the floor
    heights = np.concatenate([[0.0], band.points - floor])
    masses = np.concatenate([[1 - best[0]], best - np.append(best[1:], 0.0)])
    cells, width = _on_lattice(heights)
    on_lattice = np.asarray(np.bincount(cells, masses), dtype=np.float64)
    total, halved = _convolved(on_lattice, n_episodes)
    # (c) P(T < x) at each x of the lattice above the floor
    below = np.clip(np.cumsum(total)[:-1] * (1 + rounding_of(n_episodes)), _LEAST, 1.0)
    sums = np.array([float((1 - shift_up(below, c)).sum()) for c in scaled.ravel().tolist()])
    per_episode: Floats = floor + width * 2.0**halved / n_episodes * sums.reshape(scaled.shape)
    return per_episode


def sum_mean_upper(band: Band, ceiling: float, n_episodes: int, scaled_budget: ArrayLike) -> Floats:
    """Return an upper bound of the same mean, for returns that none exceeds the ceiling: the mirror image."""
    reversed_bounds = (band.cdf_lower[::-1].copy(), band.survival_lower[::-1].copy())
    mirrored = Band(-band.points[::-1], *reversed_bounds, band.alpha)
    return -sum_mean_lower(mirrored, -ceiling, n_episodes, scaled_budget)


def rounding_of(n_episodes: int) -> float:
    """Return a relative error that no probability of the sum of so many exceeds (c)."""
    return max(_ROUNDING, n_episodes * _ROUNDING_EACH)


def _on_lattice(heights: Floats) -> tuple[NDArray[np.int64], float]:
    """Return the cell of each height, rounded down, and how wide cells are; whole heights are not rounded."""
    top = float(heights.max())
    if top == 0:
        return np.zeros(heights.size, dtype=np.int64), 0.0
    if top < 2**52 and np.array_equal(np.round(heights), heights):
        whole = heights.astype(np.int64)
        divisor = int(np.gcd.reduce(whole))
        if top <= _CELLS * divisor:
            return whole // divisor, float(divisor)
    # with a single height above the floor, one cell
    n_cells = _CELLS if np.unique(heights).size > 2 else 1
    width = top / n_cells * (1 - _BELOW)
    # less than the quotient, by more than the rounding of a division
    return np.floor(heights / width * (1 - _BELOW / _CELLS)).astype(np.int64), width


def _convolved(masses: Floats, n: int) -> tuple[Floats, int]:
    """Return the distribution of the sum of n, and how often two cells became one."""
    power = (masses, 0)
    total = (np.ones(1), 0)
    while True:
        if n % 2 == 1:
            total = _add(total, power)
        n //= 2
        if n == 0:
            return total
        power = _add(power, power)


def _add(one: tuple[Floats, int], other: tuple[Floats, int]) -> tuple[Floats, int]:
    """Return the distribution of the sum of two independent variables, on the coarser of their lattices."""
    halved = max(one[1], other[1])
    both = np.convolve(_coarser(one[0], halved - one[1]), _coarser(other[0], halved - other[1]))
    while both.size > _CELLS + 1:
        both = _coarser(both, 1)
        halved += 1
    return both, halved


def _coarser(masses: Floats, times: int) -> Floats:
    """Move each mass in an odd cell to the one below, and count cells by twos (b)."""
    for _ in range(times):
        masses = np.append(masses, 0.0) if masses.size % 2 == 1 else masses
        masses = masses[::2] + masses[1::2]
    return masses
