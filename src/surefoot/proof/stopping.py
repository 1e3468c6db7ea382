"""When a sequential run may stop: looks fixed by the number of episodes, and bounds valid at every look.

The certificate is anytime-valid: it holds whenever and for whatever reason the run stops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.proof.bounds.bands import tail_tight
from surefoot.proof.bounds.from_band import worst_mean_upper
from surefoot.proof.bounds.samples import Sample
from surefoot.proof.episode_budget import EpisodeCertificate, certificate_of
from surefoot.proof.planning.proposals import plug_in
from surefoot.proof.planning.strategies import Bets, Means, worst_means
from surefoot.proof.rounding import exact, format_lower

_GROWTH = 1.02  # the next look comes when there are this many times as many episodes, or after the next block
_FIRST_REFUTATION = 1000  # episodes


@dataclass(frozen=True, kw_only=True)
class StoppingRule:
    """What a run is for.

    Attributes:
        budget: Attack budget that the rule is about.
        tolerance: Stop when the lower bound is this close to the plug-in estimate of the worst-case mean.
        require: Stop when the lower bound has reached this mean, or when it provably never will.
    """

    budget: float
    tolerance: float | None = None
    require: float | None = None

    def __post_init__(self) -> None:
        if self.tolerance is not None and not self.tolerance > 0:
            raise InputError(f"tolerance must be a number > 0, got {self.tolerance}")

    def to_json(self) -> dict[str, Any]:
        """Return the rule as JSON data."""
        return {"budget": self.budget, "until": self.tolerance, "require": self.require}


class Monitor:
    """Inspects the returns so far and says whether to stop."""

    def __init__(
        self, rule: StoppingRule, *, confidence: float, sigma: float, floor: float, ceiling: float | None
    ) -> None:
        self.rule, self.confidence, self.floor, self.ceiling = rule, confidence, floor, ceiling
        self.alpha, self.scaled_budget = 1 - confidence, rule.budget / sigma
        candidate = None if rule.require is None else (self.scaled_budget, rule.require)
        self.bets = Bets([self.scaled_budget], self.alpha, floor, ceiling, claim=candidate)
        self._next, self._refutations, self._next_refutation = 1, 0, _FIRST_REFUTATION
        self.lower = floor

    @property
    def so_far(self) -> str:
        """The bound at the last look, in a few words."""
        wanted = "" if self.rule.require is None else f", required {exact(self.rule.require)}"
        return f"bound {format_lower(self.lower)} at B = {exact(self.rule.budget)}{wanted}"

    def reason_to_stop(self, returns: NDArray[np.float64]) -> str | None:
        """Return why no more episodes are needed, or None."""
        if returns.size < self._next:
            return None
        self._next = int(returns.size * _GROWTH) + 1
        self.lower = float(self.bets.after(returns).at(self.scaled_budget))
        if self.rule.require is not None and self.lower >= self.rule.require:
            return "proved"
        possible = float(plug_in(Sample.of(returns), np.array([self.scaled_budget]), self.floor)[0])
        if self.rule.tolerance is not None and possible - self.lower <= self.rule.tolerance:
            return "close enough"
        return "refuted" if self._refuted(returns) else None

    def _refuted(self, returns: NDArray[np.float64]) -> bool:
        """Return whether the worst case itself is below the requirement, so that no number of episodes could prove it.

        Checked whenever the number of episodes has doubled, the k-th time at alpha / 2^k: in total at most alpha.
        """
        if self.rule.require is None or self.ceiling is None or returns.size < self._next_refutation:
            return False
        self._next_refutation, self._refutations = 2 * returns.size, self._refutations + 1
        band = tail_tight(returns, self.alpha / 2**self._refutations)
        return bool(worst_mean_upper(band, self.floor, self.ceiling, self.scaled_budget) < self.rule.require)

    def certificate(self, episodes: Episodes, *, budgets: Sequence[float], stopped: str) -> EpisodeCertificate:
        """Return what these episodes prove; ``stopped`` is the reason why there are no more."""
        lower = self.bets.after(episodes.returns)
        mirror = None
        if self.ceiling is not None:
            scaled = [self.scaled_budget]
            mirror = worst_means(-episodes.returns, scaled, self.alpha, -self.ceiling, -self.floor, anytime=True)
        fixed = {**self.rule.to_json(), "stopped": stopped}
        return certificate_of(
            episodes,
            budgets=budgets,
            confidence=self.confidence,
            method="sequential",
            source=Means(lower, mirror),
            method_selection=fixed,
        )
