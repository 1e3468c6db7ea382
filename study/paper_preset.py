"""CartPole agents trained exactly as the paper's, one run each and nothing selected: what they certify and withstand.

    python zoo/build.py train --preset paper --tasks cartpole-5 cartpole-1 --sigmas 0.2 0.4 0.6 0.8 --seeds 0 \
      --work runs/paper-preset
    python zoo/build.py train --preset paper --tasks cartpole-5 cartpole-1 --sigmas 0 --seeds 1 2 3 4 \
      --work runs/paper-preset
    python -m study.paper_preset --run runs/paper-preset    # episodes and attacks, into study/data/paper-preset
    python -m study.paper_preset --write                    # put the tables into docs/study.md

The pretrained agents of the study are the best of several runs. These show what a single one is worth: agents with
noise run 10,000 episodes for a certificate, those without are attacked by Algorithm 1 with the default lambdas.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from study.agents_table import ROOT, put
from study.numbers import DATA, Study, shipped_agents
from study.paper import UNITS
from study.sizes import CARTPOLE_BUDGETS
from study.style import mean_of
from study.tables import Table, certified, measured
from surefoot.agents.files import load
from surefoot.episodes import Episodes, Noise
from surefoot.files import read_json, versions, write_json
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.tasks import get_task
from surefoot.proof.query import certify
from surefoot.runs.attacked import AttackGrid, summary

FOLDER = DATA / "paper-preset"
CERTIFIED, ATTACKED = 10_000, 200  # episodes
TASKS = ("cartpole-5", "cartpole-1")
TRAINING = ("preset", "seed", "command", "steps", "seconds", "device", "best_validation")
KEPT = ("budgets", "lambdas", "episodes", "mean", "sem", "curve", "curve_sem", "curve_lambda", "mean_spent")


def measure(folder: Path) -> str:
    """Run the episodes of one agent, or attack it if it was trained without noise, and keep what came of it."""
    card = read_json(folder / "agent.json")
    training, sigma = card["training"], card["sigma"]
    facts = {
        "schema": 1,
        "task": card["task"],
        "sigma": sigma,
        "agent_sha256": card["sha256"],
        **{
            key: training[key] for key in ("preset", "seed", "command", "steps", "seconds", "device", "best_validation")
        },
        "versions": versions(),
    }
    name = f"{card['task']}-s{sigma:g}-seed{training['seed']}"
    plan = Plan(
        task=get_task(card["task"]),
        policy=load(str(folder)),
        noise=Noise.of(sigma),
        n_episodes=CERTIFIED if sigma > 0 else ATTACKED,
    )
    if sigma > 0:
        record = play(plan)
        record.save(FOLDER / f"{name}.npz")
        write_json(FOLDER / f"{name}.json", {**facts, "record_sha256": record.sha256})
        return f"{name}: mean {record.returns.mean():.2f}"
    grid = AttackGrid(base=plan, budgets=CARTPOLE_BUDGETS, lambdas=(0.0,), method="paper", noise_samples=1)
    grid = replace(grid, lambdas=grid.default_lambdas())
    found = summary(grid, {cell: play(grid.plan(*cell)) for cell in grid.configurations()})
    write_json(FOLDER / f"{name}.json", {**facts, "attack": {key: found[key] for key in KEPT}})
    return f"{name}: {', '.join(f'{mean:.1f}' for mean in found['curve'])}"


def runs(task: str, noise: bool) -> list[dict[str, Any]]:
    """Return what is kept of a task's agents with or without noise, by sigma and seed."""
    found = [read_json(path) for path in sorted(FOLDER.glob(f"{task}-s*-seed*.json"))]
    return sorted(
        (one for one in found if (one["sigma"] > 0) is noise), key=lambda one: (float(one["sigma"]), int(one["seed"]))
    )


def certificates() -> str:
    """Return what single runs certify by the paper's method, each with the study's agent of the same sigma below it."""
    study, rows = Study(DATA, shipped_agents()), []
    for task in TASKS:
        for one in runs(task, noise=True):
            single = Episodes.load(FOLDER / f"{task}-s{one['sigma']:g}-seed{one['seed']}.npz")
            assert single.sha256 == one["record_sha256"]
            chosen = next(agent for agent in study.smoothed(task) if agent.sigma == one["sigma"])
            kept = study.record(chosen)
            assert kept is not None
            count = len(chosen.card["candidates"])
            for who, record in (("one run", single), (f"best of {count}", kept)):
                bounds = certify(record, CARTPOLE_BUDGETS, method="paper").lower
                cells = [measured(*mean_of(record.returns), 1), *(certified(float(value), 1) for value in bounds)]
                rows.append([UNITS[task].title, f"{one['sigma']:g}", who, *cells])
    heads = ["task", "sigma", "agent", "mean, no attack", *(f"B = {budget:g}" for budget in CARTPOLE_BUDGETS)]
    return Table(heads, rows, left=3).markdown()


def undefended() -> str:
    """Return what single undefended runs keep under attack, five frames and one."""
    rows = [
        [
            UNITS[task].title,
            f"{one['seed']}",
            f"{one['steps']:,}",
            *(measured(*pair, 1) for pair in zip(one["attack"]["curve"], one["attack"]["curve_sem"], strict=True)),
        ]
        for task in TASKS
        for one in runs(task, noise=False)
    ]
    heads = ["task", "seed", "steps", *(f"B = {budget:g}" for budget in CARTPOLE_BUDGETS)]
    return Table(heads, rows, left=1).markdown()


def main() -> None:
    """Measure, print or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, metavar="FOLDER", help="of the training runs; those measured are left out")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    known = {one["agent_sha256"] for task in TASKS for noise in (True, False) for one in runs(task, noise)}
    for card in sorted(arguments.run.glob("*/agent.json")) if arguments.run else ():
        if read_json(card)["sha256"] not in known:
            print(measure(card.parent), flush=True)
    for block, content in (("paper-preset", certificates()), ("undefended-runs", undefended())):
        if arguments.write:
            put(ROOT / "docs" / "study.md", block, content)
        else:
            print(content)


if __name__ == "__main__":
    main()
