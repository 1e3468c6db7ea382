"""Stand-ins: for what ends a run, for a pickle that runs code, for an environment of which only the spaces count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np


class Reached(BaseException):
    """A test has seen enough; no command catches it, ``main`` does."""


class KilledError(Exception):
    """Stands for a kill."""


class Bomb:
    """Makes a file when it is unpickled, so that it shows whether that has happened."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).resolve()

    def __reduce__(self) -> tuple[Any, tuple[Path]]:
        return Path.touch, (self.path,)


class SpacesOnly(gymnasium.Env[Any, Any]):
    """Spaces to make models for."""

    def __init__(self, observations: gymnasium.Space[Any], actions: gymnasium.Space[Any]) -> None:
        self.observation_space, self.action_space = observations, actions

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin where every number is 0."""
        return np.zeros(self.observation_space.shape, dtype=np.float32), {}
