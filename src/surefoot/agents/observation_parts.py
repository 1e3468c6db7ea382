"""Observations in parts, as an environment with a Dict or Tuple space gives them, as the vector that agents take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import InputError

Floats = NDArray[np.float32 | np.float64]


def join_parts(observation: Any, parts: Sequence[tuple[str, int]], as_floats: Callable[[Any], Floats]) -> Floats:
    """Return an observation, or rows of them, with its parts one after the other.

    Args:
        observation: A mapping of arrays by name, or a tuple, nested as the space is; each one part, or rows of it.
    """
    found = dict(_walk_parts(observation))
    names = [name for name, _ in parts]
    if sorted(found) != sorted(names):
        raise InputError(
            f"expected an observation with the parts {', '.join(names)}, got {', '.join(found) or 'none'}; env.reset() "
            "returns (observation, info)"
        )
    columns = []
    numbers_of_rows = set()
    for name, size in parts:
        values = _floats_of_part(name, found[name], as_floats)
        rows = _count_rows(name, values, size)
        numbers_of_rows.add(rows)
        columns.append(values.reshape(rows or 1, size))
    if len(numbers_of_rows) > 1:
        raise InputError("expected one observation, or as many rows of every part, got different numbers of rows")
    joined = np.concatenate(columns, axis=1)
    if numbers_of_rows == {0}:
        joined = joined[0]
    return joined


def _walk_parts(observation: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield every part with its name: the keys, or positions in a tuple, that lead to it."""
    if isinstance(observation, Mapping):
        for key, inner in observation.items():
            yield from _walk_parts(inner, (*path, str(key)))
    elif isinstance(observation, tuple):
        for position, inner in enumerate(observation):
            yield from _walk_parts(inner, (*path, str(position)))
    else:
        yield ".".join(path), observation


def _floats_of_part(name: str, part: Any, as_floats: Callable[[Any], Floats]) -> Floats:
    values = np.asarray(part)
    # Which ones and zeros a number of a Discrete space means is known to the space alone.
    if values.dtype.kind in "iub" and values.dtype != np.uint8:
        raise InputError(
            f"the part {name} has whole numbers; give categories as ones and zeros in floats: "
            "gymnasium.spaces.flatten(space, observation) makes them"
        )
    try:
        return as_floats(part)
    except InputError as error:
        raise InputError(f"the part {name}: {error}") from error


def _count_rows(name: str, values: Floats, size: int) -> int:
    """Return how many rows of a part there are; 0 where it is that of a single observation."""
    if values.size == size and not (values.ndim > 1 and len(values) == 1):
        return 0
    if values.ndim > 1 and len(values) * size == values.size and len(values) > 0:
        return len(values)
    raise InputError(f"the part {name} has {size} numbers, or rows of as many, got shape {values.shape}")
