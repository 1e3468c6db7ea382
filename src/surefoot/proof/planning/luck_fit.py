"""How much of a return is decided before an episode begins: a regression on what was known then."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surefoot.proof.bounds.reset_luck import LARGEST_WEIGHT, LuckyReturns

Floats = NDArray[np.float64]

_RIDGE = 1.0  # in episodes: how much a weight is drawn to 0
_LEAST_LUCK = 0.1  # of the variance, predicted for episodes that were left out, from which on luck is worth knowing
_BY_CHANCE = 2.0  # and so much more for each weight, over the number of episodes


def fit_luck(past: LuckyReturns) -> Floats:
    """Return centers of the features, weights of the distances from them, and weights of their squares."""
    centers = past.features.mean(axis=0)
    columns, spreads = _columns_of(past.features - centers)
    gram = columns.T @ columns + _RIDGE * np.eye(columns.shape[1])
    with np.errstate(over="ignore"):
        found = np.linalg.solve(gram, columns.T @ (past.returns - past.returns.mean())) / spreads
    # of a feature that hardly differs a weight may be larger than the kernel allows
    return np.stack([centers, *np.split(np.clip(found, -LARGEST_WEIGHT, LARGEST_WEIGHT), 2)])


def knows_luck(past: LuckyReturns) -> bool:
    """Return whether the features predict the return of an episode from those of the others."""
    size = past.size
    if size < 2 or np.ptp(past.returns) == 0:
        return False
    columns, _ = _columns_of(past.features - past.features.mean(axis=0))
    distances = past.returns - past.returns.mean()
    gram = columns.T @ columns + _RIDGE * np.eye(columns.shape[1])
    hat = columns @ np.linalg.solve(gram, columns.T)
    # what is left of an episode that was no part of the fit, its mean included
    own = np.minimum(np.diagonal(hat) + 1 / size, 1 - 1e-9)
    missed = (distances - hat @ distances) / (1 - own)
    unknown = distances * size / (size - 1)
    # few episodes seem to be predicted by chance
    least = _LEAST_LUCK + _BY_CHANCE * columns.shape[1] / size
    return bool(missed @ missed <= (1 - least) * (unknown @ unknown))


def _columns_of(distances: Floats) -> tuple[Floats, Floats]:
    """Return distances from the center and their squares, with a mean of 0 and a variance of 1, and the spreads."""
    raw = np.concatenate([distances, distances**2], axis=1)
    columns = raw - raw.mean(axis=0)
    spreads = columns.std(axis=0)
    # a feature that is always the same has no weight
    spreads[spreads == 0] = np.inf
    return columns / spreads, spreads
