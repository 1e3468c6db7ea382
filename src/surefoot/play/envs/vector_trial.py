"""Whether the rows of a vector simulator are episodes of their own that can be repeated, as far as a trial shows.

Rows of one simulator share an object and a seed, and a certificate takes them for independent episodes. So the trial
asks, in a process of its own and with made-up actions:

- Do two copies with the same seed show the same, and a copy that has been used, reset with that seed, too?
- Do rows stay the same when their neighbors act differently, and end at other times?
- With the same actions in every row, do the rows of many seeds look like independent draws of one distribution? Then
  what coincides does so across seeds too (``log_chance_of_copies``), and no number that rows show is more alike within
  a seed, or within a row, than by chance (``log_chance_of_groups``). Each of the four questions rejects an honest
  simulator with a probability of at most ``SIMULATOR_ALARM``.

It cannot see what shows only later than its steps, only in states that made-up actions do not reach, or what rows share
so little of that these seeds do not tell. What returns tell of that is in ``play.independence``.
"""

from __future__ import annotations

import copy
import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from numpy.typing import NDArray

from surefoot.errors import InputError
from surefoot.play.envs.flat import factors_of
from surefoot.play.envs.trial import FEWEST, ROUNDING, SECONDS, STEPS
from surefoot.play.envs.vector import Simulator, Simulators, Vector
from surefoot.play.independence import log_chance_of_groups
from surefoot.play.streams import seed_sequence
from surefoot.play.workers import run_apart

N_ROWS = 32
N_TRIAL_SEEDS = 32
SIMULATOR_ALARM = 1e-9  # an honest simulator is rejected with at most this probability, by each of four questions
MOST_OBSERVED = 64  # of an observation that are compared
NOT_REPEATED = "two copies of {} with the same seed run different episodes"
NOT_RESET = "{} runs other episodes after reset with a seed than a new copy with that seed"
SEED_IGNORED = "{} runs the same episodes with different seeds"
ROWS_ALIKE = "the rows of {} share random numbers: with the same actions they resemble each other within one seed"
DIFFERENT = "the rows of {} are different environments: with the same actions some differ from others with every seed"
NEIGHBORS = "rows of {} depend on what their neighbors do, or on when these end"


@dataclass(frozen=True)
class Table:
    """What a simulator showed, by step and row; rows that are over show no more."""

    observations: NDArray[Any]  # the observations, flat, from the first on
    rewards: NDArray[np.float64]
    over: NDArray[np.bool_]  # which rows were over after a step

    def rows(self) -> list[bytes]:
        """Return everything that each row showed."""
        found = []
        for row in range(self.over.shape[1]):
            found.append(b"".join(part[:, row].tobytes() for part in (self.observations, self.rewards, self.over)))
        return found

    def numbers(self) -> NDArray[np.float64]:
        """Return numbers of each row, one function of its episode each: what it saw first and last, and earned."""
        first = self.observations[0]
        last = self.observations[-1]
        columns = np.linspace(0, first.shape[1] - 1, min(first.shape[1], MOST_OBSERVED)).astype(int)
        earned = self.rewards.sum(axis=0)[:, None]
        length = (~self.over).sum(axis=0)[:, None]
        return np.concatenate((first[:, columns], last[:, columns], earned, length), axis=1)


def check_simulator(name: str, simulators: Simulators, max_steps: int) -> None:
    """Raise InputError if the rows of a vector simulator break a rule that independent episodes need."""
    broken = run_apart(f"trying {name}", _broken_row_rule, (simulators, max_steps))
    if broken is not None:
        raise InputError(
            f"{broken.format(name)}: episodes would not be independent, or could not be repeated; draw all random "
            "numbers from the seed of reset, for each row its own, and let reset start afresh"
        )


def _broken_row_rule(given: tuple[Simulators, int], _: int) -> str | None:
    """Return the rule that a simulator breaks, if the trial shows one."""
    simulators, max_steps = given
    with ExitStack() as opened:
        return _first_broken_row_rule(lambda: opened.enter_context(closing(Tried(simulators.make(N_ROWS), max_steps))))


def _first_broken_row_rule(make: Callable[[], Tried]) -> str | None:
    used = make()
    actions = used.draw_actions()
    began = time.monotonic()
    steps = used.run(0, actions[:FEWEST]).over.shape[0]
    per_step = (time.monotonic() - began) / steps
    # Time for as many long runs as for the short ones of many seeds.
    actions = actions[: int(np.clip(SECONDS / 8 / per_step, FEWEST, STEPS))]
    one = used.run(0, actions)
    if used.run(0, actions).rows() != one.rows():
        # One more copy tells whether it was the past of this one, or chance.
        if make().run(0, actions).rows() == make().run(0, actions).rows():
            return NOT_RESET
        return NOT_REPEATED
    if make().run(0, actions).rows() != one.rows():
        return NOT_RESET
    for first in (0, 1):
        # Every second row acts differently, and will end at other times; the others must not notice.
        mixed = actions.copy()
        mixed[:, first::2] = actions[-1, first]
        if used.run(0, mixed).rows()[1 - first :: 2] != one.rows()[1 - first :: 2]:
            return NEIGHBORS
    few = actions[: int(np.clip(SECONDS / N_TRIAL_SEEDS / per_step, FEWEST, len(actions)))]
    return _dependent_rows([used.run(seed, few) for seed in range(N_TRIAL_SEEDS)])


def _dependent_rows(tables: list[Table]) -> str | None:
    """Return which rule the rows of many seeds break that were stepped with the same actions."""
    numbers = _without_rounding(np.stack([table.numbers() for table in tables]))
    if not numbers.any():
        # Nothing is random.
        return None
    by_seed = [table.rows() for table in tables]
    by_row = [list(row) for row in zip(*by_seed, strict=True)]
    if all(rows == by_seed[0] for rows in by_seed) or log_chance_of_copies(by_row) < math.log(SIMULATOR_ALARM):
        return SEED_IGNORED
    if log_chance_of_copies(by_seed) < math.log(SIMULATOR_ALARM):
        return ROWS_ALIKE
    level = math.log(SIMULATOR_ALARM / numbers.shape[2])
    for column in np.moveaxis(numbers, 2, 0):
        if log_chance_of_groups(column) < level:
            return ROWS_ALIKE
        if log_chance_of_groups(column.T) < level:
            return DIFFERENT
    return None


def _without_rounding(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return numbers by seed, row and column, each column from its median on, in multiples of what may be rounding.

    Where a row lies in memory decides how its numbers are rounded, with every seed in the same way.
    """
    middle = np.median(numbers, axis=(0, 1))
    size = np.abs(numbers).max(axis=(0, 1), initial=1e-3)
    steps: NDArray[np.float64] = np.round((numbers - middle) / (ROUNDING * size))
    return steps


def log_chance_of_copies(groups: Sequence[Sequence[bytes]]) -> float:
    """Return the logarithm of a bound of the probability that what occurs twice does so within one group only.

    Where all S n trajectories of S groups are independent with one distribution, every way to lay them out is equally
    likely. Let K of them occur more than once, and take two copies of each: given where those before lie, the second
    copy of the j-th lies in the group of the first with probability at most (n - 1) / (S n - 2 j + 1), because at most
    n - 1 of the cells that are left are in it. The probability that no group shares with another is at most the
    product.
    """
    found: defaultdict[bytes, list[int]] = defaultdict(list)
    for number, group in enumerate(groups):
        for shown in group:
            found[shown].append(number)
    repeated = [numbers for numbers in found.values() if len(numbers) > 1]
    if any(len(set(numbers)) > 1 for numbers in repeated):
        return 0.0
    size = len(groups[0])
    cells_left = len(groups) * size - 2 * np.arange(1, len(repeated) + 1) + 1
    return float(np.log(np.minimum(1.0, (size - 1) / cells_left)).sum())


class Tried:
    """One copy of a simulator."""

    def __init__(self, simulator: Simulator, max_steps: int) -> None:
        self.simulator = simulator
        self.max_steps = max_steps

    def close(self) -> None:
        """Close it."""
        self.simulator.close()

    def draw_actions(self) -> NDArray[Any]:
        """Return made-up actions as agents choose them, by step and row, the same in every row."""
        space: Any = copy.deepcopy(self.simulator.single_action_space)
        space.seed(0)
        factors = factors_of(space)
        random = np.random.default_rng(0)
        if isinstance(space, Box):
            drawn = np.stack([space.sample() for _ in range(STEPS)])
        elif factors is not None:
            drawn = random.integers(math.prod(factors), size=STEPS)
        else:
            drawn = random.integers(int(space.n), size=STEPS)
        return np.repeat(drawn[:, None], N_ROWS, axis=1)

    def run(self, number: int, actions: NDArray[Any]) -> Table:
        """Return what the rows show after a reset with the seed of a block, with these actions."""
        lent = Simulators(lambda _: self.simulator)
        batch = Vector(lent, N_ROWS, seed_sequence(0, number, 0), torch.device("cpu"), max_steps=self.max_steps)
        observations = []
        rewards = []
        over = []
        try:
            observations.append(batch.reset().flatten(1).numpy().copy())
            for chosen in actions[: self.max_steps]:
                observation, reward, ended = batch.step(torch.from_numpy(chosen))
                observations.append(observation.flatten(1).numpy().copy())
                rewards.append(reward.numpy().copy())
                over.append(ended.numpy().copy())
        finally:
            batch.close()
        return Table(np.stack(observations), np.stack(rewards), np.stack(over))
