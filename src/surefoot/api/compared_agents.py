"""Two agents that are to be compared, as two plans on the same seeds; and their run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.agents.files import load_card
from surefoot.agents.policies import Sigma
from surefoot.api.setup import RUNS, as_processes, as_task, find_device, keep_on_interrupt, noise_of, resolve_agent
from surefoot.attacks.registry import named_attack
from surefoot.errors import InputError
from surefoot.files import safe_name
from surefoot.noise import Noise
from surefoot.play.environments import task_of_card
from surefoot.play.plan import Plan, own_seed
from surefoot.play.task import Task
from surefoot.proof.comparison import Comparer, Comparison, Question, check_budgets_count_alike
from surefoot.runs.attacked import AttackGrid
from surefoot.runs.compared import compared_run, made_up
from surefoot.runs.folder import check_reusable

if TYPE_CHECKING:
    from surefoot.api.setup import AnyWorkers, ProgressCallback


@dataclass(frozen=True, kw_only=True)
class AgentOptions:
    """How two agents are run; ``surefoot.compare`` describes each."""

    task: str | Task | None = None
    sigma: Sigma | None = None
    sigma_b: Sigma | None = None
    action_sigma: float = 0.0
    action_sigma_b: float | None = None
    attack: str | None = None
    n_episodes: int
    anytime: bool
    seed: int | None = None
    device: str
    workers: AnyWorkers
    out: Path | None
    n_stack: int | None = None
    stochastic: bool = False
    pixel_max: float | None = None
    allow_pickle: bool = False
    vecnormalize: object = None
    vecnormalize_b: object = None
    progress_callback: ProgressCallback | None
    command: str | None
    record: bool = False


def compare_agents(a: object, b: object, question: Question, options: AgentOptions) -> Comparison:
    """Run two agents on the same episodes and compare them."""
    task = _find_task(a, options.task)
    sigma = options.sigma
    if sigma is None:
        # As for other commands: who asks for noise on actions alone gets that alone.
        sigma = 0.0 if options.action_sigma > 0 else _find_card(a).get("sigma")
    if sigma is None:
        raise InputError(f"{a} does not say what noise it was trained with; give sigma=S")
    # An agent is smoothed with the noise it was trained with, unless that is not known.
    sigma_b = options.sigma_b
    if sigma_b is None:
        sigma_b = sigma if options.action_sigma > 0 else _find_card(b).get("sigma", sigma)
    action_sigma_b = options.action_sigma_b
    if action_sigma_b is None:
        action_sigma_b = options.action_sigma
    noises = [noise_of(task, sigma, options.action_sigma), noise_of(task, sigma_b, action_sigma_b)]
    if options.attack is not None and any(noise.action_sigma > 0 for noise in noises):
        raise InputError("attack= on B perturbs observations; with noise on actions (action_sigma=) leave it out")
    plan_a = _plan_agent(a, task, noises[0], options, options.vecnormalize)
    try:
        plan_b = _plan_agent(b, task, noises[1], options, options.vecnormalize_b)
    except InputError as error:
        raise InputError(str(error).replace("vecnormalize=", "vecnormalize_b=")) from error
    plans = _on_same_seeds(plan_a, plan_b, options.seed)
    if options.attack is not None:
        if not question.budgets:
            raise InputError("attack= needs budgets=: the attack on B is for its bound under attack")
        check_budgets_count_alike(plan_a.noise, plan_b.noise)
        # Within the smallest budget, the attack is one of the attacks with each of the others too.
        name, own = named_attack(options.attack)
        grid = AttackGrid(base=plans["B"], budgets=question.budgets[:1], method=str(name), own=own)
        plans["B-attacked"] = grid.plan(question.budgets[0], None)
    # What cannot be compared is refused before anything is run or written.
    Comparer(question, made_up(plans["A"]), made_up(plans["B"]), anytime=options.anytime)
    folder = options.out or _name_folder(plan_a, plan_b, options)
    # Before workers start: episodes of other code of the same name would be taken for those of these agents.
    for side, plan in plans.items():
        check_reusable(plan, folder / side)
    with keep_on_interrupt(folder):
        return compared_run(
            plans,
            question,
            folder,
            anytime=options.anytime,
            workers=as_processes(options.workers, plan_a.gpu_share),
            progress=options.progress_callback,
            command=options.command,
            record=options.record,
        )


def _on_same_seeds(a: Plan, b: Plan, seed: int | None) -> dict[str, Plan]:
    """Return both plans with the same environment seeds and noise for episode i.

    An environment runs one episode of a block: a second one would begin at another step of the noise for each agent,
    and share draws with another episode of the other. Agents that draw their actions get seeds of their own instead.
    """
    n_envs = min(a.block_envs, b.block_envs)
    a = replace(a, n_envs=n_envs, episodes_per_env=1)
    b = replace(b, n_envs=n_envs, episodes_per_env=1)
    if seed is None:
        # One seed of both: neither agent can contain the random numbers of the comparison.
        seed = own_seed(a, b)
    seed_b = seed
    if a.policy.stochastic or b.policy.stochastic:
        seed_b = (seed + 1) % 2**128
    return {"A": replace(a, seed=seed), "B": replace(b, seed=seed_b)}


def _find_task(agent: object, given: str | Task | None) -> Task:
    """Return the task that is given, or the one that the agent's model card names."""
    if given is not None:
        return as_task(given)
    card = _find_card(agent)
    if "environment" in card:
        return task_of_card(card)
    if card.get("task") is None:
        raise InputError(f"nothing says what {agent} was trained on; name its task or environment")
    return as_task(card["task"])


def _find_card(agent: object) -> dict[str, Any]:
    """Return an agent's model card, empty where it has none."""
    if not isinstance(agent, str):
        return {}
    # Files of other libraries have no card, and need none where the arguments say everything.
    try:
        return load_card(agent)
    except InputError:
        return {}


def _plan_agent(agent: object, task: Task, noise: Noise, options: AgentOptions, vecnormalize: object) -> Plan:
    """Return the run of one agent, before its seed is known: that follows from both."""
    policy = resolve_agent(
        agent,
        task,
        n_stack=options.n_stack,
        stochastic=options.stochastic,
        pixel_max=options.pixel_max,
        allow_pickle=options.allow_pickle,
        vecnormalize=vecnormalize,
    )
    return Plan(
        task=task,
        policy=policy,
        noise=noise,
        n_episodes=options.n_episodes,
        device=find_device(options.device, options.workers),
    )


def _name_folder(a: Plan, b: Plan, options: AgentOptions) -> Path:
    given = "" if options.seed is None else f"-seed{options.seed}"
    until = "-anytime" if options.anytime else ""
    return RUNS / safe_name(f"compare-{a.policy.name}-{b.policy.name}{given}{until}-n{a.n_episodes}")
