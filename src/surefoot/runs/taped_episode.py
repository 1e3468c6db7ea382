"""One recorded episode for the report: clean and noisy observations, without and under attack.

It is run on a seed stream of its own, after everything else, so it changes no number of any certificate.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.attacks.composed import Composed, ConstantDirection, UniformTiming
from surefoot.attacks.dqn import PaperAttack
from surefoot.attacks.victim import smoothing_of
from surefoot.files import write_npz
from surefoot.play.channel import Attacker
from surefoot.play.loop import Step, play_block
from surefoot.play.plan import Plan
from surefoot.play.streams import Purpose
from surefoot.play.workers import run_apart
from surefoot.report.taped_frames import MOST_REPLAY_STEPS, MOST_TAPED, REPLAY_SCHEMA

REPLAY_FILE = "replay.npz"
MOST_PICTURES = 150
ROOM = 2**16  # bytes of what else is in the file: the header, types and shapes
# Up to this size an observation is a list of numbers, on which the paper's attack takes a moment.
SMALL = 64
# Fewer than in an attack that is to be measured.
TRIES = 3
NOISE_SAMPLES = 4


class RecordingFull(Exception):  # noqa: N818
    """Enough steps are recorded; nothing is wrong."""


@dataclass(eq=False)
class Tape:
    """What passed through a channel: clean and noisy observations, the action before each, the budget used so far."""

    most: int
    clean: list[NDArray[Any]] = field(default_factory=list)
    seen: list[NDArray[Any]] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    budget_used: list[float] = field(default_factory=list)

    def record_step(self, step: Step) -> None:
        """Record the first row; stop the run when there is enough."""
        if len(self.clean) >= self.most:
            raise RecordingFull
        self.clean.append(step.observation[0].cpu().numpy().copy())
        self.seen.append(step.seen[0].cpu().numpy().copy())
        # Neither the first step, which no action precedes, nor a continuous action has a number to show.
        action = -1
        if step.action is not None and step.action.dim() == 1:
            action = int(step.action[0])
        self.actions.append(action)
        self.budget_used.append(0.0 if step.budget_used is None else float(step.budget_used[0]))


def record_replay(plan: Plan, attacked: Plan | None, folder: Path) -> str | None:
    """Record one episode of ``plan`` and, if given, of ``attacked`` from the same start, in ``replay.npz``.

    Returns:
        None, or why nothing was recorded: a failure here must not spoil what was computed.
    """
    (folder / REPLAY_FILE).unlink(missing_ok=True)
    try:
        # An environment that ends its process must not end this one.
        arrays = run_apart("recording an episode", _record_both, (plan, attacked), gpu=plan.gpu_share)
    except Exception as error:
        # On one line and cut: the message is a stranger's, and goes to run.json and to the page.
        return " ".join(f"{type(error).__name__}: {error}".split())[:300]
    size = sum(array.nbytes for array in arrays.values())
    if size > MOST_TAPED - ROOM:
        return f"its observations would take {size:,} bytes, more than a page can show"
    write_npz(folder / REPLAY_FILE, {"schema": REPLAY_SCHEMA, **_describe_tape(plan, attacked)}, arrays)
    return None


def attacked_plan(plan: Plan, budget: float) -> Plan | None:
    """Return the same plan under an attack that runs quickly; None for a budget of 0."""
    if budget <= 0:
        return None
    plan = replace(plan, draws_per_seed=1)
    return replace(plan, attacker=_quick_attack(plan, budget), budget=budget)


def _quick_attack(plan: Plan, budget: float) -> Attacker:
    policy = plan.policy
    if (
        policy.spaces.n_actions is not None
        and policy.differentiable
        and not policy.open_loop
        and math.prod(policy.spaces.shape) <= SMALL
    ):
        return PaperAttack(0.0, step=budget / TRIES, multiplier=1.0, smoothing=smoothing_of(plan.noise, NOISE_SAMPLES))
    return Composed(UniformTiming(budget, plan.task.scoring.max_steps), ConstantDirection())


def _record_both(plans: tuple[Plan, Plan | None], _: int) -> dict[str, NDArray[Any]]:
    plan, attacked = plans
    arrays = _record_tape(plan, "quiet")
    if attacked is not None:
        arrays |= _record_tape(attacked, "attacked")
    return arrays


def _record_tape(plan: Plan, name: str) -> dict[str, NDArray[Any]]:
    is_picture = len(plan.task.spaces.shape) >= 2
    tape = Tape(MOST_PICTURES if is_picture else MOST_REPLAY_STEPS)
    # One episode on a stream of its own: what is shown here is part of no certificate.
    alone = replace(plan, n_episodes=1, n_envs=1, episodes_per_env=1, purpose=(Purpose.TAPED,), draws_per_seed=1)
    with suppress(RecordingFull):
        play_block(alone, 0, watch=tape.record_step)
    clean = np.stack(tape.clean).astype(np.float32)
    seen = np.stack(tape.seen).astype(np.float32)
    return {
        f"{name}_clean": _as_picture(clean) if is_picture else clean,
        f"{name}_seen": _as_picture(seen) if is_picture else seen,
        f"{name}_actions": np.array(tape.actions, dtype=np.int32),
        f"{name}_budget_used": np.array(tape.budget_used),
    }


def _as_picture(rows: NDArray[Any]) -> NDArray[Any]:
    # For the eye only: what a screen cannot show is clipped, and 32 shades of noise compress better than 256.
    shades = np.round(np.clip(rows, 0, 1) * 31)
    pictures: NDArray[Any] = np.round(shades * (255 / 31)).astype(np.uint8)
    return pictures


def _describe_tape(plan: Plan, attacked: Plan | None) -> dict[str, Any]:
    facts = {
        "task": plan.task.name,
        "environment": plan.task.environment,
        "agent": plan.policy.name,
        "sigma": plan.noise.sigma,
        "max_steps": plan.task.scoring.max_steps,
        "seed": plan.seed,
        "budget": None,
        "attacker": None,
    }
    if attacked is not None:
        facts["budget"] = attacked.budget
        if attacked.attacker is not None:
            facts["attacker"] = attacked.attacker.describe()
    return facts
