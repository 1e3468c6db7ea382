"""Certificates as curves over a common list of budgets: values to draw, and the text that is shown of each.

Text is made here, not in the page: lower bounds are rounded down, upper bounds up, estimates are never among them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.proof.certificate import Certificate
from surefoot.proof.episode_budget import METHODS, EpisodeCertificate
from surefoot.proof.query import certify
from surefoot.proof.rounding import format_lower, format_upper
from surefoot.report.certificate_text import digits_for
from surefoot.report.finished_run import FinishedRun

MOST_COMPARED = 200_000  # episodes: beyond, other methods take longer than a reader waits for a page
MOST_BET = 20_000  # episodes: bets take longer still
COMPARED = tuple(method for method in METHODS if method not in ("auto", "paper", "sequential"))
FINE = 50  # at least so many budgets are drawn


@dataclass(frozen=True)
class Curve:
    """Bounds at the budgets of a grid; None where nothing is known."""

    lower: list[float | None]
    upper: list[float | None] | None
    fine: bool


def grid_of(runs: Sequence[FinishedRun]) -> list[float]:
    """Return the budgets that a chart answers: all that were asked for or attacked with, and round numbers between."""
    asked = {budget for run in runs for budget in _asked(run)}
    largest = max(asked)
    if largest == 0:
        return [0.0]
    step = _round_step(largest / FINE)
    between = {float(f"{step * index:.12g}") for index in range(math.floor(largest / step + 1e-9) + 1)}
    return sorted(asked | between | {0.0})


def own_curve(run: FinishedRun, grid: Sequence[float]) -> Curve:
    """Return the certificate's curve: recomputed where that gives the numbers of the file, else as steps.

    A bound at a larger budget holds at a smaller one, so between the budgets of the file the next larger one counts.
    """
    stated = _certificate_of(run)
    if stated.recomputable:
        return _with_stated(_evaluated(stated, grid), stated, grid)
    stopped = (stated.method_selection or {}).get("stopped")  # then only the whole history of bets gives the same
    made = None if stopped else _recomputed(run, stated.method, _spacing(run))
    if made is not None and same_bounds(made, stated):
        return _with_stated(_evaluated(made, grid), stated, grid)
    return _evaluated(stated, grid)


def other_methods(run: FinishedRun, grid: Sequence[float]) -> dict[str, Curve]:
    """Return what the other methods make of the same episodes, for comparison only."""
    stated = _certificate_of(run)
    if not run.records or len(run.records[0]) > MOST_COMPARED:
        return {}
    used = {stated.method, (stated.method_selection or {}).get("method")}
    found: dict[str, Curve] = {}
    for method in COMPARED:
        if method in used or (method == "betting" and len(run.records[0]) > MOST_BET):
            continue
        made = _recomputed(run, method)
        if made is not None:
            found[method] = _evaluated(made, grid)
    return found


def perfect_curve(run: FinishedRun, grid: Sequence[float]) -> Curve | None:
    """Return the best achievable bound with as many episodes: that of a perfect agent."""
    stated = _certificate_of(run)
    if stated.ceiling is None or stated.kind is not None:
        return None
    if stated.n_episodes > max([MOST_COMPARED, *(len(record) for record in run.records)]):
        return None  # a number that no episode data bear out may be anything
    perfect = Episodes.from_returns(
        np.broadcast_to(stated.ceiling, stated.n_episodes),
        sigma=stated.sigma,
        floor=stated.floor,
        ceiling=stated.ceiling,
    )
    made = _answer(perfect, stated, stated.method, _spacing(run))
    return None if made is None else _evaluated(made, grid)


def same_bounds(one: Certificate, other: Certificate) -> bool:
    """Return whether two certificates have the same budgets and bounds."""
    names = ("budgets", "lower", "upper")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


def texts(values: Sequence[float | None], stated: Certificate, side: Callable[[float, int], str]) -> list[str | None]:
    """Return each bound as text, rounded by ``side`` (``format_lower`` or ``format_upper``)."""
    digits = digits_for(stated)
    return [None if value is None else side(value, digits) for value in values]


def drawn(values: Sequence[float | None]) -> list[float | None]:
    """Return values for drawing: six digits are more than a screen shows."""
    return [None if value is None else float(f"{value:.6g}") for value in values]


def line(curve: Curve, stated: Certificate, grid: Sequence[float], side: str) -> dict[str, Any]:
    """Return one side of a curve as the page's data."""
    values = curve.lower if side == "lower" else curve.upper or []
    listed = set(stated.budgets.tolist())
    return {
        "y": drawn(values),
        "text": texts(values, stated, format_lower if side == "lower" else format_upper),
        "fine": curve.fine,
        "marks": [index for index, budget in enumerate(grid) if budget in listed],
    }


def _certificate_of(run: FinishedRun) -> Certificate:
    assert run.certificate is not None
    return run.certificate


def _spacing(run: FinishedRun) -> float:
    stated = _certificate_of(run)
    known = stated.threshold_spacing if isinstance(stated, EpisodeCertificate) else None
    return known or float(run.notes.get("step") or 1.0)


def _asked(run: FinishedRun) -> Sequence[float]:
    if run.certificate is not None:
        return [float(budget) for budget in run.certificate.budgets]
    assert run.attack is not None
    return [float(budget) for budget in run.attack["budgets"]]


def _round_step(size: float) -> float:
    power = 10.0 ** math.floor(math.log10(size))
    return float(next(power * factor for factor in (10, 5, 2, 1) if power * factor <= size * (1 + 1e-9)))


def _recomputed(run: FinishedRun, method: str, spacing: float = 1.0) -> EpisodeCertificate | None:
    stated = _certificate_of(run)
    if not run.records or stated.kind is not None:
        return None
    return _answer(run.records[0], stated, method, spacing)


def _answer(episodes: Episodes, stated: Certificate, method: str, spacing: float) -> EpisodeCertificate | None:
    try:
        return certify(episodes, stated.budgets.tolist(), stated.confidence, method, spacing)
    except InputError:
        return None


def _evaluated(made: Certificate, grid: Sequence[float]) -> Curve:
    """Return the bounds at every budget of the grid, None beyond the last one that is known."""
    largest = math.inf if made.recomputable else float(made.budgets.max())
    bounds = [made.at(budget) if budget <= largest else None for budget in grid]
    lower = [None if one is None else one.lower for one in bounds]
    upper = None if made.upper is None else [None if one is None else one.upper for one in bounds]
    return Curve(lower, upper, fine=made.recomputable)


def _with_stated(curve: Curve, stated: Certificate, grid: Sequence[float]) -> Curve:
    """Put the file's own numbers where the file has them."""
    lower = dict(zip(stated.budgets.tolist(), stated.lower.tolist(), strict=True))
    upper = {} if stated.upper is None else dict(zip(stated.budgets.tolist(), stated.upper.tolist(), strict=True))
    return Curve(
        [lower.get(budget, value) for budget, value in zip(grid, curve.lower, strict=True)],
        None if curve.upper is None else [upper.get(b, value) for b, value in zip(grid, curve.upper, strict=True)],
        curve.fine,
    )
