"""Blocks dealt to processes with one thread each; a dead worker is an error, never a hang."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

import torch

from surefoot.errors import InputError

Plan = TypeVar("Plan")
Result = TypeVar("Result")

_job: tuple[Callable[[Any, int], Any], Any] | None = None


def spread(
    work: Callable[[Plan, int], Result], plan: Plan, indices: list[int], workers: int, *, fresh: bool = False
) -> Iterator[tuple[int, Result]]:
    """Yield (index, work(plan, index)) as they are finished, computed by ``workers`` processes.

    ``fresh``  start new interpreters: a forked process cannot use CUDA again
    """
    # Forked workers inherit the plan: nothing is imported again and any callable can be a policy.
    method = "fork" if sys.platform == "linux" and not fresh else "spawn"
    executor = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context(method),
        initializer=_begin,
        initargs=(work, plan, os.getpid()),
    )
    try:
        queue = iter(indices)
        # Two blocks per worker in flight, so that nobody waits and little is lost when the run is stopped.
        pending: dict[Future[Result], int] = {_submit(executor, index): index for index in islice(queue, 2 * workers)}
        while pending:
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                finished = pending.pop(future)
                pending |= {_submit(executor, index): index for index in islice(queue, 1)}
                yield finished, future.result()
    except BrokenProcessPool as error:
        raise InputError(
            "a worker process died (out of memory?); finished blocks are kept, run again with fewer --workers"
        ) from error
    except pickle.PicklingError as error:
        raise InputError(f"this policy cannot be sent to worker processes ({error}); use one worker") from error
    finally:
        # Our own workers only: the caller may have other children.
        crew = list((executor._processes or {}).values())
        executor.shutdown(wait=False, cancel_futures=True)
        for child in crew:
            child.terminate()


@contextmanager
def single_thread() -> Iterator[None]:
    """Compute with one thread: the same bits whatever else runs, and no collapse when processes share the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def usable_cores() -> int:
    """Return how many cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _submit(executor: ProcessPoolExecutor, index: int) -> Future[Any]:
    with warnings.catch_warnings():
        # Python 3.12 warns when a process with threads forks; the workers touch none of their locks.
        warnings.filterwarnings("ignore", r"This process .* is multi-threaded", DeprecationWarning)
        return executor.submit(_work, index)


def _begin(work: Callable[[Any, int], Any], plan: Any, parent: int) -> None:
    global _job  # noqa: PLW0603 - one job per worker process, set once at its start
    _job = (work, plan)
    # Ctrl-C reaches the whole group: the parent decides, workers only obey it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _work(index: int) -> Any:
    assert _job is not None
    work, plan = _job
    return work(plan, index)
