"""Any Gymnasium environment as a batch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surefoot.errors import InputError


class Gymnasium:
    """Any Gymnasium environments with Box observations, one per row, stepped in turn.

    An environment is seeded once and then runs on: its later episodes are independent of the earlier ones, and some
    simulators take long to reseed.
    """

    patience = 1

    def __init__(
        self, make: Callable[[], Any], n_envs: int, seeds: np.random.SeedSequence, device: torch.device
    ) -> None:
        self.environments: list[Any] = [make() for _ in range(n_envs)]
        # 62 bits: among the 10^5 environments of a long run, two 32-bit seeds would agree.
        self.seeds = [int(seed) >> 2 for seed in seeds.generate_state(n_envs, np.uint64)]
        self.device = device
        space = self.environments[0].action_space
        self.first_action = int(getattr(space, "start", 0))
        self.action_shape = space.shape
        self.action_type = space.dtype
        self.shape = self.environments[0].observation_space.shape

    def reset(self) -> Tensor:
        """Start every environment with its own seed."""
        pairs = zip(self.environments, self.seeds, strict=True)
        with self._working("reset"):
            return self._observe([environment.reset(seed=seed)[0] for environment, seed in pairs])

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Step every row's environment."""
        chosen = actions.cpu().numpy()
        if self.action_shape == ():
            moves: Sequence[Any] = [int(action) + self.first_action for action in chosen]
        else:
            moves = list(chosen.reshape(len(chosen), *self.action_shape).astype(self.action_type))
            if not np.isfinite(chosen).all():
                raise InputError("the agent chose an action that is not finite; check its weights or its function")
        with self._working("step"):
            results = [environment.step(move) for environment, move in zip(self.environments, moves, strict=True)]
            rewards = torch.tensor([float(result[1]) for result in results], dtype=torch.float64, device=self.device)
            over = torch.tensor([bool(result[2] or result[3]) for result in results], device=self.device)
            return self._observe([result[0] for result in results]), rewards, over

    def restart(self, rows: Tensor) -> Tensor:
        """Start new episodes on the marked rows, unseeded."""
        marked = rows.cpu().nonzero().flatten().tolist()
        with self._working("reset"):
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

    @contextmanager
    def _working(self, what: str) -> Iterator[None]:
        """Report an exception of the environment as what it is: neither an error of ours nor a result."""
        try:
            yield
        except InputError:
            raise
        except Exception as error:
            name = type(self.environments[0].unwrapped).__name__
            raise InputError(f"the environment {name} failed in {what}: {type(error).__name__}: {error}") from error

    def _observe(self, observations: Sequence[NDArray[Any]]) -> Tensor:
        shapes = {np.shape(observation) for observation in observations} - {self.shape}
        if shapes:  # which might fit to others by repetition
            raise InputError(f"the environment returned an observation of shape {shapes.pop()}, expected {self.shape}")
        batch = np.stack(observations)
        if not np.isfinite(batch).all():
            raise InputError("the environment returned an observation that is not finite")
        if batch.dtype == np.uint8:
            return torch.from_numpy(batch).to(self.device).float().div_(255)
        return torch.from_numpy(batch.astype(np.float32)).to(self.device)


def registered_steps(name: str) -> int | None:
    """Return after how many steps an environment's episodes are usually cut off; None if never, or unknown."""
    import gymnasium

    spec = gymnasium.registry.get(name)
    return None if spec is None else spec.max_episode_steps


def open_environment(name: str, max_steps: int | None = None, **kwargs: Any) -> Any:
    """Make a Gymnasium environment that is sure to end, or say what is wrong with it."""
    import gymnasium

    if max_steps is not None and max_steps < 1:
        raise InputError(f"a step limit must be at least 1, got {max_steps}")
    try:
        environment = gymnasium.make(name, max_episode_steps=max_steps, **kwargs)
    except (gymnasium.error.Error, ImportError, ModuleNotFoundError, TypeError, ValueError) as error:
        reason, today = str(error).strip().splitlines()[0].rstrip("."), _successor(name)
        way = "" if today is None else f"; its successor is {today}: give --env {today}"
        raise InputError(f"Gymnasium cannot make the environment {name!r}: {reason}{way}") from error
    space = environment.observation_space
    if not isinstance(space, gymnasium.spaces.Box):
        raise InputError(f"{name} must have Box observations to add noise to, it has {type(space).__name__}")
    if np.issubdtype(space.dtype, np.integer) and space.dtype != np.uint8:
        raise InputError(f"{name} has {space.dtype} observations; only floats and uint8 images can carry noise")
    if not isinstance(environment.action_space, gymnasium.spaces.Box | gymnasium.spaces.Discrete):
        raise InputError(f"{name} must have Discrete or Box actions, it has {environment.action_space}")
    if max_steps is None and (environment.spec is None or environment.spec.max_episode_steps is None):
        raise InputError(f"{name} has no step limit, so an episode might never end; give one with --max-steps")
    return environment


def _successor(name: str) -> str | None:
    """Return the next version of an environment that can be made, if there is one."""
    import gymnasium

    base, _, version = name.rpartition("-v")
    if not version.isdecimal():
        return None
    same = (spec for spec in gymnasium.registry.values() if spec.namespace is None and spec.name == base)
    for later in sorted(spec.version for spec in same if spec.version is not None and spec.version > int(version)):
        with suppress(gymnasium.error.Error, ImportError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there are still later ones
            gymnasium.make(f"{base}-v{later}").close()
            return f"{base}-v{later}"
    return None
