"""Running a plan: ``play`` and ``blocks_in_order`` give its blocks to workers, collect and check them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from surefoot.compute import processor_kind
from surefoot.episodes import Episodes, checked_returns
from surefoot.errors import InputError
from surefoot.files import MOST_ARRAYS, check_size
from surefoot.play import meter
from surefoot.play.independence import check_independence
from surefoot.play.loop import play_block
from surefoot.play.plan import Plan
from surefoot.play.workers import DeadWorkerError, Workers, as_workers

Progress = Callable[[int, int], None]


def play(
    plan: Plan,
    *,
    workers: int | Workers = 1,
    done: Mapping[int, Episodes] | None = None,
    on_block: Callable[[int, Episodes], None] | None = None,
    progress: Progress | None = None,
) -> Episodes:
    """Run every block of the plan and return the record; for the arguments see ``blocks_in_order``."""
    blocks = blocks_in_order(plan, workers=workers, done=done, on_block=on_block, progress=progress)
    episodes = Episodes.concat(list(blocks))
    check_independence(episodes)
    return episodes


def blocks_in_order(
    plan: Plan,
    *,
    workers: int | Workers = 1,
    among: Sequence[int] | None = None,
    done: Mapping[int, Episodes] | None = None,
    on_block: Callable[[int, Episodes], None] | None = None,
    progress: Progress | None = None,
) -> Generator[Episodes, None, None]:
    """Yield the blocks of the plan by their numbers, checked; close the generator when there are enough.

    Args:
        among: Numbers of the blocks to run; all of them by default.
        done: Blocks among them that have been run before, by number.
        on_block: Called with number and block of every other one, as it is finished.
    """
    workers = as_workers(workers)
    ready = dict(done or {})
    if among is None:
        among = range(plan.n_blocks)
    missing = [number for number in among if number not in ready]
    count = sum(len(block) for block in ready.values())
    total = sum(plan.block_length(number) for number in among)
    meter.clear()
    if progress is not None:
        progress(count, total)
    with closing(run_blocks(plan, missing, workers)) as fresh:
        for index in among:
            # Blocks are finished in any order, and kept until it is their turn.
            while index not in ready:
                number, block = next(fresh)
                _check_block(plan, number, block)
                if on_block is not None:
                    on_block(number, block)
                ready[number] = block
                count += len(block)
                meter.clear(number)
                if progress is not None:
                    progress(count, total)
            yield ready.pop(index)


def run_blocks(
    plan: Plan, indices: Sequence[int], workers: int | Workers, *, backwards: bool = False
) -> Generator[tuple[int, Episodes], None, None]:
    """Yield the blocks as they are finished, with their numbers; ``backwards`` is for ``play_block``."""
    if plan.gpu_share:
        # What is on a GPU cannot be sent to another process.
        plan = replace(plan, policy=plan.policy.to("cpu"))
    try:
        run = run_backwards if backwards else run_block
        yield from as_workers(workers).map_unordered(run, plan, indices, gpu=plan.gpu_share)
    except DeadWorkerError as error:
        raise InputError(f"{error} (environment {plan.task.name}, agent {plan.policy.name})") from error


def run_backwards(plan: Plan, index: int) -> Episodes:
    """Run one block with its last draw of the noise first."""
    return run_block(plan, index, backwards=True)


def run_block(plan: Plan, index: int, *, backwards: bool = False) -> Episodes:
    """Run one block, and note on which kind of processor."""
    try:
        played = play_block(plan, index, backwards=backwards)
    except (Exception, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        # Sys.exit, above all: it must not end the command as if all were well.
        who = f"the agent {plan.policy.name} or the environment {plan.task.name}"
        raise InputError(f"{who} failed: {type(error).__name__}: {error}") from error
    return replace(played, processors=((processor_kind(plan.device), 1),))


def _check_block(plan: Plan, index: int, block: Episodes) -> None:
    """Reject at once what no certificate could be computed from, rather than after hours of simulation."""
    try:
        checked_returns(block.returns, plan.task.scoring.floor, plan.task.scoring.ceiling)
    except InputError as error:
        first = index * plan.block_size
        raise InputError(f"in episodes {first} to {first + len(block) - 1} of {plan.task.name}: {error}") from error
    if block.reward_values is not None and block.reward_repeats is not None:
        # If all blocks have as many rewards that differ from the one before, no file holds them.
        size = (block.reward_values.nbytes + block.reward_repeats.nbytes) * plan.n_blocks
        check_size(f"the rewards of {plan.n_episodes} episodes", "record", size, MOST_ARRAYS)
