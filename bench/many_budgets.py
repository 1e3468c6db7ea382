"""What a bound loses where nine budgets are certified at once, against one that is certified alone.

    python bench/many_budgets.py             # writes bench/results/many_budgets.json

For six distributions, three scaled budgets and two numbers of returns: the mean distance of the lower bound to the true
worst-case mean with the default method, where nine scaled budgets from 0 to 4 are asked for, divided by the distance
where this budget alone is; at 95%.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from surefoot import Episodes, certify
from surefoot.files import write_json

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))  # the distributions, whose worst-case means are known

from laws import LAWS, MORE_LAWS, Law  # noqa: E402 - found by the line above

SIX = (*LAWS, *(law for law in MORE_LAWS if law.name == "mostly lost"))
NINE = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0)  # scaled by sigma
MEASURED = (1.0, 2.0, 3.0)
DRAWS = {1_000: 20, 10_000: 6}


def relative_losses(law: Law, n: int, n_draws: int) -> list[float]:
    """Return for each measured budget the mean loss among nine, divided by that of this budget alone."""
    truth = np.array([law.worst_mean(scaled_budget) for scaled_budget in MEASURED])
    alone = np.zeros(len(MEASURED))
    of_nine = np.zeros(len(MEASURED))
    for returns in law.draw(np.random.default_rng(7), (n_draws, n)):
        episodes = Episodes.from_returns(returns, sigma=1.0, floor=law.floor, ceiling=law.ceiling)
        together = certify(episodes, NINE)
        of_nine += truth - [together.at(scaled_budget).lower for scaled_budget in MEASURED]
        alone += truth - [certify(episodes, [scaled_budget]).lower[0] for scaled_budget in MEASURED]
    return [float(ratio) for ratio in of_nine / alone]


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(DRAWS), choices=list(DRAWS))
    arguments = parser.parse_args()
    rows = []
    for n in arguments.sizes:
        for law in SIX:
            ratios = relative_losses(law, n, DRAWS[n])
            print(f"{n:6d} {law.name:18s}", *(f"{ratio:.2f}" for ratio in ratios), flush=True)
            for scaled_budget, ratio in zip(MEASURED, ratios, strict=True):
                rows.append({"distribution": law.name, "scaled_budget": scaled_budget, "n": n, "ratio": ratio})
    ratios = [row["ratio"] for row in rows]
    summary = {"mean": float(np.mean(ratios)), "largest": float(np.max(ratios))}
    print(summary)
    write_json(HERE / "results" / "many_budgets.json", {"draws": DRAWS, "rows": rows, **summary})


if __name__ == "__main__":
    main()
