"""Batched episodes of a GRU agent on Cartpole against the matrix products that they need.

    python bench/recurrent.py                                                  # ratio on this machine's cores
    python bench/recurrent.py --agent AGENT                                    # of another agent than the hand-made one
    python bench/recurrent.py --agent AGENT --device cuda --episodes 1000000   # a million certified episodes on one GPU

Everything is measured in one run, products and episodes in turn; of repeated timings the median counts. Results go to
``bench/results``.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from surefoot import certify
from surefoot.agents.memory import Recurrent
from surefoot.agents.networks import MLP
from surefoot.agents.policies import Policy, Spaces
from surefoot.agents.recurrent import Encoder, Form, recurrent_policy
from surefoot.agents.resolve import as_policy
from surefoot.compute import single_thread, usable_cores
from surefoot.files import write_json
from surefoot.noise import Noise
from surefoot.play.loop import play_block
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.tasks import get_task
from surefoot.provenance import versions

SIGMA, BUDGETS, KEEP = 0.2, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0], 0.7
GAINS = np.array([0.1, 0.3, 1.0, 0.5])
HERE = Path(__file__).resolve().parent


def averaging(width: int) -> Policy:
    """Return an agent that pushes where a running mean of the noisy pole falls; all units but one are random."""
    rng = np.random.default_rng(0)
    shapes = {"weight_ih": (3, width, width), "weight_hh": (3, width, width), "bias_ih": (3, width)}
    cell = {name: rng.normal(size=shape) / width**0.5 for name, shape in shapes.items()} | {
        "bias_hh": np.zeros(3 * width)
    }
    first, head = rng.normal(size=(width, 6)), np.zeros((2, width))
    for name in shapes:
        cell[name][:, 0] = 0.0
    # The first unit: the first input, averaged with weight 1 - KEEP.
    cell["weight_ih"][2, 0, 0], cell["bias_ih"][1, 0] = 1.0, np.log(KEEP / (1 - KEEP))
    first[0], head[:, 0] = [*(0.2 * GAINS), 0.0, 0.0], [-1.0, 1.0]
    flat = {name: array.reshape(3 * width, *array.shape[2:]) for name, array in cell.items()}
    zeros = {"bias_hh": 3 * width, "encoder0.bias": width, "head0.bias": 2}
    ends = {"encoder0.weight": first, "head0.weight": head} | {name: np.zeros(size) for name, size in zeros.items()}
    arrays = {name: array.astype(np.float32) for name, array in (flat | ends).items()}
    return recurrent_policy(arrays, Spaces(shape=(4,), n_actions=2), Form(), f"averaging-{width}")


def seconds(work: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    began = clock()
    work()
    return clock() - began


def product_pairs(policy: Policy, rows: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the factors of all products of one step: encoder, cell, head."""
    memory, head = policy.memory, policy.network
    assert isinstance(memory, Recurrent)
    assert isinstance(head, MLP)
    encoder = memory.encoder.layers.linear if isinstance(memory.encoder, Encoder) else []
    weights = [layer.weight for layer in (*encoder, *head.linear)] + [memory.cell.weight_ih, memory.cell.weight_hh]
    return [(torch.randn(rows, weight.shape[1]), weight.T) for weight in weights]


def products(pairs: list[tuple[torch.Tensor, torch.Tensor]], steps: int) -> None:
    with single_thread(), torch.inference_mode():
        for _ in range(steps):
            for left, right in pairs:
                torch.mm(left, right)


def on_cpu(policy: Policy, episodes: int, repeats: int) -> dict[str, Any]:
    """Time all episodes by the clock on all cores, and single blocks by the time of their own process."""
    plan = Plan(task=get_task("cartpole-1"), policy=policy, noise=Noise.of(SIGMA), n_episodes=episodes)
    pairs, workers = product_pairs(policy, plan.block_envs), usable_cores()
    record, steps = play_block(plan, 0), plan.task.scoring.max_steps
    assert record.lengths is not None
    # Rows that are over are dropped: products are needed for the steps that were run.
    share = float(record.lengths.sum()) / (steps * plan.block_envs)
    walls, blocks, floors = [], [], []
    for _ in range(repeats):
        walls.append(seconds(lambda: play(plan, workers=workers)))
        blocks.append(seconds(lambda: play_block(plan, 0), time.process_time))
        floors.append(share * seconds(lambda: products(pairs, steps), time.process_time))
    wall, block, floor = (statistics.median(timed) for timed in (walls, blocks, floors))
    return {
        "episodes": episodes,
        "workers": workers,
        "mean_return": round(float(record.returns.mean()), 2),
        "all_episodes_seconds": round(wall, 3),
        "all_episodes_times_the_matrix_products": round(wall / (floor * plan.n_blocks / workers), 2),
        "block_cpu_seconds": round(block, 4),
        "block_cpu_seconds_all": [round(value, 4) for value in blocks],
        "matrix_products_cpu_seconds": round(floor, 4),
        "times_the_matrix_products": round(block / floor, 2),
    }


def on_cuda(policy: Policy, episodes: int, repeats: int) -> dict[str, Any]:
    task = get_task("cartpole-1")

    def certified(count: int) -> None:
        plan = Plan(task=task, policy=policy, noise=Noise.of(SIGMA), n_episodes=count, device="cuda")
        certify(play(plan), BUDGETS)

    certified(65_536)
    timed = [seconds(lambda: certified(episodes)) for _ in range(repeats)]
    return {
        "episodes": episodes,
        "device": torch.cuda.get_device_name(),
        "seconds_with_certificate": round(statistics.median(timed), 3),
        "all_seconds": [round(value, 3) for value in timed],
        "gpu_memory_mib": round(torch.cuda.max_memory_allocated() / 2**20),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agent", help="name or path of a GRU agent (default: a hand-made one)")
    parser.add_argument("--width", type=int, default=128, help="of the hand-made one")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="result file (default: under bench/results)")
    options = parser.parse_args()
    policy = averaging(options.width) if options.agent is None else as_policy(options.agent)
    measured = (on_cpu if options.device == "cpu" else on_cuda)(policy, options.episodes, options.repeats)
    result = {"agent": policy.name, **measured, "machine": platform.machine(), "versions": versions()}
    print(json.dumps(result, indent=1))
    write_json(options.out or HERE / "results" / f"recurrent-{options.device}.json", result)


if __name__ == "__main__":
    main()
