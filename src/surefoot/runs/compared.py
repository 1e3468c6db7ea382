"""Episodes of two agents on the same seeds, a fixed number or until enough is proved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from surefoot.episodes import Episodes
from surefoot.play.plan import Plan
from surefoot.play.workers import Workers
from surefoot.proof.comparison import Comparer, Comparison, Question
from surefoot.runs.finish import finish_comparison
from surefoot.runs.folder import RunFolder
from surefoot.runs.sequential import run_until, sequential_setup, stream_blocks


def compared_run(
    plans: Mapping[str, Plan],
    question: Question,
    folder: Path,
    *,
    anytime: bool = False,
    workers: int | Workers = 1,
    progress: Callable[..., None] | None = None,
    command: str | None = None,
) -> Comparison:
    """Run both agents, compare them, and write everything into ``folder``; an interrupted run resumes there.

    Args:
        plans: What to run: "A", "B" and, where B's upper bound is to hold under an attack, "B-attacked".
        question: What is asked, fixed before the first episode.
        folder: The run directory, with one directory of episodes for each plan.
        anytime: Whether to stop as soon as the question is answered; else all episodes are run.
        workers: What runs the episodes, and changes no result.
        progress: Called with the numbers of finished and of all episodes, and the bounds so far in words.
        command: What was typed.
    """
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
            for store, record in zip(stores, records, strict=True):
                store.finish(record)
        else:
            for plan, store in zip(plans.values(), stores, strict=True):
                inner = _count_on(progress, sum(map(len, records)), planned)
                records.append(store.recorded(plan, workers=workers, progress=inner))
        comparison = comparer.answer(*records, stopped=stopped)
        return finish_comparison(folder, comparison, dict(zip(plans, records, strict=True)), command=command)


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
