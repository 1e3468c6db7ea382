"""``surefoot certify``: a task, an environment, or returns in; sentence, table, files out."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from surefoot.certify import METHODS, Certificate, certify
from surefoot.commands.terminal import add_agent, add_common, chosen_workers, parse_budgets, progress_bar, refuse
from surefoot.errors import InputError
from surefoot.report.text import Floor, headline, notes, rows


def add_certify(commands: Any) -> None:
    """Describe the subcommand."""
    parser = commands.add_parser(
        "certify",
        help="play many episodes of a smoothed agent and certify its mean return",
        description="Certify a shipped or trained agent on TASK, any agent on a Gymnasium --env, or --returns alone.",
        allow_abbrev=False,
    )
    parser.add_argument("task", nargs="?", metavar="TASK", help="cartpole-5 or cartpole-1")
    parser.add_argument("--env", metavar="ID", help="any Gymnasium environment with Box observations, instead of TASK")
    parser.add_argument(
        "--returns", type=Path, metavar="FILE", help="returns played elsewhere (.npy, or a saved record)"
    )
    add_agent(parser)
    parser.add_argument("--sigma", type=float, help="noise on every new observation (default: the task's)")
    parser.add_argument("--episodes", type=int, default=10_000, help="episodes to play (default: %(default)s)")
    parser.add_argument("--budgets", help="0:1:0.05 or 0,0.2,0.4 (default: 0 to 1 by 0.1)")
    parser.add_argument("--confidence", type=float, default=0.95, help="(default: %(default)s)")
    parser.add_argument("--method", choices=METHODS, help="confidence statement (default: the task's, else band)")
    parser.add_argument("--step", type=float, default=1.0, help="distance of per-threshold's thresholds (default: 1)")
    parser.add_argument("--floor", type=float, help="a return that cannot be undercut, with --env and --returns")
    parser.add_argument("--ceiling", type=float, help="a return that cannot be exceeded, with --env and --returns")
    parser.add_argument("--max-steps", type=int, help="step limit for an --env that has none")
    add_common(parser)
    parser.set_defaults(run=run_certify)


def run_certify(arguments: argparse.Namespace) -> None:
    """Certify a task, an environment, or returns."""
    sources = [name for name in ("task", "env", "returns") if getattr(arguments, name) is not None]
    if len(sources) != 1:
        got = " and ".join(sources) or "none"
        raise InputError(f"certify needs exactly one of TASK, --env or --returns, got {got}")
    if arguments.budgets is not None:
        arguments.budgets = parse_budgets(arguments.budgets)
    if arguments.returns is not None:
        certificate, blind, folder = _certify_returns(arguments), None, arguments.out
    else:
        certificate, blind, folder = _certify_played(arguments)
    if arguments.json:
        print(json.dumps(certificate.to_json(), indent=1, allow_nan=False))
        return
    show_certificate(certificate, blind)
    if folder is not None:
        print(f"\nWritten to {folder}: {', '.join(sorted(path.name for path in folder.iterdir() if path.is_file()))}")


def _certify_returns(arguments: argparse.Namespace) -> Certificate:
    from surefoot.report.leave import leave_certificate, leave_outcomes
    from surefoot.report.outcomes import read_outcomes

    refuse(arguments, ("agent", "max_steps", "workers"), "--returns: nothing is played")
    if arguments.out is not None and (arguments.out / "setup.json").exists():
        raise InputError(f"{arguments.out} holds a run with its own certificate; choose another --out")
    episodes = read_outcomes(arguments.returns, arguments.sigma, arguments.floor, arguments.ceiling)
    budgets = arguments.budgets or parse_budgets("0:1:0.1")
    certificate = certify(episodes, budgets, arguments.confidence, arguments.method, arguments.step)
    if arguments.out is not None:
        leave_certificate(certificate, arguments.out, None)
        leave_outcomes(episodes, arguments.out, command=arguments.command_line, step=arguments.step)
    return certificate


def _certify_played(arguments: argparse.Namespace) -> tuple[Certificate, Floor | None, Path]:
    from gymnasium import logger

    from surefoot.play import Plan
    from surefoot.runs import Questions, certified_run, find_agent, find_device, run_name, shipped_agent
    from surefoot.tasks import find_task, task_of_environment

    logger.min_level = logger.ERROR  # its advice on versions of environments would stand between our lines
    if arguments.task is not None:
        refuse(arguments, ("floor", "ceiling", "max_steps"), "a task, which knows them")
        task = find_task(arguments.task)
    else:
        for name in ("floor", "agent", "sigma"):
            if getattr(arguments, name) is None:
                raise InputError(f"--env needs --{name}")
        task = task_of_environment(
            arguments.env, floor=arguments.floor, ceiling=arguments.ceiling, limit=arguments.max_steps
        )
    sigma = task.sigma if arguments.sigma is None else arguments.sigma
    questions = Questions(arguments.budgets or task.budgets, arguments.confidence, arguments.method, arguments.step)
    questions.check(task, sigma)
    agent = shipped_agent(task, sigma) if arguments.agent is None else arguments.agent
    policy = find_agent(agent, task, trust_pickle=arguments.trust_pickle)
    plan = Plan(task, policy, sigma, arguments.episodes, arguments.seed, find_device(arguments.device))
    folder = arguments.out or Path("runs") / run_name(plan)
    with progress_bar("playing", "episodes", arguments) as report:
        certificate = certified_run(
            plan,
            questions,
            folder,
            workers=chosen_workers(arguments.workers, plan.device),
            progress=report,
            command=arguments.command_line,
        )
    return certificate, task.blind, folder


def show_certificate(certificate: Certificate, blind: Floor | None) -> None:
    """Print the sentence, the table and the notes."""
    console = Console(highlight=False)
    whole = not console.is_terminal  # a log or a pipe gets sentences in one piece
    console.print(f"[bold]{headline(certificate)}[/bold]\n", soft_wrap=whole)
    table = Table(box=None, pad_edge=False)
    shown = rows(certificate)
    titles = ("budget", "certified lower bound", "certified upper bound")
    for title, *cells in zip(titles, *shown, strict=True):
        table.add_column(title, justify="right", min_width=max(map(len, cells)))
    for row in shown:
        table.add_row(*row)
    console.print(table, soft_wrap=True)
    console.print()
    for line in notes(certificate, blind):
        console.print(line, soft_wrap=whole)
