"""Attacks on the actions of an agent, between it and the noise at the actuator.

``EachChannel``   one attacker for observations and one for actions, who share a budget
``CriticDescent`` towards the action that the agent's own critic values least
``Push``          along a constant and along the action itself
``find_push``     the push that harms most, by differences of the mean return in episodes of the attacker's own
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from surefoot.attacks.adaptive_pgd import climb
from surefoot.attacks.base import Described, check_continuous, clip_to_box, normalize_rows
from surefoot.attacks.composed import Composed, EveryStep, Timing, UniformTiming
from surefoot.compute import expand_rows
from surefoot.play.channel import Attacker, View
from surefoot.play.loop import play_block
from surefoot.play.plan import Plan
from surefoot.play.streams import Purpose

PUSH_EPISODES = 16  # for each difference


@dataclass(frozen=True)
class EachChannel:
    """Two attackers: of what is left one may use half at an observation, the other all at the action after it."""

    observations: Attacker
    actions: Attacker

    def propose(self, view: View) -> Tensor | NDArray[Any]:
        """Ask the attacker of the channel that the view is about."""
        if view.chosen is not None:
            return self.actions.propose(view)
        # Half of the squared budget: squares add up.
        return self.observations.propose(replace(view, budget_left=view.budget_left / math.sqrt(2)))

    def describe(self) -> dict[str, Any]:
        """Return both attackers."""
        return {
            "name": "each channel",
            "observations": self.observations.describe(),
            "actions": self.actions.describe(),
        }


@dataclass(frozen=True)
class CriticDescent(Described):
    """Move the action to where the agent's critic, on the clean memory, values it least, averaged over its noise.

    Attributes:
        action_sigma: Standard deviation of the noise on actions.
        n_samples: Noise samples to average over.
        iterations: Gradient steps.
    """

    name: ClassVar[str] = "critic descent"

    action_sigma: float = 0.0
    n_samples: int = 16
    iterations: int = 10

    def perturbation(self, view: View, allowance: Tensor) -> Tensor:
        """Return the perturbation found that the critic likes least; none where none is worse than no perturbation."""
        check_continuous(view.policy)
        assert view.chosen is not None
        found = torch.zeros_like(view.chosen)
        (rows,) = (allowance > 0).nonzero(as_tuple=True)
        if rows.numel() == 0:
            return found
        chosen = view.chosen[rows]
        memory = view.clean[rows].repeat_interleave(self.n_samples, dim=0)
        # Samples of the attacker's own: the noise that will be added nobody knows yet.
        noise = view.stream.normal((rows.numel(), self.n_samples, *chosen.shape[1:])) * self.action_sigma
        found[rows] = climb(
            lambda moved: self._harm(view, memory, (chosen + moved).unsqueeze(1) + noise, moved),
            torch.zeros_like(chosen),
            allowance[rows],
            self.iterations,
        )
        return found

    def _harm(self, view: View, memory: Tensor, executed: Tensor, moved: Tensor) -> tuple[Tensor, Tensor]:
        """Return minus the critic's value of noisy actions, and its gradient with respect to their perturbation."""
        critic = check_continuous(view.policy)
        spaces = view.policy.spaces
        here = executed.detach().requires_grad_()
        with torch.enable_grad():
            clipped = clip_to_box(here, spaces.low, spaces.high)
            values = critic(memory, clipped.flatten(0, 1)).reshape(here.shape[:2]).mean(dim=1)
            (gradient,) = torch.autograd.grad(-values.sum(), here)
        return -values.detach().double(), gradient.sum(dim=1).to(moved.dtype)


@dataclass(frozen=True)
class Push(Described):
    """Push actions along a constant plus a multiple of themselves, all numbers in units of their ranges.

    Attributes:
        constant: Of each number of an action.
        gain: Of each number: -1 pushes it back to the middle of its range and beyond, 1 to where it is going.
    """

    name: ClassVar[str] = "push"

    constant: tuple[float, ...]
    gain: tuple[float, ...]

    def perturbation(self, view: View, allowance: Tensor) -> Tensor:
        """Return the push, as long as it may be."""
        assert view.chosen is not None
        chosen = view.chosen.double()
        low = chosen.new_tensor(view.policy.spaces.low or (-1.0,) * len(self.gain))
        high = chosen.new_tensor(view.policy.spaces.high or (1.0,) * len(self.gain))
        where = (chosen - (low + high) / 2) / (high - low)
        direction = chosen.new_tensor(self.constant) + chosen.new_tensor(self.gain) * where
        direction = normalize_rows(direction, view.scope.norm)
        return direction * expand_rows(allowance, direction)


def opposite_push(size: int) -> Push:
    """Return the push away from every action, towards the other side of its range."""
    return Push((0.0,) * size, (-1.0,) * size)


def find_push(plan: Plan, budget: float) -> Push:
    """Return the push that lowers the mean return fastest, by central differences in a few episodes.

    The same episodes for all differences: random numbers that they share cancel. The plan's attacker, budget and number
    of episodes do not matter; ``budget`` is in the units of the actions.
    """
    size = plan.task.spaces.n_outputs
    timing: Timing = UniformTiming(budget, plan.task.scoring.max_steps)
    if plan.scope.per_step:
        timing = EveryStep()
    pilot = replace(plan, n_episodes=PUSH_EPISODES, n_envs=None, purpose=(Purpose.VALUE_GAPS,), channels=("actions",))
    slopes = []
    for number in range(2 * size):
        means = []
        for sign in (1.0, -1.0):
            weights = [0.0] * (2 * size)
            weights[number] = sign
            push = Push(tuple(weights[:size]), tuple(weights[size:]))
            trial = replace(pilot, attacker=Composed(timing, push), budget=plan.budget)
            means.append(float(play_block(trial, 0).returns.mean()))
        slopes.append(means[0] - means[1])
    largest = max(map(abs, slopes))
    if largest == 0:
        return opposite_push(size)
    # Down the slope. Three digits: they are printed, and are of sixteen episodes.
    down = [float(f"{-slope / largest:.3g}") for slope in slopes]
    return Push(tuple(down[:size]), tuple(down[size:]))
