"""When a sequential run may stop: looks fixed by the number of episodes, and bounds valid at every look.

The certificate is anytime-valid: it holds whenever and for whatever reason the run stops.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.proof.bounds.bands import Band, tail_tight
from surefoot.proof.bounds.gaussian_shift import shift_down
from surefoot.proof.bounds.samples import Sample
from surefoot.proof.episode_budget import EpisodeCertificate, certificate_of
from surefoot.proof.planning.proposals import plug_in_means
from surefoot.proof.planning.strategies import Bets, BoundedMeans, worst_means
from surefoot.proof.rounding import format_exact, format_lower

Floats = NDArray[np.float64]

_GROWTH = 1.02  # the next look comes when there are this many times as many episodes, or after the next block
_FIRST_REFUTATION = 1000  # episodes
_CLEARANCE = 1e-9  # relative: more than rounding could do


class StoppingMonitor(ABC):
    """Inspects the returns so far, of one run or of several that go on in turn, and says whether to stop."""

    so_far: str = ""  # the bounds at the last look, in a few words

    def __init__(self) -> None:
        self._next_look = 1  # number of episodes of the first run

    def reason_to_stop(self, *returns: Floats) -> str | None:
        """Return why no more episodes are needed, or None; the returns begin with those of earlier calls."""
        n_episodes = returns[0].size
        if n_episodes < self._next_look:
            return None
        # Looks cost time, not confidence: bets hold at every number of episodes.
        self._next_look = int(n_episodes * _GROWTH) + 1
        return self._look(*returns)

    @abstractmethod
    def _look(self, *returns: Floats) -> str | None:
        """Compute the bounds, and return why no more episodes are needed, or None."""


def worst_mean_upper(band: Band, floor: float, ceiling: float, scaled_budget: float) -> float:
    """Return an upper bound of the worst-case mean itself: no number of episodes could certify more.

    P(X >= x) <= 1 - P(X <= y) for every y < x, and the worst-case mean grows with P(X >= x).
    """
    gaps = np.diff(np.concatenate([[floor], band.points, [ceiling]]))
    # who stays at an earlier point stays at this one
    survival = np.concatenate([[1.0], 1 - np.maximum.accumulate(band.cdf_lower)])
    # rounded up: twice, as products and sums are
    shifted = shift_down(np.minimum(survival * (1 + _CLEARANCE), 1.0), scaled_budget)
    return floor + float(gaps @ shifted) * (1 + _CLEARANCE)


@dataclass(frozen=True, kw_only=True)
class StoppingRule:
    """What a run is for."""

    budget: float  # attack budget that the rule is about
    # Stop when the lower bound is this close to the plug-in estimate of the worst-case mean.
    tolerance: float | None = None
    require: float | None = None  # stop when the lower bound has reached this mean, or when it provably never will

    def __post_init__(self) -> None:
        if self.tolerance is not None and not self.tolerance > 0:
            raise InputError(f"tolerance must be a number > 0, got {self.tolerance}")

    def to_json(self) -> dict[str, Any]:
        """Return the rule as JSON data."""
        return {"budget": self.budget, "tolerance": self.tolerance, "require": self.require}


class Monitor(StoppingMonitor):
    """Watches for a required mean, or for a bound that is close enough to what is possible."""

    def __init__(
        self, rule: StoppingRule, *, confidence: float, sigma: float, floor: float, ceiling: float | None
    ) -> None:
        super().__init__()
        self.rule = rule
        self.confidence = confidence
        self.floor = floor
        self.ceiling = ceiling
        self.alpha = 1 - confidence
        self.scaled_budget = rule.budget / sigma
        candidate = None
        if rule.require is not None:
            candidate = (self.scaled_budget, rule.require)
        self.bets = Bets([self.scaled_budget], self.alpha, floor, ceiling, claim=candidate)
        # A requirement is refuted by a band of its own, which the bounds do not use.
        self._refutations = 0
        self._next_refutation = _FIRST_REFUTATION
        self._note_bound(floor)

    def _note_bound(self, lower: float) -> None:
        self.lower = lower
        self.so_far = f"bound {format_lower(lower)} at B = {format_exact(self.rule.budget)}"
        if self.rule.require is not None:
            self.so_far += f", required {format_exact(self.rule.require)}"

    def _look(self, *returns: Floats) -> str | None:
        (own,) = returns
        self._note_bound(float(self.bets.after(own).at(self.scaled_budget)))
        if self.rule.require is not None and self.lower >= self.rule.require:
            return "proved"
        possible = float(plug_in_means(Sample.of(own), np.array([self.scaled_budget]), self.floor)[0])
        if self.rule.tolerance is not None and possible - self.lower <= self.rule.tolerance:
            return "close enough"
        if self._is_refuted(own):
            return "refuted"
        return None

    def _is_refuted(self, returns: Floats) -> bool:
        """Return whether the worst case itself is below the requirement, so that no number of episodes could prove it.

        Checked whenever the number of episodes has doubled, the k-th time at alpha / 2^k: in total at most alpha.
        """
        if self.rule.require is None or self.ceiling is None or returns.size < self._next_refutation:
            return False
        self._next_refutation = 2 * returns.size
        self._refutations += 1
        band = tail_tight(returns, self.alpha / 2**self._refutations)
        return bool(worst_mean_upper(band, self.floor, self.ceiling, self.scaled_budget) < self.rule.require)

    def certificate(self, episodes: Episodes, *, budgets: Sequence[float], stopped: str) -> EpisodeCertificate:
        """Return what these episodes prove; ``stopped`` is the reason why there are no more."""
        # The upper side has not been looked at before: its bets are made now, in the order of the episodes.
        lower = self.bets.after(episodes.returns)
        mirror = None
        if self.ceiling is not None:
            scaled = [self.scaled_budget]
            mirror = worst_means(-episodes.returns, scaled, self.alpha, -self.ceiling, -self.floor, anytime=True)
        return certificate_of(
            episodes,
            budgets=budgets,
            confidence=self.confidence,
            method="sequential",
            source=BoundedMeans(lower, mirror),
            method_selection={**self.rule.to_json(), "stopped": stopped},
        )
