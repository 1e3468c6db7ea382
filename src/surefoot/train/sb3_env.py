"""A task's environments as a vector environment of SB3: what the agent sees and, separately, what it does not."""

from __future__ import annotations

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
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.channel import Channel
from surefoot.play.streams import Stream
from surefoot.play.task import Task

# The parts of an observation: what the agent sees, and what only the critic does.
NOISY = "noisy"
CLEAN = "clean"


class NoisyAndClean(VecEnv):
    """Observations are the agent's stack of noisy observations, and the clean one with the time left.

    The noise comes from the channel that certifies. Episodes that are over are reset at once.
    """

    def __init__(
        self, task: Task, noise: Noise, *, n_stack: int, n_envs: int, seeds: tuple[np.random.SeedSequence, ...]
    ) -> None:
        device = torch.device("cpu")
        shape = task.spaces.shape
        size = prod(shape)
        # The clean part has the time left behind the observation.
        spaces: dict[str, gymnasium.Space[Any]] = {
            NOISY: _unbounded_box(n_stack * size),
            CLEAN: _unbounded_box(size + 1),
        }
        self.render_mode = None
        super().__init__(n_envs, Dict(spaces), as_action_space(task.spaces))
        self.env = task.backend.batch(n_envs, seeds[0], device)
        self.channel = Channel(noise=noise, n_envs=n_envs, shape=shape, stream=Stream(seeds[1], device))
        self.recall = FrameStack(n_stack)
        self.memory = torch.empty(0)
        self.max_steps = task.scoring.max_steps
        self.steps = torch.zeros(n_envs)
        self.actions = torch.empty(0)

    def reset(self) -> dict[str, NDArray[np.float32]]:
        """Begin every episode."""
        observation = self.env.reset()
        self.memory = self.recall.empty(observation.float())
        self.steps.zero_()
        return self._make_observation(observation, torch.ones(self.num_envs, dtype=torch.bool))

    def step_async(self, actions: NDArray[Any]) -> None:
        """Take the actions."""
        self.actions = torch.from_numpy(np.array(actions))

    def step_wait(self) -> Any:
        """Return observations, rewards and which episodes are over; these are reset."""
        observation, reward, over = self.env.step(self.actions)
        self.steps += 1
        if bool(over.any()):
            # A new episode's first observation follows at once, as SB3 expects.
            observation = observation.clone()
            observation[over] = self.env.restart_rows(over)
            self.steps[over] = 0
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        return self._make_observation(observation, over), reward.float().numpy(), over.numpy(), infos

    def close(self) -> None:
        """Close the environments."""
        self.env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return the same of every environment."""
        return [getattr(self, attr_name)] * len(list(self._get_indices(indices)))

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
        return [False] * len(list(self._get_indices(indices)))

    def _make_observation(self, observation: Tensor, episode_start: Tensor) -> dict[str, NDArray[np.float32]]:
        seen = self.channel.send(observation)
        self.memory = self.recall.advance(self.memory, seen, None, episode_start)
        time_left = 1 - self.steps.unsqueeze(1) / self.max_steps
        clean = torch.cat((observation.float().flatten(1), time_left), dim=1)
        return {NOISY: self.memory.flatten(1).numpy().copy(), CLEAN: clean.numpy()}


def as_action_space(spaces: Spaces) -> Box | Discrete:
    """Return the actions of a task as SB3 knows them."""
    if spaces.n_actions is not None:
        return Discrete(spaces.n_actions)
    low = np.asarray(spaces.low, dtype=np.float32)
    high = np.asarray(spaces.high, dtype=np.float32)
    if spaces.low is None or not np.isfinite((low, high)).all():
        raise InputError("training needs finite bounds of continuous actions; wrap the environment in RescaleAction")
    return Box(low, high)


def _unbounded_box(size: int) -> Box:
    return Box(-np.inf, np.inf, (size,), np.float32)
