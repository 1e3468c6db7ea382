"""``surefoot baseline``: the best fixed action sequence, which no observation attack can affect."""

from __future__ import annotations

import argparse
from typing import Any

from surefoot.cli.options import add_output, print_json, progress_bar


def add_baseline(commands: Any) -> None:
    """Describe the subcommand."""
    parser = commands.add_parser(
        "baseline",
        help="measure the open-loop baseline: the return of the best fixed action sequence",
        description="Search for the best action sequence that ignores all observations, and measure its mean return. "
        "No observation attack can affect it: a lower bound below it is uninformative.",
    )
    parser.add_argument("task", metavar="TASK", help="such as cartpole-5, pong-1r or freeway")
    parser.add_argument("--episodes", type=int, help="episodes to measure on (default: the task's, up to 100,000)")
    parser.add_argument("--seed", type=int, default=0, help="(default: 0)")
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
