"""Bounds by betting, recomputed independently from the raw returns; nothing of surefoot is imported.

Against the claim "the worst-case mean is at most m" a bettor has the capital W(m), the product of 1 + stake (score(x)
- m) over returns x. With stakes and scores fixed before x is seen, scores of a mean of at most the worst-case mean, and
no factor below 0, W(m) reaches 1/alpha with probability alpha at most if the claim is true (Ville). So the m at which
it does are lower bounds. Scores are tangents of g(p) = Phi(Phi^-1(p) - radius), which is convex: for any guess q(y) of
P(X >= y), the sum over steps dy of g(q) - q g'(q) + g'(q) 1{x >= y} has a mean of at most that of g(P(X >= y)).

Claims may be replaced by others: m is then in the range of one old claim, the first that is not below it, and in that
of one new claim, which starts with the least of all old claims whose range it meets. Bets on the return itself, while
it was the ceiling, are made before alpha is split (``unsplit``): they serve for every radius, because E X = floor +
range p gives a worst-case mean of at least floor + range g(p). A claim about that starts with the least that is owned
against any claim about E X up to the one it implies; then shares of the one capital go to the radii.

Bettors at one radius that bet the same against all claims prove together: the sum of their capitals, each times its
share of alpha, starts at what the shares sum to, and reaches 1 with that probability at most.

A choice made on the returns themselves would void that. So all that is chosen (guesses, stakes, shares of alpha) comes
as plain numbers from ``plan_again``, which gave the planner the earlier returns alone; and what the certificate has
recorded of its bets must be those. Everything that is true of any guesses and any stakes is computed here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from surefoot.verification.recompute.bands import CannotRecomputeError, Claim, Side
from surefoot.verification.recompute.shares import alike, carried, unshared

Floats = NDArray[np.float64]
ROW = {"radius", "alpha", "first", "count", "cutoff"}
# Relative: recorded numbers that differ less do so by rounding.
EQUAL = 1e-9
# Claims: the method's sums are rounded down, so that it may just miss what is proved here.
FEWER = 2


@dataclass(frozen=True, kw_only=True)
class PlannedBet:
    """The bet on the returns from index ``first`` up to ``last``."""

    first: int
    last: int
    block: tuple[int, int]  # first and last index for which the score is used, of one bet or several
    cutoff: float | None  # how the score was made of the past, as recorded
    # Points above the floor, ascending, and guesses of P(X >= point); None if the return is its own score.
    guesses: tuple[Floats, ...] | None
    stake: float = 0.0  # the bet size against all claims
    hedge: tuple[Floats, Floats] | None = None  # instead of it claims, and the bet size against each


@dataclass(frozen=True)
class PlannedBettor:
    """A bettor at one scaled budget (radius) with one share of alpha; ``unsplit`` before there are shares."""

    radius: float
    alpha: float
    bets: list[PlannedBet]
    unsplit: bool = False

    def rows(self) -> list[dict[str, Any]]:
        """Return what a certificate must have recorded: one row for all bets of a block."""
        by_block: dict[int, dict[str, Any]] = {}
        for bet in self.bets:
            begin, end = bet.block
            row = {
                "radius": self.radius,
                "alpha": self.alpha,
                "first": begin,
                "count": end - begin,
                "cutoff": bet.cutoff,
            }
            if self.unsplit:
                row["unsplit"] = True
            if bet.hedge is None:
                row["stake"] = bet.stake
            else:
                row["hedged"] = True
            by_block[begin] = row
        return list(by_block.values())


def check_sides(bets: Any, claim: Claim) -> None:
    """Reject bets that are not recorded for the lower side and, with a ceiling, for the upper one."""
    sides = {"lower"}
    if claim.ceiling is not None:
        sides.add("upper")
    if not isinstance(bets, dict) or set(bets) != sides or not all(isinstance(rows, list) for rows in bets.values()):
        raise CannotRecomputeError(f"bets must be recorded for {' and '.join(sorted(sides))}")


def check_rows(rows: list[Any]) -> None:
    """Reject rows that do not describe bets."""
    for row in rows:
        if not _is_bet(row):
            raise CannotRecomputeError(
                "a bet must have radius, alpha, block, cutoff and stake, or say that it is hedged"
            )


def _is_bet(row: Any) -> bool:
    if not isinstance(row, dict):
        return False
    kind = "hedged" if row.get("hedged") is True else "stake"
    fields = ROW | {kind}
    if row.get("unsplit") is True:
        fields.add("unsplit")
    return set(row) == fields and all(isinstance(row[key], int | float) for key in ("radius", "alpha", kind))


def settled(
    returns: Floats,
    claim: Claim,
    ends: tuple[float, float | None],
    bettors: Sequence[PlannedBettor],
    rows: list[Any],
    open_account: Callable[[PlannedBettor], Account] | None = None,
) -> tuple[Side, list[str]]:
    """Return what planned bets have proved about one side of a claim, and where the recorded bets are others.

    Args:
        returns: All returns in order; for upper bounds, minus the returns.
        ends: Floor and ceiling of these returns.
        bettors: Who was to bet what; first of all, if alpha was not split at once, who bet before.
        open_account: Opens the account of a bettor, if it is no account of bets on returns.
    """
    floor, ceiling = ends
    asked = claim.scaled_budgets
    wrong = _find_unplanned(bettors, rows) + _check_shares(bettors, rows, claim.alpha)
    best = np.full(len(asked), floor)
    least = np.full(len(asked), floor)
    before_split: Account | None = None
    accounts: dict[float, list[Account]] = {}
    for bettor in bettors:
        account = Account(returns, floor, bettor) if open_account is None else open_account(bettor)
        if before_split is not None:
            account.inherit(before_split, ceiling)
        for bet in bettor.bets:
            account.settle(bet)
        wrong += account.wrong
        if bettor.unsplit:
            before_split = account
            # What it owns is shared among those that bet after the split; where there are none, it proves by itself.
            if len(bettors) > 1:
                continue
        accounts.setdefault(bettor.radius, []).append(account)
    for radius, group in accounts.items():
        for side, bound in zip((best, least), bounds_of(group), strict=True):
            reached = [carried(max(bound, floor), radius, wanted, floor, ceiling) for wanted in asked]
            np.maximum(side, reached, out=side)
    return Side(best, least), wrong


def _check_shares(bettors: Sequence[PlannedBettor], rows: list[Any], alpha: float) -> list[str]:
    """Return why the planned or the recorded shares are not shares of alpha, before it was split and after."""
    wrong = []
    for unsplit in (True, False):
        planned = [bettor.alpha for bettor in bettors if bettor.unsplit == unsplit]
        recorded = {(row["radius"], row["alpha"]) for row in rows if ("unsplit" in row) == unsplit}
        wrong += unshared(max(planned, [share for _, share in recorded], key=sum), alpha)
    return wrong


def _find_unplanned(bettors: Sequence[PlannedBettor], rows: list[Any]) -> list[str]:
    """Return the first place at which the record differs from the plan."""
    planned: list[dict[str, Any]] = []
    for bettor in bettors:
        planned += bettor.rows()
    for plan, row in itertools.zip_longest(planned, rows):
        if plan is None:
            n_more = len(rows) - len(planned)
            return [f"{n_more} recorded bets are not planned, the first from return {row['first']!r} on"]
        if row is None or not _is_as_planned(row, plan):
            return [_describe_difference(plan, row)]
    return []


def _is_as_planned(row: dict[str, Any], plan: dict[str, Any]) -> bool:
    for key in ("radius", "first", "count", "hedged", "unsplit"):
        if row.get(key) != plan.get(key):
            return False
    same_bet = alike(row.get("cutoff"), plan.get("cutoff"), EQUAL) and alike(row.get("stake"), plan.get("stake"), EQUAL)
    return same_bet and alike(row["alpha"], plan["alpha"], 1e-12)


def _describe_difference(plan: dict[str, Any], row: dict[str, Any] | None) -> str:
    where = f"scaled budget {plan['radius']:g}"
    if row is not None and row["radius"] == plan["radius"] and not alike(row["alpha"], plan["alpha"], 1e-12):
        return f"{where}: the planned alpha is {plan['alpha']:.9g}, not {row['alpha']!r}"
    stake = "a bet size for each claim"
    if "stake" in plan:
        stake = f"bet size {plan['stake']:.9g}"
    end = plan["first"] + plan["count"]
    return f"{where}: on the returns {plan['first']} to {end} the plan is to bet with cutoff {plan['cutoff']}, {stake}"


@dataclass(frozen=True)
class Round:
    """Scores with one bet size, ascending, how often each came, and the lowest that there can be."""

    scores: Floats
    counts: NDArray[np.int64]
    stake: float
    lowest: float

    def log_wealth(self, claims: Floats) -> Floats:
        """Return what the bet adds to the logarithm of the capital against each claim."""
        logs = np.log1p(self.stake * (self.scores - claims[:, None])) @ self.counts
        return np.asarray(logs, dtype=np.float64)

    @property
    def boldest(self) -> float:
        """The largest claim against which no return could make a factor negative."""
        if self.stake <= 0:
            return math.inf
        return self.lowest + (1 - 1e-9) / self.stake


@dataclass(frozen=True, eq=False)
class Curve:
    """The score of a return: ``lowest`` at the floor, the first of ``knots``, and ``heights`` above it at each."""

    guesses: tuple[Floats, ...] | None
    knots: Floats
    heights: Floats
    lowest: float

    @classmethod
    def of(cls, guesses: tuple[Floats, ...], radius: float, floor: float) -> Curve:
        """Return the score that guesses of P(X >= point) make."""
        points, guess = guesses
        knots = np.concatenate([[floor], points])
        steps = np.diff(knots)
        z = ndtri(guess)
        # g'(q) = phi(z - radius) / phi(z)
        slope = np.exp(radius * z - radius**2 / 2)
        lowest = floor + float(steps @ (ndtr(z - radius) - guess * slope))
        # Rounded conservatively: a lower score proves less.
        lowest -= 1e-12 * (float(steps @ (slope + 1)) + abs(floor))
        return cls(guesses, knots, np.concatenate([[0.0], np.cumsum(steps * slope)]), lowest)

    def __call__(self, returns: Floats) -> Floats:
        """Score returns."""
        return np.asarray(self.lowest + np.interp(returns, self.knots, self.heights), dtype=np.float64)


class Account:
    """The capital of one bettor against each claim; ``wrong`` lists invalid bets."""

    def __init__(self, returns: Floats, floor: float, bettor: PlannedBettor) -> None:
        self.returns = returns
        self.floor = floor
        self.radius = bettor.radius
        self.share = bettor.alpha
        # Ville: the capital reaches 1 / alpha with probability alpha at most.
        self.aim = math.inf
        if bettor.alpha > 0:
            self.aim = math.log(1 / bettor.alpha)
        self.rounds: list[Round] = []
        # The logarithms of the capital against each claim, now and at most so far, and against all above the last.
        self.claims = np.empty(0)
        self.owned = np.empty(0)
        self.most = np.empty(0)
        self.above = 0.0
        self.settled = 0  # bets on returns up to here are settled
        self.curve = Curve(None, np.zeros(1), np.zeros(1), 0.0)
        self.wrong: list[str] = []

    def settle(self, bet: PlannedBet) -> None:
        """Add one bet, on returns that no earlier bet was on."""
        if not self._is_fair(bet):
            self.wrong.append(
                f"scaled budget {self.radius:g}: the bet on the returns {bet.first} to {bet.last} is not fair"
            )
            return
        values, counts = np.unique(self.returns[bet.first : bet.last], return_counts=True)
        scores, lowest = self._score_returns(bet, values)
        if bet.hedge is None:
            self.rounds.append(Round(scores, counts, bet.stake, lowest))
        else:
            self._settle_each(scores, counts, lowest, *bet.hedge)
        self.settled = bet.last

    def _is_fair(self, bet: PlannedBet) -> bool:
        """Return whether a bet is on returns of its own, with valid bet sizes and guesses."""
        stakes = np.array([bet.stake])
        if bet.hedge is not None:
            _, stakes = bet.hedge
        # Each return is bet on once, and never with a bet size below 0.
        is_own = self.settled <= bet.first < bet.last <= self.returns.size
        return is_own and bool(np.all(stakes >= 0)) and self._has_valid_guesses(bet)

    def _has_valid_guesses(self, bet: PlannedBet) -> bool:
        if bet.guesses is None:
            # The return is its own score: only without an attack is its mean the worst-case mean.
            return self.radius == 0
        if bet.guesses is self.curve.guesses:
            # As at the bet before, where they were found valid.
            return True
        points, guess = bet.guesses
        is_ascending = bool(np.all(np.diff(points, prepend=self.floor) > 0))
        return is_ascending and bool(np.all((guess >= 0) & (guess < 1)))

    def _score_returns(self, bet: PlannedBet, returns: Floats) -> tuple[Floats, float]:
        """Return the scores of returns, and the lowest score that any return has."""
        if bet.guesses is None:
            return returns, self.floor
        # All bets of a block have the same.
        if bet.guesses is not self.curve.guesses:
            self.curve = Curve.of(bet.guesses, self.radius, self.floor)
        return self.curve(returns), self.curve.lowest

    def _settle_each(
        self, scores: Floats, counts: NDArray[np.int64], lowest: float, claims: Floats, stakes: Floats
    ) -> None:
        if np.any(stakes * (claims - lowest) > 1) or np.any(np.diff(claims) <= 0) or self.rounds:
            self.wrong.append(
                f"scaled budget {self.radius:g}: a bet could lose more than the capital, or claims are in no order"
            )
            return
        if not np.array_equal(claims, self.claims):
            self._replace(claims)
        # No score is lower, nor is their mean.
        self.most[claims <= lowest] = math.inf
        at = np.flatnonzero(stakes)
        if at.size > 0:
            self.owned[at] += np.log1p(stakes[at, None] * (scores - claims[at, None])) @ counts
            self.most[at] = np.maximum(self.most[at], self.owned[at])

    def _replace(self, claims: Floats) -> None:
        """Go on with other claims; each starts with the least of those whose range its own range meets."""
        old = np.concatenate([[-math.inf], self.claims, [math.inf]])
        new = np.concatenate([[-math.inf], claims, [math.inf]])
        # Whether the range (before, up to) of a new claim, in rows, overlaps that of an old one.
        meets = (old[:-1] < new[1:, None]) & (old[1:] > new[:-1, None])
        owned = np.where(meets, np.append(self.owned, self.above), math.inf).min(axis=1)
        most = np.where(meets, np.append(self.most, -math.inf), math.inf).min(axis=1)
        self.claims = claims
        self.owned = owned[:-1]
        self.above = float(owned[-1])
        self.most = most[:-1]

    def inherit(self, before: Account, ceiling: float | None) -> None:
        """Begin with what bets on the return itself have earned before alpha was split."""
        claims = [carried(float(claim), 0.0, self.radius, self.floor, ceiling) for claim in before.claims]
        # Of claims that rounding has made equal, the last.
        keep = np.diff(claims, append=math.inf) > 0
        self.claims = np.array(claims)[keep]
        self.settled = before.settled
        self.owned = np.minimum.accumulate(before.owned)[keep]
        # The worst case may be this good whatever the mean is.
        self.above = min([before.above, *before.owned])
        refuted = np.cumprod(before.most >= before.aim).astype(bool)
        self.most = np.where(refuted, math.inf, -math.inf)[keep]

    def bounds(self) -> tuple[float, float]:
        """Return the best bound that may be claimed and the least that the method would have claimed."""
        # A claim counts if all below it are refuted too.
        n_refuted = int(np.cumprod(self.most >= self.aim).sum())
        refuted = np.append(-math.inf, self.claims)
        return float(refuted[n_refuted]), float(refuted[max(0, n_refuted - FEWER)])


def bounds_of(accounts: Sequence[Account]) -> tuple[float, float]:
    """Return the best bound that bettors at one radius prove, and the least that the method would have claimed.

    Those without claims of their own bet the same against all: their capitals, each times its share of alpha, are added
    up. The sum has a mean of at most alpha against what is true, and refutes a claim when it reaches 1.
    """
    together = [(account.rounds, account.share) for account in accounts if account.claims.size == 0]
    most = least = largest_refuted(together)
    for account in accounts:
        if account.claims.size > 0:
            bound, claimed = account.bounds()
            most = max(most, bound)
            least = max(least, claimed)
    return most, least


def largest_refuted(parts: Sequence[tuple[list[Round], float]]) -> float:
    """Return the largest claim against which the capitals of parts, times their shares, sum to 1, by halving.

    Args:
        parts: The bets of each bettor, and its share of alpha.
    """
    # Against a claim that a bet size is too bold for its bettor owns nothing; who has not bet yet still owns 1.
    limits = [min((one.boldest for one in rounds), default=math.inf) for rounds, _ in parts]

    def is_refuted(claim: float) -> bool:
        logs = []
        for (rounds, share), limit in zip(parts, limits, strict=True):
            if share > 0 and claim <= limit:
                logs.append(math.log(share) + sum(float(one.log_wealth(np.array([claim]))[0]) for one in rounds))
        return bool(logs) and float(np.logaddexp.reduce(logs)) >= 0

    high = max((limit for limit in limits if math.isfinite(limit)), default=math.inf)
    if not math.isfinite(high):
        # Nothing was bet.
        return -math.inf
    if is_refuted(high):
        return high
    step = max(abs(high), 1.0) * 1e-9
    while not is_refuted(high - step):
        step *= 2
        if not step < 1e12 * max(1.0, abs(high)):
            return -math.inf
    low = high - step
    for _ in range(100):
        middle = (low + high) / 2
        if is_refuted(middle):
            low = middle
        else:
            high = middle
    return low
