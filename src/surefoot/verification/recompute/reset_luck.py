"""Bounds that know how lucky the start of an episode was (T9), recomputed; nothing else of surefoot is used.

Given what the environment drew at reset, Z, an episode is a game of its own, and under attack its mean is at least the
integral of g(P(X >= y | Z)), g(p) = Phi(Phi^-1(p) - radius). A tangent of g at any guess that was made of Z and of
earlier episodes has a mean of at most that, given Z. Here the guess at y is that of a curve at y - shift, where shift
is ``move`` times one number h of the recorded features; and h decides which of several curves that is. All curves begin
where the return minus shift can be at best luck. Up to where it can be at the luck of an episode, that episode has
certainly reached every y: what the tangent lacks of 1 there is added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from surefoot.verification.recompute.bands import CannotRecomputeError, Claim, Side
from surefoot.verification.recompute.bets import Account, Curve, PlannedBet, PlannedBettor, settled

Floats = NDArray[np.float64]
MOST = 1e60  # of a weight: more, and h could be no number


def predicted_luck(episode: list[float], weights: list[list[float]]) -> float:
    """Return the h of one episode, summed in the order of its features."""
    total = 0.0
    for feature, center, linear, squared in zip(episode, *weights, strict=True):
        total += linear * (feature - center) + squared * ((feature - center) * (feature - center))
    return total


class LuckAccount(Account):
    """The capital of one bettor on episodes whose luck is known; its ``returns`` are their numbers."""

    def __init__(self, returns: Floats, features: Floats, floor: float, bettor: PlannedBettor) -> None:
        super().__init__(np.arange(float(returns.size)), floor, bettor)
        self.paid = returns
        self.features = features
        self.curves: list[Curve] = []
        self.surpluses: list[Floats] = []

    def _has_valid_guesses(self, bet: PlannedBet) -> bool:
        if bet.guesses is None:
            return self.radius == 0
        if bet.guesses is self.curve.guesses:
            return True
        points, rows, cuts, weights, ends = bet.guesses
        if ends.shape != (3,) or weights.shape != (3, self.features.shape[1]):
            return False
        low, high, move = ends.tolist()
        in_range = bool(np.all(np.abs(weights) <= MOST)) and -math.inf < low <= high < math.inf and 0 <= move < math.inf
        fits = cuts.ndim == 1 and rows.shape == (cuts.size + 1, points.size) and bool(np.all(np.diff(cuts) >= 0))
        ascend = bool(np.all(np.diff(points, prepend=self.floor - move * high) > 0))
        return in_range and fits and ascend and bool(np.all((rows >= 0) & (rows < 1)))

    def _score_returns(self, bet: PlannedBet, returns: Floats) -> tuple[Floats, float]:
        """Return the scores of the episodes with these numbers, and the lowest score that any has."""
        numbers = returns.astype(np.int64)
        paid = self.paid[numbers]
        if bet.guesses is None:
            return paid, self.floor
        points, rows, cuts, weights, (low, high, move) = bet.guesses
        begin = float(self.floor - move * high)
        if bet.guesses is not self.curve.guesses:
            self.curves = [Curve.of((points, row), self.radius, begin) for row in rows]
            self.surpluses = [self._surplus_of(row, points, begin) for row in rows]
            # By this the next bet of the block is known to have the same guesses.
            self.curve = Curve(bet.guesses, np.zeros(1), np.zeros(1), 0.0)
        lucks = [predicted_luck(episode, weights.tolist()) for episode in self.features[numbers].tolist()]
        luck = np.array([min(max(one, low), high) for one in lucks])
        which = (luck[:, None] > cuts).sum(axis=1)
        shift = move * luck
        scores = np.zeros(paid.shape)
        for number, (curve, surplus) in enumerate(zip(self.curves, self.surpluses, strict=True)):
            reached = self.floor - shift
            certain = np.interp(reached, curve.knots, surplus) + np.maximum(reached - curve.knots[-1], 0.0)
            scores = np.where(which == number, curve(paid - shift) + shift + certain, scores)
        highest = float(move * high)
        lowest = min(curve.lowest for curve in self.curves)
        return scores, lowest + highest - 1e-12 * (abs(lowest) + abs(highest))

    def _surplus_of(self, row: Floats, points: Floats, begin: float) -> Floats:
        """Return, up to each knot, what is missing to 1 where the tangent at the guess is taken at 1."""
        if self.radius == 0:
            return np.zeros(points.size + 1)
        z = ndtri(row)
        slope = np.exp(self.radius * z - self.radius**2 / 2)
        at_one = ndtr(z - self.radius) + (1 - row) * slope
        steps = np.diff(points, prepend=begin)
        return np.concatenate([[0.0], np.cumsum(steps * np.maximum(1 - at_one, 0.0))])


def settle_luck_bets(
    returns: Floats,
    features: Floats,
    claim: Claim,
    ends: tuple[float, float | None],
    bettors: Sequence[PlannedBettor],
    rows: list[Any],
) -> tuple[Side, list[str]]:
    """Return what planned bets on episodes with their luck have proved, and where the recorded bets are others.

    Raises:
        CannotRecomputeError: If these are not the features of so many episodes.
    """
    if features.ndim != 2 or len(features) != returns.size or not np.all(np.isfinite(features)):
        raise CannotRecomputeError(f"{returns.size} returns with luck of shape {features.shape} are not computed here")

    def open_account(bettor: PlannedBettor) -> Account:
        return LuckAccount(returns, features, ends[0], bettor)

    return settled(np.empty(0), claim, ends, bettors, rows, open_account)
