"""Rounds of Pong by one process and by one process per core, on one machine: how play scales with cores.

    python bench/cores.py                  # 16 cores: about a minute

Emulators take most of the time, so this is what a cluster of CPUs brings. A process has the same number of blocks in
both measurements, and its start is part of the time. Results go to ``bench/results/cores.json``.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path

from surefoot.agents import files as zoo
from surefoot.compute import usable_cores
from surefoot.files import write_json
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.tasks import get_task
from surefoot.provenance import versions

TASK, AGENT, SIGMA = "pong-1r", "pong-1r-s0.05", 0.05
BLOCKS, EPISODES_PER_ENV = 2, 2  # blocks of a process; short ones, so that no process waits long for the last
RESULTS = Path(__file__).resolve().parent / "results" / "cores.json"


def steps_per_second(workers: int) -> float:
    """Return the agent steps per second of so many processes."""
    task = get_task(TASK)
    plan = Plan(
        task=task,
        policy=zoo.load(AGENT),
        noise=Noise.of(SIGMA),
        n_episodes=workers * BLOCKS * task.blocks.n_envs * EPISODES_PER_ENV,
        episodes_per_env=EPISODES_PER_ENV,
    )
    began = time.monotonic()
    lengths = play(plan, workers=workers).lengths
    assert lengths is not None
    return float(lengths.sum()) / (time.monotonic() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=usable_cores(), help="processes (default: one per core)")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    one, all_of_them = (steps_per_second(workers) for workers in (1, arguments.workers))
    result = {
        "schema": 1,
        "task": TASK,
        "agent": AGENT,
        "workers": arguments.workers,
        "steps_per_second_of_one": round(one, 1),
        "steps_per_second_of_all": round(all_of_them, 1),
        "times_one": round(all_of_them / one, 2),
        "machine": platform.machine(),
        "versions": versions(),
    }
    print(json.dumps(result, indent=1))
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
