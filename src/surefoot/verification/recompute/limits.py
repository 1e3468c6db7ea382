"""Why a run stopped, as its files say: the same in all of them, and a reason."""

from __future__ import annotations

from typing import Any

from surefoot.verification.recompute.bands import CannotRecomputeError, Claim, Side
from surefoot.verification.recompute.run_files import Raw, differences
from surefoot.verification.recompute.sequential import Stop, stop_of, unfounded


def stop_for(claim: Claim, choice: Any) -> Stop | None:
    """Read why a run stopped, which must be about one of the budgets; None if it did not stop by itself."""
    stop = stop_of(choice)
    if stop is not None and stop.budget not in claim.budgets:
        raise CannotRecomputeError(f"the run was for the budget {stop.budget!r}, which is none of the certificate's")
    return stop


def check_stop(raw: Raw, claim: Claim, lower: Side) -> list[str]:
    """Say what is wrong with the record of why the run stopped."""
    stop = stop_for(claim, raw.certificate.get("choice")) if claim.method == "sequential" else None
    run = raw.run or {}
    if stop is None:
        return [] if run.get("stopped") is None else ["run.json says why the run stopped, the certificate does not"]
    goal = {"budget": stop.budget, "until": stop.until, "require": stop.require}
    wrong = differences({"goal": goal, "stopped": stop.stopped}, {key: run.get(key) for key in ("goal", "stopped")})
    planned, block = raw.setup.get("planned"), raw.setup.get("block")
    if not isinstance(planned, int) or not isinstance(block, int) or block < 1:
        raise CannotRecomputeError("the record does not say how many episodes were planned, and in which blocks")
    limit = float(lower.best[claim.budgets.index(stop.budget)])
    return wrong + unfounded(raw.returns, claim, stop, limit, planned, block)
