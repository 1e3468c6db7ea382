"""Guesses of survival probabilities that scores are made of (``tangent_scores``), and the plug-in estimate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from surefoot.proof.bounds.gaussian_shift import shift_down
from surefoot.proof.bounds.samples import Sample
from surefoot.proof.bounds.tangent_scores import tangents
from surefoot.proof.planning.bettors import Plain, Score

Floats = NDArray[np.float64]

LARGEST_RADIUS = 30.0  # beyond, no guess below 1 gives anything that a float can distinguish from 0
_KNOTS = 600
_SMOOTHING = 0.1  # outcomes added to those below each threshold: unseen is not impossible
_CUTOFFS = np.geomspace(0.1, 10.0, 7)  # in outcomes of all that will be run


def guesses(past: Sample, cutoffs: Sequence[float], floor: float) -> tuple[Floats, Floats]:
    """Return thresholds above the floor and, for each cut-off, guesses of what will be proved of P(X >= threshold).

    A share u of outcomes that missed a threshold is u + sqrt(2 u cutoff) + cutoff at most, roughly (Chernoff).
    """
    rough = past.grouped(_KNOTS)
    n = float(rough.counts.sum())
    missed = np.cumsum(rough.counts) - rough.counts
    above = rough.values > floor
    short = (missed[above] + _SMOOTHING) / (n + 2 * _SMOOTHING)
    margin = np.array(cutoffs)[:, None]
    reach: Floats = 1 - np.minimum(short + np.sqrt(2 * short * margin) + margin, np.maximum(short, 0.5))
    return rough.values[above], reach


def propose(past: Sample, expected: float | None, *, radius: float, floor: float) -> Sequence[Score]:
    """Return one score per cut-off, around one outcome in all ``expected``; None expects as many as there were."""
    if radius > LARGEST_RADIUS:
        return []
    if radius == 0:
        return [Plain(floor)]
    total = 2 * float(past.counts.sum()) if expected is None else expected
    cutoffs = [min(0.5, float(many) / total) for many in _CUTOFFS]
    return tangents(*guesses(past, cutoffs, floor), radius, floor, cutoffs)


def plug_in(sample: Sample, radii: Floats, floor: float) -> Floats:
    """Return the worst-case mean of the sample itself: an estimate, too high on average, never a bound."""
    n = sample.counts.sum()
    reach = (n - np.cumsum(sample.counts) + sample.counts) / n
    gaps = np.diff(sample.values, prepend=floor)
    return np.array([floor + float(gaps @ shift_down(reach, radius)) for radius in radii])
