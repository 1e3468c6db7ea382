"""Limits of a run that stopped by itself, once more from the raw returns, and whether it stopped where it says.

Nobody knew the number of returns, so for every radius ten bettors bet at an even share of the risk, each for a horizon
of its own (1,000, 4,000, 16,000, ... returns), and, where a value was to be proved, one more at 0.8 of the risk whose
capital against that value is to grow fastest. Each bets as in ``recompute_bets``, block by block, on scores and stakes
of the past alone. By Ville's inequality each limit holds at all times together, hence also at the one at which the run
stopped; by the union bound all of them do. So what is checked is that every bet recorded was the planned one, that the
limits are those that the bets have proved after the last return, and that the reason for stopping was one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from surefoot.verification.recompute.bands import CannotRecomputeError, Claim, Side, family, mean_left
from surefoot.verification.recompute.bets import SHARE, TIE, Bettor, alike, check_rows, check_sides, limit_of
from surefoot.verification.recompute.plans import Law, Option, plans, proofs, scores_of
from surefoot.verification.recompute.shares import carried, shares_of

Floats = NDArray[np.float64]
LOOK = 95  # returns that are only looked at: 3 sqrt(1,000)
TYPICAL = 100_000  # shares are settled as if so many returns were to come after those
PROOF = 0.8
HORIZONS = [1000 * 4**k for k in range(10)]
REASONS = ("proved", "close enough", "refuted", "all played", "stopped by hand")


@dataclass(frozen=True)
class Stop:
    """What a run was for, and why it stopped: None for ``budget`` if it was no such run."""

    budget: float
    until: float | None
    require: float | None
    stopped: str


def stop_of(choice: Any) -> Stop | None:
    """Read why a run stopped; None if it did not stop by itself."""
    if choice is None:
        return None
    if not isinstance(choice, dict) or set(choice) != {"budget", "until", "require", "stopped"}:
        raise CannotRecomputeError("a run that stopped must say its budget, what it waited for, and why it stopped")
    numbers = [choice[key] for key in ("budget", "until", "require") if choice[key] is not None]
    right = choice["budget"] is not None and all(isinstance(one, int | float) and math.isfinite(one) for one in numbers)
    if not right or any(isinstance(one, bool) for one in numbers) or choice["stopped"] not in REASONS:
        raise CannotRecomputeError(f"this is no reason to have stopped: {choice!r}")
    return Stop(**choice)


def recompute_sequential(
    returns: Floats, claim: Claim, bets: Any, stop: Stop | None
) -> tuple[Side, Side | None, list[str]]:
    """Return lower and, with a ceiling, upper limits, and what in the record of the bets is not as planned."""
    check_sides(bets, claim)
    budgets = claim.budgets if stop is None else (stop.budget,)
    radii = sorted({budget / claim.sigma for budget in budgets})
    value = None if stop is None else stop.require
    lower, wrong = _side(returns, claim.floor, claim.ceiling, claim, radii, bets["lower"], value)
    if claim.ceiling is None:
        return lower, None, wrong
    mirror, also = _side(-returns, -claim.ceiling, -claim.floor, claim, radii, bets["upper"], None)
    return lower, Side(-mirror.best, -mirror.least), wrong + [f"upper: {text}" for text in also]


def _side(
    returns: Floats,
    floor: float,
    ceiling: float | None,
    claim: Claim,
    radii: list[float],
    rows: list[Any],
    value: float | None,
) -> tuple[Side, list[str]]:
    check_rows(rows)
    asked = [budget / claim.sigma for budget in claim.budgets]
    past = Past(returns)
    shares = _shares(past, np.array(radii), claim.alpha * (1 if value is None else 1 - PROOF), floor, ceiling)
    limits, queue, wrong, spent = np.full(len(asked), floor), list(rows), [], 0.0
    for radius in radii:
        players = [] if value is None else [Player(past, floor, radius, claim.alpha * PROOF, queue, None, value)]
        share = _recorded_share(rows, radius, shares[radius] / len(HORIZONS)) if radius in shares else 0.0
        players += [Player(past, floor, radius, share, queue, horizon, None) for horizon in HORIZONS if share > 0]
        for player in players:
            found = max(player.limit(), floor)
            limits = np.maximum(limits, [carried(found, radius, wanted, floor, ceiling) for wanted in asked])
            wrong += player.wrong
            spent += player.alpha
    if spent > claim.alpha * (1 + 1e-12):
        wrong.append(f"the bets risk {spent:.12g}, the certificate {claim.alpha:.12g}")
    if queue:
        wrong.append(f"{len(queue)} bets are recorded that nobody planned, the first from {queue[0]['first']!r} on")
    return Side(limits, limits), wrong


def _shares(past: Past, radii: Floats, alpha: float, floor: float, ceiling: float | None) -> dict[float, float]:
    """Return the share of the risk of each radius that is bet on, from the first returns; none before they are here."""
    if past.returns.size < LOOK:
        return {}
    shares = shares_of(past.law(0, LOOK), radii, alpha, floor, ceiling, TYPICAL + LOOK)
    return {radius: share for radius, share in zip(radii.tolist(), shares.tolist(), strict=True) if share > 0}


def _recorded_share(rows: list[Any], radius: float, planned: float) -> float:
    """Return the planned share as it is recorded, which may differ by rounding."""
    return next(
        (row["alpha"] for row in rows if row["radius"] == radius and alike(row["alpha"], planned, SHARE)), planned
    )


class Past:
    """The returns in order, and the laws of parts of them, each counted once."""

    def __init__(self, returns: Floats) -> None:
        self.returns = returns
        self._laws: dict[tuple[int, int], Law] = {}

    def law(self, first: int, last: int) -> Law:
        """Return the law of the returns from one index to another."""
        if (first, last) not in self._laws:
            self._laws[first, last] = Law.of(self.returns[first:last])
        return self._laws[first, last]


class Player(Bettor):
    """One bettor among several, for a ``horizon``, or to prove a ``value``; the rows of all lie in one queue."""

    def __init__(
        self,
        past: Past,
        floor: float,
        radius: float,
        alpha: float,
        queue: list[dict[str, Any]],
        horizon: int | None,
        value: float | None,
    ) -> None:
        super().__init__(past.returns, floor, radius, alpha, [])
        self.past, self.queue, self.horizon, self.value = past, queue, horizon, value
        self.edges = _growing(past.returns.size) if horizon is None else _doubling(horizon)

    def limit(self) -> float:
        """Play all blocks up to the last return; return the limit."""
        n = self.returns.size
        for first, last in itertools.pairwise(self.edges):
            if first < n:
                self.play_plain(first, min(last, n))
        return limit_of(self.rounds, self.alpha)

    def options(self, first: int) -> list[Option]:
        """Return all that may be staked on the returns from ``first`` on, planned from those before."""
        past = self.past.law(0, first)
        if self.horizon is None:
            assert self.value is not None
            return proofs(past, scores_of(past, 2 * first, self.radius, self.floor), self.value)
        scores = scores_of(past, self.horizon, self.radius, self.floor)
        return plans(past, scores, self.alpha, self.horizon - first, self.rounds)

    def taken(self, first: int) -> dict[str, Any] | None:
        """Return the next row if it is this bettor's for the block from ``first`` on."""
        there = self.queue and {key: self.queue[0][key] for key in ("radius", "alpha", "first")}
        mine = {"radius": self.radius, "alpha": self.alpha, "first": first}
        if self.horizon is None and there:  # 0.8 of the risk is a product, and products are rounded
            mine["alpha"] = there["alpha"] if alike(there["alpha"], self.alpha, 1e-12) else self.alpha
        return self.queue.pop(0) if there == mine else None

    def tie(self, best: Option) -> float:
        """Growth is near 0: there the difference counts by itself."""
        return super().tie(best) if self.value is None else TIE * abs(best.expected) + 1e-15


def _doubling(horizon: int) -> list[int]:
    """Return where bets are settled for a horizon: at first and then whenever there is twice as much."""
    edges = [min(horizon // 10, round(3 * math.sqrt(horizon)))]
    while 3 * edges[-1] < horizon:
        edges.append(2 * edges[-1])
    return [*edges, horizon]


def _growing(n: int) -> list[int]:
    """Return where stakes are settled for a proof: after 100 returns, then after half as many again."""
    edges = [100]
    while edges[-1] < n:
        edges.append(edges[-1] + edges[-1] // 2)
    return edges


def looks_of(n: int, block: int) -> list[int]:
    """Return after how many returns the run was looked at: after each block, later when there are 2% more."""
    looks, following = [], 1
    for size in range(block, n + 1, block):
        if size >= following:
            looks.append(size)
            following = int(size * 1.02) + 1
    return looks


def unfounded(returns: Floats, claim: Claim, stop: Stop, lower: float, planned: int, block: int) -> list[str]:
    """Say why the run cannot have stopped here for the reason it gives; ``lower`` is the limit at its budget."""
    n = returns.size
    radius = stop.budget / claim.sigma
    if stop.stopped == "all played":
        return [] if n == planned else [f"of {planned} episodes {n} were played"]
    if stop.stopped == "stopped by hand":
        return []
    if n not in looks_of(n, block)[-1:]:
        return [f"after {n} episodes nobody looked"]
    hair = 1e-7 * (abs(lower) + abs(claim.floor) + 1)
    if stop.stopped == "proved":
        proved = stop.require is not None and lower >= stop.require - hair
        return [] if proved else [f"{stop.require!r} is not proved: the limit is {lower:.9g}"]
    if stop.stopped == "close enough":
        law = Law.of(returns)
        possible = mean_left(claim.floor, law.values, np.cumsum(law.counts[::-1])[::-1] / n, radius)
        near = stop.until is not None and possible - lower <= stop.until + hair
        return [] if near else [f"the limit {lower:.9g} may still grow to {possible:.9g}"]
    return _not_refuted(returns, claim, stop, radius, looks_of(n, block))


def _not_refuted(returns: Floats, claim: Claim, stop: Stop, radius: float, looks: Sequence[int]) -> list[str]:
    """Refuted is a value above an upper limit of the worst case itself, asked for when the returns have doubled."""
    asked, following = [], 1000
    for look in looks:
        if look >= following:
            asked.append(look)
            following = 2 * look
    if stop.require is None or claim.ceiling is None or asked[-1:] != [returns.size]:
        return ["nothing was to be refuted here"]
    band = replace(claim, method="band", alpha=claim.alpha / 2 ** len(asked))
    points, stay, _ = family(-returns, -claim.ceiling, -claim.floor, band, mirrored=True)
    # P(X >= x) <= 1 - P(X <= y) for every y < x
    reach = np.concatenate([[1.0], 1 - np.maximum.accumulate(stay[::-1])])
    gaps = np.diff(np.concatenate([[claim.floor], -points[::-1], [claim.ceiling]]))
    left = np.where((reach > 0) & (reach < 1), ndtr(ndtri(np.clip(reach, 1e-300, 1)) - radius), reach)
    most = claim.floor + float(gaps @ (reach if radius == 0 else left))
    return [] if most < stop.require * (1 + math.copysign(1e-9, stop.require)) else [f"{most:.9g} may still be proved"]
