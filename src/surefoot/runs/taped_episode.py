"""One episode to look at: what happened, what the agent saw of it, and what it saw under attack.

A replay is played on a random stream of its own, after everything else, so it changes no number of any certificate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from surefoot.attacks.composed import Composed, Evenly, OneDirection
from surefoot.attacks.dqn import PaperAttack
from surefoot.attacks.victim import Smoothing
from surefoot.play.channel import Adversary, Channel, Record
from surefoot.files import write_npz
from surefoot.play.streams import Purpose
from surefoot.play.loop import Plan, play_block

SCHEMA = 1
NAME = "replay.npz"
MOST_STEPS = 500
MOST_PICTURES = 150
# Up to this size an observation is a list of numbers, on which the paper's attack takes a moment.
SMALL = 64
TRIES, DRAWS = 3, 4  # fewer than in an attack that is to be measured


class Enough(Exception):  # noqa: N818
    """The tape is full; nothing is wrong."""


@dataclass(eq=False)
class Tape:
    """What passed through a channel: clean and seen observations, the action before each, the budget spent so far."""

    most: int
    clean: list[NDArray[Any]] = field(default_factory=list)
    seen: list[NDArray[Any]] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    spent: list[float] = field(default_factory=list)

    def take(self, observation: Tensor, seen: Tensor, record: Record | None, spent: float) -> None:
        """Note the first row."""
        self.clean.append(observation[0].cpu().numpy().copy())
        self.seen.append(seen[0].cpu().numpy().copy())
        action = None if record is None else record.action
        discrete = action is not None and action.dim() == 1
        self.actions.append(int(action[0]) if discrete and action is not None else -1)
        self.spent.append(spent)


class Taped(Channel):
    """A channel that notes what passes through it."""

    def __init__(self, tape: Tape, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.tape = tape

    def send(self, observation: Tensor, slot: Tensor | None = None, record: Record | None = None) -> Tensor:
        """Send as always, and note it; stop the play when the tape is full."""
        if len(self.tape.clean) >= self.tape.most:
            raise Enough
        seen = super().send(observation, slot, record)
        self.tape.take(observation, seen, record, 0.0 if self.ledger is None else float(self.ledger.spent[0]))
        return seen


def record_replay(plan: Plan, attacked: Plan | None, folder: Path) -> str | None:
    """Play one episode of ``plan`` and, if given, of ``attacked`` from the same start; leave ``replay.npz``.

    Returns None, or why there is none: what is only for looking at must not spoil what was computed.
    """
    (folder / NAME).unlink(missing_ok=True)
    try:
        arrays = {**_taped(plan, "quiet")}
        if attacked is not None:
            arrays |= _taped(attacked, "attacked")
    except Exception as error:
        return " ".join(f"{type(error).__name__}: {error}".split())[:300]
    write_npz(folder / NAME, {"schema": SCHEMA, **_facts(plan, attacked)}, arrays)
    return None


def attacked_plan(plan: Plan, budget: float) -> Plan | None:
    """Return the same plan under an attack that is quick to play; None for a budget of 0."""
    return replace(plan, adversary=_quick_attack(plan, budget), budget=budget) if budget > 0 else None


def _quick_attack(plan: Plan, budget: float) -> Adversary:
    policy = plan.policy
    if policy.choices is not None and policy.differentiable and not policy.blind and math.prod(policy.shape) <= SMALL:
        return PaperAttack(0.0, step=budget / TRIES, multiplier=1.0, smoothing=Smoothing(plan.sigma, DRAWS))
    return Composed(Evenly(budget, plan.task.limit), OneDirection())


def _taped(plan: Plan, name: str) -> Mapping[str, NDArray[Any]]:
    pictures = len(plan.task.shape) >= 2
    tape = Tape(MOST_PICTURES if pictures else MOST_STEPS)
    alone = replace(plan, episodes=1, slots=1, rounds=1, stream=(Purpose.TAPED,))
    with suppress(Enough):
        play_block(alone, 0, partial(Taped, tape))
    as_shown = _as_bytes if pictures else _as_numbers
    return {
        f"{name}_clean": as_shown(tape.clean),
        f"{name}_seen": as_shown(tape.seen),
        f"{name}_actions": np.array(tape.actions, dtype=np.int32),
        f"{name}_spent": np.array(tape.spent),
    }


def _as_numbers(rows: list[NDArray[Any]]) -> NDArray[Any]:
    return np.stack(rows).astype(np.float32)


def _as_bytes(rows: list[NDArray[Any]]) -> NDArray[Any]:
    # For the eye only: what a screen cannot show is clipped, and 32 shades of noise compress better than 256.
    shades = np.round(np.clip(np.stack(rows), 0, 1) * 31)
    pictures: NDArray[Any] = np.round(shades * (255 / 31)).astype(np.uint8)
    return pictures


def _facts(plan: Plan, attacked: Plan | None) -> dict[str, Any]:
    return {
        "task": plan.task.name,
        "environment": plan.task.environment,
        "agent": plan.policy.name,
        "sigma": plan.sigma,
        "limit": plan.task.limit,
        "seed": plan.seed,
        "budget": None if attacked is None else attacked.budget,
        "adversary": None if attacked is None or attacked.adversary is None else attacked.adversary.describe(),
    }
