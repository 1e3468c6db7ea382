"""Bounds of a method that was selected on pilot episodes, recomputed from the returns after the pilot.

The band, and thresholds with an alpha of its own for each, are computed here; bets, which skip the pilot themselves, in
``bets``. ``plan_again`` checks that the method was selected on the pilot alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.verification.recompute.bands import (
    CannotRecomputeError,
    Claim,
    Side,
    mean_left,
    proportion_at_least,
    reached,
    recompute,
)

Floats = NDArray[np.float64]
MOST_THRESHOLDS = 10_000  # the method selects them among some hundred values


def chosen_method(n: int, choice: Any) -> str:
    """Return the selected method, if it can be selected and there are episodes after the pilot."""
    method, pilot = (choice.get("method"), choice.get("pilot")) if isinstance(choice, dict) else (None, None)
    there = isinstance(pilot, int) and not isinstance(pilot, bool) and 0 <= pilot < n
    if method not in ("band", "binary", "per-threshold", "betting") or not there:
        raise CannotRecomputeError(
            f"the selected method {method!r} after {pilot!r} pilot episodes is not computed here"
        )
    return str(method)


def recompute_auto(returns: Floats, claim: Claim, choice: Any) -> tuple[Side, Side | None]:
    """Return the lower bounds and, where a ceiling is known, the upper ones."""
    method, rest = chosen_method(returns.size, choice), returns[choice["pilot"] :]
    if method == "band":
        return recompute(rest, replace(claim, method="band"))
    points, reach, stay = (np.array(choice.get(key), dtype=np.float64) for key in ("thresholds", "reach", "stay"))
    fits = points.ndim == 1 and points.shape == reach.shape == stay.shape and points.size > 0
    if not fits or points.size > MOST_THRESHOLDS or not np.all(np.diff(points) > 0):
        raise CannotRecomputeError("the selected method has no ascending thresholds with an alpha for each")
    if min(reach.min(), stay.min()) < 0 or max(reach.sum(), stay.sum()) > claim.alpha * (1 + 1e-9):
        raise CannotRecomputeError("the alphas of the thresholds are invalid, or exceed the alpha of the certificate")
    lower = _side(rest, claim.floor, points, reach, claim)
    if claim.ceiling is None:
        return lower, None
    mirror = _side(-rest, -claim.ceiling, -points[::-1], stay[::-1], claim)
    return lower, Side(-mirror.best, -mirror.least)


def _side(returns: Floats, floor: float, points: Floats, risks: Floats, claim: Claim) -> Side:
    counts = reached(returns, points)
    limits = [
        proportion_at_least(np.array([count]), returns.size, risk)[0] if risk > 0 else 0.0
        for count, risk in zip(counts, risks, strict=True)
    ]
    found = [mean_left(floor, points, np.array(limits), budget / claim.sigma) for budget in claim.budgets]
    return Side(np.array(found), np.array(found))
