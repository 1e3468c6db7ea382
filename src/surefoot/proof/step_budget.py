"""Certificates against an attacker with a budget for every step instead of the whole episode (T4).

``StepBudget``          the threat
``PerStepCertificate``  its certificates
``check_rewards``       whether two numbers can be the range of a step's reward
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.files import number
from surefoot.proof.bounds.step_means import shifted_step_sum, step_means
from surefoot.proof.certificate import Certificate, Floats, common_fields

if TYPE_CHECKING:
    from surefoot.proof.query import Query

STEP_SUM_ERROR = 1e-12  # of the sum of all ranges of a reward: floating-point error of sums that nearly cancel


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PerStepCertificate(Certificate):
    """Bounds on the mean return when each single perturbation has an l2 norm of at most the budget.

    Attributes:
        n_steps: Number of steps after which every episode has ended.
        reward_range: Lowest and highest reward of a step, 0 between them.
        source: Bounds on the mean reward of each step from below and from above, as shares of the range of a reward;
            None when read from a file.

    Example:
        >>> import numpy as np
        >>> import surefoot
        >>> known = {"sigma": 0.5, "floor": 0.0, "ceiling": 5.0, "metadata": {"reward_range": [0.0, 1.0]}}
        >>> episodes = surefoot.Episodes(np.full(200, 5.0), reward_sums=np.full((1, 5), 200.0), **known)
        >>> certificate = surefoot.certify_per_step(episodes, [0.0, 0.1])
        >>> certificate.n_steps, certificate.lower.round(2).tolist()
        (5, [4.89, 4.76])
    """

    kind: ClassVar[str | None] = "per-step"
    file: ClassVar[str] = "per-step.json"

    n_steps: int
    reward_range: tuple[float, float]
    source: tuple[Floats, Floats] | None = None

    def _mean_bounds(self, budgets: Sequence[float]) -> tuple[Floats, Floats | None] | None:
        if self.source is None:
            return None
        low, high = self.reward_range
        error = STEP_SUM_ERROR * self.n_steps * (high - low)
        from_below, from_above = self.source
        # In shares of the range of a reward, summed over all steps.
        above_low = np.empty(len(budgets))
        below_high = np.empty(len(budgets))
        for index, budget in enumerate(budgets):
            above_low[index] = shifted_step_sum(from_below, budget / self.sigma)
            below_high[index] = shifted_step_sum(from_above, budget / self.sigma)
        # Both sides outward by the error of a sum over all steps.
        lower = self.n_steps * low + (high - low) * above_low - error
        return lower, self.n_steps * high - (high - low) * below_high + error

    @property
    def scope(self) -> str:
        """What the budget bounds, in words."""
        return "{norm} norm of the perturbation of each single observation"

    @property
    def attack_clause(self) -> str:
        """Which attacks the bounds hold against."""
        return "whose perturbation of each single observation has an l2 norm of at most budgets[i]"

    def _own_json(self) -> dict[str, Any]:
        return {"n_steps": self.n_steps, "reward_range": list(self.reward_range)}

    @classmethod
    def _own_fields(cls, content: Mapping[str, Any]) -> dict[str, Any]:
        low, high = content["reward_range"]
        return {"n_steps": int(content["n_steps"]), "reward_range": (number(low), number(high))}


@dataclass(frozen=True)
class StepBudget:
    """The attacker has a separate budget at every step."""

    certificate: ClassVar[type[Certificate]] = PerStepCertificate

    def certify(self, episodes: Episodes, query: Query) -> PerStepCertificate:
        """Answer a query about this attacker."""
        query.refuse_distribution("a budget per step")
        if query.method is not None:
            raise InputError(f"a budget per step has only one method, got {query.method!r}; omit the method")
        fields = common_fields(episodes, query.budgets, query.confidence)
        low, high = _known_reward_range(episodes)
        sums = np.asarray(episodes.reward_sums).sum(axis=0)
        n = len(episodes)
        alpha = 1 - query.confidence
        # Sums of shares of the range of a reward, from 0 to n at each step; their complements bound the upper side.
        shares = (sums - n * low) / (high - low)
        source = (step_means(shares, n, alpha), step_means(n - shares, n, alpha))
        made = PerStepCertificate(
            method="per-step", n_steps=shares.size, reward_range=(low, high), source=source, **fields
        )
        return made._with_bounds()


def _known_reward_range(episodes: Episodes) -> tuple[float, float]:
    reward_range = episodes.metadata.get("reward_range")
    if episodes.reward_sums is None or reward_range is None:
        raise InputError(
            "a budget per step needs the rewards of each step, which these episodes lack; run them with per_step=True"
        )
    low, high = reward_range
    return check_rewards(float(low), float(high))


def check_rewards(low: float, high: float) -> tuple[float, float]:
    """Return the range of a step's reward, or say why it is not one; 0 must be in it: it is paid after the end."""
    # A reward that is always 0 has no range to take shares of.
    if not (np.isfinite(low) and np.isfinite(high) and low <= 0 <= high and low < high):
        raise InputError(f"the range of a step's reward must contain 0, got {low} and {high}")
    return low, high
