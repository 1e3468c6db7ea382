"""Policies: functions of what was observed, deterministic unless declared otherwise. The memory is the agent's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from surefoot.agents.memory import FrameStack, Memory
from surefoot.errors import InputError

# One standard deviation, one per feature, or one per part of the observations, by its name.
Sigma = float | Sequence[float] | Mapping[str, float]


def listed(parts: tuple[tuple[str, int], ...]) -> str:
    """Return the names and sizes of parts of observations, as messages show them."""
    return ", ".join(f"{name} ({size})" for name, size in parts)


@dataclass(frozen=True, kw_only=True)
class Spaces:
    """What goes into an agent and what comes out; the same type describes a policy and a task.

    Attributes:
        shape: Shape of one observation.
        n_actions: Number of discrete actions, None for continuous ones.
        n_stack: How many observations are stacked, the newest included.
        low: Lowest value of each continuous action, None for discrete or unbounded ones.
        high: Highest value of each continuous action, likewise.
        first_action: The number the environment gives to the first discrete action.
        pixels: Whether observations are bytes of the environment, divided by 255.
        factors: How many values each part of a discrete action has, where it has parts: the numbers of actions are
            those of all combinations, the last part counting fastest. None for actions without parts.
        parts: Name and size of each part of an observation, where it is a vector of parts; else None.
    """

    shape: tuple[int, ...]
    n_actions: int | None
    n_stack: int = 1
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None
    first_action: int = 0
    pixels: bool = False
    factors: tuple[int, ...] | None = None
    parts: tuple[tuple[str, int], ...] | None = None

    def sigma_of(self, given: Sigma) -> float | Sequence[float]:
        """Return one sigma, or one per feature, of what names the parts that have noise: ``{"camera": 0.1}``.

        Parts that are not named get no noise: no attacker may change them.
        """
        if not isinstance(given, Mapping):
            return given
        names = [name for name, _ in self.parts or ()]
        unknown = [name for name in given if name not in names]
        if unknown or not given:
            known = ", ".join(names) or "none: give one sigma for all of it"
            raise InputError(f"sigma must name parts of the observation, got {list(given)}; its parts are {known}")
        return [float(given.get(name, 0.0)) for name, size in self.parts or () for _ in range(size)]


@dataclass(frozen=True, eq=False, repr=False)
class Policy:
    """A policy: a rule for what it remembers, and a network over that, deterministic unless ``stochastic``.

    Attributes:
        network: Maps memories, the present observation included, to what it computes: one value per action when
            ``n_actions`` is set, the action itself when it is None. Of a stack of observations the memory is
            (rows, n_stack, *shape), oldest frame first.
        n_stack: Number of stacked observations, the present one included.
        shape: Shape of one observation.
        n_actions: Number of discrete actions, or None for continuous actions.
        name: Its name.
        sha256: Hash of its weights and layout; empty when it has none (a plain callable).
        low: Lower bounds of continuous actions, to which they are clipped.
        high: Upper bounds of continuous actions.
        open_loop: Whether the network maps the time step instead of the memory.
        critic: The value its training gave to an action, (memory, action) -> value; only attacks look at it.
        memory: What it remembers; None for a stack of ``n_stack`` observations.
        factors: How many values each part of its actions has, where they have parts, as in ``Spaces``.
        parts: Name and size of each part of an observation, where it says so, as in ``Spaces``.
        pixel_max: What it was declared to take for the brightest pixel; None where observations are not pixels.
        stochastic: Whether its network draws random numbers, from the global generators (``own_randomness``).
    """

    network: nn.Module
    n_stack: int
    shape: tuple[int, ...]
    n_actions: int | None
    name: str = "policy"
    sha256: str = ""
    differentiable: bool = True
    low: Tensor | None = None
    high: Tensor | None = None
    open_loop: bool = False
    critic: nn.Module | None = None
    memory: Memory | None = None
    pixel_max: float | None = None
    stochastic: bool = False
    factors: tuple[int, ...] | None = None
    parts: tuple[tuple[str, int], ...] | None = None

    def __repr__(self) -> str:
        actions = "continuous actions" if self.n_actions is None else f"{self.n_actions} actions"
        drawn = ", stochastic" if self.stochastic else ""
        return f"<Policy {self.name}: observations of shape {self.shape}, {self.recall.describe()}, {actions}{drawn}>"

    @property
    def recall(self) -> Memory:
        """How it remembers."""
        return self.memory or FrameStack(self.n_stack)

    def act(self, memory: Tensor, steps: Tensor | None = None) -> Tensor:
        """Return one action per row: the index of the largest value, or the clipped continuous action.

        ``steps`` is how many steps of the episode are over; only open-loop policies use it, and they use nothing else.
        """
        output: Tensor = self.network(steps if self.open_loop else memory)
        if self.n_actions is not None:
            return output.argmax(dim=1)
        if self.low is None or self.high is None:
            return output
        return torch.clamp(output, self.low, self.high)

    def to(self, device: torch.device | str) -> Policy:
        """Return the same policy with its weights on ``device``."""
        return replace(
            self,
            network=self.network.to(device),
            low=None if self.low is None else self.low.to(device),
            high=None if self.high is None else self.high.to(device),
            critic=None if self.critic is None else self.critic.to(device),
            memory=None if self.memory is None else self.memory.to(device),
        )
