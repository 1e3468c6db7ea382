"""Train an agent on noisy observations, keep the best on validation, and write it with its model card."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

from surefoot.agents import files as zoo
from surefoot.agents.policies import Policy
from surefoot.compute import single_thread
from surefoot.errors import InputError
from surefoot.files import read_json, write_text
from surefoot.train import ddpg, dqn
from surefoot.train.cuda_graph import Captured
from surefoot.train.folder import Progress, TrainingRun, candidate, copy_agent, has_checkpoint
from surefoot.train.sb3_checkpoint import load_checkpoint, save_checkpoint
from surefoot.train.settings import DdpgSettings, Settings
from surefoot.train.validation import Validation, is_perfect

SEEDS = 2**32  # SB3 seeds numpy's global stream, which takes 32 bits


def train(run: TrainingRun, settings: Settings) -> Policy:
    """Train, and write ``agent.npz``, ``agent.json``, ``curve.csv`` and TensorBoard events.

    Where the settings ask for repeats, this training seed and those after it are trained, each in ``repeat-K``; the
    agent with the highest validation is kept, and its model card lists them all.

    Returns:
        The agent that was best on validation.

    Raises:
        InputError: If the seed or a setting is out of range, or the folder cannot be used.
    """
    _check(run.seed, settings)
    if settings.repeats == 1:
        return _train_one(run, settings)
    run.folder()
    parts = [run.out / f"repeat-{number}" for number in range(settings.repeats)]
    for number, path in enumerate(parts):
        if (path / "agent.json").exists():
            continue
        goes_on = has_checkpoint(path)
        if path.exists() and not goes_on:
            shutil.rmtree(path)  # killed before its first checkpoint
        report = _shifted(run.progress, number, settings.repeats)
        _train_one(replace(run, out=path, seed=run.seed + number, resume=goes_on, progress=report), settings)
    return _keep_best(parts, run.out)


def _train_one(run: TrainingRun, settings: Settings) -> Policy:
    folder, task = run.folder(), run.task
    learner = ddpg.LEARNER if isinstance(settings, DdpgSettings) else dqn.LEARNER
    # The networks are small: more than one thread costs more than it brings.
    with single_thread():
        model = learner.build(task, run.sigma, settings, run.seed, run.device)
        if run.resume:
            load_checkpoint(folder, model)
        left = settings.total_steps - model.num_timesteps
        if left > 0 and not is_perfect(task, settings, folder.curve.best):
            validation = Validation(learner, run, settings, folder)
            try:
                model.learn(left, validation, log_interval=sys.maxsize, reset_num_timesteps=False)
            except KeyboardInterrupt:
                # There is time to lose nothing; a kill loses what came after the last checkpoint.
                save_checkpoint(folder, model)
                raise
            finally:
                validation.close()
        policy = learner.policy(task, folder.curve.best_weights, f"{task.name}-s{run.sigma:g}")
    folder.curve.steps = model.num_timesteps
    folder.finish(policy, run.card(learner.algorithm, settings, graph_captured=isinstance(model, Captured)))
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


def _check(seed: int, settings: Settings) -> None:
    if settings.repeats < 1:
        raise InputError(f"repeats must be at least 1, got {settings.repeats}")
    if not 0 <= seed <= SEEDS - settings.repeats:
        raise InputError(f"a training seed must be between 0 and {SEEDS - settings.repeats}, got {seed}")
    if settings.total_steps < settings.validation_interval:
        raise InputError(
            f"total_steps must be at least validation_interval ({settings.validation_interval}), "
            f"got {settings.total_steps}: nothing would be validated or kept"
        )
