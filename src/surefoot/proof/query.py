"""What is asked of episodes, fixed before they are run; and the public functions that ask it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from surefoot.episodes import MOST_ASKED, MOST_BOUNDED, Episodes
from surefoot.errors import InputError
from surefoot.noise import Noise, noisy_channel
from surefoot.proof.certificate import Certificate, checked_budget
from surefoot.proof.episode_budget import EpisodeCertificate
from surefoot.proof.shared_budget import SharedBudget, SharedBudgetCertificate
from surefoot.proof.step_budget import PerStepCertificate, StepBudget
from surefoot.proof.threats import EPISODE, Threat

NORMS = ("l2", "l1", "linf")


@dataclass(frozen=True, kw_only=True)
class Norm:
    """Another norm than l2 of all perturbations that one budget covers; l2 budgets that include it are certified."""

    name: str  # "l1", the sum of all absolute values, or "linf", the largest of them
    coordinates: int | None = None  # number of values in one observation; needed for "linf"
    observations: int | None = None  # number of observations that one budget covers; needed for "linf"
    channel: str = "observations"  # what is perturbed: "observations", or "actions", whose numbers are then counted

    def __post_init__(self) -> None:
        if self.name not in NORMS[1:]:
            raise InputError(f"norm must be one of {', '.join(NORMS)}, got {self.name!r}")
        if self.name == "linf" and (self.coordinates is None or self.observations is None):
            raise InputError(
                "an l-infinity budget needs the size of an observation and a maximum number of steps; run a task"
            )

    @property
    def factor(self) -> float:
        """The largest l2 norm of a vector of norm 1: 1 for l1, the root of the number of entries for l-infinity."""
        if self.name == "l1" or self.coordinates is None or self.observations is None:
            return 1.0
        return math.sqrt(self.coordinates * self.observations)

    def in_l2(self, budgets: Sequence[float]) -> tuple[float, ...]:
        """Return l2 budgets that include these: their product with the factor and a numerical margin."""
        # The margin covers the rounding errors of root and product: the l2 ball must contain the whole other one.
        return tuple(self.factor * budget * (1 + 1e-12) for budget in budgets)

    def to_json(self, budgets: Sequence[float]) -> dict[str, Any]:
        """Return the norm and the budgets that were asked for, as JSON data."""
        return {
            "name": self.name,
            "budgets": [float(budget) for budget in budgets],
            "coordinates": self.coordinates,
            "observations": self.observations,
            "factor": self.factor,
        }


class CertifiableTask(Protocol):
    """What a query must know about a task; ``Task`` has it."""

    @property
    def spaces(self) -> Any:
        """Observations: their ``shape``."""

    @property
    def scoring(self) -> Any:
        """Episodes: their ``max_steps``."""

    @property
    def paper(self) -> Any:
        """The paper's experiment: its ``budgets``, none for a task that is not the paper's."""


def check_confidence(confidence: float) -> None:
    """Raise InputError unless this is a probability between 0 and 1; a percentage is the likeliest mistake."""
    if not 0 < confidence < 1:
        meant = f"; did you mean {confidence / 100:g}?" if 1 < confidence < 100 else ""
        raise InputError(f"confidence must be strictly between 0 and 1, got {confidence:g}{meant}")


@dataclass(frozen=True, kw_only=True)
class Query:
    """What is asked of episodes.

    Attributes:
        budgets: Attack budgets, in the units of the observations.
        confidence: That all lower bounds hold simultaneously; likewise all upper bounds.
        method: Method of the bounds, fixed in advance; None for the threat's default.
        threshold_spacing: Distance between thresholds, for the method "per-threshold".
        threat: What one budget covers: a whole episode, several episodes together, or every single step.
        thresholds: Returns x for which P(return >= x) is bounded too.
        quantiles: Quantiles of the return that are bounded too.
        cvars: Shares q for which the mean of the lowest share q of returns is bounded too (CVaR).
        norm: The norm of the budgets; None for l2.
        mixed: The pairs of a budget for observations and one for actions that ``budgets`` include, where they were
            given so; one per budget.

    Example:
        >>> from surefoot import Episodes, Query
        >>> episodes = Episodes.from_returns([200.0] * 1000, sigma=0.2, floor=0, ceiling=200)
        >>> query = Query(budgets=(0.0, 0.2), confidence=0.99, method="band")
        >>> query.answer(episodes).lower.round(1).tolist()
        [198.3, 183.4]
    """

    budgets: tuple[float, ...]
    confidence: float = 0.95
    method: str | None = None
    threshold_spacing: float = 1.0
    threat: Threat = EPISODE
    thresholds: tuple[float, ...] = ()
    quantiles: tuple[float, ...] = ()
    cvars: tuple[float, ...] = ()
    norm: Norm | None = None
    mixed: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        check_confidence(self.confidence)
        if not (math.isfinite(self.threshold_spacing) and self.threshold_spacing > 0):
            raise InputError(f"threshold spacing must be a finite number > 0, got {self.threshold_spacing}")
        if not self.budgets:
            raise InputError("expected at least one budget, got none")
        for name in ("budgets", "thresholds", "quantiles", "cvars"):
            count = len(getattr(self, name))
            if count > MOST_ASKED:
                raise InputError(f"expected at most {MOST_ASKED:,} {name}, got {count:,}")
        asked = len(self.thresholds) + len(self.quantiles) + len(self.cvars)
        if asked * len(self.budgets) > MOST_BOUNDED:
            raise InputError(
                f"expected at most {MOST_BOUNDED:,} bounds of thresholds, quantiles and cvars, one at each of the "
                f"budgets, got {asked:,} of them and {len(self.budgets):,} budgets; ask for fewer"
            )
        object.__setattr__(self, "budgets", tuple(checked_budget(budget) for budget in self.budgets))

    @classmethod
    def for_task(
        cls,
        task: CertifiableTask | None,
        noise: Noise | float | Sequence[float],
        *,
        budgets: Sequence[float] | None = None,
        mixed: Sequence[tuple[float, float]] = (),
        norm: str = "l2",
        threat: Threat = EPISODE,
        **options: Any,
    ) -> Query:
        """Return what is asked of a task's episodes, by default at budgets that fit the noise, the threat and the norm.

        Without ``budgets``, the paper's tasks have the paper's where they mean what is asked (l2, whole episodes).
        Elsewhere the default is worth 0 to 4 sigma of one episode, in steps of half a sigma. Beyond that little can be
        certified: 10,000 perfect episodes prove 28% of the range at 4 sigma and 5% at 5 sigma.

        Args:
            task: The task; None for precomputed returns, about whose observations nothing is known.
            noise: The noise, or sigma, or one sigma per feature.
            budgets: Attack budgets, in the units of the observations and in this norm. With noise on actions alone they
                are in the units of the actions; with noise on both they count standard deviations.
            mixed: Instead of ``budgets``: pairs of a budget for observations and one for actions, in their units.
            norm: "l2", "l1" or "linf".
            threat: What one budget covers.
            **options: Other fields of a query: confidence, method, thresholds and so on.

        Raises:
            InputError: If an argument is out of range, or if an l-infinity budget is asked for without a task.

        Example:
            >>> from surefoot import Query
            >>> Query.for_task(None, 0.2).budgets
            (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
        """
        if not isinstance(noise, Noise):
            noise = Noise.of(noise)
        if mixed:
            if budgets is not None:
                raise InputError("budgets= cannot be combined with mixed=; give one of them")
            budgets = [noise.mixed_budget(*pair) for pair in mixed]
        max_steps = 1 if task is None else task.scoring.max_steps
        n_observations = _covered_observations(threat, max_steps)
        other_norm = None
        if norm != "l2" and mixed:
            raise InputError("mixed= gives l2 norms; it cannot be combined with norm=")
        if norm != "l2" and task is not None:
            channel = _channel_of_norm(noise)
            size = math.prod(task.spaces.shape) if channel == "observations" else task.spaces.n_outputs
            other_norm = Norm(name=norm, coordinates=size, observations=n_observations, channel=channel)
        elif norm != "l2":
            other_norm = Norm(name=norm, channel=_channel_of_norm(noise))
        # The paper's figures are about l2 budgets for whole episodes.
        is_papers = other_norm is None and threat == EPISODE and noise.action_sigma == 0
        if budgets is None and task is not None and is_papers:
            budgets = task.paper.budgets or None
        if budgets is None:
            # As much for every observation as an l2 budget of 1 for a whole episode has.
            scale = math.sqrt(n_observations / max_steps)
            if other_norm is not None:
                scale /= other_norm.factor
            budgets = default_budgets(noise.budget_sigma, scale=scale)
        return cls(budgets=tuple(budgets), threat=threat, norm=other_norm, mixed=tuple(mixed), **options)

    def with_budget(self, budget: float) -> Query:
        """Return the query with one more budget, in ascending order; the same where it is among them."""
        if budget in self.budgets:
            return self
        if self.mixed:
            raise InputError(f"a budget of {budget:g} cannot be added to mixed=; give it as one of them")
        return replace(self, budgets=tuple(sorted({*self.budgets, budget})))

    def answer(self, episodes: Episodes) -> Certificate:
        """Certify the episodes against the attacker that the query is about."""
        if self.mixed:
            budgets = tuple(episodes.noise.mixed_budget(*pair) for pair in self.mixed)
            made = replace(self, budgets=budgets, mixed=()).answer(episodes)
            pairs = [{"observations": float(one), "actions": float(other)} for one, other in self.mixed]
            return replace(made, requested={**made.requested, "mixed": pairs})
        if self.norm is None:
            return self.threat.certify(episodes, self)
        if _channel_of_norm(episodes.noise) != self.norm.channel:
            raise InputError(f"the norm counts {self.norm.channel}, and the episodes have no noise on them")
        # All that has at most this norm is within the larger l2 budget, about which the proofs are.
        made = replace(self, budgets=self.norm.in_l2(self.budgets), norm=None).answer(episodes)
        return replace(made, requested={**made.requested, "norm": self.norm.to_json(self.budgets)})

    @property
    def wants_distribution(self) -> bool:
        """Whether more than means is asked for: probabilities, quantiles or CVaR."""
        return bool(self.thresholds or self.quantiles or self.cvars)

    def refuse_distribution(self, threat: str) -> None:
        """Raise if more than means is asked for, which only a budget for whole episodes has."""
        if self.wants_distribution:
            raise InputError(f"probabilities, quantiles and CVaR cannot be combined with {threat}")


def _channel_of_norm(noise: Noise) -> str:
    """Return what a norm other than l2 is about: what has noise, if that is not both."""
    channel = noisy_channel(noise.sigma, noise.action_sigma)
    if channel not in ("observations", "actions"):
        # A largest number, or a sum of absolute values, has a meaning in one unit alone.
        raise InputError("norm= is of observations or of actions; with noise on both omit it, budgets are then in l2")
    return channel


def _covered_observations(threat: Threat, max_steps: int) -> int:
    """Return how many observations one budget covers, of episodes of at most so many steps."""
    if isinstance(threat, StepBudget):
        return 1
    if isinstance(threat, SharedBudget):
        return threat.episodes * max_steps
    return max_steps


def default_budgets(sigma: float, *, scale: float = 1.0) -> tuple[float, ...]:
    """Return the budgets that are certified where none were asked for: 0 to 4 sigma in steps of half a sigma.

    Args:
        sigma: Standard deviation of the noise (the smallest, if it differs from feature to feature).
        scale: Largest budget of another norm or threat that an l2 budget of 1 for one episode includes.
    """
    return tuple(float(f"{scale * sigma * step / 2:.3g}") for step in range(9))


@dataclass(frozen=True)
class Units:
    """Units in which sigma and budgets are given: the environment's, or those of an agent's VecNormalize.

    Example:
        >>> from surefoot.episodes import Noise
        >>> from surefoot.proof.query import Query, Units
        >>> query, noise = Units((0.5, 2.0)).to_raw(Query(budgets=(0.0, 0.4)), Noise.of(0.1))
        >>> query.budgets, noise.features
        ((0.0, 0.2), (0.05, 0.2))
    """

    # What one normalized unit of each feature is in the environment's units; None for raw units.
    scales: tuple[float, ...] | None = None

    @property
    def raw_unit(self) -> float:
        """One unit of budget in the environment's units: budgets count by the feature with the least sigma."""
        return 1.0 if self.scales is None else min(self.scales)

    def to_raw(self, query: Query, noise: Noise) -> tuple[Query, Noise]:
        """Return both in the environment's units."""
        return replace(query, budgets=self.to_raw_budgets(query.budgets)), self.to_raw_noise(noise)

    def to_raw_noise(self, noise: Noise) -> Noise:
        """Return the noise in the environment's units, where every feature has its own.

        Raises:
            InputError: If normalized units are combined with anything but one sigma above 0 on all observations.
        """
        if self.scales is None:
            return noise
        if noise.features is not None:
            raise InputError(f"normalized units need one sigma for all features, got {noise.features}")
        if noise.action_sigma > 0:
            raise InputError("normalized units are those of observations; they cannot be combined with action_sigma=")
        # Features are weighed by their noise: without any a budget would be in the units of the environment.
        if noise.sigma == 0:
            raise InputError("normalized units need a sigma above 0")
        # The same noise after the agent's own division by these scales.
        return Noise.of([noise.sigma * scale for scale in self.scales])

    def to_raw_budgets(self, budgets: Sequence[float]) -> tuple[float, ...]:
        """Return budgets in the environment's units."""
        return tuple(budget * self.raw_unit for budget in budgets)


def certify(
    episodes: Episodes,
    budgets: Sequence[float],
    confidence: float = 0.95,
    method: str | None = None,
    threshold_spacing: float = 1.0,
    *,
    thresholds: Sequence[float] = (),
    quantiles: Sequence[float] = (),
    cvars: Sequence[float] = (),
) -> EpisodeCertificate:
    """Certify the expected return of a smoothed agent under every observation attack within each l2 budget.

    Args:
        episodes: Episodes of the smoothed agent without attack; sigma, floor and ceiling are read from them.
        budgets: Attack budgets: l2 norms of all perturbations of one episode, in the units of the observations.
        confidence: Probability that all lower bounds hold simultaneously; likewise all upper bounds.
        method: One of ``METHODS``, fixed in advance. By default "auto": the first episodes select the method, the
            others are certified with it. "paper" is the method that the task names, else "dkw". Where probabilities,
            quantiles or CVaR are asked for the default is "band", from which they all follow.
        threshold_spacing: Distance between thresholds from floor to ceiling, for "per-threshold" only.
        thresholds: Returns x for which P(return >= x) is bounded too, in ``requested["probabilities"]`` and by
            ``probability(x, budget)``.
        quantiles: Quantiles of the return that are bounded too, in ``requested["quantiles"]`` and by
            ``quantile(q, budget)``.
        cvars: Shares q for which the mean of the lowest share q of returns (CVaR) is bounded too, in
            ``requested["cvars"]`` and by ``cvar(q, budget)``.

    Raises:
        InputError: If an argument is out of range, or if the episodes were attacked or had no noise.

    Example:
        >>> import surefoot
        >>> episodes = surefoot.Episodes.from_returns([200.0] * 1000, sigma=0.2, floor=0, ceiling=200)
        >>> certificate = surefoot.certify(episodes, budgets=[0.0, 0.2], method="band")
        >>> certificate.lower.round(1).tolist()
        [198.7, 185.9]
    """
    query = Query(
        budgets=_as_tuple(budgets),
        confidence=confidence,
        method=method,
        threshold_spacing=threshold_spacing,
        thresholds=tuple(thresholds),
        quantiles=tuple(quantiles),
        cvars=tuple(cvars),
    )
    return EPISODE.certify(episodes, query)


def certify_shared_budget(
    episodes: Episodes,
    budgets: Sequence[float],
    n_shared_episodes: int,
    confidence: float = 0.95,
    method: str | None = None,
    *,
    certain: bool = False,
) -> SharedBudgetCertificate:
    """Certify the mean return per episode when several episodes share one budget.

    Args:
        episodes: Episodes of the smoothed agent without attack, each after a reset.
        budgets: l2 norms of all perturbations of ``n_shared_episodes`` episodes together.
        n_shared_episodes: Number of episodes that share a budget; 1 for a budget that holds per episode on average.
        confidence: Probability that all lower bounds hold simultaneously; likewise all upper bounds.
        method: "betting" ("band" for a certain budget), or "binary" where only floor and ceiling can occur, fixed in
            advance; by default "binary" if the task names it, else the first.
        certain: Whether the budget holds in every attack; by default it holds only on average over attacks, which
            covers more attackers and certifies less.

    Raises:
        InputError: If an argument is out of range, or if the episodes were attacked or had no noise.

    Example:
        >>> import surefoot
        >>> episodes = surefoot.Episodes.from_returns([1.0] * 1000, sigma=0.2, floor=0, ceiling=1)
        >>> certificate = surefoot.certify_shared_budget(episodes, [0.2], n_shared_episodes=4, method="binary")
        >>> certificate.lower.round(2).tolist()
        [0.94]
    """
    threat = SharedBudget(n_shared_episodes, certain)
    return threat.certify(
        episodes, Query(budgets=_as_tuple(budgets), confidence=confidence, method=method, threat=threat)
    )


def certify_per_step(episodes: Episodes, budgets: Sequence[float], confidence: float = 0.95) -> PerStepCertificate:
    """Certify the expected return under every attack whose perturbation of each observation is within the budget.

    Args:
        episodes: Episodes of the smoothed agent without attack that were run with ``per_step=True``: they know the
            rewards of each step and the range of a reward.
        budgets: l2 norms of a single perturbation, in the units of the observations.
        confidence: Probability that all lower bounds hold simultaneously; likewise all upper bounds.

    Raises:
        InputError: If an argument is out of range, or if the episodes do not know the rewards of each step.

    Example:
        >>> import numpy as np
        >>> import surefoot
        >>> lengths = np.full(200, 5)  # 200 episodes with a reward of 1 at each of 5 steps; a rollout has them
        >>> rewards = {"lengths": lengths, "reward_values": np.ones(200), "reward_repeats": lengths}
        >>> facts = {"reward_range": [0.0, 1.0], "max_steps": 5}
        >>> known = {"sigma": 0.5, "floor": 0.0, "ceiling": 5.0, "metadata": facts}
        >>> episodes = surefoot.Episodes(np.full(200, 5.0), **rewards, **known)
        >>> surefoot.certify_per_step(episodes, [0.0, 0.1]).lower.round(2).tolist()
        [4.9, 4.76]
    """
    threat = StepBudget()
    return threat.certify(episodes, Query(budgets=_as_tuple(budgets), confidence=confidence, threat=threat))


def _as_tuple(budgets: Sequence[float]) -> tuple[float, ...]:
    # A single number is the likeliest mistake.
    if np.ndim(budgets) != 1:
        raise InputError(f"budgets must be a list of numbers, got {budgets!r}; for one budget write [0.5]")
    return tuple(budgets)
