"""Emulators in processes of their own, stepped in parallel over shared memory.

ale-py holds Python's lock while it emulates, so threads do not help; and its own threaded environment has no difficulty
switch. The episodes of an environment depend on its seed and actions alone, never on how many processes there are.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from select import select
from typing import Any

from surefoot.errors import InputError
from surefoot.play.envs.atari.emulators import Board, Cartridge, Emulators, load_ale

COMMANDS = ("reset", "step_on")
READY = b"!"


class Fleet:
    """Emulators of many environments in one process or several; a command may run while the caller does other work."""

    def __init__(self, cartridges: Sequence[Cartridge], seeds: Sequence[int], processes: int = 1) -> None:
        load_ale()  # raised here, where the message is visible, rather than in a process that cannot start
        self.slots = len(cartridges)
        self.helpers: list[subprocess.Popen[bytes]] = []
        self.here: Emulators | None = None
        self.begun: str | None = None
        processes = min(processes, self.slots)
        if processes <= 1:
            self.board = Board(self.slots)
            self.here = Emulators(cartridges, seeds, self.board)
            return
        # In memory where the system has such a folder; a disk would be written to at every step.
        folder = None
        if Path("/dev/shm").is_dir():
            folder = "/dev/shm"
        with tempfile.TemporaryFile(dir=folder) as file:
            file.truncate(Board.count_bytes(self.slots))
            self.memory = mmap.mmap(file.fileno(), Board.count_bytes(self.slots))
            self.board = Board(self.slots, self.memory)
            bounds = [self.slots * part // processes for part in range(processes + 1)]
            for first, last in pairwise(bounds):
                part = _start_helper(file.fileno(), self.slots, first, cartridges[first:last], seeds[first:last])
                self.helpers.append(part)

    def run_command(self, command: str) -> Board:
        """Carry out a command on the active environments (``reset``: on all) and return the board."""
        self.begin_command(command)
        return self.finish_command()

    def begin_command(self, command: str) -> None:
        """Start a command; until ``finish_command`` the board belongs to the emulators."""
        assert command in COMMANDS, command
        assert self.begun is None, self.begun
        self.begun = command
        try:
            for helper in self.helpers:
                assert helper.stdin is not None
                helper.stdin.write(bytes([COMMANDS.index(command)]))
                helper.stdin.flush()
        except OSError as error:
            raise _lost_helper() from error

    def finish_command(self) -> Board:
        """Wait for the command that was begun and return the board."""
        assert self.begun is not None
        if self.here is not None:
            getattr(self.here, self.begun)()
        for helper in self.helpers:
            assert helper.stdout is not None
            # Nothing is read from a process that has ended.
            if helper.stdout.read(1) != READY:
                raise _lost_helper()
        self.begun = None
        return self.board

    def is_done(self) -> bool:
        """Return whether ``finish_command`` would return at once, as far as other processes are concerned."""
        pipes = [helper.stdout for helper in self.helpers if helper.stdout is not None]
        return len(select(pipes, [], [], 0)[0]) == len(pipes)

    def close(self) -> None:
        """End the processes."""
        for helper in self.helpers:
            assert helper.stdin is not None
            assert helper.stdout is not None
            with suppress(OSError):  # it may have ended already
                helper.stdin.close()
            helper.wait()
            helper.stdout.close()
        if self.here is not None:
            self.here.close()
        # So that closing it again does nothing.
        self.helpers = []
        self.here = None


def _start_helper(
    memory: int, slots: int, first: int, cartridges: Sequence[Cartridge], seeds: Sequence[int]
) -> subprocess.Popen[bytes]:
    # A fresh interpreter: a fork of a process that uses CUDA or threads may hang.
    helper = subprocess.Popen(
        # Without the working directory, which would come first: it may be a folder of somebody else.
        [sys.executable, "-P", "-c", "from surefoot.play.envs.atari.processes import serve_commands; serve_commands()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=(memory,),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"},
    )
    job = json.dumps([memory, slots, first, list(map(asdict, cartridges)), list(seeds)])
    assert helper.stdin is not None
    helper.stdin.write(f"{job}\n".encode())
    return helper


def serve_commands() -> None:
    """Run the worker process: execute commands from the standard input until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent process; this one ends with its input
    commands = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not look like an answer
    memory, slots, first, cartridges, seeds = json.loads(commands.readline())
    board = Board(slots, mmap.mmap(memory, Board.count_bytes(slots)))
    emulators: Any = Emulators([Cartridge(**facts) for facts in cartridges], seeds, board, first)
    while command := commands.read(1):
        getattr(emulators, COMMANDS[command[0]])()
        answers.write(READY)
        answers.flush()


def _lost_helper() -> InputError:
    return InputError(
        "a process with emulators has ended, see its message above; free memory or run fewer environments in parallel"
    )
