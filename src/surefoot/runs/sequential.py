"""Runs that stop by themselves: block after block until a monitor has a reason, one agent or several in turn."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, closing
from itertools import zip_longest
from typing import Any

import numpy as np

from surefoot.episodes import Episodes
from surefoot.play.plan import Plan
from surefoot.play.rollout import blocks_in_order
from surefoot.play.workers import Workers
from surefoot.proof.stopping import StoppingMonitor
from surefoot.runs.folder import RunFolder

BlockStream = Generator[Episodes, None, None]


def sequential_setup(plan: Plan, goal: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a directory must agree on to be resumed.

    The bets of a sequential run are made for its goal: with another goal they would be made on returns already seen.
    """
    return {**plan.setup(), "sequential": True, "goal": goal}


def stream_blocks(plan: Plan, store: RunFolder, workers: int | Workers) -> BlockStream:
    """Return the blocks of a run in the order of their numbers: those on disk, then new ones, which are saved."""
    return blocks_in_order(plan, workers=workers, done=blocks_on_disk(plan, store), on_block=store.save_block)


def blocks_on_disk(plan: Plan, store: RunFolder) -> dict[int, Episodes]:
    """Return the blocks that have been run: those of a finished record too, for a run that resumes from there."""
    blocks = store.finished()
    if store.record.exists():
        record = Episodes.load(store.record)
        for first in range(0, len(record), plan.block_size):
            blocks[first // plan.block_size] = record[first : first + plan.block_size]
    return blocks


def run_until(
    monitor: StoppingMonitor, *streams: BlockStream, planned: int, progress: Callable[..., None] | None = None
) -> tuple[list[Episodes], str]:
    """Take a block of each stream in turn until the monitor has a reason to stop.

    Blocks are inspected in the order of their numbers, so a run stops at the same episode with any number of workers,
    uninterrupted or resumed. Ctrl-C is a reason to stop like any other, and what was run until then counts. A stream
    that ends before the others is not waited for. ``planned`` is how many episodes all streams may have together.

    Returns:
        The episodes of each stream, and the reason to stop.
    """
    done: list[list[Episodes]] = [[] for _ in streams]
    returns = [np.empty(0)] * len(streams)
    reason: str | None = None
    if progress is not None:
        progress(0, planned, monitor.so_far)
    try:
        with ExitStack() as opened:
            # Closed also on Ctrl-C, so that no worker goes on with a block that nobody will read.
            for stream in streams:
                opened.enter_context(closing(stream))
            for blocks in zip_longest(*streams):
                for number, block in enumerate(blocks):
                    if block is not None:
                        done[number].append(block)
                        returns[number] = np.concatenate([returns[number], block.returns])
                reason = monitor.reason_to_stop(*returns)
                if progress is not None:
                    progress(sum(one.size for one in returns), planned, monitor.so_far)
                if reason is not None:
                    break
    except KeyboardInterrupt:
        if not all(done):
            raise  # nothing to certify yet
        reason = "stopped by hand"
    return list(map(Episodes.concat, done)), reason or "all played"
