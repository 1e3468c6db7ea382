"""The shipped agents under the paper's attacks, as data: Algorithm 1 on Cartpole, Algorithm 2 on Mountain Car.

    python study/attacks.py --tasks cartpole-5 cartpole-1 --sigmas 0               # bare agents, minutes on two cores
    python study/attacks.py --tasks cartpole-5 cartpole-1 --sigmas 0.2 0.4 0.6 0.8 --device cuda --jobs 16
    python study/attacks.py --tasks mountain-car --episodes 250 --sigmas 0 0.2 0.4 0.6

For each agent and method ``study/attacks/<agent>-<method>.json`` holds means, standard errors, the attack curve and the
spending over time, and the ``.npz`` beside it every episode's return and spending. With ``--jobs`` the cells of all
agents are played by that many processes, which share a GPU best under NVIDIA's MPS.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from surefoot import zoo
from surefoot.attacked import Attack, attacked_cell, attacked_records, attacked_run, cell_name
from surefoot.files import write_arrays, write_json
from surefoot.tasks import find_task
from surefoot.versions import versions
from surefoot.workers import usable_cores

HERE = Path(__file__).resolve().parent
BUDGETS = {"cartpole-5": (0.2, 0.4, 0.6, 0.8, 1.0), "cartpole-1": (0.2, 0.4, 0.6, 0.8, 1.0)}
MOUNTAIN_CAR_BUDGETS = (0.1, 0.2, 0.3, 0.4, 0.5)
# The paper's list for the task, and below it what fits the value gaps of agents that stop training early.
MARGINS = {"cartpole-5": (0, 0.05, 0.1, 0.2, 0.5, 1, 4, 6, 8, 10), "cartpole-1": (0, 0.05, 0.1, 0.2, 0.5, 1)}
# Averaging over noise makes every cell a hundred times as costly: the paper's list, and one gap below it.
SMOOTHED = {"cartpole-5": (0.1, 4, 6, 8, 10), "cartpole-1": (0.1, 0, 0.05, 1)}


def attack_of(task: str, sigma: float, arguments: argparse.Namespace) -> Attack:
    """Return the attack on one agent; Mountain Car has its own budgets and the paper's weights lambda."""
    lists = SMOOTHED if sigma > 0 else MARGINS
    margins = arguments.margins or lists.get(task, find_task(task).margins)
    return Attack(
        find_task(task),
        zoo.load(f"{task}-s{sigma:g}"),
        sigma,
        arguments.budgets or BUDGETS.get(task, MOUNTAIN_CAR_BUDGETS),
        tuple(margins),
        arguments.method,
        draws=arguments.draws,
        episodes=arguments.episodes,
        device=arguments.device,
    )


def play_cell(task: str, sigma: float, budget: float, margin: float | None, arguments: argparse.Namespace) -> str:
    """Play one cell in a process of its own."""
    began = time.monotonic()
    attack = attack_of(task, sigma, arguments)
    mean = attacked_cell(attack, budget, margin, arguments.work / attack.name).returns.mean()
    return f"{attack.policy.name} {cell_name(budget, margin)}: {mean:.2f} after {time.monotonic() - began:.0f} s"


def play_cells(attacks: list[tuple[str, float]], arguments: argparse.Namespace) -> None:
    """Play the cells of all agents side by side, gap after gap, the costliest budgets first."""
    cells = [
        (task, sigma, budget, margin)
        for task, sigma in attacks
        for budget, margin in attack_of(task, sigma, arguments).cells()
    ]
    cells.sort(key=lambda cell: (attack_of(*cell[:2], arguments).columns.index(cell[3]), -cell[2]))
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.jobs, mp_context=fresh) as pool:
        for waiting in [pool.submit(play_cell, *cell, arguments) for cell in cells]:
            print(waiting.result(), flush=True)


def write_results(task: str, sigma: float, arguments: argparse.Namespace) -> None:
    """Attack one agent, or read what was played, and write its files."""
    attack = attack_of(task, sigma, arguments)
    workers = usable_cores() if arguments.device == "cpu" else 1
    folder = arguments.work / attack.name
    result = attacked_run(attack, folder, workers=workers)
    arrays: dict[str, NDArray[np.float64]] = {}
    for (budget, margin), record in zip(attack.cells(), attacked_records(attack, folder), strict=True):
        cell = cell_name(budget, margin)
        assert record.spent is not None
        arrays[f"{cell}.returns"], arrays[f"{cell}.spent"] = record.returns, record.spent
    name = arguments.out / f"{attack.policy.name}-{attack.method}"
    write_arrays(name.with_name(f"{name.name}.npz"), arrays)
    write_json(name.with_name(f"{name.name}.json"), {**result, "device": arguments.device, "versions": versions()})
    curve = ", ".join(f"{mean:.3f}" for mean in result["curve"])
    print(f"{attack.policy.name} {attack.method}: {curve} at budgets {attack.budgets}", flush=True)


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["cartpole-5", "cartpole-1"])
    parser.add_argument("--sigmas", nargs="+", type=float, default=[0.0, 0.2, 0.4, 0.6, 0.8])
    parser.add_argument("--method", default="paper")
    parser.add_argument("--budgets", nargs="+", type=float)
    parser.add_argument("--margins", nargs="+", type=float)
    parser.add_argument("--draws", type=int, default=128)
    parser.add_argument("--episodes", type=int, default=1_000)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path("runs"))
    parser.add_argument("--out", type=Path, default=HERE / "attacks")
    arguments = parser.parse_args()
    attacks = [(task, sigma) for task in arguments.tasks for sigma in arguments.sigmas]
    if arguments.jobs > 1:
        play_cells(attacks, arguments)
    for task, sigma in attacks:
        write_results(task, sigma, arguments)


if __name__ == "__main__":
    main()
