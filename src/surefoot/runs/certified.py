"""From a plan and a query to a finished run directory, with or without a reason to stop early."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from surefoot.files import read_json, safe_name
from surefoot.play.plan import Plan, own_seed
from surefoot.play.workers import Workers, as_workers
from surefoot.proof.certificate import Certificate
from surefoot.proof.query import Query
from surefoot.proof.stopping import Monitor, StoppingRule
from surefoot.provenance import sha256, versions
from surefoot.report.certificate_text import headline_index
from surefoot.runs.finish import finish_run
from surefoot.runs.folder import RunFolder, noise_name
from surefoot.runs.sequential import run_until, sequential_setup, stream_blocks
from surefoot.runs.taped_episode import attacked_plan, record_replay

LONGEST_RUN_NAME = 150  # letters of a directory's name that say what is in it


def run_name(plan: Plan) -> str:
    """Return the name of a run directory: all that usually differs between runs."""
    task = plan.task.name
    suffix = ""
    # Arguments and wrappers, which are part of its name, make another task of an environment.
    if task.startswith(f"{plan.task.environment} with "):
        suffix = f"-{_hash_briefly(task)}"
        task = plan.task.environment
    agent = plan.policy.name
    if task not in agent:
        agent = f"{task}-{agent}"
    name = f"{agent}{suffix}-sigma{noise_name(plan.noise)}"
    if plan.seed != own_seed(plan):
        name += f"-seed{plan.seed}"
    name += f"-n{plan.n_episodes}"
    if plan.device == "cuda":
        name += "-cuda"
    if plan.per_step:
        name += "-steps"
    if plan.draws_per_seed > 1:
        name += f"-draws{plan.draws_per_seed}"
    if plan.luck is not None:
        name += f"-luck{_hash_briefly(plan.luck)}"
    if plan.task.scoring.gamma is not None:
        name += f"-discount{plan.task.scoring.gamma:g}"
    # File systems take names of up to 255 bytes.
    if len(name) > LONGEST_RUN_NAME:
        return f"{safe_name(name[:LONGEST_RUN_NAME])}-{_hash_briefly(name)}"
    return safe_name(name)


def _hash_briefly(text: str) -> str:
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
    record: bool = False,
    figure: bool = True,
) -> Certificate:
    """Run the episodes that are missing, certify, and write everything into ``folder``; a killed run resumes there.

    Args:
        goal: When to stop early; the certificate is then anytime-valid. None runs every episode of the plan.
        required: Budget of a requirement, which the report's sentence and the recorded attack are then about.
        workers: What runs the episodes, and changes no result.
        progress: Called with the numbers of finished and of all episodes, and with a goal with the bound so far.
        record: Whether to record one more episode, without and under a quick attack, for the report.
    """
    workers = as_workers(workers)
    # A query that such episodes cannot answer is rejected before hours are spent on them.
    query.answer(plan.probe())
    began = time.monotonic()
    setup = plan.setup() if goal is None else sequential_setup(plan, goal.to_json())
    with RunFolder(folder, setup).opened() as store:
        reused = goal is None and store.record.exists()
        resumed = store.record.exists() or bool(store.finished())
        if goal is None:
            episodes = store.recorded(plan, workers=workers, progress=progress)
            ran = time.monotonic()
            certificate = query.answer(episodes)
        else:
            certificate, ran = _certify_sequentially(plan, query, store, goal, workers, progress)
        ended = time.monotonic()
        times = {
            "versions": versions(),
            "wall_seconds": round(ended - began, 3),
            "play_seconds": round(ran - began, 3),
            "workers": workers.describe(),
        }
        if reused:
            # Nothing was run now: versions and times stay those of the process that ran the episodes.
            written = read_json(folder / "run.json") if (folder / "run.json").exists() else {}
            times = {key: written.get(key) for key in times}
        metadata = {
            "agent_sha256": plan.policy.sha256 or None,
            **times,
            "resumed": resumed,
            "certified_with": versions(),
            "certify_seconds": round(ended - ran, 3),
            "step": query.threshold_spacing,
        }
        if goal is not None:
            metadata["goal"] = goal.to_json()
            metadata["stopped"] = (certificate.method_selection or {})["stopped"]
        metadata["required_budget"] = required
        metadata["replay"] = None
        if record:
            metadata["replay"] = record_replay(_plan_tracks(plan, certificate, required), folder)
        finish_run(folder, certificate, metadata=metadata, baseline=plan.task.baseline, command=command, figure=figure)
    return certificate


def _certify_sequentially(
    plan: Plan,
    query: Query,
    store: RunFolder,
    goal: StoppingRule,
    workers: Workers,
    progress: Callable[..., None] | None,
) -> tuple[Certificate, float]:
    """Run episodes until the goal is reached; return the certificate, and when the last episode was over."""
    monitor = Monitor(
        goal,
        confidence=query.confidence,
        sigma=plan.noise.budget_sigma,
        floor=plan.task.scoring.floor,
        ceiling=plan.task.scoring.ceiling,
    )
    stream = stream_blocks(plan, store, workers)
    (episodes,), stopped = run_until(monitor, stream, planned=plan.n_episodes, progress=progress)
    ran = time.monotonic()
    certificate = monitor.certificate(episodes, budgets=query.budgets, stopped=stopped)
    store.finish(episodes)
    return certificate, ran


def _plan_tracks(plan: Plan, certificate: Certificate, required: float | None) -> dict[str, Plan]:
    """Return what to record: an episode, and next to it an attack, unless the budget is not that of one episode."""
    tracks = {"quiet": plan}
    # The page shows what is done to observations; of attacks on actions it would show nothing.
    if certificate.kind is not None or certificate.action_sigma > 0:
        return tracks
    about = headline_index(certificate, required, plan.task.baseline)
    attacked = attacked_plan(plan, float(certificate.budgets[about]))
    if attacked is not None:
        tracks["attacked"] = attacked
    return tracks
