"""From a plan and a query to a finished run directory, with or without a reason to stop early."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.episodes import Episodes
from surefoot.files import read_json, safe_name, sha256, versions, write_json
from surefoot.play.plan import Plan, own_seed
from surefoot.play.rollout import blocks_in_order
from surefoot.play.workers import Workers, as_workers
from surefoot.proof.certificate import Certificate
from surefoot.proof.query import Query
from surefoot.proof.stopping import Monitor, StoppingRule
from surefoot.report.certificate_text import headline_index
from surefoot.runs.finish import finish_run
from surefoot.runs.folder import RunFolder
from surefoot.runs.taped_episode import attacked_plan, record_replay

MOST_LETTERS = 150  # of a directory's name that says what is in it


def run_name(plan: Plan) -> str:
    """Return the name of a run directory: all that usually differs between runs."""
    task, known = plan.task, plan.task.environment
    # Arguments and wrappers, which are part of its name, make another task of an environment.
    changed = f"-{_short(task.name)}" if task.name.startswith(f"{known} with ") else ""
    whole = known if changed else task.name
    agent = plan.policy.name if whole in plan.policy.name else f"{whole}-{plan.policy.name}"
    agent += changed
    where = "-cuda" if plan.device == "cuda" else ""
    seed = "" if plan.seed == own_seed(plan) else f"-seed{plan.seed}"
    name = f"{agent}-sigma{_noise_name(plan)}{seed}-n{plan.n_episodes}{where}{'-steps' if plan.per_step else ''}"
    name += "" if plan.task.scoring.gamma is None else f"-discount{plan.task.scoring.gamma:g}"
    # File systems take names of up to 255 bytes.
    return safe_name(name) if len(name) <= MOST_LETTERS else f"{safe_name(name[:MOST_LETTERS])}-{_short(name)}"


def _noise_name(plan: Plan) -> str:
    features = plan.noise.features
    if features is None:
        return f"{plan.noise.sigma:g}"
    shown = "_".join(f"{sigma:g}" for sigma in features[:8])
    return shown if len(features) <= 8 else f"{shown}_{_short(repr(features))}"


def _short(text: str) -> str:
    return sha256(text.encode())[:12]


def certified_run(
    plan: Plan,
    query: Query,
    folder: Path,
    *,
    goal: StoppingRule | None = None,
    required: float | None = None,
    workers: int | Workers = 1,
    progress: Callable[..., None] | None = None,
    command: str | None = None,
) -> Certificate:
    """Run the episodes that are missing, certify, and write everything into ``folder``.

    Args:
        plan: What to run.
        query: What to certify, fixed before the first episode.
        folder: The run directory; a run that was killed resumes there.
        goal: When to stop early; the certificate is then anytime-valid. None runs every episode of the plan.
        required: Budget of a requirement, which the report's sentence and the taped attack are then about.
        workers: Number of processes, or other workers; they do not change the results.
        progress: Called with the number of episodes that are done and the number planned, and with a goal also with
            the bound so far, in words.
        command: What was typed to get this; the report shows it.
    """
    workers = as_workers(workers)
    query.answer(plan.probe())
    began = time.monotonic()
    if goal is not None:
        _add_goal(folder)
    with RunFolder(folder, _setup_of(plan, goal)).opened() as store:
        reused = goal is None and store.record.exists()
        resumed = store.record.exists() or bool(store.finished())
        certificate, ran = _certified(plan, query, store, goal, workers, progress)
        ended = time.monotonic()
        facts = {
            "versions": versions(),
            "wall_seconds": round(ended - began, 3),
            "play_seconds": round(ran - began, 3),
            "workers": workers.describe(),
        }
        metadata = {
            "agent_sha256": plan.policy.sha256 or None,
            **(_facts_of_play(folder / "run.json", facts) if reused else facts),
            "resumed": resumed,
            "certified_with": versions(),
            "certify_seconds": round(ended - ran, 3),
            "step": query.threshold_spacing,
            **({} if goal is None else {"goal": goal.to_json(), "stopped": _reason(certificate)}),
            "required_budget": required,
            "replay": record_replay(plan, _attacked(plan, certificate, required), folder),
        }
        finish_run(folder, certificate, metadata=metadata, baseline=plan.task.baseline, command=command)
    return certificate


def _setup_of(plan: Plan, goal: StoppingRule | None) -> dict[str, Any]:
    """Return what a directory must agree on to be resumed.

    The bets of a sequential run are made for its goal: with another goal they would be made on returns already seen.
    """
    return {**plan.setup(), **({} if goal is None else {"sequential": True, "goal": goal.to_json()})}


def _add_goal(folder: Path) -> None:
    """Add the goal to the setup of a run from before goals were part of it, as its ``run.json`` has it."""
    setup, run = folder / "setup.json", folder / "run.json"
    if setup.exists() and run.exists():
        written = read_json(setup)
        if written.get("sequential") is True and "goal" not in written:
            write_json(setup, {**written, "goal": read_json(run).get("goal")})


def _certified(
    plan: Plan,
    query: Query,
    store: RunFolder,
    goal: StoppingRule | None,
    workers: Workers,
    progress: Callable[..., None] | None,
) -> tuple[Certificate, float]:
    """Return the certificate, and when the last episode was over."""
    if goal is None:
        episodes = store.recorded(plan, workers=workers, progress=progress)
        ran = time.monotonic()
        return query.answer(episodes), ran
    floor, ceiling = plan.task.scoring.floor, plan.task.scoring.ceiling
    monitor = Monitor(goal, confidence=query.confidence, sigma=plan.noise.sigma, floor=floor, ceiling=ceiling)
    blocks = blocks_in_order(plan, workers=workers, done=blocks_on_disk(plan, store), on_block=store.save_block)
    report = None if progress is None else lambda done: progress(done, plan.n_episodes, monitor.so_far)
    episodes, stopped = _run_until(monitor, blocks, report)
    ran = time.monotonic()
    certificate = monitor.certificate(episodes, budgets=query.budgets, stopped=stopped)
    store.finish(episodes)
    return certificate, ran


def _run_until(
    monitor: Monitor, blocks: Generator[Episodes, None, None], report: Callable[[int], None] | None
) -> tuple[Episodes, str]:
    """Take block after block until the monitor has a reason to stop; return the episodes and the reason.

    Blocks are inspected in the order of their numbers, so a run stops at the same episode with any number of workers,
    uninterrupted or resumed. Ctrl-C stops it too, and what was run until then is certified.
    """
    done: list[Episodes] = []
    returns = np.empty(0)
    if report is not None:
        report(0)
    try:
        with closing(blocks):
            for block in blocks:
                done.append(block)
                returns = np.concatenate([returns, block.returns])
                reason = monitor.reason_to_stop(returns)
                if report is not None:
                    report(returns.size)
                if reason is not None:
                    return Episodes.concat(done), reason
    except KeyboardInterrupt:
        if not done:
            raise
        return Episodes.concat(done), "stopped by hand"
    return Episodes.concat(done), "all played"


def blocks_on_disk(plan: Plan, store: RunFolder) -> dict[int, Episodes]:
    """Return the blocks that have been run: those of a finished record too, for a run that resumes from there."""
    blocks = store.finished()
    if store.record.exists():
        record, size = Episodes.load(store.record), plan.block_size
        blocks |= {first // size: record[first : first + size] for first in range(0, len(record), size)}
    return blocks


def _reason(certificate: Certificate) -> str:
    return str((certificate.method_selection or {})["stopped"])


def _attacked(plan: Plan, certificate: Certificate, required: float | None) -> Plan | None:
    """Return an attack to show next to the quiet episode; none where the budget is not that of one episode."""
    if certificate.kind is not None:
        return None
    about = headline_index(certificate, required, plan.task.baseline)
    return attacked_plan(plan, float(certificate.budgets[about]))


def _facts_of_play(path: Path, keys: Iterable[str]) -> dict[str, Any]:
    """Return what the run that played has written down; None for what it did not live to write."""
    written = read_json(path) if path.exists() else {}
    return {key: written.get(key) for key in keys}
