"""Train an agent on noisy observations, keep the best on validation, and write it as plain weights with a card."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from surefoot.agents import files as zoo
from surefoot.agents.policies import Policy
from surefoot.episodes import checked_sigma
from surefoot.errors import InputError
from surefoot.files import versions
from surefoot.play.loop import single_thread
from surefoot.play.tasks import Task
from surefoot.train import ddpg, dqn
from surefoot.train.cuda_graph import Captured
from surefoot.train.sb3_checkpoint import load_checkpoint, save_checkpoint
from surefoot.train.settings import DdpgSettings, Settings
from surefoot.train.validation import Curve, Progress, Validation, perfect

SEEDS = 2**32  # SB3 seeds numpy's global stream, which takes 32 bits


def train(
    task: Task,
    sigma: float,
    settings: Settings,
    out: Path,
    *,
    seed: int = 0,
    device: str = "cpu",
    resume: bool = False,
    command: str = "",
    preset: str = "",
    progress: Progress | None = None,
) -> Policy:
    """Train, and leave ``agent.npz``, ``agent.json``, ``curve.csv`` and TensorBoard events in ``out``."""
    _check(sigma, seed, settings)
    learner = ddpg.LEARNER if isinstance(settings, DdpgSettings) else dqn.LEARNER
    began = time.monotonic()
    _claim(out, resume)
    # The networks are small: more than one thread costs more than it brings.
    with single_thread():
        model = learner.build(task, sigma, settings, seed, device)
        curve = Curve()
        if resume and (out / "checkpoint.npz").exists():
            load_checkpoint(out / "checkpoint.npz", model, curve)
        callback = Validation(learner, task, sigma, settings, out, seed, curve, progress)
        left = settings.total_steps - model.num_timesteps
        if left > 0 and not (learner.ends_perfect and curve.best >= perfect(task)):
            try:
                model.learn(left, callback, log_interval=sys.maxsize, reset_num_timesteps=False)
            except KeyboardInterrupt:
                # There is time to lose nothing; a kill loses what came after the last checkpoint.
                save_checkpoint(out / "checkpoint.npz", model, curve)
                raise
        callback.finish()
        policy = learner.policy(task, curve.best_weights, f"{task.name}-s{sigma:g}")
    facts: dict[str, Any] = {
        "task": task.name,
        "sigma": sigma,
        "training": {
            "algorithm": learner.algorithm,
            "graph_captured": isinstance(model, Captured),
            "preset": preset,
            "settings": settings.facts(),
            "seed": seed,
            "device": device,
            "command": command,
            "steps": model.num_timesteps,
            "seconds": round(time.monotonic() - began, 1),
            "best_step": curve.best_step,
            "best_validation": curve.best,
        },
        "curve": [[row[0], row[1]] for row in curve.rows],
        "versions": versions(),
    }
    zoo.save(policy, out / "agent", facts)
    (out / "checkpoint.npz").unlink(missing_ok=True)
    return policy


def _check(sigma: float, seed: int, settings: Settings) -> None:
    checked_sigma(sigma)
    if not 0 <= seed < SEEDS:
        raise InputError(f"a training seed must lie from 0 to {SEEDS - 1}, got {seed}")
    if settings.total_steps < settings.validation_interval:
        raise InputError(
            f"total_steps must be at least validation_interval ({settings.validation_interval}), "
            f"got {settings.total_steps}: nothing would be validated or kept"
        )


def _claim(out: Path, resume: bool) -> None:
    if (out / "agent.json").exists():
        raise InputError(f"{out} already holds a trained agent; choose another --out")
    if out.is_dir() and any(out.iterdir()):
        checkpoint = (out / "checkpoint.npz").exists()
        if resume and not checkpoint:
            raise InputError(
                f"{out} holds no checkpoint to go on from; start without --resume, with an empty folder as --out"
            )
        if not resume:
            way = "give --resume to go on there, or choose" if checkpoint else "choose"
            raise InputError(f"{out} is not empty; {way} another --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror}; choose another --out") from error
