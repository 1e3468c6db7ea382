"""Gaussian noise for the observations of Gymnasium environments, reproducible, for training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Tuple
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.channel import Channel
from surefoot.play.envs.flat import Part, list_parts
from surefoot.play.streams import WRAPPER, Stream, seed_sequence


class NoisyObservation(gymnasium.ObservationWrapper[NDArray[np.float32], Any, NDArray[Any]], RecordConstructorArgs):
    """Add N(0, sigma^2) to every new observation, once, for training with any library.

    Put frame stacks outside it, ``FrameStackObservation(NoisyObservation(env, sigma), k,
    padding_type="reset")``, so that an observation keeps the noise it was first seen with. Observations come
    out as unbounded float32; uint8 images are scaled to [0, 1] first, and ``sigma`` is in the units that come
    out, one number or one per feature. The parts of a Dict stay apart, those of categories become ones and
    zeros. ``reset(seed=k)`` fixes the noise too. This noise is for training; ``surefoot.smooth`` deploys
    unpredictable noise.

    Args:
        env: The environment.
        sigma: Standard deviation of the noise.
        seed: Seed of the noise until ``reset`` is given one; by default the operating system's.

    Examples:
        >>> import gymnasium
        >>> import surefoot
        >>> env = surefoot.NoisyObservation(gymnasium.make("CartPole-v1"), sigma=0.2)
        >>> first, _ = env.reset(seed=7)
        >>> again, _ = env.reset(seed=7)
        >>> first.dtype, bool((first == again).all())
        (dtype('float32'), True)
    """

    def __init__(self, env: gymnasium.Env[Any, Any], sigma: float | Sequence[float], seed: int | None = None) -> None:
        RecordConstructorArgs.__init__(self, sigma=sigma, seed=seed)
        gymnasium.ObservationWrapper.__init__(self, env)
        self.noise = Noise.of(sigma)
        self.parts = _plain_parts(env.observation_space)
        self.shape = env.observation_space.shape or (sum(part.size for part in self.parts),)
        self.observation_space: Any = _noisy_space(env.observation_space, self.parts)
        self._reseed_noise(seed)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin an episode; a seed fixes the noise as well, in a stream of its own."""
        if seed is not None:
            self._reseed_noise(seed)
        return super().reset(seed=seed, options=options)

    def observation(self, observation: Any) -> Any:
        """Return the observation in float32 units with fresh noise added."""
        clean = np.concatenate([part.flatten_part(observation) for part in self.parts]).reshape(self.shape)
        noisy = self._channel.send(torch.from_numpy(clean).unsqueeze(0))[0].numpy()
        if isinstance(self.observation_space, Box):
            return noisy
        apart = {}
        begin = 0
        for part in self.parts:
            end = begin + part.size
            apart[part.name] = noisy[begin:end].reshape(self.observation_space[part.name].shape)
            begin = end
        return apart

    def _reseed_noise(self, seed: int | None) -> None:
        # The channel that certifies is the channel that trains.
        seeds = seed_sequence(seed, WRAPPER)
        # The own shape: some wrappers around this one change its observation space.
        self._channel = Channel(noise=self.noise, n_envs=1, shape=self.shape, stream=Stream(seeds, torch.device("cpu")))


def _plain_parts(space: gymnasium.Space[Any]) -> tuple[Part, ...]:
    """Return the parts of an observation, one for a Box, or say why it cannot carry noise."""
    inner = [space]
    if isinstance(space, Dict):
        inner = list(space.values())
    # Parts within parts would need names of their own, which agents of other libraries would not know.
    nested = any(isinstance(one, Dict | Tuple) for one in inner)
    if isinstance(space, Box | Dict) and not nested:
        return tuple(list_parts("this environment", space))
    raise InputError(
        f"noise needs Box observations or a Dict of plain parts, got {type(space).__name__}; "
        "wrap the environment in gymnasium.wrappers.FlattenObservation first"
    )


def _noisy_space(space: gymnasium.Space[Any], parts: tuple[Part, ...]) -> Box | Dict:
    if isinstance(space, Box):
        return Box(-np.inf, np.inf, space.shape, np.float32)
    # Pairs keep their order, which is that of an agent's inputs; a dictionary would be sorted.
    pairs: list[tuple[str, gymnasium.Space[Any]]] = []
    for part in parts:
        shape: tuple[int, ...] = (part.size,)
        if isinstance(part.space, Box):
            shape = part.space.shape
        pairs.append((part.name, Box(-np.inf, np.inf, shape, np.float32)))
    return Dict(pairs)
