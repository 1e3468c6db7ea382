"""What remains of a confidence band under the worst attack with scaled budget c = B / sigma.

Write g_c(p) = Phi(Phi^-1(p) - c). By Theorem 1, applied to the questions "was x reached?", P(Y >= x) >=
g_c(P(X >= x)) for every x, where X is the return without and Y with attack. Integrated from a floor a
that no return can fall below,

    E[Y] = a + int_a^inf P(Y >= x) dx >= a + int_a^inf g_c(P(X >= x)) dx,

and with lower bounds for P(X >= x) at finitely many points, hence at everything below them, the integral is a
sum. The upper side is the mirror image: E[Y] <= b - int_-inf^b g_c(P(X <= x)) dx for a ceiling b. Given only
the distribution of X this is tight.

CVaR_q(Y) = (1/q) int_0^q F_Y^-1(u) du is the mean of the lowest share q of returns. It is the integral of
h_q(P(Y >= x)), h_q(p) = max(0, p - (1 - q)) / q, as the mean is that of P(Y >= x): of all returns at least x only those
among the lowest share q count. h_q grows, so a lower bound of P(Y >= x) gives a lower bound of CVaR_q, and an upper
one an upper one. Both are attained by the game that attains T2.

Nothing here uses any alpha: all these statements hold simultaneously, for all scaled budgets, thresholds, quantiles and
q, whenever the band does.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot.errors import InputError
from surefoot.proof.bounds.bands import Band
from surefoot.proof.bounds.gaussian_shift import shift_down, shift_up

Floats = NDArray[np.float64]

_PIECE = 16_384  # points of the table that is held at a time
_BUDGET_ROWS = 16  # and its scaled budgets: 2 MB, and a few copies of it
_CLEARANCE = 1e-9  # relative: a quantile jumps, so its probability has to clear q by more than rounding could do


def mean_lower(band: Band, floor: float, scaled_budget: ArrayLike) -> Floats:
    """Return, for each scaled budget, E[Y] >= floor + sum (x_j - x_(j-1)) g_c(survival_lower_j), where x_0 = floor."""
    _check_inside(band, floor=floor)
    return floor + _shifted_sum(np.concatenate([[floor], band.points]), _best_survival(band), scaled_budget)


def mean_upper(band: Band, ceiling: float, scaled_budget: ArrayLike) -> Floats:
    """Return, for each scaled budget, E[Y] <= ceiling - sum (x_(j+1) - x_j) g_c(cdf_lower_j), the last x = ceiling."""
    _check_inside(band, ceiling=ceiling)
    return ceiling - _shifted_sum(np.concatenate([band.points, [ceiling]]), _best_cdf(band), scaled_budget)


def probability_lower(
    band: Band, threshold: float, scaled_budget: ArrayLike, floor: float, ceiling: float | None = None
) -> Floats:
    """Return a lower bound of P(Y >= threshold) for each scaled budget."""
    _check_inside(band, floor, ceiling)
    if threshold <= floor:
        return np.ones(np.shape(scaled_budget))
    beyond = int(np.searchsorted(band.points, threshold, side="left"))
    if beyond == band.points.size:
        return np.zeros(np.shape(scaled_budget))
    return shift_down(band.survival_lower[beyond:].max(), scaled_budget)


def probability_upper(
    band: Band, threshold: float, scaled_budget: ArrayLike, floor: float, ceiling: float | None = None
) -> Floats:
    """Return an upper bound of P(Y >= threshold) for each scaled budget: outcomes below it do not reach it."""
    _check_inside(band, floor, ceiling)
    if ceiling is not None and threshold > ceiling:
        return np.zeros(np.shape(scaled_budget))
    below = int(np.searchsorted(band.points, threshold, side="left"))
    if below == 0 or threshold <= floor:
        return np.ones(np.shape(scaled_budget))
    return shift_up(1 - band.cdf_lower[:below].max(), scaled_budget)


def quantile_lower(
    band: Band, q: float, scaled_budget: ArrayLike, floor: float, ceiling: float | None = None
) -> Floats:
    """Return a lower bound of inf{y: P(Y <= y) >= q} for each scaled budget: the last x with P(Y < x) < q."""
    _check_inside(band, floor, ceiling)
    _check_quantile(q)
    missed = 1 - _best_survival(band)  # P(X < x) at most; ascending in x

    def at(r: float) -> float:
        # monotone in x: the first x that may already be missed with probability q
        sure = int(np.searchsorted(shift_up(missed, r) * (1 + _CLEARANCE) >= q, True))
        if sure == 0:
            return floor
        return float(band.points[sure - 1])

    return _at_each(at, scaled_budget)


def quantile_upper(
    band: Band, q: float, scaled_budget: ArrayLike, floor: float, ceiling: float | None = None
) -> Floats:
    """Return an upper bound of inf{y: P(Y <= y) >= q} for each scaled budget: the first x with P(Y <= x) >= q.

    Where there is none the ceiling remains, and without a ceiling infinity.
    """
    _check_inside(band, floor, ceiling)
    _check_quantile(q)
    stayed = _best_cdf(band)
    otherwise = np.inf if ceiling is None else ceiling

    def at(r: float) -> float:
        first = int(np.searchsorted(shift_down(stayed, r) * (1 - _CLEARANCE) >= q, True))
        if first == band.points.size:
            return otherwise
        return float(band.points[first])

    return _at_each(at, scaled_budget)


def cvar_lower(band: Band, q: float, scaled_budget: ArrayLike, floor: float, ceiling: float | None = None) -> Floats:
    """Return, for each scaled budget, CVaR_q(Y) >= floor + sum (x_j - x_(j-1)) h_q(g_c(survival_lower_j)).

    h_q(g_c(p)) = max(0, 1 - shift_up(1 - p, c) / q): the complement keeps the digits that 1 - q would cancel.
    """
    _check_inside(band, floor, ceiling)
    _check_quantile(q)
    gaps = np.diff(band.points, prepend=floor)
    missed = 1 - _best_survival(band)

    def at(r: float) -> float:
        below = np.minimum(shift_up(missed, r) * (1 + _CLEARANCE) / q, 1.0)
        return floor + float(gaps @ (1 - below))

    return _at_each(at, scaled_budget)


def cvar_upper(band: Band, q: float, scaled_budget: ArrayLike, floor: float, ceiling: float | None = None) -> Floats:
    """Return, for each scaled budget, CVaR_q(Y) <= x_k - sum over j < k of (x_(j+1) - x_j) g_c(cdf_lower_j) / q.

    x_k is the upper bound of the q-quantile: no return of the lowest share q exceeds the quantile. Without a ceiling it
    may be infinite, and so is the bound.
    """
    stayed = _best_cdf(band)

    def at(r: float) -> float:
        top = float(quantile_upper(band, q, r, floor, ceiling))
        if not np.isfinite(top):
            return np.inf
        ends = np.append(np.minimum(band.points, top), top)
        below = np.minimum(shift_down(stayed, r) * (1 - _CLEARANCE) / q, 1.0)
        return top - float(np.diff(ends) @ below)

    return _at_each(at, scaled_budget)


def _best_survival(band: Band) -> Floats:
    """An outcome that reaches a later point has reached this one, so the best bound further right counts here too."""
    best: Floats = np.maximum.accumulate(band.survival_lower[::-1])[::-1]
    return best


def _best_cdf(band: Band) -> Floats:
    # likewise, an outcome that stays at an earlier point stays at this one
    best: Floats = np.maximum.accumulate(band.cdf_lower)
    return best


def _shifted_sum(points: Floats, limits: Floats, scaled_budget: ArrayLike) -> Floats:
    """Return sum (points[j+1] - points[j]) g_c(limits[j]) for each scaled budget, piece by piece."""
    scaled_budgets = np.asarray(scaled_budget, dtype=np.float64)
    total = np.zeros(scaled_budgets.size)
    for begin in range(0, limits.size, _PIECE):
        gaps = np.diff(points[begin : begin + _PIECE + 1])
        piece = limits[begin : begin + _PIECE]
        starts = np.flatnonzero(np.diff(piece, prepend=np.nan) != 0)  # neighbors with one bound are one step
        gaps = np.add.reduceat(gaps, starts)
        piece = piece[starts]
        for row in range(0, scaled_budgets.size, _BUDGET_ROWS):
            rows = slice(row, row + _BUDGET_ROWS)
            # not a matrix product: a sum along rows does not depend on how many scaled budgets were asked for
            total[rows] += (shift_down(piece, scaled_budgets.ravel()[rows, None]) * gaps).sum(axis=1)
    return total.reshape(scaled_budgets.shape)


def _at_each(at: Callable[[float], float], scaled_budget: ArrayLike) -> Floats:
    scaled_budgets = np.asarray(scaled_budget, dtype=np.float64)
    found = [at(scaled) for scaled in scaled_budgets.ravel().tolist()]
    return np.array(found, dtype=np.float64).reshape(scaled_budgets.shape)


def _check_inside(band: Band, floor: float | None = None, ceiling: float | None = None) -> None:
    if floor is not None and band.points[0] < floor:
        raise InputError(f"the band has the point {band.points[0]:g} below the floor {floor:g}; give the true floor")
    if ceiling is not None and band.points[-1] > ceiling:
        raise InputError(f"the band has the point {band.points[-1]:g} above the ceiling {ceiling:g}")


def _check_quantile(q: float) -> None:
    if not 0 < q < 1:
        raise InputError(f"q of a quantile or CVaR must be strictly between 0 and 1, got {q}")
