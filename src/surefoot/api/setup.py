"""From what a user names to what is run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from surefoot.agents.files import default_agent
from surefoot.agents.imported import IMPORT_NAME
from surefoot.agents.policies import Policy, Sigma
from surefoot.agents.resolve import as_policy
from surefoot.compute import usable_cores
from surefoot.errors import InputError, Interrupted
from surefoot.noise import Noise
from surefoot.play.plan import Plan, resolve_device, seeded_plan
from surefoot.play.task import Task
from surefoot.play.tasks import get_task
from surefoot.play.workers import Processes, Workers, can_fork, run_apart
from surefoot.runs.folder import kept_episodes

RUNS = Path("runs")  # where run directories are by default
AnyWorkers = int | Workers | None
ProgressCallback = Callable[..., None]


def as_task(task: str | Task) -> Task:
    """Return the task of a name."""
    if isinstance(task, str):
        return get_task(task)
    return task


def resolve_agent(agent: object, task: Task, **options: Any) -> Policy:
    """Return the agent as a policy for a task; one that is named code is first tried in a process that it may end."""
    make = partial(as_policy, agent, task.spaces, **options)
    if isinstance(agent, str) and IMPORT_NAME.fullmatch(agent):
        run_apart(f"trying the agent {agent}", _make_policy, make)
    return make()


def _make_policy(make: Callable[[], object], _: int) -> None:
    # Nothing is returned: code of a user may not be what can be sent between processes.
    make()


def noise_of(task: Task, sigma: Sigma | None, action_sigma: float = 0.0) -> Noise:
    """Return the noise; where no sigma is named the paper's, and none on observations where actions have some."""
    if sigma is None:
        sigma = 0.0 if action_sigma > 0 else task.paper.sigma
    return Noise.of(task.spaces.sigma_of(sigma), action_sigma)


def plan_run(
    task: Task,
    agent: object,
    *,
    sigma: Sigma | None = None,
    action_sigma: float = 0.0,
    n_episodes: int,
    seed: int | None = None,
    device: str = "cpu",
    workers: AnyWorkers = 1,
    per_step: bool = False,
    draws_per_seed: int = 1,
    luck: str | None = None,
) -> Plan:
    """Return the plan of a run, with the seed that follows from agent and setup where none is given.

    The arguments are those of ``certify_run``; ``per_step`` says whether rewards of each step are kept.
    """
    noise = noise_of(task, sigma, action_sigma)
    if action_sigma > 0:
        # A fixed sequence of actions is a baseline because no attack on observations affects it.
        task = replace(task, baseline=None)
    if agent is None and noise.features is not None:
        raise InputError("there is no pretrained agent for a sigma per feature; name one with agent=")
    if agent is None:
        agent = default_agent(task.name, noise.sigma)
    plan = Plan(
        task=task,
        policy=resolve_agent(agent, task),
        noise=noise,
        n_episodes=n_episodes,
        device=find_device(device, workers),
        per_step=per_step,
        draws_per_seed=draws_per_seed,
        luck=luck,
    )
    return seeded_plan(plan, seed)


def find_device(device: str, workers: AnyWorkers) -> str:
    """Return "cpu" or "cuda"; "auto" is what this machine has, unless others run the episodes."""
    # A cluster's nodes may have a GPU where this machine has none.
    is_remote = not (workers is None or isinstance(workers, int | Processes))
    return resolve_device(device, remote=is_remote)


def as_processes(workers: AnyWorkers, gpu_share: float = 0.0) -> Workers:
    """Return workers; a number is one of processes, None as many as the machine can keep busy.

    Args:
        gpu_share: Share of a GPU that a block fills; as many processes share one.
    """
    if workers is None:
        # Blocks that do not fill a GPU share it; more processes than that only wait for each other.
        workers = round(1 / gpu_share) if gpu_share else usable_cores()
    if isinstance(workers, int):
        # An environment or an agent that ends its process must not end ours; a forked process cannot use CUDA.
        return Processes(workers, isolated=can_fork() and not gpu_share)
    return workers


@contextmanager
def keep_on_interrupt(folder: Path) -> Iterator[None]:
    """Let Ctrl-C say how many episodes are kept in a run directory."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        n_kept = kept_episodes(folder)
        # Nothing is promised where nothing was saved.
        if not n_kept:
            raise
        message = f"{n_kept:,} episodes are kept in {folder}. Run the same command again to resume."
        raise Interrupted(message) from stopped
