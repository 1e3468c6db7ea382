"""The tasks as data: environment, memory, limits of the return, units, and how the paper certifies them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from surefoot.agents.policies import Spaces
from surefoot.episodes import Baseline, check_limits
from surefoot.errors import InputError
from surefoot.play.envs.atari.emulators import Cartridge, ale
from surefoot.play.envs.atari.env import SHAPE, Atari, AtariEnvironment
from surefoot.play.envs.base import BatchEnv
from surefoot.play.envs.cartpole import CartPole
from surefoot.play.envs.gymnasium_env import Gymnasium, open_environment
from surefoot.play.envs.mountain_car import HIGH, LOW, MountainCar, open_mountain_car
from surefoot.play.streams import Stream
from surefoot.play.workers import usable_cores

Limits = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True)
class Blind:
    """What a policy that sees nothing but the clock reaches: a certificate below it is worth nothing.

    ``mean``, ``sem``  an estimate and its standard error over ``episodes`` episodes
    ``what``           the policy, in words
    ``command``        what measures it
    """

    mean: float
    sem: float
    episodes: int
    what: str
    command: str


@dataclass(frozen=True)
class Task:
    """One experiment's fixed facts.

    ``name``         what people type
    ``environment``  the Gymnasium id whose rules are played
    ``shape``        shape of one observation, in the environment's own units (pixels: [0, 1])
    ``choices``      number of discrete actions, None for continuous ones
    ``frames``       how many observations the agent remembers
    ``limit``        most steps of an episode
    ``floor``, ``ceiling``  limits of the return, known before playing (ceiling None: unknown)
    ``method``       how the paper certifies it: what ``method="paper"`` means
    ``slots``, ``rounds``   episodes side by side in one block, and how many each slot plays in turn
    ``rewards``      limits of the reward of one step, 0 among them, where they are known
    ``discount``     gamma, where the return is sum gamma^t r_t; None for the plain sum
    ``margins``      the paper's list of what makes attacks save their budget: value gaps lambda_Q, or weights lambda
    ``native``       builds the tensor-native game where there is one
    ``make``         opens the Gymnasium environment where its rules are not those of its id
    ``box``          limits of what is observed, low and high, which attacks keep to (None: there are none)
    ``actions``      limits of continuous actions, low and high (None: discrete ones)
    ``cartridge``    the Atari game, where it is one
    ``gpu_slots``, ``gpu_rounds``   slots and rounds on a GPU
    ``distinct``     the actions that differ in what they do, where not all do
    ``blind_search`` episodes per candidate of the search for the blind floor, and of its measurement
    """

    name: str
    environment: str
    shape: tuple[int, ...]
    choices: int | None
    frames: int
    limit: int
    floor: float
    ceiling: float | None
    method: str
    sigma: float = 0.2
    budgets: tuple[float, ...] = field(default_factory=lambda: tuple(np.round(np.linspace(0, 1, 11), 10).tolist()))
    slots: int = 32
    rounds: int = 8
    blind: Blind | None = None
    margins: tuple[float, ...] = (0.0,)
    native: Callable[[int, Stream], BatchEnv] | None = None
    rewards: tuple[float, float] | None = None
    discount: float | None = None
    make: Callable[[], Any] | None = None
    box: Limits | None = None
    actions: Limits | None = None
    cartridge: Cartridge | None = None
    gpu_slots: int | None = None
    gpu_rounds: int | None = None
    distinct: tuple[int, ...] | None = None
    blind_search: tuple[int, int] = (2_000, 100_000)

    def game(self, slots: int, seeds: np.random.SeedSequence, device: torch.device) -> BatchEnv:
        """Build the game with ``slots`` slots on ``device``."""
        if self.native is not None:
            return self.native(slots, Stream(seeds, device))
        if self.cartridge is not None:
            # On a CPU every block has a process of its own already.
            processes = usable_cores() if device.type == "cuda" else 1
            return Atari(self.cartridge, slots, seeds, device, processes)
        return Gymnasium(self.open, slots, seeds, device)

    @property
    def baseline(self) -> Baseline | None:
        """The open-loop baseline as runs and reports know it."""
        if self.blind is None:
            return None
        known = self.blind
        return Baseline(
            mean=known.mean, sem=known.sem, n_episodes=known.episodes, what=known.what, command=known.command
        )

    @property
    def spaces(self) -> Spaces:
        """What the environment gives and takes."""
        low, high = self.actions or (None, None)
        return Spaces(shape=self.shape, n_actions=self.choices, n_stack=self.frames, low=low, high=high)

    @property
    def emulated(self) -> bool:
        """Whether emulators on the CPU play it, wherever the agent runs."""
        return self.cartridge is not None

    def open(self) -> Any:
        """Make one Gymnasium environment with this task's rules, without noise or frame stack."""
        if self.cartridge is not None:
            return AtariEnvironment(self.cartridge)
        return open_environment(self.environment, self.limit) if self.make is None else self.make()

    def slots_on(self, device: torch.device) -> int:
        """Return how many episodes to play side by side: what fits the cache on a CPU, what fills a GPU."""
        return self.gpu_slots if self.gpu_slots is not None and device.type == "cuda" else self.slots

    def rounds_on(self, device: torch.device) -> int:
        """Return how many episodes a slot plays in turn: more where starting its emulators takes longer."""
        return self.gpu_rounds if self.gpu_rounds is not None and device.type == "cuda" else self.rounds


CARTPOLE_BLIND = Blind(
    mean=40.815,
    sem=0.043,
    episodes=100_000,
    what="actions 1 and 0 in turn, 4 steps each, 2 steps in",
    command="surefoot blind cartpole-5",
)


PONG_BLIND = Blind(
    mean=0.0665,
    sem=0.0056,
    episodes=2_000,
    what="actions 2 and 3 in turn, 6 steps each, 3 steps in",
    command="surefoot blind pong-1r",
)

PONG_FULL_BLIND = Blind(
    mean=-20.35,
    sem=0.091,
    episodes=100,
    what="actions 2 and 3 in turn, 12 steps each, 6 steps in",
    command="surefoot blind pong-full",
)

FREEWAY_BLIND = Blind(
    mean=1.52,
    sem=0.039,
    episodes=500,
    what="action 1 at every step",
    command="surefoot blind freeway",
)


def _cartpole(frames: int, margins: tuple[float, ...]) -> Task:
    return Task(
        name=f"cartpole-{frames}",
        environment="CartPole-v1",
        shape=(4,),
        choices=2,
        frames=frames,
        limit=200,
        floor=0.0,
        ceiling=200.0,
        method="per-threshold",
        slots=500,
        rounds=1,
        blind=CARTPOLE_BLIND,
        margins=margins,
        native=partial(CartPole, limit=200),
        rewards=(0.0, 1.0),
        gpu_slots=65_536,
    )


MOUNTAIN_CAR_BLIND = Blind(
    mean=1.0,
    sem=0.0,
    episodes=100_000,
    what="actions -1 and 1 in turn, 32 steps each",
    command="surefoot blind mountain-car",
)

MOUNTAIN_CAR = Task(
    name="mountain-car",
    environment="MountainCarContinuous-v0",
    shape=(2,),
    choices=None,
    frames=5,
    limit=999,
    floor=0.0,
    ceiling=1.0,
    method="binary",
    slots=500,
    rounds=1,
    blind=MOUNTAIN_CAR_BLIND,
    margins=(0.001, 0.0001, 0.00001),
    native=partial(MountainCar, limit=999),
    gpu_slots=65_536,
    make=partial(open_mountain_car, 999),
    box=(LOW, HIGH),
    actions=((-1.0,), (1.0,)),
)


def _atari(
    name: str,
    environment: str,
    cartridge: Cartridge,
    limits: tuple[float, float],
    margins: tuple[float, ...],
    rounds: tuple[int, int],
    blind: Blind,
    blind_search: tuple[int, int],
    method: str = "per-threshold",
) -> Task:
    return Task(
        name=name,
        environment=environment,
        shape=SHAPE,
        choices=cartridge.moves,
        frames=4,
        limit=cartridge.limit,
        floor=limits[0],
        ceiling=limits[1],
        method=method,
        sigma=0.1,
        budgets=tuple(np.round(np.linspace(0, 0.4, 9), 10).tolist()),
        slots=32,
        rounds=rounds[0],
        gpu_rounds=rounds[1],
        blind=blind,
        margins=margins,
        cartridge=cartridge,
        gpu_slots=256,
        distinct=PONG_MOVES if cartridge.rom == "pong" else None,
        blind_search=blind_search,
        box=((0.0,), (1.0,)),
    )


# Of Pong's six actions three also press a button that does nothing during a rally.
PONG_MOVES = (0, 2, 3)
# Each point of Freeway takes at least 172 of the 1,000 emulator frames: docs/design.md, "The ceiling of Freeway".
FREEWAY_LIMITS = (0.0, 5.0)

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _cartpole(5, (4, 6, 8, 10)),
        _cartpole(1, (0, 0.05, 0.1, 1)),
        MOUNTAIN_CAR,
        _atari(
            "pong-1r",
            "PongNoFrameskip-v0",
            Cartridge("pong", moves=6, limit=27_000, first_goal=True),
            (0.0, 1.0),
            margins=(0.1, 0.3, 0.5),
            rounds=(8, 20),
            blind=PONG_BLIND,
            blind_search=(32, 2_000),
            method="binary",
        ),
        _atari(
            "pong-full",
            "PongNoFrameskip-v0",
            Cartridge("pong", moves=6, limit=27_000),
            (-21.0, 21.0),
            margins=(0.1, 0.3, 0.5, 0.9, 1.3, 1.7),
            rounds=(2, 8),
            blind=PONG_FULL_BLIND,
            blind_search=(2, 100),
        ),
        _atari(
            "freeway",
            "FreewayNoFrameskip-v0",
            Cartridge("freeway", moves=3, limit=250, difficulty=1),
            FREEWAY_LIMITS,
            margins=(0.0, 0.06, 0.12),
            rounds=(4, 20),
            blind=FREEWAY_BLIND,
            blind_search=(8, 500),
        ),
    )
}


def find_task(name: str) -> Task:
    """Return a task by its name."""
    if name not in TASKS:
        raise InputError(
            f"unknown task {name!r}; the tasks are {', '.join(TASKS)} (or give --env for any Gymnasium id)"
        )
    if TASKS[name].cartridge is not None:
        ale()  # whoever asks for an Atari task is about to play it
    return TASKS[name]


def discounted(task: Task, discount: float, *, limits: tuple[float, float | None] | None = None) -> Task:
    """Return the task with the discounted return sum gamma^t r_t, t = 0, 1, ..., and limits that hold for it.

    ``limits``  floor and ceiling of the discounted return, where the task does not know the limits of a step's reward
    """
    if not 0 < discount < 1:
        raise InputError(f"a discount must lie strictly between 0 and 1, got {discount}")
    if limits is None and task.rewards is None:
        raise InputError(f"{task.name} does not know the limits of a step's reward, so none for a discounted return")
    if limits is None:
        assert task.rewards is not None
        # A hair outwards: the sum is made step by step and rounded at each.
        longest = (1 - discount**task.limit) / (1 - discount) * (1 + 1e-12)
        limits = (task.rewards[0] * longest, task.rewards[1] * longest)
    return replace(task, floor=limits[0], ceiling=limits[1], method="band", blind=None, discount=discount)


def task_of_environment(
    environment: str, *, floor: float, ceiling: float | None, frames: int = 1, limit: int | None = None
) -> Task:
    """Describe any Gymnasium environment as a task; the limits of the return must be known, not observed."""
    check_limits(floor, ceiling)
    opened = open_environment(environment, limit)
    try:
        choices = getattr(opened.action_space, "n", None)
        return Task(
            name=environment,
            environment=environment,
            shape=tuple(opened.observation_space.shape),
            choices=None if choices is None else int(choices),
            actions=None if choices is not None else _limits(opened.action_space),
            frames=frames,
            limit=int(limit or opened.spec.max_episode_steps),
            floor=floor,
            ceiling=ceiling,
            method="dkw",
        )
    finally:
        opened.close()


def _limits(space: Any) -> Limits:
    return tuple(space.low.ravel().tolist()), tuple(space.high.ravel().tolist())
