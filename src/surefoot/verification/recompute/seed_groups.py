"""Bounds from several draws of the noise per seed (T6), recomputed from the returns; nothing else of surefoot is used.

Given the seed Z of the environment, an episode is a game of its own, and under attack its mean is at least the integral
of g(P(X >= y | Z)), g(p) = Phi(Phi^-1(p) - radius). The draws of one seed have the same probabilities given Z and
independent noise. So a tangent of g at any guess that was made of the other draws of the seed, and of earlier seeds,
has a mean of at most that bound given Z. Here one number v of the other draws decides which one of several tangent
scores is used. The mean of a seed's scores is one number, and seeds are independent: bets on it prove what bets on
returns do.

v is the mean of the other draws, those more than w above their least counted as w above it. So v is at most w above the
least draw of the seed, for all draws but that one: no other scores less than its score gives to v - w.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.verification.recompute.bands import CannotRecomputeError, Claim, Side
from surefoot.verification.recompute.bets import Account, Curve, PlannedBet, PlannedBettor, settled

Floats = NDArray[np.float64]


def table_of(returns: Floats, n_draws: Any) -> Floats:
    """Return the returns with a row for each seed.

    Raises:
        CannotRecomputeError: If these are no returns of so many draws for each seed.
    """
    if not isinstance(n_draws, int) or isinstance(n_draws, bool) or n_draws < 2 or returns.size % n_draws:
        raise CannotRecomputeError(f"{returns.size} returns with {n_draws!r:.40} draws per seed are not computed here")
    return np.reshape(returns, (-1, n_draws))


def luck_of(table: Floats, draw: int, reach: float) -> Floats:
    """Return the v of one draw of each seed, in which it must have no part: summed in the order of the others."""
    others = np.delete(table, draw, axis=1)
    counted = np.minimum(others, others.min(axis=1, keepdims=True) + reach)
    # One after the other: a pairwise sum would have other bits.
    return np.asarray(np.cumsum(counted, axis=1)[:, -1] / others.shape[1], dtype=np.float64)


class GroupAccount(Account):
    """The capital of one bettor on seeds; its ``returns`` are their numbers."""

    def __init__(self, table: Floats, floor: float, bettor: PlannedBettor, lucks: dict[float, Floats]) -> None:
        super().__init__(np.arange(float(len(table))), floor, bettor)
        self.table = table
        self.lucks = lucks  # by their reach, for all who bet with the same
        self.curves: list[Curve] = []
        self.least = 0.0

    def _has_valid_guesses(self, bet: PlannedBet) -> bool:
        if bet.guesses is None:
            return self.radius == 0
        if bet.guesses is self.curve.guesses:
            return True
        points, rows, cuts, reach = bet.guesses
        fits = cuts.ndim == 1 and rows.shape == (cuts.size + 1, points.size) and reach.shape == (1,)
        ascend = bool(np.all(np.diff(points, prepend=self.floor) > 0)) and bool(np.all(np.diff(cuts) >= 0))
        return fits and ascend and bool(np.all((rows >= 0) & (rows < 1))) and 0 <= float(reach[0]) < math.inf

    def _score_returns(self, bet: PlannedBet, returns: Floats) -> tuple[Floats, float]:
        """Return the scores of the seeds with these numbers, and the lowest score that any seed has."""
        seeds = returns.astype(np.int64)
        paid = self.table[seeds]
        if bet.guesses is None:
            return np.array([math.fsum(row) / len(row) for row in paid.tolist()]), self.floor
        points, rows, cuts, (reach,) = bet.guesses
        if bet.guesses is not self.curve.guesses:
            self.curves = [Curve.of((points, row), self.radius, self.floor) for row in rows]
            self.least = self._least_score(cuts, reach)
            # By this the next bet of the block is known to have the same guesses.
            self.curve = Curve(bet.guesses, np.zeros(1), np.zeros(1), 0.0)
        which = (self._luck(float(reach))[seeds][:, :, None] > cuts).sum(axis=2)
        scores = np.zeros(paid.shape)
        for number, curve in enumerate(self.curves):
            scores = np.where(which == number, curve(paid), scores)
        return scores.sum(axis=1) / paid.shape[1], self.least

    def _least_score(self, cuts: Floats, reach: float) -> float:
        """Return what no seed scores less than: one draw may have the lowest score, all others are not so low."""
        lowest = min(curve.lowest for curve in self.curves)
        others = [self.curves[0].lowest]
        for cut, curve in zip(cuts.tolist(), self.curves[1:], strict=True):
            others.append(float(curve(np.array([cut - reach - 1e-12 * (abs(cut) + reach)]))[0]))
        n_draws = self.table.shape[1]
        rest = min(others)
        return float((lowest + (n_draws - 1) * rest) / n_draws - 1e-12 * (abs(lowest) + abs(rest)))

    def _luck(self, reach: float) -> Floats:
        if reach not in self.lucks:
            draws = range(self.table.shape[1])
            self.lucks[reach] = np.stack([luck_of(self.table, draw, reach) for draw in draws], axis=1)
        return self.lucks[reach]


def settle_group_bets(
    table: Floats, claim: Claim, ends: tuple[float, float | None], bettors: Sequence[PlannedBettor], rows: list[Any]
) -> tuple[Side, list[str]]:
    """Return what planned bets on seeds have proved, and where the recorded bets are others."""
    lucks: dict[float, Floats] = {}

    def open_account(bettor: PlannedBettor) -> Account:
        return GroupAccount(table, ends[0], bettor, lucks)

    return settled(np.empty(0), claim, ends, bettors, rows, open_account)
