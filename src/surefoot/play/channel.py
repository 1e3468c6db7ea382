"""The channels: all that happens to an observation on its way to the agent, and to an action on its way back.

The attacker proposes a perturbation, the ledger clips it to the budget that is left, the noise is added, and an action
is clipped to its limits, in this order. The lemma behind every certificate (adaptive Neyman-Pearson, Kumar, Levine and
Feizi 2022) lets the attacker depend on everything that has happened up to and including the clean present observation
or action. It does not let it depend on the present noise, so the noise is drawn after the attacker has proposed and is
shown to it only in the next step. Both channels share one ledger, because one budget covers both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surefoot.agents.policies import Policy
from surefoot.compute import expand_rows, row_norms
from surefoot.errors import InputError
from surefoot.noise import ATTACK_NORMS, Noise
from surefoot.play.streams import Stream
from surefoot.provenance import text_hash


@dataclass(frozen=True)
class Scope:
    """What an attack's budget bounds: the l2 norm of all perturbations of an episode, or a norm of each single one.

    >>> Scope(per_step=True, norm="linf").name
    'linf per step'
    """

    per_step: bool = False  # whether every step has the whole budget
    norm: str = "l2"  # "l2", or with a budget per step "linf": every number is perturbed by at most the budget

    def __post_init__(self) -> None:
        if self.norm not in ATTACK_NORMS:
            raise InputError(f"norm must be one of {', '.join(ATTACK_NORMS)}, got {self.norm!r}")
        if self.norm != "l2" and not self.per_step:
            raise InputError(
                f"norm={self.norm!r} goes with a budget for each step (per_step), one for the episode is l2"
            )

    @property
    def name(self) -> str | None:
        """Its name in files; None for whole episodes, of which most files are."""
        return f"{self.norm} per step" if self.per_step else None


EPISODE = Scope()


@dataclass(frozen=True, eq=False, kw_only=True)
class View:
    """What an attacker may know when it chooses its perturbation; rows are episodes that run in parallel.

    Tensors are copies of its own. The policy is not, and Python code is no security boundary: an attacker that reaches
    into the simulator cheats, and its results mean nothing.

    >>> import surefoot
    >>> class Watch(surefoot.Attacker):
    ...     def propose(self, view):
    ...         assert view.observation.shape == view.noise.shape
    ...         assert (view.budget_left >= 0).all()
    ...         return 0 * view.observation
    >>> surefoot.attack("cartpole-1", "cartpole-1-s0", method=Watch(), budgets=[1], n_episodes=20).lowest
    array([200.])

    Attributes:
        episode: Which episode each row is, for attackers that keep notes.
        step: How many of its steps are over.
        observation: The clean present observation.
        chosen: The action that the agent has just chosen, where that is to be perturbed; None where the observation is.
        state: The simulator's state, where the environment shows it.
        memory: What the agent remembers, perturbed and noisy: the last frames, newest last, or the state of its
            recurrent network (zeros at the first step). The present observation is among it once it has acted on it.
        clean: What it would remember of the same steps without perturbations and noise.
        action: The action of the step before, as the agent chose it (zeros at the first step).
        last_perturbation: The perturbation of the step before, of an observation or of an action as the present one
            (zeros at the first step).
        noise: The noise of the step before, likewise.
        budget_left: The budget that is left, in the units of what is perturbed; of a budget per step all of it.
        scope: What the budget bounds.
        policy: The victim.
        stream: Random numbers of the attacker's own.
    """

    episode: Tensor
    step: Tensor
    observation: Tensor
    chosen: Tensor | None = None
    state: Tensor | None
    memory: Tensor
    clean: Tensor
    action: Tensor | None
    last_perturbation: Tensor
    noise: Tensor
    budget_left: Tensor
    scope: Scope = EPISODE
    policy: Policy
    stream: Stream

    @property
    def target(self) -> Tensor:
        """What is to be perturbed: the clean present observation, or the action that was chosen."""
        return self.observation if self.chosen is None else self.chosen


class Attacker(Protocol):
    """Anything that proposes perturbations, one row each; the channel keeps the budget, not the attacker.

    The base class of an attack of one's own, which needs ``propose`` alone:

    >>> import numpy as np, surefoot
    >>> class PushRight(surefoot.Attacker):
    ...     def propose(self, view):
    ...         return 0.1 * np.ones_like(view.target)
    >>> episodes = surefoot.rollout(
    ...     "cartpole-1", "cartpole-1-s0", sigma=0, attacker=PushRight(), budget=1, n_episodes=20
    ... )
    >>> bool(episodes.budget_used.max() <= 1)
    True
    """

    def propose(self, view: View) -> Tensor | NDArray[Any]:
        """Return the perturbations it would like, shaped like ``view.target``: what exceeds the budget is clipped."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return its name and settings as JSON data, for the record; by default its class, with a hash of its text."""
        settings = {}
        for name, value in sorted(vars(self).items()):
            if isinstance(value, str | int | float | bool):
                settings[name] = value
        return {"name": type(self).__name__, **settings, "code_sha256": text_hash(type(self))}


@dataclass(frozen=True, eq=False, kw_only=True)
class Rows:
    """What the loop knows of its rows, for the view of an attacker."""

    episode: Tensor  # which episode each row is
    step: Tensor  # how many of its steps are over
    episode_start: Tensor | None  # which rows begin an episode; None if none does
    observation: Tensor  # the clean present observation
    state: Tensor | None  # the simulator's state, where it is shown
    memory: Tensor  # what the agents remember
    action: Tensor | None  # the action of the step before
    chosen: Tensor | None = None  # the present action, once it has been chosen


class Channel:
    """A noisy channel of one block: what is sent through it, observations or actions, with perturbations and noise.

    Attributes:
        ledger: The attacker's, where it may perturb what is sent; None where it may not.
        unit: What a perturbation of each feature is measured in by the ledger; None for 1 everywhere.
        least_unit: The least of these: so much of one feature a budget of 1 buys.
        limits: What arrives is clipped to these; None for no limits.
    """

    def __init__(
        self,
        *,
        noise: Noise,
        n_envs: int,
        shape: tuple[int, ...],
        stream: Stream,
        ledger: Ledger | None = None,
        unit: Tensor | None = None,
        least_unit: float = 1.0,
        limits: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        self.noise = noise
        self.n_envs = n_envs
        self.shape = shape
        self.stream = stream
        self.ledger = ledger
        self.unit = unit
        self.least_unit = least_unit
        self.limits = limits
        self.env: Tensor | None = None  # the environment of each row, once rows are gone
        self.sigmas: float | Tensor = noise.sigma
        if noise.features is not None:
            self.sigmas = torch.from_numpy(noise.over(shape)).to(stream.device)
        # Of the step before, for the view of an attacker.
        self.last_noise = torch.zeros((n_envs, *shape), device=stream.device)
        self.last_perturbation = torch.zeros_like(self.last_noise)

    def send(self, clean: Tensor, rows: Rows | None = None) -> Tensor:
        """Return what arrives, in single precision: what was sent, clipped perturbation and fresh noise.

        They are rounded once, when they have been added: rounded before, a perturbation could grow by the spacing of
        single precision, and an observation with more digits would not be the one that a deployed agent is given.

        Args:
            clean: One row per environment that is left, in the precision of the environment or the agent.
        """
        moved = clean
        if self.ledger is not None:
            # The attacker speaks before the noise of this step is drawn: the lemma needs that order.
            assert rows is not None
            self.last_perturbation = self.ledger.admit_perturbation(clean.float(), rows, self)
            moved = clean.double() + self.last_perturbation
        if self.noise.sigma > 0:
            # Drawn for every environment, finished or not: a row's noise does not depend on its neighbors' fate.
            noise = self.stream.normal((self.n_envs, *self.shape)).mul_(self.sigmas)
            if self.env is not None:
                noise = noise[self.env]
            if self.ledger is not None:
                self.last_noise = noise
            moved = moved + noise
        if self.limits is None:
            return moved.float()
        # After the noise, where it is a function of what arrives and costs nothing; before it, it would stop the noise.
        return torch.clamp(moved.float(), *self.limits)

    def check(self, observed: Tensor, *, is_double: bool = False) -> None:
        """Reject observations that are not finite, or too large for their precision to tell from noise this small.

        Args:
            observed: The largest absolute value of an observation, in units of ``sigmas`` where features differ.
            is_double: Whether all of them came in double precision.

        Raises:
            InputError: If neighboring floats at the largest observation differ by more than a thousandth of sigma.
        """
        largest = float(observed)
        if not math.isfinite(largest):
            raise InputError("the environment returned an observation that is not finite")
        self.noise.check_observed(largest, is_double=is_double)

    def restart_rows(self, rows: Tensor) -> None:
        """Start a new episode on the rows marked: a view of its first step shows nothing of the one before."""
        if self.ledger is not None:
            self.last_noise[rows] = 0.0
            self.last_perturbation[rows] = 0.0

    def keep_rows(self, rows: Tensor) -> None:
        """Forget all rows but these."""
        self.env = rows if self.env is None else self.env[rows]
        if self.ledger is not None:
            self.last_noise = self.last_noise[rows]
            self.last_perturbation = self.last_perturbation[rows]


class Ledger:
    """Shows the attacker its view and clips what it proposes to the budget that is left, in both channels together."""

    def __init__(
        self,
        *,
        attacker: Attacker,
        budget: float,
        policy: Policy,
        stream: Stream,
        n_envs: int,
        shape: tuple[int, ...],
        max_steps: int,
        scope: Scope = EPISODE,
    ) -> None:
        """Open the books of ``n_envs`` rows.

        Args:
            stream: The attacker's own random numbers, never the noise's.
            scope: What the budget bounds, by default the l2 norm of an episode's perturbations.
        """
        if not budget >= 0:
            raise InputError(f"budget must be >= 0, got {budget}")
        self.attacker = attacker
        self.scope = scope
        self.policy = policy
        self.stream = stream
        device = stream.device
        # Squares, in double precision: the l2 norm of an episode is the root of the sum of all of its squares. Of a
        # budget per step the largest square counts.
        self.budget_squared = torch.full((n_envs,), budget, dtype=torch.float64, device=device).square()
        self.used_squared = torch.zeros_like(self.budget_squared)
        self.clean = policy.memory.empty(torch.zeros((n_envs, *shape), device=device))
        self.used_by_step = torch.zeros(max_steps, dtype=torch.float64, device=device)

    @property
    def budget_left(self) -> Tensor:
        """The budget each row may spend at this step."""
        return (self.budget_squared - self._spent).clamp_min(0).sqrt()

    @property
    def _spent(self) -> Tensor:
        """What earlier steps have taken of the squared budget of this one."""
        return torch.zeros_like(self.used_squared) if self.scope.per_step else self.used_squared

    @property
    def budget_used(self) -> Tensor:
        """The l2 norm of all perturbations of each row so far; of a budget per step the norm of its largest one."""
        return self.used_squared.sqrt()

    def admit_perturbation(self, clean: Tensor, rows: Rows, channel: Channel) -> Tensor:
        """Ask the attacker, clip its answer, book it, and return what is let through the channel."""
        budget_left = self.budget_left
        view = View(
            episode=rows.episode,
            step=rows.step,
            observation=rows.observation.float(),
            chosen=rows.chosen,
            state=rows.state,
            memory=rows.memory,
            clean=self.clean,
            action=rows.action,
            last_perturbation=channel.last_perturbation,
            noise=channel.last_noise,
            budget_left=budget_left * channel.least_unit,
            scope=self.scope,
            policy=self.policy,
            stream=self.stream,
        )
        proposal = self._ask_attacker(view)
        if channel.unit is not None:
            # What has no noise is out of the attacker's reach.
            proposal = torch.where(channel.unit > 0, proposal, 0.0)
        clip = self._clip_numbers if self.scope.norm == "linf" else self._clip_to_budget
        perturbation, squared = clip(proposal, budget_left, clean.dtype, channel.unit)
        if self.scope.per_step:
            self.used_squared = torch.maximum(self.used_squared, squared)
        else:
            self.used_squared = self.used_squared + squared
        self.used_by_step.index_add_(0, rows.step.clamp_max(self.used_by_step.numel() - 1), squared)
        return perturbation

    def note_observation(self, rows: Rows) -> None:
        """Note what the agent would remember of the present observation without perturbation and noise."""
        observation = rows.observation.float()
        self.clean = self.policy.memory.advance(self.clean, observation, rows.action, rows.episode_start)

    def _clip_to_budget(
        self, proposal: Tensor, left: Tensor, dtype: torch.dtype, unit: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the perturbations inside the budget that is left, and their squared sizes.

        What is too long is shortened to 1e-7 less than what is left, because rounding to float32 may lengthen it by
        6e-8. What was just short enough may have become too long by rounding and is shortened then; what is too small
        for float32 to shorten is dropped. So the sum that is booked never exceeds the squared budget, not by one bit.
        """
        size = _perturbation_norms(proposal, unit)
        # Divided by at least 1e-300, because torch computes both branches.
        scale = torch.where(size > left, left / size.clamp_min(1e-300) * (1 - 1e-7), torch.ones_like(size))
        offset = (proposal * expand_rows(scale, proposal)).to(dtype)
        over = self._spent + _perturbation_norms(offset, unit) ** 2 > self.budget_squared
        shorter = (offset.double() * (1 - 2e-7)).to(dtype)
        offset = torch.where(expand_rows(over, offset), shorter, offset)
        squared = _perturbation_norms(offset, unit) ** 2
        over = self._spent + squared > self.budget_squared
        return offset.masked_fill(expand_rows(over, offset), 0.0), squared.masked_fill(over, 0.0)

    def _clip_numbers(
        self, proposal: Tensor, left: Tensor, dtype: torch.dtype, unit: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the perturbations with every number inside the budget, and the squares of their largest numbers.

        What rounding to float32 puts outside is the next number outside, and the one before it is inside.
        """
        units = proposal.new_ones(()) if unit is None else torch.where(unit > 0, unit, 1.0)
        most = expand_rows(left, proposal)
        offset = torch.minimum(torch.maximum(proposal, -most * units), most * units).to(dtype)
        outside = offset.double().abs() / units > most
        offset = torch.where(outside, torch.nextafter(offset, torch.zeros_like(offset)), offset)
        return offset, (offset.double().abs() / units).flatten(1).amax(dim=1).square()

    def restart_rows(self, rows: Tensor) -> None:
        """Start a new episode on the rows marked."""
        self.used_squared = self.used_squared.masked_fill(rows, 0.0)
        # A view of a first step shows nothing of the environment's episode before.
        self.clean = self.clean.masked_fill(expand_rows(rows, self.clean), 0.0)

    def keep_rows(self, rows: Tensor) -> None:
        """Forget all rows but these."""
        self.budget_squared = self.budget_squared[rows]
        self.used_squared = self.used_squared[rows]
        self.clean = self.clean[rows]

    def _ask_attacker(self, view: View) -> Tensor:
        # Copies, which it may scribble on: what it does to them reaches neither agent nor environment.
        shown: dict[str, Any] = {name: value.clone() for name, value in vars(view).items() if isinstance(value, Tensor)}
        proposal = self.attacker.propose(replace(view, **shown))
        if isinstance(proposal, np.ndarray):
            proposal = torch.as_tensor(proposal, device=view.target.device)
        if not isinstance(proposal, Tensor) or proposal.shape != view.target.shape:
            expected = tuple(view.target.shape)
            got = tuple(getattr(proposal, "shape", ())) or type(proposal).__name__
            raise InputError(f"an attacker must propose perturbations of shape {expected}, got {got}")
        if not torch.isfinite(proposal).all():
            raise InputError(f"the attacker {self.attacker.describe()} proposed a perturbation that is not finite")
        return proposal.double()


def _perturbation_norms(perturbation: Tensor, unit: Tensor | None) -> Tensor:
    """Return the l2 norms, each feature in its unit."""
    if unit is None:
        return row_norms(perturbation)
    return row_norms(perturbation.double() / torch.where(unit > 0, unit, 1.0))


def observation_channel(
    noise: Noise, n_envs: int, shape: tuple[int, ...], stream: Stream, ledger: Ledger | None = None
) -> Channel:
    """Return the channel from environment to agent, which measures perturbations as budgets count them."""
    least = unit_of_budget(noise.sigma, noise)
    unit = None
    if noise.features is not None:
        unit = torch.from_numpy(noise.over(shape)).to(stream.device).double() / (noise.sigma / least)
    elif least != 1:
        unit = torch.full((1,), least, dtype=torch.float64, device=stream.device)
    return Channel(noise=noise, n_envs=n_envs, shape=shape, stream=stream, ledger=ledger, unit=unit, least_unit=least)


def action_channel(
    noise: Noise,
    n_envs: int,
    limits: tuple[Sequence[float], Sequence[float]],
    stream: Stream,
    ledger: Ledger | None = None,
) -> Channel:
    """Return the channel from agent to environment; actions are clipped to their limits when they arrive."""
    least = unit_of_budget(noise.action_sigma, noise)
    unit = None
    if least != 1:
        unit = torch.full((1,), least, dtype=torch.float64, device=stream.device)
    low, high = (torch.tensor(ends, dtype=torch.float32, device=stream.device) for ends in limits)
    return Channel(
        noise=Noise(noise.action_sigma),
        n_envs=n_envs,
        shape=tuple(low.shape),
        stream=stream,
        ledger=ledger,
        unit=unit,
        least_unit=least,
        limits=(low, high),
    )


def unit_of_budget(sigma: float, noise: Noise) -> float:
    """Return how much of what has this sigma a budget of 1 buys; 1 in the units of the only noise, or without any."""
    if sigma in (0, noise.budget_sigma):
        return 1.0
    return sigma / noise.budget_sigma
