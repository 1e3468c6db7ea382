"""Certificates as curves over a common list of budgets: values to draw, and the text that is shown of each.

Text is made here, not in the page: lower limits are rounded down, upper limits up, estimates are never among them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.proof.episode_budget import METHODS, Certificate, certify
from surefoot.report.sentences import digits_for, down, up
from surefoot.runs.read import Published, Run

MOST_COMPARED = 200_000  # episodes: beyond, other methods take longer than a reader waits for a page
MOST_BET = 20_000  # episodes: bets take longer still
COMPARED = tuple(method for method in METHODS if method not in ("auto", "paper", "sequential"))
FINE = 50  # at least so many budgets are drawn


@dataclass(frozen=True)
class Curve:
    """Limits at the budgets of a grid; None where nothing is known."""

    lower: list[float | None]
    upper: list[float | None] | None
    fine: bool


def grid_of(runs: Sequence[Run]) -> list[float]:
    """Return the budgets that a chart answers: all that were asked for or attacked with, and round numbers between."""
    asked = {budget for run in runs for budget in _asked(run)}
    largest = max(asked)
    if largest == 0:
        return [0.0]
    step = _round_step(largest / FINE)
    between = {float(f"{step * index:.12g}") for index in range(math.floor(largest / step + 1e-9) + 1)}
    return sorted(asked | between | {0.0})


def own_curve(run: Run, grid: Sequence[float]) -> Curve:
    """Return the certificate's curve: recomputed where that gives the very numbers of the file, else as steps.

    A limit at a larger budget holds at a smaller one, so between the budgets of the file the next larger one counts.
    """
    stated = run.certificate
    assert stated is not None
    made = run.made if run.made is not None and _same(run.made, stated) else None
    stopped = (stated.choice or {}).get("stopped")  # then only the whole history of bets gives the same numbers
    if made is None and run.records and stated.kind is None and not stopped:
        made = _answer(run.records[0], stated, stated.method, _step(run))
    if made is not None and _same(made, stated):
        return _with_stated(_evaluated(made, stated, grid), stated, grid)
    return _steps(stated, grid)


def other_methods(run: Run, grid: Sequence[float]) -> dict[str, Curve]:
    """Return what the other methods make of the same episodes, for comparison only."""
    stated = run.certificate
    assert stated is not None
    if not run.records or stated.kind is not None or len(run.records[0]) > MOST_COMPARED:
        return {}
    used = {stated.method, (stated.choice or {}).get("method")}
    found: dict[str, Curve] = {}
    for method in COMPARED:
        if method in used or (method == "betting" and len(run.records[0]) > MOST_BET):
            continue
        made = _answer(run.records[0], stated, method)
        if made is not None:
            found[method] = _evaluated(made, stated, grid)
    return found


def perfect_curve(run: Run, grid: Sequence[float]) -> Curve | None:
    """Return what as many perfect episodes would certify: no agent can get more from so few."""
    stated = run.certificate
    assert stated is not None
    if stated.ceiling is None or stated.kind is not None:
        return None
    perfect = Episodes.of(
        np.full(stated.episodes, stated.ceiling), sigma=stated.sigma, floor=stated.floor, ceiling=stated.ceiling
    )
    made = _answer(perfect, stated, stated.method, _step(run))
    return None if made is None else _evaluated(made, stated, grid)


def texts(values: Sequence[float | None], stated: Published, side: Callable[[float, int], str]) -> list[str | None]:
    """Return each limit as text, rounded by ``side`` (``down`` for lower limits, ``up`` for upper ones)."""
    digits = digits_for(stated)
    return [None if value is None else side(value, digits) for value in values]


def drawn(values: Sequence[float | None]) -> list[float | None]:
    """Return values for drawing: six digits are more than a screen shows."""
    return [None if value is None else float(f"{value:.6g}") for value in values]


def line(curve: Curve, stated: Published, grid: Sequence[float], side: str) -> dict[str, Any]:
    """Return one side of a curve as the page's data."""
    values = curve.lower if side == "lower" else curve.upper or []
    listed = set(stated.budgets)
    return {
        "y": drawn(values),
        "text": texts(values, stated, down if side == "lower" else up),
        "fine": curve.fine,
        "marks": [index for index, budget in enumerate(grid) if budget in listed],
    }


def _step(run: Run) -> float:
    stated = run.certificate
    assert stated is not None
    return stated.step or float(run.facts.get("step") or 1.0)


def _asked(run: Run) -> Sequence[float]:
    if run.certificate is not None:
        return run.certificate.budgets
    assert run.attack is not None
    return [float(budget) for budget in run.attack["budgets"]]


def _round_step(size: float) -> float:
    power = 10.0 ** math.floor(math.log10(size))
    return float(next(power * factor for factor in (10, 5, 2, 1) if power * factor <= size * (1 + 1e-9)))


def _answer(episodes: Episodes, stated: Published, method: str, step: float = 1.0) -> Certificate | None:
    try:
        return certify(episodes, stated.budgets, stated.confidence, method, step)
    except InputError:
        return None


def _same(made: Certificate, stated: Published) -> bool:
    upper = None if made.upper is None else tuple(made.upper.tolist())
    return tuple(made.lower.tolist()) == stated.lower and upper == stated.upper


def _evaluated(made: Certificate, stated: Published, grid: Sequence[float]) -> Curve:
    """Return the limits at every budget of the grid; where only those asked for are known, as steps."""
    try:
        limits = [made.at(budget) for budget in grid]
    except InputError:
        upper = None if made.upper is None else tuple(made.upper.tolist())
        return _steps(replace(stated, lower=tuple(made.lower.tolist()), upper=upper), grid)
    uppers = None if made.upper is None else [limit.upper for limit in limits]
    return Curve([limit.lower for limit in limits], uppers, fine=True)


def _with_stated(curve: Curve, stated: Published, grid: Sequence[float]) -> Curve:
    """Put the file's own numbers where the file has them."""
    lower = dict(zip(stated.budgets, stated.lower, strict=True))
    upper = {} if stated.upper is None else dict(zip(stated.budgets, stated.upper, strict=True))
    return Curve(
        [lower.get(budget, value) for budget, value in zip(grid, curve.lower, strict=True)],
        None if curve.upper is None else [upper.get(b, value) for b, value in zip(grid, curve.upper, strict=True)],
        curve.fine,
    )


def _steps(stated: Published, grid: Sequence[float]) -> Curve:
    def next_larger(values: Sequence[float]) -> list[float | None]:
        pairs = list(zip(stated.budgets, values, strict=True))
        return [next((value for listed, value in pairs if listed >= budget), None) for budget in grid]

    upper = None if stated.upper is None else next_larger(stated.upper)
    return Curve(next_larger(stated.lower), upper, fine=False)
