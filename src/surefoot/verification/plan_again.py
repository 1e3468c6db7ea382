"""Re-runs the planner of `auto` on the pilot episodes: the one module of the verification that may import it.

A choice decides how tight bounds are. They are true because the returns that are certified did not make it. What has to
be verified is therefore not the planner's formulas but what they were computed from. So the planner itself is run
again, and is given the earlier returns and nothing else: a planner that needs a later return cannot repeat its choice
here, whatever its code does. The bounds that follow from the choice are computed by ``recompute.auto``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.proof.auto import PLANNER, select
from surefoot.proof.bounds.bettors import pilot_size
from surefoot.verification.recompute.bands import Claim

Floats = NDArray[np.float64]
SHARE = 1e-5  # relative, of a threshold's share of alpha


def other_planner(certificate: dict[str, Any]) -> str | None:
    """Return why the choice of a certificate cannot be repeated here, or None."""
    version = certificate.get("planner")
    if certificate.get("method") != "auto" or version == PLANNER:
        return None
    return f"the method was selected by planner version {version!r}, this version of surefoot re-runs {PLANNER}"


def check_choice(returns: Floats, claim: Claim, choice: Any) -> list[str]:
    """Return what is recorded otherwise than the planner selects, given the pilot episodes alone."""
    n, radii = returns.size, np.array([budget / claim.sigma for budget in claim.budgets])
    again = select(returns[: pilot_size(n)].copy(), n, radii, claim.alpha, claim.floor, claim.ceiling)
    if choice["pilot"] != again.pilot:
        return [f"the choice is made on {again.pilot} episodes, not on {choice['pilot']!r}"]
    if choice["method"] != again.method:
        return [f"the first {again.pilot} episodes choose the method {again.method!r}, not {choice['method']!r}"]
    if not again.points.size:
        return []
    if not np.array_equal(np.array(choice["thresholds"], dtype=np.float64), again.points):
        return ["the thresholds are not those of the pilot"]
    recorded = np.array([choice["reach"], choice["stay"]], dtype=np.float64)
    right = np.allclose(recorded, [again.reach, again.stay], rtol=SHARE, atol=1e-12)
    return [] if right else ["the risk is not divided among the thresholds as the pilot has it"]
