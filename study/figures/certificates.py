"""Figures 4, 7, 9 and 13: certificates of the tasks, of more Cartpole agents, clean returns, point-wise and DKW."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from study.numbers import Agent, Study, budgets_of
from study.paper import MOST_SIGMA, UNITS
from study.style import (
    BARE,
    Style,
    attack_curve,
    draw_attack,
    draw_bound,
    draw_estimate,
    draw_floor,
    draw_most,
    empty,
    episodes_of,
    kinds_legend,
    label_axes,
    mean_of,
    sheet,
    small_legend,
    style,
)
from study.tables import Table, certified, digits_of, measured
from surefoot.play.tasks import TASKS
from surefoot.proof.episode_budget import EpisodeCertificate

NOTHING = "no agent with played episodes"
BARE_STYLE = Style(BARE, "--", "x")
CERTIFIED = ("bound", "most", "floor", "estimate")
COLUMNS, MOST = 6, "*best achievable*"


def certificates(study: Study, tasks: Sequence[str]) -> tuple[Figure, Table]:
    """Draw the certified bounds of the main tasks by the paper's method; the table has the default's next to them."""
    figure, panels = sheet(len(tasks), 2)
    for axes, task in zip(panels, tasks, strict=True):
        certified_panel(axes, study, task, study.smoothed(task, MOST_SIGMA.get(task)))
    kinds_legend(figure, CERTIFIED, 2)
    return figure, bounds_table(study, tasks, ("paper", "auto"))


def certified_panel(axes: Axes, study: Study, task: str, agents: Sequence[Agent], method: str = "paper") -> None:
    """Draw bounds, their ceiling, estimates and the blind floor of some agents of one task."""
    if not agents:
        empty(axes, task, NOTHING)
        return
    draw_floor(axes, task)
    for rank, agent in enumerate(agents):
        record = study.record(agent)
        assert record is not None
        draw_most(axes, task, study.most(agent, method), style(rank))
        draw_bound(axes, task, study.certificate(agent, method), style(rank), f"sigma {agent.sigma:g}")
        draw_estimate(axes, 0.0, record, style(rank))
    used = study.certificate(agents[0], method).method
    label_axes(axes, task, f"{UNITS[task].title}: {episodes_of(study, agents)} episodes, {used}")
    small_legend(axes)


def bounds_table(study: Study, tasks: Sequence[str], methods: Sequence[str]) -> Table:
    """Return certified bounds of every smoothed agent by some methods, and what as many episodes could certify."""
    rows = []
    for task in (task for task in tasks if study.smoothed(task)):
        shown = budgets_of(TASKS[task])[::2]
        empty_cells = [""] * (COLUMNS - len(shown))
        rows.append(
            [f"**{UNITS[task].title}**", "", "", "", *(f"**B = {budget:g}**" for budget in shown), *empty_cells]
        )
        for agent in study.smoothed(task):
            rows += [[*row, *empty_cells] for row in _bound_rows(study, agent, methods, shown)]
    heads = ["agent", "weights", "method", "mean, no attack", "bound", *[""] * (COLUMNS - 1)]
    return Table(heads, rows, left=3)


def _bound_rows(study: Study, agent: Agent, methods: Sequence[str], shown: Sequence[float]) -> list[list[str]]:
    record, digits = study.record(agent), digits_of(TASKS[agent.task].scoring.ceiling)
    assert record is not None
    rows: list[list[str]] = []
    for method in (*methods, MOST):
        found = study.most(agent, _exact(agent)) if method == MOST else study.certificate(agent, method)
        named = MOST if method == MOST else _named(method, found)
        clean = measured(*mean_of(record.returns), digits + 1)
        first = [f"`{agent.name}`", f"`{agent.sha256[:8]}`", named, clean] if not rows else ["", "", named, ""]
        rows.append([*first, *(certified(found.at(budget).lower, digits) for budget in shown)])
    return rows


def _exact(agent: Agent) -> str:
    """Return the method with exact binomial bounds: with DKW a perfect agent is certified less than by default."""
    return "binary" if TASKS[agent.task].scoring.binary else "per-threshold"


def _named(method: str, found: EpisodeCertificate) -> str:
    """Return a method's name, and where it leaves the choice to the task or to a pilot the chosen one's."""
    chosen = found.method if found.method_selection is None else str(found.method_selection["method"])
    return f"`{chosen}`" if method == chosen else f"`{chosen}`\u00a0({method})"


def cartpole(study: Study, tasks: Sequence[str]) -> tuple[Figure, Table]:
    """Draw every Cartpole agent's certificate, and the bare agent under attack."""
    figure, panels = sheet(len(tasks), 2)
    for axes, task in zip(panels, tasks, strict=True):
        certified_panel(axes, study, task, study.smoothed(task))
        bare = study.bare(task)
        found = study.attack(bare)
        if bare is not None and found is not None:
            draw_attack(axes, *attack_curve(study, bare, found), BARE_STYLE)
    kinds_legend(figure, (*CERTIFIED, "bare"), 2)
    return figure, bounds_table(study, tasks, ("paper", "auto"))


def clean_test(study: Study, tasks: Sequence[str]) -> tuple[Figure, Table]:
    """Draw the mean return without attack against sigma."""
    figure, panels = sheet(len(tasks), 3, (4.0, 3.2))
    rows = []
    for axes, task in zip(panels, tasks, strict=True):
        agents = [agent for agent in study.of(task) if study.record(agent) is not None]
        if not agents:
            empty(axes, task, NOTHING)
            continue
        found = {agent: _clean(study, agent) for agent in agents}
        _clean_panel(axes, task, found)
        digits = digits_of(TASKS[task].scoring.ceiling) + 1
        rows += [[f"`{agent.name}`", f"{agent.sigma:g}", measured(*found[agent], digits)] for agent in agents]
    kinds_legend(figure, ("estimate", "floor"))
    return figure, Table(["agent", "sigma", "mean return, no attack"], rows)


def _clean(study: Study, agent: Agent) -> tuple[float, float]:
    record = study.record(agent)
    assert record is not None
    return mean_of(record.returns)


def _clean_panel(axes: Axes, task: str, found: dict[Agent, tuple[float, float]]) -> None:
    draw_floor(axes, task)
    sigmas = [agent.sigma for agent in found]
    means, errors = zip(*found.values(), strict=True)
    axes.errorbar(sigmas, means, yerr=errors, fmt="D", mfc="white", color="black", ls="-", lw=0.8, capsize=3, zorder=5)
    label_axes(axes, task)
    axes.set_xlabel("sigma of the smoothing noise (units of the observations)", fontsize=8)
    last = max(*sigmas, 1e-3)
    axes.set_xlim(-0.06 * last, 1.06 * last)


METHODS = (
    ("per-threshold", "(a) point-wise bounds (the paper's)"),
    ("dkw", "(b) DKW"),
    ("auto", "(c) ours: auto"),
)


def point_wise(study: Study, tasks: Sequence[str]) -> tuple[Figure, Table]:
    """Draw Cartpole's certificates by limits for each threshold, by DKW, and by the default method."""
    figure, panels = sheet(len(METHODS) * len(tasks), len(METHODS))
    for number, task in enumerate(tasks):
        for place, (method, title) in enumerate(METHODS):
            axes = panels[number * len(METHODS) + place]
            certified_panel(axes, study, task, study.smoothed(task), method)
            axes.set_title(f"{title}\n{UNITS[task].title}", fontsize=10)
    kinds_legend(figure, CERTIFIED, 2)
    return figure, _methods_table(study, tasks)


def _methods_table(study: Study, tasks: Sequence[str]) -> Table:
    shown = budgets_of(TASKS[tasks[0]])[::2]
    rows = []
    for agent in (agent for task in tasks for agent in study.smoothed(task)):
        for method, _ in METHODS:
            found = study.certificate(agent, method)
            cells = [
                certified(found.at(budget).lower, digits_of(TASKS[agent.task].scoring.ceiling)) for budget in shown
            ]
            rows.append([f"`{agent.name}`" if method == METHODS[0][0] else "", method, *cells])
    return Table(["agent", "method", *(f"B = {budget:g}" for budget in shown)], rows, left=2)
