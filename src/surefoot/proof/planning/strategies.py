"""Who bets on the worst-case mean: ``FixedNumberStrategy`` and ``AnytimeStrategy``, and what their bets prove.

- ``worst_means``: lower bounds at some scaled budgets (B / sigma) simultaneously
- ``both_sides``: the same from below and, with a ceiling, from above
- ``bound_step_means``: both sides where every step has a budget of its own
- ``bound_group_means``: both sides where each seed of the environment was run with several draws of the noise
- ``bound_lucky_means``: both sides where it was recorded how each episode began
- ``Bets``: lower bounds that may be asked for again and again while returns come in
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot.errors import InputError
from surefoot.proof.bounds.reset_luck import LuckyReturns, OrderedLuck
from surefoot.proof.bounds.samples import OrderedOutcomes
from surefoot.proof.bounds.seed_groups import OrderedGroups, SeedGroups
from surefoot.proof.bounds.settle import AlphaShare, Planner, Settlement, WorstMeans, settle
from surefoot.proof.bounds.step_scores import OrderedRewards, RewardRuns
from surefoot.proof.planning.alpha_shares import split
from surefoot.proof.planning.bettors import HORIZON, anytime_bettors, bettor_for_claim, doubling_edges, edges_for
from surefoot.proof.planning.ceiling_bets import CeilingPlanner, n_opening
from surefoot.proof.planning.hedged_bets import HedgedPlanner
from surefoot.proof.planning.mean_bets import MeanPlanner, needs_pilot
from surefoot.proof.planning.proposals import known_of, steps_to_ask

Floats = NDArray[np.float64]

_TYPICAL = 100_000  # where the number of returns is unknown, shares are chosen as if there were so many
CLAIM_SHARE = 0.8  # of alpha, for the proof of a claim; the rest is for the best bound in case it fails


class FixedNumberStrategy:
    """Bets for n returns, a number that was fixed in advance.

    ``n_inspected``  how many returns have decided that bets are made; on these none is
    """

    def __init__(
        self,
        scaled_budgets: ArrayLike,
        alpha: float,
        floor: float,
        ceiling: float | None,
        n: int,
        n_inspected: int = 0,
    ) -> None:
        self.scaled_budgets = _checked_scaled_budgets(scaled_budgets)
        self.alpha = alpha
        self.floor = floor
        self.ceiling = ceiling
        self.n = n
        self.n_opening = min(n, n_opening(n))
        self.n_inspected = max(edges_for(n)[0], n_inspected)
        self._begun: int | None = None
        self._needs_pilot = needs_pilot(self.scaled_budgets, n, floor, ceiling) or n_inspected >= n
        if not self._needs_pilot:
            self.n_opening = n_inspected
            self.n_inspected = n_inspected

    def opening_planner(self, past: OrderedOutcomes) -> Planner | None:
        """Return who bets before alpha is split, if the first returns were all the ceiling."""
        if self.ceiling is None or not self.floor < self.ceiling or self.n <= self.n_opening:
            return None
        if not self._needs_pilot:
            return None
        # one other return, and there is no reason to expect the ceiling to go on
        if not np.all(past.sample().values == self.ceiling):
            return None
        planner = CeilingPlanner(self.scaled_budgets, self.alpha, self.n, self.floor, self.ceiling)
        self._begun = planner.first
        return planner

    def split_alpha(self, past: OrderedOutcomes) -> list[AlphaShare]:
        """Return one bettor for each scaled budget that is worth one, by what the past lets one expect."""
        if not self._needs_pilot:
            assert self.ceiling is not None
            return [AlphaShare(0.0, self.alpha, MeanPlanner(past.size, self.n, self.floor, self.ceiling))]
        left = self.n - past.size
        shares = split(known_of(past), self.scaled_budgets, self.alpha, self.floor, self.ceiling, left)
        # where opening bets went on for some time, the edges that are left
        edges = [edge for edge in edges_for(self.n) if edge >= past.size]
        bettors = []
        for scaled, share in zip(self.scaled_budgets.tolist(), shares.tolist(), strict=True):
            if share > 0:
                bettors.append(AlphaShare(scaled, share, HedgedPlanner(edges, self._begun)))
        return bettors


class AnytimeStrategy:
    """Bets for a number of returns that nobody knows yet.

    ``claim``  (scaled budget, value): the value is to be proved there as soon as possible
    """

    def __init__(
        self,
        scaled_budgets: ArrayLike,
        alpha: float,
        floor: float,
        ceiling: float | None,
        claim: tuple[float, float] | None = None,
    ) -> None:
        self.scaled_budgets = _checked_scaled_budgets(scaled_budgets)
        self.alpha = alpha
        self.floor = floor
        self.ceiling = ceiling
        self.claim = claim
        self.n_opening = 0
        self.n_inspected = doubling_edges(HORIZON)[0]

    def opening_planner(self, past: OrderedOutcomes) -> Planner | None:  # noqa: ARG002 - the protocol's
        """Return None: alpha is split at once."""
        return None

    def split_alpha(self, past: OrderedOutcomes) -> list[AlphaShare]:
        """Return a family of bettors for each scaled budget that is worth one, and the bettor for the claim."""
        alpha = self.alpha
        bettors = []
        # the proof needs most of alpha: a sooner end is what the run is for
        if self.claim is not None:
            bettors.append(bettor_for_claim(*self.claim, self.alpha * CLAIM_SHARE))
            alpha = self.alpha * (1 - CLAIM_SHARE)
        shares = split(known_of(past), self.scaled_budgets, alpha, self.floor, self.ceiling, _TYPICAL)
        for scaled, share in zip(self.scaled_budgets.tolist(), shares.tolist(), strict=True):
            if share > 0:
                bettors += anytime_bettors(scaled, share)
        return sorted(bettors, key=lambda bettor: bettor.scaled_budget)


def worst_means(
    returns: ArrayLike,
    scaled_budgets: ArrayLike,
    alpha: float,
    floor: float,
    ceiling: float | None = None,
    *,
    anytime: bool = False,
    n_inspected: int = 0,
) -> WorstMeans:
    """Return lower bounds of the worst-case mean at all scaled budgets simultaneously, at confidence 1 - alpha.

    Args:
        returns: In the order in which they were run.
        scaled_budgets: Where bounds should be good; they hold everywhere.
        alpha: Error probability.
        floor: The lowest return the rules allow.
        ceiling: The highest, if there is one.
        anytime: Valid wherever the run stops, for whatever reason; otherwise their number was fixed in advance.
        n_inspected: How many returns, the first ones, have decided that bets are made; on these none is.

    Raises:
        InputError: If a return is outside of floor and ceiling, or a scaled budget below 0.
    """
    x = np.asarray(returns, dtype=np.float64)
    if anytime:
        return settle(
            x, AnytimeStrategy(scaled_budgets, alpha, floor, ceiling), alpha=alpha, floor=floor, ceiling=ceiling
        )
    strategy = FixedNumberStrategy(scaled_budgets, alpha, floor, ceiling, x.size, n_inspected)
    return settle(x, strategy, alpha=alpha, floor=floor, ceiling=ceiling)


@dataclass(frozen=True, eq=False)
class BoundedMeans:
    """Bounds of the mean under attack: ``lower``, and ``mirror``, lower bounds of the mean of minus the return."""

    lower: WorstMeans
    mirror: WorstMeans | None


def both_sides(
    returns: ArrayLike,
    scaled_budgets: ArrayLike,
    alpha: float,
    floor: float,
    ceiling: float | None,
    *,
    anytime: bool = False,
    n_inspected: int = 0,
) -> BoundedMeans:
    """Return lower bounds and, with a ceiling, upper ones; either side holds with confidence 1 - alpha."""
    x = np.asarray(returns, dtype=np.float64)
    lower = worst_means(x, scaled_budgets, alpha, floor, ceiling, anytime=anytime, n_inspected=n_inspected)
    if ceiling is None:
        return BoundedMeans(lower, None)
    mirror = worst_means(-x, scaled_budgets, alpha, -ceiling, -floor, anytime=anytime, n_inspected=n_inspected)
    return BoundedMeans(lower, mirror)


def bound_step_means(
    rewards: RewardRuns, scaled_budgets: ArrayLike, alpha: float, floor: float, ceiling: float
) -> BoundedMeans:
    """Return lower and upper bounds under a budget for every step (T4, T8), either side at confidence 1 - alpha.

    Args:
        rewards: Of episodes whose number was fixed in advance, in the order in which they were run.
        scaled_budgets: What the budgets of all steps add up to, in units of sigma.
        alpha: Error probability.
        floor: The lowest return the rules allow.
        ceiling: The highest.
    """

    def bound_side(side: RewardRuns, low: float, high: float) -> WorstMeans:
        # without a ceiling: its opening bets are on returns, and these are bets on rewards
        strategy = FixedNumberStrategy(scaled_budgets, alpha, low, None, side.size)
        # on those on which nothing is bet
        steps = steps_to_ask(side.rows(0, strategy.n_inspected), strategy.scaled_budgets, low)
        return settle(OrderedRewards(side.asked_after(steps)), strategy, alpha=alpha, floor=low, ceiling=high)

    return BoundedMeans(bound_side(rewards, floor, ceiling), bound_side(rewards.mirrored(), -ceiling, -floor))


def bound_group_means(
    returns: Floats, scaled_budgets: ArrayLike, alpha: float, floor: float, ceiling: float | None
) -> BoundedMeans:
    """Return lower and, with a ceiling, upper bounds from several draws for each seed, either side at 1 - alpha.

    Args:
        returns: A row for each seed, in the order in which they were run, with a column for each draw of the noise.
        scaled_budgets: Where bounds should be good; they hold everywhere.
        alpha: Error probability.
        floor: The lowest return the rules allow.
        ceiling: The highest, if there is one.
    """

    def bound_side(table: Floats, low: float, high: float | None) -> WorstMeans:
        # without a ceiling: its opening bets are on returns one by one
        strategy = FixedNumberStrategy(scaled_budgets, alpha, low, None, len(table))
        return settle(OrderedGroups(SeedGroups(table)), strategy, alpha=alpha, floor=low, ceiling=high)

    lower = bound_side(returns, floor, ceiling)
    if ceiling is None:
        return BoundedMeans(lower, None)
    return BoundedMeans(lower, bound_side(-returns, -ceiling, -floor))


def bound_lucky_means(
    episodes: LuckyReturns, scaled_budgets: ArrayLike, alpha: float, floor: float, ceiling: float | None
) -> BoundedMeans:
    """Return lower and, with a ceiling, upper bounds of returns whose luck is known (T9), either side at 1 - alpha.

    Args:
        episodes: In the order in which they were run.
        scaled_budgets: Where bounds should be good; they hold everywhere.
        alpha: Error probability.
        floor: The lowest return the rules allow.
        ceiling: The highest, if there is one.
    """

    def bound_side(side: LuckyReturns, low: float, high: float | None) -> WorstMeans:
        # without a ceiling: its opening bets know nothing of luck
        strategy = FixedNumberStrategy(scaled_budgets, alpha, low, None, side.size)
        return settle(OrderedLuck(side), strategy, alpha=alpha, floor=low, ceiling=high)

    lower = bound_side(episodes, floor, ceiling)
    if ceiling is None:
        return BoundedMeans(lower, None)
    mirrored = LuckyReturns(-episodes.returns, episodes.features)
    return BoundedMeans(lower, bound_side(mirrored, -ceiling, -floor))


def bets_as_json(means: BoundedMeans) -> dict[str, Any]:
    """Return what was bet, in units of the scaled budget; the upper side bet on minus the return."""
    made = {"lower": list(map(dict, means.lower.bets))}
    if means.mirror is not None:
        made["upper"] = list(map(dict, means.mirror.bets))
    return made


class Bets(Settlement):
    """Bets on the worst-case mean, whose bounds may be asked for again and again while returns come in."""

    def __init__(
        self,
        scaled_budgets: ArrayLike,
        alpha: float,
        floor: float,
        ceiling: float | None = None,
        *,
        claim: tuple[float, float] | None = None,
    ) -> None:
        """Fix what is bet for.

        Args:
            scaled_budgets: Where bounds should be good.
            alpha: Error probability.
            floor: The lowest return the rules allow.
            ceiling: The highest, if there is one.
            claim: A scaled budget and a value that is to be proved there as soon as possible.
        """
        strategy = AnytimeStrategy(scaled_budgets, alpha, floor, ceiling, claim)
        super().__init__(strategy, alpha, floor, ceiling)


def _checked_scaled_budgets(scaled_budgets: ArrayLike) -> Floats:
    asked = np.unique(np.asarray(scaled_budgets, dtype=np.float64))
    if asked.size == 0 or not np.all(asked >= 0):
        raise InputError("expected at least one scaled budget, and none below 0")
    return asked
