"""How fast a learned attacker attacks and learns: episodes per second without attack, under it, and in training.

python bench/learned_attack.py            # writes bench/results/learned_attack.json
python bench/learned_attack.py --device cuda --agents cartpole-5-gru-polished-s0.35
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from surefoot.agents.files import load, load_card
from surefoot.attacks.learning import AttackerTraining, train_attacker
from surefoot.compute import processor_kind
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.streams import Purpose
from surefoot.play.tasks import TASKS

RESULTS = Path(__file__).parent / "results" / "learned_attack.json"
BUDGET = 1.0


def measure(name: str, device: str, n_episodes: int, iterations: int) -> dict[str, Any]:
    """Return episodes per second of one agent."""
    card = load_card(name)
    noise = Noise.of(card["sigma"])
    task = TASKS[card["task"]]
    plan = Plan(task=task, policy=load(name), noise=noise, n_episodes=n_episodes, device=device, episodes_per_env=1)
    training = AttackerTraining(iterations=iterations)
    began = time.perf_counter()
    attacker = train_attacker(plan, [BUDGET], training)
    trained = time.perf_counter() - began
    n_envs = training.on(plan).n_envs
    assert n_envs is not None
    rates = {}
    for what, one in (("plain", None), ("attacked", attacker)):
        budget = 0.0 if one is None else BUDGET
        began = time.perf_counter()
        play(replace(plan, attacker=one, budget=budget, purpose=(Purpose.ATTACK,)))
        rates[what] = n_episodes / (time.perf_counter() - began)
    return {
        "agent": name,
        "episodes_per_second": rates,
        "iterations_per_second": iterations / trained,
        "trained_episodes_per_second": iterations * n_envs / trained,
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--episodes", type=int, default=1_000)
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--agents", nargs="+", default=["cartpole-5-s0.4", "cartpole-5-gru-polished-s0.35"])
    arguments = parser.parse_args()
    rows = [measure(name, arguments.device, arguments.episodes, arguments.iterations) for name in arguments.agents]
    result = {"processor": processor_kind(arguments.device), "rows": rows}
    print(json.dumps(result, indent=1))
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
