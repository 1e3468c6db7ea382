"""Bets that depend on the claim: for a fixed number of outcomes, tighter by a quarter than the same bets against all.

A bettor with the same bets against all claims must, for Gaussian outcomes, exceed a claim by sqrt(2 log(1/alpha)) =
2.45 standard errors to reach a capital of 1/alpha. But more than 1/alpha is of no use, so against a single claim m
it is better to buy, step by step, an option that pays 1/alpha if the outcomes end above m by about z_alpha = 1.64
standard errors, and else nothing. With capital W and a variance V still to come, and p = alpha W its chance to pay,
that means to bet

    lambda = phi(z) / (p sqrt(V)),      z = Phi^-1(1 - p).

Where few low outcomes decide, their sum is far from Gaussian, and the option is one on their number
(``poisson_stakes``). Then V belongs to the claim too: a lower mean means more of them.

Claims m_1 < m_2 < ... are fixed before anything is bet; the bets against m_j serve for all m in (m_(j-1), m_j],
against which the capital is at least as large. The bound is the last m_j such that 1/alpha was reached against
m_1, ..., m_j. It exceeds mu only if 1/alpha was reached against the first m_j >= mu, hence against mu, and by Ville's
inequality (``betting``) that has a probability of at most alpha.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv, ndtri

from surefoot.proof.bounds.betting import ROUNDING, sums_of_logs
from surefoot.proof.bounds.samples import Sample, Seen
from surefoot.proof.planning import poisson_stakes
from surefoot.proof.planning.bettors import Bet, Bettor, Hedge, Score, candidates

Floats = NDArray[np.float64]

_CLAIMS, _FAR = 400, 32
_RARE = 0.02  # skewness of the sum of all scores, downward, from which on low outcomes are counted one by one
_REACH = 3.5  # claims reach so many standard errors, of what is known and of what is to come, to both sides
_BATCHES = 600  # between two bets
_KNOWN = 10  # claims are fixed once one in so many outcomes is known
_BLUR = 0.005  # of all outcomes: variance added to what is to come, for an option on a sharp edge cannot be hedged
_AIM, _AIM_RARE = 0.93, 0.97  # the option pays 1 / (alpha * _AIM), so that 1/alpha is reached before the end
_HOPELESS = 1e-7  # a chance below which a claim is given up


@dataclass(frozen=True)
class Model:
    """What the past lets one expect of a score: its mean, its variance and the size of its drops.

    ``drop``  minus the third central moment over the variance: the h of a score that is c, rarely c - h
    """

    mean: float
    variance: float
    drop: float

    @classmethod
    def of(cls, score: Score, past: Sample) -> Model:
        """Return the moments of the past with some doubt."""
        [scores], weights = candidates([score], past.grouped()).with_doubt()
        mean = float(weights @ scores)
        variance = float(weights @ (scores - mean) ** 2)
        third = float(weights @ (scores - mean) ** 3)
        return cls(mean, variance, -third / variance if variance > 0 else 0.0)

    @property
    def top(self) -> float:
        """The c of such a score."""
        return self.mean + self.variance / self.drop

    def rare(self, rounds: float) -> bool:
        """Return whether drops are so rare, or so deep, that the sum of so many scores is skewed."""
        return self.drop > _RARE * math.sqrt(self.variance * rounds)

    def expected_limit(self, alpha: float, rounds: float) -> float:
        """Return the bound that hedged bets on ``rounds`` outcomes would probably give: an estimate."""
        if self.rare(rounds):
            drops = rounds * self.variance / self.drop**2
            most = float(gammaincinv(drops + 1, 1 - alpha * _AIM_RARE))
            return self.top - self.drop * most * (1 + _BLUR) / rounds
        errors = float(ndtri(1 - alpha * _AIM)) * math.sqrt(1 + _BLUR) + float(ndtri(_AIM)) * math.sqrt(_BLUR)
        return self.mean - errors * math.sqrt(self.variance / rounds)


class _Open:
    """The claims that the bets of a block are against: those not yet refuted or given up, fewer from bet to bet.

    ``at``     their indices
    ``most``   the largest bet size against each: no score can lose more than the capital
    ``drops``  where low outcomes are counted one by one, the drops per outcome that each claim means
    """

    def __init__(self, at: NDArray[np.intp], claims: Floats, score: Score, model: Model, *, rare: bool) -> None:
        self.at = at
        self.most = 0.999 / (claims - score.lowest)
        self.drops = (model.top - claims) / model.drop if rare else None

    def keep(self, rows: NDArray[np.bool_]) -> None:
        """Give up all others."""
        self.at, self.most = self.at[rows], self.most[rows]
        self.drops = None if self.drops is None else self.drops[rows]


class Hedger:
    """Bets on one quantity against many claims, with a known number of outcomes."""

    def __init__(
        self, propose: Callable[[Sample], Sequence[Score]], alpha: float, edges: Sequence[int], floor: float
    ) -> None:
        self._scores = Bettor(propose, alpha, edges)
        self.alpha, self.total, self.floor, self.first = alpha, edges[-1], floor, edges[0]
        self._renewals = _renewals(edges)
        self._begun = edges[0]  # the first outcome that is bet on, here or by those whose capital was inherited
        self.claims = np.empty(0)
        self.owned, self.above = np.empty(0), 0.0  # logarithms of the capital, against each and above all of them
        self.done = np.empty(0, dtype=bool)
        self.fixed: list[tuple[int, int, float | None]] = []  # first, count and cut-off of each block
        self._batches = list(_batches(edges))
        self._next = 0
        self._block: tuple[int, Score | None, Model] = (-1, None, Model(0.0, 0.0, 0.0))  # its first index and score
        self._open: _Open | None = None
        self._bet: tuple[int, Bet] | None = None  # its number, so that none is planned twice

    def inherit(self, begun: int, claims: Floats, owned: Floats, above: float, done: NDArray[np.bool_]) -> None:
        """Go on from what other bets, on the outcomes from ``begun`` on, have earned against claims."""
        self._begun, self.claims, self.owned, self.above, self.done = begun, claims, owned, above, done

    def next_bet(self, seen: Seen) -> Bet | None:
        """Return the bet on what comes after the outcomes seen, which end where a bet ends; None after the last."""
        self.advance(seen)
        return self._planned(seen) if self._next < len(self._batches) else None

    def advance(self, seen: Seen) -> None:
        """Settle all bets on outcomes that have come; there is a bound after the last of them."""
        while self._next < len(self._batches) and seen.size >= self._batches[self._next][1]:
            self._settle(self._planned(seen), seen)
            self._next += 1

    def limit(self) -> float:
        """Return the lower bound of the quantity, or minus infinity."""
        return self._proved() if self._next == len(self._batches) else -math.inf

    def _planned(self, seen: Seen) -> Bet:
        if self._bet is None or self._bet[0] != self._next:
            self._bet = self._next, self._plan(seen)
        return self._bet[1]

    def _plan(self, seen: Seen) -> Bet:
        first, last, (begin, end) = self._batches[self._next]
        if self._block[0] != begin:
            self._block = _, score, model = self._settled(seen, begin, end)
            self._open = None if score is None else self._opened(score, model)
        _, score, model = self._block
        if score is None or self._open is None:
            return Bet(first, end, None)
        stakes = self._stakes(self._open, model, self.total - first + _BLUR * self.total)
        return Bet(first, last, score, hedge=Hedge(self.claims, stakes, (begin, end)))

    def _settled(self, seen: Seen, begin: int, end: int) -> tuple[int, Score | None, Model]:
        """Choose the score of a block, and the claims when little is known and once more when enough is."""
        past = seen.sample(0, begin)
        # a score for the bound after all outcomes that are bet on, to which the block contributes, not for a bound from
        # the block alone, nor from those alone that are left: no score gains against claims above its own maximum
        score, _ = self._scores.expect(past, self.total - self._begun)
        if score is None:
            return begin, None, self._block[2]
        model = Model.of(score, past)
        if not self.fixed or begin in self._renewals:
            self._renew(self._chosen(model, begin))
        self.fixed.append((begin, end - begin, score.cutoff))
        return begin, score, model

    def _renew(self, claims: Floats) -> None:
        """Replace the claims: what is owned against a new one is the least of all old ones whose range it meets."""
        owned, done = np.append(self.owned, [self.above, 0.0]), np.append(self.done, [False, False])
        first = np.searchsorted(self.claims, np.concatenate([[-math.inf], claims]), side="right")
        last = np.append(np.searchsorted(self.claims, claims), self.claims.size)
        spans = np.stack([first, last + 1], axis=1).ravel()
        least = np.minimum.reduceat(owned, spans)[::2]
        self.owned, self.above = least[:-1], float(least[-1])
        self.done = np.logical_and.reduceat(done, spans)[:-2:2]
        self.claims = claims

    def _chosen(self, model: Model, begin: int) -> Floats:
        claims = self._rare_claims(model) if model.rare(self.total) else self._claims(model, begin)
        return claims[claims > self.floor]

    def _claims(self, model: Model, begin: int) -> Floats:
        left, spread = self.total - begin, math.sqrt(model.variance)
        width = _REACH * spread * (1 / math.sqrt(left) + 1 / math.sqrt(begin))
        near = model.mean - 2 * spread / math.sqrt(left) + width * np.linspace(-1, 1, _CLAIMS)
        # below, as far as the floor, in case the past was misleading
        return np.concatenate([np.linspace(self.floor, max(near[0], self.floor), _FAR, endpoint=False), near])

    def _rare_claims(self, model: Model) -> Floats:
        """Return claims of all numbers of drops: close to each other around the expected one, and some elsewhere."""
        reach, drops = model.top - self.floor, self.total * model.variance / model.drop**2
        spread = math.sqrt(drops)
        few, many = max(2.0, drops / 4, drops - 10 * spread), drops + 10 + 15 * spread
        near = model.drop / self.total * np.geomspace(few, many, _CLAIMS - _CLAIMS // 4)
        even = np.linspace(self.floor, model.top, _CLAIMS // 4, endpoint=False)
        return np.unique(np.concatenate([even, model.top - near[near < reach]]))

    def _opened(self, score: Score, model: Model) -> _Open:
        """Return the claims that a block begins with: nothing can be gained against those above the top of drops."""
        self.done |= self.claims <= score.lowest  # the score is never below, nor is its mean: nothing to bet on
        rare = model.rare(self.total)
        worth = ~self.done & (model.variance > 0)
        at = np.flatnonzero(worth & (self.claims < model.top) if rare else worth)
        return _Open(at, self.claims[at], score, model, rare=rare)

    def _stakes(self, claims: _Open, model: Model, left: float) -> Floats:
        """Return the bet size against each claim, 0 where nothing is left to gain or too little to lose."""
        aim = self.alpha * (_AIM if claims.drops is None else _AIM_RARE)
        chance = np.minimum(np.exp(np.minimum(self.owned[claims.at], 700.0)) * aim, 1 - 1e-9)
        rows = (chance > _HOPELESS) & ~self.done[claims.at]
        if not rows.all():
            claims.keep(rows)
            chance = chance[rows]
        if claims.drops is None:
            wise = np.exp(-(ndtri(chance) ** 2) / 2) / math.sqrt(2 * math.pi * model.variance * left) / chance
        else:
            wise = poisson_stakes.stakes(chance, claims.drops * left) / model.drop
        stakes = np.zeros(self.claims.size)
        stakes[claims.at] = np.minimum(wise, claims.most)
        return stakes

    def _settle(self, bet: Bet, seen: Seen) -> None:
        if bet.score is None or bet.hedge is None:
            return
        stakes = bet.hedge.stakes
        (at,) = stakes.nonzero()
        if at.size > 0:
            batch = seen.sample(bet.first, bet.last)
            scores = Sample(bet.score(batch.values), batch.counts)
            self.owned[at] += sums_of_logs(scores, stakes[at], self.claims[at])
            self.done |= self.owned >= math.log(1 / self.alpha) * (1 + ROUNDING)

    def _proved(self) -> float:
        proved = int(np.cumprod(self.done).sum())
        return float(self.claims[proved - 1]) if proved else -math.inf


def _renewals(edges: Sequence[int]) -> list[int]:
    """Return the edges at which claims are chosen: whenever outcomes have doubled, until enough are known."""
    chosen = [edges[0]]
    for edge in edges[1:-1]:
        known = edge * _KNOWN >= edges[-1]
        if known or edge >= 2 * chosen[-1]:
            chosen.append(edge)
        if known:
            break
    return chosen


def _batches(edges: Sequence[int]) -> Iterator[tuple[int, int, tuple[int, int]]]:
    """Yield first and last index of each bet, with those of its block."""
    for begin, end in itertools.pairwise(edges):
        size = end - begin
        count = min(size, max(1, round(_BATCHES * size / (edges[-1] - edges[0]))))
        cuts = np.linspace(0, size, count + 1).astype(int).tolist()
        for first, last in itertools.pairwise(cuts):
            yield begin + first, begin + last, (begin, end)


def expected_limit(
    propose: Callable[[Sample], Sequence[Score]], alpha: float, past: Sample, rounds: float, floor: float
) -> float:
    """Return the bound that ``rounds`` more outcomes like the past ones would probably give: an estimate."""
    score, choice = Bettor(propose, alpha, [0]).expect(past, rounds)
    if score is None:
        return floor
    return max(floor, choice.expected, Model.of(score, past).expected_limit(alpha, rounds))
