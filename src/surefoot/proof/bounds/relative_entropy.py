"""T5: what remains of the mean return when one budget is shared by many episodes, or holds only on average.

An attacker acts on M episodes that really reset, and divides its budget among them as it likes; only the sum of all its
squared perturbations, *in expectation under the attack*, is at most B^2. Given the past the noise of a step is
N(perturbation, sigma^2) instead of N(0, sigma^2), so by the chain rule the relative entropy of the attacked episodes
from the unattacked ones is at most B^2 / (2 sigma^2). Write ``cost`` = B^2 / (2 sigma^2 M) for its share per
episode. For every theta > 0 (Gibbs' inequality, applied to each episode given the past, then averaged)

    (1/M) E[sum Y_k]  >=  floor - (log E exp(-theta (X - floor)) + cost) / theta.

For a theta that was fixed on other episodes, exp(-theta (X - floor)) is a variable in [0, 1] whose mean is bounded
from above by betting. For wins and losses the best theta is known in closed form: KL(q || p) = cost, with p at least
its Clopper-Pearson bound. Both hold simultaneously for all budgets and all M. ``docs/theory.md`` has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot.errors import InputError
from surefoot.proof.bounds.binomial import check_alpha, checked_outcomes, lower_limit

Floats = NDArray[np.float64]

_LOG_ERROR = 1e-9  # relative, on the capital's side: far more than the rounding of a sum of logarithms


@dataclass(frozen=True)
class BernoulliBound:
    """Wins worth ``prize`` with probability at least ``chance``."""

    chance: float
    prize: float

    def at(self, cost: float) -> float:
        """Return the least mean that relative entropy ``cost`` per episode allows, above the floor."""
        return self.prize * least_chance(self.chance, cost)


@dataclass(frozen=True, eq=False)
class TiltedBound:
    """Upper bounds of E exp(-theta X) for a few theta, simultaneously valid; X is counted from the floor."""

    thetas: Floats  # fixed on the pilot, the first ``pilot`` returns
    stakes: Floats  # of the bets that gave the bounds, fixed on the pilot too
    uppers: Floats  # the bounds
    pilot: int

    def at(self, cost: float) -> float:
        """Return the least mean that relative entropy ``cost`` per episode allows, above the floor."""
        if self.thetas.size == 0:
            return 0.0
        return max(0.0, float(np.max(-(np.log(self.uppers) + cost) / self.thetas)))


def least_chance(chance: float, cost: float) -> float:
    """Return the least q with KL(q || chance) <= cost, never too large."""
    if not (0 <= chance <= 1 and cost >= 0):
        raise InputError(f"expected a probability and a cost >= 0, got {chance} and {cost}")
    if chance == 0 or cost == 0 or chance == 1:
        return chance
    low = 0.0
    high = chance
    for _ in range(200):
        middle = (low + high) / 2
        if bernoulli_entropy(middle, chance) * (1 - _LOG_ERROR) > cost:
            low = middle
        else:
            high = middle
    return low  # the side that is surely too low: below the root KL exceeds the cost


def bound_wins(returns: ArrayLike, floor: float, ceiling: float, alpha: float) -> BernoulliBound:
    """Bound wins (the ceiling is reached) by Clopper-Pearson; everything else counts as lost."""
    check_alpha(alpha)
    x = checked_outcomes(returns, floor)
    # what is no win counts as lost, so that only a lower bound of the wins is needed
    wins = int(np.count_nonzero(x >= ceiling))
    return BernoulliBound(float(lower_limit(wins, x.size, alpha)[0]), ceiling - floor)


def bound_tilts(
    returns: ArrayLike, floor: float, alpha: float, n_pilot: int, plan: Callable[[Floats, int], tuple[Floats, Floats]]
) -> TiltedBound:
    """Bound E exp(-theta X) for a few thetas, each at an even share of alpha.

    ``plan`` is handed the pilot, the first ``n_pilot`` returns counted from the floor, and the number of the others; it
    returns thetas and bet sizes.
    """
    check_alpha(alpha)
    x = checked_outcomes(returns, floor) - floor
    rest = x[n_pilot:]
    thetas, stakes = plan(x[:n_pilot].copy(), rest.size)
    uppers = []
    # the union bound: an even share of alpha for each theta, none for what was planned with
    for theta, stake in zip(thetas.tolist(), stakes.tolist(), strict=True):
        uppers.append(mean_at_most(np.exp(-theta * rest), stake, alpha / thetas.size))
    return TiltedBound(thetas, stakes, np.array(uppers), n_pilot)


def mean_at_most(values: Floats, stake: float, alpha: float) -> float:
    """Return an upper bound at confidence 1 - alpha for the mean of values in [0, 1], by betting with a fixed stake.

    If the mean is m and stake (1 - m) <= 1, the capital prod (1 + stake (m - value)) is never negative and 1 in
    expectation, so it reaches 1 / alpha with probability at most alpha (Markov). It grows with m: the bound is the
    least m at which it does. The bet size must have been fixed without these values.
    """
    if not stake > 0:
        raise InputError(f"stake must be > 0, got {stake}")
    aim = math.log(1 / alpha) * (1 + _LOG_ERROR) + _LOG_ERROR
    low = max(0.0, 1 - 1 / stake)
    high = 1.0
    if _log_capital(values, stake, high) < aim:
        return 1.0
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        if _log_capital(values, stake, middle) >= aim:
            high = middle
        else:
            low = middle
    return high  # at which the capital was computed and found to suffice


def _log_capital(values: Floats, stake: float, mean: float) -> float:
    factors = 1 + stake * (mean - values)
    if factors.min() <= 0:
        return -math.inf
    return float(np.log(factors).sum())


def bernoulli_entropy(q: float, p: float) -> float:
    """Return KL(q || p) of two Bernoulli distributions, 0 < p < 1."""
    entropy = 0.0
    if q > 0:
        entropy += q * math.log(q / p)
    if q < 1:
        entropy += (1 - q) * (math.log1p(-q) - math.log1p(-p))
    return entropy
