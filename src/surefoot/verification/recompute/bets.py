"""Limits that rest on bets, once more from the raw returns: every score and stake is planned again, then settled.

Against the claim "the worst-case mean is at most m" a bettor owns W(m), the product of 1 + stake (score(x) - m) over
returns x. With stakes and scores settled before x is seen, scores of a mean of at most the worst-case mean, and no
factor below 0, W(m) reaches 1/alpha with probability alpha at most if the claim is true (Ville). So the m at which it
does are lower limits. Scores are tangents of g(p) = Phi(Phi^-1(p) - radius), which is convex: for any guess q(y) of
P(X >= y), the sum over steps dy of g(q) - q g'(q) + g'(q) 1{x >= y} has a mean of at most that of g(P(X >= y)).

A choice made after looking would void that. So what the certificate has recorded of each block (cut-off of the score,
stake) must be what the method's plan makes of the returns before that block, and the shares of the risk what it makes
of the pilot.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from surefoot.verification.recompute.auto import pilots
from surefoot.verification.recompute.bands import CannotRecomputeError, Claim, Side
from surefoot.verification.recompute.plans import Law, Option, Round, moments, plans, scores_of
from surefoot.verification.recompute.shares import carried, shares_of

Floats = NDArray[np.float64]
ROW = {"radius", "alpha", "first", "count", "cutoff"}
TIE = 1e-9  # relative: two plans this close are equally good, and rounding may have decided between them
SHARE = 1e-5  # relative: shares are found by halving to about 1e-7
FEWER = 2  # claims: the method's sums are rounded down, so that it may just miss what is proved here


def recompute_bets(returns: Floats, claim: Claim, bets: Any) -> tuple[Side, Side | None, list[str]]:
    """Return lower and, with a ceiling, upper limits, and what in the record of the bets is not as planned."""
    check_sides(bets, claim)
    lower, wrong = _side(returns, claim.floor, claim.ceiling, claim, bets["lower"])
    if claim.ceiling is None:
        return lower, None, wrong
    mirror, also = _side(-returns, -claim.ceiling, -claim.floor, claim, bets["upper"])
    return lower, Side(-mirror.best, -mirror.least), wrong + [f"upper: {text}" for text in also]


def check_sides(bets: Any, claim: Claim) -> None:
    """Refuse bets that are not recorded for the lower side and, with a ceiling, for the upper one."""
    sides = {"lower"} if claim.ceiling is None else {"lower", "upper"}
    if not isinstance(bets, dict) or set(bets) != sides or not all(isinstance(rows, list) for rows in bets.values()):
        raise CannotRecomputeError(f"bets must be recorded for {' and '.join(sorted(sides))}")


def _side(
    returns: Floats, floor: float, ceiling: float | None, claim: Claim, rows: list[Any]
) -> tuple[Side, list[str]]:
    asked = [budget / claim.sigma for budget in claim.budgets]
    best, least = np.full(len(asked), floor), np.full(len(asked), floor)
    recorded, planned, wrong = _bettors(rows), _planned(returns, floor, ceiling, asked, claim.alpha), []
    for radius in sorted({*recorded, *planned}):
        share, own = recorded.get(radius, (planned.get(radius, 0.0), []))
        if not alike(share, planned.get(radius, 0.0), SHARE) or not 0 < share < 1:
            wrong.append(f"radius {radius:g}: the plan is to risk {planned.get(radius, 0.0):.9g}, not {share!r}")
            continue
        bettor = Bettor(returns, floor, radius, share, own)
        found = [max(limit, floor) for limit in bettor.limits()]
        best = np.maximum(best, [carried(found[0], radius, wanted, floor, ceiling) for wanted in asked])
        least = np.maximum(least, [carried(found[1], radius, wanted, floor, ceiling) for wanted in asked])
        wrong += bettor.wrong
    spent = sum(share for share, _ in recorded.values())
    if spent > claim.alpha * (1 + 1e-12):
        wrong.append(f"the bets risk {spent:.12g}, the certificate {claim.alpha:.12g}")
    return Side(best, least), wrong


def _planned(
    returns: Floats, floor: float, ceiling: float | None, asked: list[float], alpha: float
) -> dict[float, float]:
    """Return the share of the risk of each radius that is bet on, from the pilot; a single return is all pilot."""
    first, radii = edges_of(returns.size)[0], np.unique(asked)
    if first == returns.size:
        return {}
    shares = shares_of(Law.of(returns[:first]), radii, alpha, floor, ceiling, returns.size)
    return {radius: share for radius, share in zip(radii.tolist(), shares.tolist(), strict=True) if share > 0}


def edges_of(n: int) -> list[int]:
    """Return where bets are settled: after the pilot, then whenever there is an eighth more."""
    edges = [max(1, pilots(n)[1])]
    while edges[-1] + 2 * max(1, edges[-1] // 8) < n:
        edges.append(edges[-1] + max(1, edges[-1] // 8))
    return [*edges, n]


def _bettors(rows: list[Any]) -> dict[float, tuple[float, list[dict[str, Any]]]]:
    """Return risk and rows of each bettor by its radius."""
    check_rows(rows)
    found = {}
    for radius in sorted({row["radius"] for row in rows}):
        own = [row for row in rows if row["radius"] == radius]
        if len({row["alpha"] for row in own}) > 1 or len({row["first"] for row in own}) < len(own):
            raise CannotRecomputeError(f"at radius {radius:g} the bets have several risks, or several for one block")
        found[float(radius)] = (float(own[0]["alpha"]), own)
    return found


def check_rows(rows: list[Any]) -> None:
    """Refuse what is no record of bets."""
    for row in rows:
        kind = {"hedged"} if isinstance(row, dict) and row.get("hedged") is True else {"stake"}
        numbers = [row.get(key) for key in ("radius", "alpha", *kind)] if isinstance(row, dict) else [None]
        if not all(isinstance(number, int | float) for number in numbers) or set(row) != ROW | kind:
            raise CannotRecomputeError(
                "a bet must say its radius, risk, block, cut-off and stake, or that it is hedged"
            )


class Bettor:
    """Who bets at one radius with one share of the risk, all returns being played; ``wrong``: what was not planned."""

    def __init__(self, returns: Floats, floor: float, radius: float, alpha: float, rows: list[dict[str, Any]]) -> None:
        self.returns, self.floor, self.radius, self.alpha = returns, floor, radius, alpha
        self.rows = {row["first"]: row for row in rows}
        self.wrong: list[str] = []
        self.rounds: list[Round] = []
        self.edges = edges_of(returns.size)

    def limits(self) -> tuple[float, float]:
        """Play all blocks; return the best limit that may be claimed and the least."""
        start = self._hedged_from()
        for first, last in itertools.pairwise(self.edges[: start + 1]):
            self.play_plain(first, last)
        hedge = Hedge(self, self.edges[start]) if start < len(self.edges) - 1 else None
        if hedge is not None:
            for first, last in itertools.pairwise(self.edges[start:]):
                hedge.play(first, last)
        if self.rows:
            self.wrong.append(f"radius {self.radius:g}: no bet is planned for the blocks from {sorted(self.rows)}")
        if hedge is None or hedge.claims.size == 0:
            limit = limit_of(self.rounds, self.alpha)
            return limit, limit
        return hedge.proved(), hedge.proved(FEWER)

    def _hedged_from(self) -> int:
        """Return from which edge on stakes depend on the claim: once a fifth is known, if scores are not too skewed."""
        first, n = self.edges[0], self.returns.size
        options = self.options(first) if first < n else []
        chosen = self._recorded(options, self.rows.get(first))[0]
        if chosen is None or moments(chosen.score, Law.of(self.returns[:first]))[2] / math.sqrt(n) <= -0.35:
            return len(self.edges) - 1
        return next((i for i, edge in enumerate(self.edges[:-1]) if 5 * edge >= n), len(self.edges) - 2)

    def options(self, first: int) -> list[Option]:
        """Return all that may be staked on the returns from ``first`` on, planned from those before."""
        past = Law.of(self.returns[:first])
        scores = scores_of(past, self.returns.size, self.radius, self.floor)
        return plans(past, scores, self.alpha, self.returns.size - first, self.rounds)

    def settle(self, first: int, last: int, *, hedged: bool) -> Option | None:
        """Return what is bet on a block, None for nothing: what is recorded if it is the best plan, else that one."""
        options = self.options(first)
        row = self.taken(first) if options else None  # where nothing is planned a row is left, and found out at the end
        chosen, right = self._recorded(options, row)
        right &= row is None or ((row["count"], row.get("hedged", False)) == (last - first, hedged))
        if not right:
            plan = "nothing" if chosen is None else f"cut-off {chosen.score.cutoff}, stake {chosen.stake:.9g}"
            self.wrong.append(f"radius {self.radius:g}: on the returns {first} to {last} the plan is to bet {plan}")
        return chosen

    def taken(self, first: int) -> dict[str, Any] | None:
        """Return what is recorded for the block from ``first`` on, once."""
        return self.rows.pop(first, None)

    def tie(self, best: Option) -> float:
        """Return by how much less an option may promise than the best and still be as good."""
        return TIE * (abs(best.expected) + abs(best.score.lowest))

    def _recorded(self, options: list[Option], row: dict[str, Any] | None) -> tuple[Option | None, bool]:
        best = max(options, key=lambda option: option.expected, default=None)
        if best is None or row is None:
            return best, best is None and row is None
        tie = self.tie(best)
        for option in sorted(options, key=lambda option: -option.expected):
            if best.expected - option.expected > tie:
                break
            if alike(row["cutoff"], option.score.cutoff) and ("hedged" in row or alike(row["stake"], option.stake)):
                return option, True
        return best, False

    def play_plain(self, first: int, last: int) -> None:
        """Settle a bet that is the same against all claims."""
        option = self.settle(first, last, hedged=False)
        if option is not None:
            block = Law.of(self.returns[first:last])
            scores = Law(option.score.of(block.values), block.counts)
            self.rounds.append(Round(scores, option.stake, option.score.lowest))


class Hedge:
    """Stakes against single claims, as if to buy an option that pays 1/alpha if the scores end high enough."""

    def __init__(self, bettor: Bettor, first: int) -> None:
        self.bettor, self.first, self.n = bettor, first, bettor.returns.size
        self.claims = self.owned = self.most = np.empty(0)

    def play(self, first: int, last: int) -> None:
        """Settle the score of a block, and stakes batch by batch within it."""
        option = self.bettor.settle(first, last, hedged=True)
        if option is None:
            return
        mean, variance, _ = moments(option.score, Law.of(self.bettor.returns[:first]))
        if self.claims.size == 0:
            self._settle_claims(mean, math.sqrt(variance), first)
        scores = option.score.of(self.bettor.returns[first:last])
        count = min(scores.size, max(1, round(600 * scores.size / (self.n - self.first))))
        cuts = np.linspace(0, scores.size, count + 1).astype(int)
        for begin, end in itertools.pairwise(cuts):
            left = self.n - first - begin + 0.005 * self.n
            self._bet(scores[begin:end], option.score.lowest, variance * left)

    def _settle_claims(self, mean: float, spread: float, first: int) -> None:
        left, floor = self.n - first, self.bettor.floor
        width = 3.5 * spread * (1 / math.sqrt(left) + 1 / math.sqrt(first))
        near = mean - 2 * spread / math.sqrt(left) + width * np.linspace(-1, 1, 400)
        far = floor + (near[0] - floor) * np.arange(1, 32) / 32
        self.claims = np.concatenate([far, near]) if near[0] > floor else near[near > floor]
        self.owned = np.zeros(self.claims.size)
        for played in self.bettor.rounds:
            fit = self.claims <= played.boldest
            self.owned[~fit] = -math.inf
            self.owned[fit] += played.log_wealth(self.claims[fit])
        self.most = np.full(self.claims.size, -math.inf)  # the most that was owned when somebody looked

    def _bet(self, batch: Floats, lowest: float, variance: float) -> None:
        aim = math.log(1 / self.bettor.alpha)
        self.most[self.claims <= lowest] = math.inf  # no score is lower, nor is their mean
        chance = np.minimum(0.93 * np.exp(np.minimum(self.owned - aim, 9.0)), 1 - 1e-9)
        at = np.flatnonzero((self.most < aim) & (chance > 1e-7))
        if at.size == 0 or variance <= 0:
            return
        p, claims = chance[at], self.claims[at]
        stakes = np.exp(-(ndtri(p) ** 2) / 2) / math.sqrt(2 * math.pi) / (p * math.sqrt(variance))
        stakes = np.minimum(stakes, 0.999 / (claims - lowest))
        self.owned[at] += np.log1p(stakes[:, None] * (batch - claims[:, None])).sum(axis=1)
        self.most[at] = np.maximum(self.most[at], self.owned[at])

    def proved(self, fewer: int = 0) -> float:
        """Return the last claim such that 1/alpha was reached against it and against all below, or one before it."""
        reached = self.most >= math.log(1 / self.bettor.alpha)
        count = int(np.cumprod(reached).sum()) - fewer
        return float(self.claims[count - 1]) if count > 0 else -math.inf


def limit_of(rounds: list[Round], alpha: float) -> float:
    """Return the largest claim against which the capital is 1/alpha, by halving."""
    if not rounds:
        return -math.inf

    def rich(claim: float) -> bool:
        return sum(float(one.log_wealth(np.array([claim]))[0]) for one in rounds) >= math.log(1 / alpha)

    high = min(one.boldest for one in rounds)
    step = max(abs(high), 1.0) * 1e-9
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


def alike(recorded: Any, planned: float | None, within: float = TIE) -> bool:
    """Tell whether a recorded number is the planned one, but for rounding."""
    if planned is None or not isinstance(recorded, int | float):
        return recorded is planned
    return abs(recorded - planned) <= within * abs(planned)
