"""System B: all that happens to an observation between environment and agent, in this order.

The adversary proposes an offset, the ledger clips it to the budget that is left, the noise is added. The lemma behind
every certificate (adaptive Neyman-Pearson, Kumar, Levine and Feizi 2022) lets the adversary depend on everything that
has happened up to and including the clean present observation. It does not let it depend on the present noise, so the
noise of a step is drawn after the adversary has spoken and is shown to it only in the next step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from surefoot.agents.policies import FrameStack, Policy
from surefoot.episodes import parted_sigma
from surefoot.errors import InputError
from surefoot.play.streams import Stream


@dataclass(frozen=True, eq=False)
class View:
    """What an adversary may know when it chooses its offset; rows are episodes played side by side.

    ``episode``      which episode each row plays, for adversaries that keep notes
    ``step``         how many steps of it are over
    ``observation``  the clean present observation
    ``state``        the simulator's state, where the game shows it
    ``history``      what the agent has seen before: the last frames with their offsets and noise, newest last
    ``clean``        the same frames without offsets and noise
    ``action``, ``offset``, ``noise``  of the step before (zeros at the first step)
    ``left``         the l2 budget that is left
    ``policy``       the victim
    ``stream``       randomness of the adversary's own
    """

    episode: Tensor
    step: Tensor
    observation: Tensor
    state: Tensor | None
    history: Tensor
    clean: Tensor
    action: Tensor | None
    offset: Tensor
    noise: Tensor
    left: Tensor
    policy: Policy
    stream: Stream


class Adversary(Protocol):
    """Anything that proposes offsets, one row each; the channel keeps the budget, not the adversary."""

    def propose(self, view: View) -> Tensor:
        """Return the offsets it would like, shaped like ``view.observation``; the view must stay untouched."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return its name and settings as JSON data, for the record."""
        ...


class Channel:
    """The noisy channel of one block, with the ledger of an adversary's spending when there is one."""

    def __init__(
        self,
        sigma: float | Sequence[float],
        slots: int,
        shape: tuple[int, ...],
        noise: Stream,
        *,
        adversary: Adversary | None = None,
        budget: float = 0.0,
        policy: Policy | None = None,
        own: Stream | None = None,
        limit: int = 1,
    ) -> None:
        if not budget >= 0:
            raise InputError(f"budget must be >= 0, got {budget}")
        self.sigma, self.features = parted_sigma(sigma)
        self.slots, self.shape = slots, shape
        # what the noise is multiplied by, and what the offsets are measured in, where features differ
        self.spread = None if self.features is None else feature_table(self.features, shape).to(noise.device)
        self.stream = noise
        self.ledger: Ledger | None = None
        if adversary is not None:
            assert policy is not None
            assert own is not None
            self.ledger = Ledger(adversary, budget, policy, own, slots, shape, noise.device, limit)
            self.ledger.unit = None if self.spread is None else self.spread.double() / self.sigma

    def send(self, observation: Tensor, slot: Tensor | None = None, record: Record | None = None) -> Tensor:
        """Return what the agent sees: observation, plus the clipped offset, plus fresh noise.

        ``slot`` says which slot each row belongs to, when some are gone; ``record`` is for the adversary.
        """
        seen = observation
        if self.ledger is not None:
            assert record is not None
            seen = seen + self.ledger.admit(observation, record)
        if self.sigma == 0:
            return seen
        # Drawn for every slot, finished or not, so that a row's noise does not depend on its neighbours' fate.
        noise = self.stream.normal((self.slots, *self.shape)).mul_(self.sigma if self.spread is None else self.spread)
        if slot is not None and slot.numel() < self.slots:
            noise = noise[slot]
        if self.ledger is not None:
            self.ledger.noise = noise
        return seen + noise

    def restart(self, rows: Tensor) -> None:
        """Give the rows marked in ``rows`` a full budget: a new episode begins."""
        if self.ledger is not None:
            self.ledger.restart(rows)

    def keep(self, rows: Tensor) -> None:
        """Forget all rows but these."""
        if self.ledger is not None:
            self.ledger.keep(rows)


@dataclass(eq=False)
class Record:
    """What the loop knows of its rows and the ledger needs for a view."""

    episode: Tensor
    step: Tensor
    fresh: Tensor | None
    state: Tensor | None
    history: Tensor
    action: Tensor | None


class Ledger:
    """Shows the adversary its view and clips what it proposes to the budget that is left."""

    def __init__(
        self,
        adversary: Adversary,
        budget: float,
        policy: Policy,
        own: Stream,
        slots: int,
        shape: tuple[int, ...],
        device: torch.device,
        limit: int,
    ) -> None:
        self.adversary, self.budget, self.policy, self.own = adversary, budget, policy, own
        self.spent_squared = torch.zeros(slots, dtype=torch.float64, device=device)
        self.noise = torch.zeros((slots, *shape), device=device)
        self.offset = torch.zeros_like(self.noise)
        self.clean = FrameStack(policy.frames)
        self.clean.fill(torch.zeros_like(self.noise))
        self.unit: Tensor | None = None
        self.by_step = torch.zeros(limit, dtype=torch.float64, device=device)

    @property
    def left(self) -> Tensor:
        """The l2 budget each row may still spend."""
        return (self.budget**2 - self.spent_squared).clamp_min(0).sqrt()

    @property
    def spent(self) -> Tensor:
        """The l2 size of all offsets of each row so far."""
        return self.spent_squared.sqrt()

    def admit(self, observation: Tensor, record: Record) -> Tensor:
        """Ask the adversary, clip its answer, book it, and return what is let through."""
        left = self.left
        view = View(
            record.episode,
            record.step,
            observation,
            record.state,
            record.history,
            self.clean.history,
            record.action,
            self.offset,
            self.noise,
            left,
            self.policy,
            self.own,
        )
        offset = self._proposal(view)
        size = self._sizes(offset)
        # A hair inside the budget, so that rounding to float32 cannot push the sum over it.
        scale = torch.where(size > left, left / size.clamp_min(1e-300) * (1 - 1e-7), torch.ones_like(size))
        offset = (offset * scale.view(-1, *[1] * (offset.dim() - 1))).to(observation.dtype)
        squared = self._sizes(offset) ** 2
        self.spent_squared = self.spent_squared + squared
        self.by_step.index_add_(0, record.step.clamp_max(self.by_step.numel() - 1), squared)
        self.offset = offset
        self.clean.push(observation, record.fresh)
        return offset

    def _sizes(self, offset: Tensor) -> Tensor:
        """Return the l2 norms; where the noise differs from feature to feature, in units of the least."""
        return norms(offset if self.unit is None else offset.double() / self.unit)

    def restart(self, rows: Tensor) -> None:
        """Start a new episode on the rows marked."""
        self.spent_squared = self.spent_squared.masked_fill(rows, 0.0)
        self.noise[rows] = 0.0
        self.offset[rows] = 0.0
        self.clean.history = self.clean.history.clone()
        self.clean.history[rows] = 0.0

    def keep(self, rows: Tensor) -> None:
        """Forget all rows but these."""
        self.spent_squared = self.spent_squared[rows]
        self.noise, self.offset = self.noise[rows], self.offset[rows]
        self.clean.keep(rows)

    def _proposal(self, view: View) -> Tensor:
        shown = [value for value in vars(view).values() if isinstance(value, Tensor)]
        before = [tensor._version for tensor in shown]
        offset = self.adversary.propose(view)
        if [tensor._version for tensor in shown] != before:
            raise InputError(f"the adversary {self.adversary.describe()} wrote into its view; it may only read it")
        if offset.shape != view.observation.shape:
            raise InputError(
                f"an adversary must propose offsets of shape {tuple(view.observation.shape)}, got {tuple(offset.shape)}"
            )
        if not torch.isfinite(offset).all():
            raise InputError(f"the adversary {self.adversary.describe()} proposed an offset that is not finite")
        return offset.double()


def feature_table(features: Sequence[float], shape: tuple[int, ...]) -> Tensor:
    """Return the sigmas of all features, float32, in the shape of an observation."""
    if len(features) != math.prod(shape):
        raise InputError(
            f"a sigma per feature needs one for each of the {math.prod(shape)} features, got {len(features)}"
        )
    return torch.tensor(features, dtype=torch.float32).view(shape)


def norms(offset: Tensor) -> Tensor:
    """Return the l2 norm of each row, float64."""
    sizes: Tensor = torch.linalg.vector_norm(offset.flatten(1), dim=1, dtype=torch.float64)
    return sizes
