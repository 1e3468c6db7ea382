"""Limits for a mean whose outcomes cannot fall below a floor: for a settled number of them, or at every moment.

Who bets, when, and for which horizon. Why the limits hold is said in ``betting``; which stakes are wise in ``stakes``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot.errors import InputError
from surefoot.proof.bounds.betting import Capital, Round, Sample
from surefoot.proof.bounds.stakes import Aim, Candidate, Choice, plan

Floats = NDArray[np.float64]

HORIZON, _FAMILY = 1000, 10  # the shortest horizon of those who bet for any stopping time, and how many they are
_FIRST, _LONGEST = 100, 10**12  # outcomes that are only looked at before a claim is bet on; nobody plays more than that


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


class Bettor:
    """Bets on one quantity with scores and stakes that are settled anew at each edge, from what came before it.

    ``propose``  scores to choose from, given the outcomes so far; each must have a mean of at most the quantity
    ``alpha``    the risk
    ``edges``    numbers of outcomes, ascending: nothing is staked before the first, nor after the last
    ``horizon``  the number of outcomes that stakes are settled for; the last edge unless given
    ``claim``    a value that the quantity is to be proved to exceed as soon as possible, or None for the best limit
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
        self._settled: tuple[Score | None, Choice] | None = None

    def expect(self, past: Sample, rounds: float) -> tuple[Score | None, Choice]:
        """Settle score and stake from the past, for ``rounds`` outcomes to come."""
        scores = list(self.propose(past))
        rough = past.grouped()
        candidates = [Candidate(score(rough.values), rough.counts, score.lowest) for score in scores]
        choice = plan(candidates, Aim(self.alpha, rounds, self.claim), self._past)
        return (scores[choice.index] if choice.stake > 0 else None), choice

    def advance(self, seen: Seen) -> None:
        """Take note of all outcomes up to now; those of earlier calls must come first among them."""
        self._open = self._past
        while self._next + 1 < len(self.edges) and seen.size > self.edges[self._next]:
            first, last = self.edges[self._next], self.edges[self._next + 1]
            if self._settled is None:
                self._settled = self.expect(seen.sample(0, first), self.horizon - first)
            self._open = self._past.with_round(_round(self._settled, seen.sample(first, min(last, seen.size)), first))
            if seen.size < last:
                return
            self._past, self._settled, self._next = self._open, None, self._next + 1

    @property
    def rounds(self) -> Sequence[Round]:
        """What was staked so far, and on what."""
        return self._open.rounds

    def limit(self) -> float:
        """Return the lower limit of the quantity as of the last call of ``advance``, or minus infinity."""
        return self._open.limit(self.alpha)


class Seen:
    """Outcomes up to now, in order, with the samples that bettors of the same edges share."""

    def __init__(self, outcomes: Floats) -> None:
        self.outcomes, self.size = outcomes, outcomes.size
        self._samples: dict[tuple[int, int], Sample] = {}

    def sample(self, first: int, last: int) -> Sample:
        """Return the outcomes from one index to another, in no order."""
        if (first, last) not in self._samples:
            self._samples[first, last] = Sample.of(self.outcomes[first:last])
        return self._samples[first, last]


def _round(settled: tuple[Score | None, Choice], block: Sample, first: int) -> Round:
    score, choice = settled
    if score is None:
        return Round(block, 0.0, -math.inf)
    return Round(Sample(score(block.values), block.counts), choice.stake, score.lowest, first, score.cutoff)


def bettors(propose: Callable[[Sample, float], Sequence[Score]], alpha: float, n: int | None) -> list[Bettor]:
    """Return one bettor for a number of outcomes that is settled in advance, or a family for any stopping time.

    Each of the family bets for its own horizon (1,000, 4,000, ... outcomes) at an even share of alpha. Whoever is best
    placed at any moment gives the limit; by the union bound all their limits hold at all times together.
    """
    if n is not None:
        return [Bettor(_expecting(propose, float(n)), alpha, edges_for(n))]
    horizons = [HORIZON * 4**k for k in range(_FAMILY)]
    return [Bettor(_expecting(propose, float(many)), alpha / _FAMILY, doubling_edges(many)) for many in horizons]


def _expecting(
    propose: Callable[[Sample, float], Sequence[Score]], expected: float
) -> Callable[[Sample], Sequence[Score]]:
    return lambda past: propose(past, expected)


class Player(Protocol):
    """Whoever bets and has a limit to show for it."""

    def limit(self) -> float:
        """Return the lower limit, or minus infinity."""
        ...


def best_limit(players: Sequence[Player], floor: float) -> float:
    """Return the best of limits that hold together."""
    return max(floor, *(player.limit() for player in players))


@dataclass(frozen=True)
class Plain:
    """The outcome itself as its score."""

    lowest: float
    cutoff: float | None = None

    def __call__(self, outcomes: Floats) -> Floats:
        """Return the outcomes."""
        return outcomes


def _plain(_past: Sample, _expected: float, floor: float) -> Sequence[Score]:
    return [Plain(floor)]


def mean_lower(outcomes: ArrayLike, floor: float, alpha: float, *, anytime: bool = False) -> float:
    """Return a lower limit of the mean of outcomes that cannot fall below ``floor``, at confidence 1 - alpha.

    ``anytime``  valid whenever somebody stops, for whatever reason; otherwise the number of outcomes must have been
                 settled in advance, and stakes make use of knowing it. The order of the outcomes counts.
    """
    x = checked_outcomes(outcomes, floor)
    check_alpha(alpha)
    players = bettors(partial(_plain, floor=floor), alpha, None if anytime else x.size)
    seen = Seen(x)
    for player in players:
        player.advance(seen)
    return best_limit(players, floor)


def mean_upper(outcomes: ArrayLike, ceiling: float, alpha: float, *, anytime: bool = False) -> float:
    """Return an upper limit of the mean of outcomes that cannot exceed ``ceiling``: the mirror image."""
    return -mean_lower(-np.asarray(outcomes, dtype=np.float64), -ceiling, alpha, anytime=anytime)


def pilot_size(n: int) -> int:
    """Return how many of n outcomes, the first ones, are looked at before anything is staked or chosen."""
    return min(n // 10, round(2 * math.sqrt(n)))


def edges_for(n: int) -> list[int]:
    """Return where stakes are settled when n is known: after the pilot, then whenever there is an eighth more."""
    edges = [max(1, pilot_size(n))]
    while edges[-1] + 2 * max(1, edges[-1] // 8) < n:
        edges.append(edges[-1] + max(1, edges[-1] // 8))
    return [*edges, n]


def doubling_edges(horizon: int) -> list[int]:
    """Return where one of a family settles stakes: whenever there is twice as much, for a family has much to settle."""
    edges = [max(1, min(horizon // 10, round(3 * math.sqrt(horizon))))]
    while edges[-1] * 3 < horizon:
        edges.append(edges[-1] * 2)
    return [*edges, horizon]


def growing_edges() -> list[int]:
    """Return where stakes are settled for the proof of a claim, however long it takes."""
    edges = [_FIRST]
    while edges[-1] < _LONGEST:
        edges.append(edges[-1] + edges[-1] // 2)
    return edges


def checked_outcomes(outcomes: ArrayLike, floor: float) -> Floats:
    """Return outcomes as an array, or say what is wrong with them."""
    x = np.asarray(outcomes, dtype=np.float64)
    if x.ndim != 1 or x.size == 0 or not np.isfinite(x).all():
        raise InputError(f"outcomes must be a non-empty list of finite numbers, got shape {x.shape}")
    if not math.isfinite(floor) or x.min() < floor:
        raise InputError(f"no outcome may lie below {floor:g}, got {x.min():g}; give the true limit")
    return x


def check_alpha(alpha: float) -> None:
    """Refuse what is no risk."""
    if not 0 < alpha < 1:
        raise InputError(f"alpha must lie strictly between 0 and 1, got {alpha}")
