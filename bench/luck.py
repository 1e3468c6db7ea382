"""What luck that is known at reset is worth, and how often its bounds are wrong.

    python bench/luck.py                 # tables, and 40 runs of each distribution
    python bench/luck.py --runs 100

First: returns with normal luck and noise, 10,000 episodes, c = 2, 95%: what the certificate pays, that is the mean
return minus the lower bound, with luck known and without. Then what it costs where numbers are recorded that say
nothing, on distributions of ``bench/regret.py``. Then over the ten distributions of ``tests/lucks.py`` how many bounds
are wrong: no count may be so large that it has a probability below 10^-6 if each run is wrong with probability 0.2. All
goes to ``bench/results/luck.json``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests"), str(HERE.parent)]

import regret  # noqa: E402

from laws import FALSE_ALARM, too_many  # noqa: E402
from lucks import ALPHA, LUCKS, lucky_misses  # noqa: E402
from surefoot import Episodes, certify  # noqa: E402
from surefoot.files import write_json  # noqa: E402

N = 10_000
SEEDS = 3
USELESS = ("cartpole-5-s0.2", "pong-1r-s0.05", "freeway-s0.1")


def measure_gain(floor: float) -> dict[str, float]:
    """Return what certificates of luck 90 and noise 45 pay, means over a few seeds."""
    paid = []
    for seed in range(100, 100 + SEEDS):
        random = np.random.default_rng(seed)
        luck = random.normal(0, 90, N)
        returns = np.clip(luck + random.normal(0, 45, N), floor, -floor)
        where = {"sigma": 1.0, "floor": floor, "ceiling": -floor}
        known = certify(Episodes.from_returns(returns, luck=luck[:, None], **where), [2.0])
        plain = certify(Episodes.from_returns(returns, **where), [2.0])
        paid.append([-known.lower[0], -plain.lower[0]])
    known_paid, plain_paid = np.mean(paid, axis=0).tolist()
    return {"floor": floor, "known": known_paid, "unknown": plain_paid}


def measure_cost(sources: dict[str, regret.Source], name: str) -> dict[str, object]:
    """Return lower bounds with four useless numbers per episode, over those without, at each scaled budget."""
    source = sources[name]
    ratios = []
    chosen = []
    for seed in range(SEEDS):
        random = np.random.default_rng(seed)
        returns = source.draw(random, N)
        where = {"sigma": 1.0, "floor": source.floor, "ceiling": source.ceiling, "binary": source.declared}
        features = random.normal(0, 1, (N, 4))
        with_luck = certify(Episodes.from_returns(returns, luck=features, **where), source.grid)
        without = certify(Episodes.from_returns(returns, **where), source.grid)
        left = without.lower - source.floor > 0.05 * (source.ceiling - source.floor)
        ratios.append(float(np.min((with_luck.lower - source.floor)[left] / (without.lower - source.floor)[left])))
        chosen.append((with_luck.method_selection or {})["method"])
    return {"distribution": name, "least_ratio": min(ratios), "methods": chosen}


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40)
    runs = parser.parse_args().runs
    gains = [measure_gain(floor) for floor in (-350.0, -400.0)]
    print(gains, flush=True)
    sources = {source.name: source for source in (*regret.recorded(), *regret.synthetic())}
    costs = [measure_cost(sources, name) for name in USELESS]
    print(costs, flush=True)
    rows = []
    for luck in LUCKS:
        for c in (0.5, 2.0):
            low, high = lucky_misses(luck, runs=runs, n=60, c=c)
            for side, wrong in (("lower", low), ("upper", high)):
                alarm = too_many(wrong, runs, ALPHA)
                rows.append({"luck": luck.name, "c": c, "side": side, "wrong": wrong, "alarm": alarm})
                print(rows[-1], flush=True)
    facts = {"schema": 1, "alpha": ALPHA, "false_alarm": FALSE_ALARM, "runs": runs, "episodes": 60}
    write_json(HERE / "results" / "luck.json", {**facts, "gains": gains, "costs": costs, "counts": rows})


if __name__ == "__main__":
    main()
