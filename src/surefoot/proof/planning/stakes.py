"""Bet sizes and scores to bet on: guesses that decide how tight a bound is, never whether it is true."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surefoot.proof.bounds.betting import INSIDE, Capital, Round

Floats = NDArray[np.float64]

_DOUBT = 0.1  # weight, in outcomes, of the lowest value in a plan: what was not seen may still come
_STAKES = np.geomspace(0.25, 2.0, 10)  # in units of the bet size that is best for Gaussian outcomes


@dataclass(frozen=True)
class Candidates:
    """Ways to score outcomes, a row each: the scores of a sample of the past, and the lowest score possible.

    ``counts``  how often each outcome of the sample came
    """

    scores: Floats
    lowest: Floats
    counts: Floats

    def with_doubt(self) -> tuple[Floats, Floats]:
        """Return scores, the lowest of each row among them, and weights that sum to 1."""
        weights = np.concatenate([[_DOUBT], self.counts])
        return np.concatenate([self.lowest[:, None], self.scores], axis=1), weights / weights.sum()


@dataclass(frozen=True)
class Aim:
    """What a plan works for: the best bound after ``rounds`` more outcomes, or the proof of one ``claim``."""

    alpha: float
    rounds: float
    claim: float | None = None


@dataclass(frozen=True)
class Choice:
    """Which candidate to bet on, the bet size, and the bound that is expected of it."""

    index: int
    stake: float
    expected: float


def plan(candidates: Candidates, aim: Aim, capital: Capital | None = None) -> Choice:
    """Choose candidate and bet size from the past alone, expecting the future to be like it.

    All candidates score the same past, so that one pass tries all their bet sizes.
    """
    scores, weights = candidates.with_doubt()
    means = np.array([weights @ row for row in scores])
    tried = _stakes(scores, weights, means, candidates.lowest, aim)
    owner = np.repeat(np.arange(len(tried)), [stakes.size for stakes in tried])
    if owner.size == 0:
        return Choice(0, 0.0, -math.inf)
    before = _Before(capital, float(candidates.lowest.min()), float(means.max()))
    stakes = np.concatenate(tried)
    if aim.claim is not None:
        reached: Floats = np.log1p(stakes[:, None] * (scores - aim.claim)[owner]) @ weights
    else:
        most = np.minimum(candidates.lowest[owner] + INSIDE / stakes, before.most)
        start = np.minimum(most, means[owner])
        reached = _reached(scores[owner], weights, stakes, start, most, aim, before)
    top = int(np.argmax(np.where(np.isnan(reached), -math.inf, reached)))  # the first of equals
    return Choice(int(owner[top]), float(stakes[top]), float(reached[top]))


def _stakes(scores: Floats, weights: Floats, means: Floats, lowest: Floats, aim: Aim) -> list[Floats]:
    """Return bet sizes to try with each row: around the best for Gaussian scores, none that could lose everything."""
    spread = np.array([weights @ row for row in (scores - means[:, None]) ** 2])
    if aim.claim is None:
        typical = np.sqrt(2 * math.log(1 / aim.alpha) / np.maximum(aim.rounds * spread, 1e-300))
    else:
        typical = np.maximum(means - aim.claim, 0.0) / np.maximum(spread, 1e-300)
    claims = means if aim.claim is None else np.full(means.shape, aim.claim)
    # no difference that floats can show
    none = (typical == 0) | (claims - lowest <= 1e-8 * (np.abs(claims) + np.abs(lowest)))
    with np.errstate(divide="ignore"):
        stakes = np.minimum(typical[:, None] * _STAKES, (0.999 / (claims - lowest))[:, None])
    sizes = 1 + np.count_nonzero(stakes < stakes[:, -1:], axis=1)  # ascending: the largest may be equal
    return [row[:size] for row, size in zip(stakes, np.where(none, 0, sizes), strict=True)]


def _reached(
    scores: Floats, weights: Floats, stakes: Floats, claims: Floats, most: Floats, aim: Aim, before: _Before
) -> Floats:
    """Return the bound that each bet size would probably lead to, by Newton's method from above."""
    goal = math.log(1 / aim.alpha)
    for _ in range(8):
        factors = scores - claims[:, None]
        factors *= stakes[:, None]
        owned, slope = before.at(claims)
        wealth = owned + aim.rounds * (np.log1p(factors) @ weights)
        factors += 1
        slope = slope - aim.rounds * stakes * (np.reciprocal(factors, out=factors) @ weights)
        # Newton on a concave falling function stays on the side where the capital does not yet suffice
        last, claims = claims, np.minimum(claims - (wealth - goal) / slope, most)
        if (last == claims).all():
            break
    return claims


class _Before:
    """The capital so far as a table over claims: a plan reads it often and needs it roughly."""

    def __init__(self, capital: Capital | None, lowest: float, mean: float) -> None:
        self.rounds = [] if capital is None else capital.rounds
        self.most = min((played.highest_claim for played in self.rounds), default=math.inf)
        if self.rounds:
            top = min(mean, self.most)
            bottom = min([lowest, *(played.lowest for played in self.rounds)])
            self.claims = top - (top - bottom) * np.linspace(1, 0, 48) ** 3
            self.wealth = sum((self._wealth(played) for played in self.rounds), np.zeros(48))

    def _wealth(self, played: Round) -> Floats:
        rough = played.rough
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
