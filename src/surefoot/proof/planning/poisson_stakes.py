"""How much to bet where few bad outcomes decide: the bet sizes of an option on a Poisson sum.

Outcomes that stay at c but for rare drops by h have a Poisson number N of drops still to come. With a chance p of at
most k of them, F(k) = P(N <= k) = p, the claim behind that N is refuted if k is not exceeded. One drop leaves the
chance F(k - 1), so the bettor who bets

    lambda h = 1 - F(k - 1) / F(k)

has in every case the capital that the remaining chance requires: it buys the exact binomial test step by step, while
equal bets would buy Chernoff's bound. F is continued to all k > -1 by the incomplete gamma function. With a chance of
at most F(0) nothing is left after a drop: everything is bet.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincc, ndtr, ndtri, pdtrik

Floats = NDArray[np.float64]

_LOG_MEANS = np.linspace(np.log(0.02), np.log(2e4), 96)  # logarithms of means of N
_SCORES = np.linspace(-5.0, 5.3, 128)  # normal scores of chances
_TABLE_ROWS = np.arange(_LOG_MEANS.size)
_COLUMNS = np.arange(_SCORES.size)


def interpolated_stakes(chances: Floats, means: Floats) -> Floats:
    """Return lambda h for chances to win and means of the number of drops to come, from a table."""
    table = _stake_table().ravel()
    width = _SCORES.size
    row = np.minimum(np.interp(np.log(means), _LOG_MEANS, _TABLE_ROWS), _LOG_MEANS.size - 1.001)
    column = np.minimum(np.interp(-ndtri(chances), _SCORES, _COLUMNS), width - 1.001)
    i = row.astype(int)
    j = column.astype(int)
    x = row - i
    y = column - j
    # bilinear between the four entries of the table around each point
    at = i * width + j
    upper = (1 - y) * table[at] + y * table[at + 1]
    lower = (1 - y) * table[at + width] + y * table[at + width + 1]
    return np.where(chances <= np.exp(-means), 1.0, (1 - x) * upper + x * lower)


def exact_stakes(chances: Floats, means: Floats) -> Floats:
    """Return lambda h, not interpolated."""
    k = pdtrik(chances, means)
    left = np.where(k > 0, gammaincc(np.maximum(k, 1e-300), means), 0.0)
    return np.clip(1 - left / gammaincc(k + 1, means), 0.0, 1.0)


@cache
def _stake_table() -> Floats:
    """Return lambda h for each mean (rows) and chance (columns)."""
    return exact_stakes(*np.broadcast_arrays(ndtr(-_SCORES), np.exp(_LOG_MEANS)[:, None]))
