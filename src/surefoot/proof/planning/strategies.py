"""Bounds for the worst-case mean itself (T3): no band, no union over thresholds, one bet per budget.

``tangent_scores`` makes of the past a function psi with E psi(X) <= L, where L is the worst-case mean at a scaled
budget (radius, B / sigma); ``bettors`` bet on it. Several scaled budgets share alpha (``alpha_shares``), and a bound
at one of them implies bounds at others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot.errors import InputError
from surefoot.files import extremes
from surefoot.proof.bounds.binomial import check_alpha, checked_outcomes
from surefoot.proof.bounds.samples import Sample, Seen, coarse_step
from surefoot.proof.bounds.tangent_scores import implied
from surefoot.proof.planning.alpha_shares import split
from surefoot.proof.planning.bettors import (
    HORIZON,
    Bettor,
    doubling_edges,
    edges_for,
    family,
    growing_edges,
    pilot_size,
)
from surefoot.proof.planning.ceiling_bets import CeilingBets, glance
from surefoot.proof.planning.hedged_bets import Hedger
from surefoot.proof.planning.proposals import propose

Floats = NDArray[np.float64]

_TYPICAL = 100_000  # where the number of returns is unknown, shares are chosen as if there were so many
PROOF = 0.8  # of alpha, for the proof of a claim; the rest is for the best bound in case it fails


@dataclass(frozen=True, eq=False)
class WorstMeans:
    """Lower bounds of the worst-case mean at some scaled budgets, simultaneously valid, and what they imply elsewhere.

    ``radii``, ``limits``  where bets were made, ascending, and the bounds they gave; bounds are at least the floor
    ``shares``             the alpha used for each; their sum is at most alpha
    ``bets``               what was bet: one dictionary per scaled budget, bettor and block, for the certificate
    """

    radii: Floats
    limits: Floats
    shares: Floats
    floor: float
    ceiling: float | None
    bets: Sequence[Mapping[str, Any]] = ()

    def at(self, radius: ArrayLike) -> Floats:
        """Return a lower bound at any scaled budget c, from all those with bets, at no cost in confidence.

        A larger scaled budget r >= c allows the attacker more: L_c >= L_r. For a smaller one r <= c and a ceiling b,
        every distribution has (L_c - a) / (b - a) >= g_(c-r)((L_r - a) / (b - a)), because g_c = g_(c-r) o g_r and
        g_(c-r) is convex.
        """
        wanted = np.asarray(radius, dtype=np.float64)
        best: Floats = implied(self.radii, self.limits, wanted.ravel(), self.floor, self.ceiling).max(axis=0)
        return best.reshape(wanted.shape)


def worst_means(
    returns: ArrayLike | Seen,
    radii: ArrayLike,
    alpha: float,
    floor: float,
    ceiling: float | None = None,
    *,
    anytime: bool = False,
) -> WorstMeans:
    """Return lower bounds of the worst-case mean at all scaled budgets simultaneously, at confidence 1 - alpha.

    ``returns``  in the order in which they were run
    ``floor``    the lowest return the rules allow; ``ceiling`` the highest, if there is one
    ``anytime``  valid wherever the run stops, for whatever reason; otherwise their number was fixed in advance
    """
    seen = _checked(returns, floor, ceiling)
    if anytime:
        return Bets(radii, alpha, floor, ceiling).after(seen)
    check_alpha(alpha)
    return _all_at_once(seen, _checked_radii(radii), alpha, floor, ceiling)


def _all_at_once(seen: Seen, radii: Floats, alpha: float, floor: float, ceiling: float | None) -> WorstMeans:
    """Return the bounds after all returns; their number was fixed in advance."""
    n, split_at = seen.size, looked_at(seen.size)
    before = opening(seen[: glance(n)], radii, alpha, floor, ceiling, n)
    groups: list[tuple[float, Sequence[Bettor | Hedger]]] = []
    if before is not None:
        before.advance(seen)
        split_at = before.end or n
        groups.append((0.0, [before]))
    if split_at < n:
        shares = shares_by_radius(seen.sample(0, split_at), radii, alpha, floor, ceiling, n - split_at)
        groups = [(radius, players(radius, share, floor, n, before)) for radius, share in shares.items()]
        for _, [one] in groups:
            one.advance(seen)
    unsplit = [] if before is None else _written(0.0, before)
    return _limits(groups, radii, floor, ceiling, unsplit if split_at < n else [])


def looked_at(n: int | None) -> int:
    """Return how many returns, the first ones, are only inspected; n is their number in all, None if unknown."""
    return doubling_edges(HORIZON)[0] if n is None else edges_for(n)[0]


def opening(
    first: Floats, radii: Floats, alpha: float, floor: float, ceiling: float | None, n: int
) -> CeilingBets | None:
    """Return who bets before alpha is split, if the first returns were all the ceiling; else it is split at once."""
    if ceiling is None or not floor < ceiling or n <= glance(n) or not np.all(first[: glance(n)] == ceiling):
        return None
    return CeilingBets(radii, alpha, n, floor, ceiling)


def shares_by_radius(
    past: Sample, radii: Floats, alpha: float, floor: float, ceiling: float | None, left: int | None
) -> dict[float, float]:
    """Return the share of alpha at each scaled budget that is bet on, by what the past returns let one expect.

    ``left``  how many returns are still to come, None if unknown
    """
    shares = split(past, radii, alpha, floor, ceiling, _TYPICAL if left is None else left)
    return dict(zip(radii[shares > 0].tolist(), shares[shares > 0].tolist(), strict=True))


def players(
    radius: float, share: float, floor: float, n: int | None, before: CeilingBets | None = None
) -> list[Bettor | Hedger]:
    """Return who bets at one scaled budget: one for n returns, or a family where their number is unknown.

    ``before``  whose capital is split among the scaled budgets, if there were bets before the split
    """
    if n is None:
        return [*family(partial(propose, radius=radius, floor=floor), share)]
    edges = [edge for edge in edges_for(n) if before is None or edge >= (before.end or n)]
    one = Hedger(partial(propose, expected=n, radius=radius, floor=floor), share, edges, floor)
    if before is not None:
        one.inherit(before.first, *before.owned_at(radius))
    return [one]


def prover(radius: float, value: float, alpha: float, floor: float) -> Bettor:
    """Return who bets for the proof of a value at a scaled budget, as soon as possible, with its part of alpha."""
    scores = partial(propose, expected=None, radius=radius, floor=floor)
    return Bettor(scores, alpha * PROOF, growing_edges(), value)


def _limits(
    groups: Sequence[tuple[float, Sequence[Bettor | Hedger]]],
    asked: Floats,
    floor: float,
    ceiling: float | None,
    before: Sequence[Mapping[str, Any]] = (),
) -> WorstMeans:
    if not groups:  # nothing is bet before the first look, nor on a single return: only the floor is sure
        return WorstMeans(asked[:1], np.array([floor]), np.zeros(1), floor, ceiling)
    radii = np.array([radius for radius, _ in groups])
    limits = np.array([max(floor, *(one.limit() for one in group)) for _, group in groups])
    shares = np.array([sum(one.alpha for one in group) for _, group in groups])
    bets = [_written(radius, one) for radius, group in groups for one in group]
    return WorstMeans(radii, limits, shares, floor, ceiling, [*before, *(row for rows in bets for row in rows)])


@dataclass(frozen=True, eq=False)
class Means:
    """Bounds of the mean under attack: ``lower``, and ``mirror``, lower bounds of the mean of minus the return."""

    lower: WorstMeans
    mirror: WorstMeans | None


def both_sides(
    returns: ArrayLike, radii: ArrayLike, alpha: float, floor: float, ceiling: float | None, *, anytime: bool = False
) -> Means:
    """Return lower bounds and, with a ceiling, upper ones; either side holds with confidence 1 - alpha."""
    x = _checked(returns, floor, ceiling).outcomes
    # Without a ceiling, the range is that of the returns which are only inspected: later ones must not shape bets.
    high = float(x[: pilot_size(x.size)].max(initial=floor)) if ceiling is None else ceiling
    step = None if anytime else coarse_step(x.size, floor, high)
    lower = worst_means(Seen(x, step=step, floor=floor), radii, alpha, floor, ceiling, anytime=anytime)
    if ceiling is None:
        return Means(lower, None)
    mirror = Seen(x, mirrored=True, step=step, floor=-ceiling)
    return Means(lower, worst_means(mirror, radii, alpha, -ceiling, -floor, anytime=anytime))


class Bets:
    """Bets on the worst-case mean, whose bounds may be asked for again and again while returns come in.

    ``claim``  (radius, value): the value is to be proved at that scaled budget as soon as possible
    """

    def __init__(
        self,
        radii: ArrayLike,
        alpha: float,
        floor: float,
        ceiling: float | None = None,
        *,
        claim: tuple[float, float] | None = None,
    ) -> None:
        check_alpha(alpha)
        self.radii, self.alpha, self.floor, self.ceiling = _checked_radii(radii), alpha, floor, ceiling
        self.proving = None if claim is None else (claim[0], prover(*claim, alpha, floor))
        self.players: dict[float, list[Bettor | Hedger]] | None = None

    def after(self, returns: ArrayLike | Seen) -> WorstMeans:
        """Return the bounds after all returns so far, which begin with those of earlier calls."""
        seen, inspected = _checked(returns, self.floor, self.ceiling), looked_at(None)
        if self.players is None and seen.size >= inspected:
            self.players = self._players(seen.sample(0, inspected))
        groups: list[tuple[float, list[Bettor | Hedger]]] = []
        if self.proving is not None:
            groups.append((self.proving[0], [self.proving[1]]))
        groups += (self.players or {}).items()
        for _, group in groups:
            for one in group:
                one.advance(seen)
        return _limits(sorted(groups, key=lambda pair: pair[0]), self.radii, self.floor, self.ceiling)

    def _players(self, pilot: Sample) -> dict[float, list[Bettor | Hedger]]:
        """Divide alpha, once and for all, by what the first returns let one expect."""
        alpha = self.alpha if self.proving is None else self.alpha * (1 - PROOF)
        shares = shares_by_radius(pilot, self.radii, alpha, self.floor, self.ceiling, None)
        return {radius: players(radius, share, self.floor, None) for radius, share in shares.items()}


def _written(radius: float, one: Bettor | Hedger) -> list[dict[str, Any]]:
    """Return what was fixed before each block: score and bet size, or that bet sizes were chosen claim by claim."""
    rounds, hedged = ((), one.fixed) if isinstance(one, Hedger) else (one.rounds, ())
    who = {"radius": radius, "alpha": one.alpha, **({"unsplit": True} if isinstance(one, CeilingBets) else {})}
    plain = [
        {
            **who,
            "first": played.first,
            "count": int(played.outcomes.counts.sum()),
            "cutoff": played.cutoff,
            "stake": played.stake,
        }
        for played in rounds
    ]
    blocks = [{**who, "first": first, "count": n, "cutoff": cutoff, "hedged": True} for first, n, cutoff in hedged]
    return plain + blocks


def _checked(returns: ArrayLike | Seen, floor: float, ceiling: float | None) -> Seen:
    """Return outcomes that are within floor and ceiling; those that are given as seen have been checked."""
    if isinstance(returns, Seen):
        return returns
    x = checked_outcomes(returns, floor)
    if ceiling is not None and (greatest := extremes(x)[1]) > ceiling:
        raise InputError(f"no outcome may be above {ceiling:g}, got {greatest:g}; give the true ceiling")
    return Seen(x)


def _checked_radii(radii: ArrayLike) -> Floats:
    asked = np.unique(np.asarray(radii, dtype=np.float64))
    if asked.size == 0 or not np.all(asked >= 0):
        raise InputError("expected at least one scaled budget, and none below 0")
    return asked
