"""Certificates against an attacker that shares one budget among many episodes, or keeps it only on average (T5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.proof import wording
from surefoot.proof.bounds.relative_entropy import Coin, Tilts, coin
from surefoot.proof.certificate import Bounds, Certificate, Floats, fields_of
from surefoot.proof.planning.thetas import PLANNER, tilts

if TYPE_CHECKING:
    from surefoot.proof.query import Query

METHODS = ("betting", "binary")
Source = tuple[Coin | Tilts, Coin | Tilts | None]  # counted from the floor and from the ceiling


@dataclass(frozen=True)
class SharedBudget:
    """The attacker distributes one budget over ``episodes`` episodes; it holds only on average over attacks."""

    episodes: int

    def __post_init__(self) -> None:
        _count(self.episodes)

    def certify(self, episodes: Episodes, query: Query) -> SharedBudgetCertificate:
        """Answer a query about this attacker."""
        query.refuse_distribution("a shared budget")
        method = query.method or ("binary" if episodes.metadata.get("method") == "binary" else "betting")
        fields = fields_of(episodes, query.budgets, query.confidence)
        costs = [cost(budget, episodes.sigma, self.episodes) for budget in query.budgets]
        source = _source(episodes, 1 - query.confidence, method, costs)
        pilot = source[0].pilot if isinstance(source[0], Tilts) else 0
        many = _count(self.episodes)
        made = SharedBudgetCertificate(n_shared_episodes=many, pilot=pilot, method=method, source=source, **fields)
        return made._filled()


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SharedBudgetCertificate(Certificate):
    """Bounds on the mean return per episode when several episodes share one budget.

    Attributes:
        n_shared_episodes: Number of episodes M that share one budget B: the squared perturbations of the M episodes
            have a sum of at most B^2, on average over the attacks.
        pilot: Number of episodes, the first ones, that fixed the bets and were not used for anything else.
        source: What the bounds are computed from; None when read from a file.
    """

    kind: ClassVar[str | None] = "shared"
    file: ClassVar[str] = "shared.json"
    per: ClassVar[str] = " per episode"

    n_shared_episodes: int
    pilot: int
    source: Source | None = None

    def at(self, budget: float, n_shared_episodes: int | None = None) -> Bounds:
        """Return the bounds at any budget and, if given, for another number of episodes that share it."""
        if n_shared_episodes is None:
            return super().at(budget)
        if self.source is None:
            raise InputError("another number of episodes needs the certificate itself; this one was read from a file")
        return replace(self, n_shared_episodes=_count(n_shared_episodes)).at(budget)

    def _means(self, budgets: Sequence[float]) -> tuple[Floats, Floats | None] | None:
        if self.source is None:
            return None
        below, above = self.source
        costs = [cost(budget, self.sigma, self.n_shared_episodes) for budget in budgets]
        lower = self.floor + np.array([below.at(spend) for spend in costs])
        if self.ceiling is None or above is None:
            return lower, None
        return lower, self.ceiling - np.array([above.at(spend) for spend in costs])

    @property
    def scope(self) -> str:
        """What the budget bounds, in words."""
        many = self.n_shared_episodes
        which = "one episode" if many == 1 else f"{many} episodes together"
        return f"total {{norm}} norm of the perturbations of {which}, root mean square over attacks"

    @property
    def statement(self) -> str:
        """The certificate as a sentence, as its file has it."""
        many = self.n_shared_episodes
        which = "an episode" if many == 1 else f"{many} episodes together"
        return wording.statement(
            self,
            f"whose squared perturbations of the observations of {which} sum to at most the square of budgets[i] in "
            "expectation",
        )

    def _own_json(self) -> dict[str, Any]:
        planner = {"planner": PLANNER} if self.method == "betting" else {}
        return {"n_shared_episodes": self.n_shared_episodes, "n_pilot_episodes": self.pilot, **planner}

    @classmethod
    def _own_fields(cls, content: Mapping[str, Any]) -> dict[str, Any]:
        return {"n_shared_episodes": int(content["n_shared_episodes"]), "pilot": int(content["n_pilot_episodes"])}


def cost(budget: float, sigma: float, n_shared_episodes: int) -> float:
    """Return B^2 / (2 sigma^2 M): the relative entropy per episode that the budget buys."""
    scaled = budget / sigma
    return scaled * scaled / (2 * n_shared_episodes)


def _source(episodes: Episodes, alpha: float, method: str, costs: Sequence[float]) -> Source:
    returns, floor, ceiling = episodes.returns, episodes.floor, episodes.ceiling
    if method == "betting":
        below = tilts(returns, floor, ceiling, alpha, costs)
        return below, None if ceiling is None else tilts(-returns, -ceiling, -floor, alpha, costs)
    if method != "binary":
        raise InputError(f"the method of a shared budget must be one of {', '.join(METHODS)}, got {method!r}")
    if ceiling is None:
        raise InputError("the method 'binary' needs a known ceiling of the return, got none; use 'betting'")
    other = returns[(returns != floor) & (returns != ceiling)]
    if other.size:
        raise InputError(f"the binary method expects only the returns {floor:g} and {ceiling:g}, got {other[0]:g}")
    return coin(returns, floor, ceiling, alpha), coin(-returns, -ceiling, -floor, alpha)


def _count(episodes: int) -> int:
    if isinstance(episodes, bool) or int(episodes) != episodes or episodes < 1:
        raise InputError(f"n_shared_episodes must be a whole number of episodes, at least 1, got {episodes}")
    return int(episodes)
