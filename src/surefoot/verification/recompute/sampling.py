"""How many blocks of episodes must be rerun so that no forgery that matters goes unnoticed.

A forger knows the blocks, not the sample, and puts all forged episodes into as few blocks as can hold them. The fewer
blocks suffice to raise a bound, the more must be rerun.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

Floats = NDArray[np.float64]
# A forgery matters if it raises a bound, measured from the floor, by more than this share.
MATTERS = 0.01
# By default a forgery that matters is missed with at most this probability.
MAX_MISS = 0.01


def least_forgery(returns: Floats, block_size: int, radii: Sequence[float], floor: float) -> int:
    """Return how few forged blocks may have raised a bound by more than 1%.

    The worst case is assumed: the true returns of the forged blocks are all at the floor, and the forged ones the
    highest of the record. What that does to a bound is measured on the worst-case mean of the recorded distribution
    itself, which bounds follow.
    """
    ordered = np.sort(returns) - floor
    n_blocks = -(-returns.size // block_size)
    recorded = _worst_means(ordered, radii)

    def matters(n_forged: int) -> bool:
        n_changed = min(n_forged * block_size, ordered.size)
        true = np.concatenate([np.zeros(n_changed), ordered[: ordered.size - n_changed]])
        return bool((_worst_means(true, radii) < (1 - MATTERS) * recorded).any())

    low = 1
    high = n_blocks
    while low < high:
        middle = (low + high) // 2
        if matters(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _worst_means(ordered: Floats, radii: Sequence[float]) -> Floats:
    """Return the worst-case mean at each scaled budget of returns in ascending order, measured from the floor."""
    widths = np.diff(ordered, prepend=0.0)
    survival = 1 - np.arange(ordered.size) / ordered.size
    return np.array([np.sum(widths * ndtr(ndtri(survival) - radius)) for radius in radii])


def miss_probability(n_blocks: int, n_forged: int, n_rerun: int) -> float:
    """Return the probability that a random sample of blocks contains none of the forged ones."""
    # Of the two ways to count the pairs of disjoint sets, the shorter one.
    few = min(n_forged, n_rerun)
    many = max(n_forged, n_rerun)
    return math.prod(max(0, n_blocks - many - i) / (n_blocks - i) for i in range(few))


def enough_blocks(n_blocks: int, n_forged: int) -> int:
    """Return how many blocks must be rerun so that so many forged ones are missed with at most ``MAX_MISS``."""
    n_too_few = bisect.bisect_left(
        range(1, n_blocks + 1), True, key=lambda count: miss_probability(n_blocks, n_forged, count) <= MAX_MISS
    )
    return n_too_few + 1
