"""The adaptive attack on continuous actions: show the agent what makes it do the opposite of what it would do.

No value says which continuous action is harmful, so the one farthest from the agent's own is taken for it: the corner
of the actions' box on the other side. The search for it is that of ``adaptive_pgd``, with the agent's gradients or,
for one that has none, with differences over the size of the ball.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from surefoot.agents.policies import Policy
from surefoot.attacks.adaptive_pgd import climb
from surefoot.attacks.base import Described, check_moves, normalize_rows
from surefoot.attacks.victim import UNDEFENDED, Smoothing, VictimBatch
from surefoot.compute import expand_rows
from surefoot.errors import InputError
from surefoot.play.channel import View


@dataclass(frozen=True)
class OppositeAction(Described):
    """Move the agent's action as far towards the opposite one as the allowance lets it, averaged over its noise."""

    name: ClassVar[str] = "opposite action"

    smoothing: Smoothing = UNDEFENDED  # the noise to average over
    iterations: int = 10  # gradient steps per try
    tries: int = 2  # the first starts at the clean observation, later ones at a random point

    def __post_init__(self) -> None:
        if self.iterations < 1 or self.tries < 1:
            raise InputError(f"iterations and tries must be at least 1, got {self.iterations} and {self.tries}")

    def perturbation(self, view: View, allowance: Tensor) -> Tensor:
        """Return the perturbation found that moves the action farthest; none where none moves it that way."""
        check_moves(view.policy)
        perturbations = torch.zeros_like(view.observation)
        (rows,) = (allowance > 0).nonzero(as_tuple=True)
        if rows.numel() == 0:
            return perturbations
        batch = VictimBatch.of(view, rows, self.smoothing)
        clean = view.observation[rows]
        radius = allowance[rows]
        path = ActionPath.of(batch, clean)
        norm = view.scope.norm
        best = torch.zeros_like(clean)
        # From 0: budget is not spent on what moves the action the other way.
        farthest = torch.zeros_like(radius)
        for number in range(self.tries):
            start = torch.zeros_like(clean)
            if number > 0:
                random = normalize_rows(view.stream.normal(tuple(clean.shape)), norm)
                start = random * expand_rows(radius.to(clean.dtype), clean)
            found = climb(partial(path.share_and_gradient, clean, radius), start, radius, self.iterations, norm)
            share = path.share_gone(clean + found)
            better = share > farthest
            best[better] = found[better]
            farthest = torch.maximum(share, farthest)
        perturbations[rows] = best
        return perturbations


@dataclass(frozen=True, eq=False)
class ActionPath:
    """From the action that an agent would take to the opposite one, in units of the actions' ranges."""

    batch: VictimBatch  # what the agent has in mind
    usual: Tensor  # the action on the clean observation, averaged over noise
    opposite: Tensor  # the corner of the actions' box on the other side of its center
    unit: Tensor  # the range of each action

    @classmethod
    def of(cls, batch: VictimBatch, clean: Tensor) -> ActionPath:
        """Find both ends."""
        usual = batch.actions(clean)
        low, high = _action_bounds(batch.policy, usual)
        return cls(batch, usual, torch.where(usual > (low + high) / 2, low, high), high - low)

    def share_gone(self, moved: Tensor) -> Tensor:
        """Return how much of the way the action on ``moved`` has gone, float64; less than 0 if it went the other."""
        # The projection on the straight path to the opposite action, as a share of its length.
        whole = self._in_units(self.opposite - self.usual)
        gone = self._in_units(self.batch.actions(moved) - self.usual)
        return (gone * whole).sum(dim=1) / whole.square().sum(dim=1).clamp_min(1e-12)

    def share_and_gradient(self, clean: Tensor, reach: Tensor, perturbation: Tensor) -> tuple[Tensor, Tensor]:
        """Return what ``climb`` climbs for perturbations of ``clean``: the share, and its gradient but for a factor."""
        moved = clean + perturbation
        slope = self._in_units(self.opposite - self.usual) / self.unit
        return self.share_gone(moved), self.batch.action_gradient(moved, slope, reach)

    def _in_units(self, actions: Tensor) -> Tensor:
        return actions.double() / self.unit


def _action_bounds(policy: Policy, usual: Tensor) -> tuple[Tensor, Tensor]:
    """Return the bounds of each action; where there is none, twice as far on either side as the action is."""
    reach = 2 * usual.abs().clamp_min(0.5)
    low = usual.new_tensor(policy.spaces.low or (-torch.inf,))
    high = usual.new_tensor(policy.spaces.high or (torch.inf,))
    return torch.where(low.isfinite(), low, -reach), torch.where(high.isfinite(), high, reach)
