"""The exact bound of a difference of success probabilities, checked by sums of binomial probabilities.

Of n pairs A alone has won i, and B alone j. A difference d is refuted if the outcomes that rank at least as high as the
observed one have a probability of at most alpha for every (a, b) with a - b = d. Here the supremum over b is the
largest value on a fine grid, which is at most the true one: a bound that is too high by more than the grid's error is
found out, and no valid one is.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, norm

Floats = NDArray[np.float64]

_GRID = 400
_ROUNDING = 1e-6  # relative, of a sum of probabilities
_COARSE = 0.05  # of the distance from the estimate: by how much the method may fall short of the best bound


def check_wins_bound(n: int, a_alone: int, b_alone: int, alpha: float, claimed: float) -> list[str]:
    """Return what is wrong with a lower bound of P(A wins) - P(B wins)."""
    needed = _needed_wins(n, a_alone, b_alone, alpha)
    wrong = []
    if claimed > -1 and _largest_probability(claimed, n, needed) > alpha * (1 + _ROUNDING):
        wrong.append(f"a difference of {claimed:.6g} is not refuted by {a_alone} and {b_alone} of {n} pairs won alone")
    estimate = (a_alone - b_alone) / n
    higher = claimed + _COARSE * (estimate - claimed) + 1 / n
    if higher < estimate and _largest_probability(higher, n, needed) < alpha * (1 - _COARSE):
        wrong.append(f"a difference of {claimed:.6g} is less than the method proves")
    return wrong


def _rank(n: int, a_alone: Floats, b_alone: Floats, alpha: float) -> Floats:
    z = norm.isf(alpha)
    total = n + z * z
    d = (a_alone - b_alone) / total
    q = (a_alone + b_alone + z * z / 2) / total
    return np.asarray(d - z * np.sqrt(np.maximum(q - d * d, 0) / total), dtype=np.float64)


def _needed_wins(n: int, a_alone: int, b_alone: int, alpha: float) -> Floats:
    """Return how many wins of A alone put an outcome into the set, for each number of wins of B alone."""
    observed = float(_rank(n, np.array(float(a_alone)), np.array(float(b_alone)), alpha))
    i = np.arange(n + 1.0)
    needed = np.full(n + 1, n + 1.0)
    for j in range(n + 1):
        ranked = np.flatnonzero(_rank(n, i[: n - j + 1], np.array(float(j)), alpha) >= observed - 1e-12)
        if ranked.size:
            needed[j] = ranked[0]
    needed[b_alone] = min(needed[b_alone], a_alone)
    # Closed: what is in the set with more wins of B is in it with fewer.
    for j in range(n - 1, -1, -1):
        needed[j] = min(needed[j], needed[j + 1])
    return needed


def _largest_probability(difference: float, n: int, needed: Floats) -> float:
    first = max(0.0, -difference)
    last = (1 - difference) / 2
    j = np.arange(n + 1)
    most = 0.0
    for b in first + (last - first) * np.linspace(0, 1, _GRID) ** 2:
        weights = binom.pmf(j, n, b)
        some = weights > 1e-14
        share = 1.0 if b >= 1 else min(1.0, max(0.0, (b + difference) / (1 - b)))
        tails = binom.sf(needed[some] - 1, n - j[some], share)
        most = max(most, math.fsum((weights[some] * tails).tolist()))
    return most
