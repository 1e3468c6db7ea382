"""A stronger direction: PGD whose step size adapts and which can reach its whole budget from any start.

The constant step of Algorithm 1 limits how far it gets and how finely it ends. Here the first step spans the ball, it
halves when progress stalls (as in Auto-PGD, Croce and Hein 2020), momentum carries over, and a winning perturbation is
shortened and then beaten by searching a smaller ball; where none has won, the next try starts at a random point. For a
smoothed agent, winning is a matter of the share of noise samples under which the target is chosen. The gradient of an
agent that has none is estimated by finite differences over the size of the ball.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from surefoot.attacks.base import Described, check_choices, normalize_rows, project
from surefoot.attacks.victim import UNDEFENDED, Smoothing, VictimBatch, clean_values
from surefoot.compute import expand_rows, row_norms
from surefoot.errors import InputError
from surefoot.play.channel import View


@dataclass(frozen=True)
class AdaptivePGD(Described):
    """Climb towards the action with the lowest clean value, within the allowance."""

    name: ClassVar[str] = "adaptive pgd"

    smoothing: Smoothing = UNDEFENDED  # the noise to average over
    iterations: int = 30  # gradient steps per try
    tries: int = 3  # the first starts at the clean observation; later ones at a random point, or in a smaller ball
    # A perturbation wins if the agent chooses the target under at least this share of the noise samples.
    certainty: float = 0.5

    def __post_init__(self) -> None:
        if self.iterations < 1 or self.tries < 1:
            raise InputError(f"iterations and tries must be at least 1, got {self.iterations} and {self.tries}")
        if not 0 <= self.certainty <= 1:
            raise InputError(f"certainty must be between 0 and 1, got {self.certainty}")

    def perturbation(self, view: View, allowance: Tensor) -> Tensor:
        """Return the smallest perturbation found that wins the target often enough, or nothing."""
        check_choices(view.policy)
        perturbations = torch.zeros_like(view.observation)
        (rows,) = (allowance > 0).nonzero(as_tuple=True)
        if rows.numel() == 0:
            return perturbations
        target = clean_values(view, self.smoothing).argmin(dim=1)[rows]
        batch = VictimBatch.of(view, rows, self.smoothing)
        clean = view.observation[rows]
        radius = allowance[rows]
        if view.scope.per_step:
            # What is not spent at this step is lost: the likeliest perturbation, not the shortest that will do.
            start = torch.zeros_like(clean)
            perturbations[rows] = self._climb_to_target(batch, clean, target, radius, start, view.scope.norm)
            return perturbations
        shortest = torch.zeros_like(clean)
        won = torch.zeros_like(target, dtype=torch.bool)
        for number in range(self.tries):
            start = torch.zeros_like(clean)
            if number > 0:
                direction = normalize_rows(view.stream.normal(tuple(clean.shape)))
                anywhere = direction * expand_rows(radius.to(clean.dtype), clean)
                start = torch.where(expand_rows(won, clean), start, anywhere)
            longest = self._climb_to_target(batch, clean, target, radius, start)
            found = self._shorten_perturbation(batch, clean, longest, target)
            wins = batch.share_choosing(clean + found, target) >= self.certainty
            shortest[wins] = found[wins]
            won = won | wins
            # What has won is beaten only by something shorter; what wins in no try keeps the whole ball.
            smaller = torch.where(won, 0.9 * radius, radius)
            radius = torch.where(wins, 0.8 * row_norms(found), smaller)
        perturbations[rows[won]] = shortest[won]
        return perturbations

    def _climb_to_target(
        self, batch: VictimBatch, clean: Tensor, target: Tensor, radius: Tensor, start: Tensor, norm: str = "l2"
    ) -> Tensor:
        def log_probability(offset: Tensor) -> tuple[Tensor, Tensor]:
            values, gradient = batch.values_and_gradient(clean + offset, target, radius)
            return torch.log_softmax(values, dim=1).gather(1, target.unsqueeze(1)).squeeze(1), gradient

        return climb(log_probability, start, radius, self.iterations, norm)

    def _shorten_perturbation(self, batch: VictimBatch, clean: Tensor, offset: Tensor, target: Tensor) -> Tensor:
        """Bisect along the perturbation for the shortest length that still wins often enough, to save budget."""
        low = torch.zeros(len(target), device=offset.device)
        high = torch.ones(len(target), device=offset.device)
        for _ in range(8):
            middle = (low + high) / 2
            enough = batch.share_choosing(clean + offset * expand_rows(middle, offset), target) >= self.certainty
            low = torch.where(enough, low, middle)
            high = torch.where(enough, middle, high)
        return offset * expand_rows(high, offset)


def climb(
    score: Callable[[Tensor], tuple[Tensor, Tensor]], start: Tensor, radius: Tensor, iterations: int, norm: str = "l2"
) -> Tensor:
    """Return the perturbations with the highest scores that were found within the radius, row by row.

    ``score`` returns the score of each row's perturbation, and its gradient.
    """
    offset = start
    momentum = torch.zeros_like(start)
    # The first step can reach any point of the ball from any other.
    size = 2 * expand_rows(radius.to(start.dtype), start)
    best = start.clone()
    best_value = torch.full(radius.shape, -torch.inf, device=start.device)
    stalled = torch.zeros_like(radius, dtype=torch.int64)
    for _ in range(iterations):
        value, gradient = score(offset)
        better = value > best_value
        best[better] = offset[better]
        best_value = torch.maximum(best_value, value)
        stalled = torch.where(better, 0, stalled + 1)
        # After two steps without progress: back to the best point, with half the step (Auto-PGD's rule).
        halve = expand_rows(stalled >= 2, start)
        size = torch.where(halve, size / 2, size)
        offset = torch.where(halve, best, offset)
        stalled = torch.where(stalled >= 2, 0, stalled)
        momentum = 0.75 * normalize_rows(gradient, norm) + 0.25 * momentum
        offset = project(offset + size * momentum, radius, norm)
    return best
