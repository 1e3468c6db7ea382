"""Runs as tables for papers and spreadsheets."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any

from surefoot.errors import printable
from surefoot.proof.rounding import format_exact, format_percent
from surefoot.report.certificate_text import assumption, bounds_table, headline, notes
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
    """Return one ``table`` of all runs, agents in rows and budgets in columns; it needs the package booktabs."""
    tables = list(map(_cells_by_budget, runs))
    budgets = sorted(set().union(*tables))
    rows = []
    marked = False
    for cells, label in zip(tables, label_runs(runs), strict=True):
        marked = marked or any("*" in cell for cell in cells.values())
        shown = [_latex_number(cells.get(budget)) for budget in budgets]
        rows.append(" & ".join([_escape_latex(label), *shown]) + r" \\")
    heads = ["agent", *(f"$B = {format_exact(budget)}$" for budget in budgets)]
    lines = [
        r"% \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        f"\\caption{{{_caption(runs, marked=marked)}}}",
        r"\label{tab:certified}",
        f"\\begin{{tabular}}{{l{'r' * len(budgets)}}}",
        r"\toprule",
        " & ".join(heads) + r" \\",
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
        "\\end{table}\n",
    ]
    return "\n".join(lines)


def _cells_by_budget(run: FinishedRun) -> dict[float, str]:
    """Return what a table says of a run at each of its budgets: lower bounds, marked where they are uninformative."""
    stated = run.certificate
    if stated is None:
        means = zip(run.measured["budgets"], attack_rows(run), strict=True)
        return {float(budget): row[1] for budget, row in means}
    # Rows are in the order of the budgets, which those of a certificate need not be.
    return {row.l2_budget: row.marked_cells[1] for row in bounds_table(stated, run.baseline).rows}


def _latex_number(cell: str | None) -> str:
    """Return a number with a true minus sign; a dash where there is none."""
    if cell is None:
        return "--"
    text = _escape_latex(cell.removesuffix("*").strip())
    text = re.sub(r"(?<![\w.])-(?=[\d.])", "$-$", text)
    return text + ("$^*$" if "*" in cell else "")


def _caption(runs: Sequence[FinishedRun], *, marked: bool) -> str:
    """Return what the numbers are, in as few words as that takes."""
    stated = [run.certificate for run in runs if run.certificate is not None]
    parts = []
    if stated:
        sizes = sorted({f"{one.n_episodes:,}" for one in stated})
        confidences = sorted({format_percent(one.confidence) for one in stated})
        parts.append(
            f"Certified lower bounds on the mean return under every attack with budget B{_scopes(runs)} "
            f"({' or '.join(confidences)} confidence, {' or '.join(sizes)} episodes){_assumptions(runs)}"
        )
    if len(stated) < len(runs):
        parts.append("Mean returns under the attacks named")
    text = _escape_latex(". ".join(parts) + ".").replace("budget B", "budget $B$")
    if marked:
        text += " $^*$: not above the open-loop baseline, uninformative."
    return text


def _scopes(runs: Sequence[FinishedRun]) -> str:
    """Return what a budget bounds, in brackets; by run where they differ."""
    scopes = {}
    for run, label in zip(runs, label_runs(runs), strict=True):
        if run.certificate is not None:
            # The columns are the budgets in l2, whichever norm was asked for.
            scopes[label] = run.certificate.scope.format(norm="l2")
    if len(set(scopes.values())) == 1:
        return f" ({next(iter(scopes.values()))})"
    return f" ({'; '.join(f'{label}: {scope}' for label, scope in scopes.items())})"


def _assumptions(runs: Sequence[FinishedRun]) -> str:
    """Return what the bounds assume because a user stated it, as the end of a sentence; by run where they differ."""
    assumed = {}
    for run, label in zip(runs, label_runs(runs), strict=True):
        if run.certificate is not None:
            assumed[label] = assumption(run.certificate)
    if len(set(assumed.values())) <= 1:
        return next(iter(assumed.values()), "")
    return "".join(f"; {label}{said}" for label, said in assumed.items() if said)


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
            # A budget of another threat is not that of one episode.
            "kind": stated.kind or "certificate",
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
    if bounds.any_uninformative:
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
