"""``surefoot agents`` lists the pretrained agents; ``surefoot export`` writes one for Stable-Baselines3."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from surefoot.cli.options import add_json, estimate, print_json, print_table, say
from surefoot.cli.parser import AGENT, RUN, add_command, section
from surefoot.errors import InputError
from surefoot.proof.rounding import format_lower


def add_export(commands: Any) -> None:
    """Describe ``export``."""
    parser = add_command(
        commands,
        "export",
        "write an agent as a zip file that Stable-Baselines3 loads",
        usage="AGENT --out FILE.zip",
        examples=(
            "surefoot export cartpole-5-s0.2 --out agent.zip",
            "surefoot export runs/train-cartpole-5-s0.2-ppo-seed0 --out agent.zip",
            "surefoot export ./weights.npz --out agent.zip",
        ),
    )
    section(parser, AGENT).add_argument("agent", metavar="AGENT", help="pretrained agent, or training directory")
    section(parser, RUN).add_argument("--out", type=Path, required=True, metavar="FILE.zip", help="file to write")
    parser.set_defaults(run=run_export)


def run_export(arguments: argparse.Namespace) -> None:
    """Export an agent for Stable-Baselines3."""
    from surefoot.agents.files import load, load_card
    from surefoot.agents.normalization import taken_apart
    from surefoot.agents.sb3.write import statistics_path, write_zip

    if arguments.out.suffix != ".zip":
        raise InputError(f"--out must end in .zip, got {arguments.out}")
    policy = load(arguments.agent)
    # SB3 has a class for each algorithm, and a zip file is read by the class that wrote it.
    trained_by = str(load_card(arguments.agent).get("training", {}).get("algorithm", ""))
    kind = write_zip(policy, arguments.out, as_ppo=trained_by == "stable_baselines3.PPO")
    print(f"Written to {arguments.out}; load it with {kind}.load({str(arguments.out)!r})")
    if taken_apart(policy)[1] is not None:
        print(
            f"Its observations must be normalized with VecNormalize.load({str(statistics_path(arguments.out))!r}, env)"
        )


def add_agents(commands: Any) -> None:
    """Describe ``agents``."""
    parser = add_command(
        commands,
        "agents",
        "list the pretrained agents",
        usage="[options]",
        examples=("surefoot agents", "surefoot agents --json", "surefoot certify cartpole-5 --agent cartpole-5-s0.4"),
    )
    add_json(parser)
    parser.set_defaults(run=print_agents)


def print_agents(arguments: argparse.Namespace) -> None:
    """Print the pretrained agents and their mean returns."""
    from surefoot.agents.files import list_agents as names
    from surefoot.agents.files import load_card

    cards = [load_card(name) for name in names()]
    if arguments.json:
        shown = []
        for card in cards:
            # Cards also describe their training at length, which is not part of this schema.
            shown.append({key: card[key] for key in ("name", "task", "sigma", "sha256", "selection")})
        print_json({"schema": 1, "agents": shown})
        return
    rows = []
    for card in cards:
        chosen = card["selection"]
        mean = estimate(chosen["mean"], chosen["sem"])
        bound = ""
        # Without noise nothing is certified.
        if card["sigma"] > 0 and chosen.get("certified_at_sigma") is not None:
            digits = 2 if chosen["mean"] > 10 else 3
            bound = format_lower(chosen["certified_at_sigma"], digits)
        rows.append((card["name"], f"{card['sigma']:g}", mean, bound))
    # No column for the task: the names begin with it.
    print_table(("agent", "sigma", "mean ± s.e.", "bound, B = sigma"), rows, n_left=4)
    print()
    say(
        "Mean return without attack, and the lower bound at that attack budget. Both were computed on the episodes "
        "that the agent was selected on and are slightly too high: an indication, not a certificate. surefoot certify "
        "uses fresh episodes."
    )
