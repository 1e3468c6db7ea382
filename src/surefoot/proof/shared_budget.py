"""Certificates against an attacker that shares one budget among many episodes: on average (T5), or certain (T7).

Which of the two is fixed by the threat, before any return is seen. A budget that holds on average needs T5. A certain
one is covered by T5 too, and by T2 with all of the budget in every episode; from the same distribution T7 is never
below either of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.proof.bounds.bands import Band, binary, tail_tight
from surefoot.proof.bounds.relative_entropy import BernoulliBound, TiltedBound, bound_wins
from surefoot.proof.bounds.sums import sum_mean_lower, sum_mean_upper
from surefoot.proof.certificate import Bounds, Certificate, Floats, common_fields
from surefoot.proof.planning.thetas import THETA_PLANNER_VERSION, plan_and_bound_tilts

if TYPE_CHECKING:
    from surefoot.proof.query import Query

SHARED_METHODS = ("betting", "binary")  # of a budget that holds on average
CERTAIN_METHODS = ("band", "binary")  # of one that is certain
# Bounds of the return counted from the floor, and from the ceiling where there is one.
SharedSource = tuple[BernoulliBound | TiltedBound, BernoulliBound | TiltedBound | None]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SharedBudgetCertificate(Certificate):
    """Bounds on the mean return per episode when several episodes share one budget.

    Attributes:
        n_shared_episodes: Number of episodes M that share one budget B: the squared perturbations of the M episodes
            have a sum of at most B^2.
        certain: Whether that holds in every attack; otherwise only on average over the attacks.
        pilot: Number of episodes, the first ones, that fixed the bets and were not used for anything else.
        source: What the bounds are computed from; None when read from a file.

    Example:
        >>> import surefoot
        >>> episodes = surefoot.Episodes.from_returns([0.0, 1.0, 1.0, 1.0] * 100, sigma=0.5, floor=0, ceiling=1)
        >>> certificate = surefoot.certify_shared_budget(episodes, [0.0, 0.5], n_shared_episodes=4)
        >>> certificate.at(0.5).lower < certificate.at(0.5, n_shared_episodes=16).lower
        True
        >>> certain = surefoot.certify_shared_budget(episodes, [0.5], n_shared_episodes=4, certain=True)
        >>> bool(certificate.at(0.5).lower < certain.lower[0])
        True
    """

    kind: ClassVar[str | None] = "shared"
    file: ClassVar[str] = "shared.json"
    per: ClassVar[str] = " per episode"

    n_shared_episodes: int
    pilot: int
    certain: bool = False
    source: SharedSource | Band | None = None

    def at(self, budget: float, n_shared_episodes: int | None = None) -> Bounds:
        """Return the bounds at any budget and, if given, for another number of episodes that share it."""
        if n_shared_episodes is None:
            return super().at(budget)
        if self.source is None:
            raise InputError("another number of episodes needs the certificate itself; this one was read from a file")
        return replace(self, n_shared_episodes=_checked_count(n_shared_episodes)).at(budget)

    def _mean_bounds(self, budgets: Sequence[float]) -> tuple[Floats, Floats | None] | None:
        if self.source is None:
            return None
        if isinstance(self.source, Band):
            # T7: the episodes that share a budget are one game, whose return is their sum.
            scaled = np.array([budget / self.budget_sigma for budget in budgets])
            of_sums = sum_mean_lower(self.source, self.floor, self.n_shared_episodes, scaled)
            if self.ceiling is None:
                return of_sums, None
            return of_sums, sum_mean_upper(self.source, self.ceiling, self.n_shared_episodes, scaled)
        # T5: whatever the attacker does with its budget, relative entropy bounds how far the mean can move.
        above_floor, below_ceiling = self.source
        costs = [entropy_cost(budget, self.budget_sigma, self.n_shared_episodes) for budget in budgets]
        lower = self.floor + np.array(list(map(above_floor.at, costs)))
        if self.ceiling is None or below_ceiling is None:
            return lower, None
        # The mirror image: how far below the ceiling the mean remains.
        return lower, self.ceiling - np.array(list(map(below_ceiling.at, costs)))

    @property
    def scope(self) -> str:
        """What the budget bounds, in words."""
        return f"total {{norm}} norm of the perturbations of {self._together}{self.divided}{self._on_average}"

    @property
    def scope_of_pairs(self) -> str:
        """What a pair of budgets bounds."""
        return f"l2 norms of all perturbations of observations and of actions in {self._together}{self._on_average}"

    @property
    def _together(self) -> str:
        if self.n_shared_episodes == 1:
            return "one episode"
        return f"{self.n_shared_episodes} episodes together"

    @property
    def _on_average(self) -> str:
        return "" if self.certain else ", root mean square over attacks"

    @property
    def attack_clause(self) -> str:
        """Which attacks the bounds hold against."""
        which = "an episode"
        if self.n_shared_episodes != 1:
            which = f"{self.n_shared_episodes} episodes together"
        kept = "" if self.certain else " in expectation"
        what = f"{self.channel} of {which}{self.divided_inside}"
        return f"whose squared perturbations of the {what} sum to at most the square of budgets[i]{kept}"

    def _own_json(self) -> dict[str, Any]:
        own = {
            "n_shared_episodes": self.n_shared_episodes,
            "certain": self.certain,
            "n_pilot_episodes": self.pilot,
        }
        if self.method == "betting":
            own["planner"] = THETA_PLANNER_VERSION
        return own

    @classmethod
    def _own_fields(cls, content: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "n_shared_episodes": int(content["n_shared_episodes"]),
            "certain": bool(content["certain"]),
            "pilot": int(content["n_pilot_episodes"]),
        }


@dataclass(frozen=True)
class SharedBudget:
    """The attacker distributes one budget over ``episodes`` episodes; unless ``certain``, it holds only on average."""

    certificate: ClassVar[type[Certificate]] = SharedBudgetCertificate

    episodes: int
    certain: bool = False

    def __post_init__(self) -> None:
        _checked_count(self.episodes)

    def certify(self, episodes: Episodes, query: Query) -> SharedBudgetCertificate:
        """Answer a query about this attacker."""
        query.refuse_distribution("a shared budget")
        methods = CERTAIN_METHODS if self.certain else SHARED_METHODS
        method = query.method
        if method is None:
            method = "binary" if episodes.metadata.get("binary") else methods[0]
        if method not in methods:
            kind = "certain shared budget" if self.certain else "shared budget"
            raise InputError(f"the method of a {kind} must be one of {', '.join(methods)}, got {method!r}")
        fields = common_fields(episodes, query.budgets, query.confidence)
        source: SharedSource | Band
        pilot = 0
        if self.certain:
            source = _shared_band(episodes, 1 - query.confidence, method)
        else:
            # The budgets are known before the returns: bets may be planned for them.
            costs = [entropy_cost(budget, episodes.noise.budget_sigma, self.episodes) for budget in query.budgets]
            source = _prove_shared_bounds(episodes, 1 - query.confidence, method, costs)
            if isinstance(source[0], TiltedBound):
                # Both sides have the same pilot: its size depends on the number of episodes alone.
                pilot = source[0].pilot
        made = SharedBudgetCertificate(
            n_shared_episodes=_checked_count(self.episodes),
            certain=self.certain,
            pilot=pilot,
            method=method,
            source=source,
            **fields,
        )
        return made._with_bounds()


def entropy_cost(budget: float, sigma: float, n_shared_episodes: int) -> float:
    """Return B^2 / (2 sigma^2 M): the relative entropy per episode that the budget buys."""
    scaled = budget / sigma
    return scaled * scaled / (2 * n_shared_episodes)


def _prove_shared_bounds(episodes: Episodes, alpha: float, method: str, costs: Sequence[float]) -> SharedSource:
    """Return what bounds the mean above the floor and, with a known ceiling, below the ceiling: the mirror image."""
    returns = episodes.returns
    floor = episodes.floor
    ceiling = episodes.ceiling
    if method == "betting":
        above_floor = plan_and_bound_tilts(returns, floor, ceiling, alpha, costs)
        if ceiling is None:
            return above_floor, None
        return above_floor, plan_and_bound_tilts(-returns, -ceiling, -floor, alpha, costs)
    if ceiling is None:
        raise InputError("the method 'binary' needs a known ceiling of the return, got none; use 'betting'")
    # With returns between floor and ceiling the two counts would not be the mean.
    other = returns[(returns != floor) & (returns != ceiling)]
    if other.size:
        raise InputError(f"the binary method expects only the returns {floor:g} and {ceiling:g}, got {other[0]:g}")
    return bound_wins(returns, floor, ceiling, alpha), bound_wins(-returns, -ceiling, -floor, alpha)


def _shared_band(episodes: Episodes, alpha: float, method: str) -> Band:
    """Return bounds on the distribution of one return, from which those on sums follow."""
    if method == "band":
        return tail_tight(episodes.returns, alpha)
    if episodes.ceiling is None:
        raise InputError("the method 'binary' needs a known ceiling of the return, got none; use 'band'")
    return binary(episodes.returns, episodes.floor, episodes.ceiling, alpha)


def _checked_count(episodes: int) -> int:
    # True and False are integers of Python.
    if isinstance(episodes, bool) or int(episodes) != episodes or episodes < 1:
        raise InputError(f"n_shared_episodes must be a whole number of episodes, at least 1, got {episodes}")
    return int(episodes)
