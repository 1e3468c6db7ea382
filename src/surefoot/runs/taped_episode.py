"""One recorded episode for the report: clean and noisy observations, without and under attack, or of two agents.

It is run after everything else and changes no number. Of a certificate it is one on a seed stream of its own; of an
attack or a comparison it is one of the run's episodes, whose block is run again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
FEW_SAMPLES = 4


class RecordingFull(Exception):  # noqa: N818
    """Enough steps are recorded; nothing is wrong."""


@dataclass(eq=False)
class Recording:
    """What passed through a channel in one episode: observations, the action before each, the budget used so far."""

    episode: int
    most: int
    clean: list[NDArray[Any]] = field(default_factory=list)
    seen: list[NDArray[Any]] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    budget_used: list[float] = field(default_factory=list)

    def record_step(self, step: Step) -> None:
        """Record the row of the episode; stop the run when it is over, or there is enough."""
        rows = (step.episode == self.episode).nonzero().flatten()
        if not rows.numel() or len(self.clean) >= self.most:
            raise RecordingFull
        row = int(rows[0])
        self.clean.append(step.observation[row].cpu().numpy().copy())
        self.seen.append(step.seen[row].cpu().numpy().copy())
        # Neither the first step, which no action precedes, nor a continuous action has a number to show.
        action = -1
        if step.action is not None and step.action.dim() == 1:
            action = int(step.action[row])
        self.actions.append(action)
        self.budget_used.append(0.0 if step.budget_used is None else float(step.budget_used[row]))


def record_replay(
    tracks: Mapping[str, Plan], folder: Path, *, episode: int | None = None, returns: Sequence[float] = ()
) -> str | None:
    """Record one episode of each plan, from the same start and with the same noise, in ``replay.npz``.

    Args:
        tracks: "quiet" and, if there is one, "attacked"; or "A" and "B".
        folder: The run directory.
        episode: Which episode of the run, of plans that run one per environment; None for one of no run.
        returns: Its returns, one for each plan.

    Returns:
        None, or why nothing was recorded: a failure here must not spoil what was computed.
    """
    (folder / REPLAY_FILE).unlink(missing_ok=True)
    gpu_share = max(plan.gpu_share for plan in tracks.values())
    try:
        # An environment that ends its process must not end this one.
        arrays = run_apart("recording an episode", _record_tracks, (dict(tracks), episode), gpu=gpu_share)
    except Exception as error:
        # On one line and cut: the message is a stranger's, and goes to run.json and to the page.
        return " ".join(f"{type(error).__name__}: {error}".split())[:300]
    size = sum(array.nbytes for array in arrays.values())
    if size > MOST_TAPED - ROOM:
        return f"its observations would take {size:,} bytes, more than a page can show"
    facts = {"episode": episode, "returns": list(map(float, returns)), **_describe_tracks(tracks)}
    write_npz(folder / REPLAY_FILE, {"schema": REPLAY_SCHEMA, **facts}, arrays)
    return None


def attacked_plan(plan: Plan, budget: float) -> Plan | None:
    """Return the same plan under an attack that runs quickly; None for a budget of 0."""
    if budget <= 0:
        return None
    plan = replace(plan, draws_per_seed=1, luck=None)
    return replace(plan, attacker=_quick_attack(plan, budget), budget=budget)


def _quick_attack(plan: Plan, budget: float) -> Attacker:
    policy = plan.policy
    if (
        policy.spaces.n_actions is not None
        and policy.differentiable
        and not policy.open_loop
        and math.prod(policy.spaces.shape) <= SMALL
    ):
        return PaperAttack(0.0, step=budget / TRIES, multiplier=1.0, smoothing=smoothing_of(plan.noise, FEW_SAMPLES))
    return Composed(UniformTiming(budget, plan.task.scoring.max_steps), ConstantDirection())


def _record_tracks(given: tuple[dict[str, Plan], int | None], _: int) -> dict[str, NDArray[Any]]:
    tracks, episode = given
    arrays: dict[str, NDArray[Any]] = {}
    for name, plan in tracks.items():
        arrays |= _record_tape(plan, name, episode)
    return arrays


def _record_tape(plan: Plan, name: str, episode: int | None) -> dict[str, NDArray[Any]]:
    is_picture = len(plan.task.spaces.shape) >= 2
    if episode is None:
        # On a stream of its own: what is shown here is part of no certificate.
        plan = replace(plan, n_episodes=1, n_envs=1, episodes_per_env=1, draws_per_seed=1)
        plan = replace(plan, purpose=(Purpose.TAPED,), luck=None)
        episode = 0
    tape = Recording(episode, MOST_PICTURES if is_picture else MOST_REPLAY_STEPS)
    # With its whole block: alone it would be rounded otherwise, and its noise would be another one's.
    with suppress(RecordingFull):
        play_block(plan, episode // plan.block_size, watch=tape.record_step)
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


def _describe_tracks(tracks: Mapping[str, Plan]) -> dict[str, Any]:
    described = {}
    for name, plan in tracks.items():
        described[name] = {
            "agent": plan.policy.name,
            "sigma": plan.noise.sigma,
            "budget": plan.budget,
            "scope": plan.scope.name,
            "attacker": None if plan.attacker is None else plan.attacker.describe(),
        }
    first = next(iter(tracks.values()))
    return {
        "task": first.task.name,
        "environment": first.task.environment,
        "max_steps": first.task.scoring.max_steps,
        "seed": first.seed,
        "tracks": described,
    }
