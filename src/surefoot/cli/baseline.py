"""``surefoot baseline``: the best fixed action sequence, which no observation attack can affect."""

from __future__ import annotations

import argparse
from typing import Any

from surefoot.cli.options import add_output, add_seed, add_task, print_json, progress_bar
from surefoot.cli.parser import STATISTICS, add_command, section


def add_baseline(commands: Any) -> None:
    """Describe the subcommand."""
    parser = add_command(
        commands,
        "baseline",
        "measure the open-loop baseline: the return of the best fixed action sequence",
        usage="TASK [options]",
        details="No observation attack can affect a sequence that ignores observations: a lower bound below its mean "
        "return is uninformative.",
        examples=(
            "surefoot baseline cartpole-5",
            "surefoot baseline freeway --episodes 200",
            "surefoot baseline cartpole-1 --seed 1 --json",
        ),
    )
    add_task(parser)
    section(parser, STATISTICS).add_argument(
        "--episodes", type=int, metavar="N", help="episodes to measure on (default: the task's, up to 100,000)"
    )
    add_seed(parser)
    add_output(parser)
    parser.set_defaults(run=run_baseline)


def run_baseline(arguments: argparse.Namespace) -> None:
    """Search for the best open-loop policy and measure it."""
    from surefoot.play.baseline import find_baseline
    from surefoot.play.tasks import get_task

    with progress_bar("searching", "policies", arguments) as report:
        found = find_baseline(
            get_task(arguments.task), seed=arguments.seed, measure=arguments.episodes, progress=report
        )
    if arguments.json:
        print_json({"schema": 1, "task": arguments.task, **found.to_json()})
        return
    print(
        f"Open-loop baseline: {found.mean:.4g} ± {found.sem:.2g} (mean return ± standard error, {found.n_episodes:,} "
        f"episodes), with {found.what}."
    )
