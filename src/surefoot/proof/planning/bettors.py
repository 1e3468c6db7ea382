"""When bets are made and for which horizon, with one bet size against all claims: for any stopping time.

``edges`` are numbers of returns at which score and bet size are chosen anew: nothing is bet before the first, nor after
the last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from surefoot.proof.bounds.samples import OrderedOutcomes
from surefoot.proof.bounds.settle import AlphaShare, Bet, CapitalAccount
from surefoot.proof.planning.proposals import propose_scores
from surefoot.proof.planning.stakes import Aim, choose_proposal

# Version of all that is planned (which method, which shares of alpha, which scores and bet sizes), written into
# certificates. Raise it with every change of a rule or a constant in this folder.
PLANNER_VERSION = 11
HORIZON = 1000  # the shortest of those who bet for any stopping time
_FAMILY = 18  # and how many they are, each with twice the horizon of the one before
_FALL = 1.3  # the power of their number by which their shares of alpha fall
_FIRST = 100  # outcomes that are only inspected before a claim is bet on
_LONGEST = 10**12  # more outcomes are never run


class SteadyPlanner:
    """Bets the same against all claims, with score and bet size chosen anew at each edge.

    ``expected``  how many returns scores are made for; None for twice as many as there were
    ``claim``     a value that is to be proved as soon as possible, or None for the best bound after the last edge
    """

    def __init__(self, edges: Sequence[int], expected: float | None, claim: float | None = None) -> None:
        self.edges = edges
        self.first = edges[0]
        self.expected = expected
        self.claim = claim
        self._n_bets = 0

    def next_bet(self, past: OrderedOutcomes, account: CapitalAccount) -> Bet | None:
        """Return the bet on the returns up to the next edge; None after the last."""
        if self._n_bets + 1 == len(self.edges):
            return None
        first = self.edges[self._n_bets]
        last = self.edges[self._n_bets + 1]
        self._n_bets += 1
        # score and bet size follow from all that has come so far
        sample = past.sample()
        proposals = propose_scores(sample, self.expected, scaled_budget=account.scaled_budget, floor=account.floor)
        aim = Aim(account.alpha, self.edges[-1] - first, self.claim)
        chosen, choice = choose_proposal(proposals, sample, aim, account.capital)
        if chosen is None:
            return Bet(first=first, last=last, block=(first, last))
        return Bet(
            first=first,
            last=last,
            block=(first, last),
            guesses=chosen.guesses,
            stake=choice.stake,
            cutoff=chosen.cutoff,
        )


def anytime_bettors(scaled_budget: float, alpha: float) -> list[AlphaShare]:
    """Return who bets at a scaled budget for any stopping time.

    Each bets for its own horizon (1,000, 2,000, ... returns); what they own is added up, so that those with horizons
    next to each other prove together what none of them would alone. Nobody knows the horizon, but runs of a hundred
    million are rarer than runs of a thousand: shares fall with it, slowly.
    """
    weights = [(k + 1) ** -_FALL for k in range(_FAMILY)]
    shares = []
    for k, weight in enumerate(weights):
        horizon = HORIZON * 2**k
        planner = SteadyPlanner(doubling_edges(horizon), float(horizon))
        shares.append(AlphaShare(scaled_budget, alpha * weight / sum(weights), planner))
    return shares


def bettor_for_claim(scaled_budget: float, value: float, alpha: float) -> AlphaShare:
    """Return who bets for the proof of a value at a scaled budget, as soon as possible."""
    return AlphaShare(scaled_budget, alpha, SteadyPlanner(growing_edges(), None, value))


def pilot_size(n: int) -> int:
    """Return how many of n outcomes, the first ones, are inspected before anything is bet or chosen."""
    return min(n // 10, round(2 * math.sqrt(n)))


def edges_for(n: int, first: int | None = None) -> list[int]:
    """Return where bet sizes are updated when n is known: first after the pilot, then at every eighth more."""
    edges = [max(1, pilot_size(n)) if first is None else first]
    while edges[-1] + 2 * max(1, edges[-1] // 8) < n:
        edges.append(edges[-1] + max(1, edges[-1] // 8))
    return [*edges, n]


def doubling_edges(horizon: int) -> list[int]:
    """Return where one of a family updates its bet sizes: only when outcomes have doubled; a family is costly."""
    edges = [max(1, min(horizon // 10, round(3 * math.sqrt(horizon))))]
    while edges[-1] * 3 < horizon:
        edges.append(edges[-1] * 2)
    return [*edges, horizon]


def growing_edges() -> list[int]:
    """Return where bet sizes are updated for the proof of a claim, however long it takes."""
    edges = [_FIRST]
    while edges[-1] < _LONGEST:
        edges.append(edges[-1] + edges[-1] // 2)
    return edges
