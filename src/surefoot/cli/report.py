"""``surefoot report``: the HTML report of one run, regenerated, or one that compares several runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from surefoot.cli.parser import RUN, add_command, section
from surefoot.files import foreign
from surefoot.report.page import NAME, write_report
from surefoot.runs.finish import write_run_report
from surefoot.runs.read import read_run


def add_report(commands: Any) -> None:
    """Describe the subcommand."""
    parser = add_command(
        commands,
        "report",
        "write the HTML report of a run again, or compare several runs in one",
        usage="DIR [DIR ...] [options]",
        details="The report is one file that needs no network.",
        examples=(
            "surefoot report runs/cartpole-5-s0.2-sigma0.2-seed0-n10000",
            "surefoot report runs/first runs/second --out compared.html",
            "surefoot report runs/* --out all.html",
        ),
    )
    run = section(parser, RUN)
    run.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="run directories of certify or attack")
    run.add_argument(
        "--out",
        type=Path,
        metavar="FILE.html",
        help="path of the report (default: DIR/report.html; for several runs: report.html here)",
    )
    parser.set_defaults(run=run_report)


def run_report(arguments: argparse.Namespace) -> None:
    """Write the report."""
    folders = list(dict.fromkeys(arguments.folders))
    with foreign(" and ".join(map(str, folders)), "run directory"):
        if len(folders) == 1 and arguments.out is None:
            written = write_run_report(folders[0])
        else:
            written = arguments.out or Path(NAME)
            write_report([read_run(folder) for folder in folders], written)
    print(f"Report: {written}")
