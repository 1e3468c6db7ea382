"""Certificates against an attacker that shares one budget among many episodes, or keeps it only on average (T5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.proof.bounds.relative_entropy import Coin, Tilts, coin, tilts
from surefoot.proof.certificate import ThreatCertificate, checked_budget, common
from surefoot.proof.episode_budget import Limits
from surefoot.proof.rounding import return_of

METHODS = ("betting", "binary")


@dataclass(frozen=True, eq=False, kw_only=True)
class SharedCertificate(ThreatCertificate):
    """What is proved about the mean return per episode when ``shared_by`` episodes share one budget.

    ``shared_by``   how many episodes the attacker plays with one budget, M
    ``budgets``     B: the squared offsets of the M episodes have a sum of at most B^2, on average over the attacks
    ``lower``       certified lower limit of the mean return per episode at each budget, rounded down
    ``upper``       certified upper limit, rounded up, or None without a known ceiling
    ``estimate``, ``estimate_sem``  mean without attack and its standard error: not bounds
    ``confidence``  of all lower limits together, and of all upper limits together
    ``method``      "betting", or "binary" for wins and losses
    ``below``, ``above``  what the limits are computed from, counted from the floor and from the ceiling
    """

    kind: ClassVar[str] = "shared"

    shared_by: int
    below: Coin | Tilts
    above: Coin | Tilts | None

    def at(self, budget: float, shared_by: int | None = None) -> Limits:
        """Return the limits at any budget and, if given, for any other number of episodes that share it."""
        spend = cost(checked_budget(budget), self.sigma, self.shared_by if shared_by is None else _count(shared_by))
        upper = None if self.ceiling is None or self.above is None else self.ceiling - self.above.at(spend)
        return self._outwards(float(budget), self.floor + self.below.at(spend), upper)

    @property
    def _many(self) -> str:
        return "an episode" if self.shared_by == 1 else f"{self.shared_by} episodes together"

    @property
    def attacker(self) -> str:
        """The attacker in words."""
        return (
            f"whose squared offsets to the observations of {self._many} have a sum of at most the square of the "
            "budget, on average over its attacks"
        )

    @property
    def value(self) -> str:
        """What is bounded, in words."""
        return f"the expected {return_of(self.facts)} per episode"

    @property
    def extra(self) -> dict[str, Any]:
        """How many share the budget, and how many episodes settled the bets and count for nothing else."""
        return {"shared_by": self.shared_by, "pilot": self.below.pilot if isinstance(self.below, Tilts) else 0}

    def headline(self, budget: str, lower: str) -> str:
        """Return the certificate in one sentence at one budget."""
        return (
            f"no attacker who changes the observations of {self._many} by at most {budget} (l2, in the root mean "
            f"square over its attacks) can push this agent's mean return per episode below {lower}"
        )


def certify_shared(
    episodes: Episodes,
    budgets: Sequence[float],
    shared_by: int,
    confidence: float = 0.95,
    method: str | None = None,
) -> SharedCertificate:
    """Certify the mean return per episode when ``shared_by`` episodes share one budget that holds on average.

    ``episodes``    a record of unattacked play with noise, of episodes that reset
    ``budgets``     l2 sizes of all offsets in ``shared_by`` episodes together, in the units of the observations
    ``shared_by``   1 for an attacker whose budget for each episode holds only on average
    ``method``      "betting", or "binary" where only floor and ceiling can occur, fixed before looking; by default
                    "binary" if the record's facts name it, else "betting"
    """
    fields = common(episodes, budgets, confidence)
    many = _count(shared_by)
    chosen = method or ("binary" if episodes.facts.get("method") == "binary" else "betting")
    costs = [cost(float(budget), episodes.sigma, many) for budget in fields["budgets"]]
    below, above = _pieces(episodes, 1 - confidence, chosen, costs)
    return SharedCertificate(shared_by=many, method=chosen, below=below, above=above, **fields)._filled()


def cost(budget: float, sigma: float, shared_by: int) -> float:
    """Return B^2 / (2 sigma^2 M): the relative entropy per episode that the budget buys."""
    radius = budget / sigma
    return radius * radius / (2 * shared_by)


def _pieces(
    episodes: Episodes, alpha: float, method: str, costs: Sequence[float]
) -> tuple[Coin | Tilts, Coin | Tilts | None]:
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


def _count(shared_by: int) -> int:
    if isinstance(shared_by, bool) or int(shared_by) != shared_by or shared_by < 1:
        raise InputError(f"shared_by must be a whole number of episodes, at least 1, got {shared_by}")
    return int(shared_by)
