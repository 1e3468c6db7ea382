"""Bounds for a certain budget that M episodes share (T7), recomputed from the raw returns by other code.

With r(x) <= P(X >= x), X is stochastically larger than the distribution with P(Z >= x) = r(x) and the rest at the
floor, and so is a sum of M of them than the sum T of M such Z. Under any attack with scaled budget c the mean of the
sum is at least the integral of Phi(Phi^-1(P(T >= x)) - c). The method rounds heights down to a lattice: whole numbers
to multiples of their greatest common divisor, a single height to itself, others to 4096 cells; with more than 4096
cells in a sum, it doubles the cells. So does this, one sum after the other, with another convolution.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.signal import convolve
from scipy.special import ndtr, ndtri

from surefoot.verification.recompute.bands import Claim, Side, bound_tails

Floats = NDArray[np.float64]
Cells = NDArray[np.int64]
CELLS = 4096
_MARGIN = 1e-9  # by which the method makes cells smaller, and P(T < x) larger
_NEAR = 1e-6  # of a whole number, closer to which a quotient may have been rounded past it
_MARGIN_EACH = 1e-12  # for each episode of a sum: with more than a thousand this is more


def recompute_sums(returns: Floats, claim: Claim, n_episodes: int) -> tuple[Side, Side | None]:
    """Return lower bounds of the mean per episode at each budget and, with a ceiling, upper ones."""
    points, *tails = bound_tails(returns, claim.floor, claim.ceiling, claim, mirrored=False)
    lower = [_bounds(points, tail, claim.floor, claim, n_episodes) for tail in tails]
    if claim.ceiling is None:
        return Side(*lower), None
    mirrored, *tails = bound_tails(-returns, -claim.ceiling, -claim.floor, claim, mirrored=True)
    upper = [-_bounds(mirrored, tail, -claim.ceiling, claim, n_episodes) for tail in tails]
    return Side(*lower), Side(*upper)


def _bounds(points: Floats, tail: Floats, floor: float, claim: Claim, n_episodes: int) -> Floats:
    if points.size == 0:
        return np.full(len(claim.budgets), floor)
    reach = np.maximum.accumulate(tail[::-1])[::-1]
    cells, width = _cells_of(points - floor)
    shares = np.append(1.0 - reach[0], reach - np.append(reach[1:], 0.0))
    masses = np.bincount(np.append(0, cells), shares).astype(np.float64)
    total, width = _sum_of(masses, width, n_episodes)
    margin = max(_MARGIN, _MARGIN_EACH * n_episodes)
    missed = np.clip(np.cumsum(total)[:-1] * (1 + margin), 1e-290, 1.0)
    with np.errstate(invalid="ignore"):
        kept = [float(np.sum(ndtr(-(ndtri(missed) + radius)))) for radius in claim.scaled_budgets]
    return floor + width / n_episodes * np.array(kept)


def _cells_of(heights: Floats) -> tuple[Cells, float]:
    top = float(heights.max())
    if top == 0:
        return np.zeros(heights.size, np.int64), 0.0
    if not np.any(heights % 1):
        divisor = math.gcd(*map(int, heights))
        if top <= CELLS * divisor:
            return (heights // divisor).astype(np.int64), float(divisor)
    cells = CELLS if np.unique(np.append(heights, 0.0)).size > 2 else 1
    width = top / cells * (1 - _MARGIN)
    # Less by more than a division rounds; exactly where that could matter.
    factor = Fraction(1 - _MARGIN / CELLS)
    places = heights / width * float(factor)
    found = np.floor(places).astype(np.int64)
    for near in np.flatnonzero(np.abs(places - np.round(places)) < _NEAR):
        found[near] = math.floor(Fraction(float(heights[near])) / Fraction(width) * factor)
    return found, width


def _sum_of(masses: Floats, width: float, n: int) -> tuple[Floats, float]:
    """Return the distribution of a sum, from the binary digits of n, and how wide its cells are."""
    powers = [(masses, width)]
    while 2 ** len(powers) <= n:
        powers.append(_joined(powers[-1], powers[-1]))
    total = (np.ones(1), width)
    for digit, power in zip(reversed(f"{n:b}"), powers, strict=True):
        if digit == "1":
            total = _joined(total, power)
    return total


def _joined(one: tuple[Floats, float], other: tuple[Floats, float]) -> tuple[Floats, float]:
    width = max(one[1], other[1])
    both = convolve(_widened(*one, width), _widened(*other, width), method="direct")
    while both.size > CELLS + 1:
        both = _widened(both, 1.0, 2.0)
        width *= 2
    return both, width


def _widened(masses: Floats, width: float, wanted: float) -> Floats:
    """Return the same distribution, rounded down to wider cells."""
    if width in (wanted, 0):
        return masses
    return np.asarray(np.bincount(np.arange(masses.size) // round(wanted / width), masses), dtype=np.float64)
