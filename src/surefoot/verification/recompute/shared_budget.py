"""Bounds for a budget that many episodes share (T5), recomputed from the raw returns; nothing of surefoot is imported.

Thetas and bet sizes come from ``plan_again``, which gives the planner the pilot alone: any would be valid.

With z = exp(-theta (x - floor)) and cost = B^2 / (2 sigma^2 M), the mean return per episode is at least
floor - (log E[z] + cost) / theta, for every theta. The first returns, the pilot, fix a few thetas and the stake of a
bet for each; the others bound E[z] from above, each at an even share of alpha: the bound is the m at which
prod (1 + stake (m - z)) = 1 / share. For wins and losses: KL(q || p) = cost, p the Clopper-Pearson bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import betaincinv, kl_div

Floats = NDArray[np.float64]
SHARED_METHODS = ("betting", "binary")


@dataclass(frozen=True)
class SharedClaim:
    """What a certificate of a shared budget says its bounds were computed from."""

    method: str
    alpha: float
    floor: float
    ceiling: float | None
    costs: tuple[float, ...]


# Gives thetas and bet sizes, of the pilot, the number of other returns and the range.
SharedPlanner = Callable[[Floats, int, float | None, SharedClaim], tuple[Floats, Floats]]


def recompute_shared(returns: Floats, claim: SharedClaim, plan: SharedPlanner) -> tuple[Floats, Floats | None]:
    """Return the lower bounds at each cost and, where a ceiling is known, the upper ones: the mirror image."""
    if claim.ceiling is None:
        return claim.floor + _bound_by_bets(returns - claim.floor, None, claim, plan), None
    width = claim.ceiling - claim.floor
    heights = returns - claim.floor
    depths = claim.ceiling - returns
    if claim.method == "binary":
        return claim.floor + _bound_wins(heights, width, claim), claim.ceiling - _bound_wins(depths, width, claim)
    lower = claim.floor + _bound_by_bets(heights, width, claim, plan)
    upper = claim.ceiling - _bound_by_bets(depths, width, claim, plan)
    return lower, upper


def pilot_of(n: int) -> int:
    """Return how many returns the pilot has: a tenth, and no more than five times the root."""
    return min(math.ceil(n / 10), round(5 * math.sqrt(n)))


def _bound_wins(heights: Floats, width: float, claim: SharedClaim) -> Floats:
    """Return lower bounds of the mean height, where every height is 0 or the whole width."""
    n = heights.size
    n_won = int((heights == width).sum())
    p = 0.0
    if n_won > 0:
        p = float(betaincinv(n_won, n - n_won + 1, claim.alpha))
    return width * np.array([_lowest_at_cost(p, cost) for cost in claim.costs])


def _lowest_at_cost(p: float, cost: float) -> float:
    """Return the least q with KL(q || p) <= cost."""

    def excess(q: float) -> float:
        return float(kl_div(q, p) + kl_div(1 - q, 1 - p)) - cost

    if p == 0 or cost == 0:
        return p
    if excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, p, xtol=1e-15))


def _bound_by_bets(heights: Floats, width: float | None, claim: SharedClaim, plan: SharedPlanner) -> Floats:
    """Return lower bounds of the mean height: at each cost the best of all thetas."""
    size = pilot_of(heights.size)
    rest = heights[size:]
    thetas, stakes = plan(heights[:size].copy(), rest.size, width, claim)
    bounds = np.zeros(len(claim.costs))
    for theta, stake in zip(thetas.tolist(), stakes.tolist(), strict=True):
        # Every theta has an even share of alpha, a union bound.
        log_limit = _bound_log_mean(np.exp(-theta * rest), stake, claim.alpha / thetas.size)
        bounds = np.maximum(bounds, -(log_limit + np.array(claim.costs)) / theta)
    return bounds


def _bound_log_mean(z: Floats, stake: float, alpha: float) -> float:
    """Return the logarithm of the m at which the capital of bets that E[z] is below m reaches 1 / alpha."""

    def excess(m: float) -> float:
        with np.errstate(divide="ignore"):
            return max(float(np.log1p(stake * (m - z)).sum()) - math.log(1 / alpha), -1e9)

    if excess(1.0) <= 0:
        return 0.0
    # The least m against which no bet could lose more than the capital.
    least = max(0.0, 1 - 1 / stake) + 1e-15
    if excess(least) >= 0:
        return math.log(least)
    return math.log(float(brentq(excess, least, 1.0, xtol=1e-15, rtol=1e-14)))
