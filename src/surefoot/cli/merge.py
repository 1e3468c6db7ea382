"""``surefoot merge``: one run made of the shares that ``--blocks I/N`` has written."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from surefoot.cli.options import add_output, print_json
from surefoot.cli.parser import RUN, add_command, section
from surefoot.errors import InputError


def add_merge(commands: Any) -> None:
    """Describe the subcommand."""
    parser = add_command(
        commands,
        "merge",
        "make one run of the shares that --blocks I/N has written",
        usage="DIR... [options]",
        details="Shares that overlap, leave gaps or have different setups are rejected. Then run the same command "
        "without --blocks: it finds the episodes.",
        examples=(
            "surefoot merge runs/cartpole-5-s0.2-sigma0.2-n10000-blocks*of8",
            "surefoot merge shares/* --out runs/all",
            "surefoot merge shares/* --out runs/all --json",
        ),
    )
    run = section(parser, RUN)
    run.add_argument("folders", metavar="DIR", nargs="+", type=Path, help="directories of all shares of one run")
    run.add_argument("--out", type=Path, metavar="DIR", help="run directory (default: the shares' name without share)")
    add_output(parser)
    parser.set_defaults(run=run_merge)


def run_merge(arguments: argparse.Namespace) -> None:
    """Merge, and say what to do next."""
    from surefoot.runs.shares import merge, merged_name

    # Shares in folders with the names that --blocks gives say where the run belongs.
    out = arguments.out or merged_name(arguments.folders)
    if out is None:
        raise InputError("these directories do not have the names that --blocks gives; give --out DIR")
    n_episodes = merge(arguments.folders, out)
    if arguments.json:
        print_json({"schema": 1, "folder": str(out), "n_episodes": n_episodes, "shares": len(arguments.folders)})
        return
    print(f"{n_episodes:,} episodes of {len(arguments.folders)} shares are in {out}.")
    print(f"Next: the same command without --blocks, with --out {out}; it runs nothing again.")
