"""Budgets in other norms, by inclusion: how large an l2 norm they allow, and so which l2 certificate covers them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from surefoot.errors import InputError

NORMS = ("l2", "l1", "linf")


@dataclass(frozen=True)
class Norm:
    """A norm of all offsets that one budget covers, laid end to end.

    ``name``          "l1": the sum of all absolute values; "linf": the largest of them
    ``coordinates``   of one observation; None where nobody knows, which is enough for l1
    ``observations``  that one budget covers: those of an episode, of many, or one
    """

    name: str
    coordinates: int | None
    observations: int | None

    def __post_init__(self) -> None:
        if self.name not in NORMS[1:]:
            raise InputError(f"norm must be one of {', '.join(NORMS)}, got {self.name!r}")
        if self.name == "linf" and (self.coordinates is None or self.observations is None):
            raise InputError("an l-infinity budget needs the size of an observation and a step limit; play a task")

    @property
    def factor(self) -> float:
        """The largest l2 norm of a vector of norm 1: 1 for l1, the root of the number of entries for l-infinity."""
        if self.name == "l1" or self.coordinates is None or self.observations is None:
            return 1.0
        return math.sqrt(self.coordinates * self.observations)

    def in_l2(self, budgets: Sequence[float]) -> list[float]:
        """Return l2 budgets that include these, a hair larger than their product with the factor."""
        return [self.factor * budget * (1 + 1e-12) for budget in budgets]

    def to_json(self, budgets: Sequence[float]) -> dict[str, Any]:
        """Return the norm and the budgets that were asked for, as JSON data."""
        return {
            "name": self.name,
            "budgets": [float(budget) for budget in budgets],
            "coordinates": self.coordinates,
            "observations": self.observations,
            "factor": self.factor,
        }
