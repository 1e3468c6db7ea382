"""Confidence bands: what n independent outcomes say about the whole distribution they came from, simultaneously.

A ``Band`` makes two families of statements about the distribution of an outcome X: lower bounds of P(X >= x)
(``survival_lower``) and lower bounds of P(X <= x) (``cdf_lower``). Everything else (means, probabilities, quantiles,
for every budget) is derived from these families at no cost in confidence, see ``from_band``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot.errors import InputError
from surefoot.proof.bounds.binomial import check_alpha, checked_outcomes, lower_limit
from surefoot.proof.bounds.local_levels import order_limits
from surefoot.proof.bounds.samples import Sample

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Band:
    """Simultaneous lower bounds for P(X >= x) and for P(X <= x), at finitely many x."""

    points: Floats  # the x, ascending
    survival_lower: Floats  # bounds of P(X >= points[j]) for all j simultaneously, with confidence 1 - alpha
    cdf_lower: Floats  # bounds of P(X <= points[j]) for all j simultaneously, with confidence 1 - alpha
    alpha: float  # the error probability of either family

    def __post_init__(self) -> None:
        assert self.points.ndim == 1
        assert self.points.size > 0
        assert bool(np.all(np.diff(self.points) > 0))
        for limits in (self.survival_lower, self.cdf_lower):
            assert limits.shape == self.points.shape
            assert bool(np.all((limits >= 0) & (limits <= 1)))
        for array in (self.points, self.survival_lower, self.cdf_lower):
            array.setflags(write=False)


def dkw(returns: ArrayLike, alpha: float) -> Band:
    """Return the band of Dvoretzky, Kiefer, Wolfowitz and Massart, two-sided (the paper's section 4.2).

    With probability 1 - alpha, |F_n(x) - F(x)| <= sqrt(ln(2 / alpha) / (2 n)) for all x. Both families hold
    simultaneously.
    """
    points, at_least, at_most, n = _count_outcomes(returns, alpha)
    width = math.sqrt(math.log(2 / alpha) / (2 * n))
    survival = np.maximum(at_least / n - width, 0.0)
    cdf = np.maximum(at_most / n - width, 0.0)
    return Band(points=points, survival_lower=survival, cdf_lower=cdf, alpha=alpha)


def per_threshold(
    returns: ArrayLike, thresholds: ArrayLike, alpha: float, floor: float = -math.inf, ceiling: float = math.inf
) -> Band:
    """Return Clopper-Pearson bounds at thresholds fixed before the data were seen (the paper's "point estimation").

    Alpha is divided evenly among the thresholds that are in doubt: those at or below a known floor are
    reached for certain, and at those at or above a known ceiling every outcome stays, at no cost.
    """
    x = _checked_thresholds(thresholds)
    reached = x <= floor
    stayed = x >= ceiling
    survival_alphas = np.where(reached, 0.0, alpha / max(1, int(np.count_nonzero(~reached))))
    cdf_alphas = np.where(stayed, 0.0, alpha / max(1, int(np.count_nonzero(~stayed))))
    band = _at_thresholds(_checked_returns(returns, alpha), x, survival_alphas, cdf_alphas, alpha)
    survival = np.where(reached, 1.0, band.survival_lower)
    return replace(band, survival_lower=survival, cdf_lower=np.where(stayed, 1.0, band.cdf_lower))


def spread_thresholds(
    returns: ArrayLike, thresholds: ArrayLike, survival_alphas: ArrayLike, cdf_alphas: ArrayLike
) -> Band:
    """Return Clopper-Pearson bounds at fixed thresholds, each at its own alpha.

    By the union bound a family holds with confidence 1 - the sum of its alphas.

    Args:
        returns: The outcomes.
        thresholds: Ascending, fixed before the returns were seen, as all alphas.
        survival_alphas: For the bounds of P(X >= x); 0 for no bound.
        cdf_alphas: For the bounds of P(X <= x); 0 for no bound.
    """
    x = _checked_thresholds(thresholds)
    above = np.asarray(survival_alphas, dtype=np.float64)
    below = np.asarray(cdf_alphas, dtype=np.float64)
    for alphas in (above, below):
        if alphas.shape != x.shape or not np.all(alphas >= 0):
            raise InputError("alphas must be numbers >= 0, one per threshold")
    alpha = max(float(above.sum()), float(below.sum()))
    return _at_thresholds(_checked_returns(returns, alpha), x, above, below, alpha)


def tail_tight(returns: ArrayLike, alpha: float) -> Band:
    """Return the band of equal local levels (Berk and Jones 1979): narrow in the tails, which attacks are about.

    With V the survival function of X at X, {X >= x} = {V <= P(X >= x)}; so if k outcomes reached x then
    P(X >= x) >= V_(k), and V_(k) >= ell(k) for all k simultaneously with probability 1 - alpha by the choice of ell
    (``local_levels``). For a distribution with atoms V is spread evenly over each atom: the statement is conservative.
    """
    points, at_least, at_most, n = _count_outcomes(returns, alpha)
    ranks, limits = order_limits(n, alpha)

    def limit(counts: Counts) -> Floats:
        # V_(k) >= V_(j) >= ell(j) for the last checked rank j <= k
        return np.concatenate([[0.0], limits])[np.searchsorted(ranks, counts, side="right")]

    return Band(points=points, survival_lower=limit(at_least), cdf_lower=limit(at_most), alpha=alpha)


def binary(returns: ArrayLike, floor: float, ceiling: float, alpha: float) -> Band:
    """Return Clopper-Pearson bounds for outcomes that are floor or ceiling; others are rejected."""
    x = _checked_returns(returns, alpha)
    if not floor < ceiling:
        raise InputError(f"the ceiling must be above the floor, got floor {floor:g} and ceiling {ceiling:g}")
    other = x[(x != floor) & (x != ceiling)]
    if other.size:
        raise InputError(f"the binary method expects only the returns {floor:g} and {ceiling:g}, got {other[0]:g}")
    return per_threshold(x, [floor, ceiling], alpha, floor, ceiling)


def _at_thresholds(returns: Floats, x: Floats, survival_alphas: Floats, cdf_alphas: Floats, alpha: float) -> Band:
    """Bound both families at x, each bound at its own share of alpha; without a share it is 0."""
    n = returns.size
    ordered = np.sort(returns)
    at_least = n - np.searchsorted(ordered, x, side="left")
    at_most = np.searchsorted(ordered, x, side="right")
    survival = np.zeros(x.size)
    doubtful = survival_alphas > 0
    survival[doubtful] = lower_limit(at_least[doubtful], n, survival_alphas[doubtful])
    cdf = np.zeros(x.size)
    doubtful = cdf_alphas > 0
    cdf[doubtful] = lower_limit(at_most[doubtful], n, cdf_alphas[doubtful])
    return Band(points=x, survival_lower=survival, cdf_lower=cdf, alpha=alpha)


def _count_outcomes(returns: ArrayLike, alpha: float) -> tuple[Floats, Counts, Counts, int]:
    """Return the distinct outcomes, how many outcomes were at least and at most each, and how many there were."""
    x = _checked_returns(returns, alpha)
    sample = Sample.of(x)
    counts = sample.counts.astype(np.int64)
    at_most = np.cumsum(counts)
    return sample.values, x.size - at_most + counts, at_most, x.size


def _checked_returns(returns: ArrayLike, alpha: float) -> Floats:
    check_alpha(alpha)
    return checked_outcomes(returns)


def _checked_thresholds(thresholds: ArrayLike) -> Floats:
    x = np.array(thresholds, dtype=np.float64)
    if x.ndim != 1 or x.size == 0 or not np.isfinite(x).all() or not np.all(np.diff(x) > 0):
        raise InputError("thresholds must be a non-empty ascending list of distinct finite numbers")
    return x
