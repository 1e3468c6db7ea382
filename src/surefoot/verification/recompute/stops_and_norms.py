"""Checks where a run stopped and which norm its budgets have: the same in all its files, and correct."""

from __future__ import annotations

import math
from typing import Any

from surefoot.verification.recompute.bands import CannotRecomputeError, Claim, Side
from surefoot.verification.recompute.run_files import Raw, close, differences, is_number, same
from surefoot.verification.recompute.sequential import Stop, stop_of, unfounded


def stop_for(claim: Claim, choice: Any) -> Stop | None:
    """Read why a run stopped, which must be about one of the budgets; None if the run was not sequential."""
    stop = stop_of(choice)
    if stop is not None and stop.budget not in claim.budgets:
        raise CannotRecomputeError(f"the run was for the budget {stop.budget!r}, which the certificate does not have")
    return stop


def check_stop(raw: Raw, claim: Claim, lower: Side) -> list[str]:
    """Return what is wrong with the recorded reason for stopping."""
    stop = stop_for(claim, raw.certificate.get("method_selection")) if claim.method == "sequential" else None
    run = raw.run or {}
    if stop is None:
        return [] if run.get("stopped") is None else ["run.json says why the run stopped, the certificate does not"]
    goal = {"budget": stop.budget, "until": stop.until, "require": stop.require}
    wrong = differences({"goal": goal, "stopped": stop.stopped}, {key: run.get(key) for key in ("goal", "stopped")})
    planned, block = raw.setup.get("planned"), raw.setup.get("block")
    if not isinstance(planned, int) or not isinstance(block, int) or block < 1:
        raise CannotRecomputeError("the setup does not say how many episodes were planned, and in which blocks")
    limit = float(lower.best[claim.budgets.index(stop.budget)])
    return wrong + unfounded(raw.returns, claim, stop, limit, planned, block)


def check_norm(raw: Raw) -> list[str]:
    """Check that the l2 budgets include the budgets of another norm that were asked for."""
    norm = raw.certificate.get("norm")
    if norm is None:
        return []
    limit, many = raw.setup.get("limit"), raw.certificate.get("n_shared_episodes", 1)
    seen = {"per-step.json": 1}.get(raw.name, limit * many if isinstance(limit, int) else None)
    if not isinstance(norm, dict) or set(norm) != {"name", "budgets", "coordinates", "observations", "factor"}:
        raise CannotRecomputeError("the norm must have its name, budgets, coordinates, observations and factor")
    if norm["name"] not in ("l1", "linf") or not same(norm["observations"], seen):
        return [f"the norm {norm['name']!r} over {norm['observations']!r} observations is not that of the setup"]
    size = norm["coordinates"]
    if norm["name"] == "linf" and not (isinstance(size, int) and isinstance(seen, int)):
        return ["an l-infinity norm needs the number of coordinates"]
    factor = 1.0 if norm["name"] == "l1" else math.sqrt(size * seen)
    given, used = norm["budgets"], raw.certificate["budgets"]
    pairs = list(zip(given, used, strict=True)) if isinstance(given, list) and len(given) == len(used) else [(1, 0)]
    right = all(is_number(b) and factor * b <= l2 <= factor * b * (1 + 1e-9) for b, l2 in pairs)
    return (
        [] if right and close(norm["factor"], factor, 1e-9 * factor) else ["the l2 budgets do not follow from the norm"]
    )
