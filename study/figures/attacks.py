"""Figures 5, 11 and 12: bare and smoothed agents under attack, and every lambda of these attacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from study.figures.certificates import BARE_STYLE
from study.numbers import Agent, Study
from study.paper import MOST_SIGMA, UNITS
from study.style import (
    attack_curve,
    draw_attack,
    draw_bound,
    draw_floor,
    draw_most,
    empty,
    kinds_legend,
    label_axes,
    sheet,
    small_legend,
    style,
)
from study.tables import Table, certified, digits_of, measured
from surefoot.play.tasks import TASKS

NOTHING = "no attack measured"


def attacks(study: Study, tasks: Sequence[str]) -> tuple[Figure, Table]:
    """Draw the strongest attack on bare and smoothed agents, with the certificates of the latter."""
    figure, panels = sheet(len(tasks), 2)
    for axes, task in zip(panels, tasks, strict=True):
        _main_panel(axes, study, task)
    kinds_legend(figure, ("bare", "attack", "bound", "most", "floor"), 2)
    return figure, attack_table(study, tasks)


def _main_panel(axes: Axes, study: Study, task: str) -> None:
    bare = study.bare(task)
    against_bare = study.attack(bare)
    smoothed = study.smoothed(task, MOST_SIGMA.get(task))
    if against_bare is None and not any(study.attack(agent) for agent in smoothed):
        empty(axes, task, NOTHING)
        return
    draw_floor(axes, task)
    if bare is not None and against_bare is not None:
        draw_attack(axes, *attack_curve(study, bare, against_bare), BARE_STYLE, "undefended")
    for rank, agent in enumerate(smoothed):
        draw_most(axes, task, study.most(agent), style(rank))
        draw_bound(axes, task, study.certificate(agent), style(rank))
        found = study.attack(agent)
        if found is not None:
            draw_attack(axes, *attack_curve(study, agent, found), style(rank), f"sigma {agent.sigma:g}")
    label_axes(axes, task)
    small_legend(axes, "attacked")


def attack_table(study: Study, tasks: Sequence[str]) -> Table:
    """Return the strongest attack's means on every agent, and what is certified at the same budgets."""
    rows = []
    for agent in (agent for task in tasks for agent in study.of(task)):
        found = study.attack(agent)
        if found is None:
            continue
        bounds = study.certificate(agent) if agent.sigma > 0 and study.record(agent) is not None else None
        digits = digits_of(TASKS[agent.task].scoring.ceiling)
        for place, budget in enumerate(found["budgets"]):
            rows.append(
                [
                    f"`{agent.name}`" if place == 0 else "",
                    f"{budget:g}",
                    f"{found['curve_lambda'][place]:g}" if found["curve_lambda"][place] is not None else "",
                    measured(found["curve"][place], found["curve_sem"][place], digits),
                    "none" if bounds is None else certified(bounds.at(budget).lower, digits),
                ]
            )
    return Table(["agent", "B", "lambda", "attacked mean", "certified (paper's method)"], rows)


def attacks_bare(study: Study, tasks: Sequence[str]) -> tuple[Figure, Table]:
    """Draw the attack on every bare agent for every lambda."""
    figure, panels = sheet(len(tasks), 3)
    rows: list[list[str]] = []
    for axes, task in zip(panels, tasks, strict=True):
        bare = study.bare(task)
        found = study.attack(bare)
        if bare is None or found is None:
            empty(axes, task, NOTHING)
            continue
        draw_floor(axes, task)
        _every_lambda(axes, study, bare, found)
        label_axes(axes, task, f"{UNITS[task].title}, undefended agent")
        small_legend(axes, "lambda")
        rows += _lambda_rows(bare, found)
    kinds_legend(figure, ("attack", "floor"))
    return figure, Table(_LAMBDA_HEADS, rows)


def attacks_smoothed(study: Study, tasks: Sequence[str]) -> tuple[Figure, Table]:
    """Draw the attack on every smoothed agent for every lambda, with its certificate."""
    agents = [agent for task in tasks for agent in study.of(task) if agent.sigma > 0]
    without = [task for task in tasks if not any(agent.task == task for agent in agents)]
    figure, panels = sheet(len(agents) + len(without), 4, (4.2, 3.3))
    rows: list[list[str]] = []
    for axes, agent in zip(panels, agents, strict=False):
        rows += _smoothed_panel(axes, study, agent)
    for axes, task in zip(panels[len(agents) :], without, strict=True):
        empty(axes, task, "no smoothed agent")
    kinds_legend(figure, ("attack", "bound", "most", "floor"), 2)
    return figure, Table(_LAMBDA_HEADS, rows)


def _smoothed_panel(axes: Axes, study: Study, agent: Agent) -> list[list[str]]:
    found, title = study.attack(agent), f"{UNITS[agent.task].title}, sigma {agent.sigma:g}"
    if found is None:
        empty(axes, agent.task, NOTHING, title)
        return []
    draw_floor(axes, agent.task)
    if study.record(agent) is not None:
        draw_most(axes, agent.task, study.most(agent), style(0))
        draw_bound(axes, agent.task, study.certificate(agent), style(0))
    _every_lambda(axes, study, agent, found)
    label_axes(axes, agent.task, title)
    small_legend(axes, "lambda")
    return _lambda_rows(agent, found)


def _every_lambda(axes: Axes, study: Study, agent: Agent, found: dict[str, Any]) -> None:
    order = sorted(range(len(found["lambdas"])), key=lambda place: found["lambdas"][place] or 0.0)
    for rank, column in enumerate(order):
        margin = found["lambdas"][column]
        label = None if margin is None else f"{margin:g}"
        draw_attack(axes, *attack_curve(study, agent, found, column), style(rank), label, filled=False)


_LAMBDA_HEADS = ["agent", "B", "lambda", "attacked mean", "mean budget used"]


def _lambda_rows(agent: Agent, found: dict[str, Any]) -> list[list[str]]:
    digits = digits_of(TASKS[agent.task].scoring.ceiling)
    return [
        [
            f"`{agent.name}`",
            f"{budget:g}",
            "" if margin is None else f"{margin:g}",
            measured(found["mean"][row][column], found["sem"][row][column], digits),
            f"{found['mean_budget_used'][row][column]:.3f}",
        ]
        for row, budget in enumerate(found["budgets"])
        for column, margin in enumerate(found["lambdas"])
    ]
