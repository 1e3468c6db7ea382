"""``surefoot report``: the HTML report of one run, regenerated, or one that compares several runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from surefoot.files import foreign
from surefoot.report.page import NAME, write_report
from surefoot.runs.finish import write_run_report
from surefoot.runs.read import read_run


def add_report(commands: Any) -> None:
    """Describe the subcommand."""
    parser = commands.add_parser(
        "report",
        help="regenerate the HTML report of a run, or compare several runs in one",
        description="Write one self-contained HTML report about the runs in DIR, output of certify or attack.",
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="run directories of certify or attack")
    parser.add_argument(
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
