"""Certify on an environment of your own: a function that makes it, with arguments, and observations in parts.

From this folder: surefoot certify --env env_factory:make_tank --env-kwargs '{"leak": 0.1}' --reward-range -1,0 ...
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete
from numpy.typing import NDArray

import surefoot


class Tank(gymnasium.Env[dict[str, Any], np.int64]):
    """Keep the level of a leaking tank at 0; the reward is minus the distance, at most 1."""

    observation_space = Dict([("level", Box(-1.0, 1.0, (1,))), ("flow", Box(-1.0, 1.0, (1,)))])
    action_space = Discrete(3)

    def __init__(self, leak: float) -> None:
        self.leak, self.level, self.flow = leak, 0.0, 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin with any level."""
        super().reset(seed=seed, options=options)
        self.level, self.flow = float(self.np_random.uniform(-0.5, 0.5)), 0.0
        return self._seen(), {}

    def step(self, action: np.int64) -> Any:
        """Open (2) or close (0) the valve."""
        self.flow = 0.2 * (int(action) - 1) - self.leak * (1 + self.level) + float(self.np_random.normal(0, 0.02))
        self.level = float(np.clip(self.level + self.flow, -1, 1))
        return self._seen(), -abs(self.level), False, False, {}

    def _seen(self) -> dict[str, Any]:
        return {"level": np.array([self.level], np.float32), "flow": np.array([self.flow], np.float32)}


def make_tank(leak: float) -> gymnasium.Env[Any, Any]:
    return gymnasium.wrappers.TimeLimit(Tank(leak), 50)


def controller(seen: NDArray[Any]) -> int:
    """Return the valve's position; the parts come as one vector, level first."""
    return int(np.clip(np.rint(1 - 4 * seen[0] - seen[1]), 0, 2))


def main(episodes: int = 300) -> surefoot.Certificate:
    task = surefoot.make_task(make_tank, env_kwargs={"leak": 0.1}, reward_range=(-1, 0))
    certificate = surefoot.certify(surefoot.rollout(task, controller, sigma=0.05, n_episodes=episodes), (0, 0.05, 0.1))
    for budget, lower in zip(certificate.budgets, certificate.lower, strict=True):
        print(f"budget {budget:g}: mean return at least {np.floor(100 * lower) / 100} (floor {task.scoring.floor:g})")
    return certificate


if __name__ == "__main__":
    main()
