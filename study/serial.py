"""One agent of Pong in single rounds and in whole games under one attack: how the harmful budget grows with rounds.

    python -m study.serial    # -> study/data/serial.json; a quarter of an hour of one core
    python -m study.serial --rounds 1000 --games 64 --device cuda --jobs 7

The agents of ``pong-1r`` and ``pong-full`` are different networks, and differ in how hard they are to attack.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Any

import numpy as np

from study.figures.pong import FULL, ROUND
from study.measure import attack_of, unattacked
from study.numbers import DATA, Agent, Study, shipped_agents
from study.paper import ROUNDS
from study.sizes import AttackSize
from study.style import attack_curve, mean_of
from study.tables import UNMEASURED, Finding, Table, by_budget, measured
from surefoot.files import write_json
from surefoot.provenance import versions
from surefoot.runs.folder import RunFolder

Curve = tuple[list[float], list[float], list[float]]  # budgets, means, standard errors
AGENT, LAMBDA = "pong-full-s0", 0.3
# Task, budget and episodes of every measurement; budget 0 is without attack.
GRID = (
    (ROUND, 0.0, 256),
    (ROUND, 0.4, 32),
    (ROUND, 0.8, 32),
    (ROUND, 1.6, 32),
    (FULL, 1.6, 4),
    (FULL, 3.2, 4),
    (FULL, 6.4, 4),
)


def root_law(study: Study, task: str) -> Finding:
    """Compare one round with a whole game, each by its own agent: the strongest attack on either."""
    one, game = study.bare(ROUND), study.bare(task)
    first, whole = study.attack(one), study.attack(game)
    if one is None or game is None or first is None or whole is None:
        return Finding(UNMEASURED, UNMEASURED)
    return held_to_the_root(attack_curve(study, one, first), attack_curve(study, game, whole))


def root_law_of_one_agent(study: Study, task: str) -> Finding:
    """Compare single rounds with whole games of one agent, attacked alike."""
    found, game = study.serial(), study.bare(task)
    record = None if game is None else study.record(game)
    if found is None or record is None:
        return Finding(UNMEASURED, UNMEASURED)
    mean, error = mean_of(record.returns)
    curves: dict[str, Curve] = {ROUND: ([], [], []), task: ([0.0], [mean], [error])}
    for row in found["rows"]:
        for column, value in zip(curves[row["task"]], (row["budget"], *mean_of(np.array(row["returns"]))), strict=True):
            column.append(value)
    return held_to_the_root(curves[ROUND], curves[task])


def held_to_the_root(rounds: Curve, games: Curve) -> Finding:
    """Compare the budget b that halves the chance of winning a round with what the same attack does to a whole game.

    If rounds were alike and independent, n rounds that are each won half as often would take a budget of b sqrt(n),
    and the game would end about even. What a smaller budget takes at most follows from the best way to spread it.
    """
    half, even = falls_to(rounds[1][0] / 2, *rounds[:2]), falls_to(0.0, *games[:2])
    if half is None:
        return Finding(f"no budget up to {rounds[0][-1]:g} halves the chance to win a round", "not measured far enough")
    least, most, last = math.sqrt(ROUNDS), math.sqrt(2 * ROUNDS - 1), games[0][-1]
    text = (
        f"A round is won with {rounds[1][0]:.3f}, half of that at b = {half:.3f} (interpolated). The root law predicts "
        f"an even game, of {ROUNDS} to {2 * ROUNDS - 1} rounds, at {half * least:.2f} to {half * most:.2f}, and "
        f"{_loss_in_words(rounds, games)}."
    )
    numbers = _curves(rounds, games)
    asked = f"the law asks for {least:.1f} to {most:.1f} b"
    if even is not None:
        verdict = f"{'yes' if even >= half * least else 'no'}: even at {even / half:.1f} b; {asked}"
    else:
        up_to = f"B = {last:g} = {last / half:.1f} b"
        verdict = f"not contradicted: no game is even up to {up_to}; {asked}; the root not shown"
    return Finding(text, verdict, numbers)


def _curves(rounds: Curve, games: Curve) -> Table:
    """Return what was measured of rounds and of games, budget by budget."""
    budgets = sorted({*rounds[0], *games[0]})
    rows = []
    for name, (measured_at, means, errors), digits in (("rounds won", rounds, 3), ("score of a game", games, 1)):
        known = {at: measured(mean, error, digits) for at, mean, error in zip(measured_at, means, errors, strict=True)}
        rows.append([name, *(known.get(budget, "") for budget in budgets)])
    return by_budget(rows, budgets)


def _loss_in_words(rounds: Curve, games: Curve) -> str:
    goals, count = spread_best(games[0][-1], *rounds[:2])
    lost, error = games[1][0] - games[1][-1], math.hypot(games[2][0], games[2][-1])
    return (
        f"{goals:.1f} goals lost at B = {games[0][-1]:g} if that is spread over {count} rounds; "
        f"Algorithm 1 cost {measured(lost, error, 1)}"
    )


def falls_to(level: float, budgets: Sequence[float], means: Sequence[float]) -> float | None:
    """Return the budget at which the mean falls to a level, between two that were measured; None if it never does."""
    for place in range(1, len(means)):
        if means[place] <= level:
            return float(np.interp(-level, [-means[place - 1], -means[place]], budgets[place - 1 : place + 1]))
    return None


def spread_best(budget: float, budgets: Sequence[float], won: Sequence[float]) -> tuple[float, int]:
    """Return how many rounds a budget costs at most, and over how many it is spread then, each at a measured budget."""
    ways = [(each, min(ROUNDS, math.floor((budget / each) ** 2 + 1e-9))) for each in budgets if each > 0]
    return max((count * (won[0] - won[budgets.index(each)]), count) for each, count in ways)


def serial(
    out: Path, work: Path, device: str = "cpu", jobs: int = 1, grid: tuple[tuple[str, float, int], ...] = GRID
) -> None:
    """Measure and write; what is in ``work`` already is not run again."""
    agent = next(one for one in shipped_agents() if one.name == AGENT)
    measure = partial(returns_of, agent, work, device)
    if jobs == 1:
        rows = list(starmap(measure, grid))
    else:
        with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
            rows = list(pool.map(measure, *zip(*grid, strict=True)))
    facts = {"agent": agent.name, "agent_sha256": agent.sha256, "lambda": LAMBDA, "device": device}
    write_json(out / "serial.json", {"schema": 1, **facts, "rows": rows, "versions": versions()})


def returns_of(agent: Agent, work: Path, device: str, task: str, budget: float, episodes: int) -> dict[str, Any]:
    """Return the returns of one task at one budget."""
    player = replace(agent, task=task)
    size = AttackSize((budget,), (LAMBDA,), episodes)
    plan = attack_of(player, size, device).plan(budget, LAMBDA) if budget > 0 else unattacked(player, episodes, device)
    folder = work / f"serial-{task}-{budget:g}-n{episodes}-{device}"
    with RunFolder(folder, plan.setup()).opened() as store:
        returns = store.recorded(plan).returns.tolist()
    print(f"{task}, B = {budget:g}: {sum(returns) / episodes:.3f} in {episodes} episodes", flush=True)
    return {"task": task, "budget": budget, "returns": returns}


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=32, help="attacked rounds of each budget")
    parser.add_argument("--games", type=int, default=4, help="whole games of each budget")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path("runs"))
    parser.add_argument("--out", type=Path, default=DATA)
    arguments = parser.parse_args()
    sizes = {ROUND: arguments.rounds, FULL: arguments.games}
    grid = tuple((task, budget, sizes[task] if budget else max(count, sizes[task])) for task, budget, count in GRID)
    serial(arguments.out, arguments.work, arguments.device, arguments.jobs, grid)


if __name__ == "__main__":
    main()
