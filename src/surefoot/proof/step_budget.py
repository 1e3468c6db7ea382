"""Certificates against an attacker with a budget for every step instead of the whole episode (T4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.proof.bounds.step_means import kept, step_means
from surefoot.proof.certificate import ThreatCertificate, checked_budget, common
from surefoot.proof.episode_budget import Limits


@dataclass(frozen=True, eq=False, kw_only=True)
class StepCertificate(ThreatCertificate):
    """What is proved about the mean return when each single offset has an l2 norm of at most the budget.

    ``budgets``     e: the l2 norm of the offset to any one observation
    ``rewards``     the least and the largest reward of a step, 0 among them
    ``reach``, ``stay``  limits of the mean reward of each step from below and from above, as shares of that range
    ``lower``, ``upper``, ``estimate``, ``confidence``  as in ``Certificate``
    """

    kind: ClassVar[str] = "per-step"

    rewards: tuple[float, float]
    reach: NDArray[np.float64]
    stay: NDArray[np.float64]

    def at(self, budget: float) -> Limits:
        """Return the limits at any budget per step."""
        radius = checked_budget(budget) / self.sigma
        (low, high), steps = self.rewards, self.reach.size
        lower = steps * low + (high - low) * kept(self.reach, radius)
        return self._outwards(float(budget), lower, steps * high - (high - low) * kept(self.stay, radius))

    @property
    def attacker(self) -> str:
        """The attacker in words."""
        return "whose offset to each single observation has an l2 norm of at most the budget"

    @property
    def extra(self) -> dict[str, Any]:
        """Over how many steps, and between which rewards."""
        return {"steps": self.reach.size, "rewards": list(self.rewards)}

    def headline(self, budget: str, lower: str) -> str:
        """Return the certificate in one sentence at one budget."""
        return (
            f"no attacker who changes each observation by at most {budget} (l2) can push this agent's mean return "
            f"below {lower}"
        )


def certify_per_step(episodes: Episodes, budgets: Sequence[float], confidence: float = 0.95) -> StepCertificate:
    """Certify the expected return against every adversary whose offset to each observation is at most the budget.

    ``episodes``  a record of unattacked play with noise that knows the rewards of each step (``gains``) and their
                  limits (the fact ``rewards``): played with ``per_step=True``
    ``budgets``   l2 sizes of a single offset, in the units of the observations
    """
    fields = common(episodes, budgets, confidence)
    low, high = _reward_limits(episodes)
    sums = np.asarray(episodes.gains).sum(axis=0)
    n, alpha = len(episodes), 1 - confidence
    shares = (sums - n * low) / (high - low)
    reach, stay = step_means(shares, n, alpha), step_means(n - shares, n, alpha)
    return StepCertificate(method="per-step", rewards=(low, high), reach=reach, stay=stay, **fields)._filled()


def _reward_limits(episodes: Episodes) -> tuple[float, float]:
    limits = episodes.facts.get("rewards")
    if episodes.gains is None or limits is None:
        raise InputError(
            "a budget per step needs the rewards of each step, and this record has none; play it with --per-step"
        )
    low, high = (float(limit) for limit in limits)
    return check_rewards(low, high)


def check_rewards(low: float, high: float) -> tuple[float, float]:
    """Return limits of a step's reward, refusing what is none; 0 counts too, for it is paid after the end."""
    if not (np.isfinite(low) and np.isfinite(high) and low <= 0 <= high and low < high):
        raise InputError(f"the limits of a step's reward must enclose 0, got {low} and {high}")
    return low, high
