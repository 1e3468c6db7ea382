"""``surefoot compare``: by how much do two agents differ, without attack and under the worst one? A gate for both."""

from __future__ import annotations

import argparse
import glob
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.cli.options import (
    DECLARED,
    add_action_sigma,
    add_common,
    add_confidence,
    add_declared,
    add_record,
    add_workers,
    parse_budgets,
    parse_sigma,
    pick,
    print_json,
    progress_bar,
    refuse,
    say,
    workers_of,
)
from surefoot.cli.parser import ADVANCED, AGENT, ATTACK, STATISTICS, STOPPING, add_command, section
from surefoot.cli.task import OF_ENVIRONMENT, Chosen, add_task, is_path, task_of
from surefoot.errors import InputError

if TYPE_CHECKING:
    from surefoot.proof.comparison import Comparison

# What says which episodes are run, besides task and number: arguments of ``compare`` by the same names.
RUNNING: tuple[str, ...] = ("sigma", "sigma_b", "attack", "max_episodes", "seed", "record")
RUNNING += (*DECLARED, "vecnormalize_b", "action_sigma", "action_sigma_b")


def add_compare(commands: Any) -> None:
    """Describe the subcommand."""
    parser = add_command(
        commands,
        "compare",
        "an interval for the difference of two agents, and a gate against a baseline",
        usage="A B [TASK | --env ID] [--budgets LIST] [options]",
        details="A and B are agents, run directories, or files of returns. Both agents run the same episodes, and the "
        "difference is that of the mean returns without attack; with --budgets also that under the worst attack on "
        "each. Exit code 0, or with --better-than or --no-worse-than 1 if that is not proved; 2 if the two cannot be "
        "compared.",
        examples=(
            "surefoot compare cartpole-5-ppo-s0.2 cartpole-5-s0.8 --budgets 0.2",
            "surefoot compare new.zip --no-worse-than old.zip --margin 5 --env CartPole-v1 --sigma 0.2",
            'surefoot compare --runs "runs/ppo-*" "runs/dqn-*"',
        ),
    )
    agents = section(parser, AGENT)
    what = "pretrained agent, training directory, SB3 .zip, run directory, or file of returns"
    agents.add_argument("a", nargs="?", metavar="A", help=f"one agent: {what}")
    agents.add_argument("b", nargs="?", metavar="B", help="the other, the same way")
    add_task(parser)
    agents.add_argument(
        "--sigma", type=parse_sigma, metavar="S", help="A's noise (default: the one its model card names)"
    )
    agents.add_argument(
        "--sigma-b",
        type=parse_sigma,
        metavar="S",
        help="B's noise, 0 for an undefended agent (default: its model card's)",
    )
    add_action_sigma(parser)
    section(parser, ADVANCED).add_argument(
        "--action-sigma-b", type=float, metavar="S", help="B's noise on actions (default: A's)"
    )
    agents.add_argument(
        "--runs",
        nargs=2,
        metavar=("GLOB_A", "GLOB_B"),
        help="compare two algorithms: run directories or files of returns, one for each training run",
    )
    more = section(parser, ADVANCED)
    add_declared(parser)
    more.add_argument("--vecnormalize-b", metavar="FILE", help="the same of B, as --vecnormalize is of A")
    more.add_argument(
        "--only-wins", action="store_true", help="files of returns: only floor and ceiling can occur; bounds are exact"
    )
    model = section(parser, ATTACK)
    model.add_argument("--budgets", type=parse_budgets, default=(), metavar="LIST", help="attack budgets, as 0.2,0.4")
    model.add_argument(
        "--attack", metavar="NAME", help="attack on B while it is measured, as 'surefoot attack --method' names it"
    )
    add_confidence(parser)
    section(parser, STATISTICS).add_argument(
        "--episodes", type=int, metavar="N", help="episodes of each agent (default: 10,000)"
    )
    stopping = section(parser, STOPPING)
    stopping.add_argument("--better-than", metavar="B", help="exit with 0 if A is proved better than B, else with 1")
    stopping.add_argument(
        "--no-worse-than", metavar="B", help="exit with 0 if A is proved no worse than B by more than --margin"
    )
    stopping.add_argument("--margin", type=float, metavar="R", help="the margin of --no-worse-than, a mean return")
    stopping.add_argument(
        "--max-episodes", type=int, metavar="N", help="stop once the question is answered, after N of each at most"
    )
    add_workers(parser)
    add_common(parser, own_seed=True)
    add_record(parser, "the episode in which the two differ most")
    parser.set_defaults(run=run_compare)


def run_compare(arguments: argparse.Namespace) -> int:
    """Compare two agents, or two algorithms; 1 if what the gate asks for is not proved."""
    if arguments.runs is not None:
        return _compare_algorithms(arguments)
    from surefoot.api.compare import compare
    from surefoot.runs.returns import read_record

    a, b = _find_agents(arguments)
    limits = {"floor": arguments.floor, "ceiling": arguments.ceiling, "only_wins": arguments.only_wins}
    running: dict[str, Any] = {}
    if read_record(a, **limits) is None:
        limits = {}
        running = _running_options(arguments, a)
    else:
        # Made by the same parser: what a file or a finished run knows is not given.
        _refuse_idle(arguments)
    with workers_of(arguments) as workers, progress_bar("comparing", "episodes", arguments) as report:
        comparison = compare(
            a,
            b,
            **running,
            **limits,
            budgets=arguments.budgets,
            better=arguments.better_than is not None,
            margin=arguments.margin,
            confidence=arguments.confidence,
            workers=workers,
            out=arguments.out,
            progress_callback=report,
            command=arguments.command_line,
        )
    if arguments.json:
        print_json(comparison.to_json())
    else:
        _show_comparison(comparison)
    return 0 if comparison.passed else 1


def _running_options(arguments: argparse.Namespace, a: str) -> dict[str, Any]:
    """Return how agents are run."""
    task = None
    if arguments.task is not None or arguments.env is not None or is_path(a):
        # The files of a published agent say what it was trained on, as --agent does for other commands.
        task = task_of(arguments, chosen=Chosen(arguments.task, arguments.env, a))
    return {"task": task, "n_episodes": arguments.episodes, **pick(arguments, *RUNNING, "device")}


def _refuse_idle(arguments: argparse.Namespace) -> None:
    """Refuse options about running episodes where none are run."""
    refuse(arguments, ("task", "env", "episodes", *RUNNING, *OF_ENVIRONMENT), "episodes: no episodes are run")


def _find_agents(arguments: argparse.Namespace) -> tuple[str, str]:
    """Return A and B; with a gate B is named there, and the second word is the task."""
    baselines = [name for name in (arguments.better_than, arguments.no_worse_than) if name is not None]
    if len(baselines) > 1:
        raise InputError("--better-than cannot be combined with --no-worse-than")
    if (arguments.margin is not None) != (arguments.no_worse_than is not None):
        raise InputError("--no-worse-than B needs --margin R, and only it has one: how much worse A may be")
    b = arguments.b
    if baselines:
        if arguments.b is not None and arguments.task is not None:
            raise InputError(f"B is named twice: {arguments.b} and {baselines[0]}")
        arguments.task = arguments.task or arguments.b
        b = baselines[0]
    if arguments.a is None or b is None:
        raise InputError("compare needs two agents: A B, or A --better-than B, or --runs GLOB_A GLOB_B")
    return arguments.a, b


def _show_comparison(comparison: Comparison) -> None:
    """Print the result, what it assumes, and where it is."""
    for line in str(comparison).splitlines():
        # A table is printed as it is.
        if "  " in line:
            print(line)
        else:
            say(line)
    if comparison.stopped == "out of reach":
        print("Stopped early: more episodes of these agents would probably not prove it either.")
    if comparison.directory is not None:
        print(f"Report: {comparison.directory / 'report.html'}")


def _compare_algorithms(arguments: argparse.Namespace) -> int:
    """Compare two algorithms by their training runs."""
    from surefoot.proof.training_runs import compare_training_runs

    if arguments.a is not None:
        raise InputError("--runs compares two algorithms: it cannot be combined with agents")
    refuse(arguments, ("better_than", "no_worse_than", "margin", "budgets", "only_wins", "out"), "--runs")
    _refuse_idle(arguments)
    a, b = (_scores_of(pattern, arguments) for pattern in arguments.runs)
    compared = compare_training_runs(a, b, arguments.confidence)
    if arguments.json:
        print_json(compared.to_json())
    else:
        print(compared)
    return 0


def _scores_of(pattern: str, arguments: argparse.Namespace) -> Sequence[float]:
    """Return the mean return of each training run that a pattern matches."""
    from surefoot.runs.returns import read_record

    scores = []
    paths = sorted(glob.glob(pattern))  # noqa: PTH207 - the pattern may be absolute, which Path.glob refuses
    if len(paths) < 2:
        raise InputError(f"{pattern} matches {len(paths)} training runs, expected at least 2; quote the pattern")
    for path in paths:
        # A mean needs no limits: those of the file itself, where none are given.
        record = read_record(Path(path), floor=arguments.floor, ceiling=arguments.ceiling, unlimited=True)
        if record is None:
            raise InputError(f"{path} has no returns; give run directories or files of returns, one for each run")
        scores.append(float(record.returns.mean()))
    return scores
