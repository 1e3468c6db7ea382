"""What a bettor plans from the returns before a block: scores to choose from, stakes, and what to expect of them.

Plans decide how tight a limit is, never whether it is true, as long as they are made of the past alone. They are made
again here so that nobody can have made them of anything else; ``recompute_bets`` settles the bets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Law:
    """Values, ascending, and how often each came."""

    values: Floats
    counts: Floats

    @classmethod
    def of(cls, returns: Floats) -> Law:
        """Count returns."""
        values, counts = np.unique(returns, return_counts=True)
        return cls(values, counts.astype(np.float64))

    def rough(self, most: int) -> Law:
        """Return the law with neighbours merged: a third of the groups lowest, a third by logarithm, a third evenly."""
        if self.values.size <= most:
            return self
        place = np.cumsum(self.counts) - self.counts
        place /= place[-1]
        k = most // 3
        starts = np.unique(
            np.searchsorted(place, [*place[:k], *np.geomspace(place[k], 1, k), *np.linspace(0, 1, k)], side="left")
        )
        counts = np.add.reduceat(self.counts, starts)
        return Law(np.add.reduceat(self.counts * self.values, starts) / counts, counts)


@dataclass(frozen=True)
class Score:
    """A function of the return that is ``lowest`` at the floor and rises along knots; without knots the return."""

    lowest: float
    cutoff: float | None = None
    knots: Floats | None = None
    heights: Floats | None = None

    def of(self, x: Floats) -> Floats:
        """Score returns."""
        if self.knots is None or self.heights is None:
            return x
        return np.asarray(self.lowest + np.interp(x, self.knots, self.heights), dtype=np.float64)


@dataclass(frozen=True)
class Option:
    """A score and a stake, and the limit that the past lets one expect of them."""

    score: Score
    stake: float
    expected: float


@dataclass(frozen=True)
class Round:
    """Scores of a block, how often each came, and what was staked on each."""

    scores: Law
    stake: float
    lowest: float

    def log_wealth(self, claims: Floats) -> Floats:
        """Return what the block adds to the logarithm of the capital against each claim."""
        logs = np.log1p(self.stake * (self.scores.values - claims[:, None])) @ self.scores.counts
        return np.asarray(logs, dtype=np.float64)

    @property
    def boldest(self) -> float:
        """The largest claim against which no return could make a factor negative."""
        return self.lowest + (1 - 1e-9) / self.stake


def scores_of(past: Law, total: float, radius: float, floor: float) -> list[Score]:
    """Return the scores to choose from: tangents at guesses cut off at 0.1 to 10 returns of the total."""
    if radius > 30:
        return []
    if radius == 0:
        return [Score(floor)]
    law = past.rough(600)
    missed = np.cumsum(law.counts) - law.counts
    above = law.values > floor
    short = (missed[above] + 0.5) / (law.counts.sum() + 1)
    cutoffs = [min(0.5, 10**power / total) for power in np.linspace(-1, 1, 7)]
    idle = [cut for cut in cutoffs if cut <= 0.5 / (law.counts.sum() + 1)]  # they cut nothing off: the first will do
    cutoffs = [*idle[:1], *cutoffs[len(idle) :]]
    return [_tangents(law.values[above], 1 - np.maximum(short, cut), radius, floor, cut) for cut in cutoffs]


def _tangents(points: Floats, guess: Floats, radius: float, floor: float, cutoff: float) -> Score:
    knots = np.concatenate([[floor], points])
    steps = np.diff(knots)
    z = ndtri(guess)
    slope = np.exp(radius * z - radius**2 / 2)
    lowest = floor + float(steps @ (ndtr(z - radius) - guess * slope))
    against_us = 1e-12 * (float(steps @ (slope + 1)) + abs(floor))
    return Score(lowest - against_us, cutoff, knots, np.concatenate([[0.0], np.cumsum(steps * slope)]))


def _doubted(score: Score, past: Law) -> tuple[Floats, Floats]:
    """Return scores of the past and weights of sum 1; the lowest score weighs a tenth of a return."""
    law = past.rough(256)
    weights = np.concatenate([[0.1], law.counts])
    return np.concatenate([[score.lowest], score.of(law.values)]), weights / weights.sum()


def moments(score: Score, past: Law) -> tuple[float, float, float]:
    """Return mean, variance and skewness of the score."""
    scores, weights = _doubted(score, past)
    mean = float(weights @ scores)
    variance, third = (float(weights @ (scores - mean) ** k) for k in (2, 3))
    return mean, variance, third / variance**1.5 if variance > 0 else -math.inf


def proofs(past: Law, scores: Sequence[Score], claim: float) -> list[Option]:
    """Return up to ten stakes on each score, and how fast the logarithm of the capital against one claim would grow."""
    found = []
    for score in scores:
        values, weights = _doubted(score, past)
        mean, variance, _ = moments(score, past)
        if mean <= claim or claim - score.lowest <= 1e-8 * (abs(claim) + abs(score.lowest)):
            continue
        typical = (mean - claim) / max(variance, 1e-300)
        stakes = np.unique(np.minimum(typical * np.geomspace(0.25, 2, 10), 0.999 / (claim - score.lowest)))
        growth = np.log(1 + stakes[:, None] * (values - claim)) @ weights
        found += [Option(score, *pair) for pair in zip(stakes.tolist(), growth.tolist(), strict=True)]
    return found


def plans(past: Law, scores: Sequence[Score], alpha: float, rounds: float, played: list[Round]) -> list[Option]:
    """Return up to ten stakes on each score, around the best for Gaussian ones, and what is expected of each."""
    found = []
    lowest = min((score.lowest for score in scores), default=0.0)
    before = Table(played, lowest, max((moments(score, past)[0] for score in scores), default=0.0))
    for score in scores:
        values, weights = _doubted(score, past)
        mean, variance, _ = moments(score, past)
        if mean - score.lowest <= 1e-8 * (abs(mean) + abs(score.lowest)):
            continue
        typical = math.sqrt(2 * math.log(1 / alpha) / max(rounds * variance, 1e-300))
        stakes = np.unique(np.minimum(typical * np.geomspace(0.25, 2, 10), 0.999 / (mean - score.lowest)))
        expected = _expected(values, weights, stakes, math.log(1 / alpha), rounds, before)
        found += [Option(score, *pair) for pair in zip(stakes.tolist(), expected.tolist(), strict=True)]
    return found


def _expected(values: Floats, weights: Floats, stakes: Floats, aim: float, rounds: float, before: Table) -> Floats:
    """Return the claims against which each stake would end at the aim, by Newton's method in eight steps."""
    most = np.minimum(values[0] + (1 - 1e-9) / stakes, before.most)
    claims = np.minimum(most, float(weights @ values))
    for _ in range(8):
        factors = 1 + stakes[:, None] * (values - claims[:, None])
        owned, slope = before.at(claims)
        owned = owned + rounds * (np.log(factors) @ weights)
        slope = slope - rounds * stakes * ((1 / factors) @ weights)
        claims = np.minimum(claims - (owned - aim) / slope, most)
    return np.asarray(claims, dtype=np.float64)


class Table:
    """Log capital so far at 48 claims, for plans: linear in between."""

    def __init__(self, played: list[Round], lowest: float, mean: float) -> None:
        self.most = min((one.boldest for one in played), default=math.inf)
        top, bottom = min(mean, self.most), min([lowest, *(one.lowest for one in played)])
        self.claims = top - (top - bottom) * np.linspace(1, 0, 48) ** 3
        self.owned = np.zeros(48)
        for one in played:
            self.owned += Round(one.scores.rough(256), one.stake, one.lowest).log_wealth(self.claims)

    def at(self, claims: Floats) -> tuple[Floats, Floats]:
        """Return log capital and slope."""
        right = np.clip(np.searchsorted(self.claims, claims), 1, 47)
        slope = np.diff(self.owned)[right - 1] / np.maximum(np.diff(self.claims)[right - 1], 1e-300)
        return self.owned[right] + slope * (claims - self.claims[right]), slope
