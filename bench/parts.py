"""Where the time of a block goes on one core: matrix products, the rest of the network, noise, dynamics, bookkeeping.

    python bench/parts.py        # cartpole-5, Mountain Car, and GRU agents of width 64 and 128; about a minute

Blocks and the products that they need are timed in turn, in processor time of their thread; the ratio of the medians
counts. The parts are timed inside other blocks, call by call. One environment with one ``predict`` per step is timed
too: how often its time contains that of a block's step and row, and that of the products alone, says how many times as
fast a core with batches is, and could be at most. Results go to ``bench/results``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from recurrent import averaging
from torch import nn

from play import paper_protocol
from surefoot.agents import files as zoo
from surefoot.agents import memory
from surefoot.agents.policies import Policy
from surefoot.compute import single_thread
from surefoot.files import write_json
from surefoot.noise import Noise
from surefoot.play.channel import Channel
from surefoot.play.envs.cartpole import CartPole
from surefoot.play.envs.mountain_car import MountainCar
from surefoot.play.loop import play_block
from surefoot.play.plan import Plan
from surefoot.play.streams import Stream
from surefoot.play.tasks import get_task
from surefoot.provenance import versions

SIGMA, STEPS = 0.2, 50
HERE = Path(__file__).resolve().parent
# What is timed: in which part it counts, and from which part its time is taken because it is called there.
CALLS: list[tuple[Any, str, str, str | None]] = [
    (Policy, "act", "network", None),
    (memory.Recurrent, "advance", "network", None),
    (memory, "with_action", "frames_and_last_actions", "network"),
    (memory.FrameStack, "advance", "frames_and_last_actions", None),
    (Channel, "send", "rest_of_the_channel", None),
    (Stream, "normal", "noise", "rest_of_the_channel"),
    (CartPole, "step", "dynamics", None),
    (MountainCar, "step", "dynamics", None),
]


def seconds(work: Callable[[], Any]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def products(policy: Policy, rows: int) -> Callable[[], None]:
    """Return what computes the products of ``STEPS`` steps of so many rows."""
    modules = [
        module for part in (policy.network, policy.memory) if isinstance(part, nn.Module) for module in part.modules()
    ]
    weights = [module.weight for module in modules if isinstance(module, nn.Linear)]
    weights += [
        weight for cell in modules if isinstance(cell, nn.GRUCell) for weight in (cell.weight_ih, cell.weight_hh)
    ]
    pairs = [(torch.randn(rows, weight.shape[1]), weight.T) for weight in weights]

    def compute() -> None:
        with single_thread(), torch.inference_mode():
            for _ in range(STEPS):
                for left, right in pairs:
                    torch.mm(left, right)

    return compute


@contextmanager
def parts() -> Iterator[dict[str, float]]:
    """Count the seconds of every part; the loop itself must not be changed for it."""
    taken: dict[str, float] = defaultdict(float)

    def timed(call: Callable[..., Any], part: str, inside: str | None) -> Callable[..., Any]:
        def replacement(*args: Any, **kwargs: Any) -> Any:
            began = time.thread_time()
            result = call(*args, **kwargs)
            spent = time.thread_time() - began
            taken[part] += spent
            if inside is not None:
                taken[inside] -= spent
            return result

        return replacement

    with ExitStack() as patches:
        for owner, name, part, inside in CALLS:
            patches.enter_context(patch.object(owner, name, timed(getattr(owner, name), part, inside)))
        yield taken


def measure(task: str, policy: Policy, repeats: int) -> dict[str, Any]:
    """Return the time of blocks of an agent, of the products that they need, and of the parts."""
    plan = Plan(task=get_task(task), policy=policy, noise=Noise.of(SIGMA))
    compute = products(policy, plan.block_envs)
    record = play_block(plan, 0)
    assert record.lengths is not None
    steps, needed = int(record.lengths.max()), float(record.lengths.sum()) / plan.block_envs
    compute()
    timed: dict[str, list[float]] = defaultdict(list)
    for _ in range(repeats):
        timed["block"].append(seconds(lambda: play_block(plan, 0)))
        timed["matrix_products"].append(seconds(compute) * needed / STEPS)
        with parts() as taken:
            whole = seconds(lambda: play_block(plan, 0))
        taken["bookkeeping"] = whole - sum(taken.values())
        taken["rest_of_the_network"] = taken.pop("network") - timed["matrix_products"][-1]
        for name, spent in taken.items():
            timed[name].append(spent)
    split = {name: statistics.median(spent) for name, spent in timed.items()}
    block, floor = split.pop("block"), split["matrix_products"]
    ratios = [one / other for one, other in zip(timed["block"], timed["matrix_products"], strict=True)]
    return {
        "rows": plan.block_envs,
        "steps": steps,
        "block_ms": round(1e3 * block, 1),
        "matrix_products_ms": round(1e3 * floor, 1),
        "times_the_matrix_products": round(block / floor, 2),
        "times_the_matrix_products_all": [round(ratio, 2) for ratio in ratios],
        "microseconds_per_step": {name: round(1e6 * spent / steps, 1) for name, spent in split.items()},
        **(one_by_one(plan, block, floor, int(record.lengths.sum())) if policy.stacks_frames else {}),
    }


def one_by_one(plan: Plan, block: float, floor: float, rows: int) -> dict[str, float]:
    """Return how long a step takes with one environment, against a row of a block and against its products."""
    with single_thread():
        _, step = paper_protocol(plan.task, plan.policy, 30, time.thread_time)
    return {
        "one_by_one_microseconds_per_step": round(1e6 * step, 1),
        "times_faster_than_one_by_one_on_two_cores": round(2 * step * rows / block, 1),
        "times_faster_with_nothing_but_products": round(2 * step * rows / floor, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "parts.json")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    agents = {
        "cartpole-5": ("cartpole-5", zoo.load("cartpole-5-s0.2")),
        "mountain-car": ("mountain-car", zoo.load("mountain-car-s0.2")),
        **{f"gru-{width}": ("cartpole-1", averaging(width)) for width in (64, 128)},
    }
    result = {
        "blocks": {name: measure(task, policy, arguments.repeats) for name, (task, policy) in agents.items()},
        "load_before": round(load, 1),
        "load_after": round(os.getloadavg()[0], 1),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "versions": versions(),
    }
    print(json.dumps(result, indent=1))
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
