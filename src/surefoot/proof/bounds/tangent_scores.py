"""Scores of a return whose mean is at most the worst-case mean (T3): tangents of a convex curve, integrated.

Write S(y) = P(X >= y), c = B / sigma for the scaled budget, and g(p) = Phi(Phi^-1(p) - c). By T2 no attack pushes
the mean return below L = a + int_a^inf g(S(y)) dy. g is convex, so it lies above each of its tangents: for ANY guess
q(y) of S(y), made before X is seen,

    g(S(y)) >= g(q(y)) + g'(q(y)) (S(y) - q(y)),      g'(q) = exp(c Phi^-1(q) - c^2 / 2),

and as S(y) is the mean of 1{X >= y}, integrating over y gives a score of a single outcome whose mean is at most L:

    psi(x) = a + int_a^top [ g(q) - q g'(q) ] dy + int_a^min(x, top) g'(q(y)) dy,      E psi(X) <= L,

with equality if q = S below ``top`` and no outcome exceeds it. psi never falls below psi(a), so any lower bound of a
mean that needs only that (``betting``) applied to psi(X_i) is a lower bound of L. Guesses come from the past alone and
get better block by block. psi is best if they are not estimates of S but what will be proved of it: with a bound r of S
the tangent at q says g(q) + g'(q) (r - q), most of all at q = r. So they stay below what the past shows by a margin, as
upper bounds of a count of missing outcomes do; that also keeps g' below w(u0) = exp(-c Phi^-1(u0) - c^2 / 2), where u0
is the margin, the cut-off, for outcomes that never missed, and with it the range of psi.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from surefoot.proof.bounds.gaussian_shift import shift_down

Floats = NDArray[np.float64]

_ROUNDING = 1e-12  # of the range of the score: more than the error of Phi, Phi^-1 and exp in its knots


@dataclass(frozen=True)
class Tangents:
    """The score psi: ``lowest`` at the floor, then along straight lines through (``knots``, ``lowest + heights``).

    ``reach``  the guesses of P(X >= knot), at each knot but the floor, that it was made of
    """

    knots: Floats
    heights: Floats
    lowest: float
    reach: Floats
    cutoff: float | None = None

    @cached_property
    def guesses(self) -> tuple[Floats, Floats]:
        """The points above the floor and the guesses of P(X >= point): all that the score was made of."""
        return self.knots[1:], self.reach

    def __call__(self, outcomes: Floats) -> Floats:
        """Score outcomes."""
        scores: Floats = self.lowest + np.interp(outcomes, self.knots, self.heights)
        return scores


def tangents(
    points: Floats, reach: Floats, radius: float, floor: float, cutoffs: Sequence[float | None]
) -> list[Tangents]:
    """Return the score of each row of guesses ``reach`` of P(X >= points), which ascend from above ``floor``.

    E psi(X) <= L for every distribution and all guesses in [0, 1), good or bad; beyond the last point the guess is 0.
    """
    knots = np.concatenate([[floor], points])
    gaps = np.diff(knots)
    if radius == 0:
        slopes, kept = np.ones(reach.shape), np.zeros(reach.shape)
    else:
        z = ndtri(reach)  # minus infinity for 0, where tangent and curve are 0
        with np.errstate(under="ignore"):
            slopes = np.exp(radius * z - radius**2 / 2)
            kept = np.where(reach > 0, ndtr(z - radius) - reach * slopes, 0.0)
    heights = np.zeros((len(reach), knots.size))
    np.cumsum(gaps * slopes, axis=1, out=heights[:, 1:])
    slack = [_ROUNDING * (float(gaps @ row) + abs(floor)) for row in slopes + 1]
    lowest = [floor + float(gaps @ row) - less for row, less in zip(kept, slack, strict=True)]
    return [Tangents(knots, *row) for row in zip(heights, lowest, reach, cutoffs, strict=True)]


def implied(radii: Floats, limits: Floats, wanted: Floats, floor: float, ceiling: float | None) -> Floats:
    """Return what each bound says about each wanted scaled budget, one row per bound."""
    table = np.where(radii[:, None] >= wanted, limits[:, None], floor)
    if ceiling is None:
        return table
    share = np.clip((limits - floor) / (ceiling - floor), 0.0, 1.0)
    further = np.zeros(table.shape)
    np.subtract(wanted, radii[:, None], out=further, where=radii[:, None] < wanted)
    carried = floor + (ceiling - floor) * shift_down(share[:, None], further) * (1 - _ROUNDING)
    return np.where(radii[:, None] < wanted, np.minimum(carried, limits[:, None]), table)
