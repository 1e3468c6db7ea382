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
from surefoot.proof.bounds.samples import Sample
from surefoot.proof.bounds.tangent_scores import Guesses, PlainScore, TangentScore, tangent_scores

Floats = NDArray[np.float64]

_GROUPS = 256  # groups of outcomes that a plan distinguishes
LARGEST_SCALED_BUDGET = 30.0  # beyond, no guess below 1 gives anything that a float can distinguish from 0
_POINTS = 600  # at most, that guesses are made for
_SMOOTHING = 0.1  # outcomes added to those below each threshold: unseen is not impossible
_CUTOFFS = np.geomspace(0.1, 10.0, 7)  # in outcomes of all that will be run


@dataclass(frozen=True, eq=False)
class Proposal:
    """A score to bet on, the guesses that it is made of, and the cut-off that they were made with."""

    score: PlainScore | TangentScore
    guesses: Guesses | None = None
    cutoff: float | None = None


def propose_scores(past: Sample, expected: float | None, *, scaled_budget: float, floor: float) -> list[Proposal]:
    """Return one score per cut-off, around one outcome in all ``expected``; None expects as many as there were."""
    if scaled_budget > LARGEST_SCALED_BUDGET:
        return []
    if scaled_budget == 0:
        return [Proposal(PlainScore(floor))]
    # the fewer outcomes there will be, the less can be proved of thresholds that are rarely missed
    total = 2 * float(past.counts.sum()) if expected is None else expected
    cutoffs = [min(0.5, float(many) / total) for many in _CUTOFFS]
    points, survival = guess_survival(past, cutoffs, floor)
    scores = tangent_scores(points, survival, scaled_budget, floor)
    proposals = []
    for score, guess, cutoff in zip(scores, survival, cutoffs, strict=True):
        proposals.append(Proposal(score, (points, guess), cutoff))
    return proposals


def guess_survival(past: Sample, cutoffs: Sequence[float], floor: float) -> tuple[Floats, Floats]:
    """Return thresholds above the floor and, for each cut-off, guesses of what will be proved of P(X >= threshold).

    A share u of outcomes that missed a threshold is u + sqrt(2 u cutoff) + cutoff at most, roughly (Chernoff).
    """
    rough = group_values(past, _POINTS)
    n = float(rough.counts.sum())
    missed = np.cumsum(rough.counts) - rough.counts
    above = rough.values > floor
    short = (missed[above] + _SMOOTHING) / (n + 2 * _SMOOTHING)
    margin = np.array(cutoffs)[:, None]
    survival: Floats = 1 - np.minimum(short + np.sqrt(2 * short * margin) + margin, np.maximum(short, 0.5))
    return rough.values[above], survival


_grouped: WeakKeyDictionary[Sample, dict[int, Sample]] = WeakKeyDictionary()


def group_values(sample: Sample, most: int = _GROUPS) -> Sample:
    """Return about the same sample with fewer values, every one of the smallest kept: for plans, not for bounds."""
    if sample.values.size <= most:
        return sample
    known = _grouped.setdefault(sample, {})
    if most not in known:  # planners at all scaled budgets read the same
        known[most] = _merge_values(sample, most)
    return known[most]


def _merge_values(sample: Sample, most: int) -> Sample:
    below = np.cumsum(sample.counts) - sample.counts
    place = np.maximum(below / below[-1], 0)
    # a third of the groups for the smallest values one by one, a third on a log scale, a third evenly
    third = most // 3
    marks = np.concatenate([place[:third], np.geomspace(place[third], 1, third), np.linspace(0, 1, third)])
    starts = np.unique(np.searchsorted(place, marks))
    counts = np.add.reduceat(sample.counts, starts)
    return Sample(np.add.reduceat(sample.values * sample.counts, starts) / counts, counts)


def plug_in_means(sample: Sample, scaled_budgets: Floats, floor: float) -> Floats:
    """Return the worst-case mean of the sample itself: an estimate, too high on average, never a bound."""
    n = sample.counts.sum()
    survival = (n - np.cumsum(sample.counts) + sample.counts) / n
    gaps = np.diff(sample.values, prepend=floor)
    return np.array([floor + float(gaps @ shift_down(survival, scaled)) for scaled in scaled_budgets])
