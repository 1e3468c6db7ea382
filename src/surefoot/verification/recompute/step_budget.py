"""Bounds for a budget per step (T4), recomputed from the recorded rewards; nothing of surefoot is imported.

With p_t the mean share of step t's reward in [low, high], under any attack with at most e per observation,
E[Y] >= sum over t of low + (high - low) Phi(Phi^-1(p_t) - e sqrt(t) / sigma). p_t is at least the m below the observed
mean at which n KL(mean || m) = log(steps / alpha). Upper bounds are the mirror image.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import norm

Floats = NDArray[np.float64]


def recompute_per_step(
    reward_sums: Floats, n: int, rewards: tuple[float, float], alpha: float, radii: list[float]
) -> tuple[Floats, Floats]:
    """Return the lower and the upper bounds at each scaled budget e / sigma."""
    low, high = rewards
    means = (reward_sums.sum(axis=0) / n - low) / (high - low)
    # The union bound over the steps, in the inequality of Chernoff.
    distance = math.log(means.size / alpha) / n
    # Up to step t an attack has spent at most e sqrt(t).
    roots = np.sqrt(np.arange(1, means.size + 1))
    lower = _sum_worst_means(means, distance, roots, radii)
    upper = _sum_worst_means(1 - means, distance, roots, radii)
    return means.size * low + (high - low) * lower, means.size * high - (high - low) * upper


def _sum_worst_means(means: Floats, distance: float, roots: Floats, radii: list[float]) -> Floats:
    """Return, at each scaled budget, the sum of the worst-case means of all steps."""
    quantiles = norm.ppf([_lowest_mean(float(mean), distance) for mean in means])
    return np.array([norm.cdf(quantiles - radius * roots).sum() for radius in radii])


def _lowest_mean(mean: float, distance: float) -> float:
    """Return the m below ``mean`` with KL(mean || m) = distance."""
    if mean <= 0:
        return 0.0
    if mean >= 1:
        return math.exp(-distance)

    def excess(m: float) -> float:
        return mean * math.log(mean / m) + (1 - mean) * math.log((1 - mean) / (1 - m)) - distance

    # (1 - mean) log((1 - mean) / (1 - m)) is at least -mean.
    tiny = mean * math.exp(-distance / mean - 1) / 2
    if tiny == 0:
        return 0.0
    return float(brentq(excess, tiny, mean, xtol=1e-16, rtol=1e-13))
