"""CartPole of EnvPool, a simulator in C++, as a vector environment; the same agent there and in Gymnasium's CartPole.

pip install envpool   # 0.8 GB with what it needs, and not among the pinned packages
python -m bench.pool
python -m bench.vector --env bench.pool:CartPole --rows 1000
"""

from __future__ import annotations

from typing import Any

import envpool
import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

import surefoot

N_EPISODES = 2_048


class CartPole(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """EnvPool takes its seed when it is made, and restarts a row in the step after its end."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(self, num_envs: int) -> None:
        spec = envpool.make_spec("CartPole-v1")
        self.num_envs = num_envs
        self.single_observation_space = spec.gymnasium_observation_space
        self.single_action_space = spec.gymnasium_action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.pool: Any = None

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:  # noqa: ARG002 - Gymnasium hands it on
        """Begin all episodes, with other simulators if there is a seed."""
        if seed is not None or self.pool is None:
            self.pool = envpool.make_gymnasium("CartPole-v1", num_envs=self.num_envs, seed=seed or 0, num_threads=1)
        begun: tuple[Any, dict[str, Any]] = self.pool.reset()
        return begun

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all rows."""
        stepped: tuple[Any, Any, Any, Any, dict[str, Any]] = self.pool.step(np.asarray(actions, dtype=np.int32))
        return stepped


def lean_right(observations: Any) -> Any:
    """Push the cart to the side to which the pole falls."""
    return (observations[:, 2] + observations[:, 3] > 0).astype(int)


def main() -> None:
    """Print the mean return of both."""
    limits: dict[str, Any] = {"floor": 0, "ceiling": 500, "max_steps": 500}
    for name, made in (("EnvPool", CartPole), ("Gymnasium", "CartPole-v1")):
        task = surefoot.make_task(made, **limits)
        agent = surefoot.as_policy(lean_right, task.spaces, batched=True)
        returns = surefoot.rollout(task, agent, sigma=0.1, n_episodes=N_EPISODES).returns
        print(f"{name}: {returns.mean():.1f} ± {returns.std() / N_EPISODES**0.5:.1f}")


if __name__ == "__main__":
    main()
