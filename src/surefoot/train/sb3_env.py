"""A task's environments as a vector environment of SB3: what the agent sees and, separately, what it does not."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Discrete
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor

from surefoot.agents.memory import FrameStack
from surefoot.agents.policies import Spaces
from surefoot.episodes import Noise
from surefoot.errors import InputError
from surefoot.play.channel import Channel
from surefoot.play.streams import Stream
from surefoot.play.task import Task

NOISY, CLEAN = "noisy", "clean"


class NoisyAndClean(VecEnv):
    """Observations are the agent's stack of noisy observations, and the clean one with the time left.

    The noise comes from the channel that certifies. Episodes that are over are reset at once.
    """

    def __init__(
        self, task: Task, noise: Noise, *, n_stack: int, n_envs: int, seeds: tuple[np.random.SeedSequence, ...]
    ) -> None:
        device, shape = torch.device("cpu"), task.spaces.shape
        size = prod(shape)
        spaces: dict[str, gymnasium.Space[Any]] = {NOISY: _unbounded(n_stack * size), CLEAN: _unbounded(size + 1)}
        self.render_mode = None
        super().__init__(n_envs, Dict(spaces), action_space(task.spaces))
        self.env = task.backend.batch(n_envs, seeds[0], device)
        self.channel = Channel(noise=noise, n_envs=n_envs, shape=shape, stream=Stream(seeds[1], device))
        self.recall, self.max_steps = FrameStack(n_stack), task.scoring.max_steps
        self.memory, self.steps = torch.empty(0), torch.zeros(n_envs)
        self.actions = torch.empty(0)

    def reset(self) -> dict[str, NDArray[np.float32]]:
        """Begin every episode."""
        observation = self.env.reset()
        self.memory = self.recall.empty(observation.float())
        self.steps.zero_()
        return self._observed(observation, torch.ones(self.num_envs, dtype=torch.bool))

    def step_async(self, actions: NDArray[Any]) -> None:
        """Take the actions."""
        self.actions = torch.from_numpy(np.array(actions))

    def step_wait(self) -> Any:
        """Return observations, rewards and which episodes are over; these are reset."""
        observation, reward, over = self.env.step(self.actions)
        self.steps += 1
        if bool(over.any()):
            observation = observation.clone()
            observation[over] = self.env.restart(over)
            self.steps[over] = 0
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        return self._observed(observation, over), reward.float().numpy(), over.numpy(), infos

    def close(self) -> None:
        """Close the environments."""
        self.env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return the same of every environment."""
        return [getattr(self, attr_name) for _ in self._chosen(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Refuse: the environments are one."""
        raise NotImplementedError

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Refuse: the environments are one."""
        raise NotImplementedError

    def env_is_wrapped(
        self,
        wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]],  # noqa: ARG002
        indices: Any = None,
    ) -> list[bool]:
        """Say that none is."""
        return [False for _ in self._chosen(indices)]

    def _chosen(self, indices: Any) -> Iterable[int]:
        return self._get_indices(indices)

    def _observed(self, observation: Tensor, fresh: Tensor) -> dict[str, NDArray[np.float32]]:
        seen = self.channel.send(observation)
        self.memory = self.recall.advance(self.memory, seen, None, fresh)
        left = 1 - self.steps.unsqueeze(1) / self.max_steps
        clean = torch.cat((observation.float().flatten(1), left), dim=1)
        return {NOISY: self.memory.flatten(1).numpy().copy(), CLEAN: clean.numpy()}


def action_space(spaces: Spaces) -> Box | Discrete:
    """Return the actions of a task as SB3 knows them."""
    if spaces.n_actions is not None:
        return Discrete(spaces.n_actions)
    low, high = (np.asarray(bound, dtype=np.float32) for bound in (spaces.low, spaces.high))
    if spaces.low is None or not np.isfinite((low, high)).all():
        raise InputError("training needs finite bounds of continuous actions; wrap the environment in RescaleAction")
    return Box(low, high)


def _unbounded(size: int) -> Box:
    return Box(-np.inf, np.inf, (size,), np.float32)
