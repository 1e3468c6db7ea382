"""Environments as batches of slots: the clean observations of many episodes played in lock step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surefoot.errors import InputError
from surefoot.play.streams import Stream


class Game(Protocol):
    """Many slots of one environment. Rows are slots that still play; episodes are never cut short.

    ``patience``  in how many steps the loop looks for finished rows; above 1 only where stepping them is harmless
    """

    patience: int

    def reset(self) -> Tensor:
        """Start every slot and return the observations, float32."""
        ...

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Advance every row; return observations (float32), rewards (float64) and which rows are over."""
        ...

    def restart(self, rows: Tensor) -> Tensor:
        """Start a new episode on the rows marked and return their observations."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these."""
        ...

    def state(self) -> Tensor | None:
        """Return the simulator's state per row, where there is one to show."""
        ...

    def close(self) -> None:
        """Release what the game holds."""
        ...


class Starts:
    """Where the episodes of every slot start: the k-th start of a slot is the same whatever its neighbours do.

    ``draw`` returns one start for every slot, those that have been dropped included, and waits for each of them.
    """

    def __init__(self, draw: Callable[[], Tensor]) -> None:
        self.draw = draw
        self.drawn = [draw()]
        self.slot = torch.arange(len(self.drawn[0]), device=self.drawn[0].device)
        self.turn = torch.zeros_like(self.slot)

    def again(self, rows: Tensor) -> Tensor:
        """Go on to the next start of the rows marked; return the present start of every row."""
        self.turn = self.turn + rows
        while len(self.drawn) <= int(self.turn.max()):
            self.drawn.append(self.draw())
        return torch.stack(self.drawn)[self.turn, self.slot]

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these."""
        self.slot, self.turn = self.slot[rows], self.turn[rows]


class CartPole:
    """Gymnasium's CartPole with a step limit, as tensors: float64 state, float32 observations, reward 1 a step."""

    patience = 8
    gravity, pole_mass, total_mass, half_length = 9.8, 0.1, 1.1, 0.5
    force, tick = 10.0, 0.02
    position_limit, angle_limit = 2.4, 12 * 2 * math.pi / 360

    def __init__(self, slots: int, stream: Stream, limit: int = 200) -> None:
        self.slots, self.stream, self.limit = slots, stream, limit
        self.variables = torch.empty(0)
        self.clock = torch.empty(0)
        self.starts: Starts

    def reset(self) -> Tensor:
        """Start every slot near the upright position."""
        self.starts = Starts(lambda: self.stream.uniform(-0.05, 0.05, (self.slots, 4)))
        self.variables = self.starts.drawn[0].T.contiguous()
        self.clock = torch.zeros(self.slots, dtype=torch.int64, device=self.stream.device)
        return self._observe()

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Advance by one tick of explicit Euler, in the order of operations that Gymnasium uses."""
        x, speed, angle, spin = self.variables
        force = torch.where(actions == 1, self.force, -self.force).double()
        cosine, sine = torch.cos(angle), torch.sin(angle)
        lever = self.pole_mass * self.half_length
        push = (force + lever * torch.square(spin) * sine) / self.total_mass
        inertia = self.half_length * (4.0 / 3.0 - self.pole_mass * torch.square(cosine) / self.total_mass)
        angular = (self.gravity * sine - cosine * push) / inertia
        linear = push - lever * angular * cosine / self.total_mass
        x, speed = x + self.tick * speed, speed + self.tick * linear
        angle, spin = angle + self.tick * spin, spin + self.tick * angular
        self.variables = torch.stack((x, speed, angle, spin))
        self.clock = self.clock + 1
        over = (x.abs() > self.position_limit) | (angle.abs() > self.angle_limit) | (self.clock >= self.limit)
        return self._observe(), torch.ones_like(x), over

    def restart(self, rows: Tensor) -> Tensor:
        """Start the marked rows anew."""
        self.variables = torch.where(rows, self.starts.again(rows).T, self.variables)
        self.clock = self.clock.masked_fill(rows, 0)
        return self._observe()[rows]

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these."""
        self.variables, self.clock = self.variables[:, rows], self.clock[rows]
        self.starts.keep(rows)

    def state(self) -> Tensor:
        """Return position, speed, angle and angular speed per row."""
        return self.variables.T

    def close(self) -> None:
        """Nothing to release."""

    def _observe(self) -> Tensor:
        return self.variables.T.to(torch.float32)


class Gymnasium:
    """Any Gymnasium environments with Box observations, one per slot, stepped in turn.

    A slot is seeded once and then runs on: its later episodes are independent of the earlier ones, and some simulators
    take long to reseed.
    """

    patience = 1

    def __init__(
        self, make: Callable[[], Any], slots: int, seeds: np.random.SeedSequence, device: torch.device
    ) -> None:
        self.environments: list[Any] = [make() for _ in range(slots)]
        # 62 bits: among the 10^5 slots of a long run, two 32-bit seeds would agree.
        self.seeds = [int(seed) >> 2 for seed in seeds.generate_state(slots, np.uint64)]
        self.device = device
        space = self.environments[0].action_space
        self.first_action = int(getattr(space, "start", 0))
        self.action_shape = space.shape
        self.action_type = space.dtype

    def reset(self) -> Tensor:
        """Start every slot with its own seed."""
        pairs = zip(self.environments, self.seeds, strict=True)
        return self._observe([environment.reset(seed=seed)[0] for environment, seed in pairs])

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Step every row's environment."""
        chosen = actions.cpu().numpy()
        if self.action_shape == ():
            moves: Sequence[Any] = [int(action) + self.first_action for action in chosen]
        else:
            moves = list(chosen.reshape(len(chosen), *self.action_shape).astype(self.action_type))
        results = [environment.step(move) for environment, move in zip(self.environments, moves, strict=True)]
        rewards = torch.tensor([float(result[1]) for result in results], dtype=torch.float64, device=self.device)
        over = torch.tensor([bool(result[2] or result[3]) for result in results], device=self.device)
        return self._observe([result[0] for result in results]), rewards, over

    def restart(self, rows: Tensor) -> Tensor:
        """Start new episodes on the marked rows, unseeded."""
        marked = rows.cpu().nonzero().flatten().tolist()
        return self._observe([self.environments[row].reset()[0] for row in marked])

    def keep(self, rows: Tensor) -> None:
        """Close and drop all environments but these."""
        kept = set(rows.cpu().tolist())
        for row, environment in enumerate(self.environments):
            if row not in kept:
                environment.close()
        self.environments = [self.environments[row] for row in sorted(kept)]

    def state(self) -> None:
        """No common notion of state."""

    def close(self) -> None:
        """Close every environment."""
        for environment in self.environments:
            environment.close()
        self.environments = []

    def _observe(self, observations: Sequence[NDArray[Any]]) -> Tensor:
        batch = np.stack(observations)
        if batch.dtype == np.uint8:
            return torch.from_numpy(batch).to(self.device).float().div_(255)
        return torch.from_numpy(batch.astype(np.float32)).to(self.device)


def open_environment(name: str, limit: int | None = None) -> Any:
    """Make a Gymnasium environment that is sure to end, or say what is wrong with it."""
    import gymnasium

    if limit is not None and limit < 1:
        raise InputError(f"a step limit must be at least 1, got {limit}")
    try:
        environment = gymnasium.make(name, max_episode_steps=limit) if limit else gymnasium.make(name)
    except (gymnasium.error.Error, ImportError, ModuleNotFoundError, TypeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"Gymnasium cannot make the environment {name!r}: {reason}") from error
    space = environment.observation_space
    if not isinstance(space, gymnasium.spaces.Box):
        raise InputError(f"{name} must have Box observations to add noise to, it has {type(space).__name__}")
    if np.issubdtype(space.dtype, np.integer) and space.dtype != np.uint8:
        raise InputError(f"{name} has {space.dtype} observations; only floats and uint8 images can carry noise")
    if not isinstance(environment.action_space, gymnasium.spaces.Box | gymnasium.spaces.Discrete):
        raise InputError(f"{name} must have Discrete or Box actions, it has {environment.action_space}")
    if limit is None and (environment.spec is None or environment.spec.max_episode_steps is None):
        raise InputError(f"{name} has no step limit, so an episode might never end; give one with --max-steps")
    return environment
