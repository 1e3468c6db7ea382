"""Certificates as curves over a common list of budgets: values to draw, and the text that is shown of each.

Text is made here, not in the page: lower bounds are rounded down, upper bounds up, estimates are never among them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.proof.certificate import Certificate
from surefoot.proof.episode_budget import EpisodeCertificate
from surefoot.proof.query import certify
from surefoot.proof.rounding import format_lower, format_upper
from surefoot.report.certificate_text import digits_for
from surefoot.report.finished_run import FinishedRun

MOST_MADE_UP = 200_000  # episodes: more, if no data bear them out, take longer than a reader waits for a page
FINE = 50  # at least so many budgets are drawn

Values = list[float | None]


@dataclass(frozen=True)
class BoundCurve:
    """Bounds at the budgets of a grid; None where nothing is known."""

    lower: Values
    upper: Values | None
    fine: bool


def grid_of(runs: Sequence[FinishedRun]) -> list[float]:
    """Return the budgets that a chart answers: all that were asked for or attacked with, and round numbers between."""
    budgets = {0.0}
    for run in runs:
        if run.certificate is None:
            budgets.update(map(float, run.measured["budgets"]))
        else:
            budgets.update(run.certificate.budgets.tolist())
    largest = max(budgets)
    if largest > 0:
        step = round_number(largest / FINE, up=False)
        for index in range(math.floor(largest / step + 1e-9) + 1):
            budgets.add(float(f"{step * index:.12g}"))
    return sorted(budgets)


def own_curve(run: FinishedRun, grid: Sequence[float]) -> BoundCurve:
    """Return the certificate's curve: recomputed where that gives the numbers of the file, else as steps.

    A bound at a larger budget holds at a smaller one, so between the budgets of the file the next larger one counts.
    """
    stated = run.proved
    if stated.recomputable:
        return _keep_stated(_evaluate(stated, grid), stated, grid)
    # Where a sequential run stopped, only the whole history of its bets gives the same numbers.
    stopped = (stated.method_selection or {}).get("stopped")
    if not stopped and run.records and stated.kind is None:
        made = _certify_like(stated, run.records[0], _spacing_of(run))
        if made is not None and same_bounds(made, stated):
            return _keep_stated(_evaluate(made, grid), stated, grid)
    return _evaluate(stated, grid)


def perfect_curve(run: FinishedRun, grid: Sequence[float]) -> BoundCurve | None:
    """Return the best achievable bound with as many episodes: that of a perfect agent."""
    stated = run.proved
    if stated.ceiling is None or stated.kind is not None:
        return None
    # A number of episodes that no episode data bear out may be anything.
    believable = max([MOST_MADE_UP, *map(len, run.records)])
    if stated.n_episodes > believable:
        return None
    returns = np.broadcast_to(stated.ceiling, stated.n_episodes)
    known = {"floor": stated.floor, "ceiling": stated.ceiling, "action_sigma": stated.action_sigma}
    perfect = Episodes.from_returns(returns, sigma=stated.sigma, **known)
    made = _certify_like(stated, perfect, _spacing_of(run))
    if made is None:
        return None
    return _evaluate(made, grid)


def same_bounds(one: Certificate, other: Certificate) -> bool:
    """Return whether two certificates have the same budgets and bounds."""
    names = ("budgets", "lower", "upper")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


def round_for_drawing(values: Sequence[float | None]) -> Values:
    """Return values for drawing: six digits are more than a screen shows."""
    return [None if value is None else float(f"{value:.6g}") for value in values]


def line(curve: BoundCurve, stated: Certificate, grid: Sequence[float], side: str) -> dict[str, Any]:
    """Return one side of a curve, "lower" or "upper", as the page's data."""
    values = curve.lower
    format_bound = format_lower
    if side == "upper":
        values = curve.upper or []
        format_bound = format_upper
    digits = digits_for(stated)
    texts = [None if value is None else format_bound(value, digits) for value in values]
    marks = np.isin(grid, stated.budgets).nonzero()[0].tolist()
    return {"y": round_for_drawing(values), "text": texts, "fine": curve.fine, "marks": marks}


def _spacing_of(run: FinishedRun) -> float:
    """Return the distance between thresholds, which only some methods have and files name in one of two places."""
    if isinstance(run.proved, EpisodeCertificate) and run.proved.threshold_spacing:
        return run.proved.threshold_spacing
    return float(run.notes.get("step") or 1.0)


def round_number(size: float, *, up: bool) -> float:
    """Return the round number next to a size, above or below it: 1, 2, 5 or 10 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(size))
    # A size that is a round number but for a rounding error counts as one.
    if up:
        return min(power * factor for factor in (1, 2, 5, 10) if power * factor >= size * (1 - 1e-9))
    return max(power * factor for factor in (1, 2, 5, 10) if power * factor <= size * (1 + 1e-9))


def _certify_like(stated: Certificate, episodes: Episodes, spacing: float) -> EpisodeCertificate | None:
    try:
        return certify(episodes, stated.budgets.tolist(), stated.confidence, stated.method, spacing)
    except InputError:
        # A file of others may name a method that these episodes do not allow.
        return None


def _evaluate(made: Certificate, grid: Sequence[float]) -> BoundCurve:
    """Return the bounds at every budget of the grid, None beyond the last one that is known."""
    everywhere = made.at_each(grid)
    if everywhere is not None:
        return BoundCurve(*everywhere, True)
    lower: Values = [None] * len(grid)
    upper: Values = [None] * len(grid)
    for place, budget in enumerate(grid):
        if budget <= made.budgets.max():
            bounds = made.at(budget)
            lower[place] = bounds.lower
            upper[place] = bounds.upper
    if made.upper is None:
        return BoundCurve(lower, None, False)
    return BoundCurve(lower, upper, False)


def _keep_stated(curve: BoundCurve, stated: Certificate, grid: Sequence[float]) -> BoundCurve:
    """Put the file's own numbers where the file has them."""
    for index, budget in enumerate(stated.budgets.tolist()):
        if budget not in grid:
            continue
        place = grid.index(budget)
        curve.lower[place] = float(stated.lower[index])
        if curve.upper is not None and stated.upper is not None:
            curve.upper[place] = float(stated.upper[index])
    return curve
