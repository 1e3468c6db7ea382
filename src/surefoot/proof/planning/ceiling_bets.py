"""Bets of an agent that has been perfect so far: one for all scaled budgets, before alpha is split among them.

Bounds at several scaled budgets share alpha because each has bets of its own. A perfect agent needs none of its own.
If no return exceeds b, a the floor, then every distribution with a mean E X = a + (b - a) p has (``from_bets``)

    (L_c - a) / (b - a) >= g_c(p),     with equality where only a and b come,

so the claim "L_c <= a + (b - a) g_c(p)" implies the claim "E X <= a + (b - a) p", and bets on the return itself,
against claims of its mean, serve for all c at once, with all of alpha. If the ceiling keeps coming, what they prove is
the exact binomial bound of the ceiling.

When other returns have come, bets at each c may prove more (``alpha_shares``). Then alpha is split at the next edge,
and the bettor at c with the share w_c of alpha goes on from what was owned. With a single c nothing is split, but bets
change in the same way, to scores made for c (``tangent_scores``); these need to know at which heights an agent fails,
so they wait for a second failure. Let V be the capital against the true
distribution: W(E X) up to the split, and then

    sum over c of w_c W(E X) R_c(L_c),     sum over c of w_c <= 1,

where R_c is what the bets at c have made of each unit since. V is a nonnegative supermartingale that starts at 1, so
by Ville's inequality it reaches 1/alpha with a probability of at most alpha. W against a claim "E X <= m" may fall or
grow with m, for bets depend on m. So a claim about L_c starts with the least that is owned against any claim m up to
the one that it implies: E X is in the range of one of these, and W(E X) is no less. Where L_c is above all claims, E X
may be anywhere. A bound at c that exceeds L_c therefore needs V >= 1/alpha: before the split, or because
w_c W(E X) R_c(L_c) reached it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from surefoot.proof.bounds.samples import Sample, Seen
from surefoot.proof.bounds.tangent_scores import implied
from surefoot.proof.planning.alpha_shares import better_unsplit
from surefoot.proof.planning.bettors import Bet, Plain, Score, edges_for, pilot_size
from surefoot.proof.planning.hedged_bets import Hedger, Model

Floats = NDArray[np.float64]

_FEWEST, _NEAR = 2.0, 20.0  # returns at the floor: the fewest that are claimed, and up to which claims are close
_SHARE = 1e-9


class CeilingBets(Hedger):
    """Bets on the mean return, with all of alpha, until it is split.

    ``end``  after how many returns alpha is split, or their number in all if it never is; None before
    """

    def __init__(self, radii: Floats, alpha: float, n: int, floor: float, ceiling: float) -> None:
        edges = edges_for(n)
        first = glance(n)
        super().__init__(lambda _: [Plain(floor)], alpha, [first, *edges] if first < edges[0] else edges, floor)
        self.radii, self.ceiling, self._edges = radii, ceiling, edges
        self.end: int | None = None
        self._again = 0

    def next_bet(self, seen: Seen) -> Bet | None:
        """Return the bet on what comes next; None where alpha is to be split, or after the last return."""
        self.advance(seen)
        return self._planned(seen) if self.end is None else None

    def advance(self, seen: Seen) -> None:
        """Settle all bets on returns that have come."""
        while self.end is None and seen.size >= (first := self._batches[self._next][0]):
            if self._block[0] != first in self._edges and self._to_split(seen.sample(0, first), self.total - first):
                self.end = first
            elif seen.size >= self._batches[self._next][1]:
                self._settle(self._planned(seen), seen)
                self._next += 1
                self.end = self.total if self._next == len(self._batches) else None
            else:
                return

    def _to_split(self, past: Sample, left: int) -> bool:
        failures = int(past.count_below(np.array([self.ceiling]))[0])
        if self.radii.size < 2:  # nothing to split, but other scores to bet on: for these one failure shows too little
            return failures > 1
        return failures > 0 and not better_unsplit(past, self.radii, self.alpha, self.floor, self.ceiling, left)

    def _settled(self, seen: Seen, begin: int, end: int) -> tuple[int, Score | None, Model]:
        past, reach = seen.sample(0, begin), self.ceiling - self.floor
        perfect = bool(past.values[0] == self.ceiling)
        # any small share will do: whatever else may come counts as the floor
        model = Model(self.ceiling - _SHARE * reach, _SHARE * reach**2, reach)
        if not perfect:
            model = Model.of(Plain(self.floor), past)
        if not self.fixed or (not perfect and begin >= self._again):
            self._renew(self._first_claims() if perfect else self._chosen(model, begin))
            self._again = 0 if perfect else 2 * begin
        self.fixed.append((begin, end - begin, None))
        return begin, Plain(self.floor), model

    def _first_claims(self) -> Floats:
        """Return claims of all numbers of returns below the ceiling: close to each other where there are few."""
        few = np.geomspace(_FEWEST, _NEAR, 300, endpoint=False)
        many = np.geomspace(_NEAR, max(self.total, 2 * _NEAR), 150, endpoint=False)
        lost = np.concatenate([few, many])[::-1]
        claims: Floats = self.ceiling - (self.ceiling - self.floor) / self.total * lost
        return claims[claims > self.floor]

    def owned_at(self, radius: float) -> tuple[Floats, Floats, float, NDArray[np.bool_]]:
        """Return claims about the worst-case mean, what is owned against each and above all, and which are refuted.

        What is owned is the least that is owned against the mean, wherever it may be if the claim is true.
        """
        claims = implied(np.zeros(self.claims.size), self.claims, np.array([radius]), self.floor, self.ceiling)[:, 0]
        above = float(np.min(self.owned, initial=self.above))
        return claims, np.minimum.accumulate(self.owned), above, np.logical_and.accumulate(self.done)


def glance(n: int) -> int:
    """Return how many of n returns must be the ceiling before bets are made that expect it to go on."""
    return max(1, min(pilot_size(n), round(math.sqrt(n) / 2)))  # never a return that is bet on
