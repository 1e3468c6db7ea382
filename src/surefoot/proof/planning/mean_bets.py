"""Bets on the mean return without attack: the score is the return itself, so that no pilot has to choose one.

With floor and ceiling known, bets begin with the first return, as if one return had come from the uniform distribution
between them. The fewer returns there are, the more a pilot would cost: of 100 a tenth. As soon as there are as many
returns as a pilot has, they say themselves what to expect: a ceiling may be far above all of them.

The aim is recalculated before every bet, from what is still missing and the returns that are left (``hedged_bets``), as
in the STaR-Bets of Voracek and Orabona (2025), which also begin with the first return. Theirs bet so that the capital
grows by what is missing; these buy an option that pays it, which does not lose all where a drop is rare.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from surefoot.proof.bounds.samples import Sample
from surefoot.proof.bounds.settle import CapitalAccount
from surefoot.proof.bounds.tangent_scores import PlainScore
from surefoot.proof.planning.bettors import edges_for, pilot_size
from surefoot.proof.planning.hedged_bets import HedgedPlanner, ScoreModel, _Block
from surefoot.proof.planning.proposals import Past, Proposal

Floats = NDArray[np.float64]

_EVEN = 4000  # claims from floor to ceiling, evenly, before anything is known
_MANY = 10_000  # returns of which a pilot is so small a part that bets may wait for it
_WIDE = 1e100  # a range whose square no float can overflow
_RARE = 0.3  # skewness of the sum of all returns from which on drops are counted one by one


def needs_pilot(scaled_budgets: Floats, n: int, floor: float, ceiling: float | None) -> bool:
    """Return whether bets on n returns begin after a pilot: there is more to prove than a mean, or enough returns."""
    if ceiling is None or not 0 < ceiling - floor < _WIDE:
        return True
    return n >= _MANY or bool(scaled_budgets.any())


class MeanPlanner(HedgedPlanner):
    """Bets on the mean return from a given return on."""

    # with few returns the last ones matter: the capital shall be there before
    aim = 0.75

    def __init__(self, first: int, n: int, floor: float, ceiling: float) -> None:
        super().__init__(edges_for(n, first))
        self.floor = floor
        self.ceiling = ceiling

    def _plan_block(self, past: Past, begin: int, account: CapitalAccount) -> _Block:
        assert isinstance(past, Sample)
        proposal = Proposal(PlainScore(self.floor))
        model = self._expect(past)
        if past.size >= pilot_size(self.total):
            model = ScoreModel.of(proposal, past)
        if not model.drop > _RARE * math.sqrt(model.variance * self.total):
            model = ScoreModel(model.mean, model.variance, 0.0)
        if self._claims is None:
            even = np.linspace(self.floor, self.ceiling, _EVEN, endpoint=False)
            self._claims = even[even > self.floor]
        elif begin == self._renewals[-1]:
            self._claims = self._closer_claims(self._claims, model, begin)
        return self._open_block(self._claims, proposal, model, account)

    def _expect(self, past: Sample) -> ScoreModel:
        """Return the moments of the past and of one uniform return."""
        middle = (self.floor + self.ceiling) / 2
        spread = (self.ceiling - self.floor) ** 2 / 12
        size = past.size + 1
        mean = (float(past.counts @ past.values) + middle) / size
        away = past.values - mean
        variance = (float(past.counts @ away**2) + (middle - mean) ** 2 + spread) / size
        third = (float(past.counts @ away**3) + (middle - mean) ** 3 + 3 * (middle - mean) * spread) / size
        return ScoreModel(mean, variance, -third / variance)

    def _closer_claims(self, claims: Floats, model: ScoreModel, begin: int) -> Floats:
        """Return claims near the bound, if they are closer to each other than those so far."""
        near = self._choose_claims(model, begin, self.floor)
        # there are none where all returns were the floor, or where no float is between floor and ceiling
        if near.size == 0 or claims.size < 2:
            return claims
        expected = model.mean - 2 * math.sqrt(model.variance / self.total)
        are_closer = np.diff(near, prepend=self.floor).min() < (claims[1] - claims[0]) / 2
        if are_closer and near[0] < expected < near[-1]:
            return near
        return claims
