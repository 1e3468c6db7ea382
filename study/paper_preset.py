"""Agents of the paper's settings, run by run: what selection adds, and what undefended ones withstand.

    python zoo/build.py train --preset paper --tasks cartpole-5 --sigmas 0 --seeds 1 2 4 --work runs/paper-preset
    python zoo/build.py train --preset paper --tasks mountain-car --sigmas 0 0.2 0.4 0.6 --seeds 0 \\
      --work runs/paper-preset
    python -m study.paper_preset --run runs/paper-preset    # attacks and episodes, into study/data/paper-preset
    python -m study.paper_preset --write                    # put the tables into docs/study.md

The pretrained agents of the study are the best of several runs. What the others of CartPole certify is on the agents'
cards; here runs without noise, CartPole's pretrained ones among them, are attacked with the default lambdas, and those
with noise certified.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from study.agents_table import ROOT, put
from study.measure import attack_of, unattacked
from study.numbers import CONFIDENCE, DATA, Agent, Study, shipped_agents
from study.paper import UNITS
from study.sizes import CARTPOLE_BUDGETS, MOUNTAIN_CAR_BUDGETS, AttackSize
from study.style import mean_of
from study.tables import Table, certified, measured
from surefoot.agents.files import load_card
from surefoot.files import read_json, write_json
from surefoot.play.rollout import play
from surefoot.proof.query import certify
from surefoot.provenance import versions
from surefoot.runs.attacked import summary

FOLDER = DATA / "paper-preset"
EPISODES = 200  # of every budget and lambda
CERTIFIED = 10_000  # episodes of a certificate
TASKS, CAR = ("cartpole-5", "cartpole-1"), "mountain-car"
TRAINING = ("preset", "seed", "command", "steps", "seconds", "device", "best_validation")
KEPT = ("budgets", "lambdas", "n_episodes", "mean", "sem", "curve", "curve_sem", "curve_lambda", "mean_budget_used")


def measure(agent: str) -> str:
    """Attack one undefended agent, or certify a smoothed one, and keep what came of it."""
    card = load_card(agent)
    named = Agent(agent, card["task"], card["sigma"], card["sha256"], card)
    key, found = ("certificate", _certificate(named)) if named.sigma > 0 else ("attack", _attack(named))
    facts = {
        "schema": 1,
        "task": card["task"],
        "sigma": card["sigma"],
        "agent_sha256": card["sha256"],
        **{name: card["training"][name] for name in TRAINING},
        key: found,
        "curve": card["curve"],
        "versions": versions(),
    }
    name = f"{card['task']}-s{card['sigma']:g}-seed{facts['seed']}"
    write_json(FOLDER / f"{name}.json", facts)
    return f"{name}: {', '.join(f'{value:.3g}' for value in found['curve' if key == 'attack' else 'lower'])}"


def _budgets(agent: Agent) -> tuple[float, ...]:
    return MOUNTAIN_CAR_BUDGETS if agent.task == CAR else CARTPOLE_BUDGETS


def _attack(agent: Agent) -> dict[str, Any]:
    grid = attack_of(agent, AttackSize(_budgets(agent), (0.0,), EPISODES), "cpu")
    grid = replace(grid, lambdas=grid.default_lambdas())
    found = summary(grid, {cell: play(grid.plan(*cell)) for cell in grid.configurations()})
    return {key: found[key] for key in KEPT}


def _certificate(agent: Agent) -> dict[str, Any]:
    record = play(unattacked(agent, CERTIFIED, "cpu"))
    made = certify(record, _budgets(agent), CONFIDENCE, "paper")
    mean, error = mean_of(record.returns)
    return {
        "method": made.method,
        "n_episodes": CERTIFIED,
        "mean": mean,
        "sem": error,
        "budgets": [float(budget) for budget in made.budgets],
        "lower": [float(bound) for bound in made.lower],
    }


def runs(task: str, sigma: str = "0") -> list[dict[str, Any]]:
    """Return what is kept of a task's runs, by default the undefended ones, by their noise and seed."""
    found = [read_json(path) for path in FOLDER.glob(f"{task}-s{sigma}-seed*.json")]
    return sorted(found, key=lambda one: (one.get("sigma", 0.0), int(one["seed"])))


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


def mountain_car() -> str:
    """Return what one run of Mountain Car for every noise certifies, next to the agent that was kept."""
    study, rows = Study(DATA, shipped_agents()), []
    for one in (one for one in runs(CAR, "*") if "certificate" in one):
        found = one["certificate"]
        shown = [certified(bound, 3) for bound in found["lower"]]
        validated = [f"{one['steps']:,}", f"{one['best_validation']:.1f}", measured(found["mean"], found["sem"], 3)]
        rows.append([f"{one['sigma']:g}", "one run, preset `paper`", *validated, *shown])
        for kept in (agent for agent in study.of(CAR) if agent.sigma == one["sigma"]):
            made, record, trained = study.certificate(kept), study.record(kept), kept.card["training"]
            assert record is not None
            bounds = [certified(made.at(budget).lower, 3) for budget in found["budgets"]]
            how = f"kept, `{trained['preset']}`, of {len(kept.card['candidates'])}"
            validated = [f"{trained['steps']:,}", f"{trained['best_validation']:.3f}"]
            rows.append(["", how, *validated, measured(*mean_of(record.returns), 3), *bounds])
    budgets = [f"B = {budget:g}" for budget in MOUNTAIN_CAR_BUDGETS]
    return Table(["sigma", "agent", "steps", "best validation", "mean, no attack", *budgets], rows, left=2).markdown()


def main() -> None:
    """Measure, print or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, metavar="FOLDER", help="of the training runs; those measured are left out")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    if arguments.run is not None:
        known = {one["agent_sha256"] for task in (*TASKS, CAR) for one in runs(task, "*")}
        trained = [str(card.parent) for card in sorted(arguments.run.glob("*/agent.json"))]
        for agent in (*(f"{task}-s0" for task in TASKS), *trained):
            if load_card(agent)["sha256"] not in known:
                print(measure(agent), flush=True)
    tables = {"selected-runs": selected(), "undefended-runs": undefended(), "mountain-car-runs": mountain_car()}
    for block, content in tables.items():
        if arguments.write:
            put(ROOT / "docs" / "study.md", block, content)
        else:
            print(content)


if __name__ == "__main__":
    main()
