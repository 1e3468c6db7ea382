"""``surefoot report``: the page about one run, made anew, or about several runs side by side."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from surefoot.report.page import NAME, write_report
from surefoot.runs.finish import write_run_report
from surefoot.runs.read import read_run


def add_report(commands: Any) -> None:
    """Describe the subcommand."""
    parser = commands.add_parser(
        "report",
        help="make the page of a run anew, or one page that compares several runs",
        description="Write one self-contained HTML page about the runs in DIR, which certify or attack have left.",
        allow_abbrev=False,
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="folders that certify or attack left")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE.html",
        help="where the page goes (default: DIR/report.html; for several folders: report.html here)",
    )
    parser.set_defaults(run=run_report)


def run_report(arguments: argparse.Namespace) -> None:
    """Write the page."""
    folders = list(dict.fromkeys(arguments.folders))
    if len(folders) == 1 and arguments.out is None:
        written = write_run_report(folders[0])
    else:
        written = arguments.out or Path(NAME)
        write_report([read_run(folder) for folder in folders], written)
    print(f"Written to {written}")
