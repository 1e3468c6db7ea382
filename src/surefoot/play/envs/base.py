"""Environments in batches: the clean observations of many episodes that run in lock step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor


class BatchEnv(Protocol):
    """Copies of one environment. Rows are those that still run; episodes are never cut short."""

    # In how many steps the loop looks for finished rows; above 1 only where stepping them is harmless.
    done_check_interval: int

    def reset(self) -> Tensor:
        """Start every row and return the observations, float32 or, if the environment's are, float64."""
        ...

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Advance every row; return observations, rewards (float64) and which rows are over."""
        ...

    def restart_rows(self, rows: Tensor) -> Tensor:
        """Start a new episode on the rows marked and return their observations."""
        ...

    def keep_rows(self, rows: Tensor) -> None:
        """Drop all rows but these."""
        ...

    def read_state(self) -> Tensor | None:
        """Return the simulator's state per row, where there is one to show."""
        ...

    def close(self) -> None:
        """Release what the environment holds."""
        ...


class Clock:
    """For how many steps the episode of each row has run; it counts one number for all rows, not one for each."""

    def __init__(self, n_envs: int, device: torch.device) -> None:
        self.now = 0
        self.began = torch.zeros(n_envs, dtype=torch.int64, device=device)

    @property
    def steps(self) -> Tensor:
        """Steps per row."""
        return self.now - self.began

    def count_step(self, over: Tensor, max_steps: int) -> Tensor:
        """Count one step; return which rows are over, by themselves or because they have run for ``max_steps``."""
        self.now += 1
        # No row can have run so long before the clock has: most steps of a block are spared the comparison.
        if self.now < max_steps:
            return over
        return over | (self.steps >= max_steps)

    def restart_rows(self, rows: Tensor) -> None:
        """Begin again on the marked rows."""
        self.began = self.began.masked_fill(rows, self.now)

    def keep_rows(self, rows: Tensor) -> None:
        """Drop all rows but these."""
        self.began = self.began[rows]


class Starts:
    """Where episodes start: the k-th start of an environment is the same whatever its neighbors do.

    ``draw`` returns one start for every environment, those that have been dropped included.
    """

    def __init__(self, draw: Callable[[], Tensor]) -> None:
        self.draw = draw
        self.drawn = [draw()]
        self.slot = torch.arange(len(self.drawn[0]), device=self.drawn[0].device)
        self.turn = torch.zeros_like(self.slot)

    def next_starts(self, rows: Tensor) -> Tensor:
        """Move to the next start of the rows marked; return the present start of every row."""
        self.turn = self.turn + rows
        # For all environments at once, though one needs it: the draws of one must not depend on who is left.
        while len(self.drawn) <= int(self.turn.max()):
            self.drawn.append(self.draw())
        return torch.stack(self.drawn)[self.turn, self.slot]

    def keep_rows(self, rows: Tensor) -> None:
        """Drop all rows but these."""
        self.slot = self.slot[rows]
        self.turn = self.turn[rows]
