"""Put configurations that were run afterwards into an attack's files; every other configuration stays as it is.

    python -m study.attack_cells --tasks pong-1r --sigmas 0.1 --margins 0.5 --episodes 256 --device cuda --out runs/more
    python -m study.add_cells --tasks pong-1r --sigmas 0.1 --margins 0.5 --episodes 256 --device cuda

Attacks on smoothed agents are costly: more episodes, or another lambda, do not require running the whole grid again.
Where a configuration is in both, the longer run counts. ``episodes_of_cells`` then says how many episodes each has, and
``episodes`` is the smallest of these numbers. The episode data are read from ``--work``; nothing is run.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.attack_cells import attack_on
from study.numbers import DATA
from surefoot.episodes import Episodes
from surefoot.files import read_arrays, read_json, write_arrays, write_json
from surefoot.report.sentences import IDLE_SHARE
from surefoot.runs.attacked import summary
from surefoot.runs.folder import configuration_name

Arrays = dict[str, NDArray[np.float64]]


def joined(before: dict[str, Any], old: Arrays, after: dict[str, Any], new: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Return the files of both attacks as one; where both have a configuration, the longer run counts."""
    for key in ("task", "agent", "agent_sha256", "sigma", "method", "noise_samples", "seed"):
        if before[key] != after[key]:
            raise SystemExit(f"add_cells: {key} is {before[key]} there and {after[key]} in the new run; nothing added")
    budgets = sorted({*before["budgets"], *after["budgets"]})
    margins = list(dict.fromkeys([*before["lambdas"], *after["lambdas"]]))  # of equal means the one named before counts
    arrays: Arrays = {}
    for name in (configuration_name(budget, margin) for budget in budgets for margin in margins):
        there = [found for found in (old, new) if f"{name}.returns" in found]
        if not there:
            raise SystemExit(f"add_cells: no configuration {name}, and a grid has no holes; nothing added")
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


def add(task: str, sigma: float, arguments: argparse.Namespace) -> None:
    """Add the configurations that were run with one agent."""
    attack = attack_on(task, sigma, arguments)
    folder = arguments.work / attack.name
    cells = attack.configurations()
    records = {cell: Episodes.load(folder / configuration_name(*cell) / "episodes.npz") for cell in cells}
    new: Arrays = {}
    for cell, record in records.items():
        name = configuration_name(*cell)
        assert record.budget_used is not None
        if record.metadata["agent_sha256"] != attack.base.policy.sha256:
            raise SystemExit(f"add_cells: {name} was run with other weights; nothing added")
        new |= {f"{name}.returns": record.returns, f"{name}.budget_used": record.budget_used}
    path = arguments.out / "attacks" / f"{attack.base.policy.name}-{arguments.method}"
    there, arrays = path.with_name(f"{path.name}.json"), path.with_name(f"{path.name}.npz")
    result, joint = joined(read_json(there), read_arrays(arrays), summary(attack, records), new)
    write_arrays(arrays, joint)
    write_json(there, result)
    pairs = zip(result["curve"], result["curve_sem"], strict=True)
    curve = ", ".join(f"{mean:.3f} ± {error:.3f}" for mean, error in pairs)
    print(f"{attack.base.policy.name}: {curve} at budgets {', '.join(f'{budget:g}' for budget in result['budgets'])}")


def main() -> None:
    """Parse the command line and add the configurations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", required=True)
    parser.add_argument("--sigmas", nargs="+", type=float, required=True)
    parser.add_argument("--method", default="paper")
    parser.add_argument("--budgets", nargs="+", type=float)
    parser.add_argument("--margins", nargs="+", type=float)
    parser.add_argument("--draws", type=int, default=128)
    parser.add_argument("--episodes", type=int, required=True, help="per configuration")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="where they were run")
    parser.add_argument("--work", type=Path, default=Path("runs"))
    parser.add_argument("--out", type=Path, default=DATA)
    arguments = parser.parse_args()
    for task in arguments.tasks:
        for sigma in arguments.sigmas:
            add(task, sigma, arguments)


if __name__ == "__main__":
    main()
