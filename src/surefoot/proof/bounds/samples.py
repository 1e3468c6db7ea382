"""Outcomes counted: samples in no order, and outcomes in order of which samples are asked for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

PIECE = 2**16  # outcomes that are counted at once: they fit the cache
EXACT = 2**24  # outcomes up to which none is rounded, however many values there are
_FEW = 2**12  # values in a piece up to which counts of pieces are kept
_PIECES = 256  # of which counts are kept, unless they would be shorter than PIECE
_CELLS = 2**15  # multiples of the step that rounds more outcomes, from the lowest to the highest
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
        low, high = (float(x.min()), float(x.max())) if x.size else (0.0, 0.0)
        if x.size > _FEW > high - low and abs(low) < 2**52:  # whole numbers need not be sorted
            whole = (x - low).astype(np.int64)
            if np.array_equal(whole + low, x):
                counts = np.bincount(whole)
                at = np.flatnonzero(counts)
                return cls(low + at.astype(np.float64), counts[at].astype(np.float64))
        values, counts = np.unique(x, return_counts=True)
        return cls(values, counts.astype(np.float64))

    @classmethod
    def joined(cls, parts: Sequence[Sample]) -> Sample:
        """Return the sample of all outcomes of several samples."""
        values, counts = (
            np.concatenate(columns) for columns in zip(*((p.values, p.counts) for p in parts), strict=True)
        )
        order = np.argsort(values, kind="stable")
        starts = np.flatnonzero(np.diff(values[order], prepend=np.nan) != 0)
        return cls(values[order][starts], np.add.reduceat(counts[order], starts))

    @property
    def size(self) -> float:
        """The number of outcomes."""
        return float(self.counts.sum())

    def mirrored(self) -> Sample:
        """Return the sample of minus the outcomes."""
        return Sample(-self.values[::-1], self.counts[::-1])

    def count_below(self, points: Floats) -> NDArray[np.int64]:
        """Return how many outcomes lie below each point."""
        below = np.concatenate([[0.0], np.cumsum(self.counts)])
        return below[np.searchsorted(self.values, points)].astype(np.int64)

    def grouped(self, most: int = _GROUPS) -> Sample:
        """Return about the same sample with fewer values, every one of the smallest kept: for plans, not for bounds."""
        if self.values.size <= most:
            return self
        if most not in self._groups:
            self._groups[most] = self._in_groups(most)
        return self._groups[most]

    @cached_property
    def _groups(self) -> dict[int, Sample]:
        """What was grouped: bettors at all budgets plan with the same."""
        return {}

    def _in_groups(self, most: int) -> Sample:
        below = np.cumsum(self.counts) - self.counts
        place = np.maximum(below / below[-1], 0)
        # a third of the groups for the smallest values one by one, a third on a log scale, a third evenly
        third = most // 3
        marks = np.concatenate([place[:third], np.geomspace(place[third], 1, third), np.linspace(0, 1, third)])
        starts = np.unique(np.searchsorted(place, marks))
        counts = np.add.reduceat(self.counts, starts)
        return Sample(np.add.reduceat(self.values * self.counts, starts) / counts, counts)


class Seen:
    """Outcomes up to now, in order, of which samples are asked for; all who bet on them share the counts.

    The outcomes may be a memory-mapped file: they are read piece by piece. Where the first ones take few values, the
    counts of each piece are kept, and a sample of many pieces is their sum: the same sample as counted at once.

    ``outcomes``  in order
    ``mirrored``  whether minus the outcomes are meant
    ``step``      a power of 2: outcomes are rounded down to its multiples, but not below ``floor``
    """

    def __init__(
        self, outcomes: Floats, *, mirrored: bool = False, step: float | None = None, floor: float = -math.inf
    ) -> None:
        self.outcomes, self.size, self.mirrored, self.step, self.floor = outcomes, outcomes.size, mirrored, step, floor
        self._samples: dict[tuple[int, int], Sample] = {}
        self._pitch = max(PIECE, self.size // _PIECES)

    @cached_property
    def _few(self) -> bool:
        """Whether counts of pieces are kept."""
        return self.step is not None or self.sample(0, min(self.size, PIECE)).values.size <= _FEW

    def __getitem__(self, rows: slice) -> Floats:
        """Return some of the outcomes, in order; a copy."""
        part = np.array(self.outcomes[rows], dtype=np.float64)
        if self.mirrored:
            np.negative(part, out=part)
        if self.step is not None:
            part = np.maximum(np.floor(part / self.step) * self.step, self.floor)
        return part

    def sample(self, first: int, last: int) -> Sample:
        """Return the outcomes from one index to another, in no order."""
        if (first, last) not in self._samples:
            marks = range((first // self._pitch + 1) * self._pitch, last, self._pitch)
            if last - first <= PIECE or not (marks and self._few):
                self._samples[first, last] = Sample.of(self[first:last])
            else:
                parts = [self.sample(*ends) for ends in itertools.pairwise([first, *marks, last])]
                self._samples[first, last] = Sample.joined(parts)
        return self._samples[first, last]


def coarse_step(n: int, low: float, high: float) -> float | None:
    """Return the power of 2 to whose multiples n outcomes between two numbers are rounded, or None for exact ones.

    Up to ``EXACT`` outcomes are exact. Of more, so many different values could come that they would not fit in memory;
    to the multiples of such a step, ``_CELLS`` of them at most, they are rounded so that the bounds get no better.
    Whole numbers stay as they are unless they are thousands.
    """
    if n <= EXACT or not high > low:
        return None
    return float(2.0 ** math.ceil(math.log2((high - low) / _CELLS)))
