"""How short are intervals for a difference of paired bounded returns, and how often do they miss it?

python bench/compare.py                # widths against published methods: bench/results/compare.json
python bench/compare.py --coverage     # misses over pairs of laws and kinds of dependence: compare-coverage.json
python bench/compare.py --agents       # what pairing gains on CartPole and HalfCheetah (runs episodes)
python bench/compare.py --checkpoints  # the same for an agent and its next checkpoint (trains both)

Published methods, written here from their papers: Hoeffding's inequality; the empirical Bernstein inequality of Maurer
and Pontil (COLT 2009); the predictable plug-in empirical Bernstein interval and the hedged capital interval of
Waudby-Smith and Ramdas (JRSS B 2024); STaR-Bets, whose bets aim at what is still missing (Voracek and Orabona 2025).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import surefoot
from surefoot.proof.difference import Pairs, difference_interval
from surefoot.proof.training_runs import compare_training_runs

Floats = NDArray[np.float64]
ALPHA = 0.05
GRID = 600
RESULTS = Path(__file__).parent / "results" / "compare.json"

# Pairs of returns in [0, 1], drawn from common and own randomness.
PAIRS: dict[str, Callable[[np.random.Generator, int], tuple[Floats, Floats]]] = {
    "high, same seeds": lambda rng, n: _with_noise(rng, stats.beta.ppf(rng.random(n), 8, 1), 0.05),
    "uniform, same seeds": lambda rng, n: _with_noise(rng, rng.random(n), 0.1),
    "uniform, independent": lambda rng, n: (rng.random(n), rng.random(n)),
    "bowl, independent": lambda rng, n: (rng.beta(0.3, 0.3, n), rng.beta(0.3, 0.3, n)),
    "rare failures": lambda rng, n: (_coins(rng, n, 0.98), _coins(rng, n, 0.95)),
    "coins": lambda rng, n: (_coins(rng, n, 0.6), _coins(rng, n, 0.5)),
    "perfect and nearly": lambda rng, n: (np.ones(n), np.where(rng.random(n) < 0.1, rng.random(n), 1.0)),
    "high and low": lambda rng, n: (rng.beta(8, 2, n), rng.beta(2, 8, n)),
}


def _coins(rng: np.random.Generator, n: int, chance: float) -> Floats:
    return (rng.random(n) > 1 - chance).astype(np.float64)


def _with_noise(rng: np.random.Generator, common: Floats, spread: float) -> tuple[Floats, Floats]:
    own = spread * rng.normal(size=(2, common.size))
    return np.clip(common + own[0], 0, 1), np.clip(0.97 * common + own[1], 0, 1)


def surefoot_width(x: Floats, y: Floats, *, only_wins: bool) -> float:
    """The interval of ``surefoot compare``."""
    found = difference_interval(Pairs("seeds", x, y, 0.0, 1.0, only_wins=only_wins), ALPHA)
    return found.high - found.low


def hoeffding(z: Floats) -> tuple[float, float]:
    """Two-sided, for values in [0, 1]."""
    reach = math.sqrt(math.log(2 / ALPHA) / (2 * z.size))
    return z.mean() - reach, z.mean() + reach


def maurer_pontil(z: Floats) -> tuple[float, float]:
    """Empirical Bernstein, two-sided by a union bound."""
    log = math.log(4 / ALPHA)
    reach = math.sqrt(2 * z.var(ddof=1) * log / z.size) + 7 * log / (3 * (z.size - 1))
    return z.mean() - reach, z.mean() + reach


def _past_moments(z: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of what came before each value, regularized by half a value."""
    n = np.arange(1, z.size + 1)
    means = (0.5 + np.cumsum(z)) / (n + 1)
    variances = (0.25 + np.cumsum((z - means) ** 2)) / (n + 1)
    return np.append(0.5, means[:-1]), np.append(0.25, variances[:-1])


def plug_in_bernstein(z: Floats) -> tuple[float, float]:
    """Predictable plug-in empirical Bernstein, at a fixed number of values."""
    means, variances = _past_moments(z)
    sizes = np.minimum(np.sqrt(2 * math.log(2 / ALPHA) / (z.size * variances)), 0.5)
    cost = 4 * (z - means) ** 2 * (-np.log1p(-sizes) - sizes) / 4
    center = (sizes @ z) / sizes.sum()
    reach = (math.log(2 / ALPHA) + cost.sum()) / sizes.sum()
    return center - reach, center + reach


def hedged_capital(z: Floats) -> tuple[float, float]:
    """Both directions bet against each mean of a grid; the mean is kept while neither half of the capital is large."""
    _, variances = _past_moments(z)
    sizes = np.sqrt(2 * math.log(2 / ALPHA) / (z.size * variances))
    grid = (np.arange(GRID) + 0.5) / GRID
    grid = _refined(grid, z)
    above = np.zeros(grid.size)
    below = np.zeros(grid.size)
    most = np.zeros(grid.size)
    for value, size in zip(z, sizes, strict=True):
        above += np.log1p(np.minimum(size, 0.5 / grid) * (value - grid))
        below += np.log1p(-np.minimum(size, 0.5 / (1 - grid)) * (value - grid))
        np.maximum(most, np.maximum(above, below) - math.log(2), out=most)
    kept = grid[most < math.log(1 / ALPHA)]
    return float(kept.min()), float(kept.max())


def _refined(grid: Floats, z: Floats) -> Floats:
    """Return a grid that is fine where the interval is: a few standard errors around the mean."""
    reach = 8 * z.std() / math.sqrt(z.size) + 8 / z.size
    near = np.linspace(max(1e-6, z.mean() - reach), min(1 - 1e-6, z.mean() + reach), GRID)
    return np.unique(np.concatenate([grid, near]))


def star_bets(z: Floats) -> tuple[float, float]:
    """Each direction aims at the capital that is still missing, for the values that are left."""
    lower = _star_lower(z)
    return lower, 1 - _star_lower(1 - z)


def _star_lower(z: Floats) -> float:
    _, variances = _past_moments(z)
    grid = _refined((np.arange(GRID) + 0.5) / GRID, z)
    goal = math.log(2 / ALPHA)
    log_capital = np.zeros(grid.size)
    for index, value in enumerate(z):
        missing = np.maximum(goal - log_capital, 0.0)
        sizes = np.minimum(np.sqrt(2 * missing / ((z.size - index) * variances[index])), 1 / grid)
        # Once the goal is reached nothing more is bet.
        log_capital += np.log(np.maximum(1 + sizes * (value - grid), 1e-300))
    refuted = np.cumprod(log_capital >= goal - 1e-9).astype(bool)
    if not refuted[0]:
        return 0.0
    return float(grid[refuted][-1])


PUBLISHED = {
    "Hoeffding": hoeffding,
    "Maurer and Pontil": maurer_pontil,
    "plug-in Bernstein": plug_in_bernstein,
    "hedged capital": hedged_capital,
    "STaR-Bets": star_bets,
}


def measure_widths(n: int, draws: int) -> list[dict[str, object]]:
    """Return mean widths for each pair of laws; differences are in [-1, 1], widths of published ones twice as wide."""
    rows = []
    for name, draw in PAIRS.items():
        rng = np.random.default_rng(n)
        widths: dict[str, list[float]] = {}
        for _ in range(draws):
            x, y = draw(rng, n)
            only_wins = bool(np.isin(x, (0, 1)).all() and np.isin(y, (0, 1)).all())
            widths.setdefault("surefoot", []).append(surefoot_width(x, y, only_wins=only_wins))
            if only_wins:
                # What is lost where nothing says that only 0 and 1 can occur.
                widths.setdefault("surefoot, bets", []).append(surefoot_width(x, y, only_wins=False))
            for other, interval in PUBLISHED.items():
                low, high = interval((x - y + 1) / 2)
                widths.setdefault(other, []).append(2 * (min(high, 1) - max(low, 0)))
        row: dict[str, object] = {"pair": name, "n": n}
        means = {key: float(np.mean(values)) for key, values in widths.items()}
        best = min(value for key, value in means.items() if not key.startswith("surefoot"))
        row |= means
        row["ratio"] = means["surefoot"] / best
        rows.append(row)
        print({key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}, flush=True)
    return rows


def measure_coverage(n: int = 30, runs: int = 120, alpha: float = 0.1) -> None:
    """Count misses for each pair of laws and each kind of dependence, and those of bootstrap intervals of IQMs."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
    from laws import DEPENDENCES, LAWS_OF_PAIRS, QUANTILES, draw_pairs

    rows = []
    for laws in LAWS_OF_PAIRS:
        truth = QUANTILES[laws[0]][1] - QUANTILES[laws[1]][1]
        for dependence in DEPENDENCES:
            rng = np.random.default_rng(0)
            misses = 0
            for _ in range(runs):
                x, y = draw_pairs(laws, dependence, rng, n)
                found = difference_interval(Pairs("seeds", x, y, 0.0, 1.0), alpha)
                misses += not found.low <= truth <= found.high
            chance = float(stats.binom.sf(misses - 1, runs, alpha))
            rows.append({"laws": laws, "dependence": dependence, "misses": misses, "runs": runs, "chance": chance})
            print(rows[-1], flush=True)
    bootstrap = {}
    for n_runs in (3, 5, 10, 20):
        rng = np.random.default_rng(n_runs)
        covered = 0
        for _ in range(200):
            a, b = rng.normal(size=(2, n_runs))
            low, high = compare_training_runs(a, b).interval
            covered += low <= 0 <= high
        bootstrap[n_runs] = covered / 200
    print(bootstrap)
    content = {"n": n, "alpha": alpha, "rows": rows, "bootstrap_95": bootstrap}
    RESULTS.with_name("compare-coverage.json").write_text(json.dumps(content, indent=1) + "\n")


def measure_agents() -> None:
    """Print widths of paired and unpaired intervals of two agents that are much alike, and of two trainings."""
    # two amounts of noise on the same weights, and two trainings
    print_widths("cartpole-5-s0.4", "cartpole-5-s0.4", 2_000, sigma_b=0.38)
    print_widths("cartpole-5-s0.4", "cartpole-5-s0.6", 2_000, sigma_b=0.6)
    print_widths("HalfCheetah-v5-s0.2", "HalfCheetah-v5-s0.2", 400, sigma_b=0.19)


def measure_checkpoints() -> None:
    """Print the same of agents and their next checkpoints, which SB3's PPO trains here."""
    from stable_baselines3 import PPO

    for env, steps, n, sigma in (("CartPole-v1", 20_480, 2_000, 0.1), ("HalfCheetah-v5", 40_960, 200, 0.05)):
        with tempfile.TemporaryDirectory() as folder:
            model = PPO("MlpPolicy", env, seed=0, device="cpu")
            names: list[str] = []
            for more in (steps, steps // 4):
                model.learn(more, reset_num_timesteps=not names)
                names.append(f"{folder}/{model.num_timesteps}.zip")
                model.save(names[-1])
            # of HalfCheetah no range is proved; a step of these agents pays less than 20 either way
            task = surefoot.make_task(env, reward_range=None if env == "CartPole-v1" else (-20.0, 20.0))
            # the next checkpoint is A, so that a gate would ask whether it is better
            print_widths(names[1], names[0], n, task=task, sigma=sigma, sigma_b=sigma)


def print_widths(a: str, b: str, n: int, **how: Any) -> None:
    """Print the paired interval of two agents and that of the same returns in random order."""
    with tempfile.TemporaryDirectory() as folder:
        made = surefoot.compare(a, b, n_episodes=n, out=Path(folder) / "run", **how)
        first, second = (surefoot.Episodes.load(Path(folder) / "run" / side / "episodes.npz") for side in "AB")
    paired = difference_interval(Pairs("seeds", first.returns, second.returns, *made.limits), ALPHA)
    shuffled = np.random.default_rng(0).permutation(second.returns)
    unpaired = difference_interval(Pairs("independent", first.returns, shuffled, *made.limits), ALPHA)
    ratio = paired.resolution / unpaired.resolution
    correlation = float(np.corrcoef(first.returns, second.returns)[0, 1])
    print(Path(a).name, Path(b).name, how.get("sigma_b"), n, "means", first.returns.mean(), second.returns.mean())
    print("  paired", paired, "unpaired", unpaired, f"ratio {ratio:.3f}", f"r {correlation:.3f}", flush=True)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", action="store_true")
    parser.add_argument("--checkpoints", action="store_true")
    parser.add_argument("--coverage", action="store_true")
    arguments = parser.parse_args()
    if arguments.coverage:
        measure_coverage()
        return
    if arguments.agents:
        measure_agents()
        return
    if arguments.checkpoints:
        measure_checkpoints()
        return
    rows = []
    for n, draws in ((100, 40), (1_000, 12), (10_000, 3)):
        rows += measure_widths(n, draws)
    RESULTS.write_text(json.dumps({"alpha": ALPHA, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
