"""Bets that depend on the claim: for a fixed number of outcomes, tighter by a quarter where many outcomes count.

A bettor with the same bets against all claims must, for Gaussian outcomes, exceed a claim by sqrt(2 log(1/alpha)) =
2.45 standard errors to reach a capital of 1/alpha. But more than 1/alpha is of no use, so against a single claim m
it is better to buy, step by step, an option that pays 1/alpha if the outcomes end above m by about z_alpha = 1.64
standard errors, and else nothing. With capital W and a variance V still to come, and p = alpha W its chance to pay,
that means to bet

    lambda = phi(z) / (p sqrt(V)),      z = Phi^-1(1 - p).

Claims m_1 < m_2 < ... are fixed before anything is bet; the bets against m_j serve for all m in (m_(j-1), m_j],
against which the capital is at least as large. The bound is the last m_j such that 1/alpha was reached against
m_1, ..., m_j. It exceeds mu only if 1/alpha was reached against the first m_j >= mu, hence against mu, and by Ville's
inequality (``betting``) that has a probability of at most alpha.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from surefoot.proof.bounds.betting import ROUNDING
from surefoot.proof.bounds.bettors import Bet, Bettor, Hedge, Score
from surefoot.proof.bounds.samples import Sample, Seen
from surefoot.proof.bounds.stakes import Candidate

Floats = NDArray[np.float64]

_CLAIMS, _FAR = 400, 32
_SKEWED = -0.35  # skewness of the sum of all scores beyond which single outcomes count too much to be hedged
_REACH = 3.5  # claims reach so many standard errors, of what is known and of what is to come, to both sides
_BATCHES = 600  # between two bets
_KNOWN = 5  # claims are fixed once one in so many outcomes is known
_BLUR = 0.005  # of all outcomes: variance added to what is to come, for an option on a sharp edge cannot be hedged
_AIM = 0.93  # the option pays 1 / (alpha * _AIM), so that 1/alpha is reached before the end
_SMALL, _FEW = 0.02, 200  # largest factor, and fewest outcomes, for which power sums replace logarithms
_PIECE = 20_000  # outcomes whose logarithms against all claims are computed at once
_HOPELESS = 1e-7  # a chance below which a claim is given up


class Hedger:
    """Bets on one quantity against many claims, with a known number of outcomes."""

    def __init__(
        self, propose: Callable[[Sample], Sequence[Score]], alpha: float, edges: Sequence[int], floor: float
    ) -> None:
        later = [index for index, edge in enumerate(edges[:-1]) if edge * _KNOWN >= edges[-1]]
        start = later[0] if later else len(edges) - 2
        # until enough is known to fix claims, the bets against all of them are the same
        self.before = Bettor(propose, alpha, edges[: start + 1], horizon=edges[-1])
        self.alpha, self.total, self.floor, self.first = alpha, edges[-1], floor, edges[0]
        self.claims = np.empty(0)
        self.fixed: list[tuple[int, int, float | None]] = []  # first, count and cut-off of each block
        self._batches = list(_batches(edges[start:]))
        self._next = 0
        self._block: tuple[int, Score | None, float] = (-1, None, 0.0)  # its first index, score and expected variance

    def next_bet(self, seen: Seen) -> Bet | None:
        """Return the bet on what comes after the outcomes seen, which end where a bet ends; None after the last."""
        self.advance(seen)
        return self.before.next_bet(seen) or (self._planned(seen) if self._next < len(self._batches) else None)

    def advance(self, seen: Seen) -> None:
        """Settle all bets on outcomes that have come; there is a bound after the last of them."""
        self.before.advance(seen)
        while self._next < len(self._batches) and seen.size >= self._batches[self._next][1]:
            self._settle(self._planned(seen), seen)
            self._next += 1

    def limit(self) -> float:
        """Return the lower bound of the quantity, or minus infinity."""
        return self._proved() if self._next == len(self._batches) else -math.inf

    def _planned(self, seen: Seen) -> Bet:
        first, last, (begin, end) = self._batches[self._next]
        if self._block[0] != begin:
            self._block = self._settled(seen, begin, end)
        _, score, variance = self._block
        if score is None:
            return Bet(first, end, None)
        left = self.total - first + _BLUR * self.total
        return Bet(first, last, score, hedge=Hedge(self.claims, self._stakes(score, variance * left), (begin, end)))

    def _settled(self, seen: Seen, begin: int, end: int) -> tuple[int, Score | None, float]:
        """Choose the score of a block, and the claims if there are none yet."""
        past = seen.sample(0, begin)
        score, _ = self.before.expect(past, self.total - begin)
        if score is None:
            return begin, None, 0.0
        mean, variance, _ = moments(score, past)
        if self.claims.size == 0:
            self._settle_claims(mean, variance, begin)
        self.fixed.append((begin, end - begin, score.cutoff))
        return begin, score, variance

    def _settle_claims(self, mean: float, variance: float, begin: int) -> None:
        left = self.total - begin
        width = _REACH * math.sqrt(variance) * (1 / math.sqrt(left) + 1 / math.sqrt(begin))
        near = mean - 2 * math.sqrt(variance / left) + width * np.linspace(-1, 1, _CLAIMS)
        # below, as far as the floor, in case the past was misleading
        below = np.linspace(self.floor, near[0], _FAR, endpoint=False)[1:]
        self.claims = np.concatenate([below, near]) if near[0] > self.floor else near[near > self.floor]
        self.owned = self._owned_before()
        self.done = np.zeros(self.claims.size, dtype=bool)

    def _owned_before(self) -> Floats:
        """Return the logarithm of the capital against each claim; nothing where a claim is out of range."""
        owned = np.zeros(self.claims.size)
        for played in self.before.rounds:
            owned[self.claims > played.highest_claim] = -math.inf
            fit = np.isfinite(owned)
            if fit.any():
                owned[fit] += sums_of_logs(played.outcomes, np.full(int(fit.sum()), played.stake), self.claims[fit])
        return owned

    def _stakes(self, score: Score, variance: float) -> Floats:
        """Return the bet size against each claim, 0 where nothing is left to gain or too little to lose."""
        stakes = np.zeros(self.claims.size)
        chance = np.minimum(np.exp(np.minimum(self.owned, 700.0)) * self.alpha * _AIM, 1 - 1e-9)
        self.done |= self.claims <= score.lowest  # the score is never below, nor is its mean: nothing to bet on
        open_ = np.flatnonzero(~self.done & (chance > _HOPELESS))
        if variance > 0:
            p = chance[open_]
            wise = np.exp(-(ndtri(p) ** 2) / 2) / math.sqrt(2 * math.pi * variance) / p
            stakes[open_] = np.minimum(wise, 0.999 / (self.claims[open_] - score.lowest))
        return stakes

    def _settle(self, bet: Bet, seen: Seen) -> None:
        if bet.score is None or bet.hedge is None:
            return
        stakes = bet.hedge.stakes
        at = np.flatnonzero(stakes)
        if at.size > 0:
            batch = seen.sample(bet.first, bet.last)
            scores = Sample(bet.score(batch.values), batch.counts)
            self.owned[at] += sums_of_logs(scores, stakes[at], self.claims[at])
            self.done |= self.owned >= math.log(1 / self.alpha) * (1 + ROUNDING)

    def _proved(self) -> float:
        if self.claims.size == 0:
            return self.before.limit()
        proved = int(np.argmin(self.done)) if not self.done.all() else self.done.size
        return float(self.claims[proved - 1]) if proved else -math.inf


def _batches(edges: Sequence[int]) -> Iterator[tuple[int, int, tuple[int, int]]]:
    """Yield first and last index of each bet, with those of its block."""
    for begin, end in itertools.pairwise(edges):
        size = end - begin
        count = min(size, max(1, round(_BATCHES * size / (edges[-1] - edges[0]))))
        cuts = np.linspace(0, size, count + 1).astype(int).tolist()
        for first, last in itertools.pairwise(cuts):
            yield begin + first, begin + last, (begin, end)


def sums_of_logs(batch: Sample, stakes: Floats, claims: Floats) -> Floats:
    """Return sum log(1 + stake (y - claim)) over a batch, for each stake and claim, rounded down.

    Where |stake (y - claim)| <= r, a small number, the first four terms of the series of log(1 + x) and power sums of
    the batch are enough: what is left out is never below -r^5 / (5 (1 - r)^5).
    """
    mean = float(batch.counts @ batch.values) / batch.size
    gap, away = mean - claims, batch.values - mean
    near = np.abs(away) <= _SMALL / stakes.max() - np.abs(gap).max()
    if batch.size < _FEW or batch.counts[near].sum() < batch.size / 2:
        return _logs(batch, stakes, claims)
    power = (np.vander(away[near], 5, increasing=True).T @ batch.counts[near]).tolist()
    series = np.zeros(claims.shape)
    for k in range(4, 0, -1):  # sum (away + gap)^k, by the binomial theorem
        sums = np.full(claims.shape, power[0])
        for i in range(1, k + 1):
            sums = sums * gap + math.comb(k, i) * power[i]
        series = stakes * (sums / k - series)
    largest = stakes * (np.abs(away[near]).max() + np.abs(gap))
    ratio = largest / (1 - largest)
    left_out = power[0] / 5 * ratio * (ratio * ratio) * (ratio * ratio)
    far = _logs(Sample(batch.values[~near], batch.counts[~near]), stakes, claims)
    return np.asarray(series - left_out + far - ROUNDING * (power[0] * largest + 1), dtype=np.float64)


def _logs(batch: Sample, stakes: Floats, claims: Floats) -> Floats:
    """Return the same sums of logarithms, term by term, for so many outcomes at a time."""
    sums = np.zeros(claims.shape)
    for first in range(0, max(1, batch.values.size), _PIECE):
        values, counts = batch.values[first : first + _PIECE], batch.counts[first : first + _PIECE]
        logs = np.log1p(stakes[:, None] * (values - claims[:, None]))
        sums += logs @ counts - ROUNDING * (np.abs(logs) @ counts + 1)
    return sums


def moments(score: Score, past: Sample) -> tuple[float, float, float]:
    """Return mean, variance and skewness of the score, as the past with some doubt has them."""
    rough = past.grouped()
    scores, weights = Candidate(score(rough.values), rough.counts, score.lowest).with_doubt()
    mean = float(weights @ scores)
    variance = float(weights @ (scores - mean) ** 2)
    third = float(weights @ (scores - mean) ** 3)
    return mean, variance, third / variance**1.5 if variance > 0 else -math.inf


def player(
    propose: Callable[[Sample], Sequence[Score]], alpha: float, edges: Sequence[int], floor: float, pilot: Sample
) -> Bettor | Hedger:
    """Return who should bet when the number of outcomes is known, by what a pilot shows."""
    bettor = Bettor(propose, alpha, edges)
    score, _ = bettor.expect(pilot, edges[-1] - edges[0])
    return bettor if score is None or not _hedged(score, pilot, edges[-1]) else Hedger(propose, alpha, edges, floor)


def expected_limit(
    propose: Callable[[Sample], Sequence[Score]], alpha: float, past: Sample, rounds: float, floor: float
) -> float:
    """Return the bound that ``rounds`` more outcomes like the past ones would probably give: an estimate."""
    score, choice = Bettor(propose, alpha, [0]).expect(past, rounds)
    if score is None:
        return floor
    if not _hedged(score, past, rounds):
        return max(floor, choice.expected)
    mean, variance, _ = moments(score, past)
    errors = float(ndtri(1 - alpha * _AIM)) * math.sqrt(1 + _BLUR) + float(ndtri(_AIM)) * math.sqrt(_BLUR)
    return max(floor, choice.expected, mean - errors * math.sqrt(variance / rounds))


def _hedged(score: Score, past: Sample, rounds: float) -> bool:
    return moments(score, past)[2] / math.sqrt(rounds) > _SKEWED
