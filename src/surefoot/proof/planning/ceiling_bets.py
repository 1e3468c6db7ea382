"""Bets of an agent that has been perfect so far: one for all scaled budgets, before alpha is split among them.

Bounds at several scaled budgets share alpha because each has bets of its own. A perfect agent needs none of its own:
bets on the return itself, against claims of its mean, serve for all scaled budgets at once, with all of alpha
(``settle`` (e)). If the ceiling keeps coming, what they prove is the exact binomial bound of the ceiling.

When other returns have come, bets at each scaled budget may prove more (``alpha_shares``). Then alpha is split at the
next edge. With a single scaled budget nothing is split, but bets change in the same way, to scores made for it
(``proposals``); these need to know at which heights an agent fails, so they wait for a second failure.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from surefoot.proof.bounds.samples import OrderedOutcomes, Sample
from surefoot.proof.bounds.settle import Bet, CapitalAccount
from surefoot.proof.bounds.tangent_scores import PlainScore
from surefoot.proof.planning.alpha_shares import better_unsplit
from surefoot.proof.planning.bettors import edges_for, pilot_size
from surefoot.proof.planning.hedged_bets import HedgedPlanner, ScoreModel, _Block
from surefoot.proof.planning.proposals import Past, Proposal

Floats = NDArray[np.float64]

_FEWEST = 2.0  # returns at the floor: the fewest that are claimed
_NEAR = 20.0  # and up to which claims are close
_SHARE = 1e-9


class CeilingPlanner(HedgedPlanner):
    """Bets on the mean return, with all of alpha, until it is split."""

    def __init__(self, scaled_budgets: Floats, alpha: float, n: int, floor: float, ceiling: float) -> None:
        edges = edges_for(n)
        first = n_opening(n)
        super().__init__([first, *edges] if first < edges[0] else edges)
        self.scaled_budgets = scaled_budgets
        self.alpha = alpha
        self.floor = floor
        self.ceiling = ceiling
        self._edges = edges
        self._renew_from = 0

    def next_bet(self, past: OrderedOutcomes, account: CapitalAccount) -> Bet | None:
        """Return the bet on the next batch; None where alpha is to be split, or after the last return."""
        if past.size in self._edges and self._should_split(past.sample(), self.total - past.size):
            return None
        return super().next_bet(past, account)

    def _should_split(self, past: Sample, left: int) -> bool:
        failures = past.counts[past.values < self.ceiling].sum()
        if self.scaled_budgets.size < 2:  # nothing to split, but other scores: for these one failure shows too little
            return bool(failures > 1)
        if failures == 0:
            return False
        return not better_unsplit(past, self.scaled_budgets, self.alpha, self.floor, self.ceiling, left)

    def _plan_block(self, past: Past, begin: int, account: CapitalAccount) -> _Block:
        """Bet on the return itself; expect the ceiling to go on as long as nothing else has come."""
        assert isinstance(past, Sample)
        proposal = Proposal(PlainScore(self.floor))
        reach = self.ceiling - self.floor
        perfect = bool(past.values[0] == self.ceiling)
        if perfect:
            # any small share will do: whatever else may come counts as the floor
            model = ScoreModel(self.ceiling - _SHARE * reach, _SHARE * reach**2, reach)
        else:
            model = ScoreModel.of(proposal, past)
        # new claims with the first failure, and again whenever the returns have doubled
        if self._claims is None or (not perfect and begin >= self._renew_from):
            if perfect:
                self._claims = self._claims_of_failures()
            else:
                self._claims = self._choose_claims(model, begin, self.floor)
                self._renew_from = 2 * begin
        return self._open_block(self._claims, proposal, model, account)

    def _claims_of_failures(self) -> Floats:
        """Return claims of all numbers of returns below the ceiling: close to each other where there are few."""
        few = np.geomspace(_FEWEST, _NEAR, 300, endpoint=False)
        many = np.geomspace(_NEAR, max(self.total, 2 * _NEAR), 150, endpoint=False)
        lost = np.concatenate([few, many])[::-1]
        claims: Floats = self.ceiling - (self.ceiling - self.floor) / self.total * lost
        return claims[claims > self.floor]


def n_opening(n: int) -> int:
    """Return how many of n returns must be the ceiling before bets are made that expect it to go on."""
    return max(1, min(pilot_size(n), round(math.sqrt(n) / 2)))  # never a return that is bet on
