"""The pretrained MuJoCo agents: run their episodes, and certify mean and median on the budgets of S-PPO.

    python -m study.mujoco --run Hopper-v5-s0.15 10000       # episodes, into study/data/mujoco
    python -m study.mujoco --write                           # put the tables into docs/results.md and docs/training.md

The budgets are those of ``SPPO/src/reward_bound.py`` of S-PPO (Sun, Gao and Weng, ICML 2024; Trustworthy-ML-Lab/
Robust_HighUtil_Smoothed_DRL at fe91590): 0.002 to 0.01 at each of 1,000 steps, times the root of 1,000.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

from study.agents_table import ROOT, put
from study.numbers import DATA
from study.style import mean_of
from study.tables import Table, measured
from surefoot.agents.files import list_agents, load, load_card
from surefoot.compute import usable_cores
from surefoot.episodes import Episodes
from surefoot.noise import Noise
from surefoot.play.environments import task_of_card
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.proof.query import certify
from surefoot.proof.rounding import format_lower

FOLDER = DATA / "mujoco"
BUDGETS = tuple(round(0.002 * index * 1_000**0.5, 3) for index in range(6))
MEDIAN = 0.5
# The best of three seeds each, which differ in nothing but what the critic sees; the second is not shipped.
CRITICS = {"the clean observation": "HalfCheetah-v5-s0.2", "what the actor sees": "HalfCheetah-v5-s0.2-noisy-critic"}


def agents() -> list[dict[str, Any]]:
    """Return the cards of the pretrained agents that were trained on an environment rather than a task."""
    return [card for card in (load_card(name) for name in list_agents()) if "environment" in card]


def run(card: dict[str, Any], n_episodes: int) -> None:
    """Run an agent's episodes as ``surefoot certify`` does with seed 0, and keep them."""
    noise = Noise.of(card["sigma"])
    plan = Plan(task=task_of_card(card), policy=load(card["name"]), noise=noise, n_episodes=n_episodes)
    play(plan, workers=usable_cores()).save(FOLDER / f"{card['name']}.npz")


def recorded() -> Iterator[tuple[dict[str, Any], Episodes]]:
    """Return the agents with their episodes, where these are of the same weights."""
    for card in agents():
        path = FOLDER / f"{card['name']}.npz"
        episodes = Episodes.load(path) if path.is_file() else None
        if episodes is not None and episodes.metadata["agent_sha256"] == card["sha256"]:
            yield card, episodes


def means(episodes: Episodes) -> list[float]:
    """Return lower bounds on the mean, one per budget."""
    return [float(value) for value in certify(episodes, BUDGETS).lower]


def medians(episodes: Episodes) -> list[float]:
    """Return lower bounds on the median, one per budget."""
    answer = certify(episodes, BUDGETS, quantiles=[MEDIAN])
    return [answer.quantile(MEDIAN, budget).lower for budget in BUDGETS]


HEADS = ["episodes", "mean, no attack", *(f"B = {budget:g}" for budget in BUDGETS)]


def cells(episodes: Episodes, bounds: Callable[[Episodes], list[float]]) -> list[str]:
    """Return what a row says of some episodes."""
    shown = [f"{len(episodes):,}", measured(*mean_of(episodes.returns), 1)]
    return shown + [format_lower(value, 0) for value in bounds(episodes)]


def table(bounds: Callable[[Episodes], list[float]]) -> str:
    """Return one row for every agent."""
    rows = [[f"`{card['name']}`", f"`{card['sha256'][:8]}`", *cells(episodes, bounds)] for card, episodes in recorded()]
    return Table(["agent", "weights", *HEADS], rows, left=2).markdown()


def critics() -> str:
    """Return what the two trainings certify, mean and median."""
    rows = [
        [what, kind, *cells(Episodes.load(FOLDER / f"{name}.npz"), bounds)]
        for kind, bounds in (("mean", means), ("median", medians))
        for what, name in CRITICS.items()
    ]
    return Table(["the critic sees", "certified", *HEADS], rows, left=2).markdown()


def main() -> None:
    """Run, print or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", nargs=2, metavar=("AGENT", "N"), help="run N episodes of an agent")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/results.md")
    arguments = parser.parse_args()
    if arguments.run is not None:
        name, count = arguments.run
        run(load_card(name), int(count))
    for page, name, content in (
        ("results.md", "mujoco", table(means)),
        ("results.md", "mujoco-median", table(medians)),
        ("training.md", "critics", critics()),
    ):
        if arguments.write:
            put(ROOT / "docs" / page, name, content)
        else:
            print(content)


if __name__ == "__main__":
    main()
