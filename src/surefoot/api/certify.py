"""``surefoot.certify_run``: episodes run, certified and written to a run directory; and shares of such a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from surefoot.agents.bundle import check_bundled, write_bundle
from surefoot.agents.policies import Sigma
from surefoot.api.returns import CertifiedRun
from surefoot.api.setup import RUNS, AnyWorkers, ProgressCallback, as_processes, as_task, keep_on_interrupt, plan_run
from surefoot.episodes import MOST_EPISODES
from surefoot.errors import InputError
from surefoot.play.baseline import count_episodes, find_baseline, outputs_of
from surefoot.play.plan import Plan
from surefoot.play.task import Task
from surefoot.play.workers import Workers
from surefoot.proof.query import Query
from surefoot.proof.step_budget import StepBudget
from surefoot.proof.stopping import StoppingRule
from surefoot.proof.threats import EPISODE
from surefoot.runs.certified import certified_run, run_name
from surefoot.runs.folder import check_reusable
from surefoot.runs.read import read_run
from surefoot.runs.shares import Share, run_share

N_EPISODES = 10_000  # of a run that does not say


def certify_run(
    task: str | Task,
    agent: object = None,
    *,
    sigma: Sigma | None = None,
    action_sigma: float = 0.0,
    query: Query | None = None,
    require: tuple[float, float] | None = None,
    stop: StoppingRule | None = None,
    n_episodes: int | None = None,
    draws_per_seed: int = 1,
    luck: str | None = None,
    seed: int | None = None,
    device: str = "cpu",
    workers: AnyWorkers = 1,
    out: str | Path | None = None,
    record: bool = False,
    baseline: bool | None = None,
    bundle: str | Path | tuple[str | Path, str | None] | None = None,
    progress_callback: ProgressCallback | None = None,
    command: str | None = None,
) -> CertifiedRun:
    """Run episodes of a smoothed agent, certify them, and write everything to a run directory.

    A run that was interrupted resumes from its directory; the same call twice runs nothing twice.

    >>> import os, tempfile
    >>> import surefoot
    >>> os.chdir(tempfile.mkdtemp())
    >>> run = surefoot.certify_run("cartpole-1", n_episodes=500, require=(100, 0.2))
    >>> run.proved, run.directory
    (True, PosixPath('runs/cartpole-1-s0.2-sigma0.2-n500'))

    Args:
        task: A task's name, or a Task (``surefoot.make_task`` makes one of any Gymnasium ID).
        agent: What ``surefoot.rollout`` takes; the task's pretrained agent by default.
        sigma: Standard deviation of the noise on every observation, as ``surefoot.rollout`` takes it; the paper's for
            this task by default, 0 where actions have noise.
        action_sigma: Standard deviation of the noise on every continuous action, added behind the attacker.
        query: What to certify, fixed before the first episode; by default the paper's budgets for its own tasks, else
            0 to 4 sigma.
        require: A mean return, and the attack budget at which it is to be proved: see ``CertifiedRun.proved``.
        stop: When a sequential run stops; the certificate is then anytime-valid. None runs all episodes.
        n_episodes: Number of episodes, 10,000 by default; with ``stop`` the most there may be.
        draws_per_seed: Episodes in a row that have the same seed of the environment and noise of their own, for
            certificates that are not worse for the environment's own luck; ``n_episodes`` counts all of them.
        luck: What is read of each episode at reset, before any noise: places in the first observation, counted from 0
            ("0,2"), or ``module:function`` of that observation and its info. If pilot episodes show that it decides
            much of the return, no attack is assumed to change that.
        seed: Seed of the run. By default it follows from agent and setup, so that no agent can contain it.
        device: "cpu", "cuda" or "auto".
        workers: Processes to run episodes with, None for one per core, or other workers; they do not change the
            results.
        out: The run directory; ``runs/NAME`` by default.
        record: Whether to record one more episode, without and under attack, for the report.
        baseline: Whether to measure the open-loop baseline of an environment that has none yet, which says where the
            certificate is uninformative; by default where that takes few episodes next to those of the run.
        bundle: The agent's file, or that and the file of its statistics (or "none"), to be copied into ``out``: then
            ``surefoot.verify`` needs nothing else elsewhere.
        progress_callback: Called with the numbers of finished and of all episodes, and with ``stop`` also with the
            bound so far, in words.
        command: What was typed to get this; the report shows it.

    Raises:
        InputError: If the agent does not fit the task, if the query cannot be answered by such episodes, or if ``out``
            holds another run.
    """
    if n_episodes is None:
        # A sequential run stops by its rule; only the size of a run limits it.
        n_episodes = N_EPISODES if stop is None else MOST_EPISODES
    if stop is not None and query is not None:
        _check_sequential(query)
    bundled, statistics = bundle if isinstance(bundle, tuple) else (bundle, None)
    if bundled is not None:
        # Before hours of episodes.
        check_bundled(bundled)
    plan = plan_run(
        as_task(task),
        agent,
        sigma=sigma,
        action_sigma=action_sigma,
        n_episodes=n_episodes,
        seed=seed,
        device=device,
        workers=workers,
        per_step=_keeps_steps(query),
        draws_per_seed=draws_per_seed,
        luck=luck,
    )
    query = query or Query.for_task(plan.task, plan.noise)
    if stop is not None:
        # All of alpha is used for the budget of the rule; bounds at the others follow from it.
        query = query.with_budget(stop.budget)
    if stop is not None and draws_per_seed > 1:
        raise InputError("draws_per_seed= cannot be combined with a sequential run")
    if stop is not None and luck is not None:
        raise InputError("luck= cannot be combined with a sequential run")
    name = run_name(plan)
    if stop is not None:
        name += "-sequential"
    required = None
    if require is not None:
        # The bound at its budget has to be one of those that hold simultaneously.
        required = require[1]
        query = query.with_budget(required)
    folder = RUNS / name if out is None else Path(out)
    # Before workers start: episodes of a function of the same name would be taken for those of this one.
    check_reusable(plan, folder)
    processes = as_processes(workers, plan.gpu_share)
    with keep_on_interrupt(folder):
        if baseline or (baseline is None and stop is None and can_afford_baseline(plan)):
            # What cannot be certified is rejected first.
            query.answer(plan.probe())
            try:
                plan = _with_baseline(plan, folder, processes, command)
            except InputError:
                # Of one that nobody asked for; the run says itself what is wrong with the environment, if anything is.
                if baseline:
                    raise
        certificate = certified_run(
            plan,
            query,
            folder,
            goal=stop,
            required=required,
            workers=processes,
            progress=progress_callback,
            command=command,
            record=record,
        )
    if bundled is not None:
        write_bundle(folder, bundled, vecnormalize=statistics, command=command)
    return CertifiedRun(certificate=certificate, directory=folder, task=plan.task, require=require)


def certify_share(
    task: str | Task,
    agent: object = None,
    *,
    share: Share,
    query: Query | None = None,
    workers: AnyWorkers = 1,
    out: str | Path | None = None,
    progress_callback: ProgressCallback | None = None,
    **how: Any,
) -> tuple[Path, int]:
    """Run a share of the blocks of a run into a directory of its own, and certify nothing.

    The arguments are those of ``certify_run`` for the whole run; the agent must have a hash.

    Returns:
        The directory, and the number of episodes in it.
    """
    plan = plan_run(as_task(task), agent, workers=workers, per_step=_keeps_steps(query), **how)
    check_shareable(plan)
    # What cannot be certified once all shares are there is rejected now.
    (query or Query.for_task(plan.task, plan.noise)).answer(plan.probe())
    folder = RUNS / (run_name(plan) + share.suffix) if out is None else Path(out)
    processes = as_processes(workers, plan.gpu_share)
    with keep_on_interrupt(folder):
        return folder, run_share(plan, share, folder, workers=processes, progress=progress_callback)


def _keeps_steps(query: Query | None) -> bool:
    """Return whether what is asked needs the rewards of every step."""
    return query is not None and isinstance(query.threat, StepBudget)


def can_afford_baseline(plan: Plan) -> bool:
    """Return whether the open-loop baseline is to be measured unasked: with at most half of the run's episodes.

    Of a vector simulator, which compiles for each policy, it is not.
    """
    if plan.task.baseline is not None or plan.task.backend.fixed_rows:
        return False
    try:
        _check_searchable(plan)
    except InputError:
        return False
    return 2 * count_episodes(plan.task) <= plan.n_episodes


def _check_searchable(plan: Plan) -> None:
    """Reject a plan whose open-loop baseline is not known how to be found, or would be one of other returns."""
    if plan.noise.action_sigma > 0 or plan.task.scoring.gamma is not None:
        raise InputError("baseline= is measured without a discount and without noise on actions; leave it out")
    outputs_of(plan.task)


def _with_baseline(plan: Plan, folder: Path, workers: Workers, command: str | None) -> Plan:
    """Return the plan with the open-loop baseline of its environment: that of a run that is finished, or a new one."""
    if plan.task.baseline is not None:
        return plan
    _check_searchable(plan)
    found = None
    if (folder / "run.json").exists():
        found = read_run(folder).baseline
    if found is None:
        found = find_baseline(plan.task, workers=workers, command=command)
    return replace(plan, task=replace(plan.task, baseline=found))


def check_shareable(plan: Plan) -> None:
    """Reject shares of an agent without a hash: nothing would say whether all are of the same agent."""
    if not plan.policy.sha256:
        raise InputError(f"blocks= needs an agent with a hash, and {plan.policy.name} is code; use ray= or workers=")


def _check_sequential(query: Query) -> None:
    """Reject a query that bets on one budget of whole episodes cannot answer."""
    if query.method not in (None, "auto", "sequential"):
        raise InputError(f'a sequential run is certified by method="sequential", got {query.method}')
    if query.wants_distribution:
        raise InputError("thresholds=, quantiles= and cvars= cannot be combined with a sequential run")
    if query.threat != EPISODE or query.norm is not None:
        raise InputError("per_step=, n_shared_episodes= and norm= cannot be combined with a sequential run")
