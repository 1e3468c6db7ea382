"""Bounds of a mean whose outcomes cannot fall below a floor: for a fixed number of them, or anytime-valid.

When bets are made, and for which horizon. ``betting`` says why the bounds hold, ``stakes`` which bet sizes are good.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from surefoot.proof.bounds.betting import Capital, Round
from surefoot.proof.bounds.binomial import check_alpha
from surefoot.proof.bounds.samples import Sample, Seen
from surefoot.proof.planning.stakes import Aim, Candidates, Choice, plan

Floats = NDArray[np.float64]

# Version of all that is planned (which method, which shares of alpha, which scores and bet sizes), written into
# certificates. Raise it with every change of a rule or a constant here, in `auto`, or in what either plans with.
PLANNER = 7
HORIZON, _FAMILY = 1000, 10  # the shortest horizon of those who bet for any stopping time, and how many they are
_FIRST, _LONGEST = 100, 10**12  # outcomes that are only inspected before a claim is bet on; more are never run


class Score(Protocol):
    """A fixed function of an outcome whose mean is what is bet on."""

    @property
    def lowest(self) -> float:
        """The least it can be, whatever the outcome."""
        ...

    @property
    def cutoff(self) -> float | None:
        """How it was made of the past, where there is a choice."""
        ...

    def __call__(self, outcomes: Floats) -> Floats:
        """Score outcomes."""
        ...


@dataclass(frozen=True, eq=False)
class Hedge:
    """Bet sizes that depend on the claim, ``stakes`` on each of ``claims``; ``block`` is where the score is used."""

    claims: Floats
    stakes: Floats
    block: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Bet:
    """The bet on the outcomes from index ``first`` up to ``last``, planned from those before ``first`` alone.

    ``score``  what is bet on; None where nothing is bet
    ``stake``  the bet size against all claims
    ``hedge``  bet sizes that depend on the claim, instead of one
    """

    first: int
    last: int
    score: Score | None
    stake: float = 0.0
    hedge: Hedge | None = None


class Bettor:
    """Bets on one quantity with scores and bet sizes that are updated at each edge, from the outcomes before it.

    ``propose``  scores to choose from, given the outcomes so far; each must have a mean of at most the quantity
    ``alpha``    the error probability
    ``edges``    numbers of outcomes, ascending: nothing is bet before the first, nor after the last
    ``horizon``  the number of outcomes that bet sizes are chosen for; the last edge unless given
    ``claim``    a value that the quantity is to be proved to exceed as soon as possible, or None for the best bound
    """

    def __init__(
        self,
        propose: Callable[[Sample], Sequence[Score]],
        alpha: float,
        edges: Sequence[int],
        claim: float | None = None,
        horizon: int | None = None,
    ) -> None:
        check_alpha(alpha)
        self.horizon = edges[-1] if horizon is None else horizon
        self.propose, self.alpha, self.edges, self.claim = propose, alpha, edges, claim
        self._past = Capital()
        self._open: Capital = self._past
        self._next = 0
        self._bet: Bet | None = None

    @property
    def first(self) -> int:
        """The number of outcomes that are only inspected."""
        return self.edges[0]

    def expect(self, past: Sample, rounds: float) -> tuple[Score | None, Choice]:
        """Choose score and bet size from the past, for ``rounds`` outcomes to come."""
        scores = list(self.propose(past))
        rough = past.grouped()
        if not scores:
            return None, Choice(0, 0.0, -math.inf)
        choice = plan(candidates(scores, rough), Aim(self.alpha, rounds, self.claim), self._past)
        return (scores[choice.index] if choice.stake > 0 else None), choice

    def next_bet(self, seen: Seen) -> Bet | None:
        """Return the bet on what comes after the outcomes seen, which end at an edge; None after the last edge."""
        self.advance(seen)
        return self._planned(seen) if self._next + 1 < len(self.edges) else None

    def _planned(self, seen: Seen) -> Bet:
        if self._bet is None:
            first, last = self.edges[self._next], self.edges[self._next + 1]
            score, choice = self.expect(seen.sample(0, first), self.horizon - first)
            self._bet = Bet(first, last, score, choice.stake)
        return self._bet

    def advance(self, seen: Seen) -> None:
        """Take note of all outcomes up to now; those of earlier calls must come first among them."""
        self._open = self._past
        while self._next + 1 < len(self.edges) and seen.size > self.edges[self._next]:
            bet = self._planned(seen)
            if bet.score is not None:
                block = seen.sample(bet.first, min(bet.last, seen.size))
                scores = Sample(bet.score(block.values), block.counts)
                self._open = self._past.with_round(
                    Round(scores, bet.stake, bet.score.lowest, bet.first, bet.score.cutoff)
                )
            if seen.size < bet.last:
                return
            self._past, self._bet, self._next = self._open, None, self._next + 1

    @property
    def rounds(self) -> Sequence[Round]:
        """The bets so far, with their outcomes."""
        return self._open.rounds

    def limit(self) -> float:
        """Return the lower bound of the quantity as of the last call of ``advance``, or minus infinity."""
        return self._open.limit(self.alpha)


def candidates(scores: Sequence[Score], past: Sample) -> Candidates:
    """Return what scores make of the past, for plans."""
    lowest = np.array([score.lowest for score in scores])
    return Candidates(np.array([score(past.values) for score in scores]), lowest, past.counts)


def family(propose: Callable[..., Sequence[Score]], alpha: float) -> list[Bettor]:
    """Return bettors for any stopping time; ``propose`` is given the past and how many outcomes are ``expected``.

    Each bets for its own horizon (1,000, 4,000, ... outcomes) at an even share of alpha. The one that is best placed at
    any moment gives the bound; by the union bound all their bounds hold simultaneously at all times.
    """
    horizons = [HORIZON * 4**k for k in range(_FAMILY)]
    return [Bettor(partial(propose, expected=float(many)), alpha / _FAMILY, doubling_edges(many)) for many in horizons]


@dataclass(frozen=True)
class Plain:
    """The outcome itself as its score."""

    lowest: float
    cutoff: float | None = None

    def __call__(self, outcomes: Floats) -> Floats:
        """Return the outcomes."""
        return outcomes


def pilot_size(n: int) -> int:
    """Return how many of n outcomes, the first ones, are inspected before anything is bet or chosen."""
    return min(n // 10, round(2 * math.sqrt(n)))


def edges_for(n: int) -> list[int]:
    """Return where bet sizes are updated when n is known: after the pilot, then whenever there is an eighth more."""
    edges = [max(1, pilot_size(n))]
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
