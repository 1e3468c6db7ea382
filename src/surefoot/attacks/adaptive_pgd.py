"""A stronger direction: PGD whose step size adapts and which can reach its whole budget from any start.

The constant step of Algorithm 1 limits how far it gets and how finely it ends. Here the first step spans the ball, it
halves when progress stalls (as in Auto-PGD, Croce and Hein 2020), momentum carries over, and an offset that wins is
shortened and then beaten by searching a smaller ball; where none has won, the next try starts at a random point. For a
smoothed agent, winning is a matter of the share of noise draws under which the target is chosen.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from surefoot.attacks.projections import inside, unit, wide
from surefoot.attacks.victim import BARE, Scene, Smoothing, check_discrete, clean_values
from surefoot.errors import InputError
from surefoot.play.channel import View, norms


@dataclass(frozen=True)
class AdaptivePGD:
    """Climb towards the action with the lowest clean value, within the allowance.

    ``iterations``  gradient steps per try
    ``tries``       the first starts at the clean observation; later ones at a random point, or in a smaller ball
    ``certainty``   an offset wins if the agent chooses the target under at least this share of the noise draws
    """

    smoothing: Smoothing = BARE
    iterations: int = 30
    tries: int = 3
    certainty: float = 0.5

    def __post_init__(self) -> None:
        if self.iterations < 1 or self.tries < 1:
            raise InputError(f"iterations and tries must be at least 1, got {self.iterations} and {self.tries}")
        if not 0 <= self.certainty <= 1:
            raise InputError(f"certainty must lie between 0 and 1, got {self.certainty}")

    def describe(self) -> dict[str, Any]:
        """Return its name and settings."""
        return {"name": "adaptive pgd", **asdict(self)}

    def offset(self, view: View, allowance: Tensor) -> Tensor:
        """Return the smallest offset found that wins the target often enough, or nothing."""
        check_discrete(view.policy)
        offsets = torch.zeros_like(view.observation)
        (rows,) = (allowance > 0).nonzero(as_tuple=True)
        if rows.numel() == 0:
            return offsets
        target = clean_values(view, self.smoothing).argmin(dim=1)[rows]
        scene, clean, radius = Scene.of(view, rows, self.smoothing), view.observation[rows], allowance[rows]
        shortest, won = torch.zeros_like(clean), torch.zeros_like(target, dtype=torch.bool)
        for number in range(self.tries):
            start = torch.zeros_like(clean)
            if number > 0:
                anywhere = unit(view.stream.normal(tuple(clean.shape))) * wide(radius.to(clean.dtype), clean)
                start = torch.where(wide(won, clean), start, anywhere)
            found = self._shortened(scene, clean, self._climb(scene, clean, target, radius, start), target)
            wins = scene.share_choosing(clean + found, target) >= self.certainty
            shortest[wins], won = found[wins], won | wins
            radius = torch.where(wins, 0.8 * norms(found), torch.where(won, 0.9 * radius, radius))
        offsets[rows[won]] = shortest[won]
        return offsets

    def _climb(self, scene: Scene, clean: Tensor, target: Tensor, radius: Tensor, start: Tensor) -> Tensor:
        offset, momentum, size = start, torch.zeros_like(clean), 2 * wide(radius.to(clean.dtype), clean)
        best, best_value = start.clone(), torch.full(radius.shape, -torch.inf, device=clean.device)
        stalled = torch.zeros_like(target)
        for _ in range(self.iterations):
            values, gradient = scene.values_and_gradient(clean + offset, target)
            value = torch.log_softmax(values, dim=1).gather(1, target.unsqueeze(1)).squeeze(1)
            better = value > best_value
            best[better], best_value = offset[better], torch.maximum(best_value, value)
            stalled = torch.where(better, 0, stalled + 1)
            halve = wide(stalled >= 2, clean)
            size, offset = torch.where(halve, size / 2, size), torch.where(halve, best, offset)
            stalled = torch.where(stalled >= 2, 0, stalled)
            momentum = 0.75 * unit(gradient) + 0.25 * momentum
            offset = inside(offset + size * momentum, radius)
        return best

    def _shortened(self, scene: Scene, clean: Tensor, offset: Tensor, target: Tensor) -> Tensor:
        """Bisect along the offset for the shortest length that still wins often enough: budget saved is budget."""
        low, high = torch.zeros(len(target), device=offset.device), torch.ones(len(target), device=offset.device)
        for _ in range(8):
            middle = (low + high) / 2
            enough = scene.share_choosing(clean + offset * wide(middle, offset), target) >= self.certainty
            low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
        return offset * wide(high, offset)
