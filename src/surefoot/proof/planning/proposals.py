"""Guesses of survival probabilities that scores are made of (``tangent_scores``), and the plug-in estimate.

A score is best if its guesses are not estimates of S(y) = P(X >= y) but what will be proved of it: with a bound r of S
the tangent at q says g(q) + g'(q) (r - q), most of all at q = r. So guesses stay below what the past shows by a margin,
as upper bounds of a count of missing outcomes do. That also keeps the slope g' below w(u0) = exp(-c Phi^-1(u0) - c^2 /
2), where u0 is the margin, the cut-off, for outcomes that never missed, and with it the range of the score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from surefoot.proof.bounds.gaussian_shift import shift_down
from surefoot.proof.bounds.samples import OrderedOutcomes, Sample
from surefoot.proof.bounds.step_scores import OrderedRewards, RewardRuns, step_scores
from surefoot.proof.bounds.tangent_scores import Guesses, PlainScore, Score, tangent_scores

Floats = NDArray[np.float64]
Past = Sample | RewardRuns  # what a plan is made of: returns in no order, or the rewards of episodes

MOST_GROUPS = 256  # groups of outcomes that a plan distinguishes
LARGEST_SCALED_BUDGET = 30.0  # beyond, no guess below 1 gives anything that a float can distinguish from 0
_POINTS = 600  # at most, that guesses are made for
_SMOOTHING = 0.1  # outcomes added to those below each threshold: unseen is not impossible
_CUTOFFS = np.geomspace(0.1, 10.0, 7)  # in outcomes of all that will be run


@dataclass(frozen=True, eq=False)
class Proposal:
    """A score to bet on, the guesses that it is made of, and the cut-off that they were made with."""

    score: Score
    guesses: Guesses | None = None
    cutoff: float | None = None


def known_of(past: OrderedOutcomes) -> Past:
    """Return what a plan may be made of."""
    if isinstance(past, OrderedRewards):
        return past.rewards
    return past.sample()


def propose_scores(past: Past, expected: float | None, *, scaled_budget: float, floor: float) -> list[Proposal]:
    """Return one score per cut-off, around one outcome in all ``expected``; None expects as many as there were."""
    if scaled_budget > LARGEST_SCALED_BUDGET:
        return []
    if scaled_budget == 0 and isinstance(past, Sample):
        return [Proposal(PlainScore(floor))]
    # the fewer outcomes there will be, the less can be proved of thresholds that are rarely missed
    total = 2 * past.size if expected is None else expected
    cutoffs = [min(0.5, float(many) / total) for many in _CUTOFFS]
    scores: list[Score]
    if isinstance(past, RewardRuns):
        if scaled_budget == 0:
            # the score of all guesses is the return
            cutoffs = cutoffs[:1]
        points = np.arange(1.0, past.n_steps + 1)
        survival = guess_step_means(past, cutoffs)
        scores = [*step_scores(survival, scaled_budget, past.n_steps, past.low, past.high)]
    else:
        points, survival = guess_survival(past, cutoffs, floor)
        scores = [*tangent_scores(points, survival, scaled_budget, floor)]
    proposals = []
    for score, guess, cutoff in zip(scores, survival, cutoffs, strict=True):
        proposals.append(Proposal(score, (points, guess), cutoff))
    return proposals


def guess_survival(past: Sample, cutoffs: Sequence[float], floor: float) -> tuple[Floats, Floats]:
    """Return thresholds above the floor and, for each cut-off, guesses of what will be proved of P(X >= threshold)."""
    rough = group_values(past, _POINTS)
    n = float(rough.counts.sum())
    missed = np.cumsum(rough.counts) - rough.counts
    above = rough.values > floor
    return rough.values[above], _guess_below(missed[above], n, cutoffs)


def guess_step_means(past: RewardRuns, cutoffs: Sequence[float]) -> Floats:
    """Return, for each cut-off, guesses of what will be proved of the mean share of the reward at each step."""
    return _guess_below(past.size * (1 - mean_shares(past)), past.size, cutoffs)


def mean_shares(past: RewardRuns) -> Floats:
    """Return the mean of (r_t - low) / (high - low) at each step t."""
    # what a run pays from its first step to its last, by what begins and ends at each
    size = past.n_steps + 1
    change = np.bincount(past.begins, past.values, size) - np.bincount(past.ends, past.values, size)
    means = (np.cumsum(change[:-1]) / max(1, past.size) - past.low) / (past.high - past.low)
    return np.clip(means, 0.0, 1.0)


def _guess_below(missed: Floats, n: float, cutoffs: Sequence[float]) -> Floats:
    """Return probabilities, a row per cut-off: a share u that missed is u + sqrt(2 u cutoff) + cutoff at most, roughly.

    That is Chernoff's inequality.
    """
    short = (missed + _SMOOTHING) / (n + 2 * _SMOOTHING)
    margin = np.array(cutoffs)[:, None]
    likely: Floats = 1 - np.minimum(short + np.sqrt(2 * short * margin) + margin, np.maximum(short, 0.5))
    return likely


_grouped: WeakKeyDictionary[Sample, dict[int, Sample]] = WeakKeyDictionary()


def group_values(sample: Sample, most: int = MOST_GROUPS) -> Sample:
    """Return about the same sample with fewer values, every one of the smallest kept: for plans, not for bounds."""
    if sample.values.size <= most:
        return sample
    known = _grouped.setdefault(sample, {})
    if most not in known:  # planners at all scaled budgets read the same
        known[most] = _merge_values(sample, most)
    return known[most]


def _merge_values(sample: Sample, most: int) -> Sample:
    starts = group_starts(sample.counts, most)
    counts = np.add.reduceat(sample.counts, starts)
    return Sample(np.add.reduceat(sample.values * sample.counts, starts) / counts, counts)


def group_starts(counts: Floats, most: int = MOST_GROUPS) -> NDArray[np.intp]:
    """Return where groups of values begin that are in ascending order and came so often."""
    below = np.cumsum(counts) - counts
    place = np.maximum(below / below[-1], 0)
    # a third of the groups for the smallest values one by one, a third on a log scale, a third evenly
    third = most // 3
    marks = np.concatenate([place[:third], np.geomspace(place[third], 1, third), np.linspace(0, 1, third)])
    return np.unique(np.searchsorted(place, marks))


def plug_in_means(sample: Past, scaled_budgets: Floats, floor: float) -> Floats:
    """Return the worst-case mean of the sample itself: an estimate, too high on average, never a bound."""
    if isinstance(sample, RewardRuns):
        roots = np.sqrt(np.arange(1, sample.n_steps + 1) / sample.n_steps)
        left = shift_down(mean_shares(sample), scaled_budgets[:, None] * roots).sum(axis=1)
        of_steps: Floats = sample.floor + (sample.high - sample.low) * left
        return of_steps
    n = sample.counts.sum()
    survival = (n - np.cumsum(sample.counts) + sample.counts) / n
    gaps = np.diff(sample.values, prepend=floor)
    return np.array([floor + float(gaps @ shift_down(survival, scaled)) for scaled in scaled_budgets])
