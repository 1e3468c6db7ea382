"""The landing of crazyflow as a real drone would meet it, and what counts as a safe landing.

``SensorsOnly``  the observation without what no sensor measures
``landed``       the event that is certified
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

# Of crazyflow's LandingEnv: where the drone is to come down, 10 cm above the ground.
GOAL = (0.0, 0.0, 0.1)
WITHIN = 0.2  # m
SLOWER_THAN = 0.5  # m/s


class SensorsOnly(VectorWrapper):
    """The landing without ``difference_to_goal``.

    The simulator computes that difference from the true position. An agent that was shown it would know what no
    spoofed receiver tells it, and a certificate about noise on ``pos`` alone would be false. Whoever needs the
    difference subtracts what has arrived, behind the channel.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        inner = env.single_observation_space
        assert isinstance(inner, spaces.Dict)
        self.single_observation_space = spaces.Dict(
            {name: space for name, space in inner.items() if name != "difference_to_goal"}
        )
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start all rows."""
        observation, info = self.env.reset(seed=seed, options=options)
        return _without_difference(observation), info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step."""
        observation, *others = self.env.step(actions)
        return _without_difference(observation), *others


def _without_difference(observation: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in observation.items() if name != "difference_to_goal"}


def landed(
    observation: Any,
    reward: Any,  # noqa: ARG001 - what step returns
    terminated: Any,
    truncated: Any,
    info: Any,  # noqa: ARG001
) -> NDArray[np.bool_]:
    """Return which rows end within 20 cm of the goal, at 0.5 m/s or less.

    An episode ends when the drone touches the ground or after its time: one that passes over the goal has not landed.
    """
    away = np.linalg.norm(np.asarray(observation["pos"], dtype=np.float64) - GOAL, axis=-1)
    speed = np.linalg.norm(np.asarray(observation["vel"], dtype=np.float64), axis=-1)
    over = np.asarray(terminated) | np.asarray(truncated)
    met: NDArray[np.bool_] = over & (away <= WITHIN) & (speed <= SLOWER_THAN)
    return met
