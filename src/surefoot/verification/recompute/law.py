"""Probabilities and quantiles of the return under attack, once more from the raw returns.

With r(x) <= P(X >= x) and s(x) <= P(X <= x), an adversary of radius c leaves P(Y >= x) >= g(r(x)) and
P(Y <= x) >= g(s(x)), g(p) = Phi(Phi^-1(p) - c). The q-quantile is at least the last x with 1 - g(r(x)) < q, and at most
the first x with g(s(x)) >= q.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from surefoot.verification.recompute.bands import Claim, family

Floats = NDArray[np.float64]
_HAIR = 1e-7  # relative: limits are rounded outwards by 1e-9, and computed by other formulas here


def recompute_law(returns: Floats, claim: Claim, *, at_least: float | None = None, q: float | None = None) -> Floats:
    """Return, per budget, least and best lower limit and best and loosest upper limit, as (budgets, 2, 2)."""
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
    return least * (1 - _HAIR), best


def _missed(points: Floats, stay: list[Floats], x: float, claim: Claim) -> tuple[float, float]:
    if claim.ceiling is not None and x > claim.ceiling:
        return 0.0, 0.0
    below = int(np.searchsorted(points, x, side="left"))
    if below == 0 or x <= claim.floor:
        return 1.0, 1.0
    best, least = (1 - float(part[below - 1]) for part in stay)
    # 1 - p loses the digits of a tiny p
    return best * (1 - _HAIR) - 1e-15, min(1.0, least * (1 + _HAIR) + 1e-15)


def _quantile_low(points: Floats, kept: list[Floats], q: float, claim: Claim) -> tuple[float, float]:
    found = []
    for part, slack in zip(kept, (-_HAIR, _HAIR), strict=True):
        sure = int(np.count_nonzero((1 - part) * (1 + slack) < q))
        found.append(float(points[sure - 1]) if sure else claim.floor)
    return found[1], found[0]


def _quantile_high(points: Floats, stay: list[Floats], q: float, claim: Claim) -> tuple[float, float]:
    found = []
    for part, slack in zip(stay, (_HAIR, -_HAIR), strict=True):
        enough = np.flatnonzero(part * (1 + slack) >= q)
        otherwise = math.inf if claim.ceiling is None else claim.ceiling
        found.append(float(points[enough[0]]) if enough.size else otherwise)
    return found[0], found[1]
