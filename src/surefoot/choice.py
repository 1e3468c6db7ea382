"""Which method is likely to be tightest for this law: looked at on a pilot, the first episodes, and on nothing else.

The episodes after the pilot are certified with the one method that was chosen. Trying several on the same episodes and
keeping the best would claim more confidence than there is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.bounds.betting import Sample
from surefoot.bounds.binomial import lower_limit
from surefoot.bounds.hedge import expected_limit
from surefoot.bounds.levels import rough_level
from surefoot.bounds.mean import pilot_size
from surefoot.bounds.scores import implied, learning_loss, propose
from surefoot.bounds.shares import split
from surefoot.bounds.shift import shift_down
from surefoot.bounds.thresholds import threshold_shares

Floats = NDArray[np.float64]

FEWEST = 20  # episodes from which on a pilot is taken
_DOUBT = 0.1  # weight, in episodes, of a return at the floor: what the pilot did not see may still come
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
    pilot = pilot_size(n)
    if n < FEWEST:
        return Choice("band", 0, {}, np.empty(0), np.empty(0), np.empty(0))
    law = _doubted(Sample.of(returns[:pilot]), floor)
    if ceiling is not None and _won_or_lost(returns[:pilot], floor, ceiling):
        ends = np.array([floor, ceiling])
        return Choice("binary", pilot, {}, ends, np.array([0.0, alpha]), np.array([alpha, 0.0]))
    expected = {
        "betting": expected_bets(law, radii, alpha, floor, ceiling, n, pilot),
        "band": expected_band(law, radii, alpha, floor, n - pilot),
    }
    if _few_values(returns[:pilot]):
        expected["per-threshold"] = threshold_shares(law, radii, alpha, floor, n - pilot)[2]
    # bets learn as they go, which a pilot cannot foresee; a band does not
    worth = {name: float((values - floor).sum()) for name, values in expected.items()}
    worth["band"] *= _NO_LEARNING
    if "per-threshold" in expected:  # which has nothing to learn
        worth["betting"] -= float(learning_loss(law, radii, floor, n, pilot).sum())
    method = max(worth, key=lambda name: worth[name])
    written = {name: values.tolist() for name, values in expected.items()}
    spread = _spread(law, radii, alpha, floor, ceiling, n - pilot) if method == "per-threshold" else (np.empty(0),) * 3
    return Choice(method, pilot, written, *spread)


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
    law: Sample, radii: Floats, alpha: float, floor: float, ceiling: float | None, n: int
) -> tuple[Floats, Floats, Floats]:
    """Return thresholds with a risk for each side; the upper side is the mirror image of the lower one."""
    below, reach, _ = threshold_shares(law, radii, alpha, floor, n)
    if ceiling is None:
        return below, reach, np.zeros(below.size)
    mirror = Sample(-law.values[::-1], law.counts[::-1])
    above, stay, _ = threshold_shares(_doubted(mirror, -ceiling), radii, alpha, -ceiling, n)
    points = np.unique(np.concatenate([below, -above]))
    risks = np.zeros((2, points.size))
    risks[0, np.searchsorted(points, below)] = reach
    risks[1, np.searchsorted(points, -above)] = stay
    return points, risks[0], risks[1]


def _doubted(pilot: Sample, floor: float) -> Sample:
    values, place = np.unique(np.concatenate([[floor], pilot.values]), return_inverse=True)
    weights = np.concatenate([[_DOUBT], pilot.counts])
    return Sample(values, np.bincount(place, weights=weights).astype(np.float64))


def _few_values(pilot: Floats) -> bool:
    """Tell whether the pilot has seen all values that matter: hardly any of them came just once (Good and Turing)."""
    return int(np.count_nonzero(Sample.of(pilot).counts == 1)) <= 1


def _won_or_lost(pilot: Floats, floor: float, ceiling: float) -> bool:
    """Tell whether only floor and ceiling came; where one of them is missing, whether nothing can lie between."""
    whole = ceiling - floor == 1 and floor == round(floor)
    both = bool((pilot == floor).any() and (pilot == ceiling).any())
    return bool(np.isin(pilot, [floor, ceiling]).all()) and (both or whole)
