"""The choice of auto once more: what the first returns let one expect of each method, and nothing that came later.

A choice decides how tight limits are; they are true because the returns that are certified did not make it. So it is
made again here of the pilot alone, and a certificate with another method, pilot or division of the risk is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtr, ndtri

from surefoot.verification.recompute.auto import pilots
from surefoot.verification.recompute.bands import Claim, mean_left, proportion_at_least
from surefoot.verification.recompute.plans import Law
from surefoot.verification.recompute.shares import carried, expected_limit, shares_of

Floats = NDArray[np.float64]
TIE = 1e-9  # relative: two methods this close are equally good, and rounding may have decided between them
SHARE = 1e-5  # relative, of a threshold's share in the risk
# about how many single limits at once a band of n returns is worth, for n = 1, 10, ..., 10^7
SIZES, RATIOS = (0.0, 2.3, 4.6, 6.9, 9.2, 11.5, 13.8, 16.1), (1.0, 6.35, 20.5, 41.6, 65.3, 90.4, 118.0, 146.0)


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
    worth = _worth(side, count, few)
    best = max(worth, key=lambda name: worth[name])
    if worth[best] - worth.get(choice["method"], -math.inf) > TIE * abs(worth[best]):
        return [f"the first {count} episodes choose the method {best!r}, not {choice['method']!r}"]
    return _check_risks(side, count, choice) if choice["method"] == "per-threshold" else []


def _pilot(side: Side) -> tuple[int, bool]:
    """Return how many episodes are looked at, and whether the first of them show at most five whole numbers."""
    short, longer = pilots(side.returns.size)
    first = side.returns[:short]
    few = short > 0 and _whole(first, side) is not None and np.unique(first).size <= 5
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


def _worth(side: Side, count: int, few: bool) -> dict[str, float]:
    """Return the sum over all radii of what each method is expected to certify above the floor."""
    pilot, n = side.returns[:count], side.returns.size
    if count == 0:
        return {"band": 0.0}
    if side.ceiling is not None and _won_or_lost(pilot, side.floor, side.ceiling):
        return {"binary": 0.0}
    law = _doubted(pilot, side)
    expected = {"betting": _bets(side, law, count), "band": _band(side, law, n - count)}
    worth = {name: float((limits - side.floor).sum()) for name, limits in expected.items()}
    worth["band"] *= 0.9  # which does not learn
    if few or np.count_nonzero(Law.of(pilot).counts == 1) <= 1:
        worth["per-threshold"] = float((thresholds(side, law, n - count)[2] - side.floor).sum())
        worth["betting"] -= (8 if few else 1) * _learning(side, law, n, count)
    return worth


def _won_or_lost(pilot: Floats, floor: float, ceiling: float) -> bool:
    """Tell whether only floor and ceiling came, and nothing can lie between if one of them did not."""
    seen, whole = set(pilot.tolist()), floor % 1 == 0 and ceiling - floor == 1
    return seen == {floor, ceiling} or (whole and seen <= {floor, ceiling})


def _bets(side: Side, law: Law, count: int) -> Floats:
    """Return what bets would certify, by scores as good as a third of all returns would make them."""
    n, total = side.returns.size, float(law.counts.sum())
    asked, learnt = np.unique(side.radii), Law(law.values, law.counts * max(1.0, n / 3 / total))
    shares = shares_of(law, asked, side.alpha, side.floor, side.ceiling, n - count + total)
    best = np.full(side.radii.size, side.floor)
    for radius, share in zip(asked[shares > 0].tolist(), shares[shares > 0].tolist(), strict=True):
        limit = expected_limit(learnt, radius, share, side.floor, n, n - count)
        says = [carried(limit, radius, wanted, side.floor, side.ceiling) for wanted in side.radii.tolist()]
        best = np.maximum(best, says)
    return best


def _band(side: Side, law: Law, n: int) -> Floats:
    rough = law.rough(256)
    total = rough.counts.sum()
    reached = np.minimum(np.floor(n * (total - np.cumsum(rough.counts) + rough.counts) / total), n).astype(np.int64)
    limits = proportion_at_least(reached, n, side.alpha / float(np.interp(math.log(n), SIZES, RATIOS)))
    return np.array([mean_left(side.floor, rough.values, limits, radius) for radius in side.radii])


def _learning(side: Side, law: Law, n: int, count: int) -> float:
    """Return what tangents at guesses of m returns lose, g''(S) S (1 - S) / (2 m), for m from the pilot's size to n."""
    share = law.counts / law.counts.sum()
    reach = np.clip(1 - np.cumsum(share) + share, 1e-12, 1 - 1e-12)
    gaps, z, c = np.diff(law.values, prepend=side.floor) * (reach < 1 - 1e-9), ndtri(reach), side.radii[:, None]
    bent = math.sqrt(2 * math.pi) * c * np.exp(c * z - c**2 / 2 + z**2 / 2)
    return float(((bent * reach * (1 - reach)) @ gaps).sum()) * math.log(n / count) / (2 * n)


def thresholds(side: Side, law: Law, n: int) -> tuple[Floats, Floats, Floats]:
    """Return thresholds, their risks, and what n returns would certify: each risk in proportion to what a tenth more of
    it would bring, found in 15 steps."""
    rough = law.rough(64)
    above = rough.values > side.floor
    points, missed = rough.values[above], ((np.cumsum(rough.counts) - rough.counts) / rough.counts.sum())[above]
    if points.size == 0:
        return points, points, np.full(side.radii.size, side.floor)
    gaps, risks = np.diff(points, prepend=side.floor), np.full(points.size, side.alpha / points.size)

    def kept(risks: Floats) -> tuple[Floats, Floats]:
        reached = n * (1 - missed)
        limits = np.nan_to_num(betaincinv(np.maximum(reached, 1e-9), n - reached + 1, np.minimum(risks, 0.999)))
        limits = np.clip(limits, 0.0, 1.0)
        shifted = [limits if r == 0 else np.minimum(ndtr(ndtri(limits) - r), limits) for r in side.radii]
        return limits, np.array(shifted)

    for step in range(16):
        limits, left = kept(risks)
        served = np.zeros(points.size)
        for i in range(points.size):  # a limit holds for all smaller thresholds too: the best serves, the last of them
            served[i + int(np.flatnonzero(limits[i:] == limits[i:].max())[-1])] += gaps[i]
        if step < 15:
            gain = np.maximum(((kept(1.1 * risks)[1] - left) * served).sum(axis=0), 1e-12 * gaps)
            risks = np.sqrt(risks * side.alpha * gain / gain.sum())
            risks *= side.alpha / risks.sum()
    return points, risks, side.floor + left @ served


def _check_risks(side: Side, count: int, choice: dict[str, Any]) -> list[str]:
    recorded = np.array([choice["thresholds"], choice["reach"], choice["stay"]], dtype=np.float64)
    planned = np.zeros((2, recorded.shape[1]))
    for row, one in enumerate([side] if side.ceiling is None else [side, side.mirror()]):
        points, risks, _ = thresholds(one, _doubted(one.returns[:count], one), side.returns.size - count)
        place = np.searchsorted(recorded[0], points if row == 0 else -points)
        if place.max(initial=0) >= recorded.shape[1] or not np.array_equal(recorded[0][place], (1 - 2 * row) * points):
            return ["the thresholds are not those of the pilot"]
        planned[row, place] = risks
    right = np.allclose(recorded[1:], planned, rtol=SHARE, atol=1e-12)
    return [] if right else ["the risk is not divided among the thresholds as the pilot has it"]
