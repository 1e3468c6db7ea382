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
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from surefoot.agents.networks import NATURE, cnn_policy, halved
from surefoot.agents.policies import Policy
from surefoot.errors import InputError
from surefoot.play.task import Task
from surefoot.play.workers import usable_cores
from surefoot.train import selection
from surefoot.train.folder import Arrays, Curve, TrainingFolder, TrainingRun, identity
from zoo.training.atari.checkpoint import load_checkpoint, save_checkpoint
from zoo.training.atari.learner import Averaged, Learner
from zoo.training.atari.players import Players
from zoo.training.atari.settings import AtariSettings, FastSettings

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
    def by_bound(self) -> bool:
        """Whether the weights with the highest certified value are kept, even if no budget is asked for."""

    @property
    def recent(self) -> Collection[float]:
        """The returns of the last greedy training episodes, where they are counted."""

    def stretch(self, curve: Curve, until: int, deadline: float | None) -> None:
        """Run and learn up to a number of steps or a deadline."""

    def exploration(self, steps: int) -> float:
        """Return how much it explores after so many steps."""

    def close(self) -> None:
        """End the emulators."""


def train_fast(
    run: TrainingRun, settings: FastSettings, *, init_from: Policy | None = None, processes: int | None = None
) -> Policy:
    """Train until the steps or the time are used up; write the best agent, the curve and a checkpoint.

    Args:
        run: What to train and where; an Atari task.
        settings: The numbers of the preset.
        init_from: An agent whose weights to begin with, for example one trained with less noise.
        processes: How many processes run emulators; None: one per core.

    Raises:
        InputError: If the task is not one of Atari's, agents do not fit, or the folder cannot be used.
    """
    check_atari(run.task, "fast")
    deadline = None if run.time_limit is None else time.monotonic() + 60 * run.time_limit
    folder, device = run.folder(), torch.device(run.device)
    learner = Learner(run.task, run.sigma, settings, device, run.seed)
    started_from = begin(run, folder, learner, init_from)
    if started_from is not None:
        settings = replace(settings, exploration_initial=min(settings.exploration_initial, INITIALIZED_EXPLORATION))
    first_step = folder.curve.steps
    players = Players(run.task, run.sigma, settings, device, run.seed, first_step, processes or usable_cores())
    card = card_of(run, "zoo.training.atari.train: double Q-learning", settings)
    course = QLearning(settings, learner, players)
    return run_course(course, run, folder, card, deadline=deadline, started_from=started_from)


def begin(
    run: TrainingRun, folder: TrainingFolder, learner: Averaged, init_from: Policy | None
) -> dict[str, str] | None:
    """Load the checkpoint, or else begin with another agent's weights; return which agent training began with."""
    if run.resume:
        return load_checkpoint(folder, learner)
    if init_from is None:
        return None
    learner.begin_with(init_from)
    return identity(init_from)


def card_of(run: TrainingRun, algorithm: str, settings: AtariSettings, **more: Any) -> dict[str, Any]:
    """Return what a model card says, and whether gradient steps were captured."""
    return run.card(algorithm, settings, graph_captured=run.device == "cuda" and settings.capture, **more)


def check_atari(task: Task, preset: str) -> None:
    """Raise InputError unless the preset can train on the task."""
    if task.cartridge is None or task.spaces.n_actions is None:
        raise InputError(f"the preset {preset!r} is for Atari tasks, {task.name} is not one; use --preset paper")


def run_course(
    course: Course,
    run: TrainingRun,
    folder: TrainingFolder,
    card: dict[str, Any],
    *,
    deadline: float | None,
    started_from: dict[str, str] | None,
    watch: Watch | None = None,
    validate_first: bool = False,
) -> Policy:
    """Train to the end or the deadline; validate, keep the best agent, and write it, the curve and a checkpoint.

    Args:
        course: What trains; it is closed at the end.
        run: What it was asked for.
        folder: Where to write; training continues from its curve.
        card: What the model card says of the training.
        deadline: When to stop, on the monotonic clock.
        started_from: Name and SHA-256 of the agent that training was initialized from.
        watch: Called after each validation with its returns.
        validate_first: Whether the agent that training was initialized from may be the best.
    """
    curve, settings = folder.curve, course.settings
    try:
        if validate_first and not curve.rows:
            before = validate(run, course, curve)
            if watch is not None:
                watch("validation before training", before)
        while curve.steps < settings.total_steps:
            returns = advance(run, course, curve, deadline)
            save_checkpoint(folder, course.learner, started_from)
            write_agent(folder, run, course, card, started_from)
            if watch is not None and returns is not None:
                watch(f"validation at step {curve.steps:,}", returns)
            if run.progress is not None:
                run.progress(curve.steps, settings.total_steps, curve)
            if late(deadline):
                break
    except KeyboardInterrupt:
        save_checkpoint(folder, course.learner, started_from)
        raise
    finally:
        course.close()
    return write_agent(folder, run, course, card, started_from)


def advance(run: TrainingRun, course: Course, curve: Curve, deadline: float | None) -> NDArray[np.float64] | None:
    """Train up to the next validation and return its returns; without validations for a minute, and keep what is."""
    settings, pause = course.settings, deadline
    if not settings.validation_episodes:
        pause = min(time.monotonic() + SAVED_EVERY, np.inf if deadline is None else deadline)
    with tried_convolutions():
        course.stretch(curve, min(curve.steps + settings.validation_interval, settings.total_steps), pause)
    if settings.validation_episodes:
        return validate(run, course, curve)
    curve.keep(np.array(course.recent), course.exploration(curve.steps), stored(halved(course.learner.agent_weights())))
    return None


def write_agent(
    folder: TrainingFolder,
    run: TrainingRun,
    course: Course,
    card: dict[str, Any],
    started_from: dict[str, str] | None,
) -> Policy:
    """Write the agent that is kept so far, with its card, and return it."""
    kind = "" if isinstance(course, QLearning) else "-student"
    policy = agent(run.task, folder.curve.best_weights, f"{run.task.name}{kind}-s{run.sigma:g}")
    shown = {**card["training"], "updates": course.learner.updates}
    if started_from is not None:
        shown["started_from"] = started_from
    folder.finish(policy, {**card, "training": shown}, keep_checkpoint=True)
    return policy


class QLearning:
    """The course of the preset ``fast``."""

    by_bound = False

    def __init__(self, settings: FastSettings, learner: Learner, players: Players) -> None:
        self.settings, self.learner, self.players = settings, learner, players
        self.recent: tuple[float, ...] = ()

    def stretch(self, curve: Curve, until: int, deadline: float | None) -> None:
        """Run and learn up to a number of steps or a deadline."""
        stretch(self.players, self.learner, curve, self.settings, until, deadline)

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


def validate(run: TrainingRun, course: Course, curve: Curve) -> NDArray[np.float64]:
    """Run noisy greedy episodes from resets with the agent as it would be stored; keep the best; return the returns."""
    weights = halved(course.learner.agent_weights())
    episodes = course.settings.validation_episodes
    played = selection.validate(
        run,
        agent(run.task, weights, "candidate"),
        episodes,
        number=curve.steps,
        device=run.device,
        n_envs=min(episodes, course.settings.slots // 2),
    )
    by_bound = course.by_bound or run.for_budget is not None
    certified = selection.predicted_bound(played, run.budget) if by_bound else None
    curve.add(played.returns, course.exploration(curve.steps), stored(weights), certified)
    return played.returns


def stored(weights: Arrays) -> Arrays:
    """Return weights that half precision holds exactly, in half the size."""
    return {name: array.astype(np.float16) for name, array in weights.items()}


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
