"""Which of several scores to bet on, and how much, with the same bet size against all claims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surefoot.proof.bounds.betting import INSIDE_FACTOR, BetRound, Capital
from surefoot.proof.bounds.reset_luck import LuckyReturns
from surefoot.proof.bounds.samples import Sample
from surefoot.proof.bounds.seed_groups import SeedGroups
from surefoot.proof.bounds.step_scores import RewardRuns
from surefoot.proof.bounds.tangent_scores import PlainScore
from surefoot.proof.planning.proposals import MOST_GROUPS, Past, Proposal, group_starts, group_values

Floats = NDArray[np.float64]

_DOUBT = 0.1  # weight, in outcomes, of the lowest value in a plan: what was not seen may still come
_STAKES = np.geomspace(0.25, 2.0, 10)  # in units of the bet size that is best for Gaussian outcomes
_TABLE_CLAIMS = 48  # claims at which the capital so far is tabulated


@dataclass(frozen=True)
class Aim:
    """What a plan works for: the best bound after ``rounds`` more outcomes, or the proof of one ``claim``."""

    alpha: float
    rounds: float
    claim: float | None = None


@dataclass(frozen=True)
class StakeChoice:
    """Which candidate to bet on, the bet size, and the bound that is expected of it."""

    index: int
    stake: float
    expected: float


@dataclass(frozen=True)
class Candidates:
    """Ways to score outcomes, a row each: the scores of a sample of the past, and the lowest score possible."""

    scores: Floats
    lowest: Floats
    counts: Floats  # how often each outcome of the sample came
    unseen: Floats  # the score of an outcome that has not come and still may, of each way

    @classmethod
    def of(cls, proposals: Sequence[Proposal], past: Past) -> Candidates:
        """Return what the scores make of the past, roughly."""
        if isinstance(past, LuckyReturns) and isinstance(proposals[0].score, PlainScore):
            past = Sample.of(past.returns)
        if not isinstance(past, Sample):
            return cls._of_episodes(proposals, past)
        rough = group_values(past)
        scores = np.array([proposal.score(rough.values) for proposal in proposals])
        lowest = np.array([proposal.score.lowest for proposal in proposals])
        return cls(scores, lowest, rough.counts, lowest)

    @classmethod
    def _of_episodes(cls, proposals: Sequence[Proposal], past: RewardRuns | SeedGroups | LuckyReturns) -> Candidates:
        """Return the same of episodes or groups, those with about the same score taken together."""
        scores = np.array([_tried_on(past, proposal) for proposal in proposals])
        lowest = np.array([proposal.score.lowest for proposal in proposals])
        order = np.argsort(scores[len(scores) // 2])
        counts = np.ones(past.size)
        starts = np.arange(past.size) if past.size <= MOST_GROUPS else group_starts(counts)
        sizes = np.add.reduceat(counts, starts)
        unseen = lowest
        if isinstance(past, SeedGroups):
            # one draw of a group is the lowest before all are
            means = scores.mean(axis=1)
            unseen = means + (lowest - means) / past.n_draws
        return cls(np.add.reduceat(scores[:, order], starts, axis=1) / sizes, lowest, sizes, unseen)

    def with_doubt(self) -> tuple[Floats, Floats]:
        """Return scores, one that has not come among each row, and weights that sum to 1."""
        weights = np.concatenate([[_DOUBT], self.counts])
        return np.concatenate([self.unseen[:, None], self.scores], axis=1), weights / weights.sum()


def _tried_on(past: RewardRuns | SeedGroups | LuckyReturns, proposal: Proposal) -> Floats:
    if proposal.tried is None:
        return proposal.score(past)
    return proposal.tried


def choose_proposal(
    proposals: Sequence[Proposal], past: Past, aim: Aim, capital: Capital | None = None
) -> tuple[Proposal | None, StakeChoice]:
    """Choose score and bet size from the past; no score if none is worth a bet."""
    if not proposals:
        return None, StakeChoice(0, 0.0, -math.inf)
    choice = choose_stake(Candidates.of(proposals, past), aim, capital)
    if not choice.stake > 0:
        return None, choice
    return proposals[choice.index], choice


def choose_stake(candidates: Candidates, aim: Aim, capital: Capital | None = None) -> StakeChoice:
    """Choose candidate and bet size from the past alone, expecting the future to be like it.

    All candidates score the same past, so that one pass tries all their bet sizes.
    """
    scores, weights = candidates.with_doubt()
    means = np.array([weights @ row for row in scores])
    tried = _stakes_to_try(scores, weights, means, candidates.lowest, aim)
    owner = np.repeat(np.arange(len(tried)), [stakes.size for stakes in tried])
    if owner.size == 0:
        return StakeChoice(0, 0.0, -math.inf)
    # bet sizes of all candidates in one array; ``owner`` says whose each is
    before = _CapitalTable(capital, float(candidates.lowest.min()), float(means.max()))
    stakes = np.concatenate(tried)
    if aim.claim is not None:
        reached: Floats = np.log1p(stakes[:, None] * (scores - aim.claim)[owner]) @ weights
    else:
        highest = np.minimum(candidates.lowest[owner] + INSIDE_FACTOR / stakes, before.highest_claim)
        start = np.minimum(highest, means[owner])
        reached = _expected_bounds(scores[owner], weights, stakes, start, highest, aim, before)
    top = int(np.argmax(np.where(np.isnan(reached), -math.inf, reached)))  # the first of equals
    return StakeChoice(int(owner[top]), float(stakes[top]), float(reached[top]))


def _stakes_to_try(scores: Floats, weights: Floats, means: Floats, lowest: Floats, aim: Aim) -> list[Floats]:
    """Return bet sizes to try with each row: around the best for Gaussian scores, none that could lose everything."""
    spread = np.array([weights @ row for row in (scores - means[:, None]) ** 2])
    if aim.claim is None:
        typical = np.sqrt(2 * math.log(1 / aim.alpha) / np.maximum(aim.rounds * spread, 1e-300))
        claims = means
    else:
        typical = np.maximum(means - aim.claim, 0.0) / np.maximum(spread, 1e-300)
        claims = np.full(means.shape, aim.claim)
    # no difference that floats can show
    none = (typical == 0) | (claims - lowest <= 1e-8 * (np.abs(claims) + np.abs(lowest)))
    with np.errstate(divide="ignore"):
        stakes = np.minimum(typical[:, None] * _STAKES, (0.999 / (claims - lowest))[:, None])
    sizes = 1 + np.count_nonzero(stakes < stakes[:, -1:], axis=1)  # ascending: the largest may be equal
    return [row[:size] for row, size in zip(stakes, np.where(none, 0, sizes), strict=True)]


def _expected_bounds(
    scores: Floats,
    weights: Floats,
    stakes: Floats,
    claims: Floats,
    highest: Floats,
    aim: Aim,
    before: _CapitalTable,
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
        last = claims
        claims = np.minimum(claims - (wealth - goal) / slope, highest)
        if (last == claims).all():
            break
    return claims


class _CapitalTable:
    """The capital so far as a table over claims: a plan reads it often and needs it roughly."""

    def __init__(self, capital: Capital | None, lowest: float, mean: float) -> None:
        self.rounds = [] if capital is None else capital.rounds
        self.highest_claim = min((played.highest_claim for played in self.rounds), default=math.inf)
        if self.rounds:
            top = min(mean, self.highest_claim)
            bottom = min([lowest, *(played.lowest for played in self.rounds)])
            # closer to each other near the top, where the bound will be
            self.claims = top - (top - bottom) * np.linspace(1, 0, _TABLE_CLAIMS) ** 3
            self.wealth = sum((self._wealth_of(played) for played in self.rounds), np.zeros(_TABLE_CLAIMS))

    def _wealth_of(self, played: BetRound) -> Floats:
        rough = group_values(played.outcomes)
        logs: Floats = np.log1p(played.stake * (rough.values - self.claims[:, None])) @ rough.counts
        return logs

    def at(self, claims: Floats) -> tuple[Floats, Floats]:
        """Return log wealth and slope at each claim."""
        if not self.rounds:
            return np.zeros(claims.shape), np.zeros(claims.shape)
        cell = np.clip(np.searchsorted(self.claims, claims), 1, self.claims.size - 1)
        width = np.maximum(self.claims[cell] - self.claims[cell - 1], 1e-300)
        slope = (self.wealth[cell] - self.wealth[cell - 1]) / width
        return self.wealth[cell] + slope * (claims - self.claims[cell]), slope
