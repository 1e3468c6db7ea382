"""Environments with observations and actions in parts, for the table of what is supported."""

from __future__ import annotations

from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

Observation = dict[str, Any]
ROOMS, PLAIN = "Rooms-v0", "PlainRooms-v0"


class Rooms(gymnasium.Env[Observation, Any]):
    """A walker on a line, a goal, and a door that is open or not; the reward is how near the goal it is."""

    def __init__(self, actions: str = "several") -> None:
        place = Box(-2.0, 2.0, (2,), np.float32)
        self.observation_space = Dict([("place", place), ("door", Discrete(2)), ("goal", Box(-1.0, 1.0, (1,)))])
        kinds = {"several": MultiDiscrete([3, 2]), "switches": MultiBinary(2), "force": Box(-1.0, 1.0, (1,))}
        self.action_space = cast(Any, kinds[actions])
        self.place, self.goal, self.door = 0.0, 0.0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin anywhere."""
        super().reset(seed=seed, options=options)
        self.place, self.goal = (float(one) for one in self.np_random.uniform(-1, 1, 2))
        self.door = int(self.np_random.integers(2))
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Move; a door that is open doubles the pace."""
        first, *rest = np.ravel(action).astype(float)
        move = first - len(rest) if len(rest) else first
        self.place = float(np.clip(self.place + 0.2 * move * (1 + self.door) + self.np_random.normal() * 0.05, -2, 2))
        self.door ^= int(sum(rest) > 0)
        return self._seen(), float(np.exp(-abs(self.place - self.goal))), False, False, {}

    def _seen(self) -> Observation:
        place = np.array([self.place, self.place - self.goal], dtype=np.float32).clip(-2, 2)
        return {"place": place, "door": np.int64(self.door), "goal": np.array([self.goal], dtype=np.float32)}


class Plain(gymnasium.ObservationWrapper[Any, Any, Any]):
    """The same room with one vector as observation."""

    def __init__(self, actions: str = "several") -> None:
        super().__init__(Rooms(actions))
        self.observation_space = Box(-2.0, 2.0, (5,), np.float32)

    def observation(self, observation: Observation) -> Any:
        """Return the parts one after the other."""
        door = np.eye(2, dtype=np.float32)[observation["door"]]
        return np.concatenate([observation["place"], door, observation["goal"]])


for _name, _made in ((ROOMS, Rooms), (PLAIN, Plain)):
    gymnasium.register(_name, cast(Any, _made), max_episode_steps=20)
