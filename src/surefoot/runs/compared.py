"""Episodes of two agents on the same seeds, a fixed number or until enough is proved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from surefoot.episodes import Episodes
from surefoot.play.plan import Plan
from surefoot.play.workers import Workers
from surefoot.proof.comparison import Comparer, Comparison, Question
from surefoot.runs.finish import finish_comparison
from surefoot.runs.folder import RunFolder, check_no_run
from surefoot.runs.sequential import run_until, sequential_setup, stream_blocks
from surefoot.runs.taped_episode import record_replay


def compared_run(
    plans: Mapping[str, Plan],
    question: Question,
    folder: Path,
    *,
    anytime: bool = False,
    workers: int | Workers = 1,
    progress: Callable[..., None] | None = None,
    command: str | None = None,
    record: bool = False,
) -> Comparison:
    """Run both agents, compare them, and write everything into ``folder``; an interrupted run resumes there.

    Args:
        plans: What to run: "A", "B" and, where B's upper bound is to hold under an attack, "B-attacked".
        question: What is asked, fixed before the first episode.
        folder: The run directory, with one directory of episodes for each plan.
        anytime: Whether to stop as soon as the question is answered; else all episodes are run.
        workers: What runs the episodes, and changes no result.
        progress: Called with the numbers of finished and of all episodes, and the bounds so far in words.
    """
    check_no_run(folder)
    comparer = Comparer(question, made_up(plans["A"]), made_up(plans["B"]), anytime=anytime)
    planned = sum(plan.n_episodes for plan in plans.values())
    stopped = None
    records: list[Episodes] = []
    with ExitStack() as opened:
        stores = []
        for side, plan in plans.items():
            # The question is part of each setup: bets made for one claim prove nothing about another.
            setup = sequential_setup(plan, comparer.goal) if anytime else plan.setup()
            stores.append(opened.enter_context(RunFolder(folder / side, setup).opened()))
        if anytime:
            streams = [stream_blocks(plan, store, workers) for plan, store in zip(plans.values(), stores, strict=True)]
            records, stopped = run_until(comparer, *streams, planned=planned, progress=progress)
            for store, played in zip(stores, records, strict=True):
                store.finish(played)
        else:
            for plan, store in zip(plans.values(), stores, strict=True):
                inner = _count_on(progress, sum(map(len, records)), planned)
                records.append(store.recorded(plan, workers=workers, progress=inner))
        comparison = comparer.answer(*records, stopped=stopped)
        recorded = dict(zip(plans, records, strict=True))
        why_no_replay = None
        if record:
            why_no_replay = _record_most_different(plans, recorded, comparison.pairing, folder)
        return finish_comparison(folder, comparison, recorded, command=command, why_no_replay=why_no_replay)


def _record_most_different(
    plans: Mapping[str, Plan], records: Mapping[str, Episodes], pairing: str, folder: Path
) -> str | None:
    """Record the episode in which the returns of A and B differ most; return why not, if not."""
    if pairing != "seeds":
        return "the episodes of the two have nothing in common"
    a = records["A"].returns
    b = records["B"].returns
    episode = int(np.argmax(np.abs(a - b)))
    pair = {side: plans[side] for side in "AB"}
    return record_replay(pair, folder, episode=episode, returns=(a[episode], b[episode]))


def made_up(plan: Plan) -> Episodes:
    """Return a record of this setup with made-up returns: a question is refused before hours of simulation."""
    return Episodes(
        returns=plan.probe().returns,
        sigma=plan.noise.sigma,
        floor=plan.task.scoring.floor,
        ceiling=plan.task.scoring.ceiling,
        metadata=plan.facts(),
    )


def _count_on(progress: Callable[..., None] | None, done: int, planned: int) -> Callable[[int, int], None] | None:
    """Return what reports the progress of one agent as a part of all."""
    if progress is None:
        return None
    return lambda more, _: progress(done + more, planned)
