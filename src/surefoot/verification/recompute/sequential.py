"""Why a sequential run stopped: read from its certificate, and compared with its other files.

Its bounds hold wherever it stops, by Ville's inequality (see ``bets``). So the reason proves nothing, and only what is
read off the files is checked: that they agree, and that the reason fits the goal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from surefoot.verification.recompute.bands import CannotRecomputeError
from surefoot.verification.recompute.run_files import Raw, differences

REASONS = ("proved", "close enough", "refuted", "all played", "stopped by hand")
STOP_KEYS = {"budget", "tolerance", "require", "stopped"}


@dataclass(frozen=True)
class Stop:
    """The goal of a sequential run, and why it stopped."""

    budget: float
    tolerance: float | None
    require: float | None
    stopped: str


def read_stop(choice: Any, budgets: tuple[float, ...]) -> Stop | None:
    """Read the goal of a sequential run, which must be about one of the budgets, and why it stopped."""
    if choice is None:
        return None
    if not isinstance(choice, dict) or set(choice) != STOP_KEYS:
        raise CannotRecomputeError("a sequential run must state its budget, its goal, and why it stopped")
    for key in ("budget", "tolerance", "require"):
        value = choice[key]
        if value is None and key != "budget":
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise CannotRecomputeError(f"the goal of a sequential run has the {key} {value!r:.60}")
    if choice["stopped"] not in REASONS:
        raise CannotRecomputeError(f"unknown reason for stopping: {choice['stopped']!r:.60}")
    if choice["budget"] not in budgets:
        raise CannotRecomputeError(
            f"the run was for the budget {choice['budget']!r}, which the certificate does not have"
        )
    return Stop(**choice)


def check_stop(raw: Raw) -> list[str]:
    """Return where the files disagree about goal and reason, and whether the reason cannot be that of the goal."""
    run = raw.run or {}
    stop = None
    if raw.certificate.get("method") == "sequential":
        stop = read_stop(raw.certificate.get("method_selection"), tuple(raw.certificate["budgets"]))
    if stop is None:
        return [] if run.get("stopped") is None else ["run.json says why the run stopped, the certificate does not"]
    stated = {
        "goal": {"budget": stop.budget, "tolerance": stop.tolerance, "require": stop.require},
        "stopped": stop.stopped,
    }
    wrong = differences(stated, {"goal": run.get("goal"), "stopped": run.get("stopped")})
    n = raw.returns.size
    planned = raw.setup.get("n_planned")
    if stop.stopped == "all played" and n != planned:
        wrong.append(f"only {n} of {planned!r} episodes were run")
    if stop.stopped == "close enough" and stop.tolerance is None:
        wrong.append("the run was not for a bound close to what is possible")
    if stop.stopped in ("proved", "refuted") and stop.require is None:
        wrong.append("no value was required")
    elif stop.stopped == "proved" and stop.require is not None:
        lower = raw.certificate["lower"][raw.certificate["budgets"].index(stop.budget)]
        # Bounds are rounded down after the proof.
        margin = 1e-7 * (abs(lower) + abs(raw.certificate["floor"]) + 1)
        if lower < stop.require - margin:
            wrong.append(f"{stop.require!r} is not proved: the bound is {lower:.9g}")
    return wrong
