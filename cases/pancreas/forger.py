"""Forgers of glucose readings, with one l2 budget for an episode.

``EvenBias``     the same offset on all readings, so that insulin is always too little or too much
``HiddenMeal``   readings that seem to fall while those of the blood rise, so that too little is given
"""

from __future__ import annotations

import torch
from torch import Tensor

import surefoot
from cases.pancreas.patient import READINGS

HIDDEN = 12  # readings that a meal is hidden in
RISING = 2.0  # mg/dL in 5 minutes: a meal has begun


class EvenBias(surefoot.Attacker):
    """Lower (or raise) every reading."""

    def __init__(self, sign: float = -1.0) -> None:
        self.sign = sign

    def propose(self, view: surefoot.View) -> Tensor:
        """Return the same offset for every reading, so that the budget lasts for all of them."""
        left = (READINGS - view.step).clamp(min=1)
        return _on_glucose(view, self.sign * view.budget_left / left.sqrt())


class HiddenMeal(surefoot.Attacker):
    """Lower the readings from the first rise on, evenly."""

    def __init__(self) -> None:
        self.began: dict[int, int] = {}
        self.before: dict[int, float] = {}

    def propose(self, view: surefoot.View) -> Tensor:
        """Return nothing before the meal is seen, then what makes it seem smaller."""
        sizes = torch.zeros(len(view.observation), dtype=torch.float64)
        glucose = view.observation[:, 0].tolist()
        for row, (episode, step) in enumerate(zip(view.episode.tolist(), view.step.tolist(), strict=True)):
            rise = glucose[row] - self.before.get(episode, glucose[row])
            self.before[episode] = glucose[row]
            if rise > RISING:
                self.began.setdefault(episode, step)
            since = step - self.began.get(episode, READINGS)
            if 0 <= since < HIDDEN:
                sizes[row] = -view.budget_left[row] / (HIDDEN - since) ** 0.5
        return _on_glucose(view, sizes)


def _on_glucose(view: surefoot.View, size: Tensor) -> Tensor:
    perturbation = torch.zeros(view.observation.shape, dtype=torch.float64)
    perturbation[:, 0] = size
    return perturbation
