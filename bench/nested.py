"""How often bounds from several draws per seed are wrong, over ten distributions of luck and noise.

    python bench/nested.py                 # 60 runs of each
    python bench/nested.py --runs 200

Seeds are of a few kinds, each with its own distribution of the return, so that the truth is known: the mean over seeds
of the worst case given the seed. No count of wrong bounds may be so large that it has a probability below 10^-6 if each
run is wrong with probability 0.2. Two errors are planted, and each must raise that alarm: a guess that uses its own
draw, and noise that repeats within a seed. The counts go to ``bench/results/nested.json``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

from laws import FALSE_ALARM, too_many  # noqa: E402
from lucks import ALPHA, LUCKS, NOISE, misses, with_own_draw  # noqa: E402
from surefoot.files import write_json  # noqa: E402
from surefoot.proof.bounds.seed_groups import SeedGroups  # noqa: E402


def main() -> None:
    """Count and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=60)
    runs = parser.parse_args().runs
    rows = []
    for luck in LUCKS:
        for c, n_draws in ((0.5, 2), (2.0, 4)):
            low, high = misses(luck, runs=runs, n_groups=60, n_draws=n_draws, c=c)
            for side, wrong in (("lower", low), ("upper", high)):
                alarm = too_many(wrong, runs, ALPHA)
                rows.append({"luck": luck.name, "c": c, "draws": n_draws, "side": side, "wrong": wrong, "alarm": alarm})
                print(rows[-1], flush=True)
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
    facts = {"schema": 1, "alpha": ALPHA, "false_alarm": FALSE_ALARM, "runs": runs, "seeds": 60}
    write_json(HERE / "results" / "nested.json", {**facts, "planted": found, "counts": rows})


if __name__ == "__main__":
    main()
