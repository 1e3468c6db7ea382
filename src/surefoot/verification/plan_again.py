"""Re-runs the planner on earlier returns: the one module of the verification that may import it.

Plans (which method, which shares of alpha, which scores and bet sizes) decide how tight bounds are. They are true
because the returns that are certified did not make the plans. What has to be verified is therefore not the planner's
formulas but what they were computed from. So the planner itself is run again, and for every plan it is given a copy of
the returns before and nothing else: a planner that needs a later return cannot repeat its plan here, whatever its code
does. What the plans prove is computed by ``recompute.auto`` and ``recompute.bets``, without the planner.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.proof.auto import select
from surefoot.proof.bounds import relative_entropy
from surefoot.proof.bounds.bettors import PLANNER, Bet, Bettor, pilot_size
from surefoot.proof.bounds.ceiling_bets import CeilingBets, glance
from surefoot.proof.bounds.from_bets import PROOF, looked_at, opening, players, prover, shares_by_radius
from surefoot.proof.bounds.hedged_bets import Hedger
from surefoot.proof.bounds.samples import Sample, Seen
from surefoot.proof.bounds.tangent_scores import Tangents
from surefoot.verification.recompute.bands import Claim, Side
from surefoot.verification.recompute.bets import PlannedBet, PlannedBettor, check_rows, check_sides, settled
from surefoot.verification.recompute.sequential import Stop
from surefoot.verification.recompute.shared_budget import SharedClaim
from surefoot.verification.recompute.shares import SHARE, alike

Floats = NDArray[np.float64]


def other_planner(certificate: dict[str, Any]) -> str | None:
    """Return why the plans of a certificate cannot be repeated here, or None."""
    version, kind, method = (certificate.get(key) for key in ("planner", "kind", "method"))
    planned = method in ("auto", "betting", "sequential") if kind is None else kind == "shared" and method == "betting"
    here = PLANNER if kind is None else relative_entropy.PLANNER
    # The first planner of shared budgets did not state its version.
    if not planned or version == here or (kind is not None and version is None and here == 1):
        return None
    return f"planned by planner version {version!r}, this version of surefoot re-runs {here}"


def plan_shared(pilot: Floats, rounds: int, width: float | None, claim: SharedClaim) -> tuple[Floats, Floats]:
    """Return the thetas and bet sizes of a shared budget, planned on the pilot alone."""
    return relative_entropy.planned(pilot, rounds, width, claim.alpha, claim.costs)


def check_choice(returns: Floats, claim: Claim, choice: Any, *, declared: bool = False) -> list[str]:
    """Return where the record differs from what the planner selects, given the pilot episodes alone.

    Args:
        returns: All returns in order.
        claim: What the certificate says its bounds were computed from.
        choice: What the certificate says was selected.
        declared: Whether the setup says that episodes are won or lost.
    """
    n, radii = returns.size, np.array([budget / claim.sigma for budget in claim.budgets])
    pilot = returns[: pilot_size(n)].copy()
    again = select(pilot, n, radii, claim.alpha, claim.floor, claim.ceiling, declared=declared)
    if choice["pilot"] != again.pilot:
        return [f"the method is selected on {again.pilot} episodes, not on {choice['pilot']!r}"]
    if choice["method"] != again.method:
        return [f"the first {again.pilot} episodes select the method {again.method!r}, not {choice['method']!r}"]
    if not again.points.size:
        return []
    if not np.array_equal(np.array(choice["thresholds"], dtype=np.float64), again.points):
        return ["the thresholds are not those of the pilot episodes"]
    recorded = np.array([choice["reach"], choice["stay"]], dtype=np.float64)
    right = np.allclose(recorded, [again.reach, again.stay], rtol=SHARE, atol=1e-12)
    return [] if right else ["alpha is not split among the thresholds as the pilot episodes determine"]


def recompute_bets(
    returns: Floats, claim: Claim, bets: Any, stop: Stop | None = None
) -> tuple[Side, Side | None, list[str]]:
    """Plan all bets again and compute what they prove.

    Args:
        returns: All returns in order.
        claim: What the certificate says its bounds were computed from.
        bets: What the certificate says was bet.
        stop: What a sequential run was for.

    Returns:
        Lower and, with a ceiling, upper bounds, and where the record differs from the plan.
    """
    check_sides(bets, claim)
    value = None if stop is None else stop.require
    lower, wrong = _side(returns, (claim.floor, claim.ceiling), claim, bets["lower"], stop, value)
    if claim.ceiling is None:
        return lower, None, wrong
    mirror, also = _side(-returns, (-claim.ceiling, -claim.floor), claim, bets["upper"], stop, None)
    return lower, Side(-mirror.best, -mirror.least), wrong + [f"upper: {text}" for text in also]


def _side(
    returns: Floats, ends: tuple[float, float | None], claim: Claim, rows: list[Any], stop: Stop | None, value: Any
) -> tuple[Side, list[str]]:
    check_rows(rows)
    budgets = claim.budgets if stop is None else (stop.budget,)
    radii = np.unique([budget / claim.sigma for budget in budgets])
    first = None
    if claim.method != "sequential":
        n = returns.size
        first = opening(returns[: glance(n)].copy(), radii, claim.alpha, *ends, n)
    bettors = [] if first is None else [PlannedBettor(0.0, first.alpha, _bets([first], returns)[0], unsplit=True)]
    made = _players(returns, radii, claim, ends, rows, value, first)
    bets = _bets([player for _, player in made], returns)
    bettors += [PlannedBettor(radius, one.alpha, own) for (radius, one), own in zip(made, bets, strict=True)]
    return settled(returns, claim, ends, bettors, rows)


def _players(
    returns: Floats,
    radii: Floats,
    claim: Claim,
    ends: tuple[float, float | None],
    rows: list[Any],
    value: float | None,
    before: CeilingBets | None,
) -> list[tuple[float, Bettor | Hedger]]:
    """Return who bets at which scaled budget, by what the returns before alpha is split show."""
    n, alpha, (floor, ceiling) = returns.size if claim.method != "sequential" else None, claim.alpha, ends
    inspected = looked_at(n) if before is None else before.end or returns.size
    made: list[tuple[float, Bettor | Hedger]] = []
    if value is not None:
        made.append((float(radii[0]), prover(float(radii[0]), value, alpha, floor)))
        alpha *= 1 - PROOF
    if returns.size <= inspected:
        return made
    past = Sample.of(returns[:inspected].copy())
    left = None if n is None else n - inspected
    recorded: dict[float, list[float]] = {}
    for row in rows:
        if "unsplit" not in row:
            recorded.setdefault(row["radius"], []).append(row["alpha"])
    for radius, share in shares_by_radius(past, radii, alpha, floor, ceiling, left).items():
        group = players(radius, share, floor, n, before)
        # shares are searched for, so that another machine may have found one that differs by rounding
        near = [alpha for alpha in recorded.get(radius, []) if alike(alpha, group[0].alpha, SHARE)]
        if near and near[0] != group[0].alpha:
            group = players(radius, share * (near[0] / group[0].alpha), floor, n, before)
        made += [(radius, one) for one in group]
    return made


def _bets(playing: list[Bettor | Hedger], returns: Floats) -> list[list[PlannedBet]]:
    """Return all bets of each: every single one is asked for with a copy of the returns before it alone."""
    found: list[list[PlannedBet]] = [[] for _ in playing]
    stops: list[float] = [one.first for one in playing]
    past, known = np.empty(returns.size), 0
    while (stop := min(stops, default=math.inf)) < returns.size:
        past[known : int(stop)], known = returns[known : int(stop)], int(stop)
        seen = Seen(past[:known])
        for index in [index for index, where in enumerate(stops) if where == stop]:
            bet = playing[index].next_bet(seen)
            stops[index] = math.inf if bet is None else bet.last
            if bet is not None and bet.score is not None:
                found[index].append(_plain_data(bet, returns.size))
    return found


def _plain_data(bet: Bet, n: int) -> PlannedBet:
    """Return a bet as numbers: how its score is made of guesses, not what the planner computes with it."""
    score, hedge = bet.score, bet.hedge
    guessed = score.guesses if isinstance(score, Tangents) else None
    block = (bet.first, min(bet.last, n)) if hedge is None else hedge.block
    return PlannedBet(
        first=bet.first,
        last=min(bet.last, n),
        block=block,
        cutoff=None if score is None else score.cutoff,
        guesses=guessed,
        stake=bet.stake,
        hedge=None if hedge is None else (hedge.claims, hedge.stakes),
    )
