"""The noise of a smoothed agent: one standard deviation, or one per feature of an observation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import InputError

COARSE = 2**13  # sigmas: up to here neighbors in single precision differ by at most a thousandth of sigma
SMALLEST_SIGMA = 1e-37  # single precision ends at 1.2e-38
LARGEST_SIGMA = 1e37  # and at 3.4e38


@dataclass(frozen=True)
class Noise:
    """Gaussian noise on every new observation: one standard deviation, or one per feature.

    Attributes:
        sigma: The standard deviation; where features differ, the least of theirs. Budgets are then in units of the
            least: the perturbation of feature i counts divided by sigma_i / sigma.
        features: The standard deviation of each feature where they differ, else None. A feature with 0 has no noise,
            and nothing is claimed about attacks on it: no attacker may change it.
    """

    sigma: float
    features: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        checked_sigma(self.sigma)
        if self.features is None:
            return
        # Equal features are one sigma: the same noise has one description, and one hash.
        differ = min(self.features) < max(self.features)
        if not (differ and 0 < self.sigma == least_positive(self.features)):
            raise InputError(f"sigma must be the least of the features' {self.features}, got {self.sigma}")

    @classmethod
    def of(cls, sigma: float | Sequence[float]) -> Noise:
        """Return the noise with one sigma, or with one per feature; equal ones are one sigma."""
        if isinstance(sigma, int | float | np.number):
            return cls(checked_sigma(float(sigma)))
        try:
            features = tuple(checked_sigma(float(one)) for one in sigma)
        except (TypeError, ValueError) as error:
            raise InputError(f"sigma must be a number, or numbers, one per feature, got {sigma!r}") from error
        if not features:
            raise InputError("a sigma per feature needs one for each feature, got none")
        if min(features) == max(features):
            return cls(least_positive(features))
        return cls(least_positive(features), features)

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
        """Return the noise that is this many times as large in every feature."""
        if factor == 1:
            return self
        return Noise.of([factor * sigma for sigma in self.features or (self.sigma,)])

    def check_observed(self, largest: float) -> None:
        """Reject an observation that is too large for single precision to tell from noise this small.

        Args:
            largest: Its largest absolute value; where features differ, each in units of its own sigma.

        Raises:
            InputError: If neighboring floats there differ by more than a thousandth of sigma.
        """
        # Where features differ, the caller has divided each by its own sigma.
        sigma = self.sigma if self.features is None else 1.0
        if self.sigma > 0 and largest > COARSE * sigma:
            raise InputError(
                f"an observation is {largest / sigma:.3g} times as large as the sigma of its noise, expected at most "
                f"{COARSE} times: single precision would be too coarse; subtract the mean of the observations, or use "
                "a larger sigma"
            )

    @property
    def setup(self) -> dict[str, Any]:
        """What a record's setup says of features that differ."""
        # Absent where there is one sigma, so that setups without features keep their hashes.
        if self.features is None:
            return {}
        return {"sigma_per_feature": list(self.features)}


def least_positive(sigmas: Sequence[float]) -> float:
    """Return the least sigma of the features that have noise; 0 if none has."""
    return min((sigma for sigma in sigmas if sigma > 0), default=0.0)


def checked_sigma(sigma: float) -> float:
    """Return sigma as a float, refusing what is no standard deviation; 0 means no noise."""
    if not (math.isfinite(sigma) and sigma >= 0):
        raise InputError(f"sigma must be a finite number >= 0, got {sigma}")
    return float(sigma)
