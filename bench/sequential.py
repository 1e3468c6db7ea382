"""How many episodes it takes to prove a required mean: stopping by itself against the paper's method with n settled.

    python bench/sequential.py                          # 145@0.4 for cartpole-5-s0.2, 50 seeds
    python bench/sequential.py --require 160@0.4 --most 8000

For every seed fresh episodes are run. The sequential run looks after every block and stops once the requirement is
proved. The paper's method needs its number of episodes in advance: the least multiple of a block with which it proves
the requirement for at least half of the seeds (and, for comparison, for nine in ten). Results go to ``bench/results``.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.agents import files as zoo
from surefoot.api.query import Requirement
from surefoot.cli.options import parse_requirement
from surefoot.episodes import Episodes
from surefoot.files import write_json
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.tasks import get_task
from surefoot.proof.query import certify
from surefoot.proof.stopping import Monitor, StoppingRule
from surefoot.provenance import versions

HERE = Path(__file__).resolve().parent
AGENT, SIGMA, CONFIDENCE = "cartpole-5-s0.2", 0.2, 0.95


def stopped_after(record: Episodes, block: int, required: Requirement) -> int | None:
    """Return after how many episodes the sequential run has proved the requirement."""
    rule = StoppingRule(budget=required.budget, require=required.mean)
    monitor = Monitor(rule, confidence=CONFIDENCE, sigma=SIGMA, floor=record.floor, ceiling=record.ceiling)
    for n in range(block, len(record) + 1, block):
        if monitor.reason_to_stop(record.returns[:n]) == "proved":
            return n
    return None


def as_planned(record: Episodes, n: int) -> Episodes:
    """Return the first n episodes as a run would have recorded them that planned no more."""
    return replace(record[:n], metadata={**record.metadata, "planned": n})


def proved_by_paper(record: Episodes, block: int, required: Requirement) -> list[bool]:
    """Return for every number of blocks whether the paper's method would have proved the requirement."""
    return [
        bool(certify(as_planned(record, n), [required.budget], CONFIDENCE, "paper").lower[0] >= required.mean)
        for n in range(block, len(record) + 1, block)
    ]


def needed(shares: np.ndarray[Any, Any], block: int, share: float) -> int | None:
    """Return the least number of episodes from which on that share of seeds is proved."""
    enough = np.flatnonzero(shares >= share)
    return None if enough.size == 0 else int((enough[0] + 1) * block)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--require", default="145@0.4")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--most", type=int, default=3000, help="episodes per seed")
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    required = parse_requirement(arguments.require)
    task, policy = get_task("cartpole-5"), zoo.load(AGENT)
    stops, paper = [], []
    for seed in range(1000, 1000 + arguments.seeds):  # seeds of their own
        plan = Plan(task=task, policy=policy, noise=Noise.of(SIGMA), n_episodes=arguments.most, seed=seed)
        record, block = play(plan, workers=arguments.workers), plan.block_size
        stops.append(stopped_after(record, block, required))
        paper.append(proved_by_paper(record, block, required))
        print(seed, stops[-1], sum(not one for one in paper[-1]) * block, flush=True)
    shares = np.mean(np.array(paper), axis=0)
    proved = [stop for stop in stops if stop is not None]
    half, most = needed(shares, block, 0.5), needed(shares, block, 0.9)
    result = {
        "schema": 1,
        "agent": AGENT,
        "agent_sha256": policy.sha256,
        "require": arguments.require,
        "confidence": CONFIDENCE,
        "seeds": arguments.seeds,
        "stops": stops,
        "sequential_mean": None if len(proved) < len(stops) else float(np.mean(proved)),
        "sequential_proved": len(proved),
        "paper_for_half_of_the_seeds": half,
        "paper_for_nine_in_ten": most,
        "ratio": None if half is None or len(proved) < len(stops) else float(np.mean(proved)) / half,
        "versions": versions(),
    }
    write_json(HERE / "results" / f"sequential-{arguments.require.replace('@', '-at-')}.json", result)
    print({key: result[key] for key in ("sequential_mean", "paper_for_half_of_the_seeds", "ratio")})


if __name__ == "__main__":
    main()
