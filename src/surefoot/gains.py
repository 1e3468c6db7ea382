"""Rewards of each step, summed as they come: what a certificate against a budget per step is made of."""

from __future__ import annotations

import torch
from torch import Tensor

from surefoot.errors import InputError


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
