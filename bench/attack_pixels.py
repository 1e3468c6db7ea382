"""Algorithm 1 on a smoothed pixel agent: the first convolution once per step against the whole network at every try.

    python bench/attack_pixels.py                            # one core
    python bench/attack_pixels.py --device cuda --episodes 64 --draws 128

Both attack the same rounds of Pong with the same noise, one after the other in one run, emulators loaded before. On a
CPU it is the time of the processor that counts. They are to spend the same, up to rounding, which is shown.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np

from surefoot.agents import files as zoo
from surefoot.attacks.victim import VictimBatch
from surefoot.files import write_json
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.tasks import get_task
from surefoot.provenance import versions
from surefoot.runs.attacked import AttackGrid

HERE = Path(__file__).resolve().parent
AGENT, SIGMA, BUDGET, LAMBDA = "pong-1r-s0.05", 0.05, 0.3, 0.3


def timed(attack: AttackGrid) -> dict[str, float]:
    """Play the attacked episodes."""
    clock = time.process_time if attack.base.device == "cpu" else time.perf_counter
    began = clock()
    record = play(attack.plan(BUDGET, LAMBDA))
    took = clock() - began
    assert record.budget_used is not None
    return {"seconds": took, "mean": float(record.returns.mean()), "mean_spent": float(np.mean(record.budget_used))}


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--episodes", type=int, default=4)
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--out", type=Path, help="default: bench/results/attack-pixels-<device>.json")
    arguments = parser.parse_args()
    attack = AttackGrid(
        base=Plan(
            task=get_task("pong-1r"),
            policy=zoo.load(AGENT),
            noise=Noise.of(SIGMA),
            n_episodes=arguments.episodes,
            device=arguments.device,
        ),
        budgets=(BUDGET,),
        lambdas=(LAMBDA,),
        noise_samples=arguments.draws,
    )
    play(attack.plan(0.0, LAMBDA))
    results = {"apart": timed(attack)}
    with patch.object(VictimBatch, "compute_first_layer", lambda _batch: None):
        results["whole"] = timed(attack)
    ratio = results["whole"]["seconds"] / results["apart"]["seconds"]
    setup = {
        "agent": AGENT,
        "budget": BUDGET,
        "lambda": LAMBDA,
        "draws": attack.noise_samples,
        "episodes": attack.base.n_episodes,
    }
    result = {"setup": {**setup, "device": attack.base.device}, **results, "ratio": ratio, "versions": versions()}
    write_json(arguments.out or HERE / "results" / f"attack-pixels-{attack.base.device}.json", result)
    print(json.dumps({"ratio": round(ratio, 3), **results}))


if __name__ == "__main__":
    main()
