"""Certificates against an attacker that shares one budget among many episodes, or keeps it only on average (T5)."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.bounds.shared import Coin, Tilts, coin, tilts
from surefoot.certify import Limits
from surefoot.episodes import Episodes, checked_returns
from surefoot.errors import InputError
from surefoot.rounding import decimals, exact, limit_rows, percent

SCHEMA = 1
METHODS = ("betting", "binary")
_OUTWARD = 1e-9  # of the range, as in every certificate


@dataclass(frozen=True, eq=False)
class SharedCertificate:
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

    shared_by: int
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
    below: Coin | Tilts
    above: Coin | Tilts | None
    record_sha256: str = ""

    def at(self, budget: float, shared_by: int | None = None) -> Limits:
        """Return the limits at any budget and, if given, for any other number of episodes that share it."""
        many = self.shared_by if shared_by is None else _checked_count(shared_by)
        return self._limits(float(_checked_budget(budget)), many)

    def _limits(self, budget: float, many: int) -> Limits:
        spend = cost(budget, self.sigma, many)
        top = self.estimate if self.ceiling is None else self.ceiling
        slack = _OUTWARD * (top - self.floor) + 16 * sys.float_info.epsilon * max(abs(self.floor), abs(top))
        lower = min(max(self.floor + self.below.at(spend) - slack, self.floor), top)
        if self.ceiling is None or self.above is None:
            return Limits(budget, lower, None)
        upper = max(min(self.ceiling - self.above.at(spend) + slack, self.ceiling), self.floor)
        return Limits(budget, lower, upper)

    @property
    def statement(self) -> str:
        """The certificate as a sentence."""
        many = "an episode" if self.shared_by == 1 else f"{self.shared_by} episodes together"
        return (
            f"Under every adversary whose squared offsets to the observations of {many} have a sum of at most the "
            "square of the budget, on average over its attacks, the expected return per episode of the smoothed agent "
            f"(noise sigma {exact(self.sigma)}) is at least 'lower'"
            + ("" if self.upper is None else " and at most 'upper'")
            + f". With confidence {exact(self.confidence)} all lower limits hold, for all budgets at once"
            + ("." if self.upper is None else ", and so do all upper limits.")
        )

    def __str__(self) -> str:
        """Return a short table, every limit rounded against us, and what it says."""
        digits = decimals(self.floor, self.ceiling, self.estimate)
        table = [("budget", "lower", "upper"), *limit_rows(self.budgets, self.lower, self.upper, digits)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
        lines.append(
            f"Certified limits of the mean return per episode when {self.shared_by} share one l2 budget that holds on "
            f"average (noise sigma {exact(self.sigma)}, {self.episodes} episodes): with {percent(self.confidence)} "
            "confidence all lower limits hold at once"
            + ("." if self.upper is None else ", and so do all upper limits.")
        )
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the certificate as strict JSON data; 'lower' and 'upper' are bounds, 'estimate' is not."""
        return {
            "schema": SCHEMA,
            "kind": "shared",
            "shared_by": self.shared_by,
            **{key: self.facts.get(key) for key in ("task", "agent", "agent_sha256", "seed")},
            "sigma": self.sigma,
            "confidence": self.confidence,
            "episodes": self.episodes,
            "method": self.method,
            "pilot": self.below.pilot if isinstance(self.below, Tilts) else 0,
            "record_sha256": self.record_sha256,
            "floor": self.floor,
            "ceiling": self.ceiling,
            "budgets": self.budgets.tolist(),
            "lower": self.lower.tolist(),
            "upper": None if self.upper is None else self.upper.tolist(),
            "estimate": self.estimate,
            "estimate_sem": self.estimate_sem,
            "statement": self.statement,
        }


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
    if episodes.attacked:
        raise InputError("a certificate needs episodes without an adversary, got a record of attacked play")
    if not (math.isfinite(episodes.sigma) and episodes.sigma > 0):
        raise InputError(f"sigma must be > 0, got {episodes.sigma}: without noise nothing is certified")
    if not 0 < confidence < 1:
        raise InputError(f"confidence must lie strictly between 0 and 1, got {confidence}")
    if np.ndim(budgets) != 1 or len(budgets) == 0:
        raise InputError(f"budgets must be a list of at least one number, got {budgets!r}")
    asked = [_checked_budget(budget) for budget in budgets]
    many = _checked_count(shared_by)
    chosen = method or ("binary" if episodes.facts.get("method") == "binary" else "betting")
    returns = checked_returns(episodes.returns, episodes.floor, episodes.ceiling)
    below, above = _pieces(returns, episodes, 1 - confidence, chosen, [cost(b, episodes.sigma, many) for b in asked])
    blank = SharedCertificate(
        shared_by=many,
        budgets=np.array(asked),
        lower=np.empty(0),
        upper=None,
        estimate=float(returns.mean()),
        estimate_sem=float(returns.std(ddof=1)) / math.sqrt(returns.size) if returns.size > 1 else None,
        confidence=float(confidence),
        method=chosen,
        episodes=returns.size,
        sigma=float(episodes.sigma),
        floor=float(episodes.floor),
        ceiling=None if episodes.ceiling is None else float(episodes.ceiling),
        facts=dict(episodes.facts),
        below=below,
        above=above,
        record_sha256=episodes.sha256,
    )
    return _filled(blank)


def cost(budget: float, sigma: float, shared_by: int) -> float:
    """Return B^2 / (2 sigma^2 M): the relative entropy per episode that the budget buys."""
    radius = budget / sigma
    return radius * radius / (2 * shared_by)


def _filled(certificate: SharedCertificate) -> SharedCertificate:
    limits = [certificate.at(float(budget)) for budget in certificate.budgets]
    lower = np.array([limit.lower for limit in limits])
    upper = None if certificate.ceiling is None else np.array([limit.upper for limit in limits], dtype=np.float64)
    for values in (certificate.budgets, lower, upper):
        if values is not None:
            values.setflags(write=False)
    return replace(certificate, lower=lower, upper=upper)


def _pieces(
    returns: NDArray[np.float64], episodes: Episodes, alpha: float, method: str, costs: Sequence[float]
) -> tuple[Coin | Tilts, Coin | Tilts | None]:
    floor, ceiling = episodes.floor, episodes.ceiling
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


def _checked_budget(budget: float) -> float:
    if not (math.isfinite(budget) and budget >= 0):
        raise InputError(f"a budget must be a finite number >= 0, got {budget}")
    return float(budget)


def _checked_count(shared_by: int) -> int:
    if isinstance(shared_by, bool) or int(shared_by) != shared_by or shared_by < 1:
        raise InputError(f"shared_by must be a whole number of episodes, at least 1, got {shared_by}")
    return int(shared_by)
