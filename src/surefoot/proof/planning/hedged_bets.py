"""Bets that depend on the claim: for a fixed number of outcomes, tighter by a quarter than the same bets against all.

A bettor with the same bets against all claims must, for Gaussian outcomes, exceed a claim by sqrt(2 log(1/alpha)) =
2.45 standard errors to reach a capital of 1/alpha. But more than 1/alpha is of no use, so against a single claim m
it is better to buy, step by step, an option that pays 1/alpha if the outcomes end above m by about z_alpha = 1.64
standard errors, and else nothing. With capital W and a variance V still to come, and p = alpha W its chance to pay,
that means to bet

    lambda = phi(z) / (p sqrt(V)),      z = Phi^-1(1 - p).

Where few low outcomes decide, their sum is far from Gaussian, and the option is one on their number
(``poisson_stakes``). Then V belongs to the claim too: a lower mean means more of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv, ndtri

from surefoot.proof.bounds.samples import OrderedOutcomes
from surefoot.proof.bounds.settle import Bet, CapitalAccount
from surefoot.proof.planning import poisson_stakes
from surefoot.proof.planning.proposals import Past, Proposal, known_of, propose_scores
from surefoot.proof.planning.stakes import Aim, Candidates, choose_proposal

Floats = NDArray[np.float64]

_CLAIMS = 400  # close to each other, where the bound is expected
_FAR = 32  # and below
_RARE = 0.02  # skewness of the sum of all scores, downward, from which on low outcomes are counted one by one
_REACH = 3.5  # claims reach so many standard errors, of what is known and of what is to come, to both sides
_BATCHES = 600  # between two bets
_KNOWN = 10  # claims are fixed once one in so many outcomes is known
_BLUR = 0.005  # of all outcomes: variance added to what is to come, for an option on a sharp edge cannot be hedged
_MANY = 10_000  # outcomes from which on it is so much; with fewer, batches are smaller
_AIM = 0.93  # the option pays 1 / (alpha * _AIM), so that 1/alpha is reached before the end
_AIM_RARE = 0.97  # the same where low outcomes are counted
_HOPELESS = 1e-7  # a chance below which a claim is given up


@dataclass(frozen=True)
class ScoreModel:
    """What the past lets one expect of a score: its mean, its variance and the size of its drops."""

    mean: float
    variance: float
    drop: float  # minus the third central moment over the variance: the h of a score that is c, rarely c - h

    @classmethod
    def of(cls, proposal: Proposal, past: Past) -> ScoreModel:
        """Return the moments of the past with some doubt."""
        [scores], weights = Candidates.of([proposal], past).with_doubt()
        mean = float(weights @ scores)
        variance = float(weights @ (scores - mean) ** 2)
        third = float(weights @ (scores - mean) ** 3)
        return cls(mean, variance, -third / variance if variance > 0 else 0.0)

    @property
    def top(self) -> float:
        """The c of such a score."""
        return self.mean + self.variance / self.drop

    def is_rare(self, rounds: float) -> bool:
        """Return whether drops are so rare, or so deep, that the sum of so many scores is skewed."""
        return self.drop > _RARE * math.sqrt(self.variance * rounds)

    def expected_limit(self, alpha: float, rounds: float) -> float:
        """Return the bound that hedged bets on ``rounds`` outcomes would probably give: an estimate."""
        if self.is_rare(rounds):
            drops = rounds * self.variance / self.drop**2
            most = float(gammaincinv(drops + 1, 1 - alpha * _AIM_RARE))
            return self.top - self.drop * most * (1 + _BLUR) / rounds
        errors = float(ndtri(1 - alpha * _AIM)) * math.sqrt(1 + _BLUR) + float(ndtri(_AIM)) * math.sqrt(_BLUR)
        return self.mean - errors * math.sqrt(self.variance / rounds)


class _OpenClaims:
    """The claims that the bets of a block are against: those not yet refuted or given up, fewer from bet to bet.

    ``at``             their indices
    ``largest_stake``  the largest bet size against each: no score can lose more than the capital
    ``drops``          where low outcomes are counted one by one, the drops per outcome that each claim means
    """

    def __init__(
        self, at: NDArray[np.intp], claims: Floats, proposal: Proposal, model: ScoreModel, *, rare: bool
    ) -> None:
        self.at = at
        self.largest_stake = 0.999 / (claims - proposal.score.lowest)
        self.drops = (model.top - claims) / model.drop if rare else None

    def keep(self, rows: NDArray[np.bool_]) -> None:
        """Give up all others."""
        self.at = self.at[rows]
        self.largest_stake = self.largest_stake[rows]
        if self.drops is not None:
            self.drops = self.drops[rows]


@dataclass(frozen=True, eq=False)
class _Block:
    """What the bets on the returns of a block have in common."""

    proposal: Proposal
    model: ScoreModel
    open_claims: _OpenClaims


class HedgedPlanner:
    """Bets with a bet size for each of many claims, with a known number of outcomes.

    ``edges``  where scores are chosen anew; the last is the number of outcomes
    ``begun``  the first outcome that is bet on, here or by those whose capital was inherited
    """

    aim = _AIM

    def __init__(self, edges: Sequence[int], begun: int | None = None) -> None:
        self.first = edges[0]
        self.total = edges[-1]
        self._begun = edges[0] if begun is None else begun
        # an option is only hedged between bets: the more outcomes each is on, the less sharp its edge may be
        self._blur = _BLUR * min(1.0, self.total / _MANY)
        self._renewals = _renewal_edges(edges)
        self._batches = list(_split_batches(edges))
        self._next = 0
        self._begin = -1
        self._block: _Block | None = None
        self._claims: Floats | None = None

    def next_bet(self, past: OrderedOutcomes, account: CapitalAccount) -> Bet | None:
        """Return the bet on the next batch; None after the last."""
        if self._next == len(self._batches):
            return None
        first, last, (begin, end) = self._batches[self._next]
        # score and claims are chosen once for a block, bet sizes anew for each of its batches
        if self._begin != begin:
            self._begin = begin
            self._block = self._plan_block(known_of(past), begin, account)
        if self._block is None or self._claims is None:
            # nothing is worth a bet: the whole block is left out
            while self._next < len(self._batches) and self._batches[self._next][0] < end:
                self._next += 1
            return Bet(first=first, last=end, block=(begin, end))
        self._next += 1
        left = self.total - first + self._blur * self.total
        stakes = self._stakes_on(self._claims, self._block, account, left)
        return Bet(
            first=first,
            last=last,
            block=(begin, end),
            guesses=self._block.proposal.guesses,
            hedge=(self._claims, stakes),
            cutoff=self._block.proposal.cutoff,
        )

    def _plan_block(self, past: Past, begin: int, account: CapitalAccount) -> _Block | None:
        """Choose the score of a block, and the claims when little is known and once more when enough is."""
        proposals = propose_scores(past, self.total, scaled_budget=account.scaled_budget, floor=account.floor)
        # a score for the bound after all outcomes that are bet on, to which the block contributes, not for a bound from
        # the block alone, nor from those alone that are left: no score gains against claims above its own maximum
        proposal, _ = choose_proposal(proposals, past, Aim(account.alpha, self.total - self._begun))
        if proposal is None:
            return None
        model = ScoreModel.of(proposal, past)
        if self._claims is None or begin in self._renewals:
            self._claims = self._choose_claims(model, begin, account.floor)
        return self._open_block(self._claims, proposal, model, account)

    def _choose_claims(self, model: ScoreModel, begin: int, floor: float) -> Floats:
        if model.is_rare(self.total):
            claims = self._claims_of_drops(model, floor)
        else:
            claims = self._claims_near_mean(model, begin, floor)
        return claims[claims > floor]

    def _claims_near_mean(self, model: ScoreModel, begin: int, floor: float) -> Floats:
        left = self.total - begin
        spread = math.sqrt(model.variance)
        width = _REACH * spread * (1 / math.sqrt(left) + 1 / math.sqrt(begin))
        near = model.mean - 2 * spread / math.sqrt(left) + width * np.linspace(-1, 1, _CLAIMS)
        # below, as far as the floor, in case the past was misleading
        return np.concatenate([np.linspace(floor, max(near[0], floor), _FAR, endpoint=False), near])

    def _claims_of_drops(self, model: ScoreModel, floor: float) -> Floats:
        """Return claims of all numbers of drops: close to each other around the expected one, and some elsewhere."""
        drops = self.total * model.variance / model.drop**2
        spread = math.sqrt(drops)
        # ten standard deviations to both sides, and fifteen where more drops come than expected
        few = max(2.0, drops / 4, drops - 10 * spread)
        many = drops + 10 + 15 * spread
        near = model.drop / self.total * np.geomspace(few, many, _CLAIMS - _CLAIMS // 4)
        even = np.linspace(floor, model.top, _CLAIMS // 4, endpoint=False)
        return np.unique(np.concatenate([even, model.top - near[near < model.top - floor]]))

    def _open_block(self, claims: Floats, proposal: Proposal, model: ScoreModel, account: CapitalAccount) -> _Block:
        """Return the block with the claims that are worth a bet: none above the top of drops is, nor a refuted one."""
        _, _, refuted = account.carried_to(claims)
        worth = ~(refuted | (claims <= proposal.score.lowest)) & (model.variance > 0)
        rare = model.is_rare(self.total)
        if rare:
            worth = worth & (claims < model.top)
        at = np.flatnonzero(worth)
        return _Block(proposal, model, _OpenClaims(at, claims[at], proposal, model, rare=rare))

    def _stakes_on(self, claims: Floats, block: _Block, account: CapitalAccount, left: float) -> Floats:
        """Return the bet size against each claim, 0 where nothing is left to gain or too little to lose."""
        log_capital, _, refuted = account.carried_to(claims)
        still_open = block.open_claims
        aim = account.alpha * (self.aim if still_open.drops is None else _AIM_RARE)
        chance = np.minimum(np.exp(np.minimum(log_capital[still_open.at], 700.0)) * aim, 1 - 1e-9)
        # claims that are refuted, or nearly certain to stand, need no more bets in this block
        rows = (chance > _HOPELESS) & ~refuted[still_open.at]
        if not rows.all():
            still_open.keep(rows)
            chance = chance[rows]
        model = block.model
        if still_open.drops is None:
            wise = np.exp(-(ndtri(chance) ** 2) / 2) / math.sqrt(2 * math.pi * model.variance * left) / chance
        else:
            wise = poisson_stakes.interpolated_stakes(chance, still_open.drops * left) / model.drop
        stakes = np.zeros(claims.size)
        stakes[still_open.at] = np.minimum(wise, still_open.largest_stake)
        return stakes


def _renewal_edges(edges: Sequence[int]) -> list[int]:
    """Return the edges at which claims are chosen: whenever outcomes have doubled, until enough are known."""
    chosen = [edges[0]]
    for edge in edges[1:-1]:
        known = edge * _KNOWN >= edges[-1]
        if known or edge >= 2 * chosen[-1]:
            chosen.append(edge)
        if known:
            break
    return chosen


def _split_batches(edges: Sequence[int]) -> Iterator[tuple[int, int, tuple[int, int]]]:
    """Yield first and last index of each bet, with those of its block."""
    for begin, end in itertools.pairwise(edges):
        size = end - begin
        count = min(size, max(1, round(_BATCHES * size / (edges[-1] - edges[0]))))
        cuts = np.linspace(0, size, count + 1).astype(int).tolist()
        for first, last in itertools.pairwise(cuts):
            yield begin + first, begin + last, (begin, end)


def expected_limit(
    past: Past, rounds: float, *, expected: float, alpha: float, scaled_budget: float, floor: float
) -> float:
    """Return the bound that ``rounds`` more outcomes like the past ones would probably give: an estimate.

    Args:
        past: What is known.
        rounds: Number of outcomes that are bet on.
        expected: Number of outcomes in all, those that are only inspected included.
        alpha: Error probability.
        scaled_budget: Where the bound of the worst-case mean is.
        floor: The lowest return that is possible.
    """
    proposals = propose_scores(past, expected, scaled_budget=scaled_budget, floor=floor)
    proposal, choice = choose_proposal(proposals, past, Aim(alpha, rounds))
    if proposal is None:
        return floor
    return max(floor, choice.expected, ScoreModel.of(proposal, past).expected_limit(alpha, rounds))
