"""Controllers of the pump: filters and proportional-derivative control; open loops: a constant dose, and a schedule.

A controller is a function of the last readings as it has seen them, noise included, and of the clock. The numbers were
found by a random search on a few hundred simulated patients, which no certificate counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.float64]

REMEMBERED = 36  # readings: 3 hours
# Basal rates before and after so many minutes: a meal is expected, though nobody says when or how large.
EARLY, LATE, UNTIL = 3.87, 0.66, 120.0
REFERENCE = 142.0  # mg/dL
SLOW, QUICK = 0.21, 0.37  # share of the newest reading in a slow and in a quick filter
PROPORTIONAL = 0.0032  # basal rates per mg/dL above the reference
DERIVATIVE = 0.061  # basal rates per mg/dL that the quick filter is above the slow one
MOST = 5.0


def filtered(glucose: torch.Tensor, n_seen: torch.Tensor, share: float) -> torch.Tensor:
    """Return exponentially weighted readings, beginning at the reference, of rows of which the last ones were seen."""
    age = torch.arange(REMEMBERED - 1, -1, -1, device=glucose.device)
    weights = share * (1 - share) ** age * (age < n_seen)
    return (weights * glucose).sum(dim=1) + (1 - weights.sum(dim=1)) * REFERENCE


def proportional(seen: Any) -> torch.Tensor:
    """Return multiples of the basal rate for rows of remembered observations: glucose and minutes."""
    readings = torch.as_tensor(seen).double()
    glucose = readings[:, :, 0]
    n_seen = (readings[:, -1, 1] / 5 + 1).clamp(max=REMEMBERED)[:, None]
    slow = filtered(glucose, n_seen, SLOW)
    quick = filtered(glucose, n_seen, QUICK)
    expected = torch.where(readings[:, -1, 1] < UNTIL, EARLY, LATE)
    rate = expected + PROPORTIONAL * (slow - REFERENCE) + DERIVATIVE * (quick - slow)
    return rate.clamp(0.0, MOST)[:, None].float()


def schedule(seen: Any) -> torch.Tensor:
    """Return the doses that the controller expects to give, without looking at glucose: a better open loop."""
    minutes = torch.as_tensor(seen)[:, -1, 1]
    return torch.where(minutes < UNTIL, EARLY, LATE)[:, None].float()


def constant(multiple: float) -> Callable[[Any], torch.Tensor]:
    """Return the controller that always gives the same, whatever it sees."""

    def dose(seen: Any) -> torch.Tensor:
        return torch.full((len(seen), 1), multiple)

    dose.__name__ = f"constant-{multiple:g}"
    return dose
