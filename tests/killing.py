"""A writer that is killed: a forked process dies at the k-th thing that it does to a folder."""

import io
import os
import signal
import sys
import warnings
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Halved(io.FileIO):
    """Writes half of what it is given before it asks whether to go on."""

    ask: Callable[[], None] = staticmethod(lambda: None)

    def write(self, data: Any) -> int:
        data = memoryview(data).cast("B")
        done = super().write(data[: len(data) // 2])
        Halved.ask()
        return done + super().write(data[done:])


def killed(work: Callable[[], object], folder: Path, at: int) -> bool:
    """Fork a process that does ``work()`` and is killed at its ``at``-th change of ``folder``; say whether it was."""

    def watched() -> None:
        _watch(str(folder), at)
        work()

    code = ended(forked(watched))
    assert code in (0, -signal.SIGKILL), "the writer failed by itself"
    return code != 0


def fork() -> int:
    """Fork, without the warning of Python 3.12 and newer about the thread of the test runner."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        return os.fork()


def forked(work: Callable[[], object]) -> int:
    """Do ``work()`` in a process that has imported everything already; return its number."""
    child = fork()
    if child:
        return child
    try:
        work()
        os._exit(0)
    except SystemExit as error:
        os._exit(error.code if isinstance(error.code, int) else 1)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(3)


def ended(child: int) -> int:
    """Wait for a process and return its exit code, or the negative of the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def alive(pid: int) -> bool:
    """Return whether a process of Linux is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _watch(folder: str, at: int) -> None:
    left = [at]

    def ask() -> None:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, arguments: Any) -> None:
        opened = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING
        # What is deleted with a whole directory is named relative to it.
        inside = str(arguments[0]).startswith(folder) or (event in CHANGES and not Path(arguments[0]).is_absolute())
        if (opened or event in CHANGES) and inside:
            ask()

    Halved.ask = staticmethod(ask)
    setattr(os, "fdopen", lambda handle, mode: Halved(handle, "w"))  # noqa: B010 - its type is another
    sys.addaudithook(hook)


def contents(folder: Path, without: Collection[str] = ()) -> dict[str, bytes]:
    """Return the bytes of all files below a folder."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in without]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}
