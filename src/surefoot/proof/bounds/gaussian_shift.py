"""Theorem 1: how far an attacker of l2 budget B can move the probability of any outcome of an episode.

Let X be an episode run under Gaussian noise of standard deviation sigma, and Y the same episode when an adaptive
attacker adds perturbations of total l2 norm at most B. For every yes-or-no question h about the episode (policy
smoothing, Theorem 1)

    P[h(X) = 1] >= p   implies   P[h(Y) = 1] >= Phi(Phi^-1(p) - B / sigma),
    P[h(X) = 1] <= p   implies   P[h(Y) = 1] <= Phi(Phi^-1(p) + B / sigma).

Throughout the scaled budget is B / sigma. Both bounds are attained, by the example of the paper's appendix
"Tightness".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from surefoot.errors import InputError


def shift_down(probability: ArrayLike, scaled_budget: ArrayLike) -> NDArray[np.float64]:
    """Return Phi(Phi^-1(p) - scaled budget), the least a probability p can become; arguments broadcast.

    For p near 1 what matters is 1 - shift_down(p, r), and that equals shift_up(1 - p, r): ask for the latter
    when the digits of a tiny complement count.
    """
    p, r = _checked_shift(probability, scaled_budget)
    moved = np.minimum(_shift_by(p, -r), p)  # rounding must never lift a probability
    return np.where(_is_fixed(p, r), p, moved)


def shift_up(probability: ArrayLike, scaled_budget: ArrayLike) -> NDArray[np.float64]:
    """Return Phi(Phi^-1(p) + scaled budget), the most a probability p can become; arguments broadcast."""
    p, r = _checked_shift(probability, scaled_budget)
    moved = np.maximum(_shift_by(p, r), p)  # nor lower one here
    return np.where(_is_fixed(p, r), p, moved)


def _shift_by(p: NDArray[np.float64], by: NDArray[np.float64]) -> NDArray[np.float64]:
    # above 1/2 ndtri works with 1 - p, which is exact there; ndtr keeps the digits of tiny results
    with np.errstate(under="ignore", invalid="ignore"):  # p in {0, 1} with an infinite budget: handled by _is_fixed
        moved: NDArray[np.float64] = ndtr(ndtri(p) + by)
    return moved


def _is_fixed(p: NDArray[np.float64], r: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Where nothing moves: the impossible, the certain, and everything at scaled budget 0."""
    still: NDArray[np.bool_] = (p == 0) | (p == 1) | (r == 0)
    return still


def _checked_shift(probability: ArrayLike, scaled_budget: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    p = np.asarray(probability, dtype=np.float64)
    r = np.asarray(scaled_budget, dtype=np.float64)
    if not np.all((p >= 0) & (p <= 1)):
        raise InputError(f"probabilities must be in [0, 1], got {_first_outside(p, 0, 1)}")
    if not np.all(r >= 0):
        raise InputError(f"the scaled budget must be >= 0, got {_first_outside(r, 0, np.inf)}")
    return p, r


def _first_outside(values: NDArray[np.float64], low: float, high: float) -> float:
    return float(values[~((values >= low) & (values <= high))].flat[0])
