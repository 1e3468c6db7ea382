"""CartPole agents of the paper's settings, run by run: what selection adds, and what undefended ones withstand.

    python zoo/build.py train --preset paper --tasks cartpole-5 --sigmas 0 --seeds 1 2 3 4 --work runs/paper-preset
    python zoo/build.py train --preset paper --tasks cartpole-1 --sigmas 0 --seeds 1 3 4 --work runs/paper-preset
    python -m study.paper_preset --run runs/paper-preset    # attacks, into study/data/paper-preset
    python -m study.paper_preset --write                    # put the tables into docs/study.md

The pretrained agents of the study are the best of several runs. What the others certify is on the agents' cards; runs
without noise, the pretrained ones among them, are attacked by Algorithm 1 with the default lambdas.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from study.agents_table import ROOT, put
from study.measure import attack_of
from study.numbers import DATA, Agent, Study, shipped_agents
from study.paper import UNITS
from study.sizes import CARTPOLE_BUDGETS, AttackSize
from study.tables import Table, certified, measured
from surefoot.agents.files import load_card
from surefoot.files import read_json, versions, write_json
from surefoot.play.rollout import play
from surefoot.runs.attacked import summary

FOLDER = DATA / "paper-preset"
EPISODES = 200  # of every budget and lambda
TASKS = ("cartpole-5", "cartpole-1")
TRAINING = ("preset", "seed", "command", "steps", "seconds", "device", "best_validation")
KEPT = ("budgets", "lambdas", "episodes", "mean", "sem", "curve", "curve_sem", "curve_lambda", "mean_spent")


def measure(agent: str) -> str:
    """Attack one undefended agent, and keep what came of it."""
    card = load_card(agent)
    named = Agent(agent, card["task"], card["sigma"], card["sha256"], card)
    grid = attack_of(named, AttackSize(CARTPOLE_BUDGETS, (0.0,), EPISODES), "cpu")
    grid = replace(grid, lambdas=grid.default_lambdas())
    found = summary(grid, {cell: play(grid.plan(*cell)) for cell in grid.configurations()})
    facts = {
        "schema": 1,
        "task": card["task"],
        "agent_sha256": card["sha256"],
        **{key: card["training"][key] for key in TRAINING},
        "attack": {key: found[key] for key in KEPT},
        "versions": versions(),
    }
    name = f"{card['task']}-s0-seed{facts['seed']}"
    write_json(FOLDER / f"{name}.json", facts)
    return f"{name}: {', '.join(f'{mean:.1f}' for mean in found['curve'])}"


def runs(task: str) -> list[dict[str, Any]]:
    """Return what is kept of a task's undefended runs, by their seed."""
    found = [read_json(path) for path in FOLDER.glob(f"{task}-s0-seed*.json")]
    return sorted(found, key=lambda one: int(one["seed"]))


def selected() -> str:
    """Return what every run with the paper's settings certifies at budget sigma, next to the agent that was kept."""
    study, rows = Study(DATA, shipped_agents()), []
    for agent in (agent for task in TASKS for agent in study.of(task) if agent.sigma > 0):
        scores = [
            float(one["selection"]["certified_at_sigma"])
            for one in agent.card["candidates"]
            if one["preset"] == "paper" and one["selection"] is not None
        ]
        kept, count = agent.card["selection"]["certified_at_sigma"], len(agent.card["candidates"])
        shown = [certified(value, 1) for value in (min(scores), median(scores), max(scores), kept)]
        how = f"{agent.card['training']['preset']}, of {count}"
        rows.append([UNITS[agent.task].title, f"{agent.sigma:g}", f"{len(scores)}", *shown, how])
    heads = ["task", "sigma and B", "runs", "lowest", "median", "highest", "kept", "its preset"]
    return Table(heads, rows, left=1).markdown()


def undefended() -> str:
    """Return what undefended runs keep under attack, five frames and one."""
    rows = [
        [
            UNITS[task].title,
            f"{one['seed']}",
            f"{one['steps']:,}",
            *(measured(*pair, 1) for pair in zip(one["attack"]["curve"], one["attack"]["curve_sem"], strict=True)),
        ]
        for task in TASKS
        for one in runs(task)
    ]
    heads = ["task", "seed", "steps", *(f"B = {budget:g}" for budget in CARTPOLE_BUDGETS)]
    return Table(heads, rows, left=1).markdown()


def main() -> None:
    """Measure, print or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, metavar="FOLDER", help="of the training runs; those measured are left out")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    if arguments.run is not None:
        known = {one["agent_sha256"] for task in TASKS for one in runs(task)}
        trained = [str(card.parent) for card in sorted(arguments.run.glob("*-s0-*/agent.json"))]
        for agent in (*(f"{task}-s0" for task in TASKS), *trained):
            if load_card(agent)["sha256"] not in known:
                print(measure(agent), flush=True)
    for block, content in (("selected-runs", selected()), ("undefended-runs", undefended())):
        if arguments.write:
            put(ROOT / "docs" / "study.md", block, content)
        else:
            print(content)


if __name__ == "__main__":
    main()
