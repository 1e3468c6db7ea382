"""Bets on exp(-theta X) against a shared budget (T5): which thetas and bet sizes, by what a pilot predicts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot.proof.bounds.relative_entropy import TiltedBound, bound_tilts

Floats = NDArray[np.float64]

THETA_PLANNER_VERSION = 1  # of the choice of thetas and bet sizes, which a verification repeats
_MOST_THETAS = 6  # each paid for with its share of alpha
_THETAS = 2.0 ** (np.arange(-80, 81) / 8)  # per range of the return: from nearly the mean to nearly the minimum


def plan_and_bound_tilts(
    returns: ArrayLike, floor: float, ceiling: float | None, alpha: float, costs: Sequence[float]
) -> TiltedBound:
    """Fix thetas for the ``costs`` on a pilot, then bound each exp(-theta X) on the other returns by betting.

    The costs only say where the bound should be good: it holds at all others too.
    """
    width = None if ceiling is None else ceiling - floor

    def plan(pilot: Floats, rounds: int) -> tuple[Floats, Floats]:
        return choose_thetas(pilot, rounds, width, alpha, costs)

    return bound_tilts(returns, floor, alpha, theta_pilot_size(np.size(returns)), plan)


def theta_pilot_size(n: int) -> int:
    """Return how many of the returns, the first ones, are used to fix theta and bet sizes and for nothing else."""
    return min(-(-n // 10), round(5 * math.sqrt(n)))


def choose_thetas(
    pilot: Floats, rounds: int, width: float | None, alpha: float, costs: Sequence[float]
) -> tuple[Floats, Floats]:
    """Return the thetas to bet on and the bet sizes, by what the pilot alone predicts.

    ``THETA_PLANNER_VERSION`` is the version of this choice.

    Args:
        pilot: The first returns, counted from the floor.
        rounds: Number of the other returns.
        width: Ceiling minus floor; None if there is no ceiling.
        alpha: To be divided evenly among the thetas.
        costs: Where the bound should be good.
    """
    wanted = sorted(set(costs))
    if rounds == 0 or pilot.size == 0 or not wanted:
        return np.empty(0), np.empty(0)
    unit = width
    if unit is None:
        unit = float(pilot.max()) or 1.0
    thetas: Floats = _THETAS / unit
    log = math.log(1 / (alpha / min(len(wanted), _MOST_THETAS)))
    values = np.exp(-np.outer(thetas, pilot))
    means = values.mean(axis=1)
    # Half an outcome at the floor is added: a pilot without a failure says little about how rare failures are.
    variances = values.var(axis=1) + (1 - means) ** 2 / (2 * pilot.size)
    with np.errstate(divide="ignore"):
        stakes = np.minimum(np.sqrt(2 * log / (rounds * variances)), 1 / (1 - means))
    usable = np.isfinite(stakes) & (stakes > 0)
    thetas = thetas[usable]
    stakes = stakes[usable]
    if thetas.size == 0:
        return thetas, stakes
    promised = np.minimum(means[usable] + stakes * variances[usable] / 2 + log / (rounds * stakes), 1.0)
    hopes = -(np.log(promised) + np.array(wanted)[:, None]) / thetas
    # A cost at which not even the pilot hopes for more than the floor is not worth a share of alpha.
    chosen = np.unique(hopes.argmax(axis=1)[hopes.max(axis=1) > 0])
    if chosen.size > _MOST_THETAS:
        evenly = np.linspace(0, chosen.size - 1, _MOST_THETAS).round().astype(np.int64)
        chosen = chosen[np.unique(evenly)]
    return thetas[chosen], stakes[chosen]
