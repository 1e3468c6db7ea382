"""What bets on a plain mean lose, ours and those of STaR-Bets (Voracek and Orabona 2025), in units of the normal loss.

    python bench/star_bets.py                      # 3 minutes on one core; writes bench/results/star_bets.json
    python bench/star_bets.py --sizes 100 --draws 50

For each of six distributions the mean distance of the 95% lower bound to the true mean, divided by z_0.95 sd / sqrt(n):
what a bound would lose that knew the standard deviation of normal returns. ``extra`` is how much more ours loses; its
mean is taken with and without the distribution whose drops are rare, where STaR-Bets lose nearly all.

STaR-Bets are written here from their idea. Against every candidate mean m the bettor aims at what is still missing to
log(1/alpha), in the rounds that are left:

    lambda = sqrt( 2 (log(1/alpha) - log W) / (V (rounds left)) ),       V the mean square of x - m so far,

as if the capital were to grow by just that. Candidates are a grid, and the bound is the last one up to which all were
refuted.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from surefoot.files import write_json
from surefoot.proof.planning.strategies import worst_means

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))  # the distributions, whose means are known

from laws import LAWS, MORE_LAWS, Law  # noqa: E402 - found by the line above

Floats = NDArray[np.float64]
ALPHA = 0.05
CANDIDATES = 800
WIDTH = 8.0  # of the grid of candidates, in standard errors
LAST = 0.999  # of the largest bet size that cannot lose everything
SIX = (*LAWS, *(law for law in MORE_LAWS if law.name == "mostly lost"))
RARE = "rare catastrophe"
SIZES = {100: 200, 1_000: 60}


def star_bound(returns: Floats, floor: float, ceiling: float, around: float, error: float) -> float:
    """Return the lower bound of the mean that STaR-Bets prove.

    Args:
        returns: In order.
        floor: No return is below it.
        ceiling: No return is above it: the first variance that is expected is that of a uniform return.
        around: Where candidates are close to each other.
        error: By how much, roughly, the bound will be below.
    """
    near = around + error * np.linspace(-WIDTH, 3.0, CANDIDATES)
    claims = near[(near > floor) & (near < ceiling)]
    largest = LAST / (claims - floor)
    log_capital = np.zeros(claims.size)
    refuted = np.zeros(claims.size, dtype=bool)
    # as if one return had come from the uniform distribution
    squares = np.full(claims.size, (ceiling - floor) ** 2 / 12)
    goal = math.log(1 / ALPHA)
    for i, x in enumerate(returns.tolist()):
        missing = np.maximum(goal - log_capital, 0.0)
        wise = np.sqrt(2 * missing * (i + 1) / (squares * (returns.size - i)))
        log_capital += np.log1p(np.minimum(wise, largest) * (x - claims))
        refuted |= log_capital >= goal
        squares += (x - claims) ** 2
    n_refuted = int(np.cumprod(refuted).sum())
    if n_refuted == 0:
        return floor
    return float(claims[n_refuted - 1])


def losses(law: Law, n: int, n_draws: int) -> dict[str, float]:
    """Return the mean loss of both at one number of returns, in units of the normal loss."""
    rng = np.random.default_rng([7, n])
    mean = law.worst_mean(0.0)
    sample = law.draw(np.random.default_rng(1), (1_000_000,))
    error = float(sample.std()) / math.sqrt(n)
    found: dict[str, list[float]] = {"ours": [], "star": []}
    for _ in range(n_draws):
        returns = law.draw(rng, (n,))
        ours = float(worst_means(returns, [0.0], ALPHA, law.floor, law.ceiling).at(0.0))
        found["ours"].append(mean - ours)
        found["star"].append(mean - star_bound(returns, law.floor, law.ceiling, mean, error))
    unit = error * float(stats.norm.ppf(1 - ALPHA))
    return {name: float(np.mean(lost)) / unit for name, lost in found.items()}


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--draws", type=int, help="the same number for all sizes")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "star_bets.json")
    given = parser.parse_args()
    rows = []
    for n in given.sizes:
        for law in SIX:
            lost = losses(law, n, given.draws or SIZES[n])
            rows.append({"distribution": law.name, "n": n, **lost, "extra": lost["ours"] - lost["star"]})
            print(json.dumps(rows[-1]), flush=True)
    means = []
    for n in given.sizes:
        extras = {row["distribution"]: row["extra"] for row in rows if row["n"] == n}
        usual = [extra for name, extra in extras.items() if name != RARE]
        means.append({"n": n, "six": float(np.mean(list(extras.values()))), "without_rare": float(np.mean(usual))})
    print(json.dumps(means))
    write_json(given.out, {"schema": 1, "mean_extra": means, "rows": rows})


if __name__ == "__main__":
    main()
