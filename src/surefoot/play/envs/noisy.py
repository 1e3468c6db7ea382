"""Gaussian noise for the observations of Gymnasium environments, reproducible, for training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from surefoot.episodes import Noise
from surefoot.errors import InputError
from surefoot.play.channel import Channel
from surefoot.play.streams import WRAPPER, Stream, seed_sequence


class NoisyObservation(gymnasium.ObservationWrapper[NDArray[np.float32], Any, NDArray[Any]], RecordConstructorArgs):
    """Add N(0, sigma^2) to every new observation, once, for training with any library.

    Put frame stacks outside it, ``FrameStackObservation(NoisyObservation(env, sigma), k,
    padding_type="reset")``, so that an observation keeps the noise it was first seen with. Observations come
    out as unbounded float32; uint8 images are scaled to [0, 1] first, and ``sigma`` is in the units that come
    out, one number or one per feature. ``reset(seed=k)`` fixes the noise too. This noise is for training;
    ``surefoot.smooth`` deploys unpredictable noise.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], sigma: float | Sequence[float], seed: int | None = None) -> None:
        RecordConstructorArgs.__init__(self, sigma=sigma, seed=seed)
        gymnasium.ObservationWrapper.__init__(self, env)
        self.noise = Noise.of(sigma)
        self.unit, self.shape = _unit(env.observation_space), env.observation_space.shape or ()
        self.observation_space = Box(-np.inf, np.inf, env.observation_space.shape, np.float32)
        self._reseed(seed)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin an episode; a seed fixes the noise as well, in a stream of its own."""
        if seed is not None:
            self._reseed(seed)
        return super().reset(seed=seed, options=options)

    def observation(self, observation: NDArray[Any]) -> NDArray[np.float32]:
        """Return the observation in float32 units with fresh noise added."""
        clean = np.asarray(observation, dtype=np.float32) / self.unit
        return self._channel.send(torch.from_numpy(clean).unsqueeze(0))[0].numpy()

    def _reseed(self, seed: int | None) -> None:
        # The channel that certifies is the channel that trains.
        seeds = seed_sequence(seed, WRAPPER)
        # The own shape: some wrappers around this one change its observation space.
        self._channel = Channel(noise=self.noise, n_envs=1, shape=self.shape, stream=Stream(seeds, torch.device("cpu")))


def _unit(space: gymnasium.Space[Any]) -> np.float32:
    """Return what an observation is divided by to be in declared units, or say why nothing does that."""
    if not isinstance(space, Box):
        raise InputError(
            f"noise needs Box observations, got {type(space).__name__}; "
            "wrap the environment in gymnasium.wrappers.FlattenObservation first"
        )
    if np.issubdtype(space.dtype, np.floating):
        return np.float32(1)
    if space.dtype == np.uint8 and (space.low == 0).all() and (space.high == 255).all():
        return np.float32(255)
    raise InputError(
        f"noise needs float observations or uint8 images from 0 to 255, got {space.dtype} "
        f"from {space.low.min()} to {space.high.max()}; turn them into floats first"
    )
