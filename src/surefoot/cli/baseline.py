"""``surefoot baseline``: the best fixed action sequence, which no observation attack can affect."""

from __future__ import annotations

import argparse
from typing import Any

from surefoot.cli.options import add_output, add_seed, add_workers, print_json, progress_bar, workers_of
from surefoot.cli.parser import STATISTICS, add_command, section
from surefoot.cli.task import add_task, one_of, task_of


def add_baseline(commands: Any) -> None:
    """Describe the subcommand."""
    parser = add_command(
        commands,
        "baseline",
        "measure the open-loop baseline: the return of the best fixed action sequence",
        usage="TASK | --env ID [options]",
        details="No observation attack can affect a sequence that ignores observations: a lower bound below its mean "
        "return is uninformative.",
        examples=(
            "surefoot baseline cartpole-5",
            "surefoot baseline freeway --episodes 200",
            "surefoot baseline --env Acrobot-v1 --json",
        ),
    )
    add_task(parser)
    section(parser, STATISTICS).add_argument(
        "--episodes", type=int, metavar="N", help="episodes to measure on (default: the task's, up to 100,000)"
    )
    add_seed(parser)
    add_workers(parser)
    add_output(parser)
    parser.set_defaults(run=run_baseline)


def run_baseline(arguments: argparse.Namespace) -> None:
    """Search for the best open-loop policy and measure it."""
    from surefoot.api.setup import as_processes
    from surefoot.play.baseline import find_baseline

    task = task_of(arguments, chosen=one_of(arguments, "baseline"))
    with workers_of(arguments) as workers, progress_bar("searching", "policies", arguments) as report:
        found = find_baseline(
            task,
            seed=arguments.seed,
            measure=arguments.episodes,
            workers=as_processes(workers),
            progress=report,
            command=arguments.command_line,
        )
    # An estimate, unlike the bounds it is compared with, so it is shown with its error.
    if arguments.json:
        print_json({"schema": 1, "task": task.name, **found.to_json()})
        return
    print(
        f"Open-loop baseline: {found.mean:.4g} ± {found.sem:.2g} (mean return ± standard error, {found.n_episodes:,} "
        f"episodes), with {found.what}."
    )
