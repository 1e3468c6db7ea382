"""What `auto` loses by choosing on pilot episodes: its certified values against the best single method's.

    python bench/regret.py                    # about an hour on one core; results go to bench/results/regret.json
    python bench/regret.py --sizes 1000       # only these; what the file has for other sizes, of its planner, stays
    python bench/regret.py --sizes 1000 --draws 4 --out /tmp/regret.json
    python bench/regret.py --sources fractions --out /tmp/fractions.json    # only those with that in their names

Every source is a distribution of returns: a record of this repository or a synthetic one. Each draw is a fresh sample
of n returns, certified at 95% for a grid of scaled budgets (B / sigma) and for single ones. The best single method is
the best of `betting`, `band`, `per-threshold` (spacing 1; for fractions 0.01) and, where only floor and ceiling can
come, `binary`, each on all n episodes. Wins and losses are declared where the record's task declares them. Values are
measured above the floor. Differences below half a percent of the range from floor to ceiling count as none: there both
certificates say next to nothing, and a quotient would compare noise.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.episodes import Episodes
from surefoot.files import write_json
from surefoot.proof.bounds import bands as cdf
from surefoot.proof.bounds.from_band import mean_lower
from surefoot.proof.planning.auto import MethodChoice, choose_method
from surefoot.proof.planning.bettors import PLANNER_VERSION
from surefoot.proof.planning.strategies import worst_means

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Floats]
HERE = Path(__file__).resolve().parent
STUDY = HERE.parent / "study" / "data"
ALPHA = 0.05
MEAN, DRAW = 0.985, 0.95  # of the best single method: the mean over draws, and any single draw
TOLERANCE = 0.005  # of the range
LARGE = 1_000_000  # for the nearly perfect agents alone
DRAWS = {1_000: 5, 10_000: 5, 100_000: 4, LARGE: 2}
RADII = (0.0, 1.0, 2.0, 3.0, 4.0)


@dataclass(frozen=True)
class Source:
    """A distribution of returns, and the scaled budgets that are asked for together and one by one."""

    name: str
    draw: Draw
    floor: float
    ceiling: float
    grid: tuple[float, ...] = RADII
    single: tuple[float, ...] = (1.0, 2.0, 3.0)
    large: bool = False
    binary: bool = False
    declared: bool = False
    spacing: float = 1.0


def resampled(name: str, returns: Floats, floor: float, ceiling: float, **more: Any) -> Source:
    """Return the distribution of recorded returns."""
    kept = returns.astype(np.float64)
    two = bool(np.isin(kept, [floor, ceiling]).all())
    return Source(name, lambda rng, n: rng.choice(kept, n), floor, ceiling, binary=two, **more)


def recorded() -> Iterator[Source]:
    """Yield the shipped records with noise, at budgets of their tasks, and the nearly perfect agents."""
    for path in sorted((STUDY / "episodes").glob("*.npz")):
        episodes = Episodes.load(path)
        if episodes.sigma == 0 or episodes.ceiling is None:
            continue
        wide = 0.4 if "pong" in path.stem or "freeway" in path.stem else 1.0
        grid = np.linspace(0, wide, 6) / episodes.sigma
        asked = {"grid": tuple(grid.tolist()), "single": tuple(grid[[1, 2, 3]].tolist())}
        declared = episodes.metadata.get("binary") is True
        yield resampled(path.stem, episodes.returns, episodes.floor, episodes.ceiling, declared=declared, **asked)
    with np.load(STUDY / "published" / "near-perfect.npz") as agents:
        for name in agents.files:
            grid = np.linspace(0, 1, 6) / float(name.split("-s")[-1])
            asked = {"grid": tuple(grid.tolist()), "single": tuple(grid[[1, 3, 5]].tolist())}
            yield resampled(name, agents[name], 0.0, 200.0, large=True, **asked)


def atoms(name: str, floor: float, ceiling: float, values: list[float], weights: list[float]) -> Source:
    """Return a distribution on finitely many values."""
    two = bool(np.isin(values, [floor, ceiling]).all())
    return Source(name, lambda rng, n: rng.choice(np.array(values), n, p=weights), floor, ceiling, binary=two)


def mixed(name: str, ceiling: float, rare: float, low: Draw, **more: Any) -> Source:
    """Return the ceiling with few exceptions, which have a distribution of their own from the floor 0 up."""

    def draw(rng: np.random.Generator, n: int) -> Floats:
        return np.where(rng.random(n) < rare, low(rng, n), ceiling)

    return Source(name, draw, 0.0, ceiling, **more)


def fractions() -> Iterator[Source]:
    """Yield nearly perfect scores with partial failures, as fractions and, the same draws, in percent."""
    for unit, name, spacing in ((1.0, "fractions", 0.01), (100.0, "percent", 1.0)):
        for rare, least in ((0.001, 0.8), (0.001, 0.0), (0.02, 0.0)):

            def low(rng: np.random.Generator, n: int, unit: float = unit, least: float = least) -> Floats:
                return unit * rng.uniform(least, 1.0, n)

            yield mixed(f"{name}, {rare:g} from {least:g} up", unit, rare, low, spacing=spacing)


def synthetic() -> tuple[Source, ...]:
    """Return distributions of many shapes."""
    whole = np.arange(-21.0, 22.0)
    pong = np.exp(-(((whole - 17) / 3) ** 2) / 2)
    few = [0.0, 1.0, 2.0, 4.0]
    return (
        atoms("two points", 0.0, 1.0, [0.0, 1.0], [0.03, 0.97]),
        atoms("two points inside", 0.0, 10.0, [3.0, 9.0], [0.1, 0.9]),
        atoms("few values", 0.0, 4.0, few, [0.1, 0.2, 0.3, 0.4]),
        atoms("rare catastrophe", 0.0, 100.0, [0.0, 99.0, 100.0], [0.01, 0.49, 0.5]),
        atoms("long low tail", -5.0, 5.0, [-5.0, -3.0, 0.0, 4.0, 5.0], [0.002, 0.01, 0.05, 0.238, 0.7]),
        atoms("like freeway", 0.0, 34.0, [20.0, 24.0, 28.0, 32.0], [0.05, 0.15, 0.3, 0.5]),
        Source("like full pong", lambda rng, n: rng.choice(whole, n, p=pong / pong.sum()), -21.0, 21.0),
        Source("uniform", lambda rng, n: 10 * rng.random(n), 0.0, 10.0),
        Source("continuous", lambda rng, n: 10 * rng.beta(4, 1.5, n), 0.0, 10.0),
        Source("mostly perfect", lambda rng, n: 200 * rng.beta(20, 1, n), 0.0, 200.0),
        Source("mostly lost", lambda rng, n: 50 * rng.beta(0.5, 4, n), 0.0, 50.0),
        Source("heavy low tail", lambda rng, n: 100 * (1 - np.minimum(0.02 * rng.pareto(1.5, n), 1.0)), 0.0, 100.0),
        mixed("perfect but for one in 300", 200.0, 1 / 300, lambda rng, n: 200 * rng.random(n)),
        mixed("perfect but for one in 3000, low", 200.0, 1 / 3000, lambda rng, n: 20 * rng.random(n)),
        mixed("500 with rare whole numbers", 500.0, 0.01, lambda rng, n: np.floor(500 * rng.beta(2, 1, n))),
        atoms("always perfect", 0.0, 200.0, [200.0], [1.0]),
        *fractions(),
    )


def lower_of(choice: MethodChoice, returns: Floats, radii: Floats, floor: float) -> Floats:
    """Return the lower bounds after a choice that is not `betting`, as `certify` computes them."""
    rest = returns[choice.pilot :]
    if choice.method == "band":
        return np.maximum(mean_lower(cdf.tail_tight(rest, ALPHA), floor, radii), floor)
    band = cdf.spread_thresholds(rest, choice.points, choice.survival_alphas, choice.cdf_alphas)
    return np.maximum(mean_lower(band, floor, radii), floor)


def singles(
    returns: Floats, radii: Floats, floor: float, ceiling: float, binary: bool = False, spacing: float = 1.0
) -> dict[str, Floats]:
    """Return the lower bounds of each single method on all returns."""
    thresholds = np.append(floor + spacing * np.arange(round((ceiling - floor) / spacing)), ceiling)
    bands = {
        "band": cdf.tail_tight(returns, ALPHA),
        "per-threshold": cdf.per_threshold(returns, thresholds, ALPHA, floor, ceiling),
    }
    if binary:
        bands["binary"] = cdf.binary(returns, floor, ceiling, ALPHA)
    found = {name: np.maximum(mean_lower(band, floor, radii), floor) for name, band in bands.items()}
    return {"betting": worst_means(returns, radii, ALPHA, floor, ceiling).at(radii), **found}


def compared(source: Source, asked: tuple[float, ...], n: int, draws: int) -> list[dict[str, Any]]:
    """Return one row per scaled budget: what `auto` and the best single method certify above the floor."""
    radii, ours, theirs, chosen = np.array(asked), [], [], Counter[str]()
    for seed in range(draws):
        returns = source.draw(np.random.default_rng([seed, n]), n)
        found = singles(returns, radii, source.floor, source.ceiling, source.binary, source.spacing)
        choice = choose_method(returns, radii, ALPHA, source.floor, source.ceiling, declared=source.declared)
        chosen[choice.method] += 1
        same = choice.method == "betting"  # which has the same pilot episodes without a choice
        ours.append((found["betting"] if same else lower_of(choice, returns, radii, source.floor)) - source.floor)
        theirs.append({name: values - source.floor for name, values in found.items()})
    rows = [row_of(source, np.array(ours), theirs, place) for place in range(radii.size)]
    facts = {"source": source.name, "n": n, "asked": len(asked), "chosen": dict(chosen)}
    return [{**facts, "radius": radius, **row} for radius, row in zip(asked, rows, strict=True)]


def row_of(source: Source, ours: Floats, theirs: list[dict[str, Floats]], place: int) -> dict[str, Any]:
    """Return means, the quotient of means, and the least quotient in a draw, all at one of the budgets."""
    slack = TOLERANCE * (source.ceiling - source.floor)
    names = set.intersection(*(set(found) for found in theirs))
    means = {name: float(np.mean([found[name][place] for found in theirs])) for name in sorted(names)}
    best = max(means, key=lambda name: means[name])
    tops = np.array([max(values[place] for values in found.values()) for found in theirs])
    mine = ours[:, place]
    each = np.where(tops - mine <= slack, 1.0, mine / np.maximum(tops, 1e-300))
    mean = float(mine.mean())
    ratio = 1.0 if means[best] - mean <= slack else mean / means[best]
    shown = {"auto": mean, "best": best, "means": means}
    return {**shown, "ratio": ratio, "least": float(each.min()), "plain": mean / max(means[best], 1e-300)}


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return, for each n, the worst quotients and the cells that fall short."""
    lines = []
    for n in sorted({row["n"] for row in rows}):
        here = [row for row in rows if row["n"] == n]
        short = [row for row in here if row["ratio"] < MEAN or row["least"] < DRAW]
        keys = ("source", "asked", "radius", "ratio", "least", "auto", "best", "chosen")
        lines.append(
            {
                "n": n,
                "cells": len(here),
                "worst_mean": min(row["ratio"] for row in here),
                "worst_draw": min(row["least"] for row in here),
                "short": [{key: row[key] for key in keys} for row in short],
            }
        )
    return lines


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, help="the same number for all sizes")
    parser.add_argument("--sizes", type=int, nargs="+", choices=DRAWS, default=list(DRAWS))
    parser.add_argument("--sources", default="", help="only sources with this in their names")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "regret.json")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for n in given.sizes:
        for source in (*recorded(), *synthetic()):
            if (n >= LARGE and not source.large) or given.sources not in source.name:
                continue
            for asked in (source.grid, *((radius,) for radius in source.single)):
                rows += compared(source, asked, n, given.draws or DRAWS[n])
            print(n, source.name, json.dumps(rows[-1]["chosen"]), flush=True)
    before = json.loads(given.out.read_text()) if given.out.exists() else {"draws": {}, "planner": {}, "cells": []}
    again = {(row["n"], row["source"]) for row in rows}
    kept = [row for row in before["cells"] if (row["n"], row["source"]) not in again]
    rows = sorted(kept + rows, key=lambda row: int(row["n"]))
    lines = summary(rows)
    print(json.dumps(lines, indent=1))
    draws = {**before["draws"], **{str(n): given.draws or DRAWS[n] for n in given.sizes}}
    planner = {**before["planner"], **{str(n): PLANNER_VERSION for n in given.sizes}}
    write_json(given.out, {"schema": 1, "draws": draws, "planner": planner, "summary": lines, "cells": rows})


if __name__ == "__main__":
    main()
