"""Blocks dealt to the nodes of a Ray cluster. It is imported only when a cluster is asked for."""

from __future__ import annotations

import logging
import math
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Generic, TextIO

import ray
from ray import exceptions as lost

from surefoot.errors import InputError, is_out_of_memory
from surefoot.play.plan import Plan, agent_hash
from surefoot.play.workers import LOOK, Given, InFlight, Result
from surefoot.provenance import source_hash, versions

ANSWER = 20.0  # seconds that a cluster has to answer
WITHOUT_NODES = 60.0  # seconds without any node that could run a block
MOST_CRASHES = 3  # how often one block may lose its process
MOST_DEAD_NODES = 10  # how often one block may lose its node
LOST = (
    lost.NodeDiedError,
    lost.WorkerCrashedError,
    lost.OutOfMemoryError,
    lost.ObjectLostError,
    lost.TaskUnschedulableError,
    lost.LocalRayletDiedError,
)
# Connecting to what does not answer takes Ray minutes and then ends the process, so it is tried in another one.
TRIAL = "import logging, ray, sys; ray.init(address=sys.argv[1], log_to_driver=False, logging_level=logging.ERROR)"


@contextmanager
def ray_cluster(address: str = "auto") -> Iterator[RayCluster]:
    """Connect to a Ray cluster and disconnect in the end; a connection that there is already is used, and kept.

    Args:
        address: Host and port of the cluster, or "auto": that of ``RAY_ADDRESS``, else the one of this machine.
    """
    if ray.is_initialized():
        yield RayCluster()
        return
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS", "auto")
    check_answer(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (RuntimeError, ConnectionError, ValueError) as error:
        raise InputError(f"cannot use the Ray cluster at {address}: {error}") from error
    try:
        with _stdout_of_this_thread():
            yield RayCluster()
    finally:
        ray.shutdown()


def check_answer(address: str, seconds: float = ANSWER) -> None:
    """Raise InputError unless a Ray cluster answers in time."""
    if "://" in address:
        raise InputError(
            f"the address of a Ray cluster is HOST:PORT or auto, got {address}; run the command on a node of the "
            "cluster, or with 'ray job submit'"
        )
    try:
        host, colon, port = address.rpartition(":")
        if colon:
            socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
        trial = [sys.executable, "-c", TRIAL, address]
        done = subprocess.run(trial, check=False, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        reason = f"nothing that speaks Ray for {seconds:g} s"
    except (OSError, ValueError) as error:
        reason = str(error)
    else:
        if done.returncode == 0:
            return
        reason = (done.stderr.strip().splitlines() or ["it ended without a reason"])[-1]
    raise InputError(
        f"no Ray cluster answers at {address} ({reason}); start one with 'ray start --head', or use this machine alone"
    )


class _FromOneThread:
    """A stream that passes on what one thread writes, and sends what others write to standard error."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._owner = threading.get_ident()

    def write(self, text: str) -> int:
        mine = threading.get_ident() == self._owner
        return (self._stream if mine else sys.stderr).write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _stdout_of_this_thread() -> Iterator[None]:
    """Keep standard output to this thread: a thread of Ray prints there which nodes died, and JSON may be expected."""
    before = sys.stdout
    # It is asked for everything but ``write`` of the stream itself.
    sys.stdout = _FromOneThread(before)
    try:
        yield
    finally:
        sys.stdout = before


@dataclass(frozen=True)
class Job(Generic[Given, Result]):
    """What workers get once: the work, its plan, and what their machines must have in common with this one."""

    work: Callable[[Given, int], Result]
    plan: Given
    identity: dict[str, str]
    cores: int

    def check_node(self) -> None:
        """Raise InputError if this node has other code, versions or weights than the machine that sent the job."""
        here = identity_of(self.plan)
        differing = [key for key in {**self.identity, **here} if here.get(key) != self.identity.get(key)]
        if differing:
            what = ", ".join(f"{key} {here.get(key)} there, {self.identity.get(key)} here" for key in differing[:3])
            address = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
            raise InputError(
                f"the Ray node {address} would run another program ({what}); install the same versions everywhere"
            )


def identity_of(plan: object) -> dict[str, str]:
    """Return versions and a hash of the code and, of a run, the hash of the agent as it is in this process."""
    identity = {**versions(), "ray": ray.__version__, "source code": source_hash()[:12]}
    if isinstance(plan, Plan):
        identity["agent"] = agent_hash(plan.policy)
    return identity


_accepted: tuple[str, Job[Any, Any]] | None = None


def _run_on_node(box: list[ray.ObjectRef[Job[Any, Any]]], index: int) -> Any:
    """Compute one result on a worker."""
    global _accepted  # noqa: PLW0603 - one job per worker process, unpacked and checked once
    key = box[0].hex()
    if _accepted is None or _accepted[0] != key:
        job = ray.get(box[0])
        job.check_node()
        _accepted = (key, job)
    job = _accepted[1]
    os.environ["SUREFOOT_CORES"] = str(job.cores)
    return job.work(job.plan, index)


class RayCluster:
    """The nodes of a Ray cluster as workers; the process is connected already."""

    def describe(self) -> str:
        """Return how many nodes and cores there are."""
        nodes = able_nodes({})
        cores = sum(node["Resources"].get("CPU", 0) for node in nodes)
        return f"Ray, {len(nodes)} node{'s' * (len(nodes) != 1)}, {cores:g} CPUs"

    def n_parallel(self, gpu: float) -> int:
        """Return how many blocks its nodes run at a time."""
        return count_parallel(needs_of(gpu))

    def map_unordered(
        self,
        work: Callable[[Given, int], Result],
        plan: Given,
        indices: Sequence[int],
        *,
        gpu: float = 0.0,
    ) -> Generator[tuple[int, Result], None, None]:
        """Yield (index, work(plan, index)) as they are finished; see ``Workers``."""
        if not indices:
            return
        capacity = Capacity(needs_of(gpu))
        tasks = BlockTasks(Job(work, plan, identity_of(plan), int(capacity.needs["CPU"])), capacity.needs)
        in_flight = InFlight[int, Result](tasks.submit_block)
        try:
            for index, future in in_flight.yield_finished(indices, capacity.current_limit):
                try:
                    result = tasks.collect_result(index, future)
                except LOST as error:
                    tasks.count_loss(index, error)
                    in_flight.start_key(index)
                else:
                    yield index, result
        finally:
            tasks.cancel_running()


class BlockTasks(Generic[Given, Result]):
    """Ray's tasks, one for each block that runs; one that is lost with its node or its process is run again."""

    def __init__(self, job: Job[Given, Result], needs: dict[str, float]) -> None:
        # In a list, so that a worker gets the reference and unpacks the job once, not for every block.
        self.box = [ray.put(job)]
        # Ray does not repeat what was lost: it would not know how often is too often.
        remote = ray.remote(num_cpus=needs["CPU"], num_gpus=needs.get("GPU", 0), max_retries=0)(_run_on_node)
        self.task = remote.options(scheduling_strategy="SPREAD")
        self.running: dict[int, ray.ObjectRef[Any]] = {}
        self.crashes: Counter[int] = Counter()
        self.dead_nodes: Counter[int] = Counter()

    def submit_block(self, index: int) -> Future[Result]:
        """Begin one block on any node."""
        self.running[index] = self.task.remote(self.box, index)
        future: Future[Result] = self.running[index].future()
        return future

    def collect_result(self, index: int, future: Future[Result]) -> Result:
        """Return the result, or raise one of ``LOST`` if it is to be computed again."""
        del self.running[index]
        try:
            return future.result()
        except lost.RayTaskError as error:
            raise _find_cause(index, error) from error

    def count_loss(self, index: int, error: Exception) -> None:
        """Raise InputError if a block has cost too many processes or nodes."""
        if isinstance(error, lost.WorkerCrashedError | lost.OutOfMemoryError):
            self.crashes[index] += 1
            if self.crashes[index] < MOST_CRASHES:
                return
            if isinstance(error, lost.OutOfMemoryError):
                raise _out_of_memory(index)
            times = MOST_CRASHES
            reason = "its process was killed (by the system for lack of memory, or by a crash of the environment)"
        else:
            self.dead_nodes[index] += 1
            if self.dead_nodes[index] < MOST_DEAD_NODES:
                return
            times = MOST_DEAD_NODES
            reason = "its node died"
        raise InputError(f"block {index} was lost {times} times: {reason}; finished blocks are kept")

    def cancel_running(self) -> None:
        """End whatever is still running."""
        for reference in self.running.values():
            with suppress(Exception):
                ray.cancel(reference, force=True)


def _find_cause(index: int, error: lost.RayTaskError) -> BaseException:
    """Return what went wrong on a worker, as it would have been raised here."""
    if is_out_of_memory(error.cause):
        return _out_of_memory(index)
    if isinstance(error.cause, InputError):
        return error.cause
    if "No module named" in str(error) and "surefoot" in str(error):
        return InputError(f"the Ray node {error.ip} cannot import what the run needs: {str(error).splitlines()[-1]}")
    return error


def _out_of_memory(index: int) -> InputError:
    return InputError(
        f"block {index} ran out of memory on its Ray node; finished blocks are kept: start the nodes with fewer "
        "--num-cpus, so that fewer blocks share their memory, and run again"
    )


class Capacity:
    """How many blocks may be in flight: two for every one that the nodes can run at a time, and at least one.

    Nodes come and go; where none could run a block for a minute, nothing would ever happen.
    """

    def __init__(self, needs: dict[str, float]) -> None:
        self.needs = needs
        self.n_parallel = 0
        self.last_look = -math.inf
        self.last_able = -math.inf
        if not able_nodes(needs):
            raise InputError(f"no node of the Ray cluster has {_needs_words(needs)}, which a block needs")

    def current_limit(self) -> int:
        """Return the number; look at the nodes every few seconds."""
        now = time.monotonic()
        if now - self.last_look > LOOK:
            self.last_look = now
            self.n_parallel = count_parallel(self.needs)
            if self.n_parallel:
                self.last_able = now
        if now - self.last_able > WITHOUT_NODES:
            raise InputError(
                f"for {WITHOUT_NODES:g} s no node of the Ray cluster had {_needs_words(self.needs)}; finished blocks "
                "are kept, run again when there are nodes"
            )
        return max(1, 2 * self.n_parallel)


def needs_of(gpu: float) -> dict[str, float]:
    """Return what one block takes of a node: a core, or a share of a GPU and, for its emulators, of the cores."""
    if not gpu:
        return {"CPU": 1}
    if gpu >= 1:
        return {"CPU": 1, "GPU": gpu}
    shares = [node["Resources"]["CPU"] / node["Resources"]["GPU"] for node in able_nodes({"CPU": 1, "GPU": gpu})]
    return {"CPU": max(1, math.floor(gpu * min(shares, default=1))), "GPU": gpu}


def able_nodes(needs: dict[str, float]) -> list[dict[str, Any]]:
    """Return the nodes that are alive and large enough for one block."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [node for node in nodes if node["Alive"] and _count_fitting(node["Resources"], needs) >= 1]


def count_parallel(needs: dict[str, float]) -> int:
    """Return how many blocks the nodes can run at a time."""
    return sum(_count_fitting(node["Resources"], needs) for node in able_nodes(needs))


def _count_fitting(resources: dict[str, float], needs: dict[str, float]) -> int:
    return min((int(resources.get(key, 0) / needed) for key, needed in needs.items()), default=1)


def _needs_words(needs: dict[str, float]) -> str:
    return " and ".join(f"{needed:g} {key}" for key, needed in needs.items())
