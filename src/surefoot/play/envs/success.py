"""Events as returns: an episode is worth 1 if it met a declared condition at any of its steps, else 0.

Floor 0 and ceiling 1 follow, whatever the environment's own rewards are, and every return is one of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from surefoot.agents.imported import attribute, called, imported
from surefoot.errors import InputError

# What ``step`` returns: observation, reward, terminated, truncated, info.
Shown = tuple[Any, Any, Any, Any, Any]
FUNCTION = "give success='module:function', a function of what step returns"


@dataclass(frozen=True)
class Condition:
    """What an episode must meet to be a success."""

    # A function of what ``step`` returned, ``module:function`` of one, or the key of an info that says it. Of a vector
    # environment all rows are asked at once.
    success: str | Callable[..., Any]

    @property
    def name(self) -> str:
        """What it is called in records."""
        if isinstance(self.success, str):
            return self.success
        return f"{self.success.__module__}:{self.success.__qualname__}"

    @property
    def module(self) -> str | None:
        """The module that has to be imported for it, None if none has."""
        if isinstance(self.success, str) and ":" in self.success:
            return self.success.partition(":")[0]
        return None

    def ask(self, shown: Shown) -> Any:
        """Return what the condition says of a step."""
        if self.module is not None:
            assert isinstance(self.success, str)
            function = attribute(imported(self.module), self.success.partition(":")[2])
            if not callable(function):
                raise InputError(f"there is no function {self.success!r}; give success='module:function'")
            return called(self.name, function, *shown)
        if isinstance(self.success, str):
            return _read_info(self.success, *shown[2:])
        return called(self.name, self.success, *shown)

    def check_autoreset(self, simulator: str, mode: object) -> None:
        """Refuse a simulator whose last step of an episode already shows the next one."""
        if mode is AutoresetMode.SAME_STEP:
            raise InputError(
                f"{simulator} starts rows again in the step that ends them, so that success={self.name!r} would be "
                "asked about the next episode; make it with another autoreset mode, NEXT_STEP or DISABLED"
            )


def _read_info(key: str, terminated: Any, truncated: Any, info: Mapping[str, Any]) -> Any:
    """Return what an info says under a key; if it says nothing when an episode ends, that is no failure but an error.

    Vector environments have an array there, and under ``_key`` which rows have said something.
    """
    over = np.asarray(terminated) | np.asarray(truncated)
    has_key = np.broadcast_to(np.asarray(info.get(f"_{key}", key in info), dtype=np.bool_), over.shape)
    if bool((over & ~has_key).any()):
        raise InputError(
            f"an episode ended and its info has no {key!r}, only {', '.join(map(str, info)) or 'nothing'}; {FUNCTION}"
        )
    said = np.asarray(info.get(key, False))
    if said.dtype != np.bool_:
        is_number = said.dtype.kind in "iufO"
        # Any other number would count as true: a distance, or a speed.
        if not is_number or not np.isin(np.where(has_key, said, 0), (0, 1)).all():
            raise InputError(f"an info says {said!r:.60} under {key!r}, expected True or False; {FUNCTION}")
    return said.astype(np.bool_) & has_key


class SuccessReturn(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Pay 1 at the first step of an episode that meets the condition, and nothing else."""

    def __init__(
        self, env: gymnasium.Env[Any, Any], condition: Condition, shown_rows: Callable[[], Shown] | None = None
    ) -> None:
        """Wrap an environment.

        Args:
            shown_rows: Returns what the last step showed, as rows, where the condition takes these.
        """
        super().__init__(env)
        self.condition = condition
        self.shown_rows = shown_rows
        self.is_met = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode, which has met nothing yet."""
        self.is_met = False
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step and ask the condition about it."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        shown: Shown = (observation, reward, terminated, truncated, info)
        if self.shown_rows is not None:
            rows = self.shown_rows()
            # A step limit around the simulator is not among what that returned.
            shown = (*rows[:3], np.array([truncated]), rows[4])
        answer = np.asarray(self.condition.ask(shown))
        if answer.size != 1 or answer.dtype != np.bool_:
            raise InputError(f"{self.condition.name} must answer True or False, got {answer!r:.60}")
        is_first = bool(answer.item()) and not self.is_met
        self.is_met = self.is_met or is_first
        return observation, float(is_first), bool(terminated), bool(truncated), info
