"""Train an agent on noisy observations, keep the best on validation, and write it with its model card."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from surefoot.agents import files as zoo
from surefoot.agents.policies import Policy
from surefoot.episodes import checked_sigma
from surefoot.errors import InputError
from surefoot.files import read_json, write_text
from surefoot.play.task import Task
from surefoot.play.workers import single_thread
from surefoot.train import ddpg, dqn
from surefoot.train.cuda_graph import Captured
from surefoot.train.folder import Progress, TrainingFolder, candidate, copy_agent, has_checkpoint
from surefoot.train.sb3_checkpoint import load_checkpoint, save_checkpoint
from surefoot.train.settings import DdpgSettings, Settings
from surefoot.train.validation import Validation, is_perfect

SEEDS = 2**32  # SB3 seeds numpy's global stream, which takes 32 bits


def train(
    task: Task,
    sigma: float,
    settings: Settings,
    out: Path,
    *,
    seed: int = 0,
    device: str = "cpu",
    repeats: int | None = None,
    resume: bool = False,
    command: str = "",
    preset: str = "",
    progress: Progress | None = None,
) -> Policy:
    """Train, and write ``agent.npz``, ``agent.json``, ``curve.csv`` and TensorBoard events to ``out``.

    Args:
        task: What to train on.
        sigma: Standard deviation of the noise on every new observation.
        settings: The algorithm and its numbers.
        out: An empty or new folder.
        seed: Training seed; repeated runs use this one and those after it.
        device: Where to learn.
        repeats: How many seeds to train, each in ``out/repeat-K``; the agent with the highest validation is kept, and
            its model card lists them all. None: as many as the settings say.
        resume: Whether to continue from the checkpoint in ``out``.
        command: The command line, for the model card.
        preset: The name of the settings, for the model card.
        progress: Called after each validation with steps so far, steps in total, and what validation has shown.

    Returns:
        The agent that was best on validation.

    Raises:
        InputError: If an argument is out of range, or ``out`` cannot be used.
    """
    settings = settings if repeats is None else replace(settings, repeats=repeats)
    _check(sigma, seed, settings)
    facts = {"device": device, "command": command, "preset": preset}
    if settings.repeats == 1:
        return _train_one(task, sigma, settings, TrainingFolder(out, resume=resume), seed, facts, resume, progress)
    folder = TrainingFolder(out, resume=resume)
    parts = [folder.path / f"repeat-{number}" for number in range(settings.repeats)]
    for number, path in enumerate(parts):
        if (path / "agent.json").exists():
            continue
        goes_on = has_checkpoint(path)
        if path.exists() and not goes_on:
            shutil.rmtree(path)  # killed before its first checkpoint
        own = TrainingFolder(path, resume=goes_on)
        report = _shifted(progress, number, settings.repeats)
        _train_one(task, sigma, settings, own, seed + number, facts, goes_on, report)
    return _keep_best(parts, out)


def _train_one(
    task: Task,
    sigma: float,
    settings: Settings,
    folder: TrainingFolder,
    seed: int,
    facts: Mapping[str, str],
    resume: bool,
    progress: Progress | None,
) -> Policy:
    learner = ddpg.LEARNER if isinstance(settings, DdpgSettings) else dqn.LEARNER
    # The networks are small: more than one thread costs more than it brings.
    with single_thread():
        model = learner.build(task, sigma, settings, seed, facts["device"])
        if resume:
            load_checkpoint(folder, model)
        left = settings.total_steps - model.num_timesteps
        if left > 0 and not is_perfect(task, settings, folder.curve.best):
            validation = Validation(learner, task, sigma, settings, folder, seed=seed, progress=progress)
            try:
                model.learn(left, validation, log_interval=sys.maxsize, reset_num_timesteps=False)
            except KeyboardInterrupt:
                # There is time to lose nothing; a kill loses what came after the last checkpoint.
                save_checkpoint(folder, model)
                raise
            finally:
                validation.close()
        policy = learner.policy(task, folder.curve.best_weights, f"{task.name}-s{sigma:g}")
    folder.curve.steps = model.num_timesteps
    training: dict[str, Any] = {
        "algorithm": learner.algorithm,
        "graph_captured": isinstance(model, Captured),
        "settings": settings.facts(),
        "seed": seed,
        **facts,
    }
    folder.finish(policy, {"task": task.name, "sigma": sigma, "training": training})
    return policy


def _keep_best(parts: list[Path], out: Path) -> Policy:
    """Write the agent with the highest validation, the first of equals; its card lists all as candidates."""
    cards = [read_json(path / "agent.json") for path in parts]
    best = max(range(len(parts)), key=lambda number: (cards[number]["training"]["best_validation"], -number))
    write_text(out / "curve.csv", (parts[best] / "curve.csv").read_text())
    copy_agent(str(parts[best]), out / "agent", candidates=[candidate(card) for card in cards])
    return zoo.load(str(out))


def _shifted(progress: Progress | None, number: int, repeats: int) -> Progress | None:
    """Return the progress of one of several runs as that of them all."""
    if progress is None:
        return None
    return lambda step, of, curve: progress(number * of + step, repeats * of, curve)


def _check(sigma: float, seed: int, settings: Settings) -> None:
    checked_sigma(sigma)
    if settings.repeats < 1:
        raise InputError(f"repeats must be at least 1, got {settings.repeats}")
    if not 0 <= seed <= SEEDS - settings.repeats:
        raise InputError(f"a training seed must be between 0 and {SEEDS - settings.repeats}, got {seed}")
    if settings.total_steps < settings.validation_interval:
        raise InputError(
            f"total_steps must be at least validation_interval ({settings.validation_interval}), "
            f"got {settings.total_steps}: nothing would be validated or kept"
        )
