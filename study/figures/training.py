"""Figure 10 and the tables of settings and times: how the agents were trained, what it took, next to the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from study.numbers import Agent, Study, cell_sizes
from study.paper import (
    ATTACK_SECONDS,
    ATTACK_STEP,
    ATTACK_STEPS,
    ATTACK_STEPS_DQN,
    EPISODIC,
    EVALUATION_SECONDS,
    FRAMES,
    PAPER_DEVICE,
    REPEATS,
    TRAINING_HOURS,
    UNITS,
)
from study.style import empty, legend_below, sheet
from study.tables import Table
from surefoot.play.tasks import TASKS
from surefoot.train.presets import PAPER
from surefoot.train.settings import DdpgSettings

NONE, SHIPPED = "not measured", "#5b87b8"
# Settings whose names say little outside of the code.
WORDS = {
    "n_envs": "parallel environments",
    "beside": "trained at the same time as",
    "capture": "gradient step as a CUDA graph",
    "hidden": "network",
    "averaging": "decay of averaged weights",
}
# What a training that has no such setting does.
UNSET = {"hidden": "CNN"}
LARGE = 10_000_000  # steps, from which on they are counted in millions


def training(study: Study, tasks: Sequence[str]) -> tuple[Figure, Table]:
    """Draw every training's validations, one panel per agent, the shipped training thick."""
    agents = [agent for task in tasks for agent in study.of(task) if study.trainings(agent)]
    without = [task for task in tasks if not any(agent.task == task for agent in agents)]
    figure, panels = sheet(len(agents) + len(without), 5, (3.3, 2.7))
    for axes, agent in zip(panels, agents, strict=False):
        _training_panel(axes, study, agent)
    for axes, task in zip(panels[len(agents) :], without, strict=True):
        lent = {agent.card["training"].get("trained_on", "") for agent in study.of(task)} - {""}
        empty(axes, task, f"agents trained on {', '.join(sorted(lent))}" if lent else "no training yet")
    _legend(figure)
    return figure, _training_table(study, agents)


def _legend(figure: Figure) -> None:
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("validations of the selected training run", {"color": SHIPPED, "lw": 1.0}),
        ("its best so far", {"color": "black", "lw": 1.6, "ls": "--"}),
        ("the agent that was kept", {"color": "black", "marker": "D", "mfc": "white", "ls": "none"}),
        ("other training runs", {"color": "0.7", "lw": 0.6}),
    ]
    legend_below(figure, kinds, 4)


def _training_panel(axes: Any, study: Study, agent: Agent) -> None:
    runs = study.trainings(agent)
    millions = max(run["curve"][-1][0] for run in runs) >= LARGE
    scale, unit = (1e6, "millions") if millions else (1e3, "thousands")
    for run in runs:
        steps, means = (np.array(column) for column in zip(*run["curve"], strict=True))
        if not (study.trained or shipped_run(agent, run)):
            # A single validation is not a line: a dot above the other lines.
            look = {"marker": "o", "ms": 4, "zorder": 4} if steps.size == 1 else {"zorder": 1}
            axes.plot(steps / scale, means, color="0.7", lw=0.6, **look)
            continue
        axes.plot(steps / scale, means, color=SHIPPED, lw=1.0, zorder=2)
        axes.plot(steps / scale, np.maximum.accumulate(means), color="black", lw=1.6, ls="--", zorder=3)
        best = int(np.argmax(means))
        axes.plot([steps[best] / scale], [means[best]], "D", mfc="white", color="black", ms=6, zorder=5)
    rules = TASKS[agent.task]
    assert rules.scoring.ceiling is not None
    room = 0.05 * (rules.scoring.ceiling - rules.scoring.floor)
    axes.set_ylim(rules.scoring.floor - room, rules.scoring.ceiling + room)
    axes.set_title(f"{UNITS[agent.task].title}, sigma {agent.sigma:g}", fontsize=9)
    axes.set_xlabel(f"training steps ({unit})", fontsize=8)
    axes.set_ylabel(UNITS[agent.task].returns.replace("mean return", "return"), fontsize=8)
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.25)


def shipped_run(agent: Agent, run: dict[str, Any]) -> bool:
    """Tell whether this training is the one whose agent is shipped."""
    chosen = agent.card["training"]
    return (run.get("preset"), run.get("seed")) == (chosen.get("preset"), chosen.get("seed"))


def _training_table(study: Study, agents: Sequence[Agent]) -> Table:
    heads = ["agent", "training runs", "steps of the longest", "best validation: lowest", "median", "highest"]
    rows = []
    for agent in agents:
        runs = study.trainings(agent)
        best = [max(mean for _, mean in run["curve"]) for run in runs]
        longest = max(run["curve"][-1][0] for run in runs)
        numbers = [f"{value:.3g}" for value in (min(best), median(best), max(best))]
        rows.append([f"`{agent.name}`", f"{len(runs)}", f"{longest:,}", *numbers])
    return Table(heads, rows)


def training_settings(study: Study, tasks: Sequence[str]) -> Table:
    """Return every training setting: the paper's, and those of the agents that are shipped."""
    rows = []
    for task in tasks:
        rows_of_task = [*_task_rows(study, task), *_setting_rows(study, task)]
        rows += [[UNITS[task].title if number == 0 else "", *row] for number, row in enumerate(rows_of_task)]
    return Table(["task", "setting", "paper", "pretrained agents"], rows, left=2)


def _task_rows(study: Study, task: str) -> list[list[str]]:
    """Return the rows that task and algorithm fix, and the number of training runs an agent was selected from."""
    agents = study.of(task)
    steps = [agent.card["training"]["steps"] for agent in agents if "steps" in agent.card["training"]]
    rows = [
        ["frames used", f"{FRAMES[task]}", f"{TASKS[task].spaces.n_stack}" if agents else ""],
        ["repeats", REPEATS.get(task, "not stated"), by_sigma([len(agent.card["candidates"]) for agent in agents])],
        ["steps of the training that was kept", "", by_sigma(steps)],
    ]
    if isinstance(PAPER[task], DdpgSettings):
        rows += [[name, value, value if agents else ""] for name, value in EPISODIC.items()]
    return rows


def by_sigma(counts: Sequence[int]) -> str:
    """Return a number of each agent, or the one that all of them have."""
    shown = [f"{count:,}" for count in counts]
    return f"{', '.join(shown)} (by sigma)" if len(set(shown)) > 1 else "".join(shown[:1])


def _setting_rows(study: Study, task: str) -> list[list[str]]:
    paper = PAPER[task].as_dict()
    ours = [agent.card["training"]["settings"] for agent in study.of(task)]
    rows = []
    for name in dict.fromkeys([*paper, *(key for one in ours for key in one)]):
        there = list(dict.fromkeys(_shown(one[name]) for one in ours if name in one))
        there = there or [UNSET[name] for _ in ours[:1] if name in UNSET]
        if name == "stop_when_perfect" and ours:
            there = [_shown(paper[name])]  # model cards do not say it: they stop where the paper does
        if name != "repeats":
            words = WORDS.get(name, name.replace("_", " "))
            rows.append([words, _shown(paper[name]) if name in paper else "", ", ".join(there)])
    return rows


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " x ".join(f"{part}" for part in value) or "CNN"
    if value == "":
        return "none"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else f"{value}"


def attack_settings(study: Study, tasks: Sequence[str]) -> Table:
    """Return the attacks' settings: the paper's list of lambdas, and those that we searched."""
    rows = []
    for task in tasks:
        bare = study.attack(study.bare(task))
        smoothed = [found for agent in study.smoothed(task) if (found := study.attack(agent)) is not None]
        tried = sorted({margin for found in smoothed for margin in found["lambdas"]})
        rows.append(
            [
                UNITS[task].title,
                f"{ATTACK_STEP:g}, {ATTACK_STEPS.get(task, ATTACK_STEPS_DQN)}",
                _listed(TASKS[task].paper.lambdas),
                NONE if bare is None else _listed(sorted(bare["lambdas"])),
                _listed(tried) if tried else NONE,
                "; smoothed ".join(dict.fromkeys(_sizes(part) for part in ([bare] if bare else [], smoothed) if part))
                or NONE,
            ]
        )
    heads = [
        "task",
        "step size, steps",
        "lambdas, paper",
        "lambdas, undefended agent",
        "lambdas, smoothed agents",
        "episodes",
    ]
    return Table(heads, rows, left=5)


def _sizes(attacks: Sequence[dict[str, Any]]) -> str:
    """Return how many episodes the configurations of some attacks have, from the fewest to the most."""
    sizes = [size for found in attacks for row in cell_sizes(found) for size in row]
    return " to ".join(dict.fromkeys(f"{size:,}" for size in (min(sizes), max(sizes))))


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def training_times(study: Study, tasks: Sequence[str]) -> Table:
    """Return how long one training took: the paper's hours, and the range of ours."""
    rows = []
    for task in tasks:
        runs = [run for agent in study.of(task) for run in study.trainings(agent)]
        hours = sorted(run["seconds"] / 3600 for run in runs)
        where = ", ".join(sorted({run["device"] for run in runs}))
        ours = [f"{value:.3f}" for value in (hours[0], median(hours), hours[-1])] if hours else [NONE, NONE, NONE]
        rows.append([UNITS[task].title, f"{TRAINING_HOURS[task]:g}", *ours, f"{len(hours)}", where])
    heads = [
        "hours of one training run",
        f"paper ({PAPER_DEVICE})",
        "ours, shortest",
        "median",
        "longest",
        "runs",
        "on",
    ]
    return Table(heads, rows)


def evaluation_times(study: Study, tasks: Sequence[str]) -> Table:
    """Return the time of one episode without attack: the paper's, and ours in batches."""
    rows = []
    for task in tasks:
        agents = [agent for agent in study.smoothed(task) if study.played(agent) is not None]
        ends = (agents[0], agents[-1]) if agents else ()
        cells = [_per_episode(study.timed(agent)) for agent in ends] or [NONE, NONE]
        found = [timed for agent in dict.fromkeys(ends) if (timed := study.timed(agent)) is not None]
        cores = dict.fromkeys(f"{_where(timed)} ({timed['n_episodes']:,} episodes)" for timed in found)
        paper = [f"{seconds:g}" for seconds in EVALUATION_SECONDS[task]]
        sigmas = " and ".join(f"{agent.sigma:g}" for agent in dict.fromkeys(ends))
        rows.append([UNITS[task].title, *paper, *cells, sigmas, ", ".join(cores)])
    heads = [
        "seconds per episode",
        "paper, smallest sigma",
        "largest",
        "ours, smallest sigma",
        "largest",
        "our sigmas",
        "ours on",
    ]
    return Table(heads, rows)


def _per_episode(timed: dict[str, Any] | None) -> str:
    if timed is None:
        return f"{NONE}: the run was resumed"
    return f"{timed['seconds'] / timed['n_episodes']:.2g}"


def _where(facts: dict[str, Any]) -> str:
    if facts["device"] != "cpu":
        return str(facts["device"])
    return f"{facts['workers']} core" + ("s" if facts["workers"] != 1 else "")


def attack_times(study: Study, tasks: Sequence[str]) -> Table:
    """Return the time of one attacked episode: the paper's, and ours against bare and smoothed agents."""
    rows = []
    for task in tasks:
        found = [row for row in study.times() if row["task"] == task]
        paper = [f"{seconds:g}" for seconds in ATTACK_SECONDS[task]]
        cells = []
        for smoothed in (False, True):
            part = sorted((row for row in found if (row["sigma"] > 0) is smoothed), key=lambda row: row["budget"])
            cells += (
                [f"{row['seconds'] / row['n_episodes']:.2g}" for row in (part[0], part[-1])] if part else [NONE] * 2
            )
        rows.append([UNITS[task].title, *paper, *cells, _measured_at(found)])
    heads = [
        "seconds per attacked episode",
        "paper, smallest B",
        "largest",
        "undefended, smallest B",
        "largest",
        "smoothed, smallest B",
        "largest",
        "ours at",
    ]
    return Table(heads, rows)


def _measured_at(rows: Sequence[dict[str, Any]]) -> str:
    """Return the budgets, lambdas, episodes and cores of measured times, those of undefended agents first."""
    ordered = sorted(rows, key=lambda row: (row["sigma"], row["budget"]))
    budgets = sorted({row["budget"] for row in rows})
    named = {
        "B =": dict.fromkeys(f"{budget:g}" for budget in (budgets[0], budgets[-1])) if budgets else (),
        "lambda": dict.fromkeys(f"{row['lambda']:g}" for row in ordered),
        "episodes": dict.fromkeys(f"{row['n_episodes']:,}" for row in ordered),
        "on": dict.fromkeys(_where(row) for row in ordered),
    }
    return "; ".join(f"{name} {' and '.join(values)}" for name, values in named.items() if values)
