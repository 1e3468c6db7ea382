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
    gains: Floats, n: int, rewards: tuple[float, float], alpha: float, radii: list[float]
) -> tuple[Floats, Floats]:
    """Return the lower and the upper bounds at each scaled budget e / sigma."""
    low, high = rewards
    shares = (gains.sum(axis=0) / n - low) / (high - low)
    roots = np.sqrt(np.arange(1, shares.size + 1))
    sides = []
    for means in (shares, 1 - shares):
        least = np.array([_least(float(mean), math.log(shares.size / alpha) / n) for mean in means])
        sides.append(np.array([norm.cdf(norm.ppf(least) - radius * roots).sum() for radius in radii]))
    below, above = sides
    return shares.size * low + (high - low) * below, shares.size * high - (high - low) * above


def _least(mean: float, distance: float) -> float:
    """Return the m below ``mean`` with KL(mean || m) = distance."""
    if mean <= 0:
        return 0.0
    if mean >= 1:
        return math.exp(-distance)

    def excess(m: float) -> float:
        return mean * math.log(mean / m) + (1 - mean) * math.log((1 - mean) / (1 - m)) - distance

    tiny = mean * math.exp(-distance / mean - 1) / 2  # (1 - mean) log((1 - mean) / (1 - m)) is at least -mean
    return float(brentq(excess, tiny, mean, xtol=1e-16, rtol=1e-13)) if tiny > 0 else 0.0
