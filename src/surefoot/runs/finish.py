"""The one writer of a finished run: the result, its figure, ``run.json``, ``report.html``, in this order."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from surefoot.episodes import Baseline, Episodes
from surefoot.errors import InputError
from surefoot.files import read_json, write_json, write_text, write_whole
from surefoot.proof.certificate import Certificate
from surefoot.proof.comparison import COMPARISON_FILE, Comparison
from surefoot.proof.difference import pair_up
from surefoot.proof.episode_budget import EpisodeCertificate
from surefoot.provenance import versions
from surefoot.report.charts import label_runs
from surefoot.report.comparison_page import write_comparison_page
from surefoot.report.curves import grid_of, own_curve, same_bounds
from surefoot.report.finished_run import FinishedRun
from surefoot.report.page import REPORT_FILE, write_report
from surefoot.runs.read import neighbors, read_run, read_tape

RUN_SCHEMA = 1
MOST_NEIGHBORS = 8


def finish_run(
    folder: Path,
    result: Certificate | Mapping[str, Any],
    *,
    metadata: Mapping[str, Any],
    baseline: Baseline | None,
    command: str | None,
    figure: bool = True,
) -> Path:
    """Write everything a finished run contains besides its episodes; return the path of the report.

    ``result`` is a certificate, or the content of ``attack.json``; ``metadata`` is what else ``run.json`` says.
    """
    drawn = _write_result(folder, result, baseline, figure=figure)
    known = None if baseline is None else baseline.to_json()
    write_json(
        folder / "run.json", {"schema": RUN_SCHEMA, **metadata, "figure": drawn, "baseline": known, "command": command}
    )
    return write_run_report(folder, result if isinstance(result, Certificate) else None)


def finish_comparison(
    folder: Path,
    comparison: Comparison,
    records: Mapping[str, Episodes],
    *,
    command: str | None,
    why_no_replay: str | None = None,
) -> Comparison:
    """Write everything a comparison contains besides its episodes; return it with its directory."""
    written = replace(comparison, directory=folder)
    pairs = pair_up(records["A"], records["B"])
    if pairs.names:
        table = io.StringIO()
        rows = csv.writer(table, lineterminator="\n")
        rows.writerow(("episode", "seed", "return_a", "return_b"))
        for name, a, b in zip(pairs.names, pairs.a.tolist(), pairs.b.tolist(), strict=True):
            # Of episodes that were run here the seed is that of the run, and the number says which of its episodes.
            rows.writerow((name, records["A"].metadata.get("seed", name), a, b))
        write_text(folder / "episodes.csv", table.getvalue())
    notes = {"command": command, "versions": versions(), "replay": why_no_replay}
    write_json(folder / COMPARISON_FILE, {**written.to_json(), **notes})
    _write_comparison_page(folder, written, folder / REPORT_FILE)
    return written


def write_comparison_report(folder: Path, path: Path) -> None:
    """Write the page of a finished comparison."""
    _write_comparison_page(folder, Comparison.load(folder), path)


def _write_comparison_page(folder: Path, comparison: Comparison, path: Path) -> None:
    why_no_replay = read_json(folder / COMPARISON_FILE).get("replay")
    write_comparison_page(comparison, path, read_tape(folder), why_no_replay)


def write_comparison_figure(path: Path, folder: Path, kind: str) -> None:
    """Draw the differences of a finished comparison as "png", "pdf" or "svg"; raise ImportError without matplotlib."""
    from surefoot.report.certificate_figure import comparison_figure

    _save_figure(path, comparison_figure(Comparison.load(folder)), kind)


def write_run_report(folder: Path, certificate: Certificate | None = None) -> Path:
    """Write ``report.html`` into a run directory, with the runs next to it that are about the same agent.

    ``certificate`` is that of the directory, if it is at hand: without it the same page takes longer.
    """
    if (folder / COMPARISON_FILE).exists():
        write_comparison_report(folder, folder / REPORT_FILE)
        return folder / REPORT_FILE
    run = read_run(folder)
    # What is on disk is the run; a certificate in memory only saves work, and only if it says the same.
    if certificate is not None and run.certificate is not None and same_bounds(certificate, run.certificate):
        run = replace(run, certificate=certificate)
    others = neighbors(folder, run)[:MOST_NEIGHBORS]
    # A page shows the certificate before the attacks on its agent.
    runs = [*others, run]
    if run.certificate is not None:
        runs = [run, *others]
    try:
        write_report(runs, folder / REPORT_FILE)
    except InputError:
        # Whatever is wrong with a neighbor, a run gets its page.
        write_report([run], folder / REPORT_FILE)
    return folder / REPORT_FILE


def _write_result(
    folder: Path, result: Certificate | Mapping[str, Any], baseline: Baseline | None, *, figure: bool
) -> str | None:
    """Write the result under its own name; return the name of the figure, if there is one."""
    if isinstance(result, Mapping):
        write_json(folder / "attack.json", result)
        return None
    result.save(folder)  # each kind under a name of its own, so that none is taken for another
    if not figure or not isinstance(result, EpisodeCertificate):
        return None
    try:
        write_figure(folder / "certificate.png", result, baseline)
    except ImportError:
        return None
    return "certificate.png"


def write_figure(path: Path, certificate: Certificate, baseline: Baseline | None) -> None:
    """Draw a certificate as a PNG file; raise ImportError without matplotlib."""
    from surefoot.report.certificate_figure import certificate_figure

    _save_figure(path, certificate_figure(certificate, baseline), "png")


def _save_figure(path: Path, figure: Any, kind: str) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a name in letters that the font lacks: boxes do no harm
        write_whole(path, lambda file: figure.savefig(file, dpi=150, format=kind))


def write_runs_figure(path: Path, runs: Sequence[FinishedRun], kind: str) -> None:
    """Draw the smooth curves of finished certificates, recomputed from their returns, as "png", "pdf" or "svg"."""
    from surefoot.report.certificate_figure import DrawnRun, run_figure, runs_figure

    drawn = []
    for run, label in zip(runs, label_runs(runs), strict=True):
        if run.certificate is None:
            raise InputError(f"a figure draws certificates, and {run.name} is an attack; use html, md, latex or csv")
        grid = grid_of([run])
        curve = own_curve(run, grid)
        drawn.append(
            DrawnRun(
                label=f"{label} ({run.noise})",
                certificate=run.certificate,
                baseline=run.baseline,
                budgets=grid,
                lower=curve.lower,
                upper=curve.upper,
            )
        )
    _save_figure(path, run_figure(drawn[0]) if len(drawn) == 1 else runs_figure(drawn), kind)
