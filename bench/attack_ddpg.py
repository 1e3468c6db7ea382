"""Algorithm 2 on Mountain Car: seconds per attacked episode, undefended and smoothed, next to the paper's.

    python bench/attack_ddpg.py

The paper reports 44.0 seconds per attacked episode at its smallest budget and 19.6 at its largest, one at a time.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from surefoot.agents import files as zoo
from surefoot.compute import usable_cores
from surefoot.files import write_json
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.tasks import get_task
from surefoot.provenance import versions
from surefoot.runs.attacked import AttackGrid

HERE = Path(__file__).resolve().parent
WEIGHT, BUDGET = 0.0001, 0.3


def attacked(sigma: float, episodes: int, draws: int) -> dict[str, Any]:
    """Time one cell as users run it."""
    task, policy = get_task("mountain-car"), zoo.load(f"mountain-car-s{sigma:g}")
    attack = AttackGrid(
        base=Plan(task=task, policy=policy, noise=Noise.of(sigma), n_episodes=episodes),
        budgets=(BUDGET,),
        lambdas=(WEIGHT,),
        noise_samples=draws,
    )
    began = time.perf_counter()
    record = play(attack.plan(BUDGET, WEIGHT), workers=usable_cores())
    took = time.perf_counter() - began
    return {
        "episodes": episodes,
        "seconds": round(took, 2),
        "seconds_per_episode": round(took / episodes, 4),
        "mean_return": float(record.returns.mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=250)
    parser.add_argument("--smoothed-episodes", type=int, default=16)
    parser.add_argument("--draws", type=int, default=128)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "attack-ddpg-cpu.json")
    arguments = parser.parse_args()
    result = {
        "budget": BUDGET,
        "lambda": WEIGHT,
        "draws": arguments.draws,
        "workers": usable_cores(),
        "bare": attacked(0.0, arguments.episodes, arguments.draws),
        "smoothed": attacked(0.2, arguments.smoothed_episodes, arguments.draws),
        "paper_seconds_per_episode": {"smallest budget": 44.0, "largest budget": 19.6},
        "versions": versions(),
    }
    print(json.dumps(result, indent=1))
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
