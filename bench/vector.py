"""Steps per second of a vector simulator alone and through ``surefoot.rollout``, in turns of one run.

    python -m bench.vector                                   # crazyflow's landing, 512 rows, CPU
    python -m bench.vector --rows 4096 --device cuda --write bench/results/vector-gpu.json
    python -m bench.vector --env CartPole-v1 --rows 1000     # Gymnasium's own vector environment
    python -m bench.vector --env bench.pool:CartPole --rows 1000  # EnvPool's

crazyflow is not among the pinned packages of the tests: pip install --constraint constraints.txt '.[cases]'.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import surefoot
from surefoot.play.envs.vector import Vector
from surefoot.play.streams import block_seeds
from surefoot.play.task import Task

LANDING = "crazyflow.envs:DroneLanding-v0"
STEPS = 100
GRAVITY = 9.81
MASS = 0.0319  # kg, of crazyflow's default drone


class Hover(nn.Module):
    """A small network that keeps a drone in the air, so that episodes last; its 64 x 64 units have no say."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))
        self.idle = nn.Parameter(torch.tensor(0.0))

    def forward(self, observation: Tensor) -> Tensor:
        """Return roll, pitch, yaw and thrust."""
        # In the order of crazyflow: position, attitude, velocity, spin, way to the goal.
        height = observation[:, 2]
        climb = observation[:, 9]
        thrust = MASS * (GRAVITY + 4.0 * (1.5 - height) - 3.0 * climb)
        steady = torch.zeros_like(observation[:, :4])
        steady[:, 3] = thrust
        say: Tensor = self.idle * self.network(observation)
        return steady + say


def make_task(arguments: argparse.Namespace) -> tuple[Task, nn.Module]:
    """Return the task, and an agent whose episodes last."""
    if arguments.env == LANDING:
        kwargs: dict[str, Any] = {"freq": 50, "max_episode_time": 100.0}
        if arguments.device == "cuda":
            kwargs["device"] = "gpu"
        task = surefoot.make_task(LANDING, env_kwargs=kwargs, floor=-STEPS, ceiling=STEPS, max_steps=STEPS)
        return task, Hover()
    # Of an ID that has both, the simulator of many rows; a factory makes nothing else.
    kwargs = {} if ":" in arguments.env else {"vectorization_mode": "vector_entry_point"}
    task = surefoot.make_task(arguments.env, env_kwargs=kwargs, floor=0, ceiling=STEPS, max_steps=STEPS)
    balance = nn.Linear(4, 2, bias=False)
    with torch.no_grad():
        balance.weight.copy_(torch.tensor([[0.0, 0, 0, 0], [0.1, 0.3, 1, 1]]))
    return task, balance


def time_alone(task: Task, n_rows: int, device: str, n_steps: int) -> float:
    """Return rows times steps per second of the simulator with one constant action and nothing around it."""
    batch: Any = task.backend.batch(n_rows, block_seeds(0, (), 0)[0], torch.device(device))
    assert isinstance(batch, Vector)
    batch.reset()
    actions = batch._write_actions(batch.actions)
    batch.simulator.step(actions)
    began = time.perf_counter()
    for _ in range(n_steps):
        observation = batch.simulator.step(actions)[0]
    # A simulator may compute in the background: what it showed last is looked at.
    batch._read_observation(observation).sum().item()
    seconds = time.perf_counter() - began
    batch.close()
    return n_rows * n_steps / seconds


def time_rollout(task: Task, agent: nn.Module, n_rows: int, device: str, seed: int) -> float:
    """Return steps of episodes per second through ``surefoot.rollout``."""
    began = time.perf_counter()
    episodes = surefoot.rollout(
        task, agent, sigma=0.01, n_episodes=2 * n_rows, n_envs=n_rows, seed=seed, device=device, workers=1
    )
    assert episodes.lengths is not None
    return int(episodes.lengths.sum()) / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default=LANDING)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    began = time.perf_counter()
    task, agent = make_task(arguments)
    made = time.perf_counter() - began
    began = time.perf_counter()
    time_rollout(task, agent, arguments.rows, arguments.device, 0)
    compiled = time.perf_counter() - began
    alone = []
    through = []
    for repeat in range(1, arguments.repeats + 1):
        alone.append(time_alone(task, arguments.rows, arguments.device, 2 * STEPS))
        through.append(time_rollout(task, agent, arguments.rows, arguments.device, repeat))
        measured = {
            "env": arguments.env,
            "rows": arguments.rows,
            "device": arguments.device,
            "torch": torch.__version__,
            "task_made_seconds": round(made, 1),
            "first_rollout_seconds": round(compiled, 1),
            "alone_steps_per_second": [round(one) for one in alone],
            "rollout_steps_per_second": [round(one) for one in through],
            "ratio_of_medians": round(float(np.median(through) / np.median(alone)), 3),
        }
        # After every repetition: a lent machine may be taken back.
        if arguments.write is not None:
            arguments.write.write_text(json.dumps(measured, indent=2) + "\n")
    print(json.dumps(measured, indent=2))


if __name__ == "__main__":
    main()
