"""How alpha is split among scaled budgets or thresholds: by what a pilot predicts, never by what is certified."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from surefoot.proof.bounds.gaussian_shift import shift_down
from surefoot.proof.bounds.samples import Sample
from surefoot.proof.bounds.tangent_scores import implied
from surefoot.proof.planning.hedged_bets import expected_limit
from surefoot.proof.planning.proposals import LARGEST_SCALED_BUDGET, Past, group_values, plug_in_means

Floats = NDArray[np.float64]

_BEYOND = 20.0  # scaled budgets beyond the last that is worth a bet get this, over the outcomes of the past, of alpha
_LEAST_BEYOND = 0.1  # and never less
_MOST_BEYOND = 0.5  # nor more
_NOTHING_LEFT = 1e-3  # of the largest plug-in: a scaled budget with less gets no bet
_SPARED = 0.65  # of the loss that a scaled budget may have, where it is spared a bet of its own
_SLIGHT = 0.005  # of the range, that one scaled budget may lose where all others gain
_CERTAIN = 0.9  # of the loss predicted for bets at each: a plan from few outcomes expects too little of them
_MOST_THRESHOLDS = 64  # with more values than that other methods are better anyway
_ROUNDS = 15  # of the search for their shares
_NUDGE = 1.1  # by which they are enlarged to see what that gains


def split(
    past: Past, scaled_budgets: Floats, alpha: float, floor: float, ceiling: float | None, rounds: float
) -> Floats:
    """Split alpha among scaled budgets by what the past predicts: no bound shall lose much more than others.

    Where the bounds at other scaled budgets say as much without a bet, none is made; but those beyond the last bet get
    a tenth of alpha, evenly.
    """
    playable = scaled_budgets <= LARGEST_SCALED_BUDGET
    if playable.sum() < 2:
        return np.where(playable | (np.arange(scaled_budgets.size) == 0), alpha, 0.0)
    shares = np.zeros(scaled_budgets.size)
    shares[playable] = ShareSearch(past, scaled_budgets[playable], alpha, floor, ceiling, rounds).find_shares()
    return shares


def better_unsplit(
    past: Sample, scaled_budgets: Floats, alpha: float, floor: float, ceiling: float, rounds: float
) -> bool:
    """Return whether one bet on the mean, with all of alpha, is predicted to do more for all than one at each."""
    playable = scaled_budgets[scaled_budgets <= LARGEST_SCALED_BUDGET]
    asked = np.unique(np.append(playable, 0.0))
    search = ShareSearch(past, asked, alpha, floor, ceiling, rounds)
    shares = search.find_shares()
    bets = shares > 0
    apart = search.plain - _CERTAIN * search.expected_loss(np.log(1 / np.where(bets, shares, 1.0)))
    apart = implied(asked[bets], np.maximum(apart[bets], floor), asked, floor, ceiling).max(axis=0)
    mean = search.plain[:1] - search.expected_loss(np.full(asked.size, math.log(1 / alpha)))[:1]
    together = implied(np.zeros(1), np.maximum(mean, floor), asked, floor, ceiling)[0]
    return bool(np.all(together >= apart - _SLIGHT * (ceiling - floor)) and together.sum() >= apart.sum())


class ShareSearch:
    """The search for shares: the least factor by which all distances to the plug-in may grow."""

    def __init__(
        self, past: Past, scaled_budgets: Floats, alpha: float, floor: float, ceiling: float | None, rounds: float
    ) -> None:
        self.scaled_budgets = scaled_budgets
        self.alpha = alpha
        self.floor = floor
        self.ceiling = ceiling
        self.plain = plug_in_means(past, scaled_budgets, floor)
        tried = np.array([alpha, alpha / 32])
        limits = np.array([self._expected_limits(past, rounds, share) for share in tried.tolist()])
        # in the unit of the return, and not in that of a ceiling far above all returns
        width = self.plain.max() - floor
        lost = np.maximum(self.plain - limits, 1e-12 * (width + abs(floor)) + 1e-300)
        # what is lost grows with l = log(1/share) like root l for plain means and like l where few events count
        known = np.log(1 / tried)
        basis = np.stack([np.sqrt(known), known])
        self.model = np.maximum(np.linalg.solve(basis.T, lost), 0.0)
        self.alone = self.expected_loss(np.full(scaled_budgets.size, math.log(1 / alpha)))
        # where less than two thirds are left to certify, a little more may be lost
        left = np.maximum(self.plain - floor, 1e-3 * (self.plain.max() - floor) + 1e-300)
        self.weight = np.clip((2 / 3 * left.max() / left) ** 1.5, 1.0, 1.3)
        # a bound that comes very close by itself is the one that is missed most
        self.weight[self.alone < 0.04 * left] *= 0.7
        # the fewer outcomes were inspected, the less a forecast of nothing to be proved can be trusted
        self.beyond = min(_MOST_BEYOND, max(_LEAST_BEYOND, _BEYOND / past.size))

    def _expected_limits(self, past: Past, rounds: float, share: float) -> list[float]:
        expected_limit_at = partial(
            expected_limit, past, rounds, expected=rounds + past.size, alpha=share, floor=self.floor
        )
        return [expected_limit_at(scaled_budget=scaled) for scaled in self.scaled_budgets.tolist()]

    def expected_loss(self, logs: Floats) -> Floats:
        """Return the distance to the plug-in that is expected at each scaled budget with log(1/share)."""
        lost: Floats = self.model[0] * np.sqrt(logs) + self.model[1] * logs
        return lost

    def _allowed_loss(self, factor: float) -> Floats:
        allowed: Floats = self.alone * (1 + (factor - 1) * self.weight)
        return allowed

    def _largest_logs(self, factor: float) -> Floats:
        """Return the largest log(1/share) at which each scaled budget loses no more than it may."""
        root, line = self.model
        allowed = self._allowed_loss(factor)
        with np.errstate(divide="ignore", invalid="ignore"):
            both = ((np.sqrt(root**2 + 4 * line * allowed) - root) / (2 * line)) ** 2
            logs = np.where(line > 1e-9 * root, both, (allowed / root) ** 2)
        capped: Floats = np.nan_to_num(np.minimum(logs, 700.0), nan=700.0)
        return capped

    def _needed_bets(self, factor: float) -> NDArray[np.bool_]:
        """Return which scaled budgets need a bet of their own, the costliest being spared first."""
        logs = self._largest_logs(factor)
        limits = np.maximum(self.plain - self._allowed_loss(factor), self.floor)
        # a plan from few outcomes expects too little: one is spared only where it clearly needs no bet
        needed = np.maximum(self.plain - _SPARED * factor * self.alone, self.floor)
        says = implied(self.scaled_budgets, limits, self.scaled_budgets, self.floor, self.ceiling) >= needed
        np.fill_diagonal(says, val=True)
        bets = limits > self.floor
        for spared in np.argsort(logs):
            others = bets.copy()
            others[spared] = False
            if bets[spared] and np.all(says[others].any(axis=0) | (limits <= self.floor)):
                bets = others
        return bets

    def find_shares(self) -> Floats:
        """Return shares that sum to alpha."""
        shares = self._divide(self.alpha)
        if not self._are_beyond(shares).any():
            return shares
        # a pilot cannot predict bounds beyond the last bet: they get their part, whatever it says
        shares = self._divide(self.alpha * (1 - self.beyond))
        beyond = self._are_beyond(shares)
        return np.where(beyond, self.alpha * self.beyond * (1 - 1e-12) / max(1, beyond.sum()), shares)

    def _are_beyond(self, shares: Floats) -> NDArray[np.bool_]:
        """Return which lie beyond the last bet, though not so far that nothing is left even of the plug-in."""
        left = self.plain - self.floor
        return np.asarray((np.cumsum(shares[::-1])[::-1] == 0) & (left > _NOTHING_LEFT * left.max()))

    def _divide(self, alpha: float) -> Floats:
        """Return shares that allow all the same factor, the least for which alpha is enough."""
        low = 1.0
        high = 30.0
        for _ in range(25):
            factor = math.sqrt(low * high)
            need = float(np.exp(-self._largest_logs(factor))[self._needed_bets(factor)].sum())
            if need <= alpha:
                high = factor
            else:
                low = factor
        bets = self._needed_bets(high)
        if not bets.any():
            bets[0] = True
        needs = np.where(bets, np.exp(-self._largest_logs(high)), 0.0)
        shares: Floats = needs * (alpha * (1 - 1e-12) / needs.sum())
        return shares


def threshold_shares(
    pilot: Sample, scaled_budgets: Floats, alpha: float, floor: float, n: int
) -> tuple[Floats, Floats]:
    """Return thresholds above the floor, and a share of alpha for each, for n more returns like those of the pilot.

    ``pilot``  values to take for thresholds, with the weight of each

    At the best split the last bit of alpha is worth the same everywhere. Shares in proportion to the gain of enlarging
    them by a given factor have that property once they no longer change.
    """
    rough = group_values(pilot, _MOST_THRESHOLDS)
    points = rough.values[rough.values > floor]
    if points.size == 0:
        return np.empty(0), np.empty(0)
    total = rough.counts.sum()
    missed = (np.cumsum(rough.counts) - rough.counts)[rough.values > floor] / total
    gaps = np.diff(points, prepend=floor)
    shares = np.full(points.size, alpha / points.size)
    for _ in range(_ROUNDS):
        limits = _expected_proportions(missed, shares, n)
        served = _served_gaps(limits, gaps)
        more = shift_down(_expected_proportions(missed, shares * _NUDGE, n), scaled_budgets[:, None])
        gained = (served * (more - shift_down(limits, scaled_budgets[:, None]))).sum(axis=0)
        gained = np.maximum(gained, 1e-12 * gaps)
        shares = np.sqrt(shares * alpha * gained / gained.sum())
        shares *= alpha / shares.sum()
    return points, shares * (1 - 1e-12)


def _expected_proportions(missed: Floats, shares: Floats, n: int) -> Floats:
    """Return the bound at each threshold, if the sample is as expected."""
    reached = n * (1 - missed)
    limits = np.nan_to_num(betaincinv(np.maximum(reached, 1e-9), n - reached + 1, np.minimum(shares, 0.999)))
    return np.clip(limits, 0.0, 1.0)


def _served_gaps(limits: Floats, gaps: Floats) -> Floats:
    """Return how much of the range each bound serves: it holds for all smaller thresholds too."""
    best = np.maximum.accumulate(limits[::-1])[::-1]
    last = np.searchsorted(-best, -best, side="right") - 1  # the last point with the best bound from here on
    return np.bincount(last, weights=gaps, minlength=gaps.size).astype(np.float64)
