"""The exact bound of a difference of success probabilities, checked by sums of binomial probabilities.

Of n pairs A alone has won i, and B alone j. A difference d is refuted if the outcomes that rank at least as high as the
observed one have a probability of at most alpha - gamma for every (a, b) with a - b = d and b in an interval that j
gives with confidence 1 - gamma. Here the supremum over b is the largest value on a fine grid, which is at most the true
one: a bound that is too high by more than the grid's error is found out, and no valid one is.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, binom, norm

Floats = NDArray[np.float64]

_GRID = 400
_GAMMA_SHARE = 0.02  # of alpha: gamma
_SUM_ROUNDING = 1e-6  # relative, of a sum of probabilities
_COARSE = 0.05  # of the distance from the estimate: by how much the method may fall short of the best bound


def check_wins_bound(n: int, a_alone: int, b_alone: int, alpha: float, claimed: float) -> list[str]:
    """Return what is wrong with a lower bound of P(A wins) - P(B wins)."""
    needed = _needed_wins(n, a_alone, b_alone, alpha)
    gamma = _GAMMA_SHARE * alpha
    likely_b = (share_lower(b_alone, n, gamma / 2), 1 - share_lower(n - b_alone, n, gamma / 2))
    left = alpha - gamma
    wrong = []
    if claimed > -1 and _largest_probability(claimed, n, needed, likely_b) > left * (1 + _SUM_ROUNDING):
        wrong.append(f"a difference of {claimed:.6g} is not refuted by {a_alone} and {b_alone} of {n} pairs won alone")
    estimate = (a_alone - b_alone) / n
    higher = claimed + _COARSE * (estimate - claimed) + 1 / n
    if higher < estimate and _largest_probability(higher, n, needed, likely_b) < left * (1 - _COARSE):
        wrong.append(f"a difference of {claimed:.6g} is less than the method proves")
    return wrong


def share_lower(wins: int, n: int, alpha: float) -> float:
    """Return the Clopper-Pearson lower bound of a probability."""
    return float(beta.ppf(alpha, wins, n - wins + 1)) if wins else 0.0


def _needed_wins(n: int, a_alone: int, b_alone: int, alpha: float) -> Floats:
    """Return how many wins of A alone put an outcome into the set, for each number of wins of B alone.

    An outcome ranks by r = d - z sqrt((q - d^2) / t), where t = n + z^2, d = (i - j) / t and q = (i + j + z^2 / 2) / t.
    That is r of the observed outcome, or more, from the larger root of a quadratic equation for d on.
    """
    z = norm.isf(alpha)
    t = n + z * z
    d = (a_alone - b_alone) / t
    q = (a_alone + b_alone + z * z / 2) / t
    observed = d - z * math.sqrt(max(q - d * d, 0) / t)
    j = np.arange(n + 1.0)
    # (t + z^2) d^2 - (2 r t + z^2) d + r^2 t - z^2 (2 j + z^2 / 2) / t = 0
    linear = 2 * observed * t + z * z
    constant = observed * observed * t - z * z * (2 * j + z * z / 2) / t
    root = (linear + np.sqrt(np.maximum(linear * linear - 4 * (t + z * z) * constant, 0))) / (2 * (t + z * z))
    needed = np.maximum(0.0, np.ceil(j + t * root - 1e-7))
    needed[b_alone] = min(needed[b_alone], a_alone)
    # More wins than there are pairs left are never reached.
    needed[needed > n - j] = n + 1
    # Closed: what is in the set with more wins of B is in it with fewer.
    return np.asarray(np.minimum.accumulate(needed[::-1])[::-1], dtype=np.float64)


def _largest_probability(difference: float, n: int, needed: Floats, likely_b: tuple[float, float]) -> float:
    first = max(0.0, -difference, likely_b[0])
    last = min((1 - difference) / 2, likely_b[1])
    if first > last:
        # Nothing is refuted where no b is possible.
        return 1.0
    most = 0.0
    for b in first + (last - first) * np.linspace(0, 1, _GRID) ** 2:
        spread = 9 * math.sqrt(n * b * (1 - b)) + 20
        j = np.arange(max(0, math.floor(n * b - spread)), min(n, math.ceil(n * b + spread)) + 1)
        share = 1.0 if b >= 1 else min(1.0, max(0.0, (b + difference) / (1 - b)))
        tails = binom.sf(needed[j] - 1, n - j, share)
        most = max(most, math.fsum((binom.pmf(j, n, b) * tails).tolist()))
    return most
