"""Outcomes counted: ``Sample``, outcomes in no order, and ``OrderedOutcomes``, of which samples are taken."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot.proof.bounds.tangent_scores import Guesses, Score, checked_score

Floats = NDArray[np.float64]

_TABLE_SIZE = 2**12  # whole numbers that are counted in a table instead of being sorted


@dataclass(frozen=True, eq=False)
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
        if x.size > _TABLE_SIZE:
            low = float(x.min())
            if float(x.max()) - low < _TABLE_SIZE and abs(low) < 2**52:
                whole = (x - low).astype(np.int64)
                # only if nothing was rounded away are they whole numbers
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

    def scored(self, score: Score, first: int, last: int) -> Sample:
        """Return the scores of the outcomes from one index up to another."""
        batch = self.sample(first, last)
        return Sample(score(batch.values), batch.counts)

    def make_score(self, guesses: Guesses | None, scaled_budget: float, floor: float) -> Score:
        """Return the score that guesses make, checked."""
        return checked_score(guesses, scaled_budget, floor)
