"""Which kind of processor computes here: where kinds differ, the last bits of a network's output may."""

from __future__ import annotations

import functools
import platform
from contextlib import suppress
from pathlib import Path

import torch


@functools.cache
def processor(device: str) -> str:
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
