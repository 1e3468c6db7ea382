"""Blocks dealt to the nodes of a Ray cluster. It is imported only when a cluster is asked for.

A block lost with its node or its process is run again. One sampled block is run on two nodes, and must come out alike.
"""

from __future__ import annotations

import logging
import os
import secrets
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Generic

import ray
from ray import exceptions as lost
from ray._private import worker as ray_worker
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from surefoot.compute import processor
from surefoot.errors import InputError, is_out_of_memory
from surefoot.files import source_hash, versions
from surefoot.play.plan import Plan as RunPlan
from surefoot.play.plan import agent_hash
from surefoot.play.ray_nodes import Room, able_nodes, blocks_at_a_time, find_cluster, needs_of
from surefoot.play.workers import Flight, Plan, Result

MOST_CRASHES, MOST_NODES = 3, 10  # how often one block may lose its process, or its node
LOST = (
    *(lost.NodeDiedError, lost.WorkerCrashedError, lost.OutOfMemoryError),
    *(lost.ObjectLostError, lost.TaskUnschedulableError, lost.LocalRayletDiedError),
)


@contextmanager
def ray_cluster(address: str = "auto") -> Iterator[RayCluster]:
    """Connect to a Ray cluster and disconnect in the end; a connection that there is already is used, and kept.

    Args:
        address: Host and port of the cluster, or "auto": that of ``RAY_ADDRESS``, else the one of this machine.

    Raises:
        InputError: If no cluster answers.
    """
    if ray.is_initialized():
        yield RayCluster()
        return
    found = find_cluster(os.environ.get("RAY_ADDRESS", "auto") if address == "auto" else address)
    try:
        ray.init(address=found, log_to_driver=False, logging_level=logging.ERROR)
    except (RuntimeError, ConnectionError, ValueError) as error:
        raise InputError(f"cannot use the Ray cluster at {found}: {error}") from error
    # Ray prints news of nodes to standard output, even so; there may be a JSON document.
    ray_worker._worker_logs_enabled = False
    try:
        yield RayCluster()
    finally:
        ray.shutdown()
        ray_worker._worker_logs_enabled = True


@dataclass(frozen=True)
class Order(Generic[Plan, Result]):
    """What workers get once: the work, its plan, and what their machines must have in common with this one."""

    work: Callable[[Plan, int], Result]
    plan: Plan
    fingerprint: Callable[[Result], str] | None
    identity: dict[str, str]
    cores: int

    def check(self) -> None:
        """Reject a machine whose results might be others."""
        here = identity_of(self.plan)
        differing = [key for key in {**self.identity, **here} if here.get(key) != self.identity.get(key)]
        if differing:
            what = ", ".join(f"{key} {here.get(key)} there, {self.identity.get(key)} here" for key in differing[:3])
            raise InputError(
                f"the Ray node {_address()} would run another program ({what}); install the same versions everywhere"
            )


@dataclass(frozen=True)
class Landed(Generic[Result]):
    """A result, where it was computed, and on which kind of processor."""

    node: str
    processor: str
    result: Result


def identity_of(plan: object) -> dict[str, str]:
    """Return versions and a hash of the code and, of a run, the hash of the agent as it is in this process."""
    agent = {"agent": agent_hash(plan.policy)} if isinstance(plan, RunPlan) else {}
    return {**versions(), "ray": ray.__version__, "source code": source_hash()[:12], **agent}


def _address() -> str:
    return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]


_accepted: tuple[str, Order[Any, Any]] | None = None


def _perform(box: list[ray.ObjectRef[Order[Any, Any]]], index: int, again: bool) -> Landed[Any]:
    """Compute one result on a worker; of one that is computed ``again`` return the fingerprint alone."""
    global _accepted  # noqa: PLW0603 - one order per worker process, unpacked and checked once
    key = box[0].hex()
    if _accepted is None or _accepted[0] != key:
        order = ray.get(box[0])
        order.check()
        _accepted = (key, order)
    order = _accepted[1]
    os.environ["SUREFOOT_CORES"] = str(order.cores)
    result = order.work(order.plan, index)
    if again:
        assert order.fingerprint is not None
        result = order.fingerprint(result)
    device = order.plan.device if isinstance(order.plan, RunPlan) else "cpu"
    return Landed(ray.get_runtime_context().get_node_id(), processor(device), result)


class RayCluster:
    """The nodes of a Ray cluster as workers; the process is connected already."""

    def describe(self) -> str:
        """Return how many nodes and cores there are."""
        nodes = able_nodes({})
        cores = sum(node["Resources"].get("CPU", 0) for node in nodes)
        return f"Ray, {len(nodes)} node{'s' * (len(nodes) != 1)}, {cores:g} CPUs"

    def at_a_time(self, gpu: float) -> int:
        """Return how many blocks its nodes run at a time."""
        return blocks_at_a_time(needs_of(gpu))

    def spread(
        self,
        work: Callable[[Plan, int], Result],
        plan: Plan,
        indices: Sequence[int],
        *,
        gpu: float = 0.0,
        fingerprint: Callable[[Result], str] | None = None,
    ) -> Generator[tuple[int, Result], None, None]:
        """Yield (index, work(plan, index)) as they are finished; see ``Workers``."""
        if not indices:
            return
        room = Room(needs_of(gpu))
        order = Order(work, plan, fingerprint, identity_of(plan), int(room.needs["CPU"]))
        tasks = Tasks(order, room.needs)
        flight = Flight[Landed[Result]](tasks.submit)
        sample = secrets.choice(indices[: room.now()]) if fingerprint is not None else None
        twins = Twins(fingerprint)
        try:
            for index, future in flight.over(indices, room.now):
                landed = tasks.landed(index, future)
                if landed is None:
                    flight.start(index)
                elif index < 0:
                    yield ~index, twins.compared(~index, landed)
                elif index == sample and (other := _other_node(landed, room.needs)):
                    # It is given out once its twin agrees: who has all results stops listening.
                    twins.first, tasks.place = landed, other
                    flight.start(~index)
                else:
                    yield index, landed.result
        finally:
            tasks.cancel()


class Tasks(Generic[Plan, Result]):
    """Ray's tasks, one per index, of an order that is sent once; ~index is the same one on the node ``place``."""

    def __init__(self, order: Order[Plan, Result], needs: dict[str, float]) -> None:
        # In a list, so that a worker gets the reference and unpacks the order once, not for every block.
        self.box = [ray.put(order)]
        self.remote = ray.remote(num_cpus=needs["CPU"], num_gpus=needs.get("GPU", 0), max_retries=0)(_perform)
        self.task = self.remote.options(scheduling_strategy="SPREAD")
        self.place: str | None = None
        self.flying: dict[int, ray.ObjectRef[Any]] = {}
        self.crashes: Counter[int] = Counter()
        self.nodes: Counter[int] = Counter()

    def submit(self, index: int) -> Future[Landed[Result]]:
        """Begin one result."""
        task = self.task
        if index < 0:
            assert self.place is not None
            task = self.remote.options(scheduling_strategy=NodeAffinitySchedulingStrategy(self.place, soft=True))
        self.flying[index] = task.remote(self.box, max(index, ~index), index < 0)
        future: Future[Landed[Result]] = self.flying[index].future()
        return future

    def landed(self, index: int, future: Future[Landed[Result]]) -> Landed[Result] | None:
        """Return the result; None if it was lost and is to be computed again."""
        del self.flying[index]
        try:
            return future.result()
        except LOST as error:
            self._count(max(index, ~index), error)
            return None
        except lost.RayTaskError as error:
            raise _cause(max(index, ~index), error) from error

    def _count(self, index: int, error: Exception) -> None:
        """Give up on a block that has cost too many processes or nodes."""
        died = not isinstance(error, lost.WorkerCrashedError | lost.OutOfMemoryError)
        counter, most = (self.nodes, MOST_NODES) if died else (self.crashes, MOST_CRASHES)
        counter[index] += 1
        if counter[index] < most:
            return
        reason = "its node died"
        if isinstance(error, lost.OutOfMemoryError):
            raise _out_of_memory(index)
        if not died:
            reason = "its process was killed (by the system for lack of memory, or by a crash of the environment)"
        raise InputError(f"block {index} was lost {most} times: {reason}; finished blocks are kept")

    def cancel(self) -> None:
        """End whatever is still running."""
        for ref in self.flying.values():
            with suppress(Exception):
                ray.cancel(ref, force=True)


def _cause(index: int, error: lost.RayTaskError) -> BaseException:
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


@dataclass
class Twins(Generic[Result]):
    """One block, run on two nodes."""

    fingerprint: Callable[[Result], str] | None
    first: Landed[Result] | None = None

    def compared(self, index: int, second: Landed[Any]) -> Result:
        """Return the first result if the second has its fingerprint, or was computed by another kind of processor.

        The record notes the kinds; that bits differ is then a warning, and otherwise an error.
        """
        assert self.first is not None
        assert self.fingerprint is not None
        if second.result == self.fingerprint(self.first.result) or second.node == self.first.node:
            return self.first.result
        places = " and ".join(f"{one.node[:12]} ({one.processor})" for one in (self.first, second))
        if second.processor == self.first.processor:
            raise InputError(
                f"block {index} has other returns on one Ray node than on another, though their processors are of one "
                f"kind: {places}; one of them is faulty, or has other libraries: find out which, and run again"
            )
        warnings.warn(
            f"processors of different kinds give other bits for block {index}: {places}; the record notes the "
            "processor of every block, and verifying a block needs the same kind",
            stacklevel=2,
        )
        return self.first.result


def _other_node(landed: Landed[Any], needs: dict[str, float]) -> str | None:
    """Return another node than a result was computed on, if there is one."""
    others = [str(node["NodeID"]) for node in able_nodes(needs) if node["NodeID"] != landed.node]
    return secrets.choice(others) if others else None
