"""``surefoot report``: a run, or several compared, as a page, a table or a figure; and evidence for an auditor."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from surefoot.cli.parser import RUN, add_command, section
from surefoot.errors import InputError
from surefoot.files import untrusted, write_text
from surefoot.proof.comparison import COMPARISON_FILE
from surefoot.provenance import install_command
from surefoot.report.exports import as_csv, as_latex, as_markdown
from surefoot.report.finished_run import FinishedRun
from surefoot.report.page import REPORT_FILE, write_report
from surefoot.runs.finish import write_comparison_figure, write_comparison_report, write_run_report, write_runs_figure
from surefoot.runs.read import read_run

FIGURES = ("png", "pdf", "svg")
BUNDLE_FILE = "bundle.json"  # of agents.bundle, which needs torch
TABLES: dict[str, tuple[str, Callable[[Sequence[FinishedRun]], str]]] = {
    "md": ("report.md", as_markdown),
    "latex": ("report.tex", as_latex),
    "csv": ("report.csv", as_csv),
}


def add_report(commands: Any) -> None:
    """Describe the subcommand."""
    parser = add_command(
        commands,
        "report",
        "write a run, or several compared, as HTML page, Markdown, LaTeX, CSV or figure",
        usage="DIR [DIR ...] [options]",
        examples=(
            "surefoot report runs/first runs/second --out table.tex",
            "surefoot report runs/first runs/second --out curves.pdf",
            "surefoot report runs/first --evidence",
        ),
    )
    run = section(parser, RUN)
    run.add_argument(
        "folders",
        nargs="+",
        type=Path,
        metavar="DIR",
        help="run directories of certify or attack, or one of compare",
    )
    run.add_argument(
        "--format",
        choices=("html", *TABLES, *FIGURES),
        help="html: the page; md, latex, csv: tables; png, pdf, svg: curves of certificates, or the differences "
        "of a comparison (default: as --out ends, else html)",
    )
    run.add_argument(
        "--evidence",
        action="store_true",
        help="recompute the bounds of the certificate in DIR and write a page for an auditor, to be signed",
    )
    run.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="path of the report (default: report.html, .md, .tex, .csv, certificate.png, .pdf, .svg, comparison.png, "
        ".pdf, .svg or evidence.html in DIR; for several runs: here)",
    )
    parser.set_defaults(run=run_report)


def run_report(arguments: argparse.Namespace) -> None:
    """Write the report."""
    arguments.format = _find_format(arguments.format, arguments.out)
    # A folder that is named twice is one run.
    folders = list(dict.fromkeys(arguments.folders))
    with untrusted(" and ".join(map(str, folders)), "run directory"):
        if arguments.evidence:
            written = _write_auditor_page(arguments, folders)
        else:
            written = _write_format(arguments, folders)
    print(f"Report: {written}")


def _find_format(given: str | None, out: Path | None) -> str:
    """Return the format that is named, or the one that the name of the file ends with."""
    endings = {".html": "html", ".md": "md", ".tex": "latex", ".csv": "csv"} | {f".{name}": name for name in FIGURES}
    ending = None if out is None else endings.get(out.suffix)
    if given in FIGURES and ending not in (None, given):
        raise InputError(f"--format {given} cannot be written to {out}, which ends like another format")
    return given or ending or "html"


def _write_format(arguments: argparse.Namespace, folders: list[Path]) -> Path:
    is_alone = len(folders) == 1
    compared = [folder for folder in folders if (folder / COMPARISON_FILE).exists()]
    if compared:
        return _write_comparison_format(arguments, folders, compared[0])
    # The page of one run shows the runs next to it that are about the same agent.
    if arguments.format == "html" and is_alone and arguments.out is None:
        return write_run_report(folders[0])
    runs = [read_run(folder) for folder in folders]
    # A comparison belongs to none of the runs.
    place = folders[0] if is_alone else Path()
    if arguments.format in FIGURES:
        path: Path = arguments.out or place / f"{'certificate' if is_alone else 'certificates'}.{arguments.format}"
        with _needing_matplotlib(arguments.format):
            write_runs_figure(path, runs, arguments.format)
    elif arguments.format == "html":
        path = arguments.out or place / REPORT_FILE
        write_report(runs, path)
    else:
        name, as_table = TABLES[arguments.format]
        path = arguments.out or place / name
        write_text(path, as_table(runs))
    return path


def _write_comparison_format(arguments: argparse.Namespace, folders: list[Path], compared: Path) -> Path:
    """Write one comparison as its page or as a figure."""
    if len(folders) > 1 or arguments.format in TABLES:
        raise InputError(f"{compared} is a comparison: expected it alone, as html, png, pdf or svg")
    if arguments.format == "html":
        path: Path = arguments.out or compared / REPORT_FILE
        write_comparison_report(compared, path)
        return path
    path = arguments.out or compared / f"comparison.{arguments.format}"
    with _needing_matplotlib(arguments.format):
        write_comparison_figure(path, compared, arguments.format)
    return path


@contextmanager
def _needing_matplotlib(kind: str) -> Iterator[None]:
    """Say how matplotlib is installed where it is missing."""
    try:
        yield
    except ImportError as error:
        raise InputError(f"--format {kind} needs matplotlib; install it with: {install_command('plot')}") from error


def _write_auditor_page(arguments: argparse.Namespace, folders: list[Path]) -> Path:
    from surefoot.report.evidence import write_evidence
    from surefoot.verification.allowed import verify_command
    from surefoot.verification.verify import verify

    if len(folders) != 1 or arguments.format != "html":
        raise InputError("--evidence is about one run directory, as HTML")
    if (folders[0] / COMPARISON_FILE).exists():
        raise InputError(f"--evidence is about a certificate, and {folders[0]} is a comparison; use 'surefoot verify'")
    run = read_run(folders[0])
    verdict: dict[str, Any] = {}
    if run.certificate is not None:
        # No episode is rerun: evidence is of what the files say, and 'surefoot verify' reruns them.
        verdict = verify(folders[0], blocks=0).to_json()
    typed = run.notes.get("command")
    command = verify_command(
        folders[0], run.setup, None if typed is None else str(typed), has_bundle=(folders[0] / BUNDLE_FILE).exists()
    )
    return write_evidence(run, verdict, folders[0], arguments.out, command=command)
