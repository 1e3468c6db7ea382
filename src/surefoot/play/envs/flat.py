"""Structured spaces as plain ones: observations in parts become one vector, actions in parts one number.

Noise, budgets and agents know vectors (and pictures) only. Parts are laid out in the order of the space, which is the
one that Gymnasium flattens in; a part of categories becomes ones and zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from surefoot.errors import InputError

FLOATS = 'DtypeObservation={"dtype": "float32"}'
MOST_ACTIONS = 2**16  # combinations of the parts of an action


@dataclass(frozen=True, eq=False)
class Part:
    """One part of an observation: where it is, its space, and what its numbers are divided by."""

    path: tuple[str | int, ...]
    space: spaces.Space[Any]
    unit: float

    @property
    def name(self) -> str:
        """What it is called: the keys that lead to it."""
        return ".".join(map(str, self.path))

    @property
    def size(self) -> int:
        """How many numbers it has in the vector."""
        return spaces.flatdim(self.space)

    @property
    def number_type(self) -> type[np.float32 | np.float64]:
        """The type of its numbers in the vector."""
        # Digits are lost in the sum with the noise alone, never before it.
        if self.space.dtype == np.float64:
            return np.float64
        return np.float32

    def flatten_part(self, observation: Any) -> NDArray[np.float32 | np.float64]:
        """Return its numbers in an observation."""
        value = observation
        for key in self.path:
            value = value[key]
        numbers: NDArray[Any] = np.asarray(spaces.flatten(self.space, value), dtype=self.number_type)
        if self.unit == 1:
            return numbers
        # A unit of the same type: one of double precision would widen pixels of single precision.
        scaled: NDArray[Any] = numbers / self.number_type(self.unit)
        return scaled


def list_parts(name: str, space: spaces.Space[Any], path: tuple[str | int, ...] = ()) -> Iterator[Part]:
    """Yield the parts of an observation in order, or say what cannot carry noise."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        # Names in a Dict, numbers in a Tuple: with either one finds the part in an observation.
        named: Iterable[tuple[str | int, spaces.Space[Any]]]
        if isinstance(space, spaces.Dict):
            named = space.spaces.items()
        else:
            named = enumerate(space.spaces)
        for key, inner in named:
            yield from list_parts(name, inner, (*path, key))
        return
    if isinstance(space, spaces.Box):
        pixels = space.dtype == np.uint8 and (space.low == 0).all() and (space.high == 255).all()
        if not pixels and not np.issubdtype(space.dtype, np.floating):
            raise InputError(
                f"{name} has {space.dtype} observations from {space.low.min()} to {space.high.max()}; noise needs "
                f"floats or uint8 images from 0 to 255: turn them into floats with wrappers=['{FLOATS}']"
            )
        unit = 1.0
        if pixels:
            unit = 255.0
        yield Part(path, space, unit)
    elif isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        yield Part(path, space, 1.0)
    else:
        raise InputError(
            f"{name} has observations of the kind {type(space).__name__}, which cannot carry noise; "
            "wrap it so that they are a Box, with wrappers=['module:Class']"
        )


def flatten_rows(parts: Sequence[Part], observation: Any, n_rows: int, as_tensor: Callable[[Any], Tensor]) -> Tensor:
    """Return rows of observations in parts as one vector each, with the numbers of ``FlatObservation``."""
    columns = []
    for part in parts:
        value = observation
        for key in part.path:
            value = value[key]
        numbers = as_tensor(value)
        assert part.space.shape is not None
        expected = (n_rows, *part.space.shape)
        if numbers.shape != expected:
            raise InputError(f"{part.name} of an observation has the shape {tuple(numbers.shape)}, expected {expected}")
        numbers = numbers.reshape(n_rows, -1)
        if isinstance(part.space, spaces.Discrete | spaces.MultiDiscrete):
            numbers = _one_hot_parts(numbers, part.space)
        numbers = numbers.to(torch.float64 if part.number_type is np.float64 else torch.float32)
        if part.unit != 1:
            numbers = numbers / part.unit
        columns.append(numbers)
    # Parts of double precision make all of it so, as numpy does.
    return torch.cat(columns, dim=1)


def _one_hot_parts(numbers: Tensor, space: spaces.Discrete | spaces.MultiDiscrete) -> Tensor:
    """Return ones and zeros for categories, those of each number one after the other."""
    sizes = np.ravel(space.n if isinstance(space, spaces.Discrete) else space.nvec)
    starts = np.broadcast_to(np.ravel(space.start), sizes.shape)
    columns = []
    for column, (size, start) in enumerate(zip(sizes, starts, strict=True)):
        columns.append(torch.nn.functional.one_hot(numbers[:, column].long() - int(start), int(size)))
    return torch.cat(columns, dim=1)


def unflatten_actions(actions: Tensor, space: spaces.Space[Any], factors: tuple[int, ...] | None) -> Tensor:
    """Return actions of many rows as a vector simulator takes them: numbers from its first one on, or their parts."""
    assert space.shape is not None
    kind = torch.from_numpy(np.empty(0, space.dtype)).dtype
    if isinstance(space, spaces.Box):
        return actions.reshape(len(actions), *space.shape).to(kind)
    start = torch.as_tensor(np.asarray(getattr(space, "start", 0)), device=actions.device)
    parts = actions
    if factors is not None:
        parts = torch.stack(torch.unravel_index(actions, factors), dim=1).reshape(len(actions), *space.shape)
    return (parts + start).to(kind)


class FlatObservation(gymnasium.ObservationWrapper[NDArray[np.float32 | np.float64], Any, Any]):
    """Observations in parts as one vector of floats, pictures divided by 255."""

    def __init__(self, env: gymnasium.Env[Any, Any], parts: tuple[Part, ...]) -> None:
        super().__init__(env)
        self.parts = parts
        kind = np.result_type(*[part.number_type for part in parts])
        size = sum(part.size for part in parts)
        # Without limits: noise leads outside of those that the parts have.
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,), kind.type)

    def observation(self, observation: Any) -> NDArray[np.float32 | np.float64]:
        """Return the parts one after the other."""
        return np.concatenate([part.flatten_part(observation) for part in self.parts])


class FlatAction(gymnasium.ActionWrapper[Any, Any, Any]):
    """Actions in parts as one number: the last part counts fastest."""

    def __init__(self, env: gymnasium.Env[Any, Any], factors: tuple[int, ...]) -> None:
        super().__init__(env)
        self.factors = factors
        self.inner = env.action_space
        # MultiDiscrete may count from other numbers than 0; MultiBinary has no ``start``.
        self.start = np.asarray(getattr(env.action_space, "start", 0))
        self.action_space = spaces.Discrete(prod(factors))

    def action(self, action: Any) -> NDArray[Any]:
        """Return the parts that a number means."""
        parts = np.array(np.unravel_index(int(action), self.factors)).reshape(self.inner.shape)
        return np.asarray(parts + self.start, dtype=self.inner.dtype)


def factors_of(space: spaces.Space[Any]) -> tuple[int, ...] | None:
    """Return how many values each part of an action has; None for actions that are not in parts."""
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(np.ravel(space.nvec).tolist())
    if isinstance(space, spaces.MultiBinary):
        return (2,) * prod(space.shape)
    return None


def flatten_env(name: str, environment: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Return the environment with Box observations and with Box or Discrete actions, or say why that cannot be."""
    parts = tuple(list_parts(name, environment.observation_space))
    if not isinstance(environment.observation_space, spaces.Box):
        environment = FlatObservation(environment, parts)
    actions = environment.action_space
    factors = factors_of(actions)
    if factors is not None:
        if prod(factors) > MOST_ACTIONS:
            raise InputError(
                f"{name} has {prod(factors):,} combinations of actions, expected at most {MOST_ACTIONS:,}; fix some "
                "parts in a wrapper, with wrappers=['module:Class']"
            )
        return FlatAction(environment, factors)
    if not isinstance(actions, spaces.Box | spaces.Discrete):
        raise InputError(
            f"{name} must have Discrete, Box, MultiDiscrete or MultiBinary actions, it has {actions}; "
            "wrap it so that it has, with wrappers=['module:Class']"
        )
    return environment
