"""Train a convolutional agent for an Atari task in minutes on one GPU, with noise on every frame.

Read from top to bottom. Many emulators play side by side while the GPU learns; frames are kept clean and get fresh
noise whenever they are drawn; a few gradient steps (double Q-learning over several steps) per vector step are captured
as one CUDA graph. The agent is the running average of the weights, rounded to half precision: that is what is
validated, on noisy greedy play from resets, and what is written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from surefoot.agents import files as zoo
from surefoot.agents.networks import NATURE, cnn_policy, halved
from surefoot.agents.policies import Policy
from surefoot.episodes import checked_sigma
from surefoot.errors import InputError
from surefoot.files import versions, write_text
from surefoot.play.loop import Plan, play
from surefoot.play.streams import Purpose
from surefoot.play.tasks import Task
from surefoot.play.workers import usable_cores
from surefoot.train.atari.checkpoint import Progressed, claim, load_fast, save_fast
from surefoot.train.atari.learner import Learner
from surefoot.train.atari.players import Players
from surefoot.train.settings import FastSettings

# Who knows the game need not try everything again.
STARTED_EXPLORATION = 0.05

Report = Callable[[int, int, float], None]


def train_fast(
    task: Task,
    sigma: float,
    settings: FastSettings,
    out: Path,
    *,
    seed: int = 0,
    device: str = "cuda",
    minutes: float | None = None,
    processes: int | None = None,
    resume: bool = False,
    command: str = "",
    preset: str = "fast",
    start: Policy | None = None,
    progress: Report | None = None,
) -> Policy:
    """Train until the steps or the minutes are over; leave the best agent, the curve and a checkpoint in ``out``.

    ``start``  an agent whose weights to begin with; one for less noise knows the game already
    """
    began = time.monotonic()
    checked_sigma(sigma)
    if task.cartridge is None or task.choices is None:
        raise InputError(f"the fast training is for Atari tasks, {task.name} is none; use --preset paper")
    if minutes is not None and not minutes > 0:
        raise InputError(f"minutes must be > 0, got {minutes}")
    claim(out, resume)
    so_far = Progressed()
    learner = Learner(task, sigma, settings, torch.device(device), seed)
    if resume:
        load_fast(out, learner, so_far)
    elif start is not None:
        learner.begin_with(start)
        so_far.started_from = {"name": start.name, "sha256": start.sha256}
    if so_far.started_from is not None:
        settings = replace(settings, exploration_initial=min(settings.exploration_initial, STARTED_EXPLORATION))
    deadline = None if minutes is None else began + 60 * minutes
    players = Players(task, sigma, settings, torch.device(device), seed, so_far.steps, processes or usable_cores())
    earlier = so_far.seconds
    try:
        while so_far.steps < settings.total_steps:
            until = min(so_far.steps + settings.validation_interval, settings.total_steps)
            with tried_convolutions():
                stretch(players, learner, so_far, settings, until, deadline)
            validate(task, sigma, settings, learner, so_far, seed, device)
            so_far.seconds = earlier + time.monotonic() - began
            save_fast(out, learner, so_far)
            write_text(out / "curve.csv", so_far.as_csv())
            if progress is not None:
                progress(so_far.steps, settings.total_steps, so_far.best)
            if _late(deadline):
                break
    except KeyboardInterrupt:
        save_fast(out, learner, so_far)
        raise
    finally:
        players.close()
    policy = agent(task, so_far.best_weights, f"{task.name}-s{sigma:g}")
    facts = _facts(task, sigma, settings, so_far, seed, device, command, preset)
    zoo.save(policy, out / "agent", facts)
    return policy


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
    players: Players, learner: Learner, so_far: Progressed, settings: FastSettings, until: int, deadline: float | None
) -> None:
    """Play and learn up to a number of steps or a moment, the emulators stepping while the GPU learns."""
    # A resumed run has an empty buffer: it collects anew, with the network it has, before it learns on.
    warm = players.first_step + settings.learning_starts
    while so_far.steps < until:
        players.begin(learner.online, learner.replay, exploration(settings, so_far.steps))
        if so_far.steps >= warm and learner.replay.ready:
            learner.learn(so_far.steps / settings.total_steps)
        players.finish(learner.replay)
        so_far.steps += settings.slots
        if _late(deadline):
            break


def validate(
    task: Task, sigma: float, settings: FastSettings, learner: Learner, so_far: Progressed, seed: int, device: str
) -> None:
    """Play noisy greedy episodes from resets with the average network, as it would be stored; keep the best."""
    weights = halved({name: part.cpu().contiguous().numpy() for name, part in learner.average.named_parts()})
    episodes = settings.validation_episodes
    plan = Plan(
        task,
        agent(task, weights, "candidate"),
        sigma,
        episodes,
        seed,
        device,
        slots=min(episodes, 64),
        stream=(Purpose.VALIDATION, so_far.steps),
    )
    played = play(plan).returns
    mean, spread = float(played.mean()), float(played.std())
    so_far.rows.append((so_far.steps, mean, spread, round(exploration(settings, so_far.steps), 4)))
    if mean > so_far.best:
        so_far.best, so_far.best_step, so_far.best_weights = mean, so_far.steps, weights


def exploration(settings: FastSettings, steps: int) -> float:
    """Return how often an exploring stretch begins after so many steps."""
    share = min(1.0, steps / max(1, settings.exploration_steps))
    return settings.exploration_initial + share * (settings.exploration_final - settings.exploration_initial)


def agent(task: Task, weights: dict[str, NDArray[Any]], name: str) -> Policy:
    """Return the policy of these weights."""
    assert task.choices is not None
    return cnn_policy(weights, NATURE, task.frames, task.shape, task.choices, name)


def _late(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline


def _facts(
    task: Task,
    sigma: float,
    settings: FastSettings,
    so_far: Progressed,
    seed: int,
    device: str,
    command: str,
    preset: str,
) -> dict[str, Any]:
    return {
        "task": task.name,
        "sigma": sigma,
        "training": {
            "algorithm": "surefoot.train.atari.train: double Q-learning",
            "graph_captured": device == "cuda" and settings.capture,
            "preset": preset,
            "settings": settings.facts(),
            "seed": seed,
            "device": device,
            "command": command,
            "steps": so_far.steps,
            "seconds": round(so_far.seconds, 1),
            "best_step": so_far.best_step,
            "best_validation": so_far.best,
            **({} if so_far.started_from is None else {"started_from": so_far.started_from}),
        },
        "curve": [[row[0], row[1]] for row in so_far.rows],
        "versions": versions(),
    }
