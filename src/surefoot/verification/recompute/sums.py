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
CELLS = 4096
_MARGIN = 1e-9  # by which the method makes cells smaller, and P(T < x) larger
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
    law: dict[int, float] = {0: 1.0 - float(reach[0])}
    cells, width = _cells_of([float(x) - floor for x in points])
    for cell, here, beyond in zip(cells, reach.tolist(), [*reach[1:].tolist(), 0.0], strict=True):
        law[cell] = law.get(cell, 0.0) + here - beyond
    masses = np.zeros(max(law) + 1)
    for cell, mass in law.items():
        masses[cell] = mass
    total, width = _sum_of(masses, width, n_episodes)
    margin = max(_MARGIN, _MARGIN_EACH * n_episodes)
    missed = np.clip(np.cumsum(total)[:-1] * (1 + margin), 1e-290, 1.0)
    with np.errstate(invalid="ignore"):
        kept = [float(np.sum(ndtr(-(ndtri(missed) + radius)))) for radius in claim.scaled_budgets]
    return floor + width / n_episodes * np.array(kept)


def _cells_of(heights: list[float]) -> tuple[list[int], float]:
    top = max(heights)
    if top == 0:
        return [0] * len(heights), 0.0
    if all(height.is_integer() for height in heights):
        divisor = math.gcd(*map(int, heights))
        if top <= CELLS * divisor:
            return [int(height) // divisor for height in heights], float(divisor)
    cells = CELLS if len({0.0, *heights}) > 2 else 1
    width = top / cells * (1 - _MARGIN)
    # Exactly, and then less by more than a division rounds.
    factor = Fraction(1 - _MARGIN / CELLS)
    return [math.floor(Fraction(height) / Fraction(width) * factor) for height in heights], width


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
