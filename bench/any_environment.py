"""How fast ``--env CartPole-v1`` runs: as tensors, as Gymnasium environments one by one, and evaluated by SB3.

    python bench/any_environment.py            # one core; results go to bench/results/any_environment.json

The agent is trained for a moment on CartPole, so that episodes are long. All three play it with the same noise. Times
are of the processor, which other programs on the machine do not change much.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

import surefoot
from surefoot.files import write_json
from surefoot.play.envs.gymnasium_env import Gymnasium
from surefoot.play.envs.noisy import NoisyObservation
from surefoot.play.task import Backend, Blocks

SIGMA, EPISODES, FEW = 0.1, 2_000, 100
RESULTS = Path(__file__).resolve().parent / "results" / "any_environment.json"


def noisy() -> gymnasium.Env[Any, Any]:
    return Monitor(NoisyObservation(gymnasium.make("CartPole-v1"), SIGMA))


def timed(run: Callable[[], Any], episodes: int) -> dict[str, float]:
    """Return episodes and steps per second, and the mean return, which on CartPole is the number of steps."""
    begin = time.process_time()
    returns = np.asarray(run())
    seconds = time.process_time() - begin
    return {
        "episodes": episodes,
        "episodes_per_second": episodes / seconds,
        "steps_per_second": float(returns.sum()) / seconds,
        "mean": float(returns.mean()),
        "sem": float(returns.std(ddof=1) / np.sqrt(len(returns))),
    }


def main() -> None:
    torch.set_num_threads(1)
    model = PPO("MlpPolicy", DummyVecEnv([noisy] * 8), n_steps=256, batch_size=256, seed=0, device="cpu")
    model.learn(20_000)
    task = surefoot.make_task("CartPole-v1", floor=0, ceiling=500)
    make = task.backend.open
    rows = replace(task, backend=Backend(batch=partial(Gymnasium, make), open=make), blocks=Blocks())
    found = {
        name: timed(partial(_returns, run, model, count), count)
        for name, run, count in (("tensors", task, EPISODES), ("one by one", rows, FEW))
    }
    env = DummyVecEnv([noisy] * 8)
    evaluate = partial(evaluate_policy, model, env, FEW, return_episode_rewards=True)
    found["evaluate_policy"] = timed(lambda: evaluate()[0], FEW)
    times = {name: found["tensors"]["steps_per_second"] / one["steps_per_second"] for name, one in found.items()}
    result = {"schema": 1, "sigma": SIGMA, "found": found, "tensors_are_faster_by": times}
    write_json(RESULTS, result)
    print(json.dumps(result, indent=1))


def _returns(task: surefoot.Task, model: PPO, count: int) -> Any:
    return surefoot.rollout(task, model, sigma=SIGMA, n_episodes=count).returns


if __name__ == "__main__":
    main()
