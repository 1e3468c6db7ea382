"""Limits for a mean by betting (Waudby-Smith and Ramdas 2023): valid for fixed n, and at every stopping time.

Outcomes y_1, y_2, ... never fall below a known ``lowest``, and given its past each has a mean of at most mu.
Against the claim "mu <= m" a bettor who owns 1 stakes lambda_i >= 0, settled before y_i is seen, and owns

    W_n(m) = product over i of (1 + lambda_i (y_i - m)),     as long as lambda_i <= 1 / (m - lowest).

For m = mu no factor is negative and none has a mean above 1, so W(mu) is a nonnegative supermartingale and by
Ville's inequality P(W_n(mu) >= 1/alpha for some n) <= alpha. W_n(m) falls as m grows. Hence

    P( there is an n with mu < sup { m: W_n(m) >= 1/alpha } ) <= alpha.

Stakes decide how tight that is, never whether it is true: they may be any function of the past.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot.errors import InputError

Floats = NDArray[np.float64]

_ROUNDING = 1e-13  # relative error allowed for in each term of a sum of logarithms: a thousand units in the last place
_INSIDE = 1 - 1e-9  # how far a claim keeps from the value at which a factor could reach 0
_GROUPS = 256  # groups of outcomes that a plan distinguishes
_DOUBT = 0.1  # weight, in outcomes, of the lowest value in a plan: what was not seen may still come
_FIRST = 100  # outcomes that are only looked at when nobody knows how many there will be
_STAKES = np.geomspace(0.25, 2.0, 10)  # in units of the stake that is best for Gaussian outcomes


@dataclass(frozen=True)
class Sample:
    """Outcomes in no order: distinct ``values``, ascending, and how often each came."""

    values: Floats
    counts: Floats

    @classmethod
    def of(cls, outcomes: ArrayLike) -> Sample:
        """Count equal outcomes once."""
        values, counts = np.unique(np.asarray(outcomes, dtype=np.float64), return_counts=True)
        return cls(values, counts.astype(np.float64))

    def grouped(self, most: int = _GROUPS) -> Sample:
        """Return about the same sample with fewer values, every one of the smallest kept: for plans, not for limits."""
        if self.values.size <= most:
            return self
        below = np.cumsum(self.counts) - self.counts
        place = np.maximum(below / below[-1], 0)
        # a third of the groups for the smallest values one by one, a third on a log scale, a third evenly
        third = most // 3
        marks = np.concatenate([place[:third], np.geomspace(place[third], 1, third), np.linspace(0, 1, third)])
        starts = np.unique(np.searchsorted(place, marks))
        counts = np.add.reduceat(self.counts, starts)
        return Sample(np.add.reduceat(self.values * self.counts, starts) / counts, counts)


@dataclass(frozen=True)
class Round:
    """Outcomes on which one stake was set, settled before any of them was seen."""

    outcomes: Sample
    stake: float
    lowest: float

    @property
    def highest_claim(self) -> float:
        """The largest m for which no outcome can make the bettor's factor negative."""
        return self.lowest + _INSIDE / self.stake if self.stake > 0 else math.inf


class Capital:
    """What a bettor owns, as a function of the claim m that it bet against."""

    def __init__(self) -> None:
        self.rounds: list[Round] = []

    def add(self, played: Round) -> None:
        """Book one more round; without a stake it changes nothing."""
        if played.stake > 0 and played.outcomes.values.size:
            self.rounds.append(played)

    def log_wealth(self, claim: float) -> tuple[float, float]:
        """Return log W(claim), rounded down, and its slope."""
        total = slope = size = 0.0
        for played in self.rounds:
            factor = played.stake * (played.outcomes.values - claim)
            logs = np.log1p(factor)
            total += float(played.outcomes.counts @ logs)
            size += float(played.outcomes.counts @ np.abs(logs))
            slope -= float(played.outcomes.counts @ (played.stake / (1 + factor)))
        return total - _ROUNDING * (size + 1), slope

    def limit(self, alpha: float) -> float:
        """Return the largest claim found with W >= 1/alpha, or minus infinity: a lower limit of the mean."""
        if not self.rounds:
            return -math.inf
        aim = math.log(1 / alpha) * (1 + _ROUNDING)
        most = min(played.highest_claim for played in self.rounds)
        below = min(most, *(float(played.outcomes.values[0]) for played in self.rounds))
        step = max(most - below, abs(most) * 1e-9, 1e-300)
        while self.log_wealth(below)[0] < aim:
            below, step = below - step, 2 * step
            if not math.isfinite(below) or step > 1e12 * max(1.0, abs(most)):
                return -math.inf
        return self._climb(below, most, aim)

    def _climb(self, below: float, above: float, aim: float) -> float:
        """Return the last claim at which the capital was computed and found to suffice."""
        claim = below
        for _ in range(200):
            wealth, slope = self.log_wealth(claim)
            if wealth >= aim:
                below = claim
            else:
                above = claim
            if above - below <= 1e-13 * max(abs(above), abs(below)):
                break
            # the logarithm is concave in the claim, so Newton's step from above lands above: aim a little short
            newton = claim - (wealth - aim * (1 + 1e-12)) / slope if slope < 0 else math.nan
            tried = newton if below < newton < above else (below + above) / 2
            if wealth >= aim and abs(newton - claim) <= 1e-12 * max(abs(claim), 1e-300):
                break
            claim = tried
        return below


@dataclass(frozen=True)
class Candidate:
    """A way to score outcomes: the scores of a sample of the past, their weights, and the lowest score possible."""

    scores: Floats
    counts: Floats
    lowest: float

    def with_doubt(self) -> tuple[Floats, Floats]:
        """Return scores and weights that sum to 1, the lowest score among them."""
        weights = np.concatenate([[_DOUBT], self.counts])
        return np.concatenate([[self.lowest], self.scores]), weights / weights.sum()


@dataclass(frozen=True)
class Aim:
    """What a plan works for: the best limit after ``rounds`` more outcomes, or the proof of one ``claim``."""

    alpha: float
    rounds: float
    claim: float | None = None


@dataclass(frozen=True)
class Choice:
    """Which candidate to bet on, the stake, and the limit that is expected of it."""

    index: int
    stake: float
    expected: float


def plan(candidates: Sequence[Candidate], aim: Aim, capital: Capital | None = None) -> Choice:
    """Choose candidate and stake from the past alone, expecting the future to be like it."""
    best = Choice(0, 0.0, -math.inf)
    for index, candidate in enumerate(candidates):
        scores, weights = candidate.with_doubt()
        stakes = _stakes(scores, weights, candidate.lowest, aim)
        if stakes.size == 0:
            continue
        reached = _reached(scores, weights, stakes, candidate.lowest, aim, capital)
        top = int(np.argmax(reached))
        if reached[top] > best.expected:
            best = Choice(index, float(stakes[top]), float(reached[top]))
    return best


def _stakes(scores: Floats, weights: Floats, lowest: float, aim: Aim) -> Floats:
    """Return stakes to try: around the best one for Gaussian scores, none that could lose everything."""
    mean = float(weights @ scores)
    spread = float(weights @ (scores - mean) ** 2)
    if aim.claim is None:
        typical = math.sqrt(2 * math.log(1 / aim.alpha) / max(aim.rounds * spread, 1e-300))
    else:
        typical = max(mean - aim.claim, 0.0) / max(spread, 1e-300)
    claim = mean if aim.claim is None else aim.claim
    if not claim > lowest or typical == 0:
        return np.empty(0)
    return np.unique(np.minimum(typical * _STAKES, 0.999 / (claim - lowest)))


def _reached(
    scores: Floats, weights: Floats, stakes: Floats, lowest: float, aim: Aim, capital: Capital | None
) -> Floats:
    """Return the limit that each stake would probably lead to, or how fast it would prove the claim."""
    if aim.claim is not None:
        growth: Floats = np.log1p(stakes[:, None] * (scores - aim.claim)) @ weights
        return growth
    mean = float(weights @ scores)
    most = lowest + _INSIDE / stakes
    before = _Before(capital, lowest, mean)
    claims = np.minimum(np.minimum(most, before.most), mean)
    for _ in range(8):
        factors = stakes[:, None] * (scores - claims[:, None])
        owned, slope = before.at(claims)
        wealth = owned + aim.rounds * (np.log1p(factors) @ weights)
        slope = slope - aim.rounds * stakes * ((1 / (1 + factors)) @ weights)
        # Newton on a concave falling function stays on the side where the capital does not yet suffice
        claims = np.minimum(claims - (wealth - math.log(1 / aim.alpha)) / slope, np.minimum(most, before.most))
    return claims


class _Before:
    """The capital so far as a table over claims: a plan reads it often and needs it roughly."""

    def __init__(self, capital: Capital | None, lowest: float, mean: float) -> None:
        self.rounds = [] if capital is None else capital.rounds
        self.most = min((played.highest_claim for played in self.rounds), default=math.inf)
        if self.rounds:
            top = min(mean, self.most)
            self.claims = top - (top - lowest) * np.linspace(1, 0, 48) ** 3
            self.wealth = sum((self._wealth(played) for played in self.rounds), np.zeros(48))

    def _wealth(self, played: Round) -> Floats:
        rough = played.outcomes.grouped()
        logs: Floats = np.log1p(played.stake * (rough.values - self.claims[:, None])) @ rough.counts
        return logs

    def at(self, claims: Floats) -> tuple[Floats, Floats]:
        """Return log wealth and slope at each claim."""
        if not self.rounds:
            return np.zeros(claims.shape), np.zeros(claims.shape)
        cell = np.clip(np.searchsorted(self.claims, claims), 1, self.claims.size - 1)
        slope = (self.wealth[cell] - self.wealth[cell - 1]) / np.maximum(
            self.claims[cell] - self.claims[cell - 1], 1e-300
        )
        return self.wealth[cell] + slope * (claims - self.claims[cell]), slope


class Score(Protocol):
    """A fixed function of an outcome whose mean is what is bet on."""

    @property
    def lowest(self) -> float:
        """The least it can be, whatever the outcome."""
        ...

    def __call__(self, outcomes: Floats) -> Floats:
        """Score outcomes."""
        ...


class Bettor:
    """Bets on one quantity, block after block, with scores and stakes that its past has settled.

    ``propose``  scores to choose from, given the outcomes so far; each must have a mean of at most the quantity
    ``alpha``    the risk
    ``claim``    a value that the quantity is to be proved to exceed as soon as possible, or None for the best limit
    """

    def __init__(self, propose: Callable[[Sample], Sequence[Score]], alpha: float, claim: float | None = None) -> None:
        check_alpha(alpha)
        self.propose, self.alpha, self.claim = propose, alpha, claim
        self.capital = Capital()

    def expect(self, past: Sample, rounds: float) -> tuple[Score | None, Choice]:
        """Settle score and stake from the past, for ``rounds`` outcomes to come."""
        scores = list(self.propose(past))
        rough = past.grouped()
        candidates = [Candidate(score(rough.values), rough.counts, score.lowest) for score in scores]
        choice = plan(candidates, Aim(self.alpha, rounds, self.claim), self.capital)
        return (scores[choice.index] if choice.stake > 0 else None), choice

    def play(self, past: Sample, block: Sample, rounds: float) -> None:
        """Bet on a block that nothing has been seen of."""
        score, choice = self.expect(past, rounds)
        if score is not None:
            scored = Sample(score(block.values), block.counts)
            self.capital.add(Round(scored, choice.stake, score.lowest))


def bet(outcomes: Floats, bettors: Sequence[Bettor], edges: Sequence[int], *, known: bool) -> None:
    """Let bettors play the blocks between ``edges``; ``known`` says that the last edge was settled in advance."""
    for first, last in pairwise(edges):
        past, block = Sample.of(outcomes[:first]), Sample.of(outcomes[first:last])
        for bettor in bettors:
            bettor.play(past, block, edges[-1] - first if known else first)


@dataclass(frozen=True)
class Plain:
    """The outcome itself as its score."""

    lowest: float

    def __call__(self, outcomes: Floats) -> Floats:
        """Return the outcomes."""
        return outcomes


def mean_lower(outcomes: ArrayLike, floor: float, alpha: float, *, anytime: bool = False) -> float:
    """Return a lower limit of the mean of outcomes that cannot fall below ``floor``, at confidence 1 - alpha.

    ``anytime``  valid whenever somebody stops, for whatever reason; otherwise the number of outcomes must have been
                 settled in advance, and stakes make use of knowing it. The order of the outcomes counts.
    """
    x = checked_outcomes(outcomes, floor)
    bettor = Bettor(lambda past: [Plain(floor)], alpha)
    bet(x, [bettor], growing_edges(x.size) if anytime else edges_for(x.size), known=not anytime)
    return max(floor, bettor.capital.limit(alpha))


def mean_upper(outcomes: ArrayLike, ceiling: float, alpha: float, *, anytime: bool = False) -> float:
    """Return an upper limit of the mean of outcomes that cannot exceed ``ceiling``: the mirror image."""
    return -mean_lower(-np.asarray(outcomes, dtype=np.float64), -ceiling, alpha, anytime=anytime)


def pilot_size(n: int) -> int:
    """Return how many of n outcomes, the first ones, are looked at before anything is staked or chosen."""
    return min(n // 10, round(5 * math.sqrt(n)))


def edges_for(n: int) -> list[int]:
    """Return where stakes are settled when n is known: after the pilot, then whenever there is three times as much."""
    edges = [max(1, pilot_size(n))]
    while edges[-1] * 4.5 < n:
        edges.append(edges[-1] * 3)
    return [*edges, n]


def growing_edges(n: int) -> list[int]:
    """Return where stakes are settled when nobody knows n: the same places for every n."""
    edges = [_FIRST]
    while edges[-1] < n:
        edges.append(edges[-1] + edges[-1] // 2)
    return [*(edge for edge in edges if edge < n), n]


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
