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
    count_reached,
    mean_left,
    proportion_at_least,
    recompute,
)

Floats = NDArray[np.float64]
MOST_SELECTED = 10_000  # the method selects them among some hundred values


def chosen_method(n: int, choice: Any) -> str:
    """Return the selected method, if it can be selected and there are episodes after the pilot."""
    method = None
    pilot = None
    if isinstance(choice, dict):
        method = choice.get("method")
        pilot = choice.get("pilot")
    leaves_some = isinstance(pilot, int) and not isinstance(pilot, bool) and 0 <= pilot < n
    if method not in ("band", "binary", "per-threshold", "betting", "luck") or not leaves_some:
        raise CannotRecomputeError(
            f"the selected method {method!r} after {pilot!r} pilot episodes is not computed here"
        )
    return str(method)


def recompute_auto(returns: Floats, claim: Claim, choice: Any) -> tuple[Side, Side | None]:
    """Return the lower bounds and, where a ceiling is known, the upper ones."""
    method = chosen_method(returns.size, choice)
    # The pilot has selected the method: only the returns after it may prove anything.
    rest = returns[choice["pilot"] :]
    if method == "band":
        return recompute(rest, replace(claim, method="band"))
    points = np.array(choice.get("thresholds"), dtype=np.float64)
    reach = np.array(choice.get("reach"), dtype=np.float64)
    stay = np.array(choice.get("stay"), dtype=np.float64)
    fits = points.ndim == 1 and points.shape == reach.shape == stay.shape and points.size > 0
    if not fits or points.size > MOST_SELECTED or not np.all(np.diff(points) > 0):
        raise CannotRecomputeError("the selected method has no ascending thresholds with an alpha for each")
    if min(reach.min(), stay.min()) < 0 or max(reach.sum(), stay.sum()) > claim.alpha * (1 + 1e-9):
        raise CannotRecomputeError("the alphas of the thresholds are invalid, or exceed the alpha of the certificate")
    lower = _bound_at_thresholds(rest, claim.floor, points, reach, claim)
    if claim.ceiling is None:
        return lower, None
    mirror = _bound_at_thresholds(-rest, -claim.ceiling, -points[::-1], stay[::-1], claim)
    return lower, Side(-mirror.best, -mirror.least)


def _bound_at_thresholds(returns: Floats, floor: float, points: Floats, alphas: Floats, claim: Claim) -> Side:
    """Return lower bounds of the mean, from a bound of P(X >= point) at its own alpha for each point."""
    tails = np.zeros(points.size)
    for place, count in enumerate(count_reached(returns, points)):
        # Without an alpha nothing is said about a threshold.
        if alphas[place] > 0:
            tails[place] = proportion_at_least(np.array([count]), returns.size, alphas[place])[0]
    found = np.array([mean_left(floor, points, tails, radius) for radius in claim.scaled_budgets])
    return Side(found, found)
