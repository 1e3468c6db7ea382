"""Confidence bands: what n independent outcomes say about the whole distribution they came from, simultaneously.

A ``Band`` makes two families of statements about the distribution of an outcome X: lower bounds of P(X >= x)
(``reach``: x is reached) and lower bounds of P(X <= x) (``stay``: the outcome stays at x or below). Everything else
(means, probabilities, quantiles, for every budget) is derived from these families at no cost in confidence, see
``from_band``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
    """Simultaneous lower bounds for P(X >= x) and for P(X <= x), at finitely many x.

    ``points``  the x, ascending
    ``reach``   reach[j] <= P(X >= points[j]) for all j simultaneously, with confidence 1 - alpha
    ``stay``    stay[j] <= P(X <= points[j]) for all j simultaneously, with confidence 1 - alpha
    ``alpha``   the error probability of either family
    ``joint``   True: both families hold simultaneously with confidence 1 - alpha. False: each does by itself,
                and both simultaneously with confidence at least 1 - 2 alpha
    """

    points: Floats
    reach: Floats
    stay: Floats
    alpha: float
    joint: bool

    def __post_init__(self) -> None:
        assert self.points.ndim == 1
        assert self.points.size > 0
        assert self.points.shape == self.reach.shape == self.stay.shape
        assert bool(np.all(np.diff(self.points) > 0))
        for limits in (self.reach, self.stay):
            assert bool(np.all((limits >= 0) & (limits <= 1)))
        for array in (self.points, self.reach, self.stay):
            array.setflags(write=False)


def dkw(returns: ArrayLike, alpha: float) -> Band:
    """Return the band of Dvoretzky, Kiefer, Wolfowitz and Massart, two-sided as the paper prints it (section
    4.2).

    With probability 1 - alpha, |F_n(x) - F(x)| <= sqrt(ln(2 / alpha) / (2 n)) for all x. Both families hold
    simultaneously.
    """
    return _within_dkw(returns, alpha, sides=2)


def dkw_one_sided(returns: ArrayLike, alpha: float) -> Band:
    """Return the one-sided band (Massart 1990), which needs alpha <= 1/2.

    With probability 1 - alpha, F(x) - F_n(x) <= sqrt(ln(1 / alpha) / (2 n)) for all x, and likewise F_n - F.
    """
    if alpha > 0.5:
        raise InputError(f"the one-sided DKW inequality holds for alpha <= 0.5, got {alpha:g}; use the two-sided one")
    return _within_dkw(returns, alpha, sides=1)


def per_threshold(
    returns: ArrayLike,
    thresholds: ArrayLike,
    alpha: float,
    floor: float = -math.inf,
    ceiling: float = math.inf,
) -> Band:
    """Return Clopper-Pearson bounds at thresholds that were fixed before the data were seen (the paper's
    "point estimation").

    Alpha is divided evenly among the thresholds that are in doubt: those at or below a known floor are
    reached for certain, and at those at or above a known ceiling every outcome stays, at no cost.
    """
    x = _checked_thresholds(thresholds)
    certain = (x <= floor, x >= ceiling)
    shares = [np.where(sure, 0.0, alpha / max(1, int(np.count_nonzero(~sure)))) for sure in certain]
    return _at_thresholds(_checked(returns, alpha), x, shares, alpha, certain)


def spread_thresholds(returns: ArrayLike, thresholds: ArrayLike, reach: ArrayLike, stay: ArrayLike) -> Band:
    """Return Clopper-Pearson bounds at fixed thresholds, each at its own alpha.

    ``reach``, ``stay``  alphas of the bounds of P(X >= x) and of P(X <= x), fixed before the returns were seen, 0 for
                         no bound; by the union bound a family holds with confidence 1 - the sum of its alphas
    """
    x = _checked_thresholds(thresholds)
    shares = [np.asarray(family, dtype=np.float64) for family in (reach, stay)]
    if not all(family.shape == x.shape and np.all(family >= 0) for family in shares):
        raise InputError("alphas must be numbers >= 0, one per threshold")
    alpha = max(float(family.sum()) for family in shares)
    return _at_thresholds(_checked(returns, alpha), x, shares, alpha)


def tail_tight(returns: ArrayLike, alpha: float) -> Band:
    """Return the band of equal local levels (Berk and Jones 1979): narrow in the tails, which
    matter most under attack.

    With V the survival function of X at X, {X >= x} = {V <= P(X >= x)}; so if k outcomes reached x then
    P(X >= x) >= V_(k), and V_(k) >= ell(k) for all k simultaneously with probability 1 - alpha by the choice of ell
    (``levels``). For a distribution with atoms V is spread evenly over each atom, and the statement is conservative.
    """
    points, at_least, at_most, n = _tally(returns, alpha)
    ranks, limits = order_limits(n, alpha)

    def limit(counts: Counts) -> Floats:
        return np.concatenate([[0.0], limits])[np.searchsorted(ranks, counts, side="right")]

    return Band(points=points, reach=limit(at_least), stay=limit(at_most), alpha=alpha, joint=False)


def binary(returns: ArrayLike, floor: float, ceiling: float, alpha: float) -> Band:
    """Return Clopper-Pearson bounds for outcomes that are floor or ceiling; others are rejected."""
    x = _checked(returns, alpha)
    if not floor < ceiling:
        raise InputError(f"the ceiling must be above the floor, got floor {floor:g} and ceiling {ceiling:g}")
    other = x[(x != floor) & (x != ceiling)]
    if other.size:
        raise InputError(f"the binary method expects only the returns {floor:g} and {ceiling:g}, got {other[0]:g}")
    return per_threshold(x, [floor, ceiling], alpha, floor, ceiling)


def _within_dkw(returns: ArrayLike, alpha: float, sides: int) -> Band:
    points, at_least, at_most, n = _tally(returns, alpha)
    width = math.sqrt(math.log(sides / alpha) / (2 * n))
    reach = np.maximum(at_least / n - width, 0.0)
    stay = np.maximum(at_most / n - width, 0.0)
    return Band(points=points, reach=reach, stay=stay, alpha=alpha, joint=sides == 2)


def _at_thresholds(
    returns: Floats,
    x: Floats,
    shares: Sequence[Floats],
    alpha: float,
    certain: Sequence[bool | NDArray[np.bool_]] = (False, False),
) -> Band:
    """Bound both families at x, each bound at its share of alpha; without a share it is 0, or 1 where it is certain."""
    n = returns.size
    ordered = np.sort(returns)
    counts = (n - np.searchsorted(ordered, x, side="left"), np.searchsorted(ordered, x, side="right"))
    reach, stay = (np.where(sure, 1.0, np.zeros(x.shape)) for sure in certain)
    for limits, family, k in zip((reach, stay), shares, counts, strict=True):
        limits[family > 0] = lower_limit(k[family > 0], n, family[family > 0])
    return Band(points=x, reach=reach, stay=stay, alpha=alpha, joint=False)


def _tally(returns: ArrayLike, alpha: float) -> tuple[Floats, Counts, Counts, int]:
    """Return the distinct outcomes, how many outcomes were at least and at most each, and how many there were."""
    x = _checked(returns, alpha)
    sample = Sample.of(x)
    counts = sample.counts.astype(np.int64)
    at_most = np.cumsum(counts)
    return sample.values, x.size - at_most + counts, at_most, x.size


def _checked(returns: ArrayLike, alpha: float) -> Floats:
    check_alpha(alpha)
    return checked_outcomes(returns)


def _checked_thresholds(thresholds: ArrayLike) -> Floats:
    x = np.array(thresholds, dtype=np.float64)
    if x.ndim != 1 or x.size == 0 or not np.isfinite(x).all() or not np.all(np.diff(x) > 0):
        raise InputError("thresholds must be a non-empty ascending list of distinct finite numbers")
    return x
