"""What is asked of a run: ``Requirement``, ``units_of_agent``, ``threat_of``, ``stopping_rule``.

Nothing here needs torch: returns in a file are certified where it is not installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from surefoot.errors import InputError
from surefoot.proof.query import Units
from surefoot.proof.shared_budget import SharedBudget
from surefoot.proof.step_budget import StepBudget
from surefoot.proof.stopping import StoppingRule
from surefoot.proof.threats import EPISODE, Threat

if TYPE_CHECKING:
    from surefoot.agents.policies import Policy


class Requirement(NamedTuple):
    """A mean return that is to be proved under every attack within a budget."""

    mean: float
    budget: float


def units_of_agent(policy: Policy, *, norm: str = "l2") -> Units:
    """Return the units of an agent's VecNormalize, in which each feature has its own."""
    # Agents need torch.
    from surefoot.agents.normalization import feature_scales

    scales = feature_scales(policy)
    if scales is None:
        raise InputError(
            f'units="normalized" needs an agent with statistics of VecNormalize, {policy.name} has none; give '
            "vecnormalize=FILE, or a sigma= for each feature"
        )
    # Units of each feature make an ellipsoid of an l2 ball, as a sigma per feature does; no other norm has that proof.
    if norm != "l2":
        raise InputError(f'units="normalized" is for norm="l2", got {norm}')
    return Units(tuple(scales))


def threat_of(*, per_step: bool = False, n_shared_episodes: int | None = None, certain: bool = False) -> Threat:
    """Return what one budget covers: by default one whole episode."""
    if certain and n_shared_episodes is None:
        raise InputError("certain= goes with n_shared_episodes=: other budgets hold in every attack anyway")
    if per_step and n_shared_episodes is not None:
        raise InputError("per_step= cannot be combined with n_shared_episodes=: a budget per step is not shared")
    if per_step:
        return StepBudget()
    if n_shared_episodes is not None:
        return SharedBudget(n_shared_episodes, certain)
    return EPISODE


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
        tol: By how much the lower bound may be below its limit.
    """
    if tol is None and max_episodes is None:
        if tol_budget is not None:
            raise InputError("tol_budget= is the budget of tol=; give tol= too, or require=")
        return None
    if tol is None and require is None:
        raise InputError("max_episodes= needs a reason to stop: give tol= or require=")
    # Bets are made for one budget: without a requirement it is that of tol.
    if require is None:
        budget = sigma if tol_budget is None else tol_budget
        return StoppingRule(budget=budget, tolerance=tol)
    if tol_budget not in (None, require.budget):
        raise InputError(
            f"tol_budget= is {tol_budget:g} and require= has the budget {require.budget:g}; give the same, or one"
        )
    return StoppingRule(budget=require.budget, tolerance=tol, require=require.mean)
