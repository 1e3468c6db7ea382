"""What is asked of a run: ``Requirement``, ``Units``, the query and the stopping rule that options stand for.

Nothing here needs torch: returns in a file are certified where it is not installed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from surefoot.episodes import Noise
from surefoot.errors import InputError
from surefoot.proof.query import EPISODE, Norm, Query, Threat, default_budgets
from surefoot.proof.shared_budget import SharedBudget
from surefoot.proof.step_budget import StepBudget
from surefoot.proof.stopping import StoppingRule

if TYPE_CHECKING:
    from surefoot.agents.policies import Policy
    from surefoot.play.task import Task


class Requirement(NamedTuple):
    """A mean return that is to be proved under every attack within a budget."""

    mean: float
    budget: float


@dataclass(frozen=True)
class Units:
    """The units in which a sigma and budgets are given.

    Attributes:
        scales: What one unit of each feature is in the environment's units; None where those are the environment's own.
    """

    scales: tuple[float, ...] | None = None

    @property
    def raw_unit(self) -> float:
        """One unit of budget in the environment's units: budgets count by the feature with the least sigma."""
        return 1.0 if self.scales is None else min(self.scales)

    def to_raw_noise(self, noise: Noise) -> Noise:
        """Return the noise in the environment's units, where every feature has its own."""
        if self.scales is None:
            return noise
        if noise.features is not None:
            raise InputError(f"normalized units need one sigma for all features, got {noise.features}")
        return Noise.of([noise.sigma * scale for scale in self.scales])

    def to_raw_budgets(self, budgets: Sequence[float]) -> tuple[float, ...]:
        """Return budgets in the environment's units."""
        return tuple(budget * self.raw_unit for budget in budgets)


def units_of_agent(policy: Policy, *, norm: str = "l2") -> Units:
    """Return the units of an agent's VecNormalize, in which each feature has its own.

    Raises:
        InputError: If the agent has no statistics, or budgets have another norm than l2.
    """
    from surefoot.agents.normalization import feature_scales

    scales = feature_scales(policy)
    if scales is None:
        raise InputError(
            f'units="normalized" needs an agent with statistics of VecNormalize, {policy.name} has none; give '
            "vecnormalize=FILE, or a sigma= for each feature"
        )
    if norm != "l2":
        raise InputError(f'units="normalized" is for norm="l2", got {norm}')
    return Units(tuple(scales))


def threat_of(*, per_step: bool = False, n_shared_episodes: int | None = None) -> Threat:
    """Return what one budget covers: by default one whole episode."""
    if per_step and n_shared_episodes is not None:
        raise InputError("per_step= cannot be combined with n_shared_episodes=: a budget per step is not shared")
    if per_step:
        return StepBudget()
    if n_shared_episodes is not None:
        return SharedBudget(n_shared_episodes)
    return EPISODE


def query_for_task(
    task: Task | None,
    noise: Noise,
    *,
    budgets: Sequence[float] | None = None,
    norm: str = "l2",
    threat: Threat = EPISODE,
    **options: Any,
) -> Query:
    """Return what is asked of episodes, by default at the budgets that fit task, noise, threat and norm.

    Args:
        task: What is run; None for returns whose task is not known.
        noise: The noise; the least sigma counts where features differ.
        budgets: Attack budgets; by default the paper's for its own tasks, else 0 to 4 sigma.
        norm: "l2", "l1" or "linf".
        threat: What one budget covers.
        options: Other attributes of the query: confidence, method, thresholds, quantiles.
    """
    other_norm = None
    if norm != "l2":
        other_norm = _norm(norm, task, threat)
    if not budgets:
        budgets = _default_budgets(task, noise.sigma, threat, other_norm)
    return Query(budgets=tuple(budgets), threat=threat, norm=other_norm, **options)


def _norm(name: str, task: Task | None, threat: Threat) -> Norm:
    """Return a norm, with the numbers of values and of observations that one budget covers where they are known."""
    if task is None:
        return Norm(name=name)
    coordinates = math.prod(task.spaces.shape)
    if isinstance(threat, StepBudget):
        return Norm(name=name, coordinates=coordinates, observations=1)
    n_observations = task.scoring.max_steps
    if isinstance(threat, SharedBudget):
        n_observations *= threat.episodes
    return Norm(name=name, coordinates=coordinates, observations=n_observations)


def _default_budgets(task: Task | None, sigma: float, threat: Threat, norm: Norm | None) -> tuple[float, ...]:
    # The paper's budgets are l2 norms of whole episodes.
    if task is not None and task.paper.budgets and norm is None and threat == EPISODE:
        return task.paper.budgets
    # Budgets of other threats and norms that are worth the same: M episodes share sqrt(M) times the budget of one.
    scale = 1.0
    if isinstance(threat, SharedBudget):
        scale = math.sqrt(threat.episodes)
    if isinstance(threat, StepBudget) and task is not None:
        scale = math.sqrt(1 / task.scoring.max_steps)
    if norm is not None:
        scale /= norm.factor
    return default_budgets(sigma, scale=scale)


def stopping_rule(
    sigma: float,
    *,
    require: Requirement | None = None,
    tol: float | None = None,
    tol_budget: float | None = None,
    max_episodes: int | None = None,
) -> StoppingRule | None:
    """Return when a sequential run is to stop; None for a run whose number of episodes is fixed.

    Args:
        sigma: The least sigma of the noise: the budget of ``tol`` where none is given.
        require: What is to be proved; it alone does not make a run sequential.
        tol: By how much the lower bound may be below its limit.
        tol_budget: The budget that ``tol`` is about.
        max_episodes: Number of episodes after which a sequential run stops in any case.

    Raises:
        InputError: If nothing says when to stop, or two arguments are about different budgets.
    """
    if tol is None and max_episodes is None:
        if tol_budget is not None:
            raise InputError("tol_budget= is the budget of tol=; give tol= too, or require=")
        return None
    if tol is None and require is None:
        raise InputError("max_episodes= needs a reason to stop: give tol= or require=")
    if require is None:
        budget = sigma if tol_budget is None else tol_budget
        return StoppingRule(budget=budget, tolerance=tol)
    if tol_budget not in (None, require.budget):
        raise InputError(
            f"tol_budget= is {tol_budget:g} and require= has the budget {require.budget:g}; give the same, or one"
        )
    return StoppingRule(budget=require.budget, tolerance=tol, require=require.mean)


def add_budget(query: Query, budget: float) -> Query:
    """Return the query with one more budget, in ascending order; the same where it is among them."""
    if budget in query.budgets:
        return query
    return replace(query, budgets=tuple(sorted({*query.budgets, budget})))
