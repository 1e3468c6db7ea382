"""Probabilities, quantiles and CVaR of the return under attack, recomputed independently from the raw returns.

With r(x) <= P(X >= x) and s(x) <= P(X <= x), under any attack with scaled budget c, P(Y >= x) >= g(r(x)) and
P(Y <= x) >= g(s(x)), g(p) = Phi(Phi^-1(p) - c). The q-quantile is at least the last x with 1 - g(r(x)) < q, and at most
the first x with g(s(x)) >= q. CVaR, the mean of the lowest share q of returns, is at least that of the distribution
with P(Y >= x) = g(r(x)), and at most that of the one with P(Y <= x) = g(s(x)): a sum over its lowest atoms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from surefoot.verification.recompute.bands import METHODS, CannotRecomputeError, Claim, bound_tails
from surefoot.verification.recompute.run_files import Raw, is_number

Floats = NDArray[np.float64]
# Relative: bounds are rounded outward by 1e-9, and computed by other formulas here.
_ALLOWED_ERROR = 1e-7
# What may be asked for: its name in a certificate, and that of its number there.
KINDS = {"probabilities": "at_least", "quantiles": "q", "cvars": "q"}
LISTED = 10  # wrong bounds that are named


def compare_distribution(raw: Raw, claim: Claim) -> list[str]:
    """Compare the probabilities, quantiles and CVaR that were asked for."""
    stated = []
    asked = []
    for kind, key in KINDS.items():
        rows = raw.certificate.get(kind, [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) and is_number(row.get(key)) for row in rows):
            raise CannotRecomputeError(f"{kind} must be a list")
        if key == "q" and not all(0 < row["q"] < 1 for row in rows):
            raise CannotRecomputeError(f"q of {kind} must be strictly between 0 and 1")
        if rows and claim.method not in METHODS:
            raise CannotRecomputeError(f"{kind} are not computed here for the method {claim.method!r}")
        stated += [(row, key) for row in rows]
        asked += [(kind, float(row[key])) for row in rows]
    if not asked:
        return []
    wrong = []
    found = recompute_distribution(raw.returns, claim, asked)
    for (row, key), bounds in zip(stated, found, strict=True):
        wrong += _compare_row(row, key, claim, bounds)
    # A few say enough: a forged file may have thousands.
    return wrong[:LISTED]


def asked_about(certificate: Mapping[str, Any]) -> tuple[list[float], list[float]]:
    """Return the shares of quantiles and CVaR, and the thresholds of probabilities, that a certificate speaks of."""
    shares = []
    for kind in ("quantiles", "cvars"):
        shares += [float(row["q"]) for row in certificate.get(kind, [])]
    return shares, [float(row["at_least"]) for row in certificate.get("probabilities", [])]


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


def recompute_distribution(returns: Floats, claim: Claim, asked: Sequence[tuple[str, float]]) -> Floats:
    """Return, per number asked for and budget, least and best lower bound, and best and loosest upper bound.

    Returns:
        Those bounds, of shape (asked, budgets, 2, 2).
    """
    points, best, least = bound_tails(returns, claim.floor, claim.ceiling, claim, mirrored=False)
    # The best that the method can claim, and the least; a bound at one point holds at all below it.
    reach = np.maximum.accumulate(np.stack([best, least])[:, ::-1], axis=1)[:, ::-1]
    low = -math.inf
    if claim.ceiling is not None:
        low = -claim.ceiling
    mirrored, best, least = bound_tails(-returns, low, -claim.floor, claim, mirrored=True)
    mirrored_points = -mirrored[::-1]
    stay = np.maximum.accumulate(np.stack([best, least])[:, ::-1], axis=1)
    found = np.empty((len(asked), len(claim.budgets), 2, 2))
    for place, radius in enumerate(claim.scaled_budgets):
        # Bounds of P(Y >= point) and of P(Y <= point) under attack.
        tails = _shift_down(reach, radius)
        heads = _shift_down(stay, radius)
        for row, (kind, number) in enumerate(asked):
            bound_below, bound_above = _BOUNDS[kind]
            found[row, place, 0] = bound_below(points, tails, number, claim)
            found[row, place, 1] = bound_above(mirrored_points, heads, number, claim)
    return found


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
    return float(least) * (1 - _ALLOWED_ERROR), float(best)


def _probability_high(points: Floats, heads: Floats, x: float, claim: Claim) -> tuple[float, float]:
    if claim.ceiling is not None and x > claim.ceiling:
        return 0.0, 0.0
    below = int(np.searchsorted(points, x, side="left"))
    if below == 0 or x <= claim.floor:
        return 1.0, 1.0
    best, least = 1 - heads[:, below - 1]
    # 1 - p loses the digits of a tiny p
    return float(best) * (1 - _ALLOWED_ERROR) - 1e-15, min(1.0, float(least) * (1 + _ALLOWED_ERROR) + 1e-15)


def _quantile_low(points: Floats, tails: Floats, q: float, claim: Claim) -> tuple[float, float]:
    reachable = np.append(claim.floor, points)
    best, least = tails
    n_best = np.count_nonzero((1 - best) * (1 - _ALLOWED_ERROR) < q)
    n_least = np.count_nonzero((1 - least) * (1 + _ALLOWED_ERROR) < q)
    return float(reachable[n_least]), float(reachable[n_best])


def _quantile_high(points: Floats, heads: Floats, q: float, claim: Claim) -> tuple[float, float]:
    otherwise = math.inf if claim.ceiling is None else claim.ceiling
    reachable = np.append(points, otherwise)
    best, least = heads
    # The first point that enough is at most; ``heads`` ascend.
    first_best = np.count_nonzero(best * (1 + _ALLOWED_ERROR) < q)
    first_least = np.count_nonzero(least * (1 - _ALLOWED_ERROR) < q)
    return float(reachable[first_best]), float(reachable[first_least])


def _cvar_low(points: Floats, tails: Floats, q: float, claim: Claim) -> tuple[float, float]:
    """Return the CVaR of the distributions with these bounds of P(Y >= point) for their probabilities."""
    values = np.append(claim.floor, points)
    best, least = (_lowest_mean(values, 1 - np.append(tail, 0.0), q) for tail in tails)
    margin = _ALLOWED_ERROR * float(values[-1] - claim.floor)
    return max(claim.floor, least - margin), max(claim.floor, best)


def _cvar_high(points: Floats, heads: Floats, q: float, claim: Claim) -> tuple[float, float]:
    """Return the CVaR of the distributions with these bounds of P(Y <= point) for their probabilities."""
    values = np.append(points, math.inf if claim.ceiling is None else claim.ceiling)
    best, least = (_lowest_mean(values, np.append(head, 1.0), q) for head in heads)
    highest = float(points[-1]) if claim.ceiling is None else claim.ceiling
    if math.isfinite(best):
        best = min(best, highest)
    return best, least + _ALLOWED_ERROR * (highest - claim.floor)


def _lowest_mean(values: Floats, at_most: Floats, q: float) -> float:
    """Return the mean of the lowest share q of a distribution with P(Y <= value) = at_most, values ascending."""
    weights = np.diff(np.minimum(at_most, q), prepend=0.0)
    # An infinite value that has no weight counts for nothing.
    counts = weights > 0
    return float(values[counts] @ weights[counts]) / q


# How each kind is bounded from below, by bounds of P(Y >= point), and from above, by bounds of P(Y <= point).
_BOUNDS = {
    "probabilities": (_probability_low, _probability_high),
    "quantiles": (_quantile_low, _quantile_high),
    "cvars": (_cvar_low, _cvar_high),
}
