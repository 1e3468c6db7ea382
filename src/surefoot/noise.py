"""The noise of a smoothed agent: on observations, one standard deviation or one per feature, and on actions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import InputError

# Sigmas: up to here neighbors in single and in double precision differ by at most a thousandth of sigma.
COARSE = 2**13
COARSE_DOUBLE = 2**42
SMALLEST_SIGMA = 1e-37  # single precision ends at 1.2e-38
LARGEST_SIGMA = 1e37  # and at 3.4e38
ATTACK_NORMS = ("l2", "linf")  # that a perturbation can be kept to, at each step


@dataclass(frozen=True)
class Noise:
    """Gaussian noise on every new observation: one standard deviation, or one per feature; and on every action.

    What has no noise, nothing is claimed about attacks on it: no attacker may change it.
    """

    # The standard deviation; where features differ, the least of theirs. Budgets are then in units of the least: the
    # perturbation of feature i counts divided by sigma_i / sigma.
    sigma: float
    # The standard deviation of each feature where they differ, else None. A feature with 0 has no noise.
    features: tuple[float, ...] | None = None
    # The standard deviation of the noise on every number of an action, added behind the attacker.
    action_sigma: float = 0.0

    def __post_init__(self) -> None:
        checked_sigma(self.sigma)
        checked_sigma(self.action_sigma, "action_sigma")
        if self.features is None:
            return
        # Equal features are one sigma: the same noise has one description, and one hash.
        differ = min(self.features) < max(self.features)
        if not (differ and 0 < self.sigma == least_positive(self.features)):
            raise InputError(f"sigma must be the least of the features' {self.features}, got {self.sigma}")

    @classmethod
    def of(cls, sigma: float | Sequence[float], action_sigma: float = 0.0) -> Noise:
        """Return the noise with one sigma, or with one per feature; equal ones are one sigma."""
        on_actions = checked_sigma(action_sigma, "action_sigma")
        if isinstance(sigma, int | float | np.number):
            return cls(checked_sigma(float(sigma)), action_sigma=on_actions)
        try:
            features = tuple(checked_sigma(float(one)) for one in sigma)
        except (TypeError, ValueError) as error:
            raise InputError(f"sigma must be a number, or numbers, one per feature, got {sigma!r}") from error
        if not features:
            raise InputError("a sigma per feature needs one for each feature, got none")
        if min(features) == max(features):
            return cls(least_positive(features), action_sigma=on_actions)
        return cls(least_positive(features), features, on_actions)

    @property
    def budget_sigma(self) -> float:
        """What a budget is divided by to be a scaled one: see ``budget_sigma``."""
        return budget_sigma(self.sigma, self.action_sigma)

    def mixed_budget(self, on_observations: float, on_actions: float) -> float:
        """Return the one budget that includes a budget for observations and one for actions.

        It is sqrt((B_o / sigma)^2 + (B_a / action_sigma)^2), counted in standard deviations where both have noise.
        """
        parts = {"obs": (on_observations, self.sigma, "sigma"), "act": (on_actions, self.action_sigma, "action_sigma")}
        scaled = []
        for name, (budget, sigma, noise) in parts.items():
            if not (math.isfinite(budget) and budget >= 0):
                raise InputError(f"a mixed budget must have finite numbers >= 0, got {name}={budget}")
            if budget > 0 and sigma == 0:
                raise InputError(f"{name}={budget:g} is a budget for what has no noise; give {noise}=, or leave it out")
            scaled.append(budget / sigma if sigma > 0 else 0.0)
        # Of one kind of noise budgets are in its own units: no division that would have to be undone.
        if 0 in (self.sigma, self.action_sigma):
            return on_observations + on_actions
        return math.hypot(*scaled)

    def over(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Return the sigma of each feature of an observation of this shape, in single precision."""
        # Checked here, where noise becomes single precision: bounds are computed with sigma in double.
        for sigma in self.features or (self.sigma,):
            if sigma > 0 and not SMALLEST_SIGMA <= sigma <= LARGEST_SIGMA:
                raise InputError(
                    f"a sigma must be 0 or from {SMALLEST_SIGMA:g} to {LARGEST_SIGMA:g}, got {sigma:g}: in single "
                    "precision the noise would vanish, or be infinite"
                )
        if self.features is None:
            return np.full(shape, self.sigma, dtype=np.float32)
        if len(self.features) != math.prod(shape):
            raise InputError(
                f"a sigma per feature needs one for each of the {math.prod(shape)} features, got {len(self.features)}"
            )
        return np.array(self.features, dtype=np.float32).reshape(shape)

    def scaled(self, factor: float) -> Noise:
        """Return the noise that is this many times as large in every feature and on actions."""
        if factor == 1:
            return self
        return Noise.of([factor * sigma for sigma in self.features or (self.sigma,)], factor * self.action_sigma)

    def check_observed(self, largest: float, what: str = "an observation", *, is_double: bool = False) -> None:
        """Reject an observation that is too large for its own precision to tell from noise this small.

        What the agent makes of the sum is its own: that is rounded after the noise. Rounded before it, as an
        observation of single precision has been, a perturbation could grow by the spacing.

        Args:
            largest: Its largest absolute value; where features differ, each in units of its own sigma.
            what: What it is, for the message.
            is_double: Whether it comes to the noise in double precision.
        """
        # Where features differ, the caller has divided each by its own sigma.
        sigma = self.sigma if self.features is None else 1.0
        if self.sigma == 0:
            return
        if is_double and largest > COARSE_DOUBLE * sigma:
            raise InputError(
                f"{what} is {largest / sigma:.3g} times as large as the sigma of its noise, expected at most "
                f"{COARSE_DOUBLE:.2g} times: double precision would be too coarse; use a larger sigma"
            )
        if not is_double and largest > COARSE * sigma:
            raise InputError(
                f"{what} is {largest / sigma:.3g} times as large as the sigma of its noise, expected at most "
                f"{COARSE} times: single precision would be too coarse; use a larger sigma, at least for the features "
                "that are so large (a sigma for each feature), or show it in double precision"
            )

    @property
    def setup(self) -> dict[str, Any]:
        """What a record's setup says of features that differ, and of noise on actions."""
        # Absent where there is none, so that setups without keep their hashes.
        setup: dict[str, Any] = {}
        if self.features is not None:
            setup["sigma_per_feature"] = list(self.features)
        if self.action_sigma > 0:
            setup["action_sigma"] = self.action_sigma
        return setup


def least_positive(sigmas: Sequence[float]) -> float:
    """Return the least sigma of the features that have noise; 0 if none has."""
    return min((sigma for sigma in sigmas if sigma > 0), default=0.0)


def budget_sigma(sigma: float, action_sigma: float) -> float:
    """Return what a budget is divided by to be a scaled one.

    With noise on observations or on actions alone it is the sigma of that noise, and a budget has the units of what is
    perturbed. With noise on both it is 1: perturbations of either count divided by their own sigma, and a budget is a
    number of standard deviations.
    """
    if action_sigma == 0:
        return sigma
    if sigma == 0:
        return action_sigma
    return 1.0


def noisy_channel(sigma: float, action_sigma: float) -> str:
    """Return what attacks perturb that such noise covers: what has noise, observations if nothing has."""
    if action_sigma == 0:
        return "observations"
    if sigma == 0:
        return "actions"
    return "observations and actions"


def checked_sigma(sigma: float, name: str = "sigma") -> float:
    """Return sigma as a float, refusing what is no standard deviation; 0 means no noise."""
    if not (math.isfinite(sigma) and sigma >= 0):
        raise InputError(f"{name} must be a finite number >= 0, got {sigma}")
    return float(sigma)
