"""Any Gymnasium environment as a batch."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surefoot.errors import InputError, is_out_of_memory

Streams = tuple[Any, Any, Tensor]


class Gymnasium:
    """Any Gymnasium environments with Box observations, one per row, stepped in turn.

    An environment is seeded once and then runs on: its later episodes are independent of the earlier ones, and some
    simulators take long to reseed. Environments that draw from the global streams of Python, numpy or torch instead of
    their own would run the same episodes in every process; so these streams are seeded too, and put back at the end.
    """

    # An episode that is over must not be stepped: Gymnasium leaves open what would happen.
    done_check_interval = 1

    def __init__(
        self,
        make: Callable[[], Any],
        n_envs: int,
        seeds: np.random.SeedSequence,
        device: torch.device,
        *,
        reward_range: tuple[float, float] | None = None,
    ) -> None:
        *own, shared = np.split(seeds.generate_state(n_envs + 4, np.uint64), range(1, n_envs + 1))
        self.outside = global_streams()
        seed_global_streams(shared)
        # Made after the global streams are seeded: some draw from them when they are made.
        self.environments: list[Any] = [make() for _ in range(n_envs)]
        if len({id(environment.unwrapped) for environment in self.environments}) < n_envs:
            self.close()
            raise InputError(
                "what makes the environment returned the same object again; it must make a new environment each time, "
                "because many are run in turn"
            )
        # 62 bits: among the 10^5 environments of a long run, two 32-bit seeds would agree.
        self.seeds = [int(seed[0]) >> 2 for seed in own]
        self.name = type(self.environments[0].unwrapped).__name__
        self.device = device
        self.reward_range = reward_range
        space = self.environments[0].action_space
        self.first_action = int(getattr(space, "start", 0))
        self.action_shape = space.shape
        self.action_type = space.dtype
        self.shape = self.environments[0].observation_space.shape
        self.reset_infos: list[Mapping[str, Any]] = []

    def reset(self) -> Tensor:
        """Start every environment with its own seed."""
        pairs = zip(self.environments, self.seeds, strict=True)
        with report_failures(self.name, "reset"):
            shown = [environment.reset(seed=seed) for environment, seed in pairs]
            self.reset_infos = [info for _, info in shown]
            return self._make_observation([observation for observation, _ in shown])

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Step every row's environment."""
        chosen = actions.cpu().numpy()
        if self.action_shape == ():
            moves: Sequence[Any] = [int(action) + self.first_action for action in chosen]
        else:
            moves = list(chosen.reshape(len(chosen), *self.action_shape).astype(self.action_type))
            if not np.isfinite(chosen).all():
                raise InputError("the agent chose an action that is not finite; check its weights or its function")
        observations = []
        rewards = []
        over = []
        with report_failures(self.name, "step"):
            for environment, move in zip(self.environments, moves, strict=True):
                result = environment.step(move)
                observations.append(result[0])
                rewards.append(float(result[1]))
                # Terminated or truncated: the step limit is one of the task's rules.
                over.append(bool(result[2] or result[3]))
            if self.reward_range is not None:
                check_reward_limits(rewards, self.reward_range)
            paid = torch.tensor(rewards, dtype=torch.float64, device=self.device)
            return self._make_observation(observations), paid, torch.tensor(over, device=self.device)

    def restart_rows(self, rows: Tensor) -> Tensor:
        """Start new episodes on the marked rows, unseeded."""
        marked = rows.cpu().nonzero().flatten().tolist()
        with report_failures(self.name, "reset"):
            return self._make_observation([self.environments[row].reset()[0] for row in marked])

    def keep_rows(self, rows: Tensor) -> None:
        """Close and drop all environments but these."""
        kept = set(rows.cpu().tolist())
        for row, environment in enumerate(self.environments):
            if row not in kept:
                environment.close()
        # In their old order, which is that of the loop's rows.
        self.environments = [self.environments[row] for row in sorted(kept)]

    def read_state(self) -> None:
        """No common notion of state."""

    def close(self) -> None:
        """Close every environment."""
        for environment in self.environments:
            environment.close()
        self.environments = []
        set_global_streams(self.outside)

    def _make_observation(self, observations: Sequence[NDArray[Any]]) -> Tensor:
        for observation in observations:
            shape = np.shape(observation)
            # A wrong shape might fit to others by repetition.
            if shape != self.shape:
                raise InputError(f"the environment returned an observation of shape {shape}, expected {self.shape}")
        batch = np.stack(observations)
        if not np.isfinite(batch).all():
            raise InputError("the environment returned an observation that is not finite")
        if batch.dtype == np.uint8:
            return torch.from_numpy(batch).to(self.device).float().div_(255)
        # All digits are kept until the noise is added: a deployed agent is given them too.
        kind = np.float64 if batch.dtype == np.float64 else np.float32
        return torch.from_numpy(batch.astype(kind, copy=False)).to(self.device)


def check_reward_limits(rewards: Sequence[float], reward_range: tuple[float, float]) -> None:
    """Raise InputError for a reward outside of the range that was given, which it proves wrong."""
    low, high = reward_range
    for reward in rewards:
        # Not ``reward < low or reward > high``, which a reward that is no number would pass.
        if not low <= reward <= high:
            raise InputError(f"every reward must be between {low:g} and {high:g}, got {reward:g}; give true limits")


@contextmanager
def report_failures(name: str, what: str) -> Iterator[None]:
    """Report an exception of an environment as what it is: neither an error of ours nor a result."""
    try:
        yield
    except (InputError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # sys.exit too
        if is_out_of_memory(error):
            raise
        raise InputError(f"the environment {name} failed in {what}: {type(error).__name__}: {error}") from error


def seed_global_streams(words: NDArray[Any]) -> None:
    """Seed the global generators of Python, numpy and torch with four words of a block's seed stream."""
    random.seed(words.tobytes())
    np.random.seed(words.view(np.uint32))  # noqa: NPY002
    torch.default_generator.manual_seed(int(words[0]) >> 1)


def global_streams() -> Streams:
    """Return the states of the global generators of Python, numpy and torch."""
    return random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002


def are_same_streams(one: Streams, other: Streams) -> bool:
    """Return whether nothing was drawn from the global generators between two looks at them."""
    words = np.array_equal(one[1][1], other[1][1]) and one[1][2:] == other[1][2:]
    return one[0] == other[0] and words and torch.equal(one[2], other[2])


def set_global_streams(streams: Streams) -> None:
    """Put the global generators into these states."""
    random.setstate(streams[0])
    np.random.set_state(streams[1])  # noqa: NPY002
    torch.set_rng_state(streams[2])
