"""Runs as tables for papers and spreadsheets.

``as_markdown``, ``as_latex``  with rounded bounds, rows below the open-loop baseline marked
``as_csv``                     one row per run and budget, numbers with all their digits
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any

from surefoot.errors import printable
from surefoot.report.certificate_text import bounds_table, headline, notes
from surefoot.report.charts import label_runs
from surefoot.report.finished_run import FinishedRun
from surefoot.report.sentences import ATTACK_HEADS, attack_rows, attack_sentence

CSV_COLUMNS = (
    "run", "kind", "task", "agent", "agent_sha256", "sigma", "method", "confidence", "n_episodes", "budget", "lower",
    "upper", "mean", "standard_error", "lambda", "open_loop_baseline",
)  # fmt: skip
_LATEX = {
    "\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "≥": r"$\ge$", "±": r"$\pm$",
    "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
}  # fmt: skip


def as_markdown(runs: Sequence[FinishedRun]) -> str:
    """Return one table per run, each after its sentence."""
    lines = []
    for run, label in zip(runs, label_runs(runs), strict=True):
        sentence, heads, rows, footnotes = _table_parts(run)
        lines += [f"### {escape_markdown(label)}\n", f"{escape_markdown(sentence)}\n"]
        lines += ["| " + " | ".join(heads) + " |", "|" + "---:|" * len(heads)]
        for row in rows:
            lines.append("| " + " | ".join(row) + " |")
        # A table ends with an empty line.
        lines.append("")
        for footnote in footnotes:
            lines.append(f"{escape_markdown(footnote)}\n")
    return "\n".join(lines)


def as_latex(runs: Sequence[FinishedRun]) -> str:
    """Return one ``table`` per run; it needs the package booktabs."""
    lines = []
    for run, label in zip(runs, label_runs(runs), strict=True):
        sentence, heads, rows, footnotes = _table_parts(run)
        lines += [r"% \usepackage{booktabs}", r"\begin{table}", r"\centering"]
        lines.append(f"\\caption{{{_escape_latex(f'{label}. {sentence}')}}}")
        lines += [f"\\begin{{tabular}}{{{'r' * len(heads)}}}", r"\toprule"]
        lines += [" & ".join(map(_escape_latex, heads)) + r" \\", r"\midrule"]
        for row in rows:
            lines.append(" & ".join(map(_escape_latex, row)) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}"]
        for footnote in footnotes:
            lines.append(f"\\par\\smallskip\\footnotesize {_escape_latex(footnote)}")
        lines.append("\\end{table}\n")
    return "\n".join(lines)


def as_csv(runs: Sequence[FinishedRun]) -> str:
    """Return one row per run and budget, numbers with all their digits."""
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for run, label in zip(runs, label_runs(runs), strict=True):
        about = {"run": label, "sigma": run.sigma}
        for key in ("task", "agent", "agent_sha256"):
            about[key] = run.identity.get(key)
        if run.baseline is not None:
            about["open_loop_baseline"] = run.baseline.mean
        for row in _rows_with_all_digits(run):
            writer.writerow({name: _safe_cell(value) for name, value in (about | row).items()})
    return text.getvalue()


def _rows_with_all_digits(run: FinishedRun) -> Iterator[dict[str, Any]]:
    stated = run.certificate
    if stated is not None:
        known = {
            "kind": "certificate",
            "method": stated.method,
            "confidence": stated.confidence,
            "n_episodes": stated.n_episodes,
            "mean": stated.estimate,
            "standard_error": stated.estimate_sem,
        }
        for index, budget in enumerate(stated.budgets.tolist()):
            upper = None if stated.upper is None else float(stated.upper[index])
            yield {**known, "budget": budget, "lower": float(stated.lower[index]), "upper": upper}
    attack = run.attack
    if attack is not None:
        known = {"kind": "attack", "method": attack.get("method"), "n_episodes": attack["n_episodes"]}
        columns = zip(attack["budgets"], attack["curve"], attack["curve_sem"], attack["curve_lambda"], strict=True)
        for budget, mean, sem, lambda_ in columns:
            yield {**known, "budget": budget, "mean": mean, "standard_error": sem, "lambda": lambda_}


def _table_parts(run: FinishedRun) -> tuple[str, Sequence[str], list[Sequence[str]], list[str]]:
    """Return the sentence of a run, the headings and rows of its table, and what is said below it."""
    stated = run.certificate
    if stated is None:
        return attack_sentence(run), ATTACK_HEADS, attack_rows(run), []
    bounds = bounds_table(stated, run.baseline)
    # A baseline below all bounds needs no footnote here: nothing in the table refers to it.
    footnotes = notes(stated)
    if bounds.any_below_baseline:
        footnotes.insert(0, bounds.note)
    sentence = headline(stated, run.required, run.baseline)
    return sentence, bounds.heads, [row.marked_cells for row in bounds.rows], footnotes


def escape_markdown(text: str) -> str:
    """Return text that cannot be taken for Markdown or HTML: names in it are untrusted."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(printable(text).split()))


def _escape_latex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in " ".join(printable(text).split()))


def _safe_cell(value: Any) -> Any:
    """Return a number or nothing as it is, and everything else as text that a spreadsheet does not compute."""
    # A cell that begins like a formula is one for a spreadsheet, and names in it are untrusted.
    if value is None or isinstance(value, int | float):
        return value
    plain = printable(str(value))
    return f"'{plain}" if plain.lstrip()[:1] in ("=", "+", "-", "@") else plain
