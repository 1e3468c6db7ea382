"""Whether a foreign environment keeps the rules that make episodes independent and repeatable, as far as a trial shows.

The trial runs in a process of its own, with made-up actions, for at most ``STEPS`` steps of each of a dozen episodes
and about ``SECONDS`` in all. It misses what shows only later, only in other states, or by chance not in these few
episodes: what returns tell of that is in ``play.independence``.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from surefoot.errors import InputError
from surefoot.play.envs.gymnasium_env import Gymnasium, global_streams, set_global_streams
from surefoot.play.workers import run_apart

# Steps of an episode that are tried: in any case, and at most.
FEWEST = 20
STEPS = 250
# How long the trial may take, unless the fewest steps take longer; episodes in it.
SECONDS = 3.0
N_TRIAL_EPISODES = 14
ROUNDING = 1e-4  # a simulator that was reset may differ by so much from a new one, relative to what it shows
SAME_SEED = "copies of {} with the same seed run different episodes"
OTHER_SEED = "copies of {} with different seeds run the same episodes"
INFLUENCE = "copies of {} that are stepped in turn influence one another"
USED = "a copy of {} that has run episodes runs others than a new copy after reset with the same seed"


class ShownStep(NamedTuple):
    """What an environment shows after a reset or a step."""

    observation: NDArray[Any]
    reward: float
    over: bool

    def is_equal(self, other: ShownStep) -> bool:
        """Whether both are the same bit for bit."""
        same = np.float64(self.reward).tobytes() == np.float64(other.reward).tobytes() and self.over == other.over
        return same and self.observation.tobytes() == other.observation.tobytes()

    def is_alike(self, other: ShownStep) -> bool:
        """Whether they differ by what may be rounding."""
        near = _is_near(self.observation, other.observation) and _is_near(self.reward, other.reward)
        return near and self.over == other.over


def _is_near(one: Any, other: Any) -> bool:
    """Return whether numbers differ by at most ``ROUNDING`` of the largest of them."""
    first = np.asarray(one, dtype=np.float64)
    second = np.asarray(other, dtype=np.float64)
    if first.shape != second.shape:
        return False
    # Numbers that are all near 0 are compared with a thousandth.
    size = np.abs(second).max(initial=1e-3)
    return bool(np.abs(first - second).max(initial=0) <= ROUNDING * size)


class TriedCopy:
    """One copy of an environment, with the global generators as they were when it had just been made."""

    def __init__(self, make: Callable[[], Any], seed: int) -> None:
        self.batch = Gymnasium(make, 1, np.random.SeedSequence(seed), torch.device("cpu"))
        self.environment = self.batch.environments[0]
        self.seed = self.batch.seeds[0]
        self.streams = global_streams()

    def close(self) -> None:
        """Close the environment and put the global generators back."""
        self.batch.close()


def check_seeded(name: str, make: Callable[[], Any]) -> None:
    """Raise InputError if copies of an environment break a rule that independent episodes need.

    Copies with the same seed must run the same episodes: what differs comes from a generator that forked processes
    share, or cannot be repeated. Copies with different seeds must not: all blocks would be one. Copies must not
    influence one another, and what a copy has run before must not change what it runs after a reset with a seed.
    An environment that fails on made-up actions is not judged by them.
    """
    broken = run_apart(f"trying {name}", _broken_rule, make)
    if broken is not None:
        raise InputError(
            f"{broken.format(name)}: episodes of a run would not be independent, or could not be repeated; let reset "
            "start afresh, and draw from self.np_random, which super().reset(seed=seed) seeds"
        )


def check_made_again(name: str, environment: Any, make: Callable[[], Any]) -> None:
    """Raise InputError if an environment behaves otherwise than what is made in its place, as far as a trial shows."""
    if run_apart(f"trying {name}", _run_differently, (partial(copy.deepcopy, environment), make)):
        raise InputError(
            f"{name} as given behaves otherwise than what its spec makes, and copies are made by the spec (was an "
            "attribute changed?); give a function that makes it"
        )


def _run_differently(ways: Sequence[Callable[[], Any]], _: int) -> bool:
    """Return whether what is made in two ways shows different episodes; not where it cannot be tried."""
    try:
        with ExitStack() as opened:
            shown = []
            for way in ways:
                tried = opened.enter_context(closing(TriedCopy(way, 0)))
                shown.append(_run_twice(tried, FEWEST))
            return not _are_equal(*shown)
    except Exception:  # not every environment can be copied
        return False


def _broken_rule(make: Callable[[], Any], _: int) -> str | None:
    """Return the rule that an environment breaks, if the trial shows one."""
    try:
        with ExitStack() as opened:
            return _first_broken_rule(lambda seed: opened.enter_context(closing(TriedCopy(make, seed))))
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException:  # it fails on made-up actions, perhaps with sys.exit: the run will show whether on others too
        return None


def _first_broken_rule(new: Callable[[int], TriedCopy]) -> str | None:
    used = new(0)
    began = time.monotonic()
    tried = _run_twice(used, FEWEST)
    per_step = (time.monotonic() - began) / len(tried)
    most = int(np.clip(SECONDS / N_TRIAL_EPISODES / max(per_step, 1e-9), FEWEST, STEPS))
    first = new(0)
    second = new(1)
    one = _run_twice(first, most)
    other = _run_twice(second, most)
    if _are_equal(one, other) and not _repeats_itself(one):
        return OTHER_SEED
    in_turn = _run_in_turn(new(0), new(1), most)
    if not (_are_equal(one, in_turn[0]) and _are_equal(other, in_turn[1])):
        # One more copy by itself tells whether it was the other one, or chance.
        if _are_equal(one, _run_twice(new(0), most)):
            return INFLUENCE
        return SAME_SEED
    for start, expected in ((second, other), (first, one)):
        if not _are_alike(expected, _run_twice(used, most, start)):
            return USED
    return None


def _run_twice(tried: TriedCopy, most: int, start: TriedCopy | None = None) -> list[ShownStep]:
    """Return what two episodes of a copy show, with seed and global generators of ``start``, by default its own."""
    start = start or tried
    outside = global_streams()
    set_global_streams(start.streams)
    try:
        return list(_yield_steps(tried.environment, start.seed, most))
    finally:
        set_global_streams(outside)


def _run_in_turn(one: TriedCopy, other: TriedCopy, most: int) -> tuple[list[ShownStep], list[ShownStep]]:
    """Return what two episodes of each copy show when they are stepped in turn, each with global generators of its own.

    Environments may draw from these: they are seeded for every block.
    """
    outside = global_streams()
    copies = (one, other)
    streams = [tried.streams for tried in copies]
    running = [_yield_steps(tried.environment, tried.seed, most) for tried in copies]
    shown: tuple[list[ShownStep], list[ShownStep]] = ([], [])
    over = [False, False]
    try:
        while not all(over):
            for index in (0, 1):
                set_global_streams(streams[index])
                step = next(running[index], None)
                streams[index] = global_streams()
                if step is None:
                    over[index] = True
                else:
                    shown[index].append(step)
    finally:
        set_global_streams(outside)
    return shown


def _yield_steps(environment: Any, seed: int, most: int) -> Iterator[ShownStep]:
    """Yield what two episodes, or their beginnings, show with the same made-up actions."""
    actions = copy.deepcopy(environment.action_space)  # which copies may share, as an attribute of their class
    for reset in (partial(environment.reset, seed=seed), environment.reset):
        actions.seed(0)
        yield ShownStep(np.array(reset()[0]), 0.0, False)
        for _ in range(most):
            observation, reward, terminated, truncated, _ = environment.step(actions.sample())
            over = bool(terminated or truncated)
            yield ShownStep(np.array(observation), float(reward), over)
            if over:
                break


def _are_equal(one: list[ShownStep], other: list[ShownStep]) -> bool:
    return len(one) == len(other) and all(a.is_equal(b) for a, b in zip(one, other, strict=True))


def _are_alike(one: list[ShownStep], other: list[ShownStep]) -> bool:
    """Return whether episodes are equal, or begin to differ by what may be rounding, which then may grow."""
    for a, b in zip_longest(one, other):
        if a is None or b is None:
            return False
        if not a.is_equal(b):
            return bool(a.is_alike(b))
    return True


def _repeats_itself(shown: list[ShownStep]) -> bool:
    """Return whether the second episode repeats the first: the environment draws nothing."""
    # Two equal episodes have one length.
    half, odd = divmod(len(shown), 2)
    return odd == 0 and _are_equal(shown[:half], shown[half:])
