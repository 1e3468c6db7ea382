"""How alpha is split among thresholds: by what a pilot predicts, never by what is certified."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from surefoot.proof.bounds.betting import Sample
from surefoot.proof.bounds.gaussian_shift import shift_down

Floats = NDArray[np.float64]

_MOST = 64  # thresholds; with more values than that other methods are better anyway
_ROUNDS = 15
_NUDGE = 1.1


def threshold_shares(pilot: Sample, radii: Floats, alpha: float, floor: float, n: int) -> tuple[Floats, Floats]:
    """Return thresholds above the floor, and a share of alpha for each, for n more returns like those of the pilot.

    ``pilot``  values to take for thresholds, with the weight of each

    At the best split the last bit of alpha is worth the same everywhere. Shares in proportion to the gain of enlarging
    them by a given factor have that property once they no longer change.
    """
    rough = pilot.grouped(_MOST)
    points = rough.values[rough.values > floor]
    if points.size == 0:
        return np.empty(0), np.empty(0)
    total = rough.counts.sum()
    missed = (np.cumsum(rough.counts) - rough.counts)[rough.values > floor] / total
    gaps = np.diff(points, prepend=floor)
    shares = np.full(points.size, alpha / points.size)
    for _ in range(_ROUNDS):
        limits, served = _served(missed, shares, gaps, n)
        more = shift_down(_limits(missed, shares * _NUDGE, n), radii[:, None])
        gained = (served * (more - shift_down(limits, radii[:, None]))).sum(axis=0)
        gained = np.maximum(gained, 1e-12 * gaps)
        shares = np.sqrt(shares * alpha * gained / gained.sum())
        shares *= alpha / shares.sum()
    return points, shares * (1 - 1e-12)


def _limits(missed: Floats, shares: Floats, n: int) -> Floats:
    """Return the bound at each threshold, if the sample is as expected."""
    reached = n * (1 - missed)
    limits = np.nan_to_num(betaincinv(np.maximum(reached, 1e-9), n - reached + 1, np.minimum(shares, 0.999)))
    return np.clip(limits, 0.0, 1.0)


def _served(missed: Floats, shares: Floats, gaps: Floats, n: int) -> tuple[Floats, Floats]:
    """Return the bounds, and how much of the range each serves: a bound holds for all smaller thresholds too."""
    limits = _limits(missed, shares, n)
    best = np.maximum.accumulate(limits[::-1])[::-1]
    last = np.searchsorted(-best, -best, side="right") - 1  # the last point with the best bound from here on
    return limits, np.bincount(last, weights=gaps, minlength=gaps.size).astype(np.float64)
