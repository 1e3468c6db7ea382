"""How alpha is split among scaled budgets or thresholds: by what a pilot predicts, never by what is certified."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from surefoot.proof.bounds.gaussian_shift import shift_down
from surefoot.proof.bounds.samples import Sample
from surefoot.proof.bounds.tangent_scores import implied
from surefoot.proof.planning.hedged_bets import expected_limit
from surefoot.proof.planning.proposals import LARGEST_SCALED_BUDGET, plug_in

Floats = NDArray[np.float64]

_BEYOND = 0.1  # of alpha, for radii beyond the last that is worth a bet: a pilot cannot predict their bounds
_HOPELESS = 1e-3  # of the largest plug-in: a radius with less gets no bet
_SPARED = 0.65  # of the loss that a radius may have, where it is spared a bet of its own
_SLIGHT = 0.005  # of the range, that one radius may lose where all others gain
_CERTAIN = 0.9  # of the loss predicted for bets at each radius: a plan from few outcomes expects too little of them
_MOST = 64  # thresholds; with more values than that other methods are better anyway
_ROUNDS, _NUDGE = 15, 1.1  # of the search for their shares


def split(past: Sample, radii: Floats, alpha: float, floor: float, ceiling: float | None, rounds: float) -> Floats:
    """Split alpha among radii (scaled budgets) by what the past predicts: no bound shall lose much more than others.

    Where the bounds at other radii say as much without a bet, none is made; but radii beyond the last bet get a tenth
    of alpha, evenly.
    """
    playable = radii <= LARGEST_SCALED_BUDGET
    if playable.sum() < 2:
        return np.where(playable | (np.arange(radii.size) == 0), alpha, 0.0)
    shares = np.zeros(radii.size)
    shares[playable] = Split(past, radii[playable], alpha, floor, ceiling, rounds).shares()
    return shares


def better_unsplit(past: Sample, radii: Floats, alpha: float, floor: float, ceiling: float, rounds: float) -> bool:
    """Return whether one bet on the mean, with all of alpha, is predicted to do more for all than one at each."""
    radii = np.unique(np.append(radii[radii <= LARGEST_SCALED_BUDGET], 0.0))
    search = Split(past, radii, alpha, floor, ceiling, rounds)
    shares = search.shares()
    bets = shares > 0
    apart = search.plain - _CERTAIN * search.lost(np.log(1 / np.where(bets, shares, 1.0)))
    apart = implied(radii[bets], np.maximum(apart[bets], floor), radii, floor, ceiling).max(axis=0)
    mean = search.plain[:1] - search.lost(np.full(radii.size, math.log(1 / alpha)))[:1]
    together = implied(np.zeros(1), np.maximum(mean, floor), radii, floor, ceiling)[0]
    return bool(np.all(together >= apart - _SLIGHT * (ceiling - floor)) and together.sum() >= apart.sum())


class Split:
    """The search for shares: the least factor by which all distances to the plug-in may grow."""

    def __init__(
        self, past: Sample, radii: Floats, alpha: float, floor: float, ceiling: float | None, rounds: float
    ) -> None:
        self.radii, self.alpha, self.floor, self.ceiling = radii, alpha, floor, ceiling
        self.plain = plug_in(past, radii, floor)
        total = rounds + float(past.counts.sum())
        known = np.log(1 / np.array([alpha, alpha / 32]))
        lost = np.array([self._expected(past, total, rounds, share) for share in (alpha, alpha / 32)])
        width = self.plain.max() - floor if ceiling is None else ceiling - floor
        lost = np.maximum(self.plain - lost, 1e-12 * (width + abs(floor)) + 1e-300)
        # what is lost grows with l = log(1/share) like root l for plain means and like l where few events count
        basis = np.stack([np.sqrt(known), known])
        self.model = np.maximum(np.linalg.solve(basis.T, lost), 0.0)
        self.alone = self.lost(np.full(radii.size, math.log(1 / alpha)))
        # where less than two thirds are left to certify, a little more may be lost
        left = np.maximum(self.plain - floor, 1e-3 * (self.plain.max() - floor) + 1e-300)
        self.weight = np.clip((2 / 3 * left.max() / left) ** 1.5, 1.0, 1.3)
        # a bound that comes very close by itself is the one that is missed most
        self.weight[self.alone < 0.04 * left] *= 0.7

    def _expected(self, past: Sample, total: float, rounds: float, share: float) -> list[float]:
        limits = []
        for radius in self.radii:
            limits.append(
                expected_limit(past, rounds, expected=total, alpha=share, scaled_budget=float(radius), floor=self.floor)
            )
        return limits

    def lost(self, logs: Floats) -> Floats:
        """Return the distance to the plug-in that is expected at each radius with log(1/share)."""
        lost: Floats = self.model[0] * np.sqrt(logs) + self.model[1] * logs
        return lost

    def _allowed(self, factor: float) -> Floats:
        allowed: Floats = self.alone * (1 + (factor - 1) * self.weight)
        return allowed

    def _logs(self, factor: float) -> Floats:
        """Return the largest log(1/share) at which each radius loses no more than it may."""
        root, line = self.model
        allowed = self._allowed(factor)
        with np.errstate(divide="ignore", invalid="ignore"):
            both = ((np.sqrt(root**2 + 4 * line * allowed) - root) / (2 * line)) ** 2
            logs = np.where(line > 1e-9 * root, both, (allowed / root) ** 2)
        capped: Floats = np.nan_to_num(np.minimum(logs, 700.0), nan=700.0)
        return capped

    def _bets(self, factor: float) -> NDArray[np.bool_]:
        """Return which radii need a bet of their own, the costliest being spared first."""
        logs = self._logs(factor)
        allowed = self._allowed(factor)
        limits = np.maximum(self.plain - allowed, self.floor)
        # a plan from few outcomes expects too little: a radius is spared only where it clearly needs no bet
        needed = np.maximum(self.plain - _SPARED * factor * self.alone, self.floor)
        says = implied(self.radii, limits, self.radii, self.floor, self.ceiling) >= needed
        np.fill_diagonal(says, val=True)
        bets = limits > self.floor
        for spared in np.argsort(logs):
            others = bets.copy()
            others[spared] = False
            if bets[spared] and np.all(says[others].any(axis=0) | (limits <= self.floor)):
                bets = others
        return bets

    def shares(self) -> Floats:
        """Return shares that sum to alpha."""
        shares = self._divided(self.alpha)
        if not self._beyond(shares).any():
            return shares
        shares = self._divided(self.alpha * (1 - _BEYOND))
        beyond = self._beyond(shares)
        return np.where(beyond, self.alpha * _BEYOND * (1 - 1e-12) / max(1, beyond.sum()), shares)

    def _beyond(self, shares: Floats) -> NDArray[np.bool_]:
        """Return which radii lie beyond the last bet, though not so far that nothing is left even of the plug-in."""
        left = self.plain - self.floor
        return np.asarray((np.cumsum(shares[::-1])[::-1] == 0) & (left > _HOPELESS * left.max()))

    def _divided(self, alpha: float) -> Floats:
        low, high = 1.0, 30.0
        for _ in range(25):
            factor = math.sqrt(low * high)
            need = float(np.exp(-self._logs(factor))[self._bets(factor)].sum())
            low, high = (low, factor) if need <= alpha else (factor, high)
        bets = self._bets(high)
        if not bets.any():
            bets[0] = True
        needs = np.where(bets, np.exp(-self._logs(high)), 0.0)
        shares: Floats = needs * (alpha * (1 - 1e-12) / needs.sum())
        return shares


def threshold_shares(pilot: Sample, radii: Floats, alpha: float, floor: float, n: int) -> tuple[Floats, Floats]:
    """Return thresholds above the floor, and a share of alpha for each, for n more returns like those of the pilot.

    ``pilot``  values to take for thresholds, with the weight of each

    At the best split the last bit of alpha is worth the same everywhere. Shares in proportion to the gain of enlarging
    them by a given factor have that property once they no longer change.
    """
    rough = pilot.grouped(_MOST)
    points = rough.values[rough.values > floor]
    if points.size == 0:
        return np.empty(0), np.empty(0)
    total = rough.counts.sum()
    missed = (np.cumsum(rough.counts) - rough.counts)[rough.values > floor] / total
    gaps = np.diff(points, prepend=floor)
    shares = np.full(points.size, alpha / points.size)
    for _ in range(_ROUNDS):
        limits, served = _served(missed, shares, gaps, n)
        more = shift_down(_limits(missed, shares * _NUDGE, n), radii[:, None])
        gained = (served * (more - shift_down(limits, radii[:, None]))).sum(axis=0)
        gained = np.maximum(gained, 1e-12 * gaps)
        shares = np.sqrt(shares * alpha * gained / gained.sum())
        shares *= alpha / shares.sum()
    return points, shares * (1 - 1e-12)


def _limits(missed: Floats, shares: Floats, n: int) -> Floats:
    """Return the bound at each threshold, if the sample is as expected."""
    reached = n * (1 - missed)
    limits = np.nan_to_num(betaincinv(np.maximum(reached, 1e-9), n - reached + 1, np.minimum(shares, 0.999)))
    return np.clip(limits, 0.0, 1.0)


def _served(missed: Floats, shares: Floats, gaps: Floats, n: int) -> tuple[Floats, Floats]:
    """Return the bounds, and how much of the range each serves: a bound holds for all smaller thresholds too."""
    limits = _limits(missed, shares, n)
    best = np.maximum.accumulate(limits[::-1])[::-1]
    last = np.searchsorted(-best, -best, side="right") - 1  # the last point with the best bound from here on
    return limits, np.bincount(last, weights=gaps, minlength=gaps.size).astype(np.float64)
