"""Atari 2600 emulators in this process: the standard preprocessing, frame for frame, on plain arrays.

The environment is Gymnasium's ``NoFrameskip-v0`` with its ``AtariPreprocessing``: up to 30 no-ops, every action held
for four emulator frames of which the last two are merged by their maximum, grey, 84 x 84 by area; sticky actions (one
is replaced by the one before it with probability 1/4) at every emulator frame; rewards neither clipped nor cut at
lives.
"""

from __future__ import annotations

import atexit
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import InputError
from surefoot.play.envs.atari.screens import SCREEN, SIDE, Frames, Shrinker
from surefoot.provenance import install_command

SKIP = 4
NO_OPS = 30
STICKY = 0.25
MOST_FRAMES = 108_000  # of one episode, as NoFrameskip-v0 has it
ENDED = 1
CUT = 2


@dataclass(frozen=True)
class Cartridge:
    """A game and how its episodes end."""

    rom: str  # its name in ale-py
    moves: int  # how many actions the game knows (ale-py's minimal set)
    limit: int  # most agent steps of an episode
    difficulty: int = 0  # position of the difficulty switch
    first_goal: bool = False  # whether the first reward other than 0 ends the episode


class Board:
    """Arrays exchanged between the caller and the emulators, one entry per environment; may be in shared memory.

    ``actions``  what to do next
    ``active``   which environments the next command is for
    ``frames``   the newest observations
    ``rewards``  of the last step, as the game counts them
    ``over``     0 while the episode runs, ``ENDED`` by the game, ``CUT`` at the maximum number of steps
    """

    def __init__(self, slots: int, memory: Any = None) -> None:
        if memory is None:
            memory = bytearray(self.count_bytes(slots))
        memory = memoryview(memory)
        self.slots = slots
        # Numbers of eight bytes come first, so that all of them are aligned.
        self.rewards: NDArray[np.float64] = np.frombuffer(memory, np.float64, slots)
        self.actions: NDArray[np.int64] = np.frombuffer(memory, np.int64, slots, 8 * slots)
        self.active: NDArray[np.uint8] = np.frombuffer(memory, np.uint8, slots, 16 * slots)
        self.over: NDArray[np.uint8] = np.frombuffer(memory, np.uint8, slots, 17 * slots)
        pixels = np.frombuffer(memory, np.uint8, slots * SIDE**2, 18 * slots)
        self.frames: Frames = pixels.reshape(slots, SIDE, SIDE)

    @staticmethod
    def count_bytes(slots: int) -> int:
        """Return the bytes it takes."""
        return slots * (18 + SIDE**2)


class Emulators:
    """Some environments of a board, each with its own emulator, which is seeded once.

    Every episode begins from the same machine state, that of a game just loaded, which is saved and restored. ALE's own
    reset is slower and not complete: a bit of Freeway's memory shows whether the episode before had an odd length.
    """

    def __init__(self, cartridges: Sequence[Cartridge], seeds: Sequence[int], board: Board, first: int = 0) -> None:
        self.cartridges = list(cartridges)
        self.seeds = list(seeds)
        self.board = board
        self.slots = range(first, first + len(self.cartridges))
        self.machines: list[_Machine] = []
        self.screens: Frames = np.zeros((2, len(self.cartridges), *SCREEN), dtype=np.uint8)
        self.shrunk = Shrinker()

    def reset(self) -> None:
        """Load and seed every emulator and start its first episode."""
        self.machines = []
        for cartridge, seed, screens in zip(self.cartridges, self.seeds, self.screens.swapaxes(0, 1), strict=True):
            self.machines.append(_Machine(cartridge, seed, screens))
        self._start_episodes(range(len(self.machines)))

    def restart_active(self) -> None:
        """Start a new episode in the active environments."""
        self._start_episodes(self._active_rows())

    def step(self) -> None:
        """Advance the active environments by one agent step."""
        rows = self._active_rows()
        for row in rows:
            slot = self.slots[row]
            reward, over = self.machines[row].take_step(int(self.board.actions[slot]))
            self.board.rewards[slot] = reward
            self.board.over[slot] = over
        self._show_frames(rows)

    def step_on(self) -> None:
        """Advance the active environments; where an episode has ended, show the first frame of the next one instead."""
        self.step()
        ended = [row for row in self._active_rows() if self.board.over[self.slots[row]]]
        if ended:
            self._start_episodes(ended)

    def close(self) -> None:
        """Keep the emulators for the next use of the same game in this process."""
        for machine in self.machines:
            game = (machine.cartridge.rom, machine.cartridge.difficulty)
            _IDLE.setdefault(game, []).append((machine.emulator, machine.beginning))
        self.machines = []

    def _start_episodes(self, rows: Iterable[int]) -> None:
        rows = list(rows)
        for row in rows:
            self.machines[row].start_episode()
        self._show_frames(rows)

    def _active_rows(self) -> list[int]:
        part = self.board.active[self.slots.start : self.slots.stop]
        rows: list[int] = part.nonzero()[0].tolist()
        return rows

    def _show_frames(self, rows: Sequence[int]) -> None:
        if not rows:
            return
        newest = self.screens[0]
        # Taking all rows would copy all screens.
        if len(rows) < len(self.slots):
            newest = newest[rows]
        self.board.frames[[self.slots[row] for row in rows]] = self.shrunk(newest)


class _Machine:
    """One emulator with its random numbers and two screens: the merged, newest one and the one before.

    Actions stick here, not in the emulator, on the random numbers that ALE would draw: restoring a machine state
    does not restore ALE's memory of the last action, and the first frame of an episode could repeat one of another's.
    """

    def __init__(self, cartridge: Cartridge, seed: int, screens: Frames) -> None:
        self.cartridge = cartridge
        self.screens = screens
        self.steps = 0
        self.last = 0
        # The derivation of Gymnasium's AtariEnv: the same seed gives the same episodes.
        no_ops, stickiness = np.random.SeedSequence(seed).generate_state(2)
        self.random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(int(no_ops))))
        self.draws = np.random.RandomState(stickiness)  # ALE's own generator, draw for draw
        self.sticks: Iterator[bool] = iter(())
        self.emulator, self.beginning = _load_emulator(cartridge)
        self.moves = self.emulator.getMinimalActionSet()
        assert len(self.moves) == cartridge.moves

    def start_episode(self) -> None:
        """Begin an episode with 1 to 30 frames of doing nothing."""
        self.emulator.restoreState(self.beginning)
        self.steps = 0
        self.last = 0
        for _ in range(self.random.integers(1, NO_OPS + 1)):
            self.advance_frame(0)
        self.emulator.getScreenGrayscale(self.screens[0])
        self.screens[1].fill(0)

    def take_step(self, action: int) -> tuple[float, int]:
        """Hold an action for four frames; return the reward and whether the episode is over."""
        reward = 0
        for frame in range(SKIP):
            reward += self.advance_frame(action)
            if self.emulator.game_over():
                break
            if frame >= SKIP - 2:
                self.emulator.getScreenGrayscale(self.screens[SKIP - 1 - frame])
        np.maximum(self.screens[0], self.screens[1], out=self.screens[0])
        self.steps += 1
        if (self.cartridge.first_goal and reward) or self.emulator.game_over(with_truncation=False):
            return float(reward), ENDED
        if self.steps >= self.cartridge.limit or self.emulator.game_truncated():
            return float(reward), CUT
        return float(reward), 0

    def advance_frame(self, action: int) -> int:
        """Advance by one frame with this action, or with the last one if it sticks; return the reward."""
        sticks = next(self.sticks, None)
        if sticks is None:
            self.sticks = iter((self.draws.random_sample(1_024) < STICKY).tolist())
            sticks = next(self.sticks)
        if not sticks:
            self.last = action
        reward: int = self.emulator.act(self.moves[self.last])
        return reward


# Loading takes a hundred milliseconds, as long as a few episodes. An emulator that is no longer used has no
# state of its own: it draws no random numbers, and an episode begins by restoring the state of a game just loaded.
_IDLE: dict[tuple[str, int], list[tuple[Any, Any]]] = {}
atexit.register(_IDLE.clear)  # or ale-py complains of objects that outlive it


def _load_emulator(cartridge: Cartridge) -> tuple[Any, Any]:
    """Return an emulator without randomness of its own, and its state at the start of a game."""
    idle = _IDLE.get((cartridge.rom, cartridge.difficulty))
    if idle:
        return idle.pop()
    library = load_ale()
    library.ALEInterface.setLoggerMode(library.LoggerMode.Error)  # first, or it prints a greeting
    emulator = library.ALEInterface()
    emulator.setFloat("repeat_action_probability", 0.0)
    emulator.setInt("max_num_frames_per_episode", MOST_FRAMES)
    emulator.setInt("random_seed", 0)
    emulator.loadROM(library.roms.get_rom_path(cartridge.rom))
    emulator.setDifficulty(cartridge.difficulty)
    emulator.reset_game()
    return emulator, emulator.cloneState()


def load_ale() -> Any:
    """Return ale-py, or say how to get it."""
    try:
        import ale_py
        import ale_py.roms
    except ImportError as error:
        raise InputError(
            f"Atari needs ale-py, which is not installed ({error}); install it with: {install_command('atari')}"
        ) from error
    return ale_py
