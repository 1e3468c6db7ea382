"""Gaussian noise at the actuator: the deployed half of a certificate against attacks on actions."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from surefoot.agents.smoothed import PredictableNoiseWarning, system_normal
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.streams import ACTUATOR, seed_sequence


class ActuatorNoise(gymnasium.ActionWrapper[Any, Any, Any], RecordConstructorArgs):
    """Adds fresh Gaussian noise to every action that arrives, and clips it to the limits of the action space.

    **It belongs behind the attacker: next to the motors, at the end of the wire, on whatever receives the commands.
    An agent that adds the noise itself and sends noisy commands over a wire that can be attacked is not covered by any
    certificate**, because the attacker then sees the noise before it chooses its perturbation.

    Args:
        env: The environment, with Box actions that have finite limits.
        sigma: Standard deviation of the noise on every number of an action, in its units: that of the certificate.
        seed: For tests only: seeded noise voids the certificate, and a PredictableNoiseWarning says so. By default
            every number comes from the operating system.

    Examples:
        >>> import gymnasium, numpy as np
        >>> import surefoot
        >>> env = surefoot.ActuatorNoise(gymnasium.make("Pendulum-v1"), sigma=0.5)
        >>> commanded = np.zeros(1, dtype=np.float32)
        >>> bool(env.action(commanded) != commanded), bool(abs(env.action(commanded)) <= 2)
        (True, True)
    """

    def __init__(self, env: gymnasium.Env[Any, Any], sigma: float, seed: int | None = None) -> None:
        RecordConstructorArgs.__init__(self, sigma=sigma, seed=seed)
        gymnasium.ActionWrapper.__init__(self, env)
        space = env.action_space
        if not (isinstance(space, Box) and np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise InputError(f"noise on actions needs Box actions with finite limits, got {space}")
        self.sigma = Noise.of(sigma).sigma
        self.limits = (space.low, space.high)
        self._random: np.random.Generator | None = None
        if seed is not None:
            self._random = np.random.default_rng(seed_sequence(seed, ACTUATOR))
        if seed is not None or self.sigma == 0:
            reason = "sigma is 0: no noise is added" if seed is None else f"the noise is seeded with {seed}"
            warnings.warn(f"{reason}, and no certificate is about this actuator", PredictableNoiseWarning, stacklevel=2)

    def action(self, action: Any) -> NDArray[Any]:
        """Return the action that is executed: the one that arrived, with noise, within the limits."""
        low, high = self.limits
        arrived = np.asarray(action, dtype=np.float64)
        if arrived.shape != low.shape or not np.isfinite(arrived).all():
            raise InputError(f"expected a finite action of shape {low.shape}, got {action!r:.100}")
        noise = system_normal(low.shape) if self._random is None else self._random.standard_normal(low.shape)
        # Rounded and clipped after the noise: before it, an attacker could choose what is left of it.
        noisy = (arrived + self.sigma * noise).astype(np.float32)
        return np.asarray(np.clip(noisy, low, high), dtype=low.dtype)
