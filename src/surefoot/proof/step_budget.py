"""Certificates against an attacker with a budget for every step instead of the whole episode (T4, T8).

``StepBudget``          the threat
``PerStepCertificate``  its certificates
``check_rewards``       whether two numbers can be the range of a step's reward
``step_unit``           the per-step budget that is worth a scaled budget of 1
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.files import number
from surefoot.proof.bounds.step_scores import OrderedRewards, RewardRuns
from surefoot.proof.certificate import Certificate, Floats, common_fields
from surefoot.proof.planning.bettors import PLANNER_VERSION
from surefoot.proof.planning.strategies import BoundedMeans, bets_as_json, bound_step_means

if TYPE_CHECKING:
    from surefoot.proof.query import Query


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PerStepCertificate(Certificate):
    """Bounds on the mean return when each single perturbation has an l2 norm of at most the budget.

    Attributes:
        n_steps: Number of steps after which every episode has ended.
        reward_range: Lowest and highest reward of a step, 0 between them.
        betting: The bets that were made and what they proved, as JSON data.
        planner: Version of the planner that chose the bets.
        source: What the bets on all steps of an episode together have proved; None when read from a file.

    Example:
        >>> import numpy as np
        >>> import surefoot
        >>> facts = {"reward_range": [0.0, 1.0], "max_steps": 5}
        >>> known = {"sigma": 0.5, "floor": 0.0, "ceiling": 5.0, "metadata": facts}
        >>> lengths = np.full(200, 5)  # 200 episodes with a reward of 1 at each of 5 steps; a rollout has them
        >>> rewards = {"lengths": lengths, "reward_values": np.ones(200), "reward_repeats": lengths}
        >>> episodes = surefoot.Episodes(np.full(200, 5.0), **rewards, **known)
        >>> certificate = surefoot.certify_per_step(episodes, [0.0, 0.1])
        >>> certificate.n_steps, certificate.lower.round(2).tolist()
        (5, [4.9, 4.76])
    """

    kind: ClassVar[str | None] = "per-step"
    file: ClassVar[str] = "per-step.json"

    n_steps: int
    reward_range: tuple[float, float]
    betting: Mapping[str, Any] | None = None
    planner: int | None = None
    source: BoundedMeans | None = None

    def _mean_bounds(self, budgets: Sequence[float]) -> tuple[Floats, Floats | None] | None:
        if self.source is None or self.source.mirror is None:
            return None
        unit = step_unit(self.budget_sigma, self.n_steps)
        scaled = np.array([budget / unit for budget in budgets])
        return self.source.lower.at(scaled), -self.source.mirror.at(scaled)

    @property
    def scope(self) -> str:
        """What the budget bounds, in words."""
        return f"{{norm}} norm of the perturbation of {self._each}{self.divided}"

    @property
    def scope_of_pairs(self) -> str:
        """What a pair of budgets bounds."""
        return "l2 norms of the perturbations of each single observation and of the action after it"

    @property
    def attack_clause(self) -> str:
        """Which attacks the bounds hold against."""
        return f"whose perturbation of {self._each}{self.divided_inside} has an l2 norm of at most budgets[i]"

    @property
    def _each(self) -> str:
        """What every budget is for."""
        if self.channel == "observations and actions":
            return "each single observation together with the action after it"
        return f"each single {self.channel.removesuffix('s')}"

    def _own_json(self) -> dict[str, Any]:
        return {
            "n_steps": self.n_steps,
            "reward_range": list(self.reward_range),
            "planner": self.planner,
            "bets": self.betting,
        }

    @classmethod
    def _own_fields(cls, content: Mapping[str, Any]) -> dict[str, Any]:
        low, high = content["reward_range"]
        return {
            "n_steps": int(content["n_steps"]),
            "reward_range": (number(low), number(high)),
            "betting": content["bets"],
            "planner": content["planner"],
        }


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
        rewards = _known_rewards(episodes)
        unit = step_unit(episodes.noise.budget_sigma, rewards.n_steps)
        scaled = [budget / unit for budget in query.budgets]
        ends = _ends_of_returns(rewards, episodes)
        source = bound_step_means(rewards, scaled, 1 - query.confidence, *ends)
        made = PerStepCertificate(
            method="per-step",
            n_steps=rewards.n_steps,
            reward_range=(rewards.low, rewards.high),
            betting=bets_as_json(source),
            planner=PLANNER_VERSION,
            source=source,
            **fields,
        )
        return made._with_bounds()


def step_unit(sigma: float, n_steps: int) -> float:
    """Return the budget per step that adds up to an l2 norm of sigma over all steps: a scaled budget of 1."""
    return sigma / math.sqrt(n_steps)


def _known_rewards(episodes: Episodes) -> RewardRuns:
    known = episodes.reward_values, episodes.reward_repeats, episodes.lengths
    reward_range = episodes.metadata.get("reward_range")
    n_steps = episodes.metadata.get("max_steps")
    if any(array is None for array in known) or reward_range is None or n_steps is None:
        raise InputError(
            "a budget per step needs the rewards of each step, which these episodes lack; run them with per_step=True"
        )
    low, high = check_rewards(*map(float, reward_range))
    values, repeats, lengths = map(np.asarray, known)
    return RewardRuns.of(values, repeats, lengths, int(n_steps), low, high)


def _ends_of_returns(rewards: RewardRuns, episodes: Episodes) -> tuple[float, float]:
    """Return between which ends every return is: those that are stated, or what all rewards add up to."""
    floor = max(rewards.floor, episodes.floor)
    ceiling = rewards.ceiling
    if episodes.ceiling is not None:
        ceiling = min(ceiling, episodes.ceiling)
    if not floor < ceiling:
        raise InputError(
            f"rewards of at most {rewards.high:g} add up to at most {rewards.ceiling:g} in {rewards.n_steps} steps, "
            f"expected more than the floor {episodes.floor:g}; give the true floor and range of rewards"
        )
    totals = OrderedRewards(rewards).outcomes
    rounding = 1e-9 * (rewards.ceiling - rewards.floor)
    if not floor - rounding <= totals.min() <= totals.max() <= ceiling + rounding:
        raise InputError(
            f"the rewards of an episode add up to {totals.min():g} to {totals.max():g}, expected from the floor "
            f"{floor:g} to the ceiling {ceiling:g}"
        )
    return floor, ceiling


def check_rewards(low: float, high: float) -> tuple[float, float]:
    """Return the range of a step's reward, or say why it is not one; 0 must be in it: it is paid after the end."""
    # A reward that is always 0 has no range to take shares of.
    if not (np.isfinite(low) and np.isfinite(high) and low <= 0 <= high and low < high):
        raise InputError(f"the range of a step's reward must contain 0, got {low} and {high}")
    return low, high
