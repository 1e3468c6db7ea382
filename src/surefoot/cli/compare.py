"""``surefoot compare``: is one agent better than another under the worst attack? Runs both until that is proved."""

from __future__ import annotations

import argparse
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.cli.options import add_common, add_workers, keeping, print_json, progress_bar, resolve_agent, workers_of
from surefoot.cli.parser import AGENT, ATTACK, STATISTICS, STOPPING, add_command, section
from surefoot.cli.task import add_task, is_path, task_of
from surefoot.episodes import Noise
from surefoot.errors import InputError

if TYPE_CHECKING:
    from surefoot.play.plan import Plan
    from surefoot.play.task import Task


def add_compare(commands: Any) -> None:
    """Describe the subcommand."""
    parser = add_command(
        commands,
        "compare",
        "prove that one agent is better than another under the worst attack",
        usage="A B [TASK | --env ID] --budget B [options]",
        details="What is proved: under the worst attack with that budget the expected return of A is above that of B, "
        "because A's lower bound under any attack is above the upper bound on B's mean return without attack (or under "
        "--attack). Stops as soon as that is so; valid whenever it stops. Exit code 0 if it is proved, else 1.",
        examples=(
            "surefoot compare cartpole-5-ppo-s0.2 cartpole-5-s0.8 --budget 0.2",
            "surefoot compare new.zip old.zip --env CartPole-v1 --sigma 0.2 --budget 0.1",
            "surefoot compare cartpole-5-s0.2 b.zip --sigma-b 0 --attack paper --budget 0.2",
        ),
    )
    agents = section(parser, AGENT)
    for name, what in (("a", "the agent that is to be proved better"), ("b", "the agent it is compared with")):
        agents.add_argument(name, metavar=name.upper(), help=f"{what}: pretrained agent, training directory, SB3 .zip")
    add_task(parser)
    agents.add_argument("--allow-pickle", action="store_true", help="unpickle an SB3 .zip, which executes code in it")
    agents.add_argument(
        "--sigma", type=float, metavar="S", help="A's noise (default: the one its model card or the task names)"
    )
    agents.add_argument(
        "--sigma-b", type=float, metavar="S", help="B's noise, 0 for an undefended agent (default: as A's default)"
    )
    model = section(parser, ATTACK)
    model.add_argument("--budget", type=float, required=True, metavar="B", help="attack budget")
    model.add_argument(
        "--attack", metavar="NAME", help="attack on B while it is measured, as 'surefoot attack --method' names it"
    )
    section(parser, STATISTICS).add_argument(
        "--confidence", type=float, default=0.95, metavar="C", help="confidence of the claim (default: 0.95)"
    )
    section(parser, STOPPING).add_argument(
        "--episodes", type=int, default=10_000, metavar="N", help="episodes of each agent at most (default: 10,000)"
    )
    add_workers(parser)
    add_common(parser, own_seed=True)
    parser.set_defaults(run=run_compare)


def run_compare(arguments: argparse.Namespace) -> int:
    """Compare two agents; 1 if A is not proved better."""
    from surefoot.play.plan import own_seed
    from surefoot.proof.comparison import Contest
    from surefoot.report.certificate_text import assumed_returns
    from surefoot.runs.compared import NAME, SIDES, compared_run
    from surefoot.runs.folder import check_reusable

    task = _task(arguments)
    a = _plan(arguments, task, arguments.a, arguments.sigma)
    b = _plan(arguments, task, arguments.b, arguments.sigma_b, a.noise.sigma)
    folder = arguments.out or Path("runs") / _name(a, b, arguments.seed)
    seed = own_seed(a, b) if arguments.seed is None else arguments.seed
    a = replace(a, seed=seed)
    b = _attacked(arguments, replace(b, seed=seed))
    limits = (task.scoring.floor, task.scoring.ceiling)
    contest = Contest(budget=arguments.budget, sigma=a.noise.sigma, confidence=arguments.confidence, limits=limits)
    for side, plan in zip(SIDES, (a, b), strict=True):
        check_reusable(plan, folder / side)
    with (
        keeping(folder),
        workers_of(arguments, a.gpu_share) as workers,
        progress_bar("comparing", "episodes", arguments) as report,
    ):
        result = compared_run(
            a,
            b,
            contest,
            folder,
            workers=workers,
            progress=report,
            command=arguments.command_line,
        )
    if arguments.json:
        print_json(result.to_json())
        return 0 if result.proved else 1
    said = result.sentence(_words(a), _words(b), attacked=b.attacker is not None)
    print(textwrap.fill(said, 78, break_on_hyphens=False))
    if assumed := assumed_returns(task.scoring.stated, *limits):
        print(f"This assumes that {assumed} (stated by the user, not proved).")
    means = " and ".join(f"{mean:.2f}" for mean in result.estimates)
    print(f"\nMean returns: {means} (estimates); {' and '.join(f'{n:,}' for n in result.n_episodes)} episodes")
    if result.stopped == "out of reach":
        print("Stopped early: more episodes of these agents would probably not prove it either.")
    print(f"Written to: {folder / NAME}")
    return 0 if result.proved else 1


def _task(arguments: argparse.Namespace) -> Task:
    """Return the task that is named, else the one that A's model card names."""
    arguments.agent = arguments.a
    if arguments.task is None and arguments.env is None and not is_path(arguments.a):
        arguments.task = _card(arguments.a).get("task")
        if arguments.task is None:
            raise InputError(f"nothing says what {arguments.a} was trained on; give TASK or --env ID")
    return task_of(arguments)


def _card(agent: str) -> dict[str, Any]:
    """Return an agent's model card, empty where it has none."""
    from surefoot.agents.files import load_card

    try:
        return load_card(agent)
    except InputError:
        return {}


def _plan(
    arguments: argparse.Namespace, task: Task, agent: str, sigma: float | None, otherwise: float | None = None
) -> Plan:
    """Return the run of one agent; a noise that is not given is that of its card, or ``otherwise``."""
    from surefoot.play.plan import Plan, resolve_device

    noise = _card(agent).get("sigma", otherwise) if sigma is None else sigma
    if noise is None:
        raise InputError(f"{agent} does not say what noise it was trained with; give --sigma S")
    return Plan(
        task=task,
        policy=resolve_agent(agent, task, allow_pickle=arguments.allow_pickle),
        noise=Noise.of(float(noise)),
        n_episodes=arguments.episodes,
        device=resolve_device(arguments.device, remote=arguments.ray is not None),
    )


def _attacked(arguments: argparse.Namespace, plan: Plan) -> Plan:
    """Return B's run, under the attack that was asked for."""
    if arguments.attack is None:
        return plan
    from surefoot.runs.attacked import AttackGrid

    return AttackGrid(base=plan, budgets=(arguments.budget,), method=arguments.attack).plan(arguments.budget, None)


def _words(plan: Plan) -> str:
    return f"{plan.policy.name}, {f'sigma {plan.noise.sigma:g}' if plan.noise.sigma else 'undefended'}"


def _name(a: Plan, b: Plan, seed: int | None) -> str:
    from surefoot.files import safe_name

    given = "" if seed is None else f"-seed{seed}"
    return safe_name(f"compare-{a.policy.name}-{b.policy.name}{given}-n{a.n_episodes}")
