"""T9: scores that know how lucky the start of an episode was.

(a) Let Z be drawn by the environment at reset, before the noise and independent of it. By T6, with S_Z(x) = P(X >= x |
Z), under every attack E[Y] >= E L_c(Z), L_c(Z) = floor + int g_c(S_Z(y)) dy, and that is never below L_c.

(b) Let h = h(Z) be any number, by a rule that was made of earlier episodes. T9 says E[Y] >= L_c(X - M) for M = h(Z) -
E h(Z), as the mean of Y - M is that of Y. Given Z, L_c(X - h | Z) + h = L_c(X | Z): the integral is moved by h. So
L_c(X - M) <= E L_c(X - M | Z) = E L_c(Z) by Jensen's inequality, and a score of the right side needs no mean of h.

(c) Given Z and the past, a guess q(y) of S_Z(y) may depend on Z, and the tangent score of X (``tangent_scores``) has a
mean of at most L_c(Z). Here q(y) = q_k(y - s h), with s >= 0 and h cut off at both ends; in which range h is says which
of several guesses q_k is used. Let b be the highest s h, a the floor, and psi_k the score that q_k makes of returns not
below a - b. Then the score of X is

    psi_k(X - s h) + s h + int [ 1 - g_c(q_k(u)) - (1 - q_k(u)) g_c'(q_k(u)) ] du   over u from a - b to a - s h,

because that is where X - s h cannot be. A tangent is at most g_c(1) = 1 at 1, so that the integral is at least 0.

(d) The score is lowest if X is the floor and s h = b: it is never below psi_k(a - b) + b, whatever Z is. So bets know
what they can lose. A bet size must not depend on Z: whoever bets on lucky episodes alone would refute true claims.

(e) What ``tangent_scores`` says of L_c at several scaled budgets is true of E L_c(Z), as in ``seed_groups`` (e).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surefoot.proof.bounds.samples import OrderedOutcomes, Sample, Samples
from surefoot.proof.bounds.tangent_scores import Guesses, Score, TangentScore, checked_score, tangent_lines

Floats = NDArray[np.float64]

LARGEST_WEIGHT = 1e60  # so that what weights and features add up to is a float
_ROUNDING = 1e-12  # relative: more than the error of the sums


@dataclass(frozen=True, eq=False)
class LuckyReturns:
    """The return of each episode, and a row of numbers that were known of it before its first step."""

    returns: Floats
    features: Floats

    @property
    def size(self) -> int:
        """The number of episodes."""
        return self.returns.size

    def rows(self, first: int, last: int) -> LuckyReturns:
        """Return the episodes from one index up to another."""
        return LuckyReturns(self.returns[first:last], self.features[first:last])

    def luck(self, weights: Floats) -> Floats:
        """Return h of each episode: weights times the distances of the features from their centers, and the squares."""
        total = np.zeros(self.size)
        # one by one, so that an episode's sum does not depend on how many there are
        for feature, (center, linear, squared) in zip(self.features.T, weights.T, strict=True):
            distance = feature - center
            total += linear * distance + squared * (distance * distance)
        return total


@dataclass(frozen=True, eq=False)
class LuckScore:
    """The score of (c)."""

    weights: Floats  # centers of the features, and the weights of their distances and of the squares of these, in h
    ends: tuple[float, float]  # where h is cut off
    cuts: Floats  # between the ranges of h in which each score is used, ascending
    move: float  # the s by which h moves a return
    scores: Sequence[TangentScore]  # psi_k, one more than cuts, of returns not below the floor minus the highest s h
    surplus: Floats  # for each score the integral from there up to each of its knots
    floor: float

    @property
    def lowest(self) -> float:
        """The least that an episode can score (d)."""
        highest = self.move * self.ends[1]
        least = min(score.lowest for score in self.scores)
        return least + highest - _ROUNDING * (abs(least) + abs(highest))

    def __call__(self, episodes: LuckyReturns) -> Floats:
        """Score episodes."""
        luck = np.clip(episodes.luck(self.weights), *self.ends)
        used = np.searchsorted(self.cuts, luck)
        moved = self.move * luck
        scored = np.empty(episodes.size)
        for index in np.unique(used):
            here = used == index
            score = self.scores[index]
            # where no return can be; beyond the last knot the tangent is 0, and all of 1 is lacking
            begin = self.floor - moved[here]
            spared = np.interp(begin, score.knots, self.surplus[index]) + np.maximum(begin - score.knots[-1], 0.0)
            scored[here] = score(episodes.returns[here] - moved[here]) + (moved[here] + spared)
        return scored


class OrderedLuck(OrderedOutcomes):
    """The episodes that have come, in their order, with their luck; ``outcomes`` are their returns."""

    def __init__(self, episodes: LuckyReturns, samples: Samples | None = None) -> None:
        super().__init__(episodes.returns, samples)
        self.episodes = episodes

    def before(self, index: int) -> OrderedLuck:
        """Return the episodes before an index and nothing else: what may decide about those from the index on."""
        return OrderedLuck(self.episodes.rows(0, index), self.samples)

    def scored(self, score: Score, first: int, last: int) -> Sample:
        """Return the scores of the episodes from one index up to another."""
        if isinstance(score, LuckScore):
            return Sample.of(score(self.episodes.rows(first, last)))
        return super().scored(score, first, last)

    def make_score(self, guesses: Guesses | None, scaled_budget: float, floor: float) -> Score:
        """Return the score that guesses make: points, a row of survival probabilities for each score, and the rest.

        The rest: cuts, weights with rows for centers, distances and squares, and lower end, upper end and s.

        Raises:
            ValueError: If the mean of the score could exceed the worst-case mean.
        """
        if self.episodes.returns.min(initial=np.inf) < floor:
            raise ValueError(f"no return may be below the floor {floor}")
        if guesses is None:
            return checked_score(None, scaled_budget, floor)
        points, survival, cuts, weights, (low, high, move) = guesses
        if survival.ndim != 2 or len(survival) != cuts.size + 1 or not np.all(np.diff(cuts) >= 0):
            raise ValueError("guesses need a row of probabilities for each range of luck")
        fits = weights.shape == (3, self.episodes.features.shape[1]) and bool(np.all(np.abs(weights) <= LARGEST_WEIGHT))
        if not fits or not -np.inf < low <= high < np.inf or not 0 <= move < np.inf:
            raise ValueError(
                "guesses need three finite weights for each feature, finite ends of luck, and a move of it"
            )
        begin = floor - move * high
        scores = []
        for row in survival:
            score = checked_score((points, row), scaled_budget, begin)
            assert isinstance(score, TangentScore)
            scores.append(score)
        return luck_score(scores, guesses, scaled_budget, floor)


def luck_score(scores: Sequence[TangentScore], guesses: Guesses, scaled_budget: float, floor: float) -> LuckScore:
    """Return the score of checked guesses, of whose rows these scores were made."""
    _, survival, cuts, weights, (low, high, move) = guesses
    slopes, offsets = tangent_lines(survival, scaled_budget)
    surplus = np.zeros((len(survival), scores[0].knots.size))
    # (c) what each tangent lacks of 1 at 1; rounding must not make it more than it lacks
    np.cumsum(np.diff(scores[0].knots) * np.maximum(1 - (slopes + offsets), 0.0), axis=1, out=surplus[:, 1:])
    return LuckScore(weights, (float(low), float(high)), cuts, float(move), scores, surplus, floor)
