"""How often bounds from several draws per seed are wrong, over ten distributions of luck and noise, and what they cost.

    python bench/nested.py                 # 40 runs of each
    python bench/nested.py --runs 200
    python bench/nested.py --price         # where there is no luck: what is lost, next to independent episodes

Seeds are of a few kinds, each with its own distribution of the return, so that the truth is known: the mean over seeds
of the worst case given the seed. No count of wrong bounds may be so large that it has a probability below 10^-6 if each
run is wrong with probability 0.2. Two errors are planted, and each must raise that alarm: a guess that uses its own
draw, and noise that repeats within a seed. The counts go to ``bench/results/nested.json``, and a run that was stopped
goes on from there; what is lost goes to ``bench/results/nested-price.json``.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

from laws import FALSE_ALARM, Law, atoms, beta, too_many  # noqa: E402
from lucks import ALPHA, LUCKS, NOISE, misses, with_own_draw  # noqa: E402
from surefoot.files import write_json  # noqa: E402
from surefoot.proof.bounds.seed_groups import SeedGroups  # noqa: E402
from surefoot.proof.planning.bettors import PLANNER_VERSION  # noqa: E402
from surefoot.proof.planning.strategies import bound_group_means, worst_means  # noqa: E402

COUNTS = HERE / "results" / "nested.json"
PRICES = HERE / "results" / "nested-price.json"
EPISODES = 10_000
# Without luck, between 0 and 1.
PURE_NOISE = (
    beta("high", 0.0, 1.0, 8.0, 2.0),
    beta("nearly normal", 0.0, 1.0, 8.0, 8.0),
    beta("uniform", 0.0, 1.0, 1.0, 1.0),
    atoms("wins and losses", 0.0, 1.0, [0.0, 1.0], [0.05, 0.95]),
    atoms("rare failures of many sizes", 0.0, 1.0, [0.0, 0.25, 0.5, 0.75, 1.0], [0.01, 0.01, 0.005, 0.005, 0.97]),
)


def count_misses(runs: int) -> None:
    """Count wrong bounds of all distributions, and what is planted."""
    facts = {"schema": 1, "alpha": ALPHA, "false_alarm": FALSE_ALARM, "runs": runs, "seeds": 60}
    facts["planner"] = PLANNER_VERSION
    kept = json.loads(COUNTS.read_text())
    rows: list[dict[str, Any]] = []
    if all(kept.get(key) == value for key, value in facts.items()):
        rows = kept["counts"]
    done = {(row["luck"], row["c"]) for row in rows}
    for luck in LUCKS:
        for c, n_draws in ((0.5, 2), (2.0, 4)):
            if (luck.name, c) in done:
                continue
            low, high = misses(luck, runs=runs, n_groups=60, n_draws=n_draws, c=c)
            for side, wrong in (("lower", low), ("upper", high)):
                alarm = too_many(wrong, runs, ALPHA)
                rows.append({"luck": luck.name, "c": c, "draws": n_draws, "side": side, "wrong": wrong, "alarm": alarm})
                print(rows[-1], flush=True)
            write_json(COUNTS, {**facts, "counts": rows})
    with patch.object(SeedGroups, "luck", with_own_draw):
        own, _ = misses(NOISE, runs=9, n_groups=140, n_draws=2, c=2.0)
    repeated, _ = misses(
        NOISE, runs=9, n_groups=160, n_draws=4, c=2.0, change=lambda table: np.repeat(table[:, :1], 4, axis=1)
    )
    planted = {"the guess uses its own draw": own, "noise repeats within a seed": repeated}
    found = [
        {"error": name, "wrong": wrong, "runs": 9, "found": too_many(wrong, 9, ALPHA)}
        for name, wrong in planted.items()
    ]
    print(found)
    write_json(COUNTS, {**facts, "planted": found, "counts": rows})


def lost(law: Law, c: float, n_draws: int, samples: int = 3) -> float:
    """Return by how much bounds from 10,000 episodes at 95% are below the mean without attack, on average."""
    mean = law.worst_mean(0.0)
    total = 0.0
    for seed in range(samples):
        table = law.draw(np.random.default_rng(seed), (EPISODES // n_draws, n_draws))
        if n_draws == 1:
            made = worst_means(table.ravel(), [c], 0.05, 0.0)
        else:
            made = bound_group_means(table, [c], 0.05, 0.0, None).lower
        total += mean - float(made.at(c))
    return total / samples


def measure_price() -> None:
    """Compare what is lost with several draws per seed and with one, where all seeds are alike."""
    rows = []
    for law in PURE_NOISE:
        for c in (0.5, 2.0):
            alone = lost(law, c, 1)
            for n_draws in (2, 4):
                ratio = lost(law, c, n_draws) / alone
                rows.append({"law": law.name, "c": c, "draws": n_draws, "lost": alone, "ratio": ratio})
                print(rows[-1], flush=True)
    print("mean ratio", np.mean([row["ratio"] for row in rows]))
    write_json(PRICES, {"schema": 1, "planner": PLANNER_VERSION, "episodes": EPISODES, "rows": rows})


def main() -> None:
    """Count or compare, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--price", action="store_true")
    arguments = parser.parse_args()
    if arguments.price:
        measure_price()
    else:
        count_misses(arguments.runs)


if __name__ == "__main__":
    main()
