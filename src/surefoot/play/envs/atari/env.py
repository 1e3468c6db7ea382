"""Atari games as batches of environments, and one at a time as a Gymnasium environment."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from surefoot.play.envs.atari.emulators import CUT, ENDED, Board, Cartridge, Emulators
from surefoot.play.envs.atari.processes import Fleet
from surefoot.play.envs.atari.screens import SIDE

SHAPE = (SIDE, SIDE)


class Atari:
    """Many environments of one Atari game: one new frame per step, pixels in [0, 1]; the agent keeps the stack itself.

    Each is seeded once, so that its episodes are independent of each other and of the other environments.
    """

    # A row that is over would use its environment's random numbers if it were stepped further.
    done_check_interval = 1

    def __init__(
        self,
        cartridge: Cartridge,
        slots: int,
        seeds: np.random.SeedSequence,
        device: torch.device,
        processes: int = 1,
    ) -> None:
        self.cartridge = cartridge
        self.device = device
        self.fleet = Fleet([cartridge] * slots, slot_seeds(seeds, slots), processes)
        self.slot = np.arange(slots)

    def reset(self) -> Tensor:
        """Start every environment with its own seed."""
        return self._make_observation(self.fleet.run_command("reset"), self.slot)

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Hold every row's action for four emulator frames.

        An episode that is over already shows the first frame of its environment's next one: started later, by a command
        of its own, a few new episodes would keep all other emulators waiting at nearly every step.
        """
        self.fleet.board.active[:] = 0
        self.fleet.board.active[self.slot] = 1
        self.fleet.board.actions[self.slot] = actions.cpu().numpy()
        board = self.fleet.run_command("step_on")
        rewards = torch.from_numpy(count_rewards(self.cartridge, board.rewards[self.slot])).to(self.device)
        over = torch.from_numpy(board.over[self.slot] != 0).to(self.device)
        return self._make_observation(board, self.slot), rewards, over

    def restart_rows(self, rows: Tensor) -> Tensor:
        """Return the first frames of the next episodes of the marked rows, which have begun."""
        return self._make_observation(self.fleet.board, self.slot[rows.cpu().numpy()])

    def keep_rows(self, rows: Tensor) -> None:
        """Continue with these rows only."""
        self.slot = self.slot[rows.cpu().numpy()]

    def read_state(self) -> None:
        """The emulator's memory is not shown."""

    def close(self) -> None:
        """End the emulators."""
        self.fleet.close()

    def _make_observation(self, board: Board, slots: np.ndarray[Any, Any]) -> Tensor:
        return torch.from_numpy(board.frames[slots]).to(self.device).float().div_(255)


class AtariEnvironment(gymnasium.Env[np.ndarray[Any, Any], Any]):
    """One Atari game with a task's rules for any library: uint8 frames of 84 x 84, no frame stack."""

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, cartridge: Cartridge) -> None:
        self.cartridge = cartridge
        self.observation_space = Box(0, 255, SHAPE, np.uint8)
        self.action_space = Discrete(cartridge.moves)
        self.board = Board(1)
        self.emulators: Emulators | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray[Any, Any], dict[str, Any]]:
        """Start an episode; a seed reloads the game, as Gymnasium's AtariEnv does."""
        super().reset(seed=seed, options=options)
        self.board.active[:] = 1
        if self.emulators is None or seed is not None:
            if seed is None:
                # From the operating system, as Gymnasium has it where no seed is given.
                seed = int(np.random.SeedSequence().generate_state(1)[0])
            self.emulators = Emulators([self.cartridge], [seed], self.board)
            self.emulators.reset()
        else:
            self.emulators.restart_active()
        return self.board.frames[0].copy(), {}

    def step(self, action: int) -> tuple[np.ndarray[Any, Any], float, bool, bool, dict[str, Any]]:
        """Hold the action for four emulator frames."""
        assert self.emulators is not None, "reset first"
        self.board.actions[0] = int(action)
        self.emulators.step()
        over = self.board.over[0]
        reward = float(count_rewards(self.cartridge, self.board.rewards)[0])
        return self.board.frames[0].copy(), reward, bool(over == ENDED), bool(over == CUT), {}


def count_rewards(cartridge: Cartridge, rewards: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return rewards as the task counts them: where the first goal decides, 1 for scoring it and 0 for losing it."""
    if cartridge.first_goal:
        return (rewards > 0).astype(np.float64)
    # A copy: the board's own are overwritten by the next step.
    return rewards.copy()


def slot_seeds(seeds: np.random.SeedSequence, slots: int) -> list[int]:
    """Return one seed per environment; 62 bits, because among many two 32-bit seeds would agree."""
    return [int(seed) >> 2 for seed in seeds.generate_state(slots, np.uint64)]
