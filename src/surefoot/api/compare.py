"""``surefoot.compare``: is one agent better than another under the worst attack? Runs both until that is proved."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from surefoot.agents.files import load_card
from surefoot.api.setup import (
    RUNS,
    AnyWorkers,
    ProgressCallback,
    as_processes,
    as_task,
    find_device,
    keep_on_interrupt,
    resolve_agent,
)
from surefoot.errors import InputError
from surefoot.files import safe_name
from surefoot.noise import Noise
from surefoot.play.plan import Plan, own_seed
from surefoot.play.task import Task
from surefoot.proof.comparison import Comparison, ComparisonMonitor
from surefoot.runs.attacked import AttackGrid
from surefoot.runs.compared import SIDES, compared_run
from surefoot.runs.folder import check_reusable


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """What the episodes of two agents prove about them, and where they are.

    >>> import surefoot
    >>> run = surefoot.compare("cartpole-1-ppo-s0.2", "cartpole-1-s0.8", budget=0.2, out="compared")
    >>> print(str(run).split(",")[0])
    With 95% confidence

    Attributes:
        comparison: The bounds on both agents.
        directory: The run directory, with both agents' episodes and ``comparison.json``.
        a: What was run of the agent that is claimed to be better.
        b: What was run of the other.
    """

    comparison: Comparison
    directory: Path
    a: Plan
    b: Plan

    @property
    def proved(self) -> bool:
        """Whether A is better than B under the worst attack with the budget."""
        return self.comparison.proved

    def __str__(self) -> str:
        a = _describe_agent(self.a)
        b = _describe_agent(self.b)
        return self.comparison.sentence(a, b, attacked=self.b.attacker is not None)


def compare(
    a: object,
    b: object,
    task: str | Task | None = None,
    *,
    budget: float,
    sigma: float | None = None,
    sigma_b: float | None = None,
    attack: str | None = None,
    confidence: float = 0.95,
    n_episodes: int = 10_000,
    seed: int | None = None,
    device: str = "cpu",
    workers: AnyWorkers = 1,
    out: str | Path | None = None,
    allow_pickle: bool = False,
    progress_callback: ProgressCallback | None = None,
    command: str | None = None,
) -> ComparedRun:
    """Prove that agent A is better than agent B under the worst attack, and stop as soon as that is so.

    >>> import os, tempfile
    >>> import surefoot
    >>> os.chdir(tempfile.mkdtemp())
    >>> run = surefoot.compare("cartpole-1-ppo-s0.2", "cartpole-1-s0.8", budget=0.2)
    >>> run.proved, run.comparison.n_episodes
    (True, (500, 500))

    Args:
        a: The agent that is to be proved better: what ``surefoot.rollout`` takes.
        b: The agent it is compared with.
        task: A task's name, or a Task; the one that A's model card names by default.
        budget: Attack budget, the l2 norm of all perturbations of one episode.
        sigma: A's noise; by default the one that its model card names.
        sigma_b: B's noise, 0 for an undefended agent; by default that of its model card, else A's.
        attack: Attack on B while it is measured, as ``surefoot.attack`` names it; none by default.
        confidence: That of the claim, valid whenever the run stops.
        n_episodes: Episodes of each agent at most.
        seed: Seed of the run; by default it follows from agents and setup.
        device: "cpu", "cuda" or "auto".
        workers: Processes to run episodes with, None for one per core, or other workers.
        out: The run directory; ``runs/NAME`` by default.
        allow_pickle: Let the agents' files execute code.
        progress_callback: Called with the numbers of finished and of all episodes, and the bounds so far in words.
        command: What was typed to get this.

    Raises:
        InputError: If an agent does not fit the task, if A has no noise, or if returns have no ceiling.
    """
    if task is None:
        task = _find_card(a).get("task")
        if task is None:
            raise InputError(f"nothing says what {a} was trained on; give task= or env=")
    task = as_task(task)
    if sigma is None:
        sigma = _find_card(a).get("sigma")
    if sigma is None:
        raise InputError(f"{a} does not say what noise it was trained with; give sigma=S")
    # An agent is smoothed with the noise it was trained with, unless that is not known.
    if sigma_b is None:
        sigma_b = _find_card(b).get("sigma", sigma)
    plan_a = _plan_agent(a, task, sigma, n_episodes, find_device(device, workers), allow_pickle)
    plan_b = _plan_agent(b, task, sigma_b, n_episodes, find_device(device, workers), allow_pickle)
    folder = _name_folder(plan_a, plan_b, seed) if out is None else Path(out)
    if seed is None:
        # One seed of both: neither agent can contain the random numbers of the comparison.
        seed = own_seed(plan_a, plan_b)
    plan_a = replace(plan_a, seed=seed)
    plan_b = replace(plan_b, seed=seed)
    if attack is not None:
        # Doing nothing is one of the attacks on B, and so is this one: its upper bound holds for the worst attack too.
        plan_b = AttackGrid(base=plan_b, budgets=(budget,), method=attack).plan(budget, None)
    limits = (task.scoring.floor, task.scoring.ceiling)
    contest = ComparisonMonitor(budget=budget, sigma=plan_a.noise.sigma, confidence=confidence, limits=limits)
    # Before workers start: episodes of other code of the same name would be taken for those of these agents.
    for side, plan in zip(SIDES, (plan_a, plan_b), strict=True):
        check_reusable(plan, folder / side)
    with keep_on_interrupt(folder):
        comparison = compared_run(
            plan_a,
            plan_b,
            contest,
            folder,
            workers=as_processes(workers, plan_a.gpu_share),
            progress=progress_callback,
            command=command,
        )
    return ComparedRun(comparison=comparison, directory=folder, a=plan_a, b=plan_b)


def _find_card(agent: object) -> dict[str, Any]:
    """Return an agent's model card, empty where it has none."""
    if not isinstance(agent, str):
        return {}
    # Files of other libraries have no card, and need none where the arguments say everything.
    try:
        return load_card(agent)
    except InputError:
        return {}


def _plan_agent(agent: object, task: Task, sigma: float, n_episodes: int, device: str, allow_pickle: bool) -> Plan:
    """Return the run of one agent, before its seed is known: that follows from both."""
    policy = resolve_agent(agent, task, allow_pickle=allow_pickle)
    return Plan(task=task, policy=policy, noise=Noise.of(float(sigma)), n_episodes=n_episodes, device=device)


def _describe_agent(plan: Plan) -> str:
    if not plan.noise.sigma:
        return f"{plan.policy.name}, undefended"
    return f"{plan.policy.name}, sigma {plan.noise.sigma:g}"


def _name_folder(a: Plan, b: Plan, seed: int | None) -> Path:
    given = "" if seed is None else f"-seed{seed}"
    return RUNS / safe_name(f"compare-{a.policy.name}-{b.policy.name}{given}-n{a.n_episodes}")
