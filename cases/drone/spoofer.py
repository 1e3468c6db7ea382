"""Spoofers of the landing: who sends false positions, when and how false, with one l2 budget for an episode.

``EvenSpoof``  one offset on all readings: what moves their mean the furthest
``LateSpoof``  what leads a pilot who believes the readings the furthest away at the end
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

import surefoot
from cases.drone.pilot import POSITION, STEP

STEPS = 500
TILTING = 0.1  # s


class EvenSpoof(surefoot.Attacker):
    """Move every reading to the same side."""

    def propose(self, view: surefoot.View) -> Tensor:
        """Return the same offset for every reading, so that the budget lasts for all of them."""
        left = (STEPS - view.step).clamp(min=1)
        return _sideways(view, view.budget_left / left.sqrt())


class LateSpoof(surefoot.Attacker):
    """Move the last readings as a linear pilot follows them best.

    A critically damped pilot with the rate w is, t seconds after a reading, displaced by t exp(-w t) of it, up to a
    factor. Of all offsets with one l2 norm those in proportion to that add up to the largest displacement at the end.
    """

    def propose(self, view: surefoot.View) -> Tensor:
        """Return the share of this reading."""
        rate = math.sqrt(float(getattr(view.policy.network, "stiffness", 4.0)))
        seconds = STEP * torch.arange(STEPS, 0, -1, dtype=torch.float64)
        # Until a drone has tilted nothing happens.
        acting = (seconds - TILTING).clamp(min=0.0)
        shares = acting * torch.exp(-rate * acting) + 1e-12
        # Of the budget that is left: what this reading has of the sum of the squares from here on.
        rest = shares.square().flip(0).cumsum(0).flip(0).sqrt()
        now = view.step.clamp(max=STEPS - 1)
        return _sideways(view, view.budget_left * (shares / rest)[now])


def _sideways(view: surefoot.View, size: Tensor) -> Tensor:
    perturbation = torch.zeros_like(view.observation, dtype=torch.float64)
    perturbation[:, POSITION.start] = size
    return perturbation
