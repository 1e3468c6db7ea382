"""How tensors are computed, for every folder that uses torch.

- ``expand_rows`` and ``row_norms``: one value for each row.
- ``single_thread``, ``usable_cores`` and ``keep_freed_memory``: threads, cores and memory of this process.
- ``processor_kind``: which kind of processor computes, on which the last bits of a network's output may depend.
"""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from torch import Tensor

KEPT = 2**24  # bytes


def expand_rows(values: Tensor, like: Tensor) -> Tensor:
    """Return one value per row in a shape that goes with ``like``."""
    return values.view(-1, *[1] * (like.dim() - 1))


def row_norms(offset: Tensor) -> Tensor:
    """Return the l2 norm of each row, float64."""
    sizes: Tensor = torch.linalg.vector_norm(offset.flatten(1), dim=1, dtype=torch.float64)
    return sizes


def all_finite(values: Tensor) -> bool:
    """Return whether no number is infinite or NaN."""
    # Either would spoil the sum, which takes a fifth of the time; a sum of large numbers may overflow without.
    return bool(values.sum().isfinite()) or bool(values.isfinite().all())


@contextmanager
def single_thread() -> Iterator[None]:
    """Compute with one thread: the same bits whatever else runs, and no collapse when processes share the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def keep_freed_memory() -> None:
    """Let the C library reuse the memory of each step's tensors instead of returning it to the system.

    glibc returns what is freed above a threshold, and every step would fault the same pages in again, a tenth of the
    time of a recurrent agent. The threshold rises to the largest block that was ever freed; this one is never touched.
    """
    torch.empty(KEPT, dtype=torch.uint8)


def usable_cores() -> int:
    """Return how many cores this process may run on; ``SUREFOOT_CORES`` lowers it where others share the machine."""
    most = os.environ.get("SUREFOOT_CORES", "")
    return max(1, min(_allowed_cores(), int(most))) if most.isdecimal() else _allowed_cores()


def _allowed_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def processor_kind(device: str) -> str:
    """Return the kind of processor: a CPU's model and the instructions that torch uses of it, or a GPU's name."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name()
    facts = dict.fromkeys(("model name", "cpu family", "model"), "")
    with suppress(OSError):
        # Of the first core; virtual machines often give a name that many models share.
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
        facts |= {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first)}
    name = facts["model name"] or platform.processor() or platform.machine()
    numbers = f" family {facts['cpu family']} model {facts['model']}" if facts["cpu family"] else ""
    return f"{name}{numbers}, {torch.backends.cpu.get_cpu_capability()}"
