"""Which method is likely to be tightest for this law: looked at on a pilot, the first episodes, and on nothing else.

The episodes after the pilot are certified with the one method that was chosen. Trying several on the same episodes and
keeping the best would claim more confidence than there is. A short pilot is enough where returns take few values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.proof.bounds.betting import Sample
from surefoot.proof.bounds.bettors import pilot_size
from surefoot.proof.bounds.binomial import lower_limit
from surefoot.proof.bounds.gaussian_shift import shift_down
from surefoot.proof.bounds.hedged_bets import expected_limit
from surefoot.proof.bounds.local_levels import rough_level
from surefoot.proof.bounds.risk_by_radius import split
from surefoot.proof.bounds.risk_by_threshold import threshold_shares
from surefoot.proof.bounds.tangent_scores import implied, learning_loss, propose

Floats = NDArray[np.float64]

FEWEST = 20  # episodes from which on a pilot is taken
_DOUBT = 0.1  # weight, in episodes, of a return at the floor: what the pilot did not see may still come
_KNOWN = 64  # with no more whole numbers than that from floor to ceiling all of them are thresholds
_UNSEEN = 1.0  # weight, in episodes, of those whole numbers together that the pilot did not see
_FEW = 5  # different returns, of whole numbers, up to which a short pilot is enough
_UNLUCKY = 8  # times what learning costs on average: what bets must promise in addition to limits per threshold
_NO_LEARNING = 0.9
_LEARNT = 3  # bets are made from a third of all episodes on average, not from the pilot alone


@dataclass(frozen=True, eq=False)
class Choice:
    """What a pilot settled.

    ``method``    "binary", "per-threshold", "band" or "betting"
    ``pilot``     how many episodes, the first ones, were looked at
    ``expected``  what each method was expected to certify, by its name, one number per radius: estimates
    ``points``, ``reach``, ``stay``  thresholds and the risk of each, for limits per threshold
    """

    method: str
    pilot: int
    expected: Mapping[str, list[float]]
    points: Floats
    reach: Floats
    stay: Floats

    def to_json(self) -> dict[str, Any]:
        """Return the choice as JSON data."""
        spread = {"thresholds": self.points.tolist(), "reach": self.reach.tolist(), "stay": self.stay.tolist()}
        return {
            "method": self.method,
            "pilot": self.pilot,
            "expected": dict(self.expected),
            **(spread if self.points.size else {}),
        }


def choose(returns: Floats, radii: Floats, alpha: float, floor: float, ceiling: float | None) -> Choice:
    """Look at the first of the returns, and at no other, and choose a method for the rest."""
    n = returns.size
    if n < FEWEST:
        return Choice("band", 0, {}, np.empty(0), np.empty(0), np.empty(0))
    short = returns[: min(short_pilot(n), pilot_size(n))]
    few = _values(short, floor, ceiling) is not None and np.unique(short).size <= _FEW
    pilot = short if few else returns[: pilot_size(n)]
    if ceiling is not None and _won_or_lost(pilot, floor, ceiling):
        ends = np.array([floor, ceiling])
        return Choice("binary", pilot.size, {}, ends, np.array([0.0, alpha]), np.array([alpha, 0.0]))
    expected, worth = _foreseen(pilot, radii, alpha, floor, ceiling, n, few=few)
    method = max(worth, key=lambda name: worth[name])
    chosen = method == "per-threshold"
    spread = _spread(pilot, radii, alpha, floor, ceiling, n) if chosen else (np.empty(0),) * 3
    return Choice(method, pilot.size, {name: values.tolist() for name, values in expected.items()}, *spread)


def short_pilot(n: int) -> int:
    """Return how many episodes are looked at where they show few values: the others are worth more certified."""
    return round(math.sqrt(n) / 2)


def _foreseen(
    pilot: Floats, radii: Floats, alpha: float, floor: float, ceiling: float | None, n: int, *, few: bool
) -> tuple[dict[str, Floats], dict[str, float]]:
    """Return what each method is expected to certify at each radius, and what that is worth in all."""
    law = _law(pilot, floor, ceiling)
    expected = {
        "betting": expected_bets(law, radii, alpha, floor, ceiling, n, pilot.size),
        "band": expected_band(law, radii, alpha, floor, n - pilot.size),
    }
    if few or _few_values(pilot):
        expected["per-threshold"] = threshold_shares(law, radii, alpha, floor, n - pilot.size)[2]
    # bets learn as they go, which a pilot cannot foresee; a band does not
    worth = {name: float((values - floor).sum()) for name, values in expected.items()}
    worth["band"] *= _NO_LEARNING
    if "per-threshold" in expected:  # which has nothing to learn
        lost = float(learning_loss(law, radii, floor, n, pilot.size).sum())
        worth["betting"] -= _UNLUCKY * lost if few else lost
    return expected, worth


def expected_bets(
    law: Sample, radii: Floats, alpha: float, floor: float, ceiling: float | None, n: int, pilot: int
) -> Floats:
    """Return what bets would probably certify at each radius."""
    asked = np.unique(radii)
    learnt = Sample(law.values, law.counts * max(1.0, n / _LEARNT / law.counts.sum()))
    shares = split(law, asked, alpha, floor, ceiling, n - pilot)
    bets = asked[shares > 0]
    limits = [
        expected_limit(
            partial(propose, expected=n, radius=float(radius), floor=floor), float(share), learnt, n - pilot, floor
        )
        for radius, share in zip(bets, shares[shares > 0], strict=True)
    ]
    best: Floats = implied(bets, np.array(limits), radii, floor, ceiling).max(axis=0)
    return best


def expected_band(law: Sample, radii: Floats, alpha: float, floor: float, n: int) -> Floats:
    """Return what the tail-tight band would probably certify at each radius."""
    rough = law.grouped()
    total = rough.counts.sum()
    reached = np.floor(n * (total - np.cumsum(rough.counts) + rough.counts) / total)
    limits = lower_limit(np.minimum(reached, n), n, rough_level(n, alpha))
    gaps = np.diff(rough.values, prepend=floor)
    return np.array([floor + float(gaps @ shift_down(limits, radius)) for radius in radii])


def _spread(
    pilot: Floats, radii: Floats, alpha: float, floor: float, ceiling: float | None, n: int
) -> tuple[Floats, Floats, Floats]:
    """Return thresholds with a risk for each side; the upper side is the mirror image of the lower one."""
    below, reach, _ = threshold_shares(_law(pilot, floor, ceiling), radii, alpha, floor, n - pilot.size)
    if ceiling is None:
        return below, reach, np.zeros(below.size)
    mirror = _law(-pilot, -ceiling, -floor)
    above, stay, _ = threshold_shares(mirror, radii, alpha, -ceiling, n - pilot.size)
    points = np.unique(np.concatenate([below, -above]))
    risks = np.zeros((2, points.size))
    risks[0, np.searchsorted(points, below)] = reach
    risks[1, np.searchsorted(points, -above)] = stay
    return points, risks[0], risks[1]


def _law(pilot: Floats, floor: float, ceiling: float | None) -> Sample:
    """Return the law of the pilot with some doubt: what it did not see may still come."""
    seen, known = Sample.of(pilot), _values(pilot, floor, ceiling)
    if known is None:
        values, place = np.unique(np.concatenate([[floor], seen.values]), return_inverse=True)
        weights = np.concatenate([[_DOUBT], seen.counts])
        return Sample(values, np.bincount(place, weights=weights).astype(np.float64))
    counts = np.zeros(known.size)
    counts[np.searchsorted(known, seen.values)] = seen.counts
    unseen = counts == 0
    return Sample(known, np.where(unseen, _UNSEEN / max(1, unseen.sum()), counts))


def _values(pilot: Floats, floor: float, ceiling: float | None) -> Floats | None:
    """Return all values that whole numbers can take, or None if the pilot has others or there are too many."""
    top = float(pilot.max()) if ceiling is None else ceiling
    if not np.all(np.round(pilot) == pilot) or floor != round(floor) or not 0 < top - floor < _KNOWN:
        return None
    return np.unique(np.append(np.arange(floor, top), top))


def _few_values(pilot: Floats) -> bool:
    """Tell whether the pilot has seen all values that matter: hardly any of them came just once (Good and Turing)."""
    return int(np.count_nonzero(Sample.of(pilot).counts == 1)) <= 1


def _won_or_lost(pilot: Floats, floor: float, ceiling: float) -> bool:
    """Tell whether only floor and ceiling came; where one of them is missing, whether nothing can lie between."""
    whole = ceiling - floor == 1 and floor == round(floor)
    both = bool((pilot == floor).any() and (pilot == ceiling).any())
    return bool(np.isin(pilot, [floor, ceiling]).all()) and (both or whole)
