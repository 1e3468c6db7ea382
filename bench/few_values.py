"""Auto against limits per threshold on laws with few values, and against Clopper-Pearson on wins and losses.

    python bench/few_values.py                # 20 seeds of each; results go to bench/results/few_values.json

For every law, c and n: what auto certifies above the floor, divided by what the per-threshold method certifies there
with every value of the law as a threshold (mean over the seeds of each, and the seed on which auto is furthest behind).
For wins and losses the comparison is with one Clopper-Pearson limit on the episodes after the pilot.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

from laws import LAWS, MORE_LAWS, Law, atoms  # noqa: E402
from surefoot.episodes import Episodes  # noqa: E402
from surefoot.files import write_json  # noqa: E402
from surefoot.proof.query import certify  # noqa: E402

FEW = (
    LAWS[1],
    LAWS[2],
    MORE_LAWS[10],
    atoms("freeway", 0.0, 5.0, [0.0, 1.0, 2.0, 3.0], [0.02, 0.18, 0.5, 0.3]),
    atoms("score of a match", -3.0, 3.0, [-3.0, -1.0, 1.0, 3.0], [0.02, 0.08, 0.3, 0.6]),
)
COINS = (LAWS[4], MORE_LAWS[5])
RADII, SIZES = (0.0, 1.0, 2.0, 3.0), (1_000, 10_000)


def compared(law: Law, radius: float, n: int, seeds: int) -> dict[str, Any]:
    """Return the ratio of what both methods certify above the floor."""
    ours, theirs, chosen = [], [], Counter[str]()
    for seed in range(seeds):
        returns = law.draw(np.random.default_rng(seed), (n,))
        episodes = Episodes.from_returns(returns, sigma=1.0, floor=law.floor, ceiling=law.ceiling)
        made = certify(episodes, [radius])
        assert made.method_selection is not None
        chosen[made.method_selection["method"]] += 1
        other = certify(episodes, [radius], method="per-threshold")
        if law in COINS:
            other = certify(episodes[made.method_selection["pilot"] :], [radius], method="binary")
        ours.append(float(made.lower[0]) - law.floor)
        theirs.append(float(other.lower[0]) - law.floor)
    ratios = [ratio(one, two) for one, two in zip(ours, theirs, strict=True)]
    facts = {"law": law.name, "c": radius, "n": n, "chosen": dict(chosen)}
    return {**facts, "mean": ratio(sum(ours), sum(theirs)), "least": min(ratios)}


def ratio(ours: float, theirs: float) -> float:
    """Return a quotient; 1 where both certify nothing."""
    return 1.0 if max(ours, theirs) < 1e-6 else ours / max(theirs, 1e-300)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    rows = []
    for law in (*FEW, *COINS):
        for n in SIZES:
            for radius in RADII:
                rows.append(compared(law, radius, n, seeds))
                print(rows[-1], flush=True)
    write_json(HERE / "results" / "few_values.json", {"schema": 1, "seeds": seeds, "ratios": rows})


if __name__ == "__main__":
    main()
