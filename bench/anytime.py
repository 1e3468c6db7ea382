"""What a sequential run loses against a run whose number of episodes was fixed: distances of the bound to the truth.

    python bench/anytime.py                  # writes bench/results/anytime.json

For every distribution, scaled budget and number of returns the mean distance of the anytime-valid lower bound to the
true worst-case mean, divided by that of the bound for a fixed number, at 95% and one scaled budget.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from surefoot.files import write_json
from surefoot.proof.planning.strategies import worst_means

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))  # the distributions, whose worst-case means are known

from laws import LAWS, Law  # noqa: E402 - found by the line above

ALPHA = 0.05
SCALED_BUDGETS = (0.0, 1.0, 2.0)
NUMBERS = (1_500, 6_000, 20_000)


def relative_loss(law: Law, scaled_budget: float, n: int, n_draws: int) -> float:
    """Return the mean loss of anytime-valid bounds, divided by that of bounds for fixed n."""
    rng = np.random.default_rng(5)
    truth = law.worst_mean(scaled_budget)
    losses: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(n_draws):
        returns = law.draw(rng, (n,))
        for anytime, found in losses.items():
            means = worst_means(returns, [scaled_budget], ALPHA, law.floor, law.ceiling, anytime=anytime)
            found.append(truth - float(means.at(scaled_budget)))
    return float(np.mean(losses[True]) / np.mean(losses[False]))


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=4, help="samples of each kind (default: 4)")
    arguments = parser.parse_args()
    rows = []
    ratios: list[float] = []
    for law in LAWS:
        for scaled_budget in SCALED_BUDGETS:
            for n in NUMBERS:
                ratio = relative_loss(law, scaled_budget, n, arguments.draws)
                rows.append({"distribution": law.name, "scaled_budget": scaled_budget, "n": n, "ratio": ratio})
                ratios.append(ratio)
    summary = {"mean": float(np.mean(ratios)), "largest": float(np.max(ratios))}
    write_json(HERE / "results" / "anytime.json", {"draws": arguments.draws, "rows": rows, **summary})
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
