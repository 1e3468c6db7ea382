"""Before the certificate: how many episodes it will probably take, and which sigma certifies the most.

Pilot episodes have a seed stream of their own, so that whatever is selected on them is certified on other episodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np

from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.proof.bounds.gaussian_shift import shift_down
from surefoot.proof.bounds.samples import Sample
from surefoot.proof.planning.hedged_bets import expected_limit
from surefoot.proof.planning.proposals import plug_in_means, propose_scores
from surefoot.proof.planning.stakes import Aim, choose_proposal
from surefoot.proof.planning.strategies import CLAIM_SHARE

LONGEST = 10**9  # episodes beyond which no run is planned


@dataclass(frozen=True)
class Forecast:
    """What pilot episodes predict for one agent at one budget."""

    agent: str
    sigma: float
    budget: float
    pilot: int
    estimate: float
    # Plug-in estimate of the worst-case mean: about what infinitely many episodes would certify, biased up.
    worst: float
    episodes: int
    limit: float  # lower bound that ``episodes`` episodes would probably certify at that budget alone
    require: float | None
    fixed: int | None  # number of episodes, fixed in advance, that probably prove the required mean, or None
    sequential: int | None  # number of episodes after which a sequential run has probably proved it, or None
    least: int | None  # number of episodes below which no agent could prove it, by any method, or None

    def to_json(self) -> dict[str, Any]:
        """Return the forecast as JSON data."""
        return asdict(self)


AnyForecast = TypeVar("AnyForecast", bound=Forecast)


def forecast(
    pilot: Episodes, *, budget: float, alpha: float, n_episodes: int, require: float | None = None
) -> Forecast:
    """Predict what ``n_episodes`` episodes certify at a budget, and how many a required mean needs."""
    scaled_budget = budget / pilot.noise.budget_sigma
    sample = Sample.of(pilot.returns)

    def predicted_bound(n: float) -> float:
        past = _learned_sample(sample, n)
        return expected_limit(past, n, expected=n, alpha=alpha, scaled_budget=scaled_budget, floor=pilot.floor)

    def best_bound(n: float) -> float:
        return best_achievable(n, scaled_budget, alpha, pilot.floor, pilot.ceiling)

    # Without a requirement there is nothing to prove, and no number of episodes that does it.
    fixed = sequential = least = None
    if require is not None:
        fixed = _smallest_n(lambda n: predicted_bound(n) >= require)
        sequential = _predict_stop(sample, scaled_budget, alpha, pilot.floor, require)
        least = _smallest_n(lambda n: best_bound(n) >= require)
    return Forecast(
        agent=str(pilot.metadata.get("agent")),
        sigma=pilot.sigma,
        budget=budget,
        pilot=len(pilot),
        estimate=float(pilot.returns.mean()),
        worst=float(plug_in_means(sample, np.array([scaled_budget]), pilot.floor)[0]),
        episodes=n_episodes,
        limit=predicted_bound(n_episodes),
        require=require,
        fixed=fixed,
        sequential=sequential,
        least=least,
    )


def best_achievable(n: float, scaled_budget: float, alpha: float, floor: float, ceiling: float | None) -> float:
    """Return the best bound that n episodes can certify at a scaled budget, by any method, for a perfect agent.

    An agent that wins with a probability just above alpha^(1/n) looks as perfect in n episodes with probability alpha.
    """
    # Returns without a ceiling have no perfect agent.
    if ceiling is None:
        return math.inf
    return floor + (ceiling - floor) * float(shift_down(alpha ** (1 / n), scaled_budget))


def _learned_sample(sample: Sample, n: float) -> Sample:
    """Return the distribution with the weight of a third of n episodes: bets learn as they go."""
    # Never with less weight than the pilot has.
    return Sample(sample.values, sample.counts * max(1.0, n / 3 / float(sample.counts.sum())))


def _predict_stop(sample: Sample, scaled_budget: float, alpha: float, floor: float, require: float) -> int | None:
    """Return when the capital of bets against the requirement is expected to suffice."""
    # Ville: capital beyond 1 / alpha refutes every mean below the requirement.
    needed = math.log(1 / (alpha * CLAIM_SHARE))

    def is_proved(n: float) -> bool:
        past = _learned_sample(sample, n)
        proposals = propose_scores(past, None, scaled_budget=scaled_budget, floor=floor)
        chosen, choice = choose_proposal(proposals, past, Aim(alpha * CLAIM_SHARE, n, require))
        return chosen is not None and n * choice.expected >= needed

    return _smallest_n(is_proved)


def _smallest_n(is_proved: Callable[[float], bool]) -> int | None:
    """Return about the smallest n at which a statement becomes true that then stays true."""
    n = 100.0
    while not is_proved(n):
        n *= 2
        if n > LONGEST:
            return None
    # Between two numbers of episodes by a factor: 2% more or less are within the error of a pilot.
    low = n / 2
    while n / low > 1.02:
        middle = math.sqrt(low * n)
        if is_proved(middle):
            n = middle
        else:
            low = middle
    return math.ceil(n)


def best_forecast(forecasts: Sequence[AnyForecast]) -> AnyForecast:
    """Return the forecast with the highest predicted bound."""
    if not forecasts:
        raise InputError("expected at least one sigma to choose from, got none")
    return max(forecasts, key=lambda one: one.limit)
