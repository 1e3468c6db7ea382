"""Episodes of two agents in turn, until one is proved better, and the directory that is left of that."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from surefoot.files import write_json
from surefoot.play.plan import Plan
from surefoot.play.workers import Workers
from surefoot.proof.comparison import Comparison, ComparisonMonitor
from surefoot.provenance import versions
from surefoot.runs.folder import RunFolder
from surefoot.runs.sequential import run_until, sequential_setup, stream_blocks

COMPARISON_FILE = "comparison.json"
SIDES = ("A", "B")


def compared_run(
    a: Plan,
    b: Plan,
    contest: ComparisonMonitor,
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
    plans = dict(zip(SIDES, (a, b), strict=True))
    planned = a.n_episodes + b.n_episodes
    with ExitStack() as opened:
        stores = []
        streams = []
        for side, plan in plans.items():
            # The claim is part of each setup: bets made for one claim prove nothing about another.
            store = opened.enter_context(RunFolder(folder / side, sequential_setup(plan, contest.goal)).opened())
            stores.append(store)
            streams.append(stream_blocks(plan, store, workers))
        records, stopped = run_until(contest, *streams, planned=planned, progress=progress)
        result = contest.result(records[0].returns, records[1].returns, stopped)
        for store, record in zip(stores, records, strict=True):
            store.finish(record)
        content = result.to_json()
        for side, plan in plans.items():
            content[side] = _describe_side(plan)
        write_json(folder / COMPARISON_FILE, {**content, "command": command, "versions": versions()})
    return result


def _describe_side(plan: Plan) -> dict[str, Any]:
    """Return what ``comparison.json`` says of one of the runs."""
    facts = plan.facts()
    keys = ("task", "agent", "agent_sha256", "seed", "attacker", "budget")
    return {"sigma": plan.noise.sigma, **{key: facts[key] for key in keys}}
