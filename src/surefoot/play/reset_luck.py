"""What was known of an episode before its first step: numbers read at reset, before any noise."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from surefoot.agents.imported import attribute, called, imported
from surefoot.episodes import MOST_FEATURES, check_luck
from surefoot.errors import InputError

_PLACES = re.compile(r"\d{1,9}(,\d{1,9})*")
EXPECTED = (
    "luck= must be places in the first observation, counted from 0, as 0,2, or module:function of the first "
    "observation and its info"
)


def imports_function(luck: str | None) -> bool:
    """Return whether a function must be imported to read it."""
    return ":" in (luck or "")


def check_luck_names(luck: str, shape: tuple[int, ...]) -> None:
    """Raise what is wrong with the description of what is read, for observations of a shape."""
    module, _, function = luck.partition(":")
    if imports_function(luck):
        if not (module and function):
            raise InputError(f"{EXPECTED}; got {luck!r:.60}")
        return
    if not _PLACES.fullmatch(luck):
        raise InputError(f"{EXPECTED}; got {luck!r:.60}")
    places = _places_of(luck)
    if len(places) > MOST_FEATURES or max(places) >= math.prod(shape):
        raise InputError(
            f"luck= must be at most {MOST_FEATURES} places below {math.prod(shape)}, the size of an observation, got "
            f"{luck!r:.60}"
        )


def read_luck(luck: str, observations: Tensor, infos: Sequence[Mapping[str, Any]] | None) -> NDArray[np.float64]:
    """Return a row of numbers for each of the first observations.

    Args:
        observations: As the environment gave them, before they are perturbed and before noise.
        infos: What it said with each, or None where it says nothing.
    """
    rows = observations.detach().cpu().numpy()
    if not imports_function(luck):
        flat = rows.reshape(len(rows), -1)
        return flat[:, _places_of(luck)].astype(np.float64)
    module, _, name = luck.partition(":")
    function = attribute(imported(module), name)
    if not callable(function):
        raise InputError(f"there is no function {luck!r}; {EXPECTED}")
    numbers = []
    for index, row in enumerate(rows):
        # copies: whatever the function does with them, the episode begins as it would have
        said = called(luck, function, row.copy(), {} if infos is None else dict(infos[index]))
        try:
            numbers.append(np.asarray(said, dtype=np.float64).reshape(-1))
        except (TypeError, ValueError) as error:
            raise InputError(f"{luck} must return one or several numbers, got {said!r:.60}") from error
    if len({each.size for each in numbers}) > 1:
        raise InputError(f"{luck} must return as many numbers for each episode")
    table = np.stack(numbers)
    check_luck(luck, table, len(rows))
    return table


def _places_of(luck: str) -> list[int]:
    return [int(place) for place in luck.split(",")]
