"""Policies and their spaces: ``Policy`` is what runs, ``Spaces`` says what goes into an agent and what comes out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.agents.memory import FrameStack, Memory
from surefoot.episodes import LONGEST_UNIT, is_unit
from surefoot.errors import InputError

AS_IN_TRAINING = "make the environment as in training, with env=, env_kwargs= or wrappers="
# One standard deviation, one per feature, or one per part of the observations, by its name.
Sigma = float | Sequence[float] | Mapping[str, float]


def listed(parts: tuple[tuple[str, int], ...]) -> str:
    """Return the names and sizes of parts of observations, as messages show them."""
    return ", ".join(f"{name} ({size})" for name, size in parts)


@dataclass(frozen=True, kw_only=True)
class Spaces:
    """What goes into an agent and what comes out; the same type describes a policy and a task.

    >>> import surefoot
    >>> spaces = surefoot.get_task("cartpole-5").spaces
    >>> spaces.shape, spaces.n_stack, spaces.n_actions
    ((4,), 5, 2)
    >>> surefoot.Spaces(shape=(3,), n_actions=None, low=[-2.0], high=[2.0]).n_outputs
    1

    Attributes:
        shape: Shape of one observation.
        n_actions: Number of discrete actions, None for continuous ones.
        n_stack: How many observations are stacked, the newest included.
        low: Lowest value of each continuous action, None for discrete or unbounded ones.
        high: Highest value of each continuous action, likewise.
        first_action: The number of the first discrete action, as the environment or the training of an agent counts
            (SB3: 0); None where actions are chosen by position.
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
    first_action: int | None = None
    pixels: bool = False
    factors: tuple[int, ...] | None = None
    parts: tuple[tuple[str, int], ...] | None = None

    def __post_init__(self) -> None:
        # Bounds may be given as the arrays of a Box; tuples can be compared and hashed.
        for name in ("low", "high"):
            bounds = getattr(self, name)
            if bounds is not None:
                object.__setattr__(self, name, tuple(map(float, bounds)))

    def sigma_of(self, given: Sigma) -> float | Sequence[float]:
        """Return one sigma, or one per feature, of what names the parts that have noise: ``{"camera": 0.1}``.

        Parts that are not named get no noise: no attacker may change them.
        """
        if not isinstance(given, Mapping):
            return given
        names = list(dict(self.parts or ()))
        unknown = [name for name in given if name not in names]
        if unknown or not given:
            known = ", ".join(names) or "none: give one sigma for all of it"
            raise InputError(f"sigma must name parts of the observation, got {list(given)}; its parts are {known}")
        sigmas: list[float] = []
        for name, size in self.parts or ():
            sigmas += [float(given.get(name, 0.0))] * size
        return sigmas

    def named_parts(self) -> tuple[tuple[str, int, str], ...]:
        """Return the parts as features without units; none where a name, as of a Tuple's part, suits no sentence."""
        parts = self.parts or ()
        for name, _ in parts:
            if name[:1].isdecimal() or len(name) > LONGEST_UNIT or not name.isprintable():
                return ()
        return tuple((name, size, "") for name, size in parts)

    def features_of(self, units: str | Mapping[str, str]) -> tuple[tuple[str, int, str], ...]:
        """Return name, size and unit of each part; of observations without parts there is one unit for all."""
        if isinstance(units, str):
            if self.parts is not None:
                raise InputError(f"feature_units= must name parts of the observation: {listed(self.parts)}")
            return (("value", math.prod(self.shape), _checked_unit(units)),)
        sizes = dict(self.parts or ())
        unknown = [name for name in units if name not in sizes]
        if unknown or not units:
            known = ", ".join(sizes) or "none: give one unit for all of it"
            raise InputError(f"feature_units= must name parts of the observation, got {list(units)}; they are {known}")
        return tuple((name, size, _checked_unit(units.get(name, ""))) for name, size in sizes.items())

    @property
    def stacked_shape(self) -> tuple[int, ...]:
        """Shape of a whole stack of observations, or of the only one."""
        if self.n_stack == 1:
            return self.shape
        return (self.n_stack, *self.shape)

    @property
    def n_outputs(self) -> int:
        """How many numbers an agent answers with: one per discrete action, or those of a continuous one."""
        if self.n_actions is None:
            return len(self.low or ())
        return self.n_actions

    def check_agent(self, agent: Spaces) -> None:
        """Raise InputError if an environment with these spaces does not take an agent's actions or has other parts."""
        # SB3's agents count from 0. Agents that choose by position fit whatever the environment calls its actions.
        by_position = agent.first_action is None
        same_first = by_position or agent.first_action == (self.first_action or 0)
        if agent.n_actions != self.n_actions or (agent.n_actions is not None and not same_first):
            raise InputError(
                f"the agent has {_describe_actions(agent)}, the environment takes {_describe_actions(self)}; "
                f"{AS_IN_TRAINING}"
            )
        if not by_position and agent.factors != self.factors:
            raise InputError(
                f"the agent's actions have parts of {agent.factors} values, the environment's of {self.factors}; "
                f"{AS_IN_TRAINING}"
            )
        self._check_bounds(agent)
        if agent.parts is not None and self.parts is not None and agent.parts != self.parts:
            raise InputError(
                f"the agent's observations have the parts {listed(agent.parts)}, the environment's "
                f"{listed(self.parts)}; expected the same in the same order; wrappers= can change it"
            )

    def _check_bounds(self, agent: Spaces) -> None:
        if agent.low is None or agent.high is None or self.low is None or self.high is None:
            return
        # Clipped to other bounds it would be another agent; single precision is no other bound.
        same_size = len(agent.low) == len(self.low)
        if same_size and np.allclose(agent.low, self.low, rtol=1e-6) and np.allclose(agent.high, self.high, rtol=1e-6):
            return
        raise InputError(
            f"the agent's actions range from {list(agent.low)} to {list(agent.high)}, "
            f"the environment's from {list(self.low)} to {list(self.high)}; {AS_IN_TRAINING}"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Policy:
    """A policy: a rule for what it remembers, and a network over that, deterministic unless ``stochastic``.

    >>> import surefoot, torch
    >>> network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))
    >>> policy = surefoot.Policy(network, surefoot.Spaces(shape=(4,), n_actions=2), name="random weights")
    >>> policy
    <Policy random weights: observations of shape (4,), 1 frames, 2 actions>
    >>> policy.act(torch.zeros(3, 1, 4)).shape  # one action for each of 3 rows, which hold 1 frame each
    torch.Size([3])

    Attributes:
        network: Maps memories, the present observation included, to what it computes: one value per action when they
            are discrete, the action itself when they are continuous. Of a stack of observations the memory is
            (rows, n_stack, *shape), oldest frame first.
        spaces: Observations and actions; continuous actions are clipped to ``spaces.low`` and ``spaces.high``.
        memory: What it remembers; by default a stack of ``spaces.n_stack`` observations.
        name: Its name.
        sha256: Hash of its weights and layout; empty when it has none (a plain callable).
        critic: The value its training gave to an action, (memory, action) -> value; only attacks look at it.
        stochastic: Whether its network draws random numbers, from the global generators (``own_randomness``).
        open_loop: Whether the network maps the time step instead of the memory.
        differentiable: Whether its output has a gradient with respect to the memory, for attacks.
        pixel_max: What it was declared to take for the brightest pixel; None where observations are not pixels.
        may_be_stack: Whether one of its observations may be several, and nothing has said how many: an SB3 model that
            has not been fitted to an environment.
    """

    network: nn.Module
    spaces: Spaces
    memory: Memory = None  # type: ignore[assignment]  # __post_init__ puts in the stack
    name: str = "policy"
    sha256: str = ""
    critic: nn.Module | None = None
    stochastic: bool = False
    open_loop: bool = False
    differentiable: bool = True
    pixel_max: float | None = None
    may_be_stack: bool = False

    def __post_init__(self) -> None:
        # Frozen: what is missing can only be set so.
        if self.memory is None:
            object.__setattr__(self, "memory", FrameStack(self.spaces.n_stack))
        if isinstance(self.memory, FrameStack) and self.memory.n_stack != self.spaces.n_stack:
            raise InputError(f"a memory of {self.memory.n_stack} frames does not fit n_stack={self.spaces.n_stack}")

    def __repr__(self) -> str:
        actions = "continuous actions"
        if self.spaces.n_actions is not None:
            actions = f"{self.spaces.n_actions} actions"
        if self.stochastic:
            actions += ", stochastic"
        shape = self.spaces.shape
        return f"<Policy {self.name}: observations of shape {shape}, {self.memory.describe()}, {actions}>"

    @property
    def stacks_frames(self) -> bool:
        """Whether it remembers its last observations and nothing else."""
        return isinstance(self.memory, FrameStack) and not self.memory.has_action

    def act(self, memory: Tensor, steps: Tensor | None = None) -> Tensor:
        """Return one action per row: the index of the largest value, or the clipped continuous action.

        ``steps`` is how many steps of the episode are over; only open-loop policies use it, and they use nothing else.
        """
        output: Tensor = self.network(steps if self.open_loop else memory)
        if self.spaces.n_actions is not None:
            return output.argmax(dim=1)
        low = self.spaces.low
        high = self.spaces.high
        if low is None or high is None:
            return output
        return torch.clamp(output, _bounds_on(low, output.device), _bounds_on(high, output.device))

    def to(self, device: torch.device | str) -> Policy:
        """Return the same policy with its weights on ``device``."""
        return replace(
            self,
            network=self.network.to(device),
            critic=None if self.critic is None else self.critic.to(device),
            memory=self.memory.to(device),
        )


@cache
def _bounds_on(bounds: tuple[float, ...], device: torch.device) -> Tensor:
    """Return bounds of actions as a tensor; every step needs them."""
    # What is made in inference mode could not be used for gradients later.
    with torch.inference_mode(False):
        return torch.tensor(bounds, device=device)


def _checked_unit(unit: str) -> str:
    """Return a unit; sentences have it in them, so that it must be a word of one line."""
    if not is_unit(unit):
        raise InputError(
            f"a unit must be a short text on one line, such as m/s, at most {LONGEST_UNIT} letters, that begins with "
            f"a letter, ° or % and is no part of a number, got {unit!r:.60}"
        )
    return unit


def _describe_actions(spaces: Spaces) -> str:
    if spaces.n_actions is None:
        return "continuous actions"
    return f"{spaces.n_actions} actions from {spaces.first_action or 0}"
