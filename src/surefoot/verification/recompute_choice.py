"""The choice of auto once more: the method that the first returns select, and nothing that came later.

A choice decides how tight limits are; they are true because the returns that are certified did not make it. So it is
made again here of the pilot alone, and a certificate with another method, pilot or division of the risk is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtr, ndtri

from surefoot.verification.recompute import Claim
from surefoot.verification.recompute_auto import pilots
from surefoot.verification.recompute_plans import Law

Floats = NDArray[np.float64]
SHARE = 1e-5  # relative, of a threshold's share in the risk


@dataclass(frozen=True)
class Side:
    """One side of a certificate: returns in order, their limits, radii and risk."""

    returns: Floats
    floor: float
    ceiling: float | None
    radii: Floats
    alpha: float

    def mirror(self) -> Side:
        """Return the upper side as a lower one."""
        assert self.ceiling is not None
        return Side(-self.returns, -self.ceiling, -self.floor, self.radii, self.alpha)


def check_choice(returns: Floats, claim: Claim, choice: Any) -> list[str]:
    """Return what is recorded otherwise than the pilot makes it."""
    radii = np.array([budget / claim.sigma for budget in claim.budgets])
    side = Side(returns, claim.floor, claim.ceiling, radii, claim.alpha)
    count, few = _pilot(side)
    if choice["pilot"] != count:
        return [f"the choice is made on {count} episodes, not on {choice['pilot']!r}"]
    method = _method(side, count, few)
    if choice["method"] != method:
        return [f"the first {count} episodes choose the method {method!r}, not {choice['method']!r}"]
    return _check_risks(side, count, choice) if choice["method"] == "per-threshold" else []


def _pilot(side: Side) -> tuple[int, bool]:
    """Return the number of pilot episodes, and whether the first of them show few whole numbers."""
    short, longer = pilots(side.returns.size)
    first = side.returns[:short]
    few = short > 0 and _whole(first, side) is not None and np.unique(first).size ** 2 <= short
    return (short if few else longer), few


def _whole(pilot: Floats, side: Side) -> Floats | None:
    """Return all whole numbers from floor to ceiling, if they are less than 65 and the pilot has no others."""
    top = float(pilot.max()) if side.ceiling is None else side.ceiling
    if (pilot % 1).any() or side.floor % 1 or not 0 < top - side.floor < 64:
        return None
    return np.unique([*np.arange(side.floor, top), top])


def _doubted(pilot: Floats, side: Side) -> Law:
    """Return the pilot's law; whole numbers that it lacks weigh one episode together, else the floor a tenth of one."""
    law, known = Law.of(pilot), _whole(pilot, side)
    if known is None:
        values = np.unique([side.floor, *law.values])
        weights = np.where(values == side.floor, 0.1, 0.0)
    else:
        values = known
        unseen = ~np.isin(values, law.values)
        weights = unseen / max(1, int(unseen.sum()))
    weights[np.searchsorted(values, law.values)] += law.counts
    return Law(values, weights)


def _method(side: Side, count: int, few: bool) -> str:
    """Return the method that the pilot episodes select."""
    pilot, n = side.returns[:count], side.returns.size
    if count == 0:
        return "band"
    if side.ceiling is not None and _won_or_lost(pilot, side.floor, side.ceiling):
        return "binary"
    counts = Law.of(pilot).counts
    often = int((counts >= 5).sum())
    known = few and len(set(side.radii.tolist())) > 3
    early = few or (often >= 2 and often + 1 >= counts.size)  # too few episodes to learn what is rare
    return "per-threshold" if (early if n < 2500 else known) else "betting"


def _won_or_lost(pilot: Floats, floor: float, ceiling: float) -> bool:
    """Tell whether only floor and ceiling came, and nothing can lie between if one of them did not."""
    seen, whole = set(pilot.tolist()), floor % 1 == 0 and ceiling - floor == 1
    return seen == {floor, ceiling} or (whole and seen <= {floor, ceiling})


def thresholds(side: Side, law: Law, n: int) -> tuple[Floats, Floats]:
    """Return thresholds and the alpha of each, in proportion to what a tenth more of it would bring, in 15 steps."""
    rough = law.rough(64)
    above = rough.values > side.floor
    points, missed = rough.values[above], ((np.cumsum(rough.counts) - rough.counts) / rough.counts.sum())[above]
    if points.size == 0:
        return points, points
    gaps, risks = np.diff(points, prepend=side.floor), np.full(points.size, side.alpha / points.size)

    def kept(risks: Floats) -> tuple[Floats, Floats]:
        reached = n * (1 - missed)
        limits = np.nan_to_num(betaincinv(np.maximum(reached, 1e-9), n - reached + 1, np.minimum(risks, 0.999)))
        limits = np.clip(limits, 0.0, 1.0)
        shifted = [limits if r == 0 else np.minimum(ndtr(ndtri(limits) - r), limits) for r in side.radii]
        return limits, np.array(shifted)

    for _ in range(15):
        limits, left = kept(risks)
        served = np.zeros(points.size)
        for i in range(points.size):  # a limit holds for all smaller thresholds too: the best serves, the last of them
            served[i + int(np.flatnonzero(limits[i:] == limits[i:].max())[-1])] += gaps[i]
        gain = np.maximum(((kept(1.1 * risks)[1] - left) * served).sum(axis=0), 1e-12 * gaps)
        risks = np.sqrt(risks * side.alpha * gain / gain.sum())
        risks *= side.alpha / risks.sum()
    return points, risks


def _check_risks(side: Side, count: int, choice: dict[str, Any]) -> list[str]:
    recorded = np.array([choice["thresholds"], choice["reach"], choice["stay"]], dtype=np.float64)
    planned = np.zeros((2, recorded.shape[1]))
    for row, one in enumerate([side] if side.ceiling is None else [side, side.mirror()]):
        points, risks = thresholds(one, _doubted(one.returns[:count], one), side.returns.size - count)
        place = np.searchsorted(recorded[0], points if row == 0 else -points)
        if place.max(initial=0) >= recorded.shape[1] or not np.array_equal(recorded[0][place], (1 - 2 * row) * points):
            return ["the thresholds are not those of the pilot"]
        planned[row, place] = risks
    right = np.allclose(recorded[1:], planned, rtol=SHARE, atol=1e-12)
    return [] if right else ["the risk is not divided among the thresholds as the pilot has it"]
