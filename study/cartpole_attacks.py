"""Cartpole under attack: every shipped agent, Algorithm 1 and the adaptive attack, as data.

    python study/cartpole_attacks.py --sigmas 0                       # bare agents, minutes on two cores
    python study/cartpole_attacks.py --sigmas 0.2 0.4 --device cuda   # smoothed agents, 128 noise draws

For each agent and method ``study/cartpole-attacks/<agent>-<method>.json`` holds means, standard errors, the attack
curve and the spending over time, and the ``.npz`` beside it every episode's return and spending.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from surefoot import zoo
from surefoot.attacked import Attack, attacked_records, attacked_run, cell_name
from surefoot.files import write_arrays, write_json
from surefoot.tasks import find_task
from surefoot.versions import versions
from surefoot.workers import usable_cores

HERE = Path(__file__).resolve().parent
BUDGETS = (0.2, 0.4, 0.6, 0.8, 1.0)
# The paper's list for the task, and below it what fits the value gaps of agents that stop training early.
MARGINS = {"cartpole-5": (0, 0.05, 0.1, 0.2, 0.5, 1, 4, 6, 8, 10), "cartpole-1": (0, 0.05, 0.1, 0.2, 0.5, 1)}


def study(task: str, sigma: float, method: str, arguments: argparse.Namespace) -> None:
    """Attack one agent and write its files."""
    margins = MARGINS[task] if arguments.margins is None else tuple(arguments.margins)
    policy = zoo.load(f"{task}-s{sigma:g}")
    attack = Attack(
        find_task(task),
        policy,
        sigma,
        BUDGETS,
        margins,
        method,
        draws=arguments.draws,
        episodes=arguments.episodes,
        device=arguments.device,
    )
    workers = usable_cores() if arguments.device == "cpu" else 1
    folder = arguments.work / attack.name
    result = attacked_run(attack, folder, workers=workers)
    arrays: dict[str, NDArray[np.float64]] = {}
    for (budget, margin), record in zip(attack.cells(), attacked_records(attack, folder), strict=True):
        cell = cell_name(budget, margin)
        assert record.spent is not None
        arrays[f"{cell}.returns"], arrays[f"{cell}.spent"] = record.returns, record.spent
    name = arguments.out / f"{policy.name}-{method}"
    write_arrays(name.with_name(f"{name.name}.npz"), arrays)
    write_json(name.with_name(f"{name.name}.json"), {**result, "device": arguments.device, "versions": versions()})
    curve = ", ".join(f"{mean:.1f}" for mean in result["curve"])
    print(f"{policy.name} {method}: {curve} at budgets {BUDGETS}", flush=True)


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["cartpole-5", "cartpole-1"])
    parser.add_argument("--sigmas", nargs="+", type=float, default=[0.0, 0.2, 0.4, 0.6, 0.8])
    parser.add_argument("--methods", nargs="+", default=["paper"])
    parser.add_argument("--margins", nargs="+", type=float)
    parser.add_argument("--draws", type=int, default=128)
    parser.add_argument("--episodes", type=int, default=1_000)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--work", type=Path, default=Path("runs"))
    parser.add_argument("--out", type=Path, default=HERE / "cartpole-attacks")
    arguments = parser.parse_args()
    for task in arguments.tasks:
        for sigma in arguments.sigmas:
            for method in arguments.methods:
                study(task, sigma, method, arguments)


if __name__ == "__main__":
    main()
