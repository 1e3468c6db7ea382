"""Outcomes counted: ``Sample``, outcomes in no order, and ``OrderedOutcomes``, of which samples are taken."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

_FEW = 2**12  # whole numbers that are counted in a table instead of being sorted
_GROUPS = 256  # groups of outcomes that a plan distinguishes


@dataclass(frozen=True)
class Sample:
    """Outcomes in no order: distinct ``values``, ascending, and how often each came."""

    values: Floats
    counts: Floats

    @classmethod
    def of(cls, outcomes: ArrayLike) -> Sample:
        """Count equal outcomes once."""
        x = np.asarray(outcomes, dtype=np.float64)
        if x.size == 1:
            return cls(x, np.ones(1))
        if x.size > _FEW:
            low = float(x.min())
            if float(x.max()) - low < _FEW and abs(low) < 2**52:
                whole = (x - low).astype(np.int64)
                if np.array_equal(whole + low, x):
                    table = np.bincount(whole)
                    present = np.flatnonzero(table)
                    return cls(low + present.astype(np.float64), table[present].astype(np.float64))
        values, counts = np.unique(x, return_counts=True)
        return cls(values, counts.astype(np.float64))

    @property
    def size(self) -> float:
        """The number of outcomes."""
        return float(self.counts.sum())

    def mirrored(self) -> Sample:
        """Return the sample of minus the outcomes."""
        return Sample(-self.values[::-1], self.counts[::-1])

    def count_below(self, point: float) -> int:
        """Return how many outcomes lie below a point."""
        return int(self.counts[: np.searchsorted(self.values, point)].sum())

    def grouped(self, most: int = _GROUPS) -> Sample:
        """Return about the same sample with fewer values, every one of the smallest kept: for plans, not for bounds."""
        if self.values.size <= most:
            return self
        if most not in self._groups:
            self._groups[most] = self._merge_values(most)
        return self._groups[most]

    @cached_property
    def _groups(self) -> dict[int, Sample]:
        """What was grouped: planners at all scaled budgets read the same."""
        return {}

    def _merge_values(self, most: int) -> Sample:
        below = np.cumsum(self.counts) - self.counts
        place = np.maximum(below / below[-1], 0)
        # a third of the groups for the smallest values one by one, a third on a log scale, a third evenly
        third = most // 3
        marks = np.concatenate([place[:third], np.geomspace(place[third], 1, third), np.linspace(0, 1, third)])
        starts = np.unique(np.searchsorted(place, marks))
        counts = np.add.reduceat(self.counts, starts)
        return Sample(np.add.reduceat(self.values * self.counts, starts) / counts, counts)


Samples = dict[tuple[int, int], Sample]


class OrderedOutcomes:
    """The outcomes that have come, in their order.

    ``size``     how many have come
    ``samples``  those taken so far, which all who bet on the same outcomes share
    """

    def __init__(self, outcomes: Floats, samples: Samples | None = None) -> None:
        self.outcomes = outcomes
        self.size = outcomes.size
        self.samples: Samples = {} if samples is None else samples

    def before(self, index: int) -> OrderedOutcomes:
        """Return the outcomes before an index and nothing else: what may decide about those from the index on."""
        return OrderedOutcomes(self.outcomes[:index], self.samples)

    def sample(self, first: int = 0, last: int | None = None) -> Sample:
        """Return the outcomes from one index up to another, in no order; without indices, all of them.

        Raises:
            IndexError: If some of them have not come.
        """
        end = self.size if last is None else last
        # The samples are shared with those who know more: nobody may ask for what is beyond their own outcomes.
        if not 0 <= first <= end <= self.size:
            raise IndexError(f"{self.size} outcomes have come, those from {first} to {end} were asked for")
        if (first, end) not in self.samples:
            self.samples[first, end] = Sample.of(self.outcomes[first:end])
        return self.samples[first, end]
