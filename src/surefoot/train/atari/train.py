"""Train a convolutional agent for an Atari task in minutes on one GPU, with noise on every frame.

Read from top to bottom. Many emulators run in parallel while the GPU learns; frames are stored clean and get fresh
noise whenever they are sampled; a few gradient steps (double Q-learning over several steps) per vector step are
captured as one CUDA graph. The agent is the running average of the weights, rounded to half precision: that is what is
validated, on noisy greedy episodes from resets, and what is written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from surefoot.agents.networks import NATURE, cnn_policy, halved
from surefoot.agents.policies import Policy
from surefoot.episodes import Noise, checked_sigma
from surefoot.errors import InputError
from surefoot.play.task import Task
from surefoot.play.workers import usable_cores
from surefoot.train import selection
from surefoot.train.atari.checkpoint import load_checkpoint, save_checkpoint
from surefoot.train.atari.learner import Averaged, Learner
from surefoot.train.atari.players import Players
from surefoot.train.atari.settings import AtariSettings, FastSettings
from surefoot.train.folder import Arrays, Curve, Progress, TrainingFolder
from surefoot.train.settings import check_time_limit

# An agent that knows the game need not explore everything again.
INITIALIZED_EXPLORATION = 0.05

SAVED_EVERY = 60.0  # seconds, where no validation decides when to save

# Called now and then with a line about the training and the returns of some episodes of the agent as it is.
Watch = Callable[[str, NDArray[np.float64]], None]


class Course(Protocol):
    """One way of training an Atari agent, as validation and the training directory see it."""

    @property
    def settings(self) -> AtariSettings:
        """The numbers of the preset."""

    @property
    def learner(self) -> Averaged:
        """What learns."""

    @property
    def recent(self) -> Collection[float]:
        """The returns of the last greedy training episodes, where they are counted."""

    def stretch(self, curve: Curve, until: int, deadline: float | None) -> None:
        """Run and learn up to a number of steps or a deadline."""

    def weights(self) -> Arrays:
        """Return the weights of the agent, as it would be now."""

    def exploration(self, steps: int) -> float:
        """Return how much it explores after so many steps."""

    def close(self) -> None:
        """End the emulators."""


def train_fast(
    task: Task,
    sigma: float,
    settings: FastSettings,
    out: Path,
    *,
    seed: int = 0,
    device: str = "cuda",
    time_limit: float | None = None,
    processes: int | None = None,
    resume: bool = False,
    command: str = "",
    preset: str = "fast",
    init_from: Policy | None = None,
    progress: Progress | None = None,
) -> Policy:
    """Train until the steps or the time are used up; write the best agent, the curve and a checkpoint to ``out``.

    Args:
        task: An Atari task.
        sigma: Standard deviation of the noise on every new frame.
        settings: The numbers of the preset.
        out: An empty or new folder, or with ``resume`` one that holds a checkpoint.
        seed: Training seed.
        device: Where to learn.
        time_limit: Minutes after which to stop; the run can be resumed.
        processes: How many processes run emulators; None: one per core.
        resume: Whether to continue from the checkpoint in ``out``.
        command: The command line, for the model card.
        preset: The name of the settings, for the model card.
        init_from: An agent whose weights to begin with, for example one trained with less noise.
        progress: Called after each validation with steps so far, steps in total, and what validation has shown.

    Raises:
        InputError: If an argument is out of range, or ``out`` cannot be used.
    """
    check_run(task, sigma, time_limit, "fast")
    deadline = None if time_limit is None else time.monotonic() + 60 * time_limit
    folder = TrainingFolder(out, resume=resume)
    learner = Learner(task, sigma, settings, torch.device(device), seed)
    started_from = None
    if resume:
        started_from = load_checkpoint(folder, learner)
    elif init_from is not None:
        learner.begin_with(init_from)
        started_from = identity(init_from)
    if started_from is not None:
        settings = replace(settings, exploration_initial=min(settings.exploration_initial, INITIALIZED_EXPLORATION))
    first_step = folder.curve.steps
    players = Players(task, sigma, settings, torch.device(device), seed, first_step, processes or usable_cores())
    training = how_trained(
        "surefoot.train.atari.train: double Q-learning",
        settings,
        preset=preset,
        seed=seed,
        device=device,
        command=command,
    )
    course = QLearning(settings, learner, players)
    return run_course(
        course, folder, task, sigma, deadline=deadline, started_from=started_from, training=training, progress=progress
    )


def identity(policy: Policy) -> dict[str, str]:
    """Return what a model card says of another agent."""
    return {"name": policy.name, "sha256": policy.sha256}


def how_trained(
    algorithm: str, settings: AtariSettings, *, preset: str, seed: int, device: str, command: str, **more: Any
) -> dict[str, Any]:
    """Return what a model card says of the training."""
    return {
        "algorithm": algorithm,
        "graph_captured": device == "cuda" and settings.capture,
        "preset": preset,
        "settings": settings.facts(),
        **more,
        "seed": seed,
        "device": device,
        "command": command,
    }


def check_run(task: Task, sigma: float, time_limit: float | None, preset: str) -> None:
    """Raise InputError unless the preset can train on the task, with this noise, for this time."""
    checked_sigma(sigma)
    if task.cartridge is None or task.spaces.n_actions is None:
        raise InputError(f"the preset {preset!r} is for Atari tasks, {task.name} is not one; use --preset paper")
    check_time_limit(time_limit)


def run_course(
    course: Course,
    folder: TrainingFolder,
    task: Task,
    sigma: float,
    *,
    deadline: float | None,
    started_from: dict[str, str] | None,
    training: dict[str, Any],
    progress: Progress | None = None,
    watch: Watch | None = None,
    validate_first: bool = False,
) -> Policy:
    """Train to the end or the deadline; validate, keep the best agent, and write it, the curve and a checkpoint.

    Args:
        course: What trains; it is closed at the end.
        folder: Where to write; training continues from its curve.
        task: The task.
        sigma: Standard deviation of the noise.
        deadline: When to stop, on the monotonic clock.
        started_from: Name and SHA-256 of the agent that training was initialized from.
        training: How it was trained, for the model card; seed and device among it.
        progress: Called after each validation with steps so far, steps in total, and what validation has shown.
        watch: Called after each validation with its returns.
        validate_first: Whether the agent that training was initialized from may be the best.
    """
    curve, settings = folder.curve, course.settings
    try:
        if validate_first and not curve.rows:
            before = validate(task, sigma, course, curve, training["seed"], training["device"])
            if watch is not None:
                watch("validation before training", before)
        while curve.steps < settings.total_steps:
            returns = advance(task, sigma, course, curve, training["seed"], training["device"], deadline)
            save_checkpoint(folder, course.learner, started_from)
            write_agent(folder, task, sigma, course, training, started_from)
            if watch is not None and returns is not None:
                watch(f"validation at step {curve.steps:,}", returns)
            if progress is not None:
                progress(curve.steps, settings.total_steps, curve)
            if late(deadline):
                break
    except KeyboardInterrupt:
        save_checkpoint(folder, course.learner, started_from)
        raise
    finally:
        course.close()
    return write_agent(folder, task, sigma, course, training, started_from)


def advance(
    task: Task, sigma: float, course: Course, curve: Curve, seed: int, device: str, deadline: float | None
) -> NDArray[np.float64] | None:
    """Train up to the next validation and return its returns; without validations for a minute, and keep what is."""
    settings, pause = course.settings, deadline
    if not settings.validation_episodes:
        pause = min(time.monotonic() + SAVED_EVERY, np.inf if deadline is None else deadline)
    with tried_convolutions():
        course.stretch(curve, min(curve.steps + settings.validation_interval, settings.total_steps), pause)
    if settings.validation_episodes:
        return validate(task, sigma, course, curve, seed, device)
    curve.keep(np.array(course.recent), course.exploration(curve.steps), stored(halved(course.weights())))
    return None


def write_agent(
    folder: TrainingFolder,
    task: Task,
    sigma: float,
    course: Course,
    training: dict[str, Any],
    started_from: dict[str, str] | None,
) -> Policy:
    """Write the agent that is kept so far, with its card, and return it."""
    policy = agent(task, folder.curve.best_weights, f"{task.name}-s{sigma:g}")
    shown = {**training, "updates": course.learner.updates}
    if started_from is not None:
        shown["started_from"] = started_from
    folder.finish(policy, {"task": task.name, "sigma": sigma, "training": shown}, keep_checkpoint=True)
    return policy


class QLearning:
    """The course of the preset ``fast``."""

    def __init__(self, settings: FastSettings, learner: Learner, players: Players) -> None:
        self.settings, self.learner, self.players = settings, learner, players
        self.recent: tuple[float, ...] = ()

    def stretch(self, curve: Curve, until: int, deadline: float | None) -> None:
        """Run and learn up to a number of steps or a deadline."""
        stretch(self.players, self.learner, curve, self.settings, until, deadline)

    def weights(self) -> Arrays:
        """Return the running average."""
        return averaged_weights(self.learner)

    def exploration(self, steps: int) -> float:
        """Return how often an exploring stretch begins after so many steps."""
        return exploration(self.settings, steps)

    def close(self) -> None:
        """End the emulators."""
        self.players.close()


@contextmanager
def tried_convolutions() -> Iterator[None]:
    """Let cuDNN time its algorithms and take the fastest; only while learning, where nothing has to repeat exactly."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def stretch(
    players: Players, learner: Learner, curve: Curve, settings: FastSettings, until: int, deadline: float | None
) -> None:
    """Run and learn up to a number of steps or a deadline, the emulators stepping while the GPU learns."""
    # A resumed run has an empty buffer: it collects again, with the network it has, before it learns.
    warm = players.first_step + settings.learning_starts
    while curve.steps < until:
        players.begin(learner.online, learner.replay, exploration(settings, curve.steps))
        if curve.steps >= warm and learner.replay.ready:
            learner.learn(curve.steps / settings.total_steps)
        players.finish(learner.replay)
        curve.steps += settings.slots
        if late(deadline):
            break


def validate(task: Task, sigma: float, course: Course, curve: Curve, seed: int, device: str) -> NDArray[np.float64]:
    """Run noisy greedy episodes from resets with the agent as it would be stored; keep the best; return the returns."""
    weights = halved(course.weights())
    episodes = course.settings.validation_episodes
    returns = selection.validate(
        task,
        agent(task, weights, "candidate"),
        Noise.of(sigma),
        episodes,
        seed=seed,
        number=curve.steps,
        device=device,
        n_envs=min(episodes, course.settings.slots // 2),
    ).returns
    curve.add(returns, course.exploration(curve.steps), stored(weights))
    return returns


def stored(weights: Arrays) -> Arrays:
    """Return weights that half precision holds exactly, in half the size."""
    return {name: array.astype(np.float16) for name, array in weights.items()}


def averaged_weights(learner: Averaged) -> Arrays:
    """Return the running average by the names of an agent's file."""
    return {name: part.cpu().contiguous().numpy() for name, part in learner.average.named_parts()}


def exploration(settings: FastSettings, steps: int) -> float:
    """Return how often an exploring stretch begins after so many steps."""
    share = min(1.0, steps / max(1, settings.exploration_steps))
    return settings.exploration_initial + share * (settings.exploration_final - settings.exploration_initial)


def agent(task: Task, weights: Mapping[str, NDArray[Any]], name: str) -> Policy:
    """Return the policy of these weights."""
    assert task.spaces.n_actions is not None
    arrays = {key: array.astype(np.float32) for key, array in weights.items()}
    n_stack = arrays["conv0.weight"].shape[1]
    return cnn_policy(arrays, NATURE, n_stack, task.spaces.shape, task.spaces.n_actions, name)


def late(deadline: float | None) -> bool:
    """Return whether the deadline is over."""
    return deadline is not None and time.monotonic() >= deadline
