"""Outcomes counted: samples in no order, and outcomes in order of which samples are asked for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

_GROUPS = 256  # groups of outcomes that a plan distinguishes


@dataclass(frozen=True)
class Sample:
    """Outcomes in no order: distinct ``values``, ascending, and how often each came."""

    values: Floats
    counts: Floats

    @classmethod
    def of(cls, outcomes: ArrayLike) -> Sample:
        """Count equal outcomes once."""
        values, counts = np.unique(np.asarray(outcomes, dtype=np.float64), return_counts=True)
        return cls(values, counts.astype(np.float64))

    def grouped(self, most: int = _GROUPS) -> Sample:
        """Return about the same sample with fewer values, every one of the smallest kept: for plans, not for bounds."""
        if self.values.size <= most:
            return self
        below = np.cumsum(self.counts) - self.counts
        place = np.maximum(below / below[-1], 0)
        # a third of the groups for the smallest values one by one, a third on a log scale, a third evenly
        third = most // 3
        marks = np.concatenate([place[:third], np.geomspace(place[third], 1, third), np.linspace(0, 1, third)])
        starts = np.unique(np.searchsorted(place, marks))
        counts = np.add.reduceat(self.counts, starts)
        return Sample(np.add.reduceat(self.values * self.counts, starts) / counts, counts)


class Seen:
    """Outcomes up to now, in order, with the samples that bettors of the same edges share."""

    def __init__(self, outcomes: Floats) -> None:
        self.outcomes, self.size = outcomes, outcomes.size
        self._samples: dict[tuple[int, int], Sample] = {}

    def sample(self, first: int, last: int) -> Sample:
        """Return the outcomes from one index to another, in no order."""
        if (first, last) not in self._samples:
            self._samples[first, last] = Sample.of(self.outcomes[first:last])
        return self._samples[first, last]
