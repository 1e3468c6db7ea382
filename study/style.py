"""Styles: bounds are lines, estimates hollow marks, attacks marks with error bars; all are distinguishable in gray."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from study.numbers import Agent, Study, grid_of
from study.paper import UNITS
from surefoot.episodes import Episodes
from surefoot.play.tasks import TASKS
from surefoot.proof.episode_budget import EpisodeCertificate

FLOOR, MOST, BARE = "#8c4a00", "0.62", "#a61c00"


@dataclass(frozen=True)
class Style:
    """Colour, line and mark of one sigma or one lambda."""

    colour: str
    line: Any
    mark: str


STYLES = (
    Style("#0b5394", "-", "o"),
    Style("#b45f06", (0, (6, 2)), "s"),
    Style("#38761d", (0, (6, 2, 1, 2)), "^"),
    Style("#741b47", (0, (2, 1.5)), "v"),
    Style("#444444", (0, (6, 2, 1, 2, 1, 2)), "P"),
    Style("#1f9e9e", (0, (8, 2, 2, 2)), "X"),
    Style("#7f6000", (0, (4, 1, 1, 1)), "D"),
    Style("#5b5bd6", (0, (1, 1)), "<"),
    Style("#cc0066", (0, (3, 3)), ">"),
    Style("#000000", (0, (10, 3)), "p"),
)


FEW = 6  # panels that are readable in two columns on a page


def sheet(panels: int, columns: int, size: tuple[float, float] = (4.6, 3.5)) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels in a grid, a few of them in two columns; unused ones are not drawn."""
    columns = min(columns, panels, 2 if panels <= FEW else columns)
    rows = math.ceil(panels / columns)
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, [figure.add_subplot(rows, columns, index + 1) for index in range(panels)]


def style(rank: int) -> Style:
    """Return the look of the rank-th sigma or lambda."""
    return STYLES[rank % len(STYLES)]


def label_axes(axes: Axes, task: str, title: str | None = None) -> None:
    """Name the axes with their units, and let the return's whole range be seen."""
    units, rules = UNITS[task], TASKS[task]
    axes.set_title(units.title if title is None else title, fontsize=10)
    axes.set_xlabel(f"attack budget {units.budget}", fontsize=8)
    axes.set_ylabel(units.returns, fontsize=8)
    axes.tick_params(labelsize=8)
    last = float(grid_of(task)[-1])
    axes.set_xlim(-0.03 * last, 1.03 * last)
    assert rules.scoring.ceiling is not None
    room = 0.05 * (rules.scoring.ceiling - rules.scoring.floor)
    axes.set_ylim(rules.scoring.floor - room, rules.scoring.ceiling + room)
    axes.grid(alpha=0.25)


def empty(axes: Axes, task: str, why: str, title: str | None = None) -> None:
    """Say in a panel's place why there is nothing in it."""
    axes.set_title(UNITS[task].title if title is None else title, fontsize=10)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.text(0.5, 0.5, why, ha="center", va="center", transform=axes.transAxes, color="0.35", fontsize=9)


def draw_bound(axes: Axes, task: str, certificate: EpisodeCertificate, look: Style, label: str | None = None) -> None:
    """Draw certified lower bounds as a line; bounds at single budgets as small marks that steps join."""
    single = certificate.betting is not None
    if single:
        axes.plot(certificate.budgets, certificate.lower, look.mark, color=look.colour, ms=3.5)
    lines = {"color": look.colour, "ls": look.line, "lw": 0.9 if single else 2.0}
    axes.plot(*bound_line(task, certificate), label=label, **lines)


def bound_line(task: str, certificate: EpisodeCertificate) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return budgets and bounds of a curve; where bets were made on some budgets, each holds down to the one before."""
    if certificate.betting is None:
        budgets = grid_of(task)
        return budgets, np.array([certificate.at(float(budget)).lower for budget in budgets])
    budgets, lower = certificate.budgets, certificate.lower
    return np.repeat(budgets, 2)[:-1], np.insert(np.repeat(lower[1:], 2), 0, lower[0])


def draw_most(axes: Axes, task: str, certificate: EpisodeCertificate, look: Style) -> None:
    """Draw the best achievable bound with as many episodes, thin and gray, in the line style of their sigma."""
    axes.plot(*bound_line(task, certificate), color=MOST, ls=look.line, lw=1.0, zorder=1)


def draw_floor(axes: Axes, task: str) -> None:
    """Draw the open-loop baseline, where it has been measured."""
    blind = TASKS[task].baseline
    if blind is not None:
        axes.axhline(blind.mean, color=FLOOR, ls=(0, (1, 2)), lw=1.8, zorder=1.5)


def draw_estimate(axes: Axes, place: float, record: Episodes, look: Style) -> None:
    """Draw a mean without attack as one hollow mark with its standard error."""
    mean, error = mean_of(record.returns)
    options: dict[str, Any] = {"mfc": "white", "ms": 6, "capsize": 3, "clip_on": False, "zorder": 5}
    axes.errorbar([place], [mean], yerr=[error], fmt="D", color=look.colour, **options)


def draw_attack(
    axes: Axes,
    budgets: Sequence[float],
    means: Sequence[float],
    errors: Sequence[float],
    look: Style,
    label: str | None = None,
    filled: bool = True,
) -> None:
    """Draw attacked means as marks with their standard errors, joined by thin lines."""
    axes.errorbar(
        budgets,
        means,
        yerr=errors,
        fmt=look.mark,
        ls=look.line,
        color=look.colour,
        mfc=look.colour if filled else "white",
        lw=0.8,
        ms=5,
        capsize=2.5,
        label=label,
        zorder=4,
    )


def attack_curve(
    study: Study, agent: Agent, attack: dict[str, Any], column: int | None = None
) -> tuple[list[float], list[float], list[float]]:
    """Return budgets, means and standard errors of an attack's curve or of one lambda; budget 0 is without attack."""
    if column is None:
        means, errors = attack["curve"], attack["curve_sem"]
    else:
        means, errors = ([row[column] for row in attack[name]] for name in ("mean", "sem"))
    budgets, record = [float(budget) for budget in attack["budgets"]], study.record(agent)
    if record is None or 0 in budgets:
        return budgets, list(means), list(errors)
    mean, error = mean_of(record.returns)
    return [0.0, *budgets], [mean, *means], [error, *errors]


def mean_of(returns: NDArray[np.float64]) -> tuple[float, float]:
    """Return a mean and its standard error."""
    error = float(returns.std(ddof=1)) / math.sqrt(returns.size) if returns.size > 1 else 0.0
    return float(returns.mean()), error


def small_legend(axes: Axes, title: str | None = None) -> None:
    """Name the lines of one panel next to it, where nothing is covered."""
    if axes.get_legend_handles_labels()[1]:
        outside: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.02)}
        axes.legend(fontsize=7.5, title=title, title_fontsize=7.5, frameon=False, handlelength=3.6, **outside)


KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "bound": ("certified lower bound (95% confidence)", {"color": "black", "lw": 2.0}),
    "most": ("best achievable bound with as many episodes", {"color": MOST, "lw": 1.0}),
    "floor": ("open-loop baseline", {"color": FLOOR, "lw": 1.8, "ls": (0, (1, 2))}),
    "estimate": (
        "mean without attack (an estimate, ± one standard error)",
        {"color": "black", "marker": "D", "mfc": "white", "ls": "none"},
    ),
    "attack": (
        "mean under attack (an estimate, ± one standard error)",
        {"color": "black", "marker": "o", "lw": 0.8},
    ),
    "bare": (
        "undefended agent under attack (± one standard error)",
        {"color": BARE, "marker": "x", "lw": 0.8, "ls": "--"},
    ),
}


def kinds_legend(figure: Figure, kinds: Sequence[str], columns: int = 3) -> None:
    """Say below the panels what the kinds of lines and marks mean."""
    legend_below(figure, [KINDS[kind] for kind in kinds], columns)


def legend_below(figure: Figure, looks: Sequence[tuple[str, dict[str, Any]]], columns: int) -> None:
    """Name lines and marks below the panels, in as many columns as the figure has room for."""
    handles = [Line2D([], [], label=label, **look) for label, look in looks]
    for count in range(columns, 0, -1):
        legend = figure.legend(handles=handles, loc="outside lower center", ncols=count, fontsize=8, frameon=False)
        if count == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()


def episodes_of(study: Study, agents: Sequence[Agent]) -> str:
    """Return how many episodes the certificates rest on, in words."""
    counts = sorted({len(record) for agent in agents if (record := study.record(agent)) is not None})
    return " to ".join(f"{count:,}" for count in {counts[0]: 1, counts[-1]: 1}) if counts else "no"
