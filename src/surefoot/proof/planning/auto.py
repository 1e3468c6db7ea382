"""Which method is likely to certify the most: selected on the pilot episodes, the first ones, and on nothing else.

The episodes after the pilot episodes are certified with the one method that was selected. Trying several on the same
episodes and keeping the best would claim more confidence than there is.

The rule needs no forecast. Wins and losses are one proportion. Otherwise bets are the best single method, or close to
it, on nearly every distribution (``bench/regret.py``), but for returns that take few values, all known, at several
budgets: each threshold uses a part of alpha, once for all budgets, and each budget that is bet on uses one. So the few
values of a distribution are thresholds where they are fewer than twice the budgets.

A pilot that saw the same return again and again does not show the possible values. A nearly perfect agent fails too
rarely for that, and thresholds at the values of its pilot episodes would count every failure as the floor. So there
are only wins and losses where the task says so or the pilot saw both, and few values only where the pilot episodes
lie on a lattice from floor to ceiling that chance does not explain. Nothing here knows the unit of the return: a
score in percent gets the certificate of the same score as a fraction, times 100.

Where it is known how episodes began, bets that know their luck are best if it predicts the returns of pilot episodes
that were left out of the fit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.proof.bounds.reset_luck import LuckyReturns
from surefoot.proof.bounds.samples import Sample
from surefoot.proof.planning.alpha_shares import threshold_shares
from surefoot.proof.planning.bettors import pilot_size
from surefoot.proof.planning.luck_fit import knows_luck
from surefoot.proof.planning.mean_bets import needs_pilot

Floats = NDArray[np.float64]

FEWEST_EPISODES = 20  # episodes from which on a pilot is taken
_MOST_STEPS = 63  # of a lattice from floor to ceiling: with more values than that other methods are better anyway
_ON_LATTICE = 1e-10  # of the range: returns so close to a point of the lattice are that point, but for rounding
_SPREAD = 100  # values that a return is taken to have where nothing shows that it has few
_BY_CHANCE = 0.001  # largest probability with which so many of these would be points of the lattice
_UNSEEN_WEIGHT = 1.0  # weight, in episodes, of those points together that the pilot did not see
_EACH = 2  # thresholds per budget from which on bets are better than bounds per threshold on few values


@dataclass(frozen=True, eq=False)
class MethodChoice:
    """What the pilot episodes selected."""

    method: str  # "binary", "per-threshold", "band", "betting" or "luck"
    pilot: int  # number of pilot episodes, the first ones
    points: Floats  # thresholds, for bounds per threshold
    survival_alphas: Floats  # alpha of the lower bound of P(X >= point) at each threshold
    cdf_alphas: Floats  # alpha of the lower bound of P(X <= point) at each threshold

    def to_json(self) -> dict[str, Any]:
        """Return the choice as JSON data."""
        content: dict[str, Any] = {"method": self.method, "pilot": self.pilot}
        if self.points.size > 0:
            content["thresholds"] = self.points.tolist()
            content["reach"] = self.survival_alphas.tolist()
            content["stay"] = self.cdf_alphas.tolist()
        return content


def choose_method(
    returns: Floats,
    scaled_budgets: Floats,
    alpha: float,
    floor: float,
    ceiling: float | None,
    *,
    declared: bool = False,
    features: Floats | None = None,
) -> MethodChoice:
    """Select a method on the first returns, and on no other, for the rest of them.

    ``features`` are what was known of each episode at reset, or None; the other arguments are those below.

    Raises:
        ValueError: If a return that was inspected would be certified.
    """
    n = returns.size
    first = returns[: selection_size(n)].copy()
    choice = select_method(first, n, scaled_budgets, alpha, floor, ceiling, declared=declared)
    # whatever is planned here may be bad, but no return may both select a method and be certified with it
    if choice.pilot < first.size:
        raise ValueError(f"{first.size} returns have selected the method, which leaves out {choice.pilot}")
    # without an attack luck changes nothing
    if features is None or not scaled_budgets.any():
        return choice
    return choose_luck(choice, LuckyReturns(returns[: choice.pilot].copy(), features[: choice.pilot].copy()), n)


def choose_luck(choice: MethodChoice, pilot: LuckyReturns, n: int) -> MethodChoice:
    """Select bets that know luck, or leave the choice as it was, so that to look at luck costs nothing.

    Args:
        choice: The method of n returns whose luck is unknown.
        pilot: The returns that it leaves out, with their luck. No bet is made on them, nor on any before
            ``pilot_size(n)`` by bets that know luck.
        n: The number of all returns.
    """
    if not knows_luck(pilot):
        return choice
    return MethodChoice("luck", pilot_size(n), *(np.empty(0),) * 3)


def select_method(
    first: Floats,
    n: int,
    scaled_budgets: Floats,
    alpha: float,
    floor: float,
    ceiling: float | None,
    *,
    declared: bool = False,
) -> MethodChoice:
    """Select a method for n returns.

    Args:
        first: The first ``selection_size(n)`` of them; no others are needed.
        n: Their number.
        scaled_budgets: Where bounds should be good.
        alpha: Error probability.
        floor: The lowest return that is possible.
        ceiling: The highest, or None.
        declared: Whether the task says that episodes are won or lost: no return is between floor and ceiling.
    """
    none = (np.empty(0),) * 3
    if n < FEWEST_EPISODES:
        return MethodChoice("band", 0, *none)
    short = first[: selection_size(n)]
    if ceiling is not None and _won_or_lost(short, floor, ceiling, declared=declared):
        ends = np.array([floor, ceiling])
        return MethodChoice("binary", short.size, ends, np.array([0.0, alpha]), np.array([alpha, 0.0]))
    values = _few_values(short, floor, ceiling)
    # after a start that was always the ceiling, or for upper bounds the floor, bets begin early (``ceiling_bets``):
    # what they bet on must not select them
    at_one_end = bool(np.all(short == ceiling) or np.all(short == floor))
    if values is None and not at_one_end and needs_pilot(scaled_budgets, n, floor, ceiling):
        return MethodChoice("betting", pilot_size(n), *none)
    if values is None or values.values.size - 1 >= _EACH * np.unique(scaled_budgets).size:  # the floor is no threshold
        return MethodChoice("betting", short.size, *none)
    shares = _spread_alpha(values, scaled_budgets, alpha, floor, ceiling, n - short.size)
    return MethodChoice("per-threshold", short.size, *shares)


def selection_size(n: int) -> int:
    """Return how many of n returns, the first ones, select the method: few, the others are better used for bounds."""
    if n < FEWEST_EPISODES:
        return 0
    return min(pilot_size(n), round(math.sqrt(n) / 2))


def _spread_alpha(
    values: Sample, scaled_budgets: Floats, alpha: float, floor: float, ceiling: float | None, n: int
) -> tuple[Floats, Floats, Floats]:
    """Return thresholds with an alpha for each side, for n returns; the upper side is the mirror image of the lower."""
    below, reach = threshold_shares(_lower_values(values), scaled_budgets, alpha, floor, n)
    if ceiling is None:
        return below, reach, np.zeros(below.size)
    mirrored = Sample(-values.values[::-1], values.counts[::-1])
    above, stay = threshold_shares(_lower_values(mirrored), scaled_budgets, alpha, -ceiling, n)
    points = np.unique(np.concatenate([below, -above]))
    survival_alphas = np.zeros(points.size)
    survival_alphas[np.searchsorted(points, below)] = reach
    cdf_alphas = np.zeros(points.size)
    cdf_alphas[np.searchsorted(points, -above)] = stay
    return points, survival_alphas, cdf_alphas


def _lower_values(values: Sample) -> Sample:
    """Return the values as thresholds that a return reaches even if it was rounded; sums of whole numbers are exact."""
    points = values.values
    if np.array_equal(np.round(points), points):
        return values
    return Sample(points - 2 * _ON_LATTICE * (points[-1] - points[0]), values.counts)


def _few_values(pilot: Floats, floor: float, ceiling: float | None) -> Sample | None:
    """Return all values of a return and how often the pilot saw each, or None if nothing shows that they are few.

    The coarsest lattice from floor to ceiling with all returns of the pilot on it is taken for the set of all values,
    unless returns of many values would lie on it by chance. Those at the two ends tell nothing. Of the others each is a
    hint, but the most common return is three hints, however often it came: an agent may do the same again and again and
    fail in many ways. Points that the pilot did not see may still come.
    """
    top = float(pilot.max()) if ceiling is None else ceiling
    if not top > floor:
        return None
    for steps in range(1, _MOST_STEPS + 1):
        places = (pilot - floor) / (top - floor) * steps
        if np.all(np.abs(places - np.round(places)) <= _ON_LATTICE * steps):
            break
    else:
        return None
    counts = np.bincount(np.round(places).astype(np.int64), minlength=steps + 1).astype(np.float64)
    n_seen = int(np.count_nonzero(counts))
    if steps >= pilot.size or n_seen > math.sqrt(pilot.size):
        return None
    # the most common return counts as three hints
    hints = counts.copy()
    hints[counts.argmax()] = 3.0
    if ((steps - 1) / _SPREAD) ** hints[1:-1].sum() > _BY_CHANCE:
        return None
    # the top exactly, not a sum that is rounded
    points = np.append(floor + (top - floor) / steps * np.arange(steps), top)
    unseen = _UNSEEN_WEIGHT / max(1, steps + 1 - n_seen)
    return Sample(points, np.where(counts == 0, unseen, counts))


def _won_or_lost(pilot: Floats, floor: float, ceiling: float, *, declared: bool) -> bool:
    """Return whether there are wins and losses only: no other return came, and the task says so or both came."""
    both = bool((pilot == floor).any() and (pilot == ceiling).any())
    return bool(np.isin(pilot, [floor, ceiling]).all()) and (declared or both)
