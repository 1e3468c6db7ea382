"""T3: scores of a return whose mean is at most the worst-case mean: tangents of a convex curve, integrated.

(a) Write S(y) = P(X >= y), c = B / sigma for the scaled budget, g_c(p) = Phi(Phi^-1(p) - c), and ``floor`` for a number
that no return is below. By T2 no attack pushes the mean return below L_c = floor + int g_c(S(y)) dy, over y from the
floor up. g_c is convex, so it lies above each of its tangents: for ANY guess q(y) of S(y), made before X is seen,

    g_c(S(y)) >= g_c(q(y)) + g_c'(q(y)) (S(y) - q(y)),      g_c'(q) = exp(c Phi^-1(q) - c^2 / 2).

(b) S(y) is the mean of 1{X >= y}. Integrated over y from the floor to the last point that a guess was made for, this is
a score of a single return whose mean is at most L_c, with equality if q = S and no return exceeds that point:

    psi(x) = floor + int [ g_c(q) - q g_c'(q) ] dy + int_floor^x g_c'(q(y)) dy,      E psi(X) <= L_c.

(c) psi(x) >= psi(floor) for every return x, so bets on psi(X) against a claim about L_c know what they can lose.

(d) Bounds at one scaled budget r imply others (``implied``). For c <= r the attacker may do less: L_c >= L_r. For
c >= r and a ceiling, (L_c - floor) / range >= g_(c-r)((L_r - floor) / range), because g_c = g_(c-r) o g_r and g_(c-r)
is convex.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from surefoot.proof.bounds.gaussian_shift import shift_down

Floats = NDArray[np.float64]
# points above the floor, ascending, and the guess of P(X >= point) at each; more where outcomes are more than returns
Guesses = tuple[Floats, ...]

_ROUNDING = 1e-12  # of the range of the score: more than the error of Phi, Phi^-1 and exp in its knots


class Score(Protocol):
    """A score of outcomes, never below ``lowest``, whose mean is at most the worst-case mean."""

    @property
    def lowest(self) -> float:
        """No outcome scores less."""
        ...

    def __call__(self, outcomes: Any, /) -> Floats:
        """Score outcomes."""
        ...


@dataclass(frozen=True)
class PlainScore:
    """The return itself: its mean is the worst-case mean at scaled budget 0, and at no other."""

    lowest: float

    def __call__(self, returns: Floats) -> Floats:
        """Return the returns."""
        return returns


@dataclass(frozen=True)
class TangentScore:
    """The score psi: ``lowest`` at the floor, then along straight lines through (``knots``, ``lowest + heights``)."""

    knots: Floats
    heights: Floats
    lowest: float

    def __call__(self, returns: Floats) -> Floats:
        """Score returns."""
        scores: Floats = self.lowest + np.interp(returns, self.knots, self.heights)
        return scores


def tangent_lines(survival: Floats, scaled_budgets: float | Floats) -> tuple[Floats, Floats]:
    """Return slope and intercept of the tangent of g_c at each guess (a); one c for all, or one for each."""
    c = np.asarray(scaled_budgets, dtype=np.float64)
    # minus infinity for a guess of 0, where tangent and curve are 0
    z = ndtri(survival)
    with np.errstate(under="ignore", invalid="ignore"):
        slopes = np.where(c == 0, 1.0, np.exp(c * z - c**2 / 2))
        offsets = np.where((c > 0) & (survival > 0), ndtr(z - c) - survival * slopes, 0.0)
    return slopes, offsets


def tangent_scores(points: Floats, survival: Floats, scaled_budget: float | Floats, floor: float) -> list[TangentScore]:
    """Return the score of each row of guesses of P(X >= points).

    E psi(X) <= L for every distribution and all guesses in [0, 1), good or bad; beyond the last point the guess is 0.

    Args:
        points: Points above the floor, ascending.
        survival: Rows of guesses, one for each point.
        scaled_budget: The c of L_c, or one for each point.
        floor: No return is below it.
    """
    knots = np.concatenate([[floor], points])
    gaps = np.diff(knots)
    slopes, offsets = tangent_lines(survival, scaled_budget)
    # (b) both integrals: the intercepts count for every return, the slopes up to the return
    heights = np.zeros((len(survival), knots.size))
    np.cumsum(gaps * slopes, axis=1, out=heights[:, 1:])
    scores = []
    for row in range(len(survival)):
        rounding = _ROUNDING * (float(gaps @ (slopes[row] + 1)) + abs(floor))
        lowest = floor + float(gaps @ offsets[row]) - rounding
        scores.append(TangentScore(knots, heights[row], lowest))
    return scores


def checked_score(guesses: Guesses | None, scaled_budget: float | Floats, floor: float) -> PlainScore | TangentScore:
    """Return the score that guesses make; without guesses, the return itself.

    Raises:
        ValueError: If the mean of the score could exceed the worst-case mean.
    """
    if guesses is None:
        if scaled_budget != 0:
            raise ValueError(f"the return is no score at scaled budget {scaled_budget}: attacks lower its mean")
        return PlainScore(floor)
    points, survival = guesses
    if points.shape != survival.shape or not np.all(np.diff(points, prepend=floor) >= 0):
        raise ValueError("guesses need points that ascend from the floor, and one probability for each")
    if not np.all((survival >= 0) & (survival < 1)):
        raise ValueError("guesses of a probability must be in [0, 1)")
    [score] = tangent_scores(points, survival[None], scaled_budget, floor)
    return score


def implied(proved_at: Floats, limits: Floats, wanted: Floats, floor: float, ceiling: float | None) -> Floats:
    """Return what each bound says about each wanted scaled budget (d), one row per bound.

    Args:
        proved_at: Scaled budgets of the bounds.
        limits: The bounds: lower ones of the worst-case mean.
        wanted: Other scaled budgets.
        floor: No return is below it; where a bound says nothing it is all that is known.
        ceiling: No return is above it, or None.
    """
    # (d) at a smaller scaled budget the same bound holds
    table = np.where(proved_at[:, None] >= wanted, limits[:, None], floor)
    if ceiling is None:
        return table
    larger = proved_at[:, None] < wanted
    share = np.clip((limits - floor) / (ceiling - floor), 0.0, 1.0)
    further = np.zeros(table.shape)
    np.subtract(wanted, proved_at[:, None], out=further, where=larger)
    # (d) at a larger one what the rest of the budget leaves of it, rounded down
    carried = floor + (ceiling - floor) * shift_down(share[:, None], further) * (1 - _ROUNDING)
    return np.where(larger, np.minimum(carried, limits[:, None]), table)
