"""Mountain Car with continuous actions and the paper's reward: 1 for reaching the goal, nothing for fuel."""

from __future__ import annotations

from typing import Any

import gymnasium
import torch
from torch import Tensor

from surefoot.play.envs.base import Clock, Starts
from surefoot.play.envs.source import Source
from surefoot.play.streams import Stream

LOW = (-1.2, -0.07)
HIGH = (0.6, 0.07)


class MountainCar:
    """Gymnasium's MountainCarContinuous as tensors, in its own precision: float32, but for an episode's first step."""

    done_check_interval = 8
    power = 0.0015
    pull = 0.0025
    goal = 0.45

    def __init__(self, n_envs: int, stream: Stream, max_steps: int = 999) -> None:
        self.n_envs = n_envs
        self.stream = stream
        self.max_steps = max_steps
        # Double precision where an episode begins, which is how Gymnasium keeps the start; single after that.
        self.position = torch.empty(0)
        self.velocity = torch.empty(0)
        self.clock: Clock
        self.starts: Starts

    def reset(self) -> Tensor:
        """Start every environment at rest in the valley."""
        self.starts = Starts(lambda: self.stream.uniform(-0.6, -0.4, (self.n_envs,)))
        self.position = self.starts.drawn[0]
        self.velocity = torch.zeros_like(self.position)
        self.clock = Clock(self.n_envs, self.stream.device)
        return self._make_observation()

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Advance by one step; the reward is 1 where the goal is reached."""
        action = actions.reshape(-1)
        position, velocity, reached = self._advance_car(action, torch.float32)
        if self.position.dtype == torch.float64:
            first = self.clock.steps == 0
            exact = self._advance_car(action, torch.float64)
            pairs = zip(exact, (position, velocity, reached), strict=True)
            position, velocity, reached = (torch.where(first, new.to(old.dtype), old) for new, old in pairs)
        self.position = position
        self.velocity = velocity
        return self._make_observation(), reached.double(), self.clock.count_step(reached, self.max_steps)

    def restart_rows(self, rows: Tensor) -> Tensor:
        """Start new episodes on the marked rows."""
        self.position = torch.where(rows, self.starts.next_starts(rows), self.position.double())
        self.velocity = self.velocity.double().masked_fill(rows, 0.0)
        self.clock.restart_rows(rows)
        return self._make_observation()[rows]

    def keep_rows(self, rows: Tensor) -> None:
        """Drop all rows but these."""
        self.position = self.position[rows]
        self.velocity = self.velocity[rows]
        self.clock.keep_rows(rows)
        self.starts.keep_rows(rows)

    def read_state(self) -> Tensor:
        """Return position and velocity per row."""
        return self._join_variables().double()

    def close(self) -> None:
        """Nothing to release."""

    def _advance_car(self, action: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        """Return position, velocity and whether the goal is reached, rounded where Gymnasium's numbers are."""
        position = self.position.to(kind)
        velocity = self.velocity.to(kind)
        slope = (3 * position).double().cos_().mul_(self.pull)
        force = action.clamp(-1.0, 1.0)
        # A force inside its limits is single precision and makes the sum so; the limits themselves are not.
        push = (force * self.power).sub_(slope.to(action.dtype)).to(kind)
        push = torch.where(force == action, push, force.double().mul_(self.power).sub_(slope).to(kind))
        velocity = push.add_(velocity).clamp_(LOW[1], HIGH[1])
        position = (position + velocity).clamp_(LOW[0], HIGH[0])
        velocity = velocity.masked_fill_((position == LOW[0]) & (velocity < 0), 0.0)
        return position, velocity, (position >= self.goal) & (velocity >= 0)

    def _join_variables(self) -> Tensor:
        return torch.stack((self.position, self.velocity), dim=1)

    def _make_observation(self) -> Tensor:
        return self._join_variables().to(torch.float32)


class GoalReward(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The paper's reward: 1 at the step that reaches the goal, else 0."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step, and forget the cost of fuel."""
        observation, _, terminated, truncated, info = self.env.step(action)
        return observation, float(terminated), terminated, truncated, info


def open_mountain_car(max_steps: int) -> Any:
    """Make Gymnasium's environment with the paper's reward."""
    return GoalReward(Source(maker="MountainCarContinuous-v0", max_steps=max_steps).open())
