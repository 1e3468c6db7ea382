"""Blocks dealt to workers: processes of this machine with one thread each, or whatever else has this interface.

A dead process is an error, never a hang.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from surefoot.errors import InputError

Given = TypeVar("Given")
Result = TypeVar("Result")
Key = TypeVar("Key")
LOOK = 5.0  # seconds after which a wait for results is interrupted to look around

_job: tuple[Callable[[Any, int], Any], Any] | None = None


class DeadWorkerError(InputError):
    """A process ended before it had returned what was asked for."""


class Workers(Protocol):
    """What runs blocks. It changes neither their results nor which of them are run."""

    def map_unordered(
        self,
        work: Callable[[Given, int], Result],
        plan: Given,
        indices: Sequence[int],
        *,
        gpu: float = 0.0,
    ) -> Generator[tuple[int, Result], None, None]:
        """Yield (index, work(plan, index)) as they are finished; closing the generator ends the work.

        Args:
            plan: Its first argument, sent once.
            gpu: Share of a GPU that one result needs.
        """

    def describe(self) -> int | str:
        """Return what a run's notes say of the workers."""

    def n_parallel(self, gpu: float) -> int:
        """Return how many blocks they run at a time that need this share of a GPU."""


@dataclass(frozen=True)
class Processes:
    """Processes of this machine."""

    n: int  # how many blocks they run at a time
    # Whether no block is run in this process, not even by one worker: an environment or an agent that ends its process,
    # or crashes it, is then an error, and meets nothing that was run here before.
    isolated: bool = False

    def __post_init__(self) -> None:
        if self.n < 1:
            raise InputError(f"workers must be at least 1, got {self.n}")

    def describe(self) -> int:
        """Return their number."""
        return self.n

    def n_parallel(self, gpu: float) -> int:
        """Return their number, one where a block fills the GPU."""
        if gpu >= 1:
            return 1
        return self.n

    def map_unordered(
        self,
        work: Callable[[Given, int], Result],
        plan: Given,
        indices: Sequence[int],
        *,
        gpu: float = 0.0,
    ) -> Generator[tuple[int, Result], None, None]:
        """Yield (index, work(plan, index)) as they are finished; see ``Workers``."""
        workers = min(self.n, len(indices))
        if gpu >= 1:
            workers = min(1, workers)  # one process fills a GPU, unless it needs a part of it only
        # A single worker is this process, unless it must not be.
        fewest = 2
        if self.isolated:
            fewest = 1
        if workers < fewest:
            for index in indices:
                yield index, work(plan, index)
            return
        # Forked workers inherit the plan: nothing is imported again and any callable can be a policy. They could not
        # use CUDA again.
        start_method = "spawn"
        if can_fork() and not gpu:
            start_method = "fork"
        executor = ProcessPoolExecutor(
            workers,
            mp_context=multiprocessing.get_context(start_method),
            initializer=_begin_worker,
            initargs=(work, plan, os.getpid()),
        )
        crew = executor._processes  # a table that the executor forgets when it is broken, and this keeps
        try:
            in_flight = InFlight[int, Result](lambda index: _submit_block(executor, index))
            # Two blocks per worker in flight, so that no worker waits and little is lost when the run is stopped.
            for index, future in in_flight.yield_finished(indices, lambda: 2 * workers):
                yield index, future.result()
        except BrokenProcessPool as error:
            raise DeadWorkerError(_end_of(crew.values())) from error
        except pickle.PicklingError as error:
            raise InputError(f"this policy cannot be sent to worker processes ({error}); use one worker") from error
        finally:
            # Our own workers only: the caller may have other children.
            children = list(crew.values())
            executor.shutdown(wait=False, cancel_futures=True)
            for child in children:
                child.terminate()
            # Whoever is called next finds no process of ours.
            _wait_for_end(children)


def run_apart(what: str, work: Callable[[Given, int], Result], plan: Given, *, gpu: float = 0.0) -> Result:
    """Return ``work(plan, 0)`` of a forked process, so that code of others ends that one at worst.

    Where processes cannot be forked, or need a GPU, it is computed here: not everything can be sent to a fresh
    interpreter. ``what`` is done, as the message says if it ends its process.
    """
    try:
        ((_, result),) = Processes(1, isolated=can_fork() and not gpu).map_unordered(work, plan, [0], gpu=gpu)
    except DeadWorkerError as error:
        raise DeadWorkerError(f"{what}: {error}") from error
    return result


def can_fork() -> bool:
    """Return whether processes that inherit everything can be started safely; elsewhere they begin from nothing."""
    # Once JAX computes it has threads, whose locks a forked process would wait for.
    jax = sys.modules.get("jax._src.xla_bridge")
    if jax is not None and jax.backends_are_initialized():
        return False
    return sys.platform == "linux"


def _wait_for_end(children: Iterable[BaseProcess]) -> None:
    """Wait until all have ended, for a few seconds at most."""
    # The executor waits for them too, in a thread of its own: whoever comes second learns an exit code a moment later.
    end = time.monotonic() + LOOK
    for child in children:
        wait([child.sentinel], timeout=max(0.0, end - time.monotonic()))
    while any(child.exitcode is None for child in children) and time.monotonic() < end:
        time.sleep(0.001)


def _end_of(children: Iterable[BaseProcess]) -> str:
    """Return how the first worker that ended by itself did so; the others were then terminated."""
    _wait_for_end(children)
    code = None
    for child in children:
        # SIGTERM is what the executor ends the others with.
        if child.exitcode not in (None, -signal.SIGTERM):
            code = child.exitcode
            break
    if code is None or code == -signal.SIGKILL:
        return "a worker process died (out of memory?); finished blocks are kept, run again with a smaller workers="
    if code < 0:
        name = signal.Signals(-code).name
        return f"a worker process crashed ({name}): compiled code of the environment or the agent failed"
    return f"a worker process ended by itself (exit code {code}): the environment or the agent ended it, with os._exit"


class InFlight(Generic[Key, Result]):
    """A bounded number of results in the making; finding the next finished one takes as long for 2,000 as for two."""

    def __init__(self, submit: Callable[[Key], Future[Result]]) -> None:
        self._submit = submit
        self._completed: SimpleQueue[tuple[Key, Future[Result]]] = SimpleQueue()
        self._count = 0

    def start_key(self, key: Key) -> None:
        """Begin one result."""
        self._count += 1
        self._submit(key).add_done_callback(lambda future: self._completed.put((key, future)))

    def yield_finished(self, keys: Iterable[Key], capacity: Callable[[], int]) -> Iterator[tuple[Key, Future[Result]]]:
        """Yield every key with its finished future.

        ``capacity`` returns how many may be in flight now; it is asked every few seconds at least.
        """
        waiting = deque(keys)
        while waiting or self._count:
            # Asked even where nothing waits to be begun: it raises where nothing could be run any more.
            most = capacity()
            while waiting and self._count < most:
                self.start_key(waiting.popleft())
            if not self._count:
                continue
            try:
                completed = self._completed.get(timeout=LOOK)
            except Empty:
                continue
            self._count -= 1
            yield completed


def as_workers(workers: int | Workers) -> Workers:
    """Return workers; a number is one of processes."""
    if isinstance(workers, int):
        return Processes(workers)
    return workers


def _submit_block(executor: ProcessPoolExecutor, index: int) -> Future[Any]:
    with warnings.catch_warnings():
        # Python 3.12 warns when a process with threads forks; the workers touch none of their locks.
        warnings.filterwarnings("ignore", r"This process .* is multi-threaded", DeprecationWarning)
        return executor.submit(_run_job, index)


def _begin_worker(work: Callable[[Any, int], Any], plan: Any, parent: int) -> None:
    global _job  # noqa: PLW0603 - one job per worker process, set once at its start
    _job = (work, plan)
    # Ctrl-C reaches the whole group: the parent decides, workers only obey it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What an environment or an agent prints, its libraries in C too, is no part of what a command prints.
    sys.stdout = sys.stderr
    with suppress(OSError):
        os.dup2(2, 1)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    # A parent that was killed could not end its workers; an orphan has another parent.
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _run_job(index: int) -> Any:
    assert _job is not None
    work, plan = _job
    try:
        return work(plan, index)
    except Exception as error:
        # What cannot be unpickled there would break the executor, and look like a dead worker.
        if _can_be_sent(error):
            raise
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


def _can_be_sent(error: Exception) -> bool:
    """Return whether an error arrives whole in another process."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return False
    return True
