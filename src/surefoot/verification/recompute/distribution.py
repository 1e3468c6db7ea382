"""Probabilities, quantiles and CVaR of the return under attack, recomputed independently from the raw returns.

With r(x) <= P(X >= x) and s(x) <= P(X <= x), under any attack with scaled budget c, P(Y >= x) >= g(r(x)) and
P(Y <= x) >= g(s(x)), g(p) = Phi(Phi^-1(p) - c). The q-quantile is at least the last x with 1 - g(r(x)) < q, and at most
the first x with g(s(x)) >= q. CVaR, the mean of the lowest share q of returns, is at least that of the distribution
with P(Y >= x) = g(r(x)), and at most that of the one with P(Y <= x) = g(s(x)): a sum over its lowest atoms.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from surefoot.verification.recompute.bands import METHODS, CannotRecomputeError, Claim, bound_tails
from surefoot.verification.recompute.run_files import Raw, is_number

Floats = NDArray[np.float64]
# Relative: bounds are rounded outward by 1e-9, and computed by other formulas here.
_MARGIN = 1e-7
# What may be asked for: its name in a certificate, that of its number there, and that of the number here.
_KINDS = (("probabilities", "at_least", "at_least"), ("quantiles", "q", "q"), ("cvars", "q", "cvar"))


def compare_distribution(raw: Raw, claim: Claim) -> list[str]:
    """Compare the probabilities, quantiles and CVaR that were asked for."""
    for kind, key, asked in _KINDS:
        rows = raw.certificate.get(kind, [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) and is_number(row.get(key)) for row in rows):
            raise CannotRecomputeError(f"{kind} must be a list")
        if key == "q" and not all(0 < row["q"] < 1 for row in rows):
            raise CannotRecomputeError(f"q of {kind} must be strictly between 0 and 1")
        if rows and claim.method not in METHODS:
            raise CannotRecomputeError(f"{kind} are not computed here for the method {claim.method!r}")
        for row in rows:
            found = recompute_distribution(raw.returns, claim, **{asked: float(row[key])})
            wrong = _compare_row(row, key, claim, found)
            # One is enough: a forged file may have thousands, at as many budgets.
            if wrong:
                return wrong
    return []


def _compare_row(row: dict[str, Any], key: str, claim: Claim, found: NDArray[np.float64]) -> list[str]:
    if set(row) != {key, "lower", "upper"}:
        raise CannotRecomputeError(f"{key} {row[key]!r} must have lower and upper bounds and nothing else")
    for side in ("lower", "upper"):
        if not isinstance(row[side], list) or len(row[side]) != len(claim.budgets):
            raise CannotRecomputeError(f"{key} {row[key]!r} must have one lower and one upper bound per budget")
    wrong = []
    for place, budget in enumerate(claim.budgets):
        low = row["lower"][place]
        high = row["upper"][place]
        (least, best), (top, loose) = found[place]
        is_right = is_number(low) and least <= low <= best
        if high is None:
            is_right = is_right and math.isinf(top)
        else:
            is_right = is_right and is_number(high) and top <= high <= loose
        if not is_right:
            wrong.append(f"at budget {budget:g} the bounds for {key} {row[key]:g} are not {low!r} and {high!r}")
    return wrong


def recompute_distribution(
    returns: Floats, claim: Claim, *, at_least: float | None = None, q: float | None = None, cvar: float | None = None
) -> Floats:
    """Return, per budget, least and best lower bound and best and loosest upper bound, as (budgets, 2, 2)."""
    points, best, least = bound_tails(returns, claim.floor, claim.ceiling, claim, mirrored=False)
    # The best that the method can claim, and the least; a bound at one point holds at all below it.
    reach = np.maximum.accumulate(np.stack([best, least])[:, ::-1], axis=1)[:, ::-1]
    low = -math.inf
    if claim.ceiling is not None:
        low = -claim.ceiling
    mirrored, best, least = bound_tails(-returns, low, -claim.floor, claim, mirrored=True)
    mirrored_points = -mirrored[::-1]
    stay = np.maximum.accumulate(np.stack([best, least])[:, ::-1], axis=1)
    rows = []
    for radius in claim.scaled_budgets:
        # Bounds of P(Y >= point) and of P(Y <= point) under attack.
        tails = _shift_down(reach, radius)
        heads = _shift_down(stay, radius)
        if at_least is not None:
            lower = _probability_low(points, tails, at_least, claim)
            upper = _probability_high(mirrored_points, heads, at_least, claim)
            rows.append((lower, upper))
        elif q is not None:
            rows.append((_quantile_low(points, tails, q, claim), _quantile_high(mirrored_points, heads, q, claim)))
        elif cvar is not None:
            rows.append((_cvar_low(points, tails, cvar, claim), _cvar_high(mirrored_points, heads, cvar, claim)))
    return np.array(rows, dtype=np.float64)


def _shift_down(limits: Floats, radius: float) -> Floats:
    """Return g of every bound; at 0 and 1, where the quantile is infinite, the bound itself."""
    inside = (limits > 0) & (limits < 1) & (radius > 0)
    return np.where(inside, ndtr(ndtri(np.where(inside, limits, 0.5)) - radius), limits)


def _probability_low(points: Floats, tails: Floats, x: float, claim: Claim) -> tuple[float, float]:
    if x <= claim.floor:
        return 1.0, 1.0
    beyond = int(np.searchsorted(points, x, side="left"))
    if beyond == points.size:
        return 0.0, 0.0
    best, least = tails[:, beyond]
    return float(least) * (1 - _MARGIN), float(best)


def _probability_high(points: Floats, heads: Floats, x: float, claim: Claim) -> tuple[float, float]:
    if claim.ceiling is not None and x > claim.ceiling:
        return 0.0, 0.0
    below = int(np.searchsorted(points, x, side="left"))
    if below == 0 or x <= claim.floor:
        return 1.0, 1.0
    best, least = 1 - heads[:, below - 1]
    # 1 - p loses the digits of a tiny p
    return float(best) * (1 - _MARGIN) - 1e-15, min(1.0, float(least) * (1 + _MARGIN) + 1e-15)


def _quantile_low(points: Floats, tails: Floats, q: float, claim: Claim) -> tuple[float, float]:
    reachable = np.append(claim.floor, points)
    best, least = tails
    n_best = np.count_nonzero((1 - best) * (1 - _MARGIN) < q)
    n_least = np.count_nonzero((1 - least) * (1 + _MARGIN) < q)
    return float(reachable[n_least]), float(reachable[n_best])


def _quantile_high(points: Floats, heads: Floats, q: float, claim: Claim) -> tuple[float, float]:
    otherwise = math.inf if claim.ceiling is None else claim.ceiling
    reachable = np.append(points, otherwise)
    best, least = heads
    # The first point that enough is at most; ``heads`` ascend.
    first_best = np.count_nonzero(best * (1 + _MARGIN) < q)
    first_least = np.count_nonzero(least * (1 - _MARGIN) < q)
    return float(reachable[first_best]), float(reachable[first_least])


def _cvar_low(points: Floats, tails: Floats, q: float, claim: Claim) -> tuple[float, float]:
    """Return the CVaR of the distributions with these bounds of P(Y >= point) for their probabilities."""
    values = np.append(claim.floor, points)
    best, least = (_lowest_mean(values, 1 - np.append(tail, 0.0), q) for tail in tails)
    margin = _MARGIN * float(values[-1] - claim.floor)
    return max(claim.floor, least - margin), max(claim.floor, best)


def _cvar_high(points: Floats, heads: Floats, q: float, claim: Claim) -> tuple[float, float]:
    """Return the CVaR of the distributions with these bounds of P(Y <= point) for their probabilities."""
    values = np.append(points, math.inf if claim.ceiling is None else claim.ceiling)
    best, least = (_lowest_mean(values, np.append(head, 1.0), q) for head in heads)
    highest = float(points[-1]) if claim.ceiling is None else claim.ceiling
    if math.isfinite(best):
        best = min(best, highest)
    return best, least + _MARGIN * (highest - claim.floor)


def _lowest_mean(values: Floats, at_most: Floats, q: float) -> float:
    """Return the mean of the lowest share q of a distribution with P(Y <= value) = at_most, values ascending."""
    weights = np.diff(np.minimum(at_most, q), prepend=0.0)
    # An infinite value that has no weight counts for nothing.
    counts = weights > 0
    return float(values[counts] @ weights[counts]) / q
