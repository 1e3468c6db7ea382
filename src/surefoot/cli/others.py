"""The small subcommands: ``blind``, ``export``, ``agents``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from surefoot.cli.options import progress_bar
from surefoot.errors import InputError


def add_blind(commands: Any) -> None:
    """Describe ``blind``."""
    parser = commands.add_parser(
        "blind", help="measure what a policy reaches that sees nothing but the clock", allow_abbrev=False
    )
    parser.add_argument("task", metavar="TASK")
    parser.add_argument("--episodes", type=int, help="episodes to measure on (default: the task's, up to 100,000)")
    parser.add_argument("--seed", type=int, default=0, help="(default: 0)")
    parser.add_argument("--json", action="store_true", help="print one JSON document to stdout and nothing else")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.set_defaults(run=run_blind)


def run_blind(arguments: argparse.Namespace) -> None:
    """Search for the best blind policy and measure it."""
    from dataclasses import asdict

    from surefoot.play.baseline import find_blind
    from surefoot.play.tasks import find_task

    with progress_bar("searching", "policies", arguments) as report:
        found = find_blind(find_task(arguments.task), seed=arguments.seed, measure=arguments.episodes, progress=report)
    if arguments.json:
        print(json.dumps({"schema": 1, "task": arguments.task, **asdict(found)}, indent=1))
        return
    print(f"Best blind policy: {found.what}. Mean {found.mean:.3f} ± {found.sem:.3f} over {found.episodes:,} episodes.")


def add_export(commands: Any) -> None:
    """Describe ``export``."""
    parser = commands.add_parser("export", help="write an agent as a zip that plain SB3 loads", allow_abbrev=False)
    parser.add_argument("agent", metavar="NAME_OR_PATH")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.zip")
    parser.set_defaults(run=run_export)


def run_export(arguments: argparse.Namespace) -> None:
    """Export an agent for Stable-Baselines3."""
    from surefoot.agents.files import load
    from surefoot.agents.sb3.write import write_zip

    if arguments.out.suffix != ".zip":
        raise InputError(f"--out must end in .zip, got {arguments.out}")
    policy = load(arguments.agent)
    write_zip(policy, arguments.out)
    kind = "DDPG" if policy.choices is None else "DQN"
    print(f"Written to {arguments.out}; load it with stable_baselines3.{kind}.load({str(arguments.out)!r})")


def add_agents(commands: Any) -> None:
    """Describe ``agents``."""
    parser = commands.add_parser("agents", help="list the pretrained agents", allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    parser.set_defaults(run=list_agents)


def list_agents(arguments: argparse.Namespace) -> None:
    """Print the pretrained agents with what they were trained on."""
    from surefoot.agents.files import list_agents as names
    from surefoot.agents.files import load_card

    cards = [load_card(name) for name in names()]
    keys = ("name", "task", "sigma", "sha256", "selection")
    if arguments.json:
        print(json.dumps({"schema": 1, "agents": [{key: card[key] for key in keys} for card in cards]}, indent=1))
        return
    table = Table("agent", "task", "sigma", "mean on selection episodes", box=None)
    for card in cards:
        table.add_row(card["name"], card["task"], f"{card['sigma']:g}", f"{card['selection']['mean']:.1f}")
    Console().print(table)
