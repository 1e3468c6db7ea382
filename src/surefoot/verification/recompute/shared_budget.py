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
METHODS = ("betting", "binary")


@dataclass(frozen=True)
class SharedClaim:
    """What a certificate of a shared budget says its bounds were computed from."""

    method: str
    alpha: float
    floor: float
    ceiling: float | None
    costs: tuple[float, ...]


Plan = Callable[[Floats, int, float | None, SharedClaim], tuple[Floats, Floats]]


def recompute_shared(returns: Floats, claim: SharedClaim, plan: Plan) -> tuple[Floats, Floats | None]:
    """Return the lower bounds at each cost and, where a ceiling is known, the upper ones: the mirror image.

    Args:
        returns: All returns in order.
        claim: What the certificate says its bounds were computed from.
        plan: Gives thetas and bet sizes, of the pilot, the number of other returns and the range.
    """

    def find(heights: Floats) -> Floats:
        return _wins(heights, width, claim) if claim.method == "binary" else _bets(heights, width, claim, plan)

    width = None if claim.ceiling is None else claim.ceiling - claim.floor
    lower = claim.floor + find(returns - claim.floor)
    if claim.ceiling is None:
        return lower, None
    return lower, claim.ceiling - find(claim.ceiling - returns)


def pilot_of(n: int) -> int:
    """Return how many returns the pilot has: a tenth, and no more than five times the root."""
    return min(math.ceil(n / 10), round(5 * math.sqrt(n)))


def _wins(heights: Floats, width: float | None, claim: SharedClaim) -> Floats:
    assert width is not None
    n, won = heights.size, int((heights == width).sum())
    p = float(betaincinv(won, n - won + 1, claim.alpha)) if won else 0.0
    return width * np.array([_least(p, cost) for cost in claim.costs])


def _least(p: float, cost: float) -> float:
    """Return the least q with KL(q || p) <= cost."""

    def excess(q: float) -> float:
        return float(kl_div(q, p) + kl_div(1 - q, 1 - p)) - cost

    return p if p == 0 or cost == 0 else 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, p, xtol=1e-15))


def _bets(heights: Floats, width: float | None, claim: SharedClaim, plan: Plan) -> Floats:
    size = pilot_of(heights.size)
    rest = heights[size:]
    thetas, stakes = plan(heights[:size].copy(), rest.size, width, claim)
    logs = [
        (theta, _log_limit(np.exp(-theta * rest), stake, claim.alpha / thetas.size))
        for theta, stake in zip(thetas.tolist(), stakes.tolist(), strict=True)
    ]
    best = [max((-(log + cost) / theta for theta, log in logs), default=0.0) for cost in claim.costs]
    return np.maximum(best, 0.0)


def _log_limit(z: Floats, stake: float, alpha: float) -> float:
    def excess(m: float) -> float:
        with np.errstate(divide="ignore"):
            return max(float(np.log1p(stake * (m - z)).sum()) - math.log(1 / alpha), -1e9)

    least = max(0.0, 1 - 1 / stake) + 1e-15
    if excess(1.0) <= 0:
        return 0.0
    return math.log(least if excess(least) >= 0 else float(brentq(excess, least, 1.0, xtol=1e-15, rtol=1e-14)))
