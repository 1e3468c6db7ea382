"""Algorithm 1 on the bare cartpole-5 agent: the batched attack against the line-by-line reference, per gradient.

    python bench/attack.py

Both are timed in one run on the same agent and budget. The batched one attacks 1,000 episodes; the reference, which
takes one row at a time, attacks a few, and both are divided by the gradients they computed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from surefoot.agents import files as zoo
from surefoot.agents.networks import MLP
from surefoot.attacks.dqn import PaperAttack
from surefoot.attacks.victim import Smoothing, VictimBatch
from surefoot.compute import single_thread, usable_cores
from surefoot.files import write_json
from surefoot.noise import Noise
from surefoot.play.channel import View
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.tasks import get_task
from surefoot.provenance import versions

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))  # where the reference lies

MARGIN, BUDGET = 0.0, 1.0


def batched(episodes: int, workers: int) -> dict[str, float]:
    """Time the batched attack as users run it, then count its gradients in a second, untimed run."""
    policy, task = zoo.load("cartpole-5-s0"), get_task("cartpole-5")
    plan = Plan(
        task=task, policy=policy, noise=Noise.of(0.0), n_episodes=episodes, attacker=PaperAttack(MARGIN), budget=BUDGET
    )
    began = time.perf_counter()
    record = play(plan, workers=workers)
    took = time.perf_counter() - began
    count, honest = [0], VictimBatch.values_and_gradient

    def counting(scene: VictimBatch, moved: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        count[0] += len(moved)
        return honest(scene, moved, actions)

    with patch.object(VictimBatch, "values_and_gradient", counting):
        play(plan)
    return {"seconds": took, "gradients": float(count[0]), "mean_return": float(record.returns.mean())}


def line_by_line(episodes: int) -> dict[str, float]:
    """Time the reference of the tests on a few episodes."""
    reference = importlib.import_module("test_attacks_paper")
    policy, task = zoo.load("cartpole-5-s0"), get_task("cartpole-5")
    count, honest = [0], torch.autograd.grad

    def counting(*rest: Any, **named: Any) -> Any:
        count[0] += 1
        return honest(*rest, **named)

    with patch.object(torch.autograd, "grad", counting):
        began = time.perf_counter()
        play(
            Plan(
                task=task,
                policy=policy,
                noise=Noise.of(0.0),
                n_episodes=episodes,
                attacker=reference.LineByLine(MARGIN),
                budget=BUDGET,
            )
        )
        took = time.perf_counter() - began
    return {"seconds": took, "gradients": float(count[0])}


def smoothed_share(rows: int = 128, draws: int = 128, repeats: int = 20) -> float:
    """Return how much of the smoothed attack's gradient time its matrix products alone would need, on one core."""
    policy = zoo.load("cartpole-5-s0.2")
    network = policy.network
    assert isinstance(network, MLP)
    smoothing = Smoothing(0.2, draws)
    some = torch.arange(rows)
    context = torch.randn(rows, policy.spaces.n_stack, 4)
    import numpy as np

    from surefoot.play.streams import Stream

    stream = Stream(np.random.SeedSequence(0), torch.device("cpu"))
    budget_left = torch.ones(rows, dtype=torch.float64)
    zeros = torch.zeros(rows, 4)
    view = View(
        episode=some,
        step=some + 9,
        observation=zeros,
        state=None,
        memory=context,
        clean=context,
        action=None,
        last_perturbation=zeros,
        noise=zeros,
        budget_left=budget_left,
        policy=policy,
        stream=stream,
    )
    scene, actions = VictimBatch.of(view, some, smoothing), torch.zeros(rows, dtype=torch.long)
    with single_thread():
        scene.values_and_gradient(zeros, actions)
        began = time.perf_counter()
        for _ in range(repeats):
            scene.values_and_gradient(zeros, actions)
        attack = time.perf_counter() - began
        pairs = [(torch.randn(rows * draws, layer.in_features), layer.weight.T) for layer in network.linear]
        began = time.perf_counter()
        for _ in range(repeats):
            for left_factor, weight in pairs:
                torch.mm(torch.mm(left_factor, weight), weight.T)
        products = time.perf_counter() - began
    return products / attack


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=1_000)
    parser.add_argument("--reference-episodes", type=int, default=4)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "attack-cpu.json")
    arguments = parser.parse_args()
    workers = usable_cores()
    fast, slow = batched(arguments.episodes, workers), line_by_line(arguments.reference_episodes)
    per_gradient = [side["seconds"] / side["gradients"] for side in (fast, slow)]
    result = {
        "episodes": arguments.episodes,
        "budget": BUDGET,
        "lambda_q": MARGIN,
        "workers": workers,
        "seconds": round(fast["seconds"], 2),
        "seconds_per_episode": round(fast["seconds"] / arguments.episodes, 5),
        "microseconds_per_gradient": round(per_gradient[0] * 1e6, 3),
        "reference_microseconds_per_gradient": round(per_gradient[1] * 1e6, 3),
        "times_faster_per_gradient": round(per_gradient[1] / per_gradient[0], 1),
        "smoothed_attack_share_in_matrix_products": round(smoothed_share(), 3),
        "versions": versions(),
    }
    print(json.dumps(result, indent=1))
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
