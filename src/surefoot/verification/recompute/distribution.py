"""Probabilities and quantiles of the return under attack, recomputed independently from the raw returns.

With r(x) <= P(X >= x) and s(x) <= P(X <= x), under any attack with scaled budget c, P(Y >= x) >= g(r(x)) and
P(Y <= x) >= g(s(x)), g(p) = Phi(Phi^-1(p) - c). The q-quantile is at least the last x with 1 - g(r(x)) < q, and at most
the first x with g(s(x)) >= q.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from surefoot.verification.recompute.bands import METHODS, CannotRecomputeError, Claim, family
from surefoot.verification.recompute.run_files import Raw, is_number

Floats = NDArray[np.float64]
_MARGIN = 1e-7  # relative: bounds are rounded outward by 1e-9, and computed by other formulas here


def compare_distribution(raw: Raw, claim: Claim) -> list[str]:
    """Compare the probabilities and quantiles that were asked for."""
    wrong = []
    for kind, key in (("probabilities", "at_least"), ("quantiles", "q")):
        rows = raw.certificate.get(kind, [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) and is_number(row.get(key)) for row in rows):
            raise CannotRecomputeError(f"{kind} must be a list")
        if key == "q" and not all(0 < row["q"] < 1 for row in rows):
            raise CannotRecomputeError("a quantile must be strictly between 0 and 1")
        if rows and claim.method not in METHODS:
            raise CannotRecomputeError(f"{kind} are not computed here for the method {claim.method!r}")
        for row in rows:
            found = recompute_distribution(raw.returns, claim, **{key: float(row[key])})
            wrong += _compared(row, key, claim, found)
    return wrong


def _compared(row: dict[str, Any], key: str, claim: Claim, found: NDArray[np.float64]) -> list[str]:
    lower, upper = row.get("lower"), row.get("upper")
    fits = all(isinstance(column, list) and len(column) == len(claim.budgets) for column in (lower, upper))
    if not fits or set(row) != {key, "lower", "upper"}:
        raise CannotRecomputeError(f"{key} {row[key]!r} must have one lower and one upper bound per budget")
    wrong = []
    for budget, low, high, ((least, best), (top, loose)) in zip(claim.budgets, lower, upper, found, strict=True):  # type: ignore[arg-type]
        right = is_number(low) and least <= low <= best
        right &= math.isinf(top) if high is None else is_number(high) and top <= high <= loose
        if not right:
            wrong.append(f"at budget {budget:g} the bounds for {key} {row[key]:g} are not {low!r} and {high!r}")
    return wrong


def recompute_distribution(
    returns: Floats, claim: Claim, *, at_least: float | None = None, q: float | None = None
) -> Floats:
    """Return, per budget, least and best lower bound and best and loosest upper bound, as (budgets, 2, 2)."""
    points, *reaches = family(returns, claim.floor, claim.ceiling, claim, mirrored=False)
    low = -math.inf if claim.ceiling is None else -claim.ceiling
    mirrored, *stays = family(-returns, low, -claim.floor, claim, mirrored=True)
    lasts, firsts = points, -mirrored[::-1]
    rows = []
    for radius in (budget / claim.sigma for budget in claim.budgets):
        kept = [_shifted(np.maximum.accumulate(reach[::-1])[::-1], radius) for reach in reaches]
        stay = [_shifted(np.maximum.accumulate(part[::-1]), radius) for part in stays]
        if at_least is not None:
            rows.append((_reached(lasts, kept, at_least, claim), _missed(firsts, stay, at_least, claim)))
        elif q is not None:
            rows.append((_quantile_low(lasts, kept, q, claim), _quantile_high(firsts, stay, q, claim)))
    return np.array(rows, dtype=np.float64)


def _shifted(limits: Floats, radius: float) -> Floats:
    inside = (limits > 0) & (limits < 1) & (radius > 0)
    return np.where(inside, ndtr(ndtri(np.where(inside, limits, 0.5)) - radius), limits)


def _reached(points: Floats, kept: list[Floats], x: float, claim: Claim) -> tuple[float, float]:
    if x <= claim.floor:
        return 1.0, 1.0
    beyond = int(np.searchsorted(points, x, side="left"))
    best, least = (float(part[beyond]) if beyond < points.size else 0.0 for part in kept)
    return least * (1 - _MARGIN), best


def _missed(points: Floats, stay: list[Floats], x: float, claim: Claim) -> tuple[float, float]:
    if claim.ceiling is not None and x > claim.ceiling:
        return 0.0, 0.0
    below = int(np.searchsorted(points, x, side="left"))
    if below == 0 or x <= claim.floor:
        return 1.0, 1.0
    best, least = (1 - float(part[below - 1]) for part in stay)
    # 1 - p loses the digits of a tiny p
    return best * (1 - _MARGIN) - 1e-15, min(1.0, least * (1 + _MARGIN) + 1e-15)


def _quantile_low(points: Floats, kept: list[Floats], q: float, claim: Claim) -> tuple[float, float]:
    found = []
    for part, slack in zip(kept, (-_MARGIN, _MARGIN), strict=True):
        sure = int(np.count_nonzero((1 - part) * (1 + slack) < q))
        found.append(float(points[sure - 1]) if sure else claim.floor)
    return found[1], found[0]


def _quantile_high(points: Floats, stay: list[Floats], q: float, claim: Claim) -> tuple[float, float]:
    found = []
    for part, slack in zip(stay, (_MARGIN, -_MARGIN), strict=True):
        enough = np.flatnonzero(part * (1 + slack) >= q)
        otherwise = math.inf if claim.ceiling is None else claim.ceiling
        found.append(float(points[enough[0]]) if enough.size else otherwise)
    return found[0], found[1]
