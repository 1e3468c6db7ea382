"""Re-runs the planners on earlier returns: the one module of the verification that may import them.

Plans (which method, which shares of alpha, which guesses and bet sizes) decide how tight bounds are. They are true
because the returns that are certified did not make the plans. So what is verified is not the planners' formulas but
what they were computed from: the planners themselves are run again, and for every plan they are given a copy of the
returns before and nothing else. What the plans prove is computed by ``recompute``, without the planners.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.proof.bounds.reset_luck import LuckyReturns, OrderedLuck
from surefoot.proof.bounds.samples import OrderedOutcomes, Samples
from surefoot.proof.bounds.seed_groups import OrderedGroups, SeedGroups
from surefoot.proof.bounds.settle import AlphaShare, Bet, CapitalAccount, Planner, Settlement, Strategy
from surefoot.proof.bounds.step_scores import OrderedRewards, RewardRuns
from surefoot.proof.planning import thetas
from surefoot.proof.planning.auto import choose_luck, select_method, selection_size
from surefoot.proof.planning.bettors import PLANNER_VERSION
from surefoot.proof.planning.proposals import steps_to_ask
from surefoot.proof.planning.strategies import AnytimeStrategy, FixedNumberStrategy
from surefoot.verification.recompute.bands import CannotRecomputeError, Claim, Side
from surefoot.verification.recompute.bets import PlannedBet, PlannedBettor, check_rows, check_sides, settled
from surefoot.verification.recompute.reset_luck import settle_luck_bets
from surefoot.verification.recompute.seed_groups import settle_group_bets, table_of
from surefoot.verification.recompute.sequential import Stop
from surefoot.verification.recompute.shared_budget import SharedClaim
from surefoot.verification.recompute.shares import SHARE, alike
from surefoot.verification.recompute.step_budget import StepRewards, settle_step_bets

Floats = NDArray[np.float64]
Ends = tuple[float, float | None]  # floor and ceiling
# Lower and, with a ceiling, upper bounds, and where the record differs from the plan.
Recomputed = tuple[Side, Side | None, list[str]]


def planner_version() -> int:
    """Return which version of the planners is run again here."""
    return PLANNER_VERSION


def other_planner(certificate: dict[str, Any]) -> str | None:
    """Return why the plans of a certificate cannot be repeated here, or None."""
    here = PLANNER_VERSION
    if certificate.get("kind") == "shared":
        here = thetas.THETA_PLANNER_VERSION
    version = certificate.get("planner")
    if not is_planned(certificate) or version == here:
        return None
    return f"planned by planner version {version!r}, this version of surefoot re-runs {here}"


def is_planned(certificate: dict[str, Any]) -> bool:
    """Return whether the bounds of a certificate rest on plans."""
    method = certificate.get("method")
    if certificate.get("kind") == "shared":
        return method == "betting"
    return method in ("auto", "betting", "sequential", "nested", "luck", "per-step")


def plan_shared(pilot: Floats, rounds: int, width: float | None, claim: SharedClaim) -> tuple[Floats, Floats]:
    """Return the thetas and bet sizes of a shared budget, planned on the pilot alone."""
    return thetas.choose_thetas(pilot, rounds, width, claim.alpha, claim.costs)


def check_choice(
    returns: Floats, claim: Claim, choice: Any, *, declared: bool = False, features: Floats | None = None
) -> list[str]:
    """Return where the record differs from what the planner selects, given the pilot episodes alone.

    ``declared`` says whether episodes are won or lost by the setup, ``features`` what was recorded of each at reset.
    """
    scaled_budgets = np.array([budget / claim.sigma for budget in claim.budgets])
    first = returns[: selection_size(returns.size)].copy()
    where = (scaled_budgets, claim.alpha, claim.floor, claim.ceiling)
    selected = select_method(first, returns.size, *where, declared=declared)
    if features is not None and scaled_budgets.any():
        pilot = LuckyReturns(returns[: selected.pilot].copy(), features[: selected.pilot].copy())
        selected = choose_luck(selected, pilot, returns.size)
    again = selected.to_json()
    if choice["pilot"] != again["pilot"]:
        return [f"the method is selected on {again['pilot']} episodes, not on {choice['pilot']!r}"]
    if choice["method"] != again["method"]:
        return [f"the first {again['pilot']} episodes select the method {again['method']!r}, not {choice['method']!r}"]
    if "thresholds" not in again:
        return []
    if not np.array_equal(np.array(choice["thresholds"], dtype=np.float64), again["thresholds"]):
        return ["the thresholds are not those of the pilot episodes"]
    recorded = np.array([choice["reach"], choice["stay"]], dtype=np.float64)
    if not np.allclose(recorded, [again["reach"], again["stay"]], rtol=SHARE, atol=1e-12):
        return ["alpha is not split among the thresholds as the pilot episodes determine"]
    return []


def recompute_bets(
    returns: Floats, claim: Claim, bets: Any, stop: Stop | None = None, *, n_inspected: int = 0
) -> Recomputed:
    """Plan all bets on returns again and compute what they prove.

    ``bets`` is what the certificate says was bet, ``stop`` what a sequential run was for, and ``n_inspected`` how many
    returns have selected the method.
    """
    required = None if stop is None else stop.require
    budgets = claim.budgets if stop is None else (stop.budget,)
    scaled_budgets = [budget / claim.sigma for budget in budgets]

    def recompute_side(sign: float, ends: Ends, rows: list[Any]) -> tuple[Side, list[str]]:
        outcomes = sign * returns
        strategy: AnytimeStrategy | FixedNumberStrategy
        if claim.method == "sequential":
            # What is required is a lower bound.
            to_prove = None if required is None or sign < 0 else (scaled_budgets[0], required)
            strategy = AnytimeStrategy(scaled_budgets, claim.alpha, *ends, to_prove)
        else:
            strategy = FixedNumberStrategy(scaled_budgets, claim.alpha, *ends, outcomes.size, n_inspected)
        bettors = _plan_bets(strategy, OrderedOutcomes(outcomes), outcomes, rows, claim.alpha, ends)
        return settled(outcomes, claim, ends, bettors, rows)

    return _both_sides(claim, bets, recompute_side)


def recompute_group_bets(returns: Floats, n_draws: Any, claim: Claim, bets: Any) -> Recomputed:
    """Plan all bets on seeds, whose draws of the noise are in a row, again and compute what they prove."""

    def recompute_side(sign: float, ends: Ends, rows: list[Any]) -> tuple[Side, list[str]]:
        table = sign * table_of(returns, n_draws)
        strategy = FixedNumberStrategy(claim.scaled_budgets, claim.alpha, ends[0], None, len(table))
        ordered = OrderedGroups(SeedGroups(table))
        bettors = _plan_bets(strategy, ordered, ordered, rows, claim.alpha, ends)
        return settle_group_bets(table, claim, ends, bettors, rows)

    return _both_sides(claim, bets, recompute_side)


def recompute_luck_bets(returns: Floats, features: Floats, claim: Claim, bets: Any) -> Recomputed:
    """Plan all bets on returns whose luck was recorded at reset again and compute what they prove."""

    def recompute_side(sign: float, ends: Ends, rows: list[Any]) -> tuple[Side, list[str]]:
        outcomes = sign * returns
        strategy = FixedNumberStrategy(claim.scaled_budgets, claim.alpha, ends[0], None, outcomes.size)
        ordered = OrderedLuck(LuckyReturns(outcomes, features))
        bettors = _plan_bets(strategy, ordered, ordered, rows, claim.alpha, ends)
        return settle_luck_bets(outcomes, features, claim, ends, bettors, rows)

    return _both_sides(claim, bets, recompute_side)


def recompute_step_bets(steps: StepRewards, claim: Claim, bets: Any) -> tuple[Side, Side, list[str]]:
    """Plan all bets on the rewards of each step again and compute what they prove, from below and from above.

    The claim is in units of the budgets of all steps together.
    """
    check_sides(bets, claim)
    assert claim.ceiling is not None
    sides = {
        "lower": (steps, (claim.floor, claim.ceiling)),
        "upper": (steps.mirrored(), (-claim.ceiling, -claim.floor)),
    }
    found = []
    wrong = []
    for side, (rewards, ends) in sides.items():
        runs = RewardRuns.of(
            rewards.values, rewards.repeats, rewards.lengths, rewards.n_steps, rewards.low, rewards.high
        )
        strategy = FixedNumberStrategy(claim.scaled_budgets, claim.alpha, ends[0], None, runs.size)
        pilot = _Copies(OrderedRewards(runs)).first(strategy.n_inspected)
        assert isinstance(pilot, OrderedRewards)
        ordered = OrderedRewards(runs.asked_after(steps_to_ask(pilot.rewards, strategy.scaled_budgets, ends[0])))
        bettors = _plan_bets(strategy, ordered, ordered, bets[side], claim.alpha, ends)
        bounds, unplanned = settle_step_bets(rewards, claim, ends, bettors, bets[side])
        found.append(bounds)
        wrong += [f"{side}: {text}" for text in unplanned]
    lower, mirror = found
    return lower, Side(-mirror.best, -mirror.least), wrong


def recompute_means(
    outcomes: Floats, ends: tuple[float, float], alpha: float, scaled_budgets: Sequence[float], *, anytime: bool
) -> tuple[Floats, Floats]:
    """Plan all bets on the worst-case mean of outcomes again, without a record of them, and settle these.

    With ``anytime`` the bounds must hold wherever the run stopped.

    Returns:
        At each budget the best bound that may be claimed, and the least that the method would have claimed.
    """
    method = "sequential" if anytime else "betting"
    claim = Claim(method, alpha, 1.0, ends[0], ends[1], tuple(scaled_budgets))
    strategy: AnytimeStrategy | FixedNumberStrategy
    if anytime:
        strategy = AnytimeStrategy(scaled_budgets, alpha, *ends)
    else:
        strategy = FixedNumberStrategy(scaled_budgets, alpha, *ends, outcomes.size)
    bettors = _plan_bets(strategy, OrderedOutcomes(outcomes), outcomes, [], alpha, ends)
    rows = []
    for bettor in bettors:
        rows += bettor.rows()
    side, wrong = settled(outcomes, claim, ends, bettors, rows)
    if wrong:
        raise CannotRecomputeError("; ".join(wrong))
    return side.best, side.least


def _both_sides(
    claim: Claim, bets: Any, recompute_side: Callable[[float, Ends, list[Any]], tuple[Side, list[str]]]
) -> Recomputed:
    """Recompute the lower bounds and, with a ceiling, the upper ones: those are lower ones of minus the returns."""
    check_sides(bets, claim)
    lower, wrong = recompute_side(1.0, (claim.floor, claim.ceiling), bets["lower"])
    if claim.ceiling is None:
        return lower, None, wrong
    mirror, also = recompute_side(-1.0, (-claim.ceiling, -claim.floor), bets["upper"])
    return lower, Side(-mirror.best, -mirror.least), wrong + [f"upper: {text}" for text in also]


def _plan_bets(
    strategy: Strategy,
    ordered: OrderedOutcomes,
    outcomes: Floats | OrderedOutcomes,
    rows: list[Any],
    alpha: float,
    ends: Ends,
) -> list[PlannedBettor]:
    """Ask all planners of one side for their bets again; ``outcomes`` are the ordered ones, as they are settled."""
    check_rows(rows)
    rerun = _Rerun(strategy, ordered, rows, alpha)
    Settlement(rerun, alpha, *ends).after(outcomes)
    return rerun.bettors


class _Rerun:
    """A strategy whose planners are handed copies of earlier returns, and whose bets are kept, in ``bettors``."""

    def __init__(self, strategy: Strategy, outcomes: OrderedOutcomes, rows: list[Any], alpha: float) -> None:
        self.strategy = strategy
        self.outcomes = outcomes
        self.rows = rows
        self.alpha = alpha
        self.n_opening = strategy.n_opening
        self.n_inspected = strategy.n_inspected
        self.bettors: list[PlannedBettor] = []
        self._opening: _WatchedPlanner | None = None
        self._samples: Samples = {}

    # How many returns a plan may be made of is counted here: what comes as ``past`` is not relied upon.

    def opening_planner(self, _: OrderedOutcomes) -> Planner | None:
        planner = self.strategy.opening_planner(_Copies(self.outcomes).first(self.n_opening))
        if planner is None:
            return None
        self._opening = self._watched(AlphaShare(0.0, self.alpha, planner), unsplit=True)
        return self._opening

    def split_alpha(self, _: OrderedOutcomes) -> list[AlphaShare]:
        split_at = self.n_inspected
        if self._opening is not None:
            split_at = self._opening.n_shown
        shares = self.strategy.split_alpha(_Copies(self.outcomes).first(split_at))
        # shares are searched for, so that another machine may have found some that differ by rounding
        as_recorded = [self._as_recorded(share) for share in shares]
        if sum(share.alpha for share in as_recorded) <= self.alpha * (1 + 1e-12):
            shares = as_recorded
        return [replace(share, planner=self._watched(share)) for share in shares]

    def _as_recorded(self, share: AlphaShare) -> AlphaShare:
        for row in self.rows:
            here = row["radius"] == share.scaled_budget and "unsplit" not in row
            if here and alike(row["alpha"], share.alpha, SHARE):
                return replace(share, alpha=row["alpha"])
        return share

    def _watched(self, share: AlphaShare, *, unsplit: bool = False) -> _WatchedPlanner:
        bettor = PlannedBettor(share.scaled_budget, share.alpha, [], unsplit=unsplit)
        self.bettors.append(bettor)
        return _WatchedPlanner(share.planner, _Copies(self.outcomes, self._samples), bettor.bets)


class _WatchedPlanner:
    """A planner that is handed a copy of the returns before each bet, and whose bets are kept."""

    def __init__(self, planner: Planner, copies: _Copies, bets: list[PlannedBet]) -> None:
        self.planner = planner
        self.first = planner.first
        self.copies = copies
        self.bets = bets
        self.n_shown = 0

    def next_bet(self, _: OrderedOutcomes, account: CapitalAccount) -> Bet | None:
        # All bets so far are on the returns before these.
        self.n_shown = account.n_settled
        bet = self.planner.next_bet(self.copies.first(self.n_shown), account)
        if bet is not None and bet.is_placed:
            size = self.copies.outcomes.size
            last = min(bet.last, size)
            block = (bet.block[0], min(bet.block[1], size))
            self.bets.append(PlannedBet(**{**vars(bet), "last": last, "block": block}))
        return bet


class _Copies:
    """Copies of outcomes from the first one on: behind what has been shown a planner finds nothing."""

    def __init__(self, outcomes: OrderedOutcomes, samples: Samples | None = None) -> None:
        self.outcomes = outcomes
        self.samples = samples
        self._arrays = [_Copied(outcomes.outcomes)]
        if isinstance(outcomes, OrderedGroups):
            self._arrays.append(_Copied(outcomes.groups.returns))
        if isinstance(outcomes, OrderedLuck):
            self._arrays.append(_Copied(outcomes.episodes.features))
        if isinstance(outcomes, OrderedRewards):
            rewards = outcomes.rewards
            by_run = (rewards.values, rewards.begins, rewards.ends)
            self._arrays += [_Copied(array) for array in (*by_run, rewards.first, rewards.sure)]

    def first(self, n: int) -> OrderedOutcomes:
        """Return the first outcomes."""
        returns, *others = self._arrays
        if isinstance(self.outcomes, OrderedGroups):
            return OrderedGroups(SeedGroups(others[0].first(n)), returns.first(n), self.samples)
        if isinstance(self.outcomes, OrderedLuck):
            return OrderedLuck(LuckyReturns(returns.first(n), others[0].first(n)), self.samples)
        if not isinstance(self.outcomes, OrderedRewards):
            return OrderedOutcomes(returns.first(n), self.samples)
        rewards = self.outcomes.rewards
        n_runs = int(rewards.first[n])
        values, begins, ends, first, sure = others
        runs = RewardRuns(
            values.first(n_runs),
            begins.first(n_runs),
            ends.first(n_runs),
            first.first(n + 1),
            rewards.n_steps,
            rewards.low,
            rewards.high,
            rewards.asked,
            sure.first(n),
        )
        return OrderedRewards(runs, returns.first(n), self.samples)


class _Copied:
    """An array that is copied as far as it has been shown."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array
        nothing = np.nan if array.dtype.kind == "f" else -1
        self._copy = np.full(array.shape, nothing, dtype=array.dtype)
        self._n_copied = 0

    def first(self, n: int) -> NDArray[Any]:
        """Return the first of its entries."""
        if n > self._n_copied:
            self._copy[self._n_copied : n] = self.array[self._n_copied : n]
            self._n_copied = n
        return self._copy[:n]
