"""Limits for the worst-case mean itself (T3): no band, no union over thresholds, one bet per budget.

Write S(y) = P(X >= y), c = B / sigma for the radius, and g(p) = Phi(Phi^-1(p) - c). By T2 no adversary pushes the mean
return below L = a + int_a^inf g(S(y)) dy. g is convex, so it lies above each of its tangents: for ANY guess q(y) of
S(y), made before X is seen,

    g(S(y)) >= g(q(y)) + g'(q(y)) (S(y) - q(y)),      g'(q) = exp(c Phi^-1(q) - c^2 / 2),

and as S(y) is the mean of 1{X >= y}, integrating over y gives a score of a single outcome whose mean is at most L:

    psi(x) = a + int_a^top [ g(q) - q g'(q) ] dy + int_a^min(x, top) g'(q(y)) dy,      E psi(X) <= L,

with equality if q = S below ``top`` and nobody exceeds it. psi never falls below psi(a), so any lower limit of a mean
that needs only that (``mean``) applied to psi(X_i) is a lower limit of L. Guesses come from the past alone and get better
block by block. They stay below 1 by a cut-off u0: that keeps g' below w(u0) = exp(-c Phi^-1(u0) - c^2 / 2), and with it
the range of psi.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from surefoot.bounds.mean import (
    Bettor,
    Plain,
    Sample,
    Score,
    bet,
    check_alpha,
    checked_outcomes,
    edges_for,
    growing_edges,
)
from surefoot.bounds.shift import shift_down
from surefoot.errors import InputError

Floats = NDArray[np.float64]

LARGEST_RADIUS = 30.0  # beyond, no guess below 1 leaves anything that a float could tell from 0
_KNOTS = 600
_SMOOTHING = 0.5  # outcomes added to those below each threshold: unseen is not impossible
_CUTOFFS = np.geomspace(0.1, 10.0, 7)  # in outcomes of all that will be played
_GROWTH = 100  # where nobody knows the number of outcomes, shares are settled for so many times the first look
_ROUNDING = 1e-12  # of the range of the score: more than the error of Phi, Phi^-1 and exp in its knots


@dataclass(frozen=True)
class Tangents:
    """The score psi: ``lowest`` at the floor, then along straight lines through (``knots``, ``lowest + heights``)."""

    knots: Floats
    heights: Floats
    lowest: float

    def __call__(self, outcomes: Floats) -> Floats:
        """Score outcomes."""
        scores: Floats = self.lowest + np.interp(outcomes, self.knots, self.heights)
        return scores


def tangents(points: Floats, reach: Floats, radius: float, floor: float) -> Tangents:
    """Return the score of the guesses ``reach`` of P(X >= points), which ascend from above ``floor``.

    E psi(X) <= L for every law and all guesses in [0, 1), good or bad; beyond the last point the guess is 0.
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
    heights = np.concatenate([[0.0], np.cumsum(gaps * slopes)])
    slack = _ROUNDING * (float(gaps @ (slopes + 1)) + abs(floor))
    return Tangents(knots, heights, floor + float(gaps @ kept) - slack)


def guesses(past: Sample, cutoff: float, floor: float) -> tuple[Floats, Floats]:
    """Return thresholds above the floor and what the past lets one guess of P(X >= threshold), at most 1 - cutoff."""
    rough = past.grouped(_KNOTS)
    n = float(rough.counts.sum())
    missed = np.cumsum(rough.counts) - rough.counts
    above = rough.values > floor
    short = (missed[above] + _SMOOTHING) / (n + 2 * _SMOOTHING)
    return rough.values[above], 1 - np.maximum(short, cutoff)


def propose(past: Sample, *, radius: float, floor: float, expected: float | None) -> Sequence[Score]:
    """Return one score per cut-off, around one outcome in all ``expected``; None expects as many as there were."""
    if radius == 0:
        return [Plain(floor)]
    total = 2 * float(past.counts.sum()) if expected is None else expected
    return [tangents(*guesses(past, min(0.5, many / total), floor), radius, floor) for many in _CUTOFFS]


def bettor(radius: float, alpha: float, floor: float, expected: float | None, claim: float | None = None) -> Bettor:
    """Return who bets on the worst-case mean at one radius."""
    return Bettor(partial(propose, radius=radius, floor=floor, expected=expected), alpha, claim)


@dataclass(frozen=True, eq=False)
class WorstMeans:
    """Lower limits of the worst-case mean at some radii, which hold together, and what follows from them elsewhere.

    ``radii``, ``limits``  where bets were made, ascending, and the limits they gave; limits are at least the floor
    ``shares``             the risk spent on each; their sum is at most alpha
    """

    radii: Floats
    limits: Floats
    shares: Floats
    floor: float
    ceiling: float | None

    def at(self, radius: ArrayLike) -> Floats:
        """Return a lower limit at any radius c, from all radii with bets, without further risk.

        A larger radius r >= c allows the adversary more: L_c >= L_r. A smaller one r <= c: with a ceiling b every law
        has (L_c - a) / (b - a) >= g_(c-r)((L_r - a) / (b - a)), because g_c = g_(c-r) o g_r and g_(c-r) is convex.
        """
        wanted = np.asarray(radius, dtype=np.float64)
        return implied(self.radii, self.limits, wanted.ravel(), self.floor, self.ceiling).max(axis=0).reshape(
            wanted.shape
        )


def implied(radii: Floats, limits: Floats, wanted: Floats, floor: float, ceiling: float | None) -> Floats:
    """Return what each limit says about each wanted radius, one row per limit."""
    table = np.where(radii[:, None] >= wanted, limits[:, None], floor)
    if ceiling is None:
        return table
    share = np.clip((limits - floor) / (ceiling - floor), 0.0, 1.0)
    further = np.maximum(wanted - radii[:, None], 0.0)
    carried = floor + (ceiling - floor) * shift_down(share[:, None], further) * (1 - _ROUNDING)
    return np.where(radii[:, None] < wanted, np.minimum(carried, limits[:, None]), table)


def worst_means(
    returns: ArrayLike,
    radii: ArrayLike,
    alpha: float,
    floor: float,
    ceiling: float | None = None,
    *,
    anytime: bool = False,
    claim: float | None = None,
) -> WorstMeans:
    """Return lower limits of the worst-case mean at all radii together, at confidence 1 - alpha.

    ``returns``  in the order in which they were played
    ``floor``    a return that cannot be undercut; ``ceiling`` one that cannot be exceeded, if there is one
    ``anytime``  valid whenever somebody stops, for whatever reason; otherwise their number was settled in advance
    ``claim``    a value that the worst-case mean at the one radius asked for is to be proved to exceed, soon
    """
    x = checked_outcomes(returns, floor)
    if ceiling is not None and x.max() > ceiling:
        raise InputError(f"no outcome may lie above {ceiling:g}, got {x.max():g}; give the true limit")
    check_alpha(alpha)
    asked = _checked_radii(radii)
    edges = growing_edges(x.size) if anytime else edges_for(x.size)
    rounds = float(edges[0] * _GROWTH if anytime else x.size - edges[0])
    shares = split(Sample.of(x[: edges[0]]), asked, alpha, floor, ceiling, rounds)
    some = shares > 0
    bettors = [
        bettor(float(radius), float(share), floor, None if anytime else x.size, claim)
        for radius, share in zip(asked[some], shares[some], strict=True)
    ]
    bet(x, bettors, edges, known=not anytime)
    limits = [max(floor, player.capital.limit(player.alpha)) for player in bettors]
    return WorstMeans(asked[some], np.array(limits), shares[some], floor, ceiling)


def split(
    past: Sample, radii: Floats, alpha: float, floor: float, ceiling: float | None, rounds: float
) -> Floats:
    """Divide alpha among radii by what the past lets one expect: no limit shall lose much more than the others.

    Where the limits at other radii say as much without a bet, none is made.
    """
    playable = radii <= LARGEST_RADIUS
    if playable.sum() < 2:
        return np.where(playable | (np.arange(radii.size) == 0), alpha, 0.0)
    shares = np.zeros(radii.size)
    shares[playable] = Split(past, radii[playable], alpha, floor, ceiling, rounds).shares()
    return shares


class Split:
    """The search for shares: the least factor by which all distances to the plug-in may grow."""

    def __init__(
        self, past: Sample, radii: Floats, alpha: float, floor: float, ceiling: float | None, rounds: float
    ) -> None:
        self.radii, self.alpha, self.floor, self.ceiling = radii, alpha, floor, ceiling
        self.plain = plug_in(past, radii, floor)
        total = rounds + float(past.counts.sum())
        known = np.log(1 / np.array([alpha, alpha / 32]))
        lost = np.array([self._expected(past, total, rounds, share) for share in (alpha, alpha / 32)])
        lost = np.maximum(self.plain - lost, 1e-12 * (1 + abs(floor)))
        # what is lost grows with l = log(1/share) like root l for plain means and like l where few events count
        basis = np.stack([np.sqrt(known), known])
        self.model = np.maximum(np.linalg.solve(basis.T, lost), 0.0)
        self.alone = self._lost(np.full(radii.size, math.log(1 / alpha)))

    def _expected(self, past: Sample, total: float, rounds: float, share: float) -> list[float]:
        players = [bettor(float(radius), share, self.floor, total) for radius in self.radii]
        return [max(self.floor, player.expect(past, rounds)[1].expected) for player in players]

    def _lost(self, logs: Floats) -> Floats:
        lost: Floats = self.model[0] * np.sqrt(logs) + self.model[1] * logs
        return lost

    def _logs(self, factor: float) -> Floats:
        """Return the largest log(1/share) at which each radius loses at most ``factor`` times what it must."""
        root, line = self.model
        allowed = factor * self.alone
        with np.errstate(divide="ignore", invalid="ignore"):
            both = ((np.sqrt(root**2 + 4 * line * allowed) - root) / (2 * line)) ** 2
            logs = np.where(line > 1e-9 * root, both, (allowed / root) ** 2)
        return np.nan_to_num(np.minimum(logs, 700.0), nan=700.0)

    def _bets(self, factor: float) -> NDArray[np.bool_]:
        """Return which radii need a bet of their own, the dearest being spared first."""
        logs = self._logs(factor)
        limits = np.maximum(self.plain - factor * self.alone, self.floor)
        says = implied(self.radii, limits, self.radii, self.floor, self.ceiling) >= limits - 1e-9 * (1 + abs(limits))
        bets = limits > self.floor
        for spared in np.argsort(logs):
            others = bets.copy()
            others[spared] = False
            if bets[spared] and np.all(says[others].any(axis=0) | (limits <= self.floor)):
                bets = others
        return bets

    def shares(self) -> Floats:
        """Return shares that sum to alpha."""
        low, high = 1.0, 30.0
        for _ in range(25):
            factor = math.sqrt(low * high)
            need = float(np.exp(-self._logs(factor))[self._bets(factor)].sum())
            low, high = (low, factor) if need <= self.alpha else (factor, high)
        bets = self._bets(high)
        if not bets.any():
            bets[0] = True
        needs = np.where(bets, np.exp(-self._logs(high)), 0.0)
        return needs * (self.alpha * (1 - 1e-12) / needs.sum())


def plug_in(sample: Sample, radii: Floats, floor: float) -> Floats:
    """Return the worst-case mean of the sample itself at each radius: an estimate, too high on average, never a bound."""
    n = sample.counts.sum()
    reach = (n - np.cumsum(sample.counts) + sample.counts) / n
    gaps = np.diff(sample.values, prepend=floor)
    return np.array([floor + float(gaps @ shift_down(reach, radius)) for radius in radii])


def _checked_radii(radii: ArrayLike) -> Floats:
    asked = np.unique(np.asarray(radii, dtype=np.float64))
    if asked.size == 0 or not np.all(asked >= 0):
        raise InputError("expected at least one radius, and none below 0")
    return asked
