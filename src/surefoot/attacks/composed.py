"""Attackers made of two parts, when to spend and in which direction; and the one the certificate is tight for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from surefoot.attacks.base import Described, check_choices, normalize_rows
from surefoot.attacks.victim import UNDEFENDED, Smoothing, clean_values
from surefoot.compute import expand_rows
from surefoot.errors import InputError
from surefoot.play.channel import View
from surefoot.play.streams import direction_seeds


class Timing(Protocol):
    """When to spend: the most that each row may spend at this step."""

    def allowance(self, view: View) -> Tensor:
        """Return an l2 size per row, float64."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return its name and settings."""
        ...


class Direction(Protocol):
    """How to spend: a perturbation of at most the allowed size."""

    def perturbation(self, view: View, allowance: Tensor) -> Tensor:
        """Return the perturbations, shaped like what is perturbed."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return its name and settings."""
        ...


@dataclass(frozen=True)
class Composed:
    """A timing and a direction."""

    timing: Timing
    direction: Direction

    def propose(self, view: View) -> Tensor:
        """Spend what the timing allows in the direction's way."""
        # The channel would clip it anyway; a direction that knows its length can search within it.
        allowance = torch.minimum(self.timing.allowance(view), view.budget_left)
        return self.direction.perturbation(view, allowance)

    def describe(self) -> dict[str, Any]:
        """Return both parts."""
        return {"name": "composed", "timing": self.timing.describe(), "direction": self.direction.describe()}


@dataclass(frozen=True)
class UniformTiming(Described):
    """The same share of the squared budget at each of ``steps`` steps: B / sqrt(steps) a step."""

    name: ClassVar[str] = "uniform timing"

    budget: float
    steps: int

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError(f"steps must be at least 1, got {self.steps}")

    def allowance(self, view: View) -> Tensor:
        """Return the share while steps are left."""
        # Squares add up: sqrt(steps * B^2 / steps) = B.
        share = torch.full_like(view.budget_left, self.budget / self.steps**0.5)
        return torch.where(view.step < self.steps, share, 0.0)


@dataclass(frozen=True)
class EveryStep(Described):
    """All that is left, at every step: of a budget per step."""

    name: ClassVar[str] = "every step"

    def allowance(self, view: View) -> Tensor:
        """Return what is left."""
        return view.budget_left


@dataclass(frozen=True)
class SingleStep(Described):
    """Everything that is left, at one step of the episode."""

    name: ClassVar[str] = "single step"

    at: int = 0

    def __post_init__(self) -> None:
        if self.at < 0:
            raise InputError(f"the step to spend at must be >= 0, got {self.at}")

    def allowance(self, view: View) -> Tensor:
        """Return what is left at that step, nothing at others."""
        return torch.where(view.step == self.at, view.budget_left, 0.0)


@dataclass(frozen=True)
class ValueGapTiming(Described):
    """All that is left, at steps where the worst action's clean value lies ``lambda_q`` or more below the best."""

    name: ClassVar[str] = "value gap timing"

    lambda_q: float
    smoothing: Smoothing = UNDEFENDED

    def __post_init__(self) -> None:
        if not self.lambda_q >= 0:
            raise InputError(f"lambda_Q must be >= 0, got {self.lambda_q}")

    def allowance(self, view: View) -> Tensor:
        """Return what is left where it matters."""
        check_choices(view.policy)
        values = clean_values(view, self.smoothing)
        gap = values.max(dim=1).values - values.min(dim=1).values
        return torch.where(gap >= self.lambda_q, view.budget_left, 0.0)


@dataclass(frozen=True)
class RandomDirection(Described):
    """A fresh random direction at every step, at the full allowance: what chance achieves."""

    name: ClassVar[str] = "random"

    def perturbation(self, view: View, allowance: Tensor) -> Tensor:
        """Return a uniformly random direction of the allowed length."""
        direction = normalize_rows(view.stream.normal(tuple(view.target.shape)), view.scope.norm)
        return direction * expand_rows(allowance, direction)


@dataclass(frozen=True)
class ConstantDirection(Described):
    """One random direction for a whole episode, the same at every step of it."""

    name: ClassVar[str] = "constant direction"

    seed: int = 0

    def perturbation(self, view: View, allowance: Tensor) -> Tensor:
        """Return the episode's direction, made from its number alone."""
        shape = view.target.shape[1:]
        # By its number, so that it does not depend on which episodes run beside it.
        rows = [_episode_direction(self.seed, episode, tuple(shape)) for episode in view.episode.tolist()]
        direction = normalize_rows(torch.stack(rows), view.scope.norm).to(view.observation.device)
        return direction * expand_rows(allowance, direction)


@dataclass(frozen=True)
class EqualDirection(Described):
    """All numbers by the same amount, upwards in every second episode and downwards in the others."""

    name: ClassVar[str] = "equal"

    def perturbation(self, view: View, allowance: Tensor) -> Tensor:
        """Return the diagonal of the allowed length, with the episode's sign."""
        direction = normalize_rows(torch.ones_like(view.target), view.scope.norm)
        sign = 1 - 2 * (view.episode % 2)
        return direction * expand_rows(sign * allowance, direction)


@lru_cache(maxsize=65_536)
def _episode_direction(seed: int, episode: int, shape: tuple[int, ...]) -> Tensor:
    seeds = direction_seeds(seed, episode)
    return torch.from_numpy(np.random.default_rng(seeds).standard_normal(shape, dtype=np.float32))


@dataclass(frozen=True)
class Structured(Described):
    """The whole budget on the first coordinate of the first observation, nothing afterwards: (B, 0, ..., 0), 0, ...

    The certificate is tight for it (paper, section 4 and Appendix A): no attacker can lower a probability p further
    than this one does in its worst-case environment, to Phi(Phi^-1(p) - B / sigma). In others it may have no effect.
    """

    name: ClassVar[str] = "structured"

    sign: int = 1  # +1 raises the coordinate, -1 lowers it

    def __post_init__(self) -> None:
        if self.sign not in (1, -1):
            raise InputError(f"sign must be 1 or -1, got {self.sign}")

    def propose(self, view: View) -> Tensor:
        """Return everything that is left on the first coordinate at the first step, zeros later."""
        # In double precision, so that it is rounded once, by the ledger.
        perturbation = torch.zeros(view.target.shape, dtype=torch.float64, device=view.target.device)
        perturbation.flatten(1)[:, 0] = torch.where(view.step == 0, self.sign * view.budget_left, 0.0)
        return perturbation
