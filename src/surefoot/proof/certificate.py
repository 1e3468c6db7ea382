"""What certificates against other attackers than that of a whole episode have in common."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from surefoot.episodes import Episodes, checked_returns
from surefoot.errors import InputError
from surefoot.proof.episode_budget import Limits
from surefoot.proof.rounding import decimals, discount_of, exact, features_of, limit_table, noise_of, percent, return_of

SCHEMA = 1
_OUTWARD = 1e-9  # of the range, as in every certificate


@dataclass(frozen=True, eq=False, kw_only=True)
class ThreatCertificate(ABC):
    """Limits of the mean return against some attacker; ``kind`` says which, and names the file it is kept in."""

    kind: ClassVar[str]

    budgets: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64] | None
    estimate: float
    estimate_sem: float | None
    confidence: float
    method: str
    episodes: int
    sigma: float
    floor: float
    ceiling: float | None
    facts: Mapping[str, Any]
    record_sha256: str = ""
    asked: Mapping[str, Any] = field(default_factory=dict)

    @property
    def choice(self) -> Mapping[str, Any] | None:
        """None: no method was chosen by looking."""
        return None

    @property
    @abstractmethod
    def attacker(self) -> str:
        """The attacker in words, after "every adversary "."""

    @property
    def value(self) -> str:
        """What is bounded, in words."""
        return f"the expected {return_of(self.facts)}"

    @property
    @abstractmethod
    def extra(self) -> dict[str, Any]:
        """What the certificate says beside what all have in common."""

    @abstractmethod
    def headline(self, budget: str, lower: str) -> str:
        """Return the certificate in one sentence at one budget."""

    @property
    def statement(self) -> str:
        """The certificate as a sentence."""
        return (
            f"Under every adversary {self.attacker}, {self.value} of the smoothed agent "
            f"(noise {noise_of(self.sigma, self.facts)}) is at least 'lower'"
            + ("" if self.upper is None else " and at most 'upper'")
            + f". With confidence {exact(self.confidence)} all lower limits hold, for all budgets at once"
            + ("." if self.upper is None else ", and so do all upper limits.")
        )

    def __str__(self) -> str:
        """Return a short table, every limit rounded against us, and what it says."""
        digits = decimals(self.floor, self.ceiling, self.estimate)
        lines = limit_table(self.budgets, self.lower, self.upper, digits)
        sides = "" if self.upper is None else ", and so do all upper limits"
        lines.append(
            f"Certified limits of {self.value} under every adversary {self.attacker} (noise "
            f"{noise_of(self.sigma, self.facts)}, "
            f"{self.episodes} episodes): with {percent(self.confidence)} confidence all lower limits hold at "
            f"once{sides}."
        )
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the certificate as strict JSON data; 'lower' and 'upper' are bounds, 'estimate' is not."""
        return {
            "schema": SCHEMA,
            "kind": self.kind,
            **self.extra,
            **{key: self.facts.get(key) for key in ("task", "agent", "agent_sha256", "seed")},
            "sigma": self.sigma,
            "confidence": self.confidence,
            "episodes": self.episodes,
            "method": self.method,
            "record_sha256": self.record_sha256,
            "floor": self.floor,
            "ceiling": self.ceiling,
            "budgets": self.budgets.tolist(),
            "lower": self.lower.tolist(),
            "upper": None if self.upper is None else self.upper.tolist(),
            "estimate": self.estimate,
            "estimate_sem": self.estimate_sem,
            **self.asked,
            **discount_of(self.facts),
            **features_of(self.facts),
            "statement": self.statement,
        }

    @abstractmethod
    def at(self, budget: float) -> Limits:
        """Return the limits at any budget."""

    def _outwards(self, budget: float, lower: float, upper: float | None) -> Limits:
        """Round both limits against us and keep them within floor and ceiling."""
        top = self.estimate if self.ceiling is None else self.ceiling
        slack = _OUTWARD * (top - self.floor) + 16 * sys.float_info.epsilon * max(abs(self.floor), abs(top))
        least = min(max(lower - slack, self.floor), top)
        if upper is None or self.ceiling is None:
            return Limits(budget, least, None)
        return Limits(budget, least, max(min(upper + slack, self.ceiling), self.floor))

    def _filled(self) -> Self:
        limits = [self.at(float(budget)) for budget in self.budgets]
        lower = np.array([limit.lower for limit in limits])
        upper = None if limits[0].upper is None else np.array([limit.upper for limit in limits], dtype=np.float64)
        for values in (self.budgets, lower, upper):
            if values is not None:
                values.setflags(write=False)
        return replace(self, lower=lower, upper=upper)


def common(episodes: Episodes, budgets: Sequence[float], confidence: float) -> dict[str, Any]:
    """Check what every certificate needs and return the fields that all have in common, without limits."""
    if episodes.attacked:
        raise InputError("a certificate needs episodes without an adversary, got a record of attacked play")
    if not (math.isfinite(episodes.sigma) and episodes.sigma > 0):
        raise InputError(f"sigma must be > 0, got {episodes.sigma}: without noise nothing is certified")
    if not 0 < confidence < 1:
        raise InputError(f"confidence must lie strictly between 0 and 1, got {confidence}")
    if np.ndim(budgets) != 1 or len(budgets) == 0:
        raise InputError(f"budgets must be a list of at least one number, got {budgets!r}")
    returns = checked_returns(episodes.returns, episodes.floor, episodes.ceiling)
    return {
        "budgets": np.array([checked_budget(budget) for budget in budgets]),
        "lower": np.empty(0),
        "upper": None,
        "estimate": float(returns.mean()),
        "estimate_sem": float(returns.std(ddof=1)) / math.sqrt(returns.size) if returns.size > 1 else None,
        "confidence": float(confidence),
        "episodes": returns.size,
        "sigma": float(episodes.sigma),
        "floor": float(episodes.floor),
        "ceiling": None if episodes.ceiling is None else float(episodes.ceiling),
        "facts": dict(episodes.facts),
        "record_sha256": episodes.sha256,
    }


def checked_budget(budget: float) -> float:
    """Return a budget as a float, refusing what is none."""
    if not (math.isfinite(budget) and budget >= 0):
        raise InputError(f"a budget must be a finite number >= 0, got {budget}")
    return float(budget)
