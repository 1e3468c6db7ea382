"""Episodes of two agents in turn, until one is proved better, and the directory that is left of that."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.episodes import Episodes
from surefoot.files import versions, write_json
from surefoot.play.plan import Plan
from surefoot.play.rollout import blocks_in_order
from surefoot.play.workers import Workers
from surefoot.proof.comparison import Comparison, Contest
from surefoot.runs.certified import blocks_on_disk
from surefoot.runs.folder import RunFolder

NAME = "comparison.json"
SIDES = ("A", "B")


def compared_run(
    a: Plan,
    b: Plan,
    contest: Contest,
    folder: Path,
    *,
    workers: int | Workers = 1,
    progress: Callable[..., None] | None = None,
    command: str | None = None,
) -> Comparison:
    """Run both agents in turn until A is proved better or there is no more reason to hope, and write it down.

    Args:
        a: The agent that is claimed to be better.
        b: The other one; it may be undefended or under attack.
        contest: What is claimed, fixed before the first episode.
        folder: The run directory, with one directory of episodes for each agent; an interrupted run resumes there.
        workers: Number of processes, or other workers; they do not change the results.
        progress: Called with the numbers of episodes that are done and planned, and the bounds so far in words.
        command: What was typed to get this.
    """
    plans = (a, b)
    with ExitStack() as opened:
        stores = [
            opened.enter_context(RunFolder(folder / side, _setup_of(plan, contest)).opened())
            for side, plan in zip(SIDES, plans, strict=True)
        ]
        runs = [
            opened.enter_context(closing(_blocks(plan, store, workers)))
            for plan, store in zip(plans, stores, strict=True)
        ]
        report = None if progress is None else lambda done, note: progress(done, a.n_episodes + b.n_episodes, note)
        records, result = _run_until(contest, zip_longest(runs[0], runs[1]), report)
        for store, record in zip(stores, records, strict=True):
            store.finish(record)
        write_json(folder / NAME, {**result.to_json(), **_facts(a, b), "command": command, "versions": versions()})
    return result


def _blocks(plan: Plan, store: RunFolder, workers: int | Workers) -> Generator[Episodes, None, None]:
    done = blocks_on_disk(plan, store)
    return blocks_in_order(plan, workers=workers, done=done, on_block=store.save_block)


def _setup_of(plan: Plan, contest: Contest) -> dict[str, Any]:
    """Return what a directory must agree on to be resumed: bets for another claim would be made on returns seen."""
    goal = {"compare": contest.budget, "confidence": contest.confidence}
    return {**plan.setup(), "sequential": True, "goal": goal}


def _run_until(
    contest: Contest,
    pairs: Iterator[tuple[Episodes | None, Episodes | None]],
    report: Callable[[int, str], None] | None,
) -> tuple[list[Episodes], Comparison]:
    """Take a block of each agent until there is a reason to stop; return both records and the result.

    Blocks are inspected in the order of their numbers. Ctrl-C is a reason to stop like any other.
    """
    done: tuple[list[Episodes], list[Episodes]] = ([], [])
    returns, reason = [np.empty(0), np.empty(0)], "all played"
    try:
        for pair in pairs:
            for side, block in enumerate(pair):
                if block is not None:
                    done[side].append(block)
                    returns[side] = np.concatenate([returns[side], block.returns])
            stop = contest.reason_to_stop(returns[0], returns[1])
            if report is not None:
                report(returns[0].size + returns[1].size, contest.so_far)
            if stop is not None:
                reason = stop
                break
    except KeyboardInterrupt:
        if not all(done):
            raise
        reason = "stopped by hand"
    return [Episodes.concat(blocks) for blocks in done], contest.result(returns[0], returns[1], reason)


def _facts(a: Plan, b: Plan) -> dict[str, Any]:
    keys = ("task", "agent", "agent_sha256", "seed", "adversary", "budget")
    return {
        side: {"sigma": plan.noise.sigma, **{key: plan.facts()[key] for key in keys}}
        for side, plan in zip(SIDES, (a, b), strict=True)
    }
