"""How often certified limits are wrong: eleven laws, c = 0 to 4, settled n and the worst of many stopping times.

    python bench/coverage.py                 # 60 runs of each kind
    python bench/coverage.py --runs 1000

For settled n the lower and the upper limit of ``auto`` are compared with the truth. For stopping times a run is looked
at again and again, with a claim just below the truth, and is wrong if any of the limits it showed was. No count may be
so large that it has a probability below 10^-6 if each run is wrong with probability alpha. The counts go to
``bench/results/coverage.json``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

from laws import FALSE_ALARM, MORE_LAWS, Law, too_many  # noqa: E402
from surefoot.bounds.shifted_mean import Sequential  # noqa: E402
from surefoot.certify import certify  # noqa: E402
from surefoot.episodes import Episodes  # noqa: E402
from surefoot.files import write_json  # noqa: E402

ALPHA, SETTLED, LOOKS = 0.2, 300, (100, 150, 225, 340, 500, 750, 1000)


def settled(law: Law, radius: float, returns: np.ndarray[Any, Any]) -> tuple[bool, bool]:
    """Return whether the lower, and whether the upper limit of auto is wrong."""
    episodes = Episodes.of(returns, sigma=1.0, floor=law.floor, ceiling=law.ceiling)
    certificate = certify(episodes, [radius], 1 - ALPHA)
    assert certificate.upper is not None
    low = certificate.lower[0] > law.worst_mean(radius) + 1e-9
    return bool(low), bool(certificate.upper[0] < law.best_mean(radius) - 1e-9)


def stopped(law: Law, radius: float, returns: np.ndarray[Any, Any]) -> bool:
    """Return whether any look showed a limit above the truth."""
    truth = law.worst_mean(radius)
    claim = (radius, truth - 0.01 * (truth - law.floor))
    game = Sequential([radius], ALPHA, law.floor, law.ceiling, claim=claim)
    return any(float(game.after(returns[:n]).at(radius)) > truth + 1e-9 for n in LOOKS)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=60)
    runs = parser.parse_args().runs
    rng, rows = np.random.default_rng(2024), []
    for law in MORE_LAWS:
        for radius in (0.0, 1.0, 2.0, 3.0, 4.0):
            both = [settled(law, radius, law.draw(rng, (SETTLED,))) for _ in range(runs)]
            late = sum(stopped(law, radius, law.draw(rng, (LOOKS[-1],))) for _ in range(runs // 3))
            low, high = (sum(column) for column in zip(*both, strict=True))
            rows.append({"law": law.name, "c": radius, "lower": low, "upper": high, "stopped": late})
            alarm = too_many(low, runs, ALPHA) or too_many(high, runs, ALPHA) or too_many(late, runs // 3, ALPHA)
            print(rows[-1], "ALARM" if alarm else "", flush=True)
    facts = {"schema": 1, "alpha": ALPHA, "false_alarm": FALSE_ALARM, "runs": runs, "runs_stopped": runs // 3}
    write_json(HERE / "results" / "coverage.json", {**facts, "episodes": SETTLED, "looks": LOOKS, "wrong": rows})


if __name__ == "__main__":
    main()
