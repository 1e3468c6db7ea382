"""What auto certifies on the paper's published Cartpole returns, in many orders, against the paper's method.

    python bench/published.py             # 40 orders of each; results go to bench/results/published.json

One budget at a time, and eleven budgets at once: by what factor their distance to the plug-in grows.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.episodes import Episodes
from surefoot.files import write_json
from surefoot.proof.bounds.samples import Sample
from surefoot.proof.planning.proposals import plug_in_means
from surefoot.proof.query import certify

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / "study" / "data" / "published" / "cartpole-5.json"
BUDGETS = {0.2: (0.2, 0.4, 0.6), 0.4: (0.2, 0.4, 0.8)}
GRID = tuple(np.round(np.linspace(0, 1, 11), 10).tolist())


def shuffled(sigma: float, order: int) -> Episodes:
    """Return the published returns in one order."""
    counts = json.loads(DATA.read_text(encoding="utf-8"))["counts_by_sigma"][str(sigma)]
    returns = np.repeat([float(value) for value in counts], list(counts.values()))
    return Episodes.from_returns(np.random.default_rng(order).permutation(returns), sigma=sigma, floor=0, ceiling=200)


def one_budget(sigma: float, budget: float, orders: int) -> dict[str, Any]:
    """Return what is certified at one budget."""
    lower = [float(certify(shuffled(sigma, order), [budget]).lower[0]) for order in range(orders)]
    paper = float(certify(shuffled(sigma, 0), [budget], method="per-threshold").lower[0])
    spread = {"mean": float(np.mean(lower)), "least": min(lower), "deviation": float(np.std(lower))}
    return {"sigma": sigma, "budget": budget, **spread, "paper": paper}


def grid(sigma: float, orders: int) -> dict[str, Any]:
    """Return by what factor distances to the plug-in grow when eleven budgets are certified at once."""
    records = [shuffled(sigma, order) for order in range(orders)]
    plain = plug_in_means(Sample.of(records[0].returns), np.array(GRID) / sigma, 0.0)
    together = np.mean([certify(record, GRID).lower for record in records], axis=0)
    alone = np.mean([[certify(record, [budget]).lower[0] for budget in GRID] for record in records], axis=0)
    factors = (plain - together) / (plain - alone)
    return {"sigma": sigma, "budgets": GRID, "orders": orders, "factors": factors.tolist()}


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=40)
    orders = parser.parse_args().orders
    single = [one_budget(sigma, budget, orders) for sigma, budgets in BUDGETS.items() for budget in budgets]
    grids = [grid(sigma, max(1, orders // 5)) for sigma in BUDGETS]
    for row in (*single, *grids):
        print(row, flush=True)
    write_json(HERE / "results" / "published.json", {"schema": 1, "orders": orders, "alone": single, "grids": grids})


if __name__ == "__main__":
    main()
