"""Vector simulators (``gymnasium.vector.VectorEnv``): one object that steps all rows of a block at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
import torch.utils.dlpack
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor

from surefoot.compute import all_finite, expand_rows
from surefoot.errors import InputError
from surefoot.play.envs.base import Clock
from surefoot.play.envs.flat import factors_of, flatten_rows, list_parts, unflatten_actions
from surefoot.play.envs.gymnasium_env import (
    check_reward_limits,
    global_streams,
    report_failures,
    seed_global_streams,
    set_global_streams,
)
from surefoot.play.envs.success import Condition, Shown
from surefoot.play.streams import simulator_seed

Simulator = VectorEnv[Any, Any, Any]
DLPACK_CPU = 1


class Simulators:
    """Simulators of one kind, by their number of rows: one that a block has used is reset for the next.

    Making one may take longer than a block, where it is compiled for its number of rows.
    """

    def __init__(self, make: Callable[[int], Simulator]) -> None:
        self.make = make
        self.idle: dict[int, Simulator] = {}
        self.process = os.getpid()
        # Those of the process that this one was forked from. They are kept, because closing them would end the other's.
        self.inherited: list[dict[int, Simulator]] = []

    def __getstate__(self) -> dict[str, Any]:
        return {"make": self.make}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def take(self, n_envs: int) -> Simulator:
        """Return one with so many rows that nobody else uses."""
        if self.process != os.getpid():
            # Threads and device memory are not copied with a process.
            self.inherited.append(self.idle)
            self.idle = {}
            self.process = os.getpid()
        if n_envs in self.idle:
            return self.idle.pop(n_envs)
        return self.make(n_envs)

    def give_back(self, simulator: Simulator) -> None:
        """Keep one for the next block."""
        if simulator.num_envs in self.idle:
            simulator.close()
            return
        self.idle[simulator.num_envs] = simulator


class Vector:
    """One vector simulator as a batch, seeded once; a row whose episode is over waits.

    What the simulator does with a row that is over does not matter: it is started again by the next step
    (``NEXT_STEP``), has been by this one (``SAME_STEP``), or is by the mask that Gymnasium has for it (``DISABLED``,
    where it must not be stepped). Nothing of that is shown until ``restart_rows`` asks for it, which only training
    does: in a run every row has one episode of a block. The number of rows stays: for another the simulator might have
    to be compiled again.
    """

    # Asking whether rows are over makes a GPU wait.
    done_check_interval = 8

    def __init__(
        self,
        simulators: Simulators,
        n_envs: int,
        seeds: np.random.SeedSequence,
        device: torch.device,
        *,
        max_steps: int,
        reward_range: tuple[float, float] | None = None,
        condition: Condition | None = None,
    ) -> None:
        self.device = device
        self.max_steps = max_steps
        self.reward_range = reward_range
        self.condition = condition
        self.seed = simulator_seed(seeds)
        self.outside = global_streams()
        seed_global_streams(seeds.generate_state(4, np.uint64))
        self.simulators = simulators
        try:
            self.simulator = simulators.take(n_envs)
        except BaseException:
            set_global_streams(self.outside)
            raise
        self.name = type(self.simulator.unwrapped).__name__
        self.autoreset = autoreset_mode(self.simulator)
        self.parts = tuple(list_parts(self.name, self.simulator.single_observation_space))
        space = self.simulator.single_action_space
        self.action_space = space
        self.factors = factors_of(space)
        # What rows that are gone are stepped with: their last action, because nothing else is sure to be allowed.
        self.actions = torch.from_numpy(np.stack([_first_action(space)] * n_envs))
        self.rows: Tensor | None = None  # those that are left, once some are gone
        self.clock = Clock(n_envs, device)
        # Of each row: whether it waits, whether only the step limit ended it, whether the next step restarts it.
        self.over = torch.zeros(n_envs, dtype=torch.bool, device=device)
        self.cut = self.over
        self.restarting = self.over
        # Of each row whether its episode has met the condition, where that is what is paid.
        self.met = self.over
        # What rows show, and what those show that the simulator has started again.
        self.observation = torch.empty(0)
        self.first = torch.empty(0)
        # The library whose arrays the simulator returns, and where it has them.
        self.namespace: Any = np
        self.simulator_device = torch.device("cpu")

    def reset(self) -> Tensor:
        """Start every row with the block's seed."""
        with report_failures(self.name, "reset"):
            observation = self.simulator.reset(seed=self.seed)[0]
        first = _first_part(observation)
        self.namespace = _namespace_of(first)
        self.simulator_device = as_tensor(first).device
        self.observation = self._read_observation(observation)
        self._check_finite(self.observation)
        return self.observation

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Step the simulator; rows that are over show what they last showed, and get no reward."""
        if actions.is_floating_point() and not all_finite(actions):
            raise InputError("the agent chose an action that is not finite; check its weights or its function")
        moves = unflatten_actions(actions, self.action_space, self.factors)
        if self.rows is None:
            self.actions = moves
        else:
            self.actions = self.actions.to(moves.device, copy=True)
            self.actions[self.rows.to(moves.device)] = moves
        with report_failures(self.name, "step"):
            shown = self.simulator.step(self._write_actions(self.actions))
        observation = self._keep(self._read_observation(shown[0]))
        all_ended = self._read_numbers(shown[2], torch.bool) | self._read_numbers(shown[3], torch.bool)
        # The step that starts a row again is none of an episode.
        ended = self._keep(all_ended) & ~self.restarting
        self.clock.now += 1
        self.clock.restart_rows(self.restarting)
        self.cut = (self.clock.steps >= self.max_steps) & ~ended
        if self.condition is None:
            reward = self._keep(self._read_numbers(shown[1], torch.float64))
        else:
            reward = (self._ask_condition(shown) & ~self.met).double()
        self.first = observation
        if self.autoreset is AutoresetMode.DISABLED:
            self._restart_at_once(all_ended)
        waiting = self.over
        self.over = waiting | ended | self.cut
        # What became of a row since its episode was over is not shown, nor is the last observation of an episode.
        self.observation = torch.where(expand_rows(self.over, observation), self.observation, observation)
        self._check_finite(self.observation)
        unpaid = waiting | self.restarting
        reward = reward.masked_fill(unpaid, 0.0)
        if self.condition is not None:
            self.met = self.met | (reward > 0)
        if self.reward_range is not None:
            check_reward_limits(reward[~unpaid].tolist(), self.reward_range)
        self.restarting = torch.zeros_like(waiting)
        return self.observation, reward, self.over

    def restart_rows(self, rows: Tensor) -> Tensor:
        """Start new episodes on the marked rows, which must just have ended.

        A simulator that starts rows with the next step shows their last observation once more, and pays nothing for
        that step.
        """
        if self.autoreset is not AutoresetMode.DISABLED and bool((self.cut & rows).any()):
            raise InputError(
                f"{self.name} does not end episodes after {self.max_steps} steps by itself, and a row of it cannot be "
                "started again alone; set its own limit, in env_kwargs, to so many steps"
            )
        self.over = self.over & ~rows
        self.met = self.met & ~rows
        self.clock.restart_rows(rows)
        if self.autoreset is AutoresetMode.NEXT_STEP:
            self.restarting = rows
        else:
            self.observation = torch.where(expand_rows(rows, self.first), self.first, self.observation)
        return self.observation[rows]

    def keep_rows(self, rows: Tensor) -> None:
        """Show all rows but these no more; the simulator keeps them."""
        self.rows = rows if self.rows is None else self.rows[rows]
        self.clock.keep_rows(rows)
        self.over = self.over[rows]
        self.met = self.met[rows]
        self.cut = self.cut[rows]
        self.restarting = self.restarting[rows]
        self.observation = self.observation[rows]

    def read_state(self) -> None:
        """No common notion of state."""

    def close(self) -> None:
        """Keep the simulator for the next block."""
        set_global_streams(self.outside)
        self.simulators.give_back(self.simulator)

    def _restart_at_once(self, all_ended: Tensor) -> None:
        """Start rows again that must not be stepped, those that are gone among them, and those that were cut."""
        mask = all_ended
        if self.rows is None:
            mask = mask | self.cut
        else:
            mask[self.rows] |= self.cut
        if bool(mask.any()):
            with report_failures(self.name, "reset"):
                observation = self.simulator.reset(options={"reset_mask": mask.cpu().numpy()})[0]
            self.first = self._keep(self._read_observation(observation))

    def _ask_condition(self, shown: Shown) -> Tensor:
        """Return which rows meet the condition in this step; those that the step limit cuts off are truncated."""
        assert self.condition is not None
        observation, rewards, terminated, truncated, info = shown
        if bool(self.cut.any()):
            truncated = self._read_numbers(truncated, torch.bool)
            if self.rows is None:
                truncated = truncated | self.cut
            else:
                truncated[self.rows] |= self.cut
            truncated = self._to_simulator(truncated)
        met = self.condition.ask((observation, rewards, terminated, truncated, info))
        n_envs = self.simulator.num_envs
        if tuple(getattr(met, "shape", ())) != (n_envs,) or not str(met.dtype).endswith("bool"):
            raise InputError(
                f"{self.condition.name} must answer True or False for each of {n_envs} rows, got {met!r:.60}"
            )
        answers = self._read_array(met)
        return self._keep(answers)

    def _keep(self, values: Tensor) -> Tensor:
        if self.rows is None:
            return values
        return values[self.rows]

    def _read_observation(self, observation: Any) -> Tensor:
        """Return the observations of all rows of the simulator, in parts as one vector."""
        space = self.simulator.single_observation_space
        n_envs = self.simulator.num_envs
        if not isinstance(space, Box):
            return flatten_rows(self.parts, observation, n_envs, self._read_array)
        rows = self._read_array(observation)
        expected = (n_envs, *space.shape)
        if rows.shape != expected:
            raise InputError(
                f"the simulator {self.name} returned observations of shape {tuple(rows.shape)}, expected {expected}"
            )
        if rows.dtype == torch.uint8:
            return rows.float().div_(255)
        if rows.dtype == torch.float64:
            return rows
        return rows.float()

    def _read_array(self, values: Any) -> Tensor:
        return as_tensor(values).to(self.device)

    def _read_numbers(self, values: Any, kind: torch.dtype) -> Tensor:
        numbers = self._read_array(values)
        if numbers.shape != (self.simulator.num_envs,):
            raise InputError(
                f"the simulator {self.name} returned rewards or ends of shape {tuple(numbers.shape)}, expected one "
                f"number for each of its {self.simulator.num_envs} rows"
            )
        return numbers.to(kind)

    def _write_actions(self, actions: Tensor) -> Any:
        """Return the actions as arrays of the kind that the simulator returns."""
        # A copy where they could be written: a simulator may clip them in place, and the agent remembers its choice.
        return self._to_simulator(actions.detach().contiguous(), copy=self.namespace in (np, torch))

    def _to_simulator(self, values: Tensor, *, copy: bool = False) -> Any:
        there = values.to(self.simulator_device, copy=copy)
        if self.namespace is torch:
            return there
        if self.namespace is np:
            return there.numpy()
        return self.namespace.from_dlpack(there)

    def _check_finite(self, observation: Tensor) -> None:
        if not all_finite(observation):
            raise InputError(f"the simulator {self.name} returned an observation that is not finite")


class OneRow(gymnasium.Env[Any, Any]):
    """A vector simulator with one row as an environment, with arrays of numpy."""

    def __init__(self, simulator: Simulator) -> None:
        autoreset_mode(simulator)
        self.simulator = simulator
        self.observation_space = simulator.single_observation_space
        self.action_space = simulator.single_action_space
        # What the simulator returned last, for a condition that takes rows.
        self.shown: Shown = (None, None, None, None, None)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        return _first_row(self.simulator.reset(seed=seed, options=options)[0]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step."""
        self.shown = self.simulator.step(np.asarray(action)[None])
        observation, reward, terminated, truncated, _ = self.shown
        return _first_row(observation), float(reward[0]), bool(terminated[0]), bool(truncated[0]), {}

    def close(self) -> None:
        """Close the simulator."""
        self.simulator.close()


def autoreset_mode(simulator: Simulator) -> AutoresetMode:
    """Return what a simulator says that it does with rows whose episode is over."""
    mode = simulator.metadata.get("autoreset_mode")
    if not isinstance(mode, AutoresetMode):
        raise InputError(
            f"{type(simulator.unwrapped).__name__} must say in metadata['autoreset_mode'] what it does with rows that "
            f"are over, a gymnasium.vector.AutoresetMode, got {mode!r}"
        )
    return mode


def as_tensor(values: Any) -> Tensor:
    """Return an array of a simulator as a tensor where it is, without a copy if nobody can write into it.

    Arrays of JAX never change. Those of numpy and torch are copied, because many simulators use one buffer for all
    steps, and what is returned here must still be there after the next one.
    """
    if isinstance(values, Tensor):
        return values.detach().clone()
    immutable = hasattr(values, "__dlpack__") and not isinstance(values, np.ndarray)
    # A torch without CUDA cannot look into the memory of a GPU.
    if immutable and (torch.cuda.is_available() or values.__dlpack_device__()[0] == DLPACK_CPU):
        return torch.utils.dlpack.from_dlpack(values)
    return torch.from_numpy(np.array(values))


def _first_part(observation: Any) -> Any:
    """Return the first array of an observation in parts."""
    while isinstance(observation, dict | tuple):
        parts = observation
        if isinstance(observation, dict):
            parts = tuple(observation.values())
        observation = parts[0]
    return observation


def _namespace_of(values: Any) -> Any:
    """Return the library of an array, as the array API standard has it: its ``from_dlpack`` makes arrays for it."""
    if isinstance(values, Tensor):
        return torch
    if hasattr(values, "__array_namespace__") and not isinstance(values, np.ndarray):
        return values.__array_namespace__()
    return np


def _first_action(space: Any) -> Any:
    """Return an action that is allowed."""
    if isinstance(space, Box):
        return np.clip(np.zeros(space.shape, space.dtype), space.low, space.high)
    start = np.asarray(getattr(space, "start", 0))
    return np.broadcast_to(start, space.shape).astype(space.dtype)


def _first_row(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {key: _first_row(value) for key, value in observation.items()}
    if isinstance(observation, tuple):
        return tuple(_first_row(value) for value in observation)
    return as_tensor(observation)[0].cpu().numpy()
