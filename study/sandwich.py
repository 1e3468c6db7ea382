"""Certified, attacked, open-loop: where the truth lies per agent and budget, table and figure of docs/attacks.md.

    python -m study.sandwich --take runs/attack-learned-X ...  # copies attack.json and attacker.npz of finished attacks
    python -m study.sandwich --write                           # table and figure from study/data/attackers

Bounds are those of the agent's own episodes without attack, at 95% confidence. Of all attacks on the same weights that
were run, the lowest mean counts at each budget; of several learned attackers the one with the lowest mean on its own
selection episodes.
"""

from __future__ import annotations

import argparse
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from study.agents_table import ROOT, put
from study.entries import ENTRIES
from study.numbers import DATA
from study.tables import Table, digits_of, measured
from surefoot.agents.files import load_card
from surefoot.api.attack import ATTACKER_FILE
from surefoot.attacks.learned import load_attacker
from surefoot.episodes import Episodes
from surefoot.files import read_json, write_json
from surefoot.play.measured_baselines import BASELINES
from surefoot.play.tasks import TASKS
from surefoot.proof.episode_budget import EpisodeCertificate
from surefoot.proof.query import certify
from surefoot.proof.rounding import format_lower

FOLDER = DATA / "attackers"
PAGE = ROOT / "docs" / "attacks.md"
FIGURE = ROOT / "docs" / "figures" / "sandwich.svg"
CONFIDENCE = 0.95
# What attack.json has one of for each budget.
PER_BUDGET = (
    "budgets",
    "mean",
    "sem",
    "curve",
    "curve_sem",
    "curve_lambda",
    "mean_budget_used",
    "did_not_attack",
    "budget_used_per_step",
    "loss",
    "loss_sem",
    "n_changed",
)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """An agent at a budget.

    Attributes:
        agent: Its name.
        budget: The attack budget.
        lower: The certified lower bound; None of an undefended agent, or beyond what was certified.
        mean: The lowest mean under any attack that was run.
        sem: Its standard error.
        method: Which attack that was.
        episodes: How many episodes it was measured on.
        before: The lowest mean without learned attackers; None where there is none at this budget.
    """

    agent: str
    budget: float
    lower: float | None
    mean: float
    sem: float
    method: str
    episodes: int
    before: float | None


def episodes_of(agent: str) -> Episodes | None:
    """Return the episodes of an agent without attack."""
    for folder in (DATA / "episodes", DATA / "records" / "episodes", DATA / "mujoco"):
        if (folder / f"{agent}.npz").is_file():
            return Episodes.load(folder / f"{agent}.npz")
    return None


def attacks_on(agent: str, folders: tuple[Path, ...]) -> list[dict[str, Any]]:
    """Return what attacks measured on the weights that the agent has now."""
    weights = load_card(agent)["sha256"]
    found = []
    for folder in folders:
        for path in sorted(folder.glob("*.json")):
            content = read_json(path)
            if content.get("agent_sha256") == weights:
                found.append({**content, "path": path})
    return found


def lowest(attacks: list[dict[str, Any]], budget: float) -> tuple[float, float, str, int] | None:
    """Return mean, standard error, method and episodes of the lowest mean at a budget."""
    measured = []
    for attack in attacks:
        if budget in attack["budgets"]:
            place = attack["budgets"].index(budget)
            mean = attack["curve"][place]
            measured.append((mean, attack["curve_sem"][place], attack["method"], attack["n_episodes"]))
    return min(measured, default=None)


def selected(learned: list[dict[str, Any]], budget: float) -> list[dict[str, Any]]:
    """Return the learned attacker that was the strongest at a budget on its own selection episodes."""
    runs: dict[str, list[dict[str, Any]]] = {}
    rated: dict[str, float] = {}
    for attack in learned:
        attacker = load_attacker(attack["path"].with_suffix(".npz"))
        card = attacker.card
        if budget in attack["budgets"] and budget in card["budgets"]:
            rated[attacker.sha256] = card["selection"][card["budgets"].index(budget)]
            runs.setdefault(attacker.sha256, []).append(attack)
    if not rated:
        return []
    return [pooled(runs[min(rated, key=lambda sha256: rated[sha256])], budget)]


def pooled(runs: list[dict[str, Any]], budget: float) -> dict[str, Any]:
    """Return the runs of one attacker, which differ in their seeds, as one, at one budget."""
    counts = np.array([run["n_episodes"] for run in runs])
    places = [run["budgets"].index(budget) for run in runs]
    means = np.array([run["curve"][place] for run, place in zip(runs, places, strict=True)])
    errors = np.array([run["curve_sem"][place] for run, place in zip(runs, places, strict=True)])
    n_episodes = int(counts.sum())
    return {
        "method": runs[0]["method"],
        "budgets": [budget],
        "curve": [float(counts @ means) / n_episodes],
        "curve_sem": [float(np.sqrt(np.square(counts * errors).sum())) / n_episodes],
        "n_episodes": n_episodes,
    }


def cells(agent: str) -> list[Cell]:
    """Return an agent at every budget at which a learned attacker was measured."""
    learned = attacks_on(agent, (FOLDER,))
    others = attacks_on(agent, (DATA / "attacks", DATA / "records" / "attacks"))
    record = episodes_of(agent)
    budgets = sorted({budget for attack in learned for budget in attack["budgets"]})
    bounds: list[float | None] = [None] * len(budgets)
    if record is not None and record.sigma > 0:
        bounds = [float(bound) for bound in certify(record, budgets, CONFIDENCE).lower]
    made = []
    for budget, bound in zip(budgets, bounds, strict=True):
        before = lowest(others, budget)
        best = lowest(others + selected(learned, budget), budget)
        assert best is not None
        mean, sem, method, n_episodes = best
        # Five standard errors: below its certificate one of the two is wrong.
        assert bound is None or mean + 5 * sem >= bound, f"{agent} at {budget}: attacked {mean}, certified {bound}"
        made.append(
            Cell(
                agent=agent,
                budget=budget,
                lower=bound,
                mean=mean,
                sem=sem,
                method=method,
                episodes=n_episodes,
                before=None if before is None else before[0],
            )
        )
    return made


def agents() -> list[str]:
    """Return the agents that learned attackers were measured on."""
    return sorted({read_json(path)["agent"] for path in FOLDER.glob("*.json")})


def baseline_of(agent: str) -> float | None:
    """Return the mean of the open-loop baseline of the agent's task."""
    found = BASELINES.get(load_card(agent)["task"])
    return None if found is None else found.mean


def table() -> str:
    """Return the sandwich as a table."""
    rows = []
    for agent in agents():
        digits = digits_of(TASKS[load_card(agent)["task"]].scoring.ceiling)
        for cell in cells(agent):
            certified = "-" if cell.lower is None else format_lower(cell.lower, digits)
            before = "-" if cell.before is None else f"{cell.before:.{digits}f}"
            attacked = measured(cell.mean, cell.sem, digits)
            blind = baseline_of(agent)
            open_loop = "-" if blind is None else f"{blind:.{digits}f}"
            row = [f"`{agent}`", f"{cell.budget:g}", certified, attacked, cell.method, f"{cell.episodes:,}"]
            rows.append([*row, before, open_loop])
    heads = ["agent", "budget", "certified", "strongest attack", "which", "episodes", "before", "open loop"]
    return Table(heads, rows).markdown()


def draw() -> None:
    """Draw certified bounds, attacked means and the open-loop baseline of every agent with several budgets."""
    # One budget makes no curve: the table has it.
    names = [agent for agent in agents() if len(cells(agent)) > 1]
    figure, panels = plt.subplots(1, len(names), figsize=(3.2 * len(names), 3.0), squeeze=False, layout="constrained")
    for panel, agent in zip(panels[0], names, strict=True):
        shown = cells(agent)
        budgets = [cell.budget for cell in shown]
        means = [cell.mean for cell in shown]
        errors = [2 * cell.sem for cell in shown]
        panel.errorbar(budgets, means, yerr=errors, fmt="o--", color="#b5402c", label="strongest attack ± 2 s.e.")
        proved = [(cell.budget, cell.lower) for cell in shown if cell.lower is not None]
        if proved:
            panel.plot(*zip(*proved, strict=True), "-", color="#1f5a96", label="certified")
            panel.fill_between(
                [one[0] for one in proved], [one[1] for one in proved], means, color="#1f5a96", alpha=0.1
            )
        blind = baseline_of(agent)
        if blind is not None:
            panel.axhline(blind, color="#777777", linestyle=":", label="open-loop baseline")
        panel.set_title(agent, fontsize=9)
        panel.set_xlabel("attack budget")
        panel.set_ylim(bottom=0)
    panels[0][0].set_ylabel("mean return")
    panels[0][0].legend(fontsize=7, frameon=False)
    figure.savefig(FIGURE, metadata={"Date": None})


def take(folders: list[Path]) -> None:
    """Keep what finished attacks measured and their attackers; enter them where the leaderboard has the agent.

    Of several runs of one attacker the first is entered: the leaderboard shows the lowest mean, and the lowest of
    several measurements of one thing would be too low.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    entered: set[str] = set()
    for folder in folders:
        attacker = load_attacker(folder / ATTACKER_FILE)
        shutil.copyfile(folder / "attack.json", FOLDER / f"{folder.name}.json")
        shutil.copyfile(folder / ATTACKER_FILE, FOLDER / f"{folder.name}.npz")
        attack = read_json(folder / "attack.json")
        entry = ENTRIES / attack["agent"]
        if not entry.is_dir() or attacker.sha256 in entered:
            continue
        entered.add(attacker.sha256)
        certified = at_budgets(attack, read_json(entry / EpisodeCertificate.file)["budgets"])
        if certified["budgets"]:
            write_json(entry / f"attack-learned-{folder.name}.json", certified)


def at_budgets(attack: dict[str, Any], budgets: list[float]) -> dict[str, Any]:
    """Return an attack at those of its budgets that are listed."""
    places = [place for place, budget in enumerate(attack["budgets"]) if budget in budgets]
    kept = dict(attack)
    for key in PER_BUDGET:
        kept[key] = [attack[key][place] for place in places]
    return kept


def main() -> None:
    """Take, print or write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--take", type=Path, nargs="+", default=[])
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    if arguments.take:
        take(arguments.take)
    elif arguments.write:
        put(PAGE, "sandwich", table())
        draw()
    else:
        print(table())


if __name__ == "__main__":
    main()
