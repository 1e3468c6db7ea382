"""``surefoot explain-fault``: how large the perturbation of a faulty sensor would be."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from surefoot.cli.options import (
    add_agent,
    add_output,
    add_seed,
    agent_of,
    numbers_type,
    parse_sigma,
    print_json,
    print_table,
    say,
)
from surefoot.cli.parser import AGENT, STATISTICS, add_command, section
from surefoot.cli.task import add_task, one_of, task_of
from surefoot.report.offsets import format_offset


def add_faults(commands: Any) -> None:
    """Describe the subcommand."""
    parser = add_command(
        commands,
        "explain-fault",
        "measure how large the perturbation of a faulty sensor would be in an agent's episodes",
        usage="TASK | --env ID [options]",
        details="Freeze, dropout, delay and replay, in l2, as budgets count: what is above the budget of a certificate "
        "is not covered by it.",
        examples=(
            "surefoot explain-fault cartpole-5 --sigma 0.2",
            "surefoot explain-fault mountain-car --steps 1,20 --json",
            "surefoot explain-fault --env MyEnv-v0 --agent model.zip --sigma pos=0.3 --steps 1,50,500",
        ),
    )
    add_task(parser)
    add_agent(parser)
    section(parser, AGENT).add_argument(
        "--sigma", type=parse_sigma, metavar="S", help="the agent's noise, as certify takes it (default: the task's)"
    )
    section(parser, STATISTICS).add_argument(
        "--steps", type=numbers_type("1,10,100"), default="1,10,100", metavar="LIST", help="how long faults last"
    )
    section(parser, STATISTICS).add_argument(
        "--episodes", type=int, default=64, metavar="N", help="episodes to measure in (default: 64)"
    )
    add_seed(parser)
    add_output(parser)
    parser.set_defaults(run=run_faults)


def run_faults(arguments: argparse.Namespace) -> None:
    """Measure, and print a table."""
    from surefoot.api.faults import FAULTS, measure_faults

    chosen = one_of(arguments, "explain-fault")
    task = task_of(arguments, "agent", "sigma", chosen=chosen)
    found = measure_faults(
        task,
        agent_of(arguments, chosen.agent, task),
        sigma=arguments.sigma,
        steps=[int(count) for count in arguments.steps],
        n_episodes=arguments.episodes,
        seed=arguments.seed,
    )
    if arguments.json:
        print_json({"schema": 1, "task": task.name, "faults": [asdict(one) for one in found]})
        return
    say(
        f"l2 norms of all perturbations of one episode of {task.name}, as budgets count them. A certificate covers a "
        "fault only as far as its budget reaches; an estimate, along episodes that no fault has disturbed."
    )
    print()
    rows = [(one.fault, f"{one.steps:,}", format_offset(one.median), format_offset(one.mild)) for one in found]
    print_table(("fault", "steps", "median", "a tenth is below"), rows, n_left=1)
    print()
    for name, meaning in FAULTS.items():
        say(f"{name}: {meaning}", "  ")
