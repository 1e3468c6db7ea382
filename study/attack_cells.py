"""The pretrained agents under the paper's attacks, as data: Algorithm 1 on CartPole, Algorithm 2 on Mountain Car.

    python -m study.attack_cells --tasks cartpole-5 cartpole-1 --sigmas 0    # undefended agents, minutes on two cores
    python -m study.attack_cells --tasks cartpole-5 cartpole-1 --sigmas 0.2 0.4 0.6 0.8 --device cuda --jobs 16
    python -m study.attack_cells --tasks mountain-car --sigmas 0 0.2 0.4 0.6
    python -m study.attack_cells --tasks pong-1r --sigmas 0.1 --margins 0.5 --episodes 256 --device cuda --add

For each agent and method, ``study/data/attacks/<agent>-<method>.json`` holds means, standard errors, the attack curve
and the budget used over time; the ``.npz`` next to it holds every episode's return and budget used. With ``--jobs`` the
configurations of all agents are run by that many processes, which share a GPU best under NVIDIA's MPS.

Attacks on smoothed agents are costly: more episodes, or another lambda, do not require running the whole grid again.
With ``--add`` every configuration that is not asked for stays as it is in these files, and where both have one, the
longer run counts. ``n_episodes_of_cells`` then says how many episodes each has, and ``n_episodes`` is the smallest.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.measure import Place, attack_agent, attack_of
from study.numbers import DATA, Agent, shipped_agents
from study.sizes import AttackSize, full
from surefoot.compute import usable_cores
from surefoot.files import read_arrays, read_json, write_arrays, write_json
from surefoot.report.sentences import IDLE_SHARE
from surefoot.runs.attacked import AttackGrid, run_configuration, summary
from surefoot.runs.folder import configuration_name

Arrays = dict[str, NDArray[np.float64]]


def agent_of(task: str, sigma: float) -> Agent:
    """Return the pretrained agent of a task and a sigma."""
    found = [agent for agent in shipped_agents() if (agent.task, agent.sigma) == (task, sigma)]
    if not found:
        raise SystemExit(f"attacks: there is no pretrained agent for {task} at sigma {sigma:g}")
    return found[0]


def size_of(task: str, sigma: float, arguments: argparse.Namespace) -> AttackSize:
    """Return the grid of the attack on one agent: the study's, or what was asked for."""
    size = full(task).attacks(sigma)
    return replace(
        size,
        budgets=tuple(arguments.budgets or size.budgets),
        lambdas=tuple(arguments.margins or size.lambdas),
        episodes=arguments.episodes or size.episodes,
        draws=arguments.draws,
    )


def attack_on(task: str, sigma: float, arguments: argparse.Namespace) -> AttackGrid:
    """Return the attack on one agent."""
    return attack_of(agent_of(task, sigma), size_of(task, sigma, arguments), arguments.device, arguments.method)


def play_cell(task: str, sigma: float, budget: float, margin: float | None, arguments: argparse.Namespace) -> str:
    """Run one configuration in a process of its own."""
    began = time.monotonic()
    attack = attack_on(task, sigma, arguments)
    mean = run_configuration(attack, budget, margin, arguments.work / attack.name).returns.mean()
    which = f"{attack.base.policy.name} {configuration_name(budget, margin)}"
    return f"{which}: {mean:.2f} after {time.monotonic() - began:.0f} s"


def play_cells(attacks: list[tuple[str, float]], arguments: argparse.Namespace) -> None:
    """Run the configurations of all agents in parallel, one lambda after the other, the costliest budgets first."""
    cells = [
        (task, sigma, budget, margin)
        for task, sigma in attacks
        for budget, margin in attack_on(task, sigma, arguments).configurations()
    ]
    cells.sort(key=lambda cell: (attack_on(cell[0], cell[1], arguments).columns.index(cell[3]), -cell[2]))
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.jobs, mp_context=fresh) as pool:
        for waiting in [pool.submit(play_cell, *cell, arguments) for cell in cells]:
            print(waiting.result(), flush=True)


def write_results(task: str, sigma: float, arguments: argparse.Namespace) -> None:
    """Attack one agent, or read what was run, and write its files."""
    workers = usable_cores() if arguments.device == "cpu" else 1
    place = Place(arguments.out, arguments.work, arguments.device, workers)
    print(attack_agent(agent_of(task, sigma), size_of(task, sigma, arguments), place, arguments.method), flush=True)


def joined(before: dict[str, Any], old: Arrays, after: dict[str, Any], new: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Return the files of both attacks as one; where both have a configuration, the longer run counts."""
    for key in ("task", "agent", "agent_sha256", "sigma", "method", "noise_samples", "seed"):
        if before[key] != after[key]:
            raise SystemExit(f"attacks: {key} is {before[key]} there and {after[key]} in the new run; nothing added")
    budgets = sorted({*before["budgets"], *after["budgets"]})
    margins = list(dict.fromkeys([*before["lambdas"], *after["lambdas"]]))  # of equal means the one named before counts
    arrays: Arrays = {}
    for name in (configuration_name(budget, margin) for budget in budgets for margin in margins):
        there = [found for found in (old, new) if f"{name}.returns" in found]
        if not there:
            raise SystemExit(f"attacks: no configuration {name}, and a grid has no holes; nothing added")
        longest = max(there, key=lambda found: int(found[f"{name}.returns"].size))
        arrays |= {f"{name}.{part}": longest[f"{name}.{part}"] for part in ("returns", "budget_used")}

    def table(value: Any) -> list[list[Any]]:
        return [[value(arrays, configuration_name(budget, margin)) for margin in margins] for budget in budgets]

    mean = table(lambda found, name: float(found[f"{name}.returns"].mean()))
    sem = table(lambda found, name: float(found[f"{name}.returns"].std(ddof=1) / found[f"{name}.returns"].size ** 0.5))
    sizes = table(lambda found, name: int(found[f"{name}.returns"].size))
    used = table(lambda found, name: float(found[f"{name}.budget_used"].mean()))
    worst = [int(np.argmin(row)) for row in mean]
    result = {
        **before,
        "n_episodes": min(min(row) for row in sizes),
        "n_episodes_of_cells": sizes,
        "budgets": budgets,
        "lambdas": margins,
        "mean": mean,
        "sem": sem,
        "curve": [row[best] for row, best in zip(mean, worst, strict=True)],
        "curve_sem": [row[best] for row, best in zip(sem, worst, strict=True)],
        "curve_lambda": [margins[best] for best in worst],
        "largest_budget_used": max(
            float(found.max()) for name, found in arrays.items() if name.endswith(".budget_used")
        ),
        "mean_budget_used": used,
        "did_not_attack": [
            [budget > 0 and one < IDLE_SHARE * budget for one in row] for budget, row in zip(budgets, used, strict=True)
        ],
        "budget_used_per_step": [
            _spending(budget, margins[best], arrays, (after, new), (before, old))
            for budget, best in zip(budgets, worst, strict=True)
        ],
    }
    return result, arrays


def _spending(
    budget: float, margin: float, arrays: Arrays, *sources: tuple[dict[str, Any], Arrays]
) -> list[float] | None:
    """Return the budget used over time in a configuration, from the file that has it; None where neither does."""
    name = f"{configuration_name(budget, margin)}.returns"
    for facts, found in sources:
        if budget in facts["budgets"] and name in found and np.array_equal(found[name], arrays[name]):
            place = facts["budgets"].index(budget)
            if facts["curve_lambda"][place] == margin:
                shown: list[float] = facts["budget_used_per_step"][place]
                return shown
    return None


def add_results(task: str, sigma: float, arguments: argparse.Namespace) -> None:
    """Attack one agent, or read what was run, and add its configurations to the files that are there."""
    attack = attack_on(task, sigma, arguments)
    records = {}
    new: Arrays = {}
    for cell in attack.configurations():
        record = run_configuration(attack, *cell, arguments.work / attack.name)
        name = configuration_name(*cell)
        assert record.budget_used is not None
        new |= {f"{name}.returns": record.returns, f"{name}.budget_used": record.budget_used}
        records[cell] = record
    path = arguments.out / "attacks" / f"{attack.base.policy.name}-{arguments.method}"
    there, arrays = path.with_name(f"{path.name}.json"), path.with_name(f"{path.name}.npz")
    result, joint = joined(read_json(there), read_arrays(arrays), summary(attack, records), new)
    write_arrays(arrays, joint)
    write_json(there, result)
    pairs = zip(result["curve"], result["curve_sem"], strict=True)
    curve = ", ".join(f"{mean:.3f} ± {error:.3f}" for mean, error in pairs)
    print(f"{attack.base.policy.name}: {curve} at budgets {', '.join(f'{budget:g}' for budget in result['budgets'])}")


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["cartpole-5", "cartpole-1"])
    parser.add_argument("--sigmas", nargs="+", type=float, default=[0.0, 0.2, 0.4, 0.6, 0.8])
    parser.add_argument("--method", default="paper")
    parser.add_argument("--budgets", nargs="+", type=float)
    parser.add_argument("--margins", nargs="+", type=float)
    parser.add_argument("--draws", type=int, default=128)
    parser.add_argument("--episodes", type=int, help="per configuration (default: 1,000; Mountain Car 250)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--add", action="store_true", help="to the files that are there, instead of replacing them")
    parser.add_argument("--work", type=Path, default=Path("runs"))
    parser.add_argument("--out", type=Path, default=DATA)
    arguments = parser.parse_args()
    attacks = [(task, sigma) for task in arguments.tasks for sigma in arguments.sigmas]
    if arguments.jobs > 1:
        play_cells(attacks, arguments)
    write = add_results if arguments.add else write_results
    for task, sigma in attacks:
        write(task, sigma, arguments)


if __name__ == "__main__":
    main()
