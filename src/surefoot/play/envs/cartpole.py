"""CartPole as tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surefoot.play.envs.base import Clock, Starts
from surefoot.play.streams import Stream


class CartPole:
    """Gymnasium's CartPole with a step limit, as tensors: float64 state, float32 observations, reward 1 a step."""

    done_check_interval = 8
    gravity = 9.8
    pole_mass = 0.1
    total_mass = 1.1
    half_length = 0.5
    force = 10.0
    tick = 0.02
    position_limit = 2.4
    angle_limit = 12 * 2 * math.pi / 360

    def __init__(self, n_envs: int, stream: Stream, max_steps: int = 200) -> None:
        self.n_envs = n_envs
        self.stream = stream
        self.max_steps = max_steps
        self.forces = torch.tensor([-self.force, self.force], dtype=torch.float64, device=stream.device)
        limits = [[self.position_limit], [self.angle_limit]]
        self.limits = torch.tensor(limits, dtype=torch.float64, device=stream.device)
        self.variables = self.rewards = torch.empty(0)
        self.clock: Clock
        self.starts: Starts

    def reset(self) -> Tensor:
        """Start every environment near the upright position."""
        self.starts = Starts(lambda: self.stream.uniform(-0.05, 0.05, (self.n_envs, 4)))
        self.variables = self.starts.drawn[0].T.contiguous()
        self.rewards = torch.ones_like(self.variables[0])
        self.clock = Clock(self.n_envs, self.stream.device)
        return self._make_observation()

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Advance by one tick of explicit Euler, with the roundings of Gymnasium: nothing is reordered or fused.

        Every operation takes longer to call than to compute: hence few, and in place.
        """
        _, speed, angle, spin = self.variables.unbind()
        cosine = torch.cos(angle)
        sine = torch.sin(angle)
        lever = self.pole_mass * self.half_length
        push = (spin * spin).mul_(lever).mul_(sine)
        push = push.add_(self.forces.index_select(0, actions)).div_(self.total_mass)
        inertia = (cosine * cosine).mul_(self.pole_mass).div_(self.total_mass)
        inertia = inertia.neg_().add_(4.0 / 3.0).mul_(self.half_length)
        angular = sine.mul_(self.gravity).sub_(cosine * push).div_(inertia)
        linear = push.sub_(cosine.mul_(lever * angular).div_(self.total_mass))
        self.variables = torch.stack((speed, linear, spin, angular)).mul_(self.tick).add_(self.variables)
        off_track, tilted = (self.variables[::2].abs() > self.limits).unbind()
        return self._make_observation(), self.rewards, self.clock.count_step(off_track | tilted, self.max_steps)

    def restart_rows(self, rows: Tensor) -> Tensor:
        """Start new episodes on the marked rows."""
        self.variables = torch.where(rows, self.starts.next_starts(rows).T, self.variables)
        self.clock.restart_rows(rows)
        return self._make_observation()[rows]

    def keep_rows(self, rows: Tensor) -> None:
        """Drop all rows but these."""
        self.variables = self.variables[:, rows]
        self.rewards = self.rewards[rows]
        self.clock.keep_rows(rows)
        self.starts.keep_rows(rows)

    def read_state(self) -> Tensor:
        """Return position, speed, angle and angular speed per row."""
        return self.variables.T

    def close(self) -> None:
        """Nothing to release."""

    def _make_observation(self) -> Tensor:
        return self.variables.T.to(torch.float32, memory_format=torch.contiguous_format)


PROBES = 256


def is_cartpole(environment: Any) -> bool:
    """Return whether a Gymnasium environment has exactly the rules of ``CartPole``: its class, and every step tried.

    The class is Gymnasium's own, made without arguments and wrappers that change it. The steps are from states inside
    and around the limits, with both actions; observations, rewards and ends must be the same, bit for bit.
    """
    spec = environment.spec
    inner = environment.unwrapped
    # The class itself, by its name: a subclass, or another package's, may have other rules.
    own = (type(inner).__module__, type(inner).__name__) == ("gymnasium.envs.classic_control.cartpole", "CartPoleEnv")
    if not own or spec is None or spec.kwargs or spec.additional_wrappers:
        return False
    random = np.random.default_rng(0)
    starts = np.array([inner.reset(seed=seed)[0] for seed in range(PROBES)])
    states = random.uniform(-1.1, 1.1, (PROBES, 4)) * (CartPole.position_limit, 3.0, CartPole.angle_limit, 3.0)
    actions = random.integers(2, size=PROBES)
    twin = CartPole(PROBES, Stream(np.random.SeedSequence(0), torch.device("cpu")), PROBES)
    twin.reset()
    twin.variables = torch.from_numpy(states.T.copy())
    seen, rewards, over = (part.numpy() for part in twin.step(torch.from_numpy(actions)))
    for row, (state, action) in enumerate(zip(states, actions, strict=True)):
        inner.state = state
        inner.steps_beyond_terminated = None
        observation, reward, terminated, *_ = inner.step(int(action))
        if not np.array_equal(observation, seen[row]) or reward != rewards[row] or terminated != over[row]:
            return False
    # Starts are drawn from -0.05 to 0.05: of so many the largest is near the end.
    return bool(np.abs(starts).max() <= 0.05 and np.abs(starts).max() > 0.045)
