"""Whether one agent is better than another under the worst attack: one claim, valid whenever the run stops.

Write W(b) for the expected return of a smoothed agent under the worst attack with budget b, the infimum over all
attackers. What is claimed is W_A(b) > W_B(b).

Proof. Let l and u be bounds with P(l > W_A(b) at any time) <= alpha / 2 and P(u < E[X_B] at any time) <= alpha / 2,
where X_B is the return of B without attack. The attacker who does nothing is one of B's attackers, so W_B(b) <= E[X_B].
Outside of an event of probability alpha, l > u implies W_A(b) >= l > u >= E[X_B] >= W_B(b), at every time at once. So
the run may stop the first time that l > u, or for any other reason. Nothing is needed from B's noise: B may be
undefended, its observations may even be attacked with budget b or less, because the mean under any such attack is an
upper bound of W_B(b) too. (Where l > u, A under attack is better than B even without attack.)

The lower bound l is that of a sequential certificate of A, at confidence 1 - alpha / 2: ``Bets`` on the worst-case mean
(T3). The upper bound u is minus the lower bound of the mean of minus B's returns: the same bets at budget 0, which need
a ceiling.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import InputError
from surefoot.proof.bounds.samples import Sample
from surefoot.proof.certificate import checked_budget
from surefoot.proof.planning.proposals import plug_in_means
from surefoot.proof.planning.strategies import Bets
from surefoot.proof.rounding import (
    format_exact,
    format_lower,
    format_percent,
    format_upper,
    rounded_lower,
    rounded_upper,
)
from surefoot.proof.stopping import StoppingMonitor

Floats = NDArray[np.float64]

_FEWEST_EPISODES = 1_000  # before which nothing is given up
_HOPELESS_GAP = 4.0  # in standard errors of B's mean


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What episodes of two agents prove about them.

    Attributes:
        budget: Attack budget, the l2 norm of all perturbations of one episode.
        confidence: Probability, over repeated runs, that no false claim is made, whenever the run stops.
        lower: Lower bound on A's mean return under any attack with that budget.
        upper: Upper bound on the mean return of B's episodes, and so on B's mean under the worst attack.
        estimates: Mean returns of A's and of B's episodes: estimates.
        n_episodes: Numbers of episodes of A and of B.
        stopped: Why there are no more: "proved", "out of reach", "all played" or "stopped by hand".
    """

    budget: float
    confidence: float
    lower: float
    upper: float
    estimates: tuple[float, float]
    n_episodes: tuple[int, int]
    stopped: str

    @property
    def proved(self) -> bool:
        """Whether A is better than B under the worst attack with the budget."""
        return self.lower > self.upper

    def _count_digits(self) -> int:
        """Return decimals with which a proved claim also reads as one: both bounds are rounded towards each other."""
        if not self.proved:
            return 2
        for digits in range(2, 16):
            if float(format_lower(self.lower, digits)) > float(format_upper(self.upper, digits)):
                return digits
        return 2

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as JSON data."""
        return {"schema": 1, "proved": self.proved, **asdict(self)}

    def sentence(self, a: str, b: str, *, attacked: bool = False) -> str:
        """Return the claim in words, or that it is not proved.

        Args:
            a: Name of the one agent.
            b: Name of the other.
            attacked: Whether B's episodes were attacked.
        """
        how = "without attack"
        if attacked:
            how = "under the attack tried"
        digits = self._count_digits()
        # Any attack on B bounds its worst case from above: no attack at all does, too.
        bounds = (
            f"under any observation attack with budget {format_exact(self.budget)} the expected return of A is at "
            f"least {format_lower(self.lower, digits)}; that of B is at most {format_upper(self.upper, digits)} {how}, "
            "and so under the worst one"
        )
        claim = f"A ({a}) is better than B ({b}) under the worst attack"
        if self.proved:
            return f"With {format_percent(self.confidence)} confidence, {claim}: {bounds}."
        return f"Not proved: {claim}. With {format_percent(self.confidence)} confidence, {bounds}."


class ComparisonMonitor(StoppingMonitor):
    """Watches for a proof that A is better than B, or for the likelihood that there will be none."""

    def __init__(self, *, budget: float, sigma: float, confidence: float, limits: tuple[float, float | None]) -> None:
        """Fix in advance what is claimed.

        Args:
            budget: Attack budget.
            sigma: A's noise.
            confidence: That of the claim; each of the two bounds gets half of alpha.
            limits: Floor and ceiling of the return.

        Raises:
            InputError: If there is no ceiling, without which B's mean has no upper bound, or if A has no noise.
        """
        super().__init__()
        floor, ceiling = limits
        if ceiling is None:
            raise InputError("a comparison needs a ceiling: without it the mean of B has no upper bound; give ceiling=")
        if not sigma > 0:
            raise InputError(f"A must have noise, got sigma {sigma:g}: without it nothing is certified")
        if not 0 < confidence < 1:
            raise InputError(f"confidence must be strictly between 0 and 1, got {confidence}")
        self.budget = checked_budget(budget)
        self.confidence = confidence
        self.floor = floor
        self.ceiling = ceiling
        self.scaled_budget = budget / sigma
        # The union bound: the claim needs both bounds, so each gets half.
        alpha = (1 - confidence) / 2
        self._bets_on_a = Bets([self.scaled_budget], alpha, floor, ceiling)
        # On minus B's returns: a lower bound of their mean is an upper bound of B's.
        self._bets_on_b = Bets([0.0], alpha, -ceiling, -floor)

    @property
    def goal(self) -> dict[str, Any]:
        """What is claimed, as JSON data."""
        return {"compare": self.budget, "confidence": self.confidence}

    def _look(self, *returns: Floats) -> str | None:
        a, b = returns
        now = self.result(a, b, "proved")
        self.so_far = f"A at least {format_lower(now.lower)}, B at most {format_upper(now.upper)}"
        if now.proved:
            return "proved"
        if self._is_hopeless(a, b):
            return "out of reach"
        return None

    def _is_hopeless(self, a: Floats, b: Floats) -> bool:
        """Return whether the bounds would not meet with many more episodes either, as far as estimates say.

        It only ends the run; what is claimed does not depend on it. The plug-in value is biased up.
        """
        if min(a.size, b.size) < _FEWEST_EPISODES:
            return False
        possible = float(plug_in_means(Sample.of(a), np.array([self.scaled_budget]), self.floor)[0])
        return bool(possible < b.mean() - _HOPELESS_GAP * b.std() / b.size**0.5)

    def result(self, a: Floats, b: Floats, stopped: str) -> Comparison:
        """Return what these returns prove; ``stopped`` is the reason why there are no more."""
        # Bets hold at every number of episodes, so a look at any time may be the last one.
        lower = self._bets_on_a.after(a).at(self.scaled_budget)
        upper = -self._bets_on_b.after(-b).at(0.0)
        return Comparison(
            budget=self.budget,
            confidence=self.confidence,
            lower=float(rounded_lower(lower, self.floor, (float(a.min()), float(a.max())))),
            upper=float(rounded_upper(upper, self.ceiling, (float(b.min()), float(b.max())))),
            estimates=(float(a.mean()), float(b.mean())),
            n_episodes=(a.size, b.size),
            stopped=stopped,
        )
