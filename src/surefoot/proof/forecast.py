"""Before the certificate: how many episodes it will probably take, and which sigma certifies the most. All estimates.

Pilot episodes have a seed stream of their own, so that whatever is selected on them is certified on other episodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.proof.bounds.gaussian_shift import shift_down
from surefoot.proof.bounds.samples import Sample
from surefoot.proof.planning.hedged_bets import expected_limit
from surefoot.proof.planning.proposals import plug_in, propose
from surefoot.proof.planning.stakes import Aim, choose_proposal
from surefoot.proof.planning.strategies import PROOF

LONGEST = 10**9  # episodes beyond which no run is planned


@dataclass(frozen=True)
class Forecast:
    """What pilot episodes predict for one agent at one budget.

    Attributes:
        worst: Plug-in estimate of the worst-case mean: about what infinitely many episodes would certify, biased up.
        limit: Lower bound that ``episodes`` episodes would probably certify at that budget alone.
        fixed: Number of episodes, fixed in advance, that probably prove the required mean, or None.
        sequential: Number of episodes after which a sequential run has probably proved it, or None.
        least: Number of episodes below which no agent could prove it, by any method, or None.
    """

    agent: str
    sigma: float
    budget: float
    pilot: int
    estimate: float
    worst: float
    episodes: int
    limit: float
    require: float | None
    fixed: int | None
    sequential: int | None
    least: int | None

    def to_json(self) -> dict[str, Any]:
        """Return the forecast as JSON data."""
        return asdict(self)


def forecast(
    pilot: Episodes, *, budget: float, alpha: float, n_episodes: int, require: float | None = None
) -> Forecast:
    """Predict what ``n_episodes`` episodes certify at a budget, and how many a required mean needs."""
    radius, law = budget / pilot.sigma, Sample.of(pilot.returns)

    def limit(n: float) -> float:
        past = _learnt(law, n)
        return expected_limit(past, n, expected=n, alpha=alpha, scaled_budget=radius, floor=pilot.floor)

    fixed = sequential = least = None
    if require is not None:
        fixed = _first(lambda n: limit(n) >= require)
        sequential = _sequential(law, radius, alpha, pilot.floor, require)
        least = _first(lambda n: best_achievable(n, radius, alpha, pilot.floor, pilot.ceiling) >= require)
    return Forecast(
        agent=str(pilot.metadata.get("agent")),
        sigma=pilot.sigma,
        budget=budget,
        pilot=len(pilot),
        estimate=float(pilot.returns.mean()),
        worst=float(plug_in(law, np.array([radius]), pilot.floor)[0]),
        episodes=n_episodes,
        limit=limit(n_episodes),
        require=require,
        fixed=fixed,
        sequential=sequential,
        least=least,
    )


def best_achievable(n: float, scaled_budget: float, alpha: float, floor: float, ceiling: float | None) -> float:
    """Return the best bound that n episodes can certify at a scaled budget, by any method, for a perfect agent.

    An agent that wins with a probability just above alpha^(1/n) looks as perfect in n episodes with probability alpha.
    """
    if ceiling is None:
        return math.inf
    return floor + (ceiling - floor) * float(shift_down(alpha ** (1 / n), scaled_budget))


def _learnt(law: Sample, n: float) -> Sample:
    """Return the distribution with the weight of a third of n episodes: bets learn as they go."""
    return Sample(law.values, law.counts * max(1.0, n / 3 / float(law.counts.sum())))


def _sequential(law: Sample, radius: float, alpha: float, floor: float, require: float) -> int | None:
    """Return when the capital of bets against the requirement is expected to suffice."""
    needed = math.log(1 / (alpha * PROOF))

    def proved(n: float) -> bool:
        past = _learnt(law, n)
        proposals = propose(past, None, scaled_budget=radius, floor=floor)
        chosen, choice = choose_proposal(proposals, past, Aim(alpha * PROOF, n, require))
        return chosen is not None and n * choice.expected >= needed

    return _first(proved)


def _first(proved: Callable[[float], bool]) -> int | None:
    """Return about the smallest n at which a statement becomes true that then stays true."""
    n = 100.0
    while not proved(n):
        n *= 2
        if n > LONGEST:
            return None
    low = n / 2
    while n / low > 1.02:
        middle = math.sqrt(low * n)
        low, n = (low, middle) if proved(middle) else (middle, n)
    return math.ceil(n)


def best(forecasts: list[Forecast]) -> Forecast:
    """Return the forecast with the highest predicted bound."""
    if not forecasts:
        raise InputError("expected at least one sigma to choose from, got none")
    return max(forecasts, key=lambda one: one.limit)
