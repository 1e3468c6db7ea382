"""How far the blocks are that are being run now: for eyes only, no result depends on it.

Forked workers share this memory with the process that waits for their blocks. Others do not, and then only whole blocks
are counted.
"""

from __future__ import annotations

import mmap
import time

import numpy as np

_SLOTS = 4096  # more than there are blocks in flight
_EVERY = 0.1  # seconds

_episodes = np.frombuffer(mmap.mmap(-1, 8 * _SLOTS), dtype=np.float64)


class Meter:
    """What one block writes, a few times per second."""

    def __init__(self, block: int) -> None:
        self._slot = block % _SLOTS
        self._next = 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is time to write again."""
        return time.monotonic() >= self._next

    def write_episodes(self, episodes: float) -> None:
        """Say how many episodes of the block are done, those that are not over by their share of steps."""
        # One number, written at once: whoever reads meanwhile sees the old or the new one.
        _episodes[self._slot] = episodes
        self._next = time.monotonic() + _EVERY


def episodes_under_way() -> float:
    """Return how many episodes are done in blocks that are not finished."""
    return float(_episodes.sum())


def clear(block: int | None = None) -> None:
    """Forget a block that is finished and counted elsewhere, or all."""
    if block is None:
        _episodes[:] = 0.0
    else:
        _episodes[block % _SLOTS] = 0.0
