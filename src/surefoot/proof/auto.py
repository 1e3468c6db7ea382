"""Which method is likely to certify the most: selected on the pilot episodes, the first ones, and on nothing else.

The episodes after the pilot episodes are certified with the one method that was selected. Trying several on the same
episodes and keeping the best would claim more confidence than there is.

The rule needs no forecast. Wins and losses are one proportion. Otherwise bets are the best single method, or close to
it, on nearly every distribution (``bench/regret.py``), but for returns that take few values, all known, at several
budgets: each threshold uses a part of alpha, once for all budgets, and each budget that is bet on uses one. So the few
values of a distribution are thresholds where they are fewer than twice the budgets.

A pilot that saw the same return again and again does not show the possible values. A nearly perfect agent fails too
rarely for that, and thresholds at the values of its pilot episodes would count every failure as the floor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.proof.bounds.alpha_shares import threshold_shares
from surefoot.proof.bounds.bettors import pilot_size
from surefoot.proof.bounds.samples import Sample

Floats = NDArray[np.float64]

FEWEST = 20  # episodes from which on a pilot is taken
_KNOWN = 64  # with no more whole numbers than that from floor to ceiling all of them are thresholds
_UNSEEN = 1.0  # weight, in episodes, of those whole numbers together that the pilot did not see
_EACH = 2  # thresholds per budget from which on bets are better than bounds per threshold on few values


@dataclass(frozen=True, eq=False)
class Choice:
    """What the pilot episodes selected.

    Attributes:
        method: "binary", "per-threshold", "band" or "betting".
        pilot: Number of pilot episodes, the first ones.
        points: Thresholds, for bounds per threshold.
        reach: Alpha of the lower bound of P(X >= point) at each threshold.
        stay: Alpha of the lower bound of P(X <= point) at each threshold.
    """

    method: str
    pilot: int
    points: Floats
    reach: Floats
    stay: Floats

    def to_json(self) -> dict[str, Any]:
        """Return the choice as JSON data."""
        spread = {"thresholds": self.points.tolist(), "reach": self.reach.tolist(), "stay": self.stay.tolist()}
        return {"method": self.method, "pilot": self.pilot, **(spread if self.points.size else {})}


def choose(returns: Floats, radii: Floats, alpha: float, floor: float, ceiling: float | None) -> Choice:
    """Select a method on the first returns, and on no other, for the rest of them."""
    return select(returns[: pilot_size(returns.size)], returns.size, radii, alpha, floor, ceiling)


def select(first: Floats, n: int, radii: Floats, alpha: float, floor: float, ceiling: float | None) -> Choice:
    """Select a method for n returns of which only the first ones, at most the pilot episodes, are given."""
    none = (np.empty(0),) * 3
    if n < FEWEST:
        return Choice("band", 0, *none)
    short = first[: short_pilot(n)]
    known = _values(short, floor, ceiling)
    if known is not None and (known.size > short.size or np.unique(short).size > math.sqrt(short.size)):
        known = None
    # after a start that was always the ceiling, or for upper bounds the floor, bets begin early (``ceiling_bets``):
    # what they bet on must not select them
    at_one_end = bool(np.all(short == ceiling) or np.all(short == floor))
    pilot = first if known is None and not at_one_end else short
    if ceiling is not None and _won_or_lost(pilot, floor, ceiling):
        ends = np.array([floor, ceiling])
        return Choice("binary", pilot.size, ends, np.array([0.0, alpha]), np.array([alpha, 0.0]))
    if known is None or known.size - 1 >= _EACH * np.unique(radii).size:  # the floor is no threshold
        return Choice("betting", pilot.size, *none)
    return Choice("per-threshold", pilot.size, *_spread(known, pilot, radii, alpha, floor, ceiling, n))


def short_pilot(n: int) -> int:
    """Return the number of pilot episodes where returns take few values: the others are better used for the bounds."""
    return round(math.sqrt(n) / 2)


def _spread(
    known: Floats, pilot: Floats, radii: Floats, alpha: float, floor: float, ceiling: float | None, n: int
) -> tuple[Floats, Floats, Floats]:
    """Return thresholds with an alpha for each side; the upper side is the mirror image of the lower one."""
    below, reach = threshold_shares(_law(known, pilot), radii, alpha, floor, n - pilot.size)
    if ceiling is None:
        return below, reach, np.zeros(below.size)
    above, stay = threshold_shares(_law(-known[::-1], -pilot), radii, alpha, -ceiling, n - pilot.size)
    points = np.unique(np.concatenate([below, -above]))
    risks = np.zeros((2, points.size))
    risks[0, np.searchsorted(points, below)] = reach
    risks[1, np.searchsorted(points, -above)] = stay
    return points, risks[0], risks[1]


def _law(known: Floats, pilot: Floats) -> Sample:
    """Return the distribution of the pilot with some doubt: known values that it did not see may still come."""
    counts, seen = np.zeros(known.size), Sample.of(pilot)
    counts[np.searchsorted(known, seen.values)] = seen.counts
    unseen = counts == 0
    return Sample(known, np.where(unseen, _UNSEEN / max(1, unseen.sum()), counts))


def _values(pilot: Floats, floor: float, ceiling: float | None) -> Floats | None:
    """Return all values that whole numbers can take, or None if the pilot has others or there are too many."""
    top = float(pilot.max()) if ceiling is None else ceiling
    if not np.all(np.round(pilot) == pilot) or floor != round(floor) or not 0 < top - floor < _KNOWN:
        return None
    return np.unique(np.append(np.arange(floor, top), top))


def _won_or_lost(pilot: Floats, floor: float, ceiling: float) -> bool:
    """Return whether only floor and ceiling came; where one of them is missing, whether nothing can lie between."""
    whole = ceiling - floor == 1 and floor == round(floor)
    both = bool((pilot == floor).any() and (pilot == ceiling).any())
    return bool(np.isin(pilot, [floor, ceiling]).all()) and (both or whole)
