"""``surefoot agents`` lists the pretrained agents; ``surefoot export`` writes one for Stable-Baselines3."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.table import Table

from surefoot.cli.options import estimate, plain_console, print_json
from surefoot.errors import InputError


def add_export(commands: Any) -> None:
    """Describe ``export``."""
    parser = commands.add_parser("export", help="write an agent as a zip file that SB3 loads")
    parser.add_argument("agent", metavar="NAME_OR_PATH")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.zip")
    parser.set_defaults(run=run_export)


def run_export(arguments: argparse.Namespace) -> None:
    """Export an agent for Stable-Baselines3."""
    from surefoot.agents.files import load, load_card
    from surefoot.agents.normalization import taken_apart
    from surefoot.agents.sb3.write import statistics_path, write_zip

    if arguments.out.suffix != ".zip":
        raise InputError(f"--out must end in .zip, got {arguments.out}")
    policy = load(arguments.agent)
    trained_by = str(load_card(arguments.agent).get("training", {}).get("algorithm", ""))
    kind = write_zip(policy, arguments.out, as_ppo=trained_by == "stable_baselines3.PPO")
    print(f"Written to {arguments.out}; load it with {kind}.load({str(arguments.out)!r})")
    if taken_apart(policy)[1] is not None:
        print(
            f"Its observations must be normalized with VecNormalize.load({str(statistics_path(arguments.out))!r}, env)"
        )


def add_agents(commands: Any) -> None:
    """Describe ``agents``."""
    parser = commands.add_parser("agents", help="list the pretrained agents")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    parser.set_defaults(run=list_agents)


def list_agents(arguments: argparse.Namespace) -> None:
    """Print the pretrained agents and their mean returns."""
    from surefoot.agents.files import list_agents as names
    from surefoot.agents.files import load_card

    cards = [load_card(name) for name in names()]
    keys = ("name", "task", "sigma", "sha256", "selection")
    if arguments.json:
        print_json({"schema": 1, "agents": [{key: card[key] for key in keys} for card in cards]})
        return
    table = Table("agent", "task", "sigma", "mean return ± s.e.", box=None)
    for card in cards:
        mean = estimate(card["selection"]["mean"], card["selection"]["sem"])
        table.add_row(card["name"], card["task"], f"{card['sigma']:g}", mean)
    plain_console().print(table)
