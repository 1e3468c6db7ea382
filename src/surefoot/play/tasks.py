"""The tasks of the paper.

- ``TASKS`` and ``get_task``: CartPole with five frames and with one, Mountain Car, Pong (a round, a game), Freeway.
- ``BASELINES``: their open-loop baselines, as measured.
- ``discounted``: a task with the discounted return.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch

from surefoot.agents.policies import Spaces
from surefoot.compute import usable_cores
from surefoot.errors import InputError, did_you_mean
from surefoot.play.envs.atari.emulators import Cartridge, load_ale
from surefoot.play.envs.atari.env import SHAPE, Atari, AtariEnvironment
from surefoot.play.envs.base import BatchEnv
from surefoot.play.envs.cartpole import CartPole
from surefoot.play.envs.mountain_car import HIGH, LOW, MountainCar, open_mountain_car
from surefoot.play.envs.source import Source
from surefoot.play.floors import discounted_steps
from surefoot.play.measured_baselines import BASELINES
from surefoot.play.streams import Stream
from surefoot.play.task import Backend, BaselineSearch, Blocks, PaperSetup, Scoring, Task

TENSOR_BLOCKS = Blocks(n_envs=500, episodes_per_env=1, gpu_n_envs=65_536, recurrent_n_envs=1_000)


def tensors(build: Callable[[int, Stream], BatchEnv], make: Callable[[], Any]) -> Backend:
    """Return the backend of an environment written as tensors; ``make`` opens the same rules as a Gymnasium one."""
    return Backend(batch=partial(_build_tensors, build), open=make)


def _build_tensors(
    build: Callable[[int, Stream], BatchEnv], n_envs: int, seeds: np.random.SeedSequence, device: torch.device
) -> BatchEnv:
    # A function of its own, because a plan that is sent to other processes can hold no lambda.
    return build(n_envs, Stream(seeds, device))


def emulators(cartridge: Cartridge) -> Backend:
    """Return the backend of an Atari game: emulators on the CPU, wherever the agent runs."""
    return Backend(
        batch=partial(_build_emulators, cartridge), open=partial(AtariEnvironment, cartridge), cartridge=cartridge
    )


def _build_emulators(
    cartridge: Cartridge, n_envs: int, seeds: np.random.SeedSequence, device: torch.device
) -> BatchEnv:
    # On a CPU every block has a process of its own already.
    processes = 1
    if device.type == "cuda":
        processes = usable_cores()
    return Atari(cartridge, n_envs, seeds, device, processes)


VECTOR_BUDGETS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
ATARI_BUDGETS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4)


def _bounded_scoring(
    max_steps: int, limits: tuple[float, float], rewards: tuple[float, float], *, binary: bool = False
) -> Scoring:
    """Return how a task of the paper scores: counts that never leave their limits on the way, by 1 a step at most."""
    floor, ceiling = limits
    return Scoring(
        max_steps=max_steps,
        floor=floor,
        ceiling=ceiling,
        holds_throughout=True,
        reward_range=rewards,
        binary=binary,
        stated=(),
    )


def _cartpole_task(n_stack: int, lambdas: tuple[float, ...]) -> Task:
    return Task(
        name=f"cartpole-{n_stack}",
        environment="CartPole-v1",
        spaces=Spaces(shape=(4,), n_actions=2, n_stack=n_stack),
        scoring=_bounded_scoring(200, (0.0, 200.0), (0.0, 1.0)),
        backend=tensors(partial(CartPole, max_steps=200), Source(maker="CartPole-v1", max_steps=200).open),
        blocks=TENSOR_BLOCKS,
        paper=PaperSetup(budgets=VECTOR_BUDGETS, lambdas=lambdas),
        baseline=BASELINES[f"cartpole-{n_stack}"],
    )


MOUNTAIN_CAR = Task(
    name="mountain-car",
    environment="MountainCarContinuous-v0",
    spaces=Spaces(shape=(2,), n_actions=None, n_stack=5, low=(-1.0,), high=(1.0,)),
    box=(LOW, HIGH),
    scoring=_bounded_scoring(999, (0.0, 1.0), (0.0, 1.0), binary=True),
    backend=tensors(partial(MountainCar, max_steps=999), partial(open_mountain_car, 999)),
    blocks=TENSOR_BLOCKS,
    paper=PaperSetup(budgets=VECTOR_BUDGETS, lambdas=(0.001, 0.0001, 0.00001)),
    baseline=BASELINES["mountain-car"],
)


def _atari_task(
    name: str,
    environment: str,
    cartridge: Cartridge,
    limits: tuple[float, float],
    *,
    rewards: tuple[float, float] = (0.0, 1.0),
    lambdas: tuple[float, ...],
    episodes_per_env: tuple[int, int],
    search: BaselineSearch,
    binary: bool = False,
) -> Task:
    return Task(
        name=name,
        environment=environment,
        spaces=Spaces(shape=SHAPE, n_actions=cartridge.moves, n_stack=4, pixels=True),
        box=((0.0,), (1.0,)),
        scoring=_bounded_scoring(cartridge.limit, limits, rewards, binary=binary),
        backend=emulators(cartridge),
        blocks=Blocks(
            n_envs=32, episodes_per_env=episodes_per_env[0], gpu_n_envs=256, gpu_episodes_per_env=episodes_per_env[1]
        ),
        paper=PaperSetup(sigma=0.1, budgets=ATARI_BUDGETS, lambdas=lambdas),
        baseline=BASELINES[name],
        baseline_search=search,
    )


# Of Pong's six actions three also press a button that does nothing during a rally.
PONG_MOVES = (0, 2, 3)
# Each point of Freeway takes at least 172 of the 1,000 emulator frames: docs/design.md, "The ceiling of Freeway".
FREEWAY_LIMITS = (0.0, 5.0)

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _cartpole_task(5, (4, 6, 8, 10)),
        _cartpole_task(1, (0, 0.05, 0.1, 1)),
        MOUNTAIN_CAR,
        _atari_task(
            "pong-1r",
            "PongNoFrameskip-v0",
            Cartridge("pong", moves=6, limit=27_000, first_goal=True),
            (0.0, 1.0),
            lambdas=(0.1, 0.3, 0.5),
            episodes_per_env=(8, 20),
            search=BaselineSearch(actions=PONG_MOVES, n_search=32, n_measure=2_000),
            binary=True,
        ),
        _atari_task(
            "pong-full",
            "PongNoFrameskip-v0",
            Cartridge("pong", moves=6, limit=27_000),
            (-21.0, 21.0),
            rewards=(-1.0, 1.0),
            lambdas=(0.1, 0.3, 0.5, 0.9, 1.3, 1.7),
            episodes_per_env=(2, 8),
            search=BaselineSearch(actions=PONG_MOVES, n_search=2, n_measure=100),
        ),
        _atari_task(
            "freeway",
            "FreewayNoFrameskip-v0",
            Cartridge("freeway", moves=3, limit=250, difficulty=1),
            FREEWAY_LIMITS,
            lambdas=(0.0, 0.06, 0.12),
            episodes_per_env=(4, 20),
            search=BaselineSearch(n_search=8, n_measure=500),
        ),
    )
}


def get_task(name: str) -> Task:
    """Return a task by its name.

    Args:
        name: One of ``TASKS``.

    Raises:
        InputError: If there is no such task, or it is an Atari task and ALE is not installed.

    Examples:
        >>> import surefoot
        >>> surefoot.get_task("cartpole-5")
        <Task cartpole-5: observations of shape (4,), 2 actions, floor 0, ceiling 200, at most 200 steps>
    """
    if name not in TASKS:
        if name in gymnasium.registry:
            how = f"give env={name!r} (from Python: surefoot.make_task({name!r}))"
            raise InputError(f"{name!r} is an environment of Gymnasium and no task of Surefoot; {how}")
        known = f"the tasks are {', '.join(TASKS)} (or make one of any Gymnasium id with make_task, env=)"
        raise InputError(f"unknown task {name!r}; {known}{did_you_mean(name, TASKS)}")
    if TASKS[name].cartridge is not None:
        load_ale()  # an Atari task that is asked for is about to be run
    return TASKS[name]


def check_discount(gamma: float) -> None:
    """Raise InputError if this is not a discount."""
    if not 0 < gamma < 1:
        raise InputError(f"a discount must be strictly between 0 and 1, got {gamma}")


def discounted(task: Task, gamma: float, *, limits: tuple[float, float | None] | None = None) -> Task:
    """Return the task with the discounted return sum gamma^t r_t, t = 0, 1, ..., and a floor and ceiling for it.

    Summed by parts it is a mean of the rewards so far, S_0 to S_T, with weights (1 - gamma) gamma^t and, of the last,
    gamma^T: where floor and ceiling hold for each of these, they hold for it too.

    Args:
        gamma: The discount, strictly between 0 and 1.
        limits: Floor and ceiling of the discounted return, where the task does not know the range of a step's reward.
    """
    check_discount(gamma)
    rewards = task.scoring.reward_range
    if limits is None:
        if rewards is None:
            raise InputError(
                f"{task.name} does not know the limits of a step's reward, so none for a discounted return"
            )
        # Rounded outward: the sum is made step by step and rounded at each.
        longest = discounted_steps(gamma, task.scoring.max_steps) * (1 + 1e-12)
        low = rewards[0] * longest
        high = rewards[1] * longest
        if task.scoring.holds_throughout:
            assert task.scoring.ceiling is not None
            low = max(low, task.scoring.floor)
            high = min(high, task.scoring.ceiling)
        limits = (low, high)
    # A discounted win is worth less the later it comes.
    scoring = replace(task.scoring, floor=limits[0], ceiling=limits[1], gamma=gamma, binary=False)
    # The measured baseline is about the plain return.
    return replace(task, scoring=scoring, baseline=None)
