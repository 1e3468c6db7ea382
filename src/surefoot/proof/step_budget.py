"""Certificates against an attacker with a budget for every step instead of the whole episode (T4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.files import number
from surefoot.proof.bounds.step_means import kept, step_means
from surefoot.proof.certificate import Certificate, Floats, fields_of

if TYPE_CHECKING:
    from surefoot.proof.query import Query

ROUNDING = 1e-12  # of the sum of all ranges of a reward: floating-point error of sums that nearly cancel


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PerStepCertificate(Certificate):
    """Bounds on the mean return when each single perturbation has an l2 norm of at most the budget.

    Attributes:
        n_steps: Number of steps after which every episode has ended.
        reward_range: Lowest and highest reward of a step, 0 between them.
        source: Bounds on the mean reward of each step from below and from above, as shares of the range of a reward;
            None when read from a file.
    """

    kind: ClassVar[str | None] = "per-step"
    file: ClassVar[str] = "per-step.json"

    n_steps: int
    reward_range: tuple[float, float]
    source: tuple[Floats, Floats] | None = None

    def _means(self, budgets: Sequence[float]) -> tuple[Floats, Floats | None] | None:
        if self.source is None:
            return None
        low, high = self.reward_range
        error = ROUNDING * self.n_steps * (high - low)
        below, above = (np.array([kept(side, budget / self.sigma) for budget in budgets]) for side in self.source)
        lower = self.n_steps * low + (high - low) * below - error
        return lower, self.n_steps * high - (high - low) * above + error

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
        fields = fields_of(episodes, query.budgets, query.confidence)
        low, high = _reward_range(episodes)
        sums = np.asarray(episodes.reward_sums).sum(axis=0)
        n, alpha = len(episodes), 1 - query.confidence
        shares = (sums - n * low) / (high - low)
        source = (step_means(shares, n, alpha), step_means(n - shares, n, alpha))
        made = PerStepCertificate(
            method="per-step", n_steps=shares.size, reward_range=(low, high), source=source, **fields
        )
        return made._filled()


def _reward_range(episodes: Episodes) -> tuple[float, float]:
    limits = episodes.metadata.get("rewards")
    if episodes.reward_sums is None or limits is None:
        raise InputError(
            "a budget per step needs the rewards of each step, which these episodes lack; run them with per_step=True"
        )
    low, high = (float(limit) for limit in limits)
    return check_rewards(low, high)


def check_rewards(low: float, high: float) -> tuple[float, float]:
    """Return the range of a step's reward, or say why it is not one; 0 must be in it: it is paid after the end."""
    if not (np.isfinite(low) and np.isfinite(high) and low <= 0 <= high and low < high):
        raise InputError(f"the range of a step's reward must contain 0, got {low} and {high}")
    return low, high
