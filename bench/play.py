"""10,000 certified episodes of a task against the paper's protocol and against the matrix products alone.

    python bench/play.py --task cartpole-5                                # ratios on this machine's cores
    python bench/play.py --task mountain-car
    python bench/play.py --task cartpole-5 --device cuda --episodes 10000000  # ten million episodes on one GPU

Everything is measured in one run; of repeated timings the median counts. Results go to ``bench/results``.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from surefoot import certify
from surefoot.agents import files as zoo
from surefoot.agents.networks import MLP, Squashed
from surefoot.agents.policies import Policy
from surefoot.agents.sb3.write import write_zip
from surefoot.compute import single_thread, usable_cores
from surefoot.files import write_json
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.task import Task
from surefoot.play.tasks import get_task
from surefoot.provenance import versions

SIGMA, BUDGETS = 0.2, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
HERE = Path(__file__).resolve().parent


def seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def paper_protocol(
    task: Task, policy: Policy, episodes: int, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, float]:
    """Seconds per episode, and per step, with one environment and one ``predict`` per step, through plain SB3."""
    from stable_baselines3 import DDPG, DQN

    with tempfile.TemporaryDirectory() as folder:
        write_zip(policy, Path(folder) / "agent.zip")
        model = (DDPG if task.spaces.n_actions is None else DQN).load(
            Path(folder) / "agent.zip", device="cpu", buffer_size=1
        )
    environment = task.backend.open()
    rng = np.random.default_rng(0)

    def noisy(observation: NDArray[np.float32]) -> NDArray[np.float32]:
        return observation + SIGMA * rng.standard_normal(task.spaces.shape, dtype=np.float32)

    began, steps = clock(), 0
    for episode in range(episodes):
        observation, _ = environment.reset(seed=episode)
        # Nothing of ours slows this down: noise and frame stack are two lines of numpy.
        history = deque([noisy(observation)] * task.spaces.n_stack, task.spaces.n_stack)
        over = False
        while not over:
            action, _ = model.predict(np.stack(history), deterministic=True)
            observation, _, terminated, truncated, _ = environment.step(
                action if task.spaces.n_actions is None else int(action)
            )
            history.append(noisy(observation))
            over, steps = terminated or truncated, steps + 1
    took = clock() - began
    return took / episodes, took / steps


def products_alone(policy: Policy, forwards: int, rows: int) -> float:
    """Seconds one core needs for nothing but the matrix products of ``forwards`` rows, ``rows`` at a time."""
    network = policy.network.network if isinstance(policy.network, Squashed) else policy.network
    assert isinstance(network, MLP)
    pairs = [(torch.randn(rows, layer.in_features), layer.weight.T) for layer in network.linear]
    with single_thread(), torch.inference_mode():
        for left, right in pairs:
            torch.mm(left, right)
        timed = [seconds(lambda: [torch.mm(left, right) for left, right in pairs]) for _ in range(400)]
    return statistics.median(timed) * forwards / rows


def on_cpu(task: Task, episodes: int, repeats: int) -> dict[str, Any]:
    policy, workers = zoo.load(f"{task.name}-s{SIGMA:g}"), usable_cores()
    slow, _ = paper_protocol(task, policy, 50)
    plan = Plan(task=task, policy=policy, noise=Noise.of(SIGMA), n_episodes=episodes)
    pairs = [[seconds(lambda n=n: play(plan, workers=n)) for n in (workers, 1)] for _ in range(repeats)]  # type: ignore[misc]
    played, alone = zip(*pairs, strict=True)
    ours = statistics.median(played)
    record = play(plan, workers=workers)
    certified = seconds(lambda: certify(record, BUDGETS))
    floor = products_alone(policy, int(record.lengths.sum()), task.blocks.n_envs) / workers  # type: ignore[union-attr]
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + workers * largest
    return {
        "episodes": episodes,
        "workers": workers,
        "paper_protocol_seconds": round(slow * episodes, 1),
        "paper_protocol_extrapolated_from_episodes": 50,
        "ours_seconds": round(ours, 3),
        "ours_all_seconds": [round(value, 3) for value in played],
        "certificate_seconds": round(certified, 3),
        "matrix_products_alone_seconds": round(floor, 3),
        "times_faster_than_one_worker": round(statistics.median(alone) / ours, 2),
        "times_faster_than_paper_protocol": round(slow * episodes / ours, 1),
        "times_the_matrix_products": round(ours / floor, 2),
        "peak_memory_mib_parent_and_workers": round(peak / 1024),
    }


def on_cuda(task: Task, episodes: int, repeats: int) -> dict[str, Any]:
    policy = zoo.load(f"{task.name}-s{SIGMA:g}")

    def certified(count: int) -> None:
        certify(play(Plan(task=task, policy=policy, noise=Noise.of(SIGMA), n_episodes=count, device="cuda")), BUDGETS)

    certified(65_536)
    torch.cuda.reset_peak_memory_stats()
    certified(65_536)
    small = torch.cuda.max_memory_allocated()
    timed = [seconds(lambda: certified(episodes)) for _ in range(repeats)]
    return {
        "episodes": episodes,
        "device": torch.cuda.get_device_name(),
        "seconds_with_certificate": round(statistics.median(timed), 3),
        "all_seconds": [round(value, 3) for value in timed],
        "gpu_memory_mib": round(torch.cuda.max_memory_allocated() / 2**20),
        "gpu_memory_mib_for_65536_episodes": round(small / 2**20),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="cartpole-5")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    measure = on_cpu if arguments.device == "cpu" else on_cuda
    measured = measure(get_task(arguments.task), arguments.episodes, arguments.repeats)
    result = {"task": arguments.task, **measured, "machine": platform.machine(), "versions": versions()}
    print(json.dumps(result, indent=1))
    write_json(arguments.out or HERE / "results" / f"{arguments.task}-{arguments.device}.json", result)


if __name__ == "__main__":
    main()
