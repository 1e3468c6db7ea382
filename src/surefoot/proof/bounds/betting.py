"""Bounds of a mean by betting (Waudby-Smith and Ramdas 2023): for fixed n, and anytime-valid.

Outcomes y_1, y_2, ... never fall below a known ``lowest``, and given its past each has a mean of at most mu.

(a) Against the candidate mean m, the claim "mu <= m", a bettor with capital 1 bets lambda_i >= 0, fixed before y_i is
seen. Its capital is then

    W_n(m) = product over i of (1 + lambda_i (y_i - m)),     as long as lambda_i <= 1 / (m - lowest).

(b) For m = mu no factor is negative and none has a mean above 1, so W(mu) is a nonnegative supermartingale and by
Ville's inequality P(W_n(mu) >= 1/alpha for some n) <= alpha.

(c) W_n(m) falls as m grows. Hence

    P( there is an n with mu < sup { m: W_n(m) >= 1/alpha } ) <= alpha.

Bet sizes decide how tight that is, never whether it is true: they may be any function of the past.

(d) Several bettors k bet against the same claims, each with its own scores and bet sizes, and with a share alpha_k of
alpha. The sum of alpha_k W_k(mu) is a nonnegative supermartingale that starts at the sum of the shares, so it reaches 1
with at most that probability; it falls as m grows, as each part does. It is never below its largest part, so nothing is
lost against bounds that hold one by one at alpha_k each. A part that the bet sizes are not valid for counts as 0, from
the bet on that could lose more than the capital: what falls to 0 remains a supermartingale.

``Capital`` is W_n for bet sizes that are the same against all claims; ``sums_of_logs`` is log W_n for bet sizes that
depend on the claim.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surefoot.proof.bounds.samples import Sample

Floats = NDArray[np.float64]

LOG_TERM_ERROR = 1e-13  # relative, allowed for in each term of a sum of logarithms: a thousand units in the last place
INSIDE_FACTOR = 1 - 1e-9  # how far a claim keeps from the value at which a factor could reach 0
_SMALL = 0.02  # largest |lambda (y - m)| for which power sums replace logarithms
_FEW_OUTCOMES = 200  # for fewer the logarithms themselves are as fast
_BATCH = 20_000  # outcomes whose logarithms against all claims are computed at once


@dataclass(frozen=True)
class BetRound:
    """Outcomes with one bet size, fixed before any of them was seen."""

    outcomes: Sample
    stake: float
    lowest: float
    first: int = 0  # the index of the first of them
    cutoff: float | None = None  # how the score was made of those before, where there is a choice

    @property
    def highest_claim(self) -> float:
        """The largest m for which no outcome can make the bettor's factor negative (a)."""
        if self.stake > 0:
            return self.lowest + INSIDE_FACTOR / self.stake
        return math.inf


class Capital:
    """The capital of a bettor, as a function of the claim m that it bet against."""

    def __init__(self, rounds: Sequence[BetRound] = ()) -> None:
        self.rounds = list(rounds)

    def with_round(self, played: BetRound) -> Capital:
        """Return the capital after one more round; without a bet it is the same."""
        if played.stake > 0:
            return Capital([*self.rounds, played])
        return self

    @property
    def highest_claim(self) -> float:
        """The largest claim that all bet sizes were valid for."""
        return min((played.highest_claim for played in self.rounds), default=math.inf)

    def log_capital(self, claim: float) -> tuple[float, float]:
        """Return log W(claim), rounded down, and its slope."""
        total = 0.0
        slope = 0.0
        size = 0.0
        for played in self.rounds:
            # (a) equal outcomes have equal factors
            factor = played.stake * (played.outcomes.values - claim)
            logs = np.log1p(factor)
            total += float(played.outcomes.counts @ logs)
            size += float(played.outcomes.counts @ np.abs(logs))
            slope -= float(played.outcomes.counts @ (played.stake / (1 + factor)))
        return total - LOG_TERM_ERROR * (size + 1), slope


def joint_limit(capitals: Sequence[Capital], shares: Sequence[float]) -> float:
    """Return the largest claim found that several bettors have refuted together (d), or minus infinity.

    Args:
        capitals: Of bettors against claims about the same mean.
        shares: The alpha of each.
    """
    rounds = [played for capital in capitals for played in capital.rounds]
    if not rounds:
        return -math.inf
    alpha = math.fsum(shares)
    weights = [share / alpha for share in shares]
    # (b) 1/alpha, rounded up
    aim = math.log(1 / alpha) * (1 + LOG_TERM_ERROR)
    # above what all bet sizes of all bettors are valid for nothing is refuted
    highest = max(capital.highest_claim for capital in capitals if capital.rounds)
    below = min(highest, *(float(played.outcomes.values[0]) for played in rounds))
    step = max(highest - below, abs(highest) * 1e-9, 1e-300)
    # (c) the capital falls as the claim grows: go down to a claim against which it suffices, then up from there
    while _joint_log_capital(capitals, weights, below)[0] < aim:
        below -= step
        step *= 2
        if not math.isfinite(below) or step > 1e12 * max(1.0, abs(highest)):
            return -math.inf
    above = highest
    claim = below
    for attempt in range(200):
        wealth, slope = _joint_log_capital(capitals, weights, claim)
        if wealth >= aim:
            below = claim
        else:
            above = claim
        if above - below <= 1e-13 * max(abs(above), abs(below)):
            break
        # the logarithm of one capital is concave in the claim, so Newton's step from above lands above: aim a bit short
        newton = math.nan
        if slope < 0:
            newton = claim - (wealth - aim * (1 + 1e-12)) / slope
        if wealth >= aim and abs(newton - claim) <= 1e-12 * max(abs(claim), 1e-300):
            break
        claim = newton
        # where a bettor's bet sizes end, the sum jumps, and Newton's steps may creep
        if not below < newton < above or attempt % 4 == 3:
            claim = (below + above) / 2
    return below


def _joint_log_capital(capitals: Sequence[Capital], weights: Sequence[float], claim: float) -> tuple[float, float]:
    """Return the logarithm of the weighted sum of capitals against a claim, rounded down, and its slope."""
    logs = []
    slopes = []
    for capital, weight in zip(capitals, weights, strict=True):
        # (d) one whose bet sizes are not valid counts as 0
        if claim <= capital.highest_claim:
            value, slope = capital.log_capital(claim)
            logs.append(value + math.log(weight))
            slopes.append(slope)
    if not logs:
        return -math.inf, 0.0
    largest = max(logs)
    parts = [math.exp(value - largest) for value in logs]
    total = math.fsum(parts)
    slope = math.fsum(part * one for part, one in zip(parts, slopes, strict=True)) / total
    # a few roundings for each part, all smaller than that
    return largest + math.log(total) - LOG_TERM_ERROR * (len(parts) - 1), slope


def sums_of_logs(batch: Sample, stakes: Floats, claims: Floats) -> Floats:
    """Return sum log(1 + stake (y - claim)) over a batch, for each stake and claim, rounded down.

    Where |stake (y - claim)| <= r, a small number, the first four terms of the series of log(1 + x) and power sums of
    the batch are enough: what is left out is never below -r^5 / (5 (1 - r)^5).
    """
    size = batch.size
    if size < _FEW_OUTCOMES:
        return _sums_term_by_term(batch, stakes, claims)
    mean = float(batch.counts @ batch.values) / size
    gap = mean - claims
    away = batch.values - mean
    near = np.abs(away) <= _SMALL / stakes.max() - np.abs(gap).max()
    if batch.counts[near].sum() < size / 2:
        return _sums_term_by_term(batch, stakes, claims)
    power = (np.vander(away[near], 5, increasing=True).T @ batch.counts[near]).tolist()
    series = np.zeros(claims.shape)
    # sum of (away + gap)^k, by the binomial theorem, from the last term of the series to the first
    for k in range(4, 0, -1):
        sums = np.full(claims.shape, power[0])
        for i in range(1, k + 1):
            sums = sums * gap + math.comb(k, i) * power[i]
        series = stakes * (sums / k - series)
    largest = stakes * (np.abs(away[near]).max() + np.abs(gap))
    ratio = largest / (1 - largest)
    left_out = power[0] / 5 * ratio * (ratio * ratio) * (ratio * ratio)
    far = _sums_term_by_term(Sample(batch.values[~near], batch.counts[~near]), stakes, claims)
    return np.asarray(series - left_out + far - LOG_TERM_ERROR * (power[0] * largest + 1), dtype=np.float64)


def _sums_term_by_term(batch: Sample, stakes: Floats, claims: Floats) -> Floats:
    """Return the same sums, for so many outcomes at a time."""
    sums = np.zeros(claims.shape)
    for first in range(0, max(1, batch.values.size), _BATCH):
        values = batch.values[first : first + _BATCH]
        counts = batch.counts[first : first + _BATCH]
        logs = np.log1p(stakes[:, None] * (values - claims[:, None]))
        sums += logs @ counts - LOG_TERM_ERROR * (np.abs(logs) @ counts + 1)
    return sums
