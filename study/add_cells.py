"""Put cells that were played afterwards into an attack's files; every other cell stays as it is.

    python study/attacks.py --tasks pong-1r --sigmas 0.1 --margins 0.5 --episodes 256 --device cuda --out runs/more
    python study/add_cells.py --tasks pong-1r --sigmas 0.1 --margins 0.5 --episodes 256 --device cuda

Attacks on smoothed agents are costly: more episodes, or another lambda, need not mean to play the whole grid again.
Where a cell is in both, the longer run counts. ``episodes_of_cells`` then says how many each cell has, and
``episodes`` is the least of them. The records are read from ``--work``, nothing is played.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.attacked import cell_name, summary
from surefoot.episodes import Episodes
from surefoot.files import read_arrays, read_json, write_arrays, write_json

HERE = Path(__file__).resolve().parent
Arrays = dict[str, NDArray[np.float64]]


def script(name: str) -> Any:
    """Return a script beside this one as a module."""
    found = importlib.util.spec_from_file_location(f"study_{name}", HERE / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    return module


def joined(before: dict[str, Any], old: Arrays, after: dict[str, Any], new: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Return the files of both attacks in one; where both have a cell, the longer run counts."""
    for key in ("task", "agent", "agent_sha256", "sigma", "method", "draws", "seed"):
        if before[key] != after[key]:
            raise SystemExit(f"add_cells: {key} is {before[key]} there and {after[key]} in the cells; nothing added")
    budgets = sorted({*before["budgets"], *after["budgets"]})
    margins = sorted({*before["lambdas"], *after["lambdas"]})
    arrays: Arrays = {}
    for name in (cell_name(budget, margin) for budget in budgets for margin in margins):
        there = [found for found in (old, new) if f"{name}.returns" in found]
        if not there:
            raise SystemExit(f"add_cells: no cell {name}, and a grid has no holes; nothing added")
        longest = max(there, key=lambda found: int(found[f"{name}.returns"].size))
        arrays |= {f"{name}.{part}": longest[f"{name}.{part}"] for part in ("returns", "spent")}

    def table(value: Any) -> list[list[Any]]:
        return [[value(arrays, cell_name(budget, margin)) for margin in margins] for budget in budgets]

    mean = table(lambda found, name: float(found[f"{name}.returns"].mean()))
    sem = table(lambda found, name: float(found[f"{name}.returns"].std(ddof=1) / found[f"{name}.returns"].size ** 0.5))
    sizes = table(lambda found, name: int(found[f"{name}.returns"].size))
    worst = [int(np.argmin(row)) for row in mean]
    result = {
        **before,
        "episodes": min(min(row) for row in sizes),
        "episodes_of_cells": sizes,
        "budgets": budgets,
        "lambdas": margins,
        "mean": mean,
        "sem": sem,
        "curve": [row[best] for row, best in zip(mean, worst, strict=True)],
        "curve_sem": [row[best] for row, best in zip(sem, worst, strict=True)],
        "curve_lambda": [margins[best] for best in worst],
        "largest_spent": max(float(found.max()) for name, found in arrays.items() if name.endswith(".spent")),
        "mean_spent": table(lambda found, name: float(found[f"{name}.spent"].mean())),
        "spending": [
            _spending(budget, margins[best], arrays, (after, new), (before, old))
            for budget, best in zip(budgets, worst, strict=True)
        ],
    }
    return result, arrays


def _spending(
    budget: float, margin: float, arrays: Arrays, *sources: tuple[dict[str, Any], Arrays]
) -> list[float] | None:
    """Return the spending over time of a cell, from the file that tells it; None where neither does."""
    name = f"{cell_name(budget, margin)}.returns"
    for facts, found in sources:
        if budget in facts["budgets"] and name in found and np.array_equal(found[name], arrays[name]):
            place = facts["budgets"].index(budget)
            if facts["curve_lambda"][place] == margin:
                told: list[float] = facts["spending"][place]
                return told
    return None


def add(task: str, sigma: float, arguments: argparse.Namespace, attacks: Any) -> None:
    """Add the played cells of one agent."""
    attack = attacks.attack_on(task, sigma, arguments)
    folder = arguments.work / attack.name
    records = {cell: Episodes.load(folder / cell_name(*cell) / "episodes.npz") for cell in attack.cells()}
    new: Arrays = {}
    for cell, record in records.items():
        assert record.spent is not None
        if record.facts["agent_sha256"] != attack.policy.sha256:
            raise SystemExit(f"add_cells: {cell_name(*cell)} was played by other weights; nothing added")
        new[f"{cell_name(*cell)}.returns"], new[f"{cell_name(*cell)}.spent"] = record.returns, record.spent
    path = arguments.out / "attacks" / f"{attack.policy.name}-{arguments.method}"
    there, arrays = path.with_name(f"{path.name}.json"), path.with_name(f"{path.name}.npz")
    result, cells = joined(read_json(there), read_arrays(arrays), summary(attack, records), new)
    write_arrays(arrays, cells)
    write_json(there, result)
    pairs = zip(result["curve"], result["curve_sem"], strict=True)
    curve = ", ".join(f"{mean:.3f} ± {error:.3f}" for mean, error in pairs)
    print(f"{attack.policy.name}: {curve} at budgets {', '.join(f'{budget:g}' for budget in result['budgets'])}")


def main() -> None:
    """Parse the command line and add."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", required=True)
    parser.add_argument("--sigmas", nargs="+", type=float, required=True)
    parser.add_argument("--method", default="paper")
    parser.add_argument("--budgets", nargs="+", type=float)
    parser.add_argument("--margins", nargs="+", type=float)
    parser.add_argument("--draws", type=int, default=128)
    parser.add_argument("--episodes", type=int, required=True, help="per cell")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="where they were played")
    parser.add_argument("--work", type=Path, default=Path("runs"))
    parser.add_argument("--out", type=Path, default=HERE)
    arguments = parser.parse_args()
    attacks = script("attacks")
    for task in arguments.tasks:
        for sigma in arguments.sigmas:
            add(task, sigma, arguments, attacks)


if __name__ == "__main__":
    main()
