"""How a risk is divided among radii, from the pilot alone: what the first returns let one expect, and nothing later.

What a radius loses against the worst-case mean of the pilot grows with l = log(1/share), about like root l and l. The
shares are those at which all losses grow by the least common factor, where a radius to which the limits of others say
enough is spared. Shares decide how tight limits are; that they are settled before the bets makes them true together.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from surefoot.verification.recompute.plans import Law, moments, plans, scores_of

Floats = NDArray[np.float64]


def shares_of(pilot: Law, radii: Floats, alpha: float, floor: float, ceiling: float | None, n: float) -> Floats:
    """Return the share of each radius, 0 for none; beyond a radius of 30 nobody bets."""
    playable = radii <= 30
    if playable.sum() < 2:
        return np.where(playable | (np.arange(radii.size) == 0), alpha, 0.0)
    found = np.zeros(radii.size)
    found[playable] = _Division(pilot, radii[playable], alpha, floor, ceiling, n).shares()
    return found


def carried(limit: float, proved: float, wanted: float, floor: float, ceiling: float | None) -> float:
    """Return what a limit proved at one radius says at another: as much at a smaller one, g of it at a larger one."""
    if wanted <= proved:
        return limit
    if ceiling is None:
        return floor
    share = min(max((limit - floor) / (ceiling - floor), 0.0), 1.0)
    return float(min(limit, floor + (ceiling - floor) * ndtr(ndtri(share) - (wanted - proved)) * (1 - 1e-12)))


def expected_limit(pilot: Law, radius: float, share: float, floor: float, n: float, rounds: float) -> float:
    """Return the limit that so many rounds, of n returns in all, would probably give if they were like the pilot's."""
    options = plans(pilot, scores_of(pilot, n, radius, floor), share, rounds, [])
    best = max(options, key=lambda option: option.expected, default=None)
    if best is None:
        return floor
    mean, variance, skewness = moments(best.score, pilot)
    if skewness / math.sqrt(rounds) <= -0.35:
        return max(floor, best.expected)
    errors = float(ndtri(1 - 0.93 * share)) * math.sqrt(1.005) + float(ndtri(0.93)) * math.sqrt(0.005)
    return max(floor, best.expected, mean - errors * math.sqrt(variance / rounds))


class _Division:
    def __init__(self, pilot: Law, radii: Floats, alpha: float, floor: float, ceiling: float | None, n: float) -> None:
        self.radii, self.alpha, self.floor, self.ceiling = radii, alpha, floor, ceiling
        reach = np.minimum(np.cumsum(pilot.counts[::-1])[::-1] / pilot.counts.sum(), 1.0)
        left_at = [reach if radius == 0 else ndtr(ndtri(reach) - radius) for radius in radii]
        self.plain = floor + np.array([np.diff(pilot.values, prepend=floor) @ left for left in left_at])
        logs = np.log([1 / alpha, 32 / alpha])
        rest = n - float(pilot.counts.sum())
        known = [
            [expected_limit(pilot, float(radius), share, floor, n, rest) for radius in radii] for share in np.exp(-logs)
        ]
        lost = np.maximum(self.plain - np.array(known), 1e-12 * (1 + abs(floor)))
        self.root, self.line = np.maximum(np.linalg.solve(np.stack([np.sqrt(logs), logs], axis=1), lost), 0.0)
        self.alone = self.root * math.sqrt(logs[0]) + self.line * logs[0]
        left = np.maximum(self.plain - floor, 1e-3 * (self.plain.max() - floor) + 1e-300)
        self.weight = np.clip((2 / 3 * left.max() / left) ** 1.5, 1.0, 1.3) * np.where(self.alone < 0.04 * left, 0.7, 1)

    def shares(self) -> Floats:
        """Divide alpha by need; if the last radii are spared, nine tenths of it, and they share the rest evenly."""
        found = self._by_need(self.alpha)
        if self._beyond(found).any():
            found = self._by_need(0.9 * self.alpha)
            beyond = self._beyond(found)
            found[beyond] = 0.1 * self.alpha * (1 - 1e-12) / max(1, int(beyond.sum()))
        return found

    def _beyond(self, found: Floats) -> NDArray[np.bool_]:
        """Return which radii lie beyond the last bet, though the pilot itself leaves a thousandth there."""
        left, last = self.plain - self.floor, int(np.flatnonzero(found)[-1])
        return np.asarray((np.arange(found.size) > last) & (left > 1e-3 * left.max()))

    def _by_need(self, alpha: float) -> Floats:
        """Halve, in logarithms, to the least factor that alpha is enough for."""
        low, high = 1.0, 30.0
        for _ in range(25):
            factor = math.sqrt(low * high)
            low, high = (low, factor) if self._needs(factor).sum() <= alpha else (factor, high)
        needs = self._needs(high)
        if not needs.any():
            needs[0] = 1.0
        return np.asarray(needs * (alpha * (1 - 1e-12) / needs.sum()), dtype=np.float64)

    def _needs(self, factor: float) -> Floats:
        """Return the share that each radius with a bet of its own needs to lose no more than the factor allows."""
        allowed = self.alone * (1 + (factor - 1) * self.weight)
        with np.errstate(divide="ignore", invalid="ignore"):
            both = ((np.sqrt(self.root**2 + 4 * self.line * allowed) - self.root) / (2 * self.line)) ** 2
            logs = np.where(self.line > 1e-9 * self.root, both, (allowed / self.root) ** 2)
        logs = np.nan_to_num(np.minimum(logs, 700.0), nan=700.0)
        return np.where(self._bets(factor, allowed, logs), np.exp(-logs), 0.0)

    def _bets(self, factor: float, allowed: Floats, logs: Floats) -> NDArray[np.bool_]:
        """Spare those radii, the dearest first, for which the limits at the others say enough."""
        limits = np.maximum(self.plain - allowed, self.floor)
        enough = np.maximum(self.plain - 0.65 * factor * self.alone, self.floor)
        says = [
            [
                carried(limit, proved, wanted, self.floor, self.ceiling)
                for limit, proved in zip(limits, self.radii, strict=True)
            ]
            for wanted in self.radii
        ]
        served = (np.array(says) >= enough[:, None]) | np.eye(self.radii.size, dtype=bool)
        bets = limits > self.floor
        for one in np.argsort(logs):
            others = bets & (np.arange(bets.size) != one)
            if bets[one] and np.all((served & others).any(axis=1) | (limits <= self.floor)):
                bets = others
        return np.asarray(bets)
