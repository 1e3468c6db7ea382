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

A choice made on the returns themselves would void that. So all that is chosen (guesses, stakes, shares of alpha) comes
as plain numbers from ``plan_again``, which gave the planner the earlier returns alone; and what the certificate has
recorded of its bets must be those. Everything that is true of any guesses and any stakes is computed here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from surefoot.verification.recompute.bands import CannotRecomputeError, Claim, Side
from surefoot.verification.recompute.shares import alike, carried, unshared

Floats = NDArray[np.float64]
ROW = {"radius", "alpha", "first", "count", "cutoff"}
EQUAL = 1e-9  # relative: recorded numbers that differ less do so by rounding
FEWER = 2  # claims: the method's sums are rounded down, so that it may just miss what is proved here


@dataclass(frozen=True, kw_only=True)
class PlannedBet:
    """The bet on the returns from index ``first`` up to ``last``.

    ``block``    first and last index for which the score is used, of one bet or several
    ``cutoff``   how the score was made of the past, as recorded
    ``guesses``  points above the floor, ascending, and guesses of P(X >= point); None if the return is its own score
    ``stake``    the bet size against all claims
    ``hedge``    instead of it claims, and the bet size against each
    """

    first: int
    last: int
    block: tuple[int, int]
    cutoff: float | None
    guesses: tuple[Floats, Floats] | None
    stake: float = 0.0
    hedge: tuple[Floats, Floats] | None = None


@dataclass(frozen=True)
class PlannedBettor:
    """A bettor at one scaled budget (radius) with one share of alpha; ``unsplit`` before there are shares."""

    radius: float
    alpha: float
    bets: list[PlannedBet]
    unsplit: bool = False

    def rows(self) -> list[dict[str, Any]]:
        """Return what a certificate must have recorded."""
        made = {}
        for bet in self.bets:
            begin, end = bet.block
            row = {"radius": self.radius, "alpha": self.alpha, "first": begin, "count": end - begin}
            row |= {"unsplit": True} if self.unsplit else {}
            kind = {"stake": bet.stake} if bet.hedge is None else {"hedged": True}
            made[begin] = {**row, "cutoff": bet.cutoff, **kind}
        return list(made.values())


def check_sides(bets: Any, claim: Claim) -> None:
    """Reject bets that are not recorded for the lower side and, with a ceiling, for the upper one."""
    sides = {"lower"} if claim.ceiling is None else {"lower", "upper"}
    if not isinstance(bets, dict) or set(bets) != sides or not all(isinstance(rows, list) for rows in bets.values()):
        raise CannotRecomputeError(f"bets must be recorded for {' and '.join(sorted(sides))}")


def check_rows(rows: list[Any]) -> None:
    """Reject rows that do not describe bets."""
    for row in rows:
        kind = {"hedged"} if isinstance(row, dict) and row.get("hedged") is True else {"stake"}
        kind |= {"unsplit"} if isinstance(row, dict) and row.get("unsplit") is True else set()
        numbers = [row.get(key) for key in ("radius", "alpha", *kind)] if isinstance(row, dict) else [None]
        if not all(isinstance(number, int | float) for number in numbers) or set(row) != ROW | kind:
            raise CannotRecomputeError(
                "a bet must have radius, alpha, block, cutoff and stake, or say that it is hedged"
            )


def settled(
    returns: Floats, claim: Claim, ends: tuple[float, float | None], bettors: Sequence[PlannedBettor], rows: list[Any]
) -> tuple[Side, list[str]]:
    """Return what planned bets have proved about one side of a claim, and where the recorded bets are others.

    Args:
        returns: All returns in order; for upper bounds, minus the returns.
        claim: What the certificate says its bounds were computed from.
        ends: Floor and ceiling of these returns.
        bettors: Who was to bet what; first of all, if alpha was not split at once, who bet before.
        rows: The bets that the certificate has recorded.
    """
    asked, (floor, ceiling) = [budget / claim.sigma for budget in claim.budgets], ends
    sides = np.full((2, len(asked)), floor)
    wrong = _unplanned(bettors, rows)
    for before in (True, False):
        recorded = {(row["radius"], row["alpha"]) for row in rows if ("unsplit" in row) == before}
        planned = [one.alpha for one in bettors if one.unsplit == before]
        wrong += unshared(max(planned, [share for _, share in recorded], key=sum), claim.alpha)
    first: Account | None = None
    for one in bettors:
        account = Account(returns, floor, one)
        if first is not None:
            account.inherit(first, ceiling)
        for bet in one.bets:
            account.settle(bet)
        if one.unsplit:
            first = account
            wrong += account.wrong
            if len(bettors) > 1:
                continue
        found = [max(bound, floor) for bound in account.bounds()]
        reach = [[carried(bound, one.radius, wanted, floor, ceiling) for wanted in asked] for bound in found]
        sides = np.maximum(sides, reach)
        wrong += [] if one.unsplit else account.wrong
    return Side(sides[0], sides[1]), wrong


def _unplanned(bettors: Sequence[PlannedBettor], rows: list[Any]) -> list[str]:
    """Return the first place at which the record differs from the plan."""
    planned = [row for one in bettors for row in one.rows()]
    for plan, row in itertools.zip_longest(planned, rows):
        if plan is None:
            more = len(rows) - len(planned)
            return [f"{more} recorded bets are not planned, the first from return {row['first']!r} on"]
        if row is None or not _as_planned(row, plan):
            return [_difference(plan, row)]
    return []


def _as_planned(row: dict[str, Any], plan: dict[str, Any]) -> bool:
    exact = all(row.get(key) == plan.get(key) for key in ("radius", "first", "count", "hedged", "unsplit"))
    return exact and alike(row["alpha"], plan["alpha"], 1e-12) and _same_bet(row, plan)


def _same_bet(row: dict[str, Any], plan: dict[str, Any]) -> bool:
    return all(alike(row.get(key), plan.get(key), EQUAL) for key in ("cutoff", "stake"))


def _difference(plan: dict[str, Any], row: dict[str, Any] | None) -> str:
    where, end = f"scaled budget {plan['radius']:g}", plan["first"] + plan["count"]
    if row is not None and row["radius"] == plan["radius"] and not alike(row["alpha"], plan["alpha"], 1e-12):
        return f"{where}: the planned alpha is {plan['alpha']:.9g}, not {row['alpha']!r}"
    stake = "a bet size for each claim" if "hedged" in plan else f"bet size {plan['stake']:.9g}"
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
        return self.lowest + (1 - 1e-9) / self.stake if self.stake > 0 else math.inf


@dataclass(frozen=True, eq=False)
class Curve:
    """The score of a return: ``lowest`` at the floor, the first of ``knots``, and ``heights`` above it at each."""

    guesses: tuple[Floats, Floats] | None
    knots: Floats
    heights: Floats
    lowest: float

    @classmethod
    def of(cls, guesses: tuple[Floats, Floats], radius: float, floor: float) -> Curve:
        """Return the score that guesses of P(X >= point) make."""
        points, guess = guesses
        knots = np.concatenate([[floor], points])
        steps, z = np.diff(knots), ndtri(guess)
        slope = np.exp(radius * z - radius**2 / 2)
        lowest = floor + float(steps @ (ndtr(z - radius) - guess * slope))
        lowest -= 1e-12 * (float(steps @ (slope + 1)) + abs(floor))  # rounded conservatively
        return cls(guesses, knots, np.concatenate([[0.0], np.cumsum(steps * slope)]), lowest)

    def __call__(self, returns: Floats) -> Floats:
        """Score returns."""
        return np.asarray(self.lowest + np.interp(returns, self.knots, self.heights), dtype=np.float64)


class Account:
    """The capital of one bettor against each claim; ``wrong`` lists invalid bets."""

    def __init__(self, returns: Floats, floor: float, bettor: PlannedBettor) -> None:
        self.returns, self.floor, self.radius = returns, floor, bettor.radius
        self.aim = math.log(1 / bettor.alpha) if bettor.alpha > 0 else math.inf
        self.rounds: list[Round] = []
        self.claims = self.owned = self.most = np.empty(0)
        self.above = 0.0  # owned against what is above all claims
        self.settled = 0  # bets on returns up to here are settled
        self.curve = Curve(None, np.zeros(1), np.zeros(1), 0.0)
        self.wrong: list[str] = []

    def settle(self, bet: PlannedBet) -> None:
        """Add one bet, on returns that no earlier bet was on."""
        if not self._allowed(bet):
            self.wrong.append(
                f"scaled budget {self.radius:g}: the bet on the returns {bet.first} to {bet.last} is not fair"
            )
            return
        values, counts = self.returns[bet.first : bet.last], np.ones(1, dtype=np.int64)
        if values.size > 1:
            values, counts = np.unique(values, return_counts=True)
        scores, lowest = self._scored(bet, values)
        if bet.hedge is None:
            self.rounds.append(Round(scores, counts, bet.stake, lowest))
        else:
            self._settle_each(scores, counts, lowest, *bet.hedge)
        self.settled = bet.last

    def _allowed(self, bet: PlannedBet) -> bool:
        """Return whether a bet is on returns of its own, with valid bet sizes and guesses."""
        stakes = np.array([bet.stake]) if bet.hedge is None else bet.hedge[1]
        there = self.settled <= bet.first < bet.last <= self.returns.size and bool(np.all(stakes >= 0))
        if bet.guesses is None:  # the return is its own score: only without an attack is its mean the worst-case mean
            return there and self.radius == 0
        if bet.guesses is self.curve.guesses:  # as at the bet before, where they were found valid
            return there
        points, guess = bet.guesses
        ascending = bool(np.all(np.diff(points, prepend=self.floor) > 0))
        return there and ascending and bool(np.all((guess >= 0) & (guess < 1)))

    def _scored(self, bet: PlannedBet, returns: Floats) -> tuple[Floats, float]:
        """Return the scores of returns, and the lowest score that any return has."""
        if bet.guesses is None:
            return returns, self.floor
        if bet.guesses is not self.curve.guesses:  # all bets of a block have the same
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
        at = np.flatnonzero(stakes)
        if not np.array_equal(claims, self.claims):
            self._replace(claims)
        self.most[claims <= lowest] = math.inf  # no score is lower, nor is their mean
        if at.size > 0:
            self.owned[at] += np.log1p(stakes[at, None] * (scores - claims[at, None])) @ counts
            self.most[at] = np.maximum(self.most[at], self.owned[at])

    def _replace(self, claims: Floats) -> None:
        """Go on with other claims; each starts with the least of those whose range its own range meets."""
        old, new = (np.concatenate([[-math.inf], points, [math.inf]]) for points in (self.claims, claims))
        meets = (old[:-1] < new[1:, None]) & (old[1:] > new[:-1, None])
        owned = np.where(meets, np.append(self.owned, self.above), math.inf).min(axis=1)
        most = np.where(meets, np.append(self.most, -math.inf), math.inf).min(axis=1)
        self.claims, self.owned, self.above, self.most = claims, owned[:-1], float(owned[-1]), most[:-1]

    def inherit(self, before: Account, ceiling: float | None) -> None:
        """Begin with what bets on the return itself have earned before alpha was split."""
        claims = [carried(float(claim), 0.0, self.radius, self.floor, ceiling) for claim in before.claims]
        keep = np.diff(claims, append=math.inf) > 0  # of claims that rounding has made equal, the last
        refuted = np.cumprod(before.most >= before.aim).astype(bool)
        self.claims, self.settled = np.array(claims)[keep], before.settled
        self.owned = np.minimum.accumulate(before.owned)[keep]
        self.above = min([before.above, *before.owned])  # the worst case may be this good whatever the mean is
        self.most = np.where(refuted, math.inf, -math.inf)[keep]

    def bounds(self) -> tuple[float, float]:
        """Return the best bound that may be claimed and the least that the method would have claimed."""
        if self.claims.size == 0:
            bound = bound_of(self.rounds, self.aim)
            return bound, bound
        count = int(np.cumprod(self.most >= self.aim).sum())  # a claim counts if all below it are refuted too
        return self._claim(count), self._claim(count - FEWER)

    def _claim(self, count: int) -> float:
        return float(self.claims[count - 1]) if count > 0 else -math.inf


def bound_of(rounds: list[Round], aim: float) -> float:
    """Return the largest claim against which the logarithm of the capital reaches the aim, by halving."""

    def rich(claim: float) -> bool:
        return sum(float(one.log_wealth(np.array([claim]))[0]) for one in rounds) >= aim

    high = min((one.boldest for one in rounds), default=math.inf)
    step = max(abs(high), 1.0) * 1e-9
    if not math.isfinite(high):  # nothing was bet
        return -math.inf
    if rich(high):
        return high
    while not rich(high - step):
        step *= 2
        if not step < 1e12 * max(1.0, abs(high)):
            return -math.inf
    low = high - step
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if rich(middle) else (low, middle)
    return low
