"""T3, settled: what bets on the worst-case mean prove, whoever planned them and however badly.

Planning decides (``Bet``, ``AlphaShare``), this module computes. A planner is handed the returns before those it bets
on and nothing else, so that no return decides about a bet on itself. What makes the bounds true:

(a) Every return is bet on once by each bettor, with scores whose mean is at most the worst-case mean L_c
(``tangent_scores``) and with bet sizes that cannot lose more than the capital. So the capital against a true claim
"L_c <= m" is a nonnegative supermartingale that starts at 1 (``betting``).

(b) Bet sizes may depend on the claim. Claims m_1 < m_2 < ... are fixed before anything is bet; the bets against m_j
serve for all m in (m_(j-1), m_j], against which the capital is at least as large. The bound is the last m_j such that
1/alpha was reached against m_1, ..., m_j. It exceeds L_c only if 1/alpha was reached against the first m_j >= L_c.

(c) Claims may be replaced. L_c is in the range of one old claim and of one new claim. A new one starts with the least
capital of all old ones whose range it meets, so with no more than is owned against L_c.

(d) Bounds at several scaled budgets, or of several bettors at one, hold simultaneously: their shares of alpha sum to at
most alpha (union bound).

(e) Bets on the return itself, before alpha is split, serve for every c. If no return exceeds b, a the floor, then every
distribution with a mean E X = a + (b - a) p has (L_c - a) / (b - a) >= g_c(p). So the claim "L_c <= a + (b - a) g_c(p)"
implies the claim "E X <= a + (b - a) p". Where alpha is split, the bettor at c goes on from what is owned, with the
share w_c of alpha. The capital against the true distribution is W(E X) up to the split, and then the sum over c of w_c
W(E X) R_c(L_c), where R_c is what the bets at c have made of each unit since: a nonnegative supermartingale that starts
at 1, as the w_c sum to at most 1. W against a claim "E X <= m" may fall or grow with m, for bets depend on m. So a
claim about L_c starts with the least that is owned against any claim m up to the one that it implies: E X is in the
range of one of these. Where L_c is above all claims, E X may be anywhere.

(f) Bettors at one scaled budget whose bet sizes are the same against all claims bet against the same L_c, so their
capitals may be added in proportion to their shares (``betting`` (d)): a bound that several of them have nearly proved
is proved. Together they spend no more than their shares, as in (d).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot.errors import InputError
from surefoot.proof.bounds.betting import LOG_TERM_ERROR, BetRound, Capital, joint_limit, sums_of_logs
from surefoot.proof.bounds.binomial import check_alpha, checked_outcomes
from surefoot.proof.bounds.samples import OrderedOutcomes
from surefoot.proof.bounds.tangent_scores import Guesses, Score, implied

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Bet:
    """What is decided before the returns from index ``first`` up to ``last`` are seen."""

    first: int
    last: int
    # First and last index of the returns that the same guesses are used for, in one bet or several.
    block: tuple[int, int]
    # Points above the floor and guesses of P(X >= point), of which the score is made; None for the return.
    guesses: Guesses | None = None
    stake: float = 0.0  # the bet size against all claims
    hedge: tuple[Floats, Floats] | None = None  # instead of it claims, ascending, and the bet size against each
    cutoff: float | None = None  # how the guesses were made of earlier returns, for the record

    @property
    def is_placed(self) -> bool:
        """Whether anything is bet."""
        return self.stake > 0 or self.hedge is not None


class Planner(Protocol):
    """Decides what to bet for one bettor, from earlier returns and what its own bets have made of them."""

    first: int  # how many returns it wants to have seen before its first bet

    def next_bet(self, past: OrderedOutcomes, account: CapitalAccount) -> Bet | None:
        """Return the bet on the returns right after those of ``past``, or None if there will be none.

        ``past`` ends with the last bet; ``account`` is what the bets on it have earned, to read.
        """
        ...


@dataclass(frozen=True)
class AlphaShare:
    """A part of alpha for bounds at one scaled budget, and who bets with it."""

    scaled_budget: float
    alpha: float
    planner: Planner


class Strategy(Protocol):
    """Decides who bets."""

    n_opening: int  # how many returns it wants to see before it decides about bets before alpha is split
    n_inspected: int  # how many it wants to see before it splits alpha, where there are no such bets

    def opening_planner(self, past: OrderedOutcomes) -> Planner | None:
        """Return who bets on the return itself with all of alpha, or None to split alpha at once."""
        ...

    def split_alpha(self, past: OrderedOutcomes) -> Sequence[AlphaShare]:
        """Return the shares of alpha, given the returns before the split."""
        ...


class CapitalAccount:
    """What one bettor owns against claims about the worst-case mean at one scaled budget, and what that proves.

    ``alpha``              its share of the error probability
    ``n_settled``          bets on returns before this index are settled
    ``capital``            that of bets with the same bet size against all claims
    ``with_open_bet``      and with what the bet that is not complete has earned so far
    ``claims``             those that bets with a bet size for each claim are against, ascending
    ``log_capital``        the logarithm of what is owned against each
    ``log_capital_above``  and against values above all of them
    ``refuted``            against which claims the capital has reached 1/alpha
    """

    def __init__(self, scaled_budget: float, alpha: float, floor: float, *, first: int, unsplit: bool = False) -> None:
        check_alpha(alpha)
        self.scaled_budget = scaled_budget
        self.alpha = alpha
        self.floor = floor
        self.n_settled = first
        self.unsplit = unsplit
        self.capital = Capital()
        self.with_open_bet = self.capital
        self.claims: Floats = np.empty(0)
        self.log_capital: Floats = np.empty(0)
        self.log_capital_above = 0.0
        self.refuted = np.empty(0, dtype=bool)
        self._blocks: dict[tuple[int, int], float | None] = {}
        self._guesses: Guesses | None = None
        self._score: Score | None = None

    def settle_bet(self, bet: Bet, returns: OrderedOutcomes) -> None:
        """Add what a bet has earned on those of its returns that have come; raise ValueError if it is not fair (a)."""
        # (a) the planner has seen all returns before n_settled: nothing is bet on them
        if bet.first < self.n_settled or bet.last <= bet.first:
            raise ValueError(f"returns {bet.first} to {bet.last} cannot be bet on, {self.n_settled} are settled")
        complete = bet.last <= returns.size
        # one bet size against all claims is settled on what has come; sizes per claim once all has
        if bet.is_placed and bet.hedge is None:
            self.with_open_bet = self.capital.with_round(self._played_round(bet, returns))
        elif bet.hedge is not None and complete:
            self._settle_hedge(bet, returns)
        if complete:
            self.capital = self.with_open_bet
            self.n_settled = bet.last

    def _played_round(self, bet: Bet, returns: OrderedOutcomes) -> BetRound:
        if self.claims.size > 0 or not bet.stake > 0:
            raise ValueError("one bet size against all claims must be above 0, and not follow one for each")
        score = self._score_of(bet, returns)
        scores = returns.scored(score, bet.first, min(bet.last, returns.size))
        return BetRound(scores, bet.stake, score.lowest, bet.first, bet.cutoff)

    def _settle_hedge(self, bet: Bet, returns: OrderedOutcomes) -> None:
        assert bet.hedge is not None
        claims, stakes = bet.hedge
        score = self._score_of(bet, returns)
        if self.capital.rounds or claims.shape != stakes.shape or not np.all(np.diff(claims) >= 0):
            raise ValueError("bet sizes for each claim need ascending claims, and must not follow one against all")
        # (a) no score, however low, may lose more than the capital
        if not np.all((stakes >= 0) & (stakes * (claims - score.lowest) < 1)):
            raise ValueError("a bet size is below 0, or could lose more than the capital")
        # (c)
        if claims is not self.claims:
            self.log_capital, self.log_capital_above, self.refuted = self.carried_to(claims)
            self.claims = claims
        # the score is never below its lowest value, nor is its mean: such claims need no bets
        self.refuted = self.refuted | (claims <= score.lowest)
        (at,) = stakes.nonzero()
        if at.size > 0:
            log_capital = self.log_capital.copy()
            scores = returns.scored(score, bet.first, bet.last)
            log_capital[at] += sums_of_logs(scores, stakes[at], claims[at])
            log_capital.setflags(write=False)
            self.log_capital = log_capital
            # (b) refuted once is refuted for good: Ville's inequality holds at all times
            self.refuted = self.refuted | (log_capital >= math.log(1 / self.alpha) * (1 + LOG_TERM_ERROR))
        self._blocks[bet.block] = bet.cutoff

    def _score_of(self, bet: Bet, returns: OrderedOutcomes) -> Score:
        if self._score is None or bet.guesses is not self._guesses:
            self._score = returns.make_score(bet.guesses, self.scaled_budget, self.floor)
            self._guesses = bet.guesses
        return self._score

    def carried_to(self, claims: Floats) -> tuple[Floats, float, NDArray[np.bool_]]:
        """Return what is owned against other claims (c), and above them, and which of them are refuted."""
        if claims is self.claims:
            return self.log_capital, self.log_capital_above, self.refuted
        owned = np.append(self.log_capital, [self.log_capital_above, 0.0])
        refuted = np.append(self.refuted, [False, False])
        # the range of a new claim begins at the claim before it: it meets those of the old ones first .. last
        first = np.searchsorted(self.claims, np.concatenate([[-math.inf], claims]), side="right")
        last = np.append(np.searchsorted(self.claims, claims), self.claims.size)
        spans = np.stack([first, last + 1], axis=1).ravel()
        least = np.minimum.reduceat(owned, spans)[::2]
        return least[:-1], float(least[-1]), np.logical_and.reduceat(refuted, spans)[:-2:2]

    def inherit_from(self, before: CapitalAccount, ceiling: float | None) -> None:
        """Begin with what bets on the return itself have earned before alpha was split (e)."""
        # the claim about L_c that each claim about the mean is implied by
        here = np.array([self.scaled_budget])
        self.n_settled = before.n_settled
        self.claims = implied(np.zeros(before.claims.size), before.claims, here, self.floor, ceiling)[:, 0]
        # the least over all claims up to that one, for the mean may be in the range of any of them
        self.log_capital = np.minimum.accumulate(before.log_capital)
        self.log_capital_above = float(np.min(before.log_capital, initial=before.log_capital_above))
        self.refuted = np.logical_and.accumulate(before.refuted)

    def last_refuted(self) -> float:
        """Return the last claim up to which all are refuted, or minus infinity."""
        # (b) a claim beyond one that was not refuted proves nothing
        n_refuted = int(np.cumprod(self.refuted).sum())
        if n_refuted == 0:
            return -math.inf
        return float(self.claims[n_refuted - 1])

    def recorded_rows(self) -> list[dict[str, Any]]:
        """Return what was bet, for the certificate: one row for every block of returns with the same score."""
        who: dict[str, Any] = {"radius": self.scaled_budget, "alpha": self.alpha}
        if self.unsplit:
            who["unsplit"] = True
        rows: list[dict[str, Any]] = []
        for played in self.with_open_bet.rounds:
            count = int(played.outcomes.counts.sum())
            rows.append({**who, "first": played.first, "count": count, "cutoff": played.cutoff, "stake": played.stake})
        for (begin, end), cutoff in self._blocks.items():
            rows.append({**who, "first": begin, "count": end - begin, "cutoff": cutoff, "hedged": True})
        return rows


def joint_bound(accounts: Sequence[CapitalAccount]) -> float:
    """Return the lower bound that bettors at one scaled budget prove, or minus infinity.

    Those with one bet size against all claims prove it together (f), the others each by itself (d).
    """
    together = [account for account in accounts if account.claims.size == 0]
    best = joint_limit([account.with_open_bet for account in together], [account.alpha for account in together])
    for account in accounts:
        if account.claims.size > 0:
            best = max(best, account.last_refuted())
    return best


class Bettor:
    """A planner with its account: asks for the bets and settles them."""

    def __init__(self, planner: Planner, account: CapitalAccount) -> None:
        self.planner = planner
        self.account = account
        self.has_ended = False
        self._bet: Bet | None = None  # whose returns have not all come

    def advance_to(self, returns: OrderedOutcomes) -> None:
        """Make and settle bets on all returns that have come; those of earlier calls must come first among them."""
        while not self.has_ended and returns.size > self.account.n_settled:
            if self._bet is None:
                # the planner is shown what is settled and nothing else
                self._bet = self.planner.next_bet(returns.before(self.account.n_settled), self.account)
            if self._bet is None:
                self.has_ended = True
                return
            self.account.settle_bet(self._bet, returns)
            if returns.size < self._bet.last:
                return
            self._bet = None


@dataclass(frozen=True, eq=False)
class WorstMeans:
    """Lower bounds of the worst-case mean at some scaled budgets, simultaneously valid, and what they imply elsewhere.

    ``scaled_budgets``, ``limits``  where bets were made, and the bounds they gave; bounds are at least the floor
    """

    scaled_budgets: Floats
    limits: Floats
    shares: Floats  # the alpha used for each; their sum is at most alpha
    floor: float
    ceiling: float | None
    bets: Sequence[Mapping[str, Any]] = ()  # what was bet: one dictionary per bettor and block, for the certificate

    def at(self, scaled_budget: ArrayLike) -> Floats:
        """Return a lower bound at any scaled budget, from all those with bets, at no cost in confidence."""
        wanted = np.asarray(scaled_budget, dtype=np.float64)
        table = implied(self.scaled_budgets, self.limits, wanted.ravel(), self.floor, self.ceiling)
        return np.asarray(table.max(axis=0).reshape(wanted.shape), dtype=np.float64)


class Settlement:
    """All bets on one side of the return, whose bounds may be asked for again and again while returns come in."""

    def __init__(self, strategy: Strategy, alpha: float, floor: float, ceiling: float | None) -> None:
        check_alpha(alpha)
        self.strategy = strategy
        self.alpha = alpha
        self.floor = floor
        self.ceiling = ceiling
        self.opening: Bettor | None = None
        self.bettors: list[Bettor] | None = None
        self._has_opened = False

    def after(self, returns: ArrayLike | OrderedOutcomes) -> WorstMeans:
        """Return the bounds after all returns so far, or outcomes that know their limits; those of earlier calls first.

        Raises:
            InputError: If a return is outside of floor and ceiling.
            ValueError: If the strategy spends more than alpha, or a planner makes no fair bet.
        """
        if isinstance(returns, OrderedOutcomes):
            seen = returns
        else:
            x = checked_outcomes(returns, self.floor)
            if self.ceiling is not None and x.max() > self.ceiling:
                raise InputError(f"no outcome may be above {self.ceiling:g}, got {x.max():g}; give the true ceiling")
            seen = OrderedOutcomes(x)
        if not self._has_opened and seen.size >= self.strategy.n_opening:
            self._open(seen)
        if self.opening is not None:
            self.opening.advance_to(seen)
        # alpha is split once, and bettors go on with their shares from there
        if self.bettors is None and self._has_opened:
            self._split(seen)
        for bettor in self.bettors or ():
            bettor.advance_to(seen)
        return self._bounds()

    def _open(self, seen: OrderedOutcomes) -> None:
        planner = self.strategy.opening_planner(seen.before(self.strategy.n_opening))
        if planner is not None:
            first = max(planner.first, self.strategy.n_opening)
            account = CapitalAccount(0.0, self.alpha, self.floor, first=first, unsplit=True)
            self.opening = Bettor(planner, account)
        self._has_opened = True

    def _split(self, seen: OrderedOutcomes) -> None:
        split_at = self.strategy.n_inspected
        if self.opening is not None:
            if not self.opening.has_ended:
                return
            split_at = self.opening.account.n_settled
        if seen.size <= split_at:
            return
        shares = self.strategy.split_alpha(seen.before(split_at))
        spent = sum(share.alpha for share in shares)
        # (d) up to the rounding of the sum
        if not spent <= self.alpha * (1 + 1e-12):
            raise ValueError(f"the shares of alpha sum to {spent}, there is {self.alpha}")
        self.bettors = []
        for share in shares:
            first = max(share.planner.first, split_at)
            account = CapitalAccount(share.scaled_budget, share.alpha, self.floor, first=first)
            if self.opening is not None:
                account.inherit_from(self.opening.account, self.ceiling)
            self.bettors.append(Bettor(share.planner, account))

    def _bounds(self) -> WorstMeans:
        """Return the best bound at each scaled budget with bets; where nothing was bet only the floor is sure."""
        limits: dict[float, float] = {}
        shares: dict[float, float] = {}
        rows: list[dict[str, Any]] = []
        bettors = self.bettors or []
        if self.opening is not None and not bettors:
            bettors = [self.opening]
        elif self.opening is not None:
            # after the split what the opening bets have earned is the heirs'
            rows += self.opening.account.recorded_rows()
        by_budget: dict[float, list[CapitalAccount]] = {}
        for account in (bettor.account for bettor in bettors):
            by_budget.setdefault(account.scaled_budget, []).append(account)
            rows += account.recorded_rows()
        for here, accounts in by_budget.items():
            limits[here] = max(self.floor, joint_bound(accounts))
            shares[here] = sum(account.alpha for account in accounts)
        if not bettors:
            limits[0.0] = self.floor
            shares[0.0] = 0.0
        best = np.array(list(limits.values()))
        spent = np.array(list(shares.values()))
        return WorstMeans(np.array(list(limits)), best, spent, self.floor, self.ceiling, rows)


def settle(
    returns: ArrayLike | OrderedOutcomes, strategy: Strategy, *, alpha: float, floor: float, ceiling: float | None
) -> WorstMeans:
    """Return what the bets of a strategy prove about returns, in their order, at confidence 1 - alpha."""
    return Settlement(strategy, alpha, floor, ceiling).after(returns)
