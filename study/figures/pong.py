"""Figure 8: one round of Pong, the whole game, and what the whole game's certificate loses where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from study.figures.certificates import BARE_STYLE, CERTIFIED, certified_panel
from study.numbers import CONFIDENCE, Agent, Study, budgets_of, grid_of
from study.paper import ROUNDS
from study.style import (
    attack_curve,
    bound_line,
    draw_attack,
    draw_estimate,
    draw_floor,
    empty,
    kinds_legend,
    label_axes,
    sheet,
    small_legend,
    style,
)
from study.tables import Table, certified
from surefoot.play.tasks import TASKS
from surefoot.proof.certificate import Bounds
from surefoot.proof.query import certify_shared_budget

ROUND, FULL = "pong-1r", "pong-full"
NOTHING = "no agent of the whole game\nwith episodes"
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Way:
    """One way to certify the score of a game.

    ``name``   what it rests on
    ``lower``  the bound at any budgets
    ``line``   budgets and bounds of the curve
    ``marks``  the budgets that were bet on, none where a bound follows for all
    """

    name: str
    lower: Callable[[Sequence[float] | Floats], Floats]
    line: tuple[Floats, Floats]
    marks: Sequence[float] = ()


def full_pong(study: Study, tasks: Sequence[str]) -> tuple[Figure, Table]:
    """Draw one round next to the whole game, and the whole game by every method that we have."""
    sigmas = [agent.sigma for agent in study.smoothed(FULL)]
    count = len(tasks) + max(1, len(sigmas))
    figure, panels = sheet(count, 2 if count == 4 else 3, (4.6, 3.8))
    for axes, task in zip(panels, tasks, strict=False):
        certified_panel(axes, study, task, study.smoothed(task), "dkw" if task == FULL else "paper")
        bare = study.bare(task)
        found = study.attack(bare)
        if bare is not None and found is not None and study.smoothed(task):
            draw_attack(axes, *attack_curve(study, bare, found), BARE_STYLE)
    if not sigmas:
        empty(panels[-1], FULL, NOTHING, "Whole game, by method")
    for axes, sigma in zip(panels[len(tasks) :], sigmas, strict=False):
        _ways_panel(axes, study, sigma)
    kinds_legend(figure, (*CERTIFIED, "bare"), 2)
    return figure, ways_table(study)


def ways(study: Study, sigma: float) -> list[Way]:
    """Return the bounds of the whole game's score at a sigma, as far as there are episodes for them.

    Two of them are about another game, 21 rounds of their own: its score is at least 21 (2 p - 1) where every
    round is won with probability p on average, for a round that is not won costs at most one point.
    """
    found: list[Way] = []
    whole = _at(study, FULL, sigma)
    if whole is not None:
        for name, method in (("DKW", "dkw"), ("per threshold", "per-threshold"), ("T3, by betting", "betting")):
            certificate = study.certificate(whole, method)
            bet_on = () if certificate.betting is None else tuple(certificate.budgets.tolist())
            found.append(Way(name, _along(certificate.at, _same), bound_line(FULL, certificate), bet_on))
    rounds = _at(study, ROUND, sigma)
    if rounds is not None:
        record = study.record(rounds)
        assert record is not None
        shared = certify_shared_budget(record, budgets_of(TASKS[ROUND]), ROUNDS, CONFIDENCE)
        alone = study.certificate(rounds, "binary")
        together, each = _along(shared.at, _score), _along(alone.at, _score)
        budgets = grid_of(FULL)
        found.append(Way("21 rounds, one budget: T5", together, (budgets, together(budgets))))
        found.append(Way("21 rounds, B for each: T1", each, (budgets, each(budgets))))
    return found


def ways_table(study: Study) -> Table:
    """Return what every way certifies of the whole game's score."""
    shown = budgets_of(TASKS[FULL])[::2]
    rows = []
    for agent in study.smoothed(FULL):
        for place, way in enumerate(ways(study, agent.sigma)):
            cells = [certified(float(value), 2) for value in way.lower(shown)]
            rows.append([f"{agent.sigma:g}" if place == 0 else "", way.name, *cells])
    return Table(["sigma", "method", *(f"B = {budget:g}" for budget in shown)], rows, left=2)


def _ways_panel(axes: Axes, study: Study, sigma: float) -> None:
    draw_floor(axes, FULL)
    for rank, way in enumerate(ways(study, sigma)):
        look, thick = style(rank), 0.9 if len(way.marks) else 2.0
        axes.plot(*way.line, color=look.colour, ls=look.line, lw=thick, label=way.name)
        axes.plot(way.marks, way.lower(way.marks), look.mark, color=look.colour, ms=3.5)
    whole = _at(study, FULL, sigma)
    record = None if whole is None else study.record(whole)
    if record is not None:
        draw_estimate(axes, 0.0, record, style(0))
    label_axes(axes, FULL, f"Whole game, sigma {sigma:g}, by method")
    small_legend(axes)


def _at(study: Study, task: str, sigma: float) -> Agent | None:
    return next((agent for agent in study.smoothed(task) if agent.sigma == sigma), None)


def _along(
    limits: Callable[[float], Bounds], score: Callable[[float], float]
) -> Callable[[Sequence[float] | Floats], Floats]:
    return lambda budgets: np.array([score(limits(float(budget)).lower) for budget in budgets])


def _same(value: float) -> float:
    return value


def _score(won: float) -> float:
    return ROUNDS * (2 * won - 1)
