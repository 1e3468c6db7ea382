"""How rewards are counted: discounted, or step by step for certificates against a budget per step."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from surefoot.errors import InputError


class Paid(Protocol):
    """What is known of a task's rewards."""

    @property
    def name(self) -> str:
        """What people call the task."""
        ...

    @property
    def rewards(self) -> tuple[float, float] | None:
        """Limits of one step's reward."""
        ...

    @property
    def discount(self) -> float | None:
        """How rewards lose weight."""
        ...


def check_per_step(task: Paid) -> None:
    """Refuse a task whose rewards cannot be certified step by step."""
    if task.discount is not None:
        raise InputError("a budget per step goes with the plain return only; leave the discount out")
    if task.rewards is None:
        raise InputError(f"a budget per step needs the limits of a step's reward; {task.name} has none")


def weights(discount: float, steps: Tensor) -> Tensor:
    """Return gamma^t for rewards that come when t steps are over."""
    return torch.pow(torch.tensor(discount, dtype=torch.float64, device=steps.device), steps)


class Gains:
    """Rewards summed by step of the episode; on the CPU, where the order of a sum is always the same."""

    def __init__(self, limit: int, rewards: tuple[float, float]) -> None:
        self.low, self.high = rewards
        self.sums = torch.zeros(limit, dtype=torch.float64)

    def add(self, steps: Tensor, rewards: Tensor) -> None:
        """Book the rewards of one step of every row; refuse what lies outside of the limits."""
        if bool(((rewards < self.low) | (rewards > self.high)).any()):
            wrong = f"got one between {float(rewards.min()):g} and {float(rewards.max()):g}"
            raise InputError(f"every reward must lie between {self.low:g} and {self.high:g}, {wrong}; give true limits")
        self.sums.index_add_(0, steps.cpu().clamp_max(self.sums.numel() - 1), rewards.cpu())
