"""Runs as tables for papers and spreadsheets: Markdown and LaTeX with rounded bounds, CSV with all digits."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any

from surefoot.errors import printable
from surefoot.proof.rounding import exact, format_budget, format_estimate
from surefoot.report.certificate_text import bounds_table, headline, notes
from surefoot.report.charts import digits_of, labels
from surefoot.report.finished_run import FinishedRun
from surefoot.report.sentences import attack_sentence, budget_used

COLUMNS = (
    "run", "kind", "task", "agent", "agent_sha256", "sigma", "method", "confidence", "episodes", "budget", "lower",
    "upper", "mean", "standard_error", "lambda", "open_loop_baseline",
)  # fmt: skip
_LATEX = {
    "\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "≥": r"$\ge$", "±": r"$\pm$",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}  # fmt: skip


def as_markdown(runs: Sequence[FinishedRun]) -> str:
    """Return one table per run, each after its sentence."""
    return "\n".join(_markdown(run, label) for run, label in zip(runs, labels(runs), strict=True))


def _markdown(run: FinishedRun, label: str) -> str:
    heads, rows = _table(run)
    lines = [
        f"### {_flat(label)}\n",
        f"{_flat(_sentence(run))}\n",
        "| " + " | ".join(heads) + " |",
        "|" + "---:|" * len(heads),
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
        *(f"{_flat(said)}\n" for said in _footnotes(run)),
    ]
    return "\n".join(lines)


def as_latex(runs: Sequence[FinishedRun]) -> str:
    """Return one ``table`` per run; it needs the package booktabs."""
    return "\n".join(_latex(run, label) for run, label in zip(runs, labels(runs), strict=True))


def _latex(run: FinishedRun, label: str) -> str:
    heads, rows = _table(run)
    lines = [
        r"% \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        f"\\caption{{{_tex(f'{label}. {_sentence(run)}')}}}",
        f"\\begin{{tabular}}{{{'r' * len(heads)}}}",
        r"\toprule",
        " & ".join(map(_tex, heads)) + r" \\",
        r"\midrule",
        *(" & ".join(map(_tex, row)) + r" \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
        *(f"\\par\\smallskip\\footnotesize {_tex(said)}" for said in _footnotes(run)),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def as_csv(runs: Sequence[FinishedRun]) -> str:
    """Return one row per run and budget, numbers with all their digits."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for run, label in zip(runs, labels(runs), strict=True):
        for row in _raw(run):
            cells = {**_about(run, label), **row}
            writer.writerow({name: _cell(cell) for name, cell in cells.items()})
    return text.getvalue()


def _about(run: FinishedRun, label: str) -> dict[str, Any]:
    known = {key: run.identity.get(key) for key in ("task", "agent", "agent_sha256")}
    baseline = None if run.baseline is None else run.baseline.mean
    return {"run": label, **known, "sigma": run.sigma, "open_loop_baseline": baseline}


def _raw(run: FinishedRun) -> Iterator[dict[str, Any]]:
    stated, attack = run.certificate, run.attack
    if stated is not None:
        known = {"kind": "certificate", "method": stated.method, "confidence": stated.confidence}
        known |= {"episodes": stated.n_episodes, "mean": stated.estimate, "standard_error": stated.estimate_sem}
        upper = [None] * len(stated.budgets) if stated.upper is None else stated.upper.tolist()
        for budget, low, high in zip(stated.budgets.tolist(), stated.lower.tolist(), upper, strict=True):
            yield {**known, "budget": budget, "lower": low, "upper": high}
    if attack is not None:
        known = {"kind": "attack", "method": attack.get("method"), "episodes": attack["episodes"]}
        columns = (attack[key] for key in ("budgets", "curve", "curve_sem", "curve_lambda"))
        for budget, mean, sem, lambda_ in zip(*columns, strict=True):
            yield {**known, "budget": budget, "mean": mean, "standard_error": sem, "lambda": lambda_}


def _table(run: FinishedRun) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows as text, rounded conservatively, rows below the baseline marked."""
    if run.certificate is not None:
        bounds = bounds_table(run.certificate, run.baseline)
        return list(bounds.heads), [list(row.marked_cells) for row in bounds.rows]
    attack = run.attack
    assert attack is not None
    columns = zip(*(attack[key] for key in ("budgets", "curve", "curve_sem", "curve_lambda")), budget_used(attack),
                  strict=True)  # fmt: skip
    digits = digits_of(run)
    rows = [
        [format_budget(budget), format_estimate(mean, sem, digits), "none" if q is None else exact(q), f"{used:.0%}"]
        for budget, mean, sem, q, used in columns
    ]
    return ["attack budget", "mean ± standard error", "lambda", "mean budget used"], rows


def _sentence(run: FinishedRun) -> str:
    return attack_sentence(run) if run.certificate is None else headline(run.certificate, run.required, run.baseline)


def _footnotes(run: FinishedRun) -> list[str]:
    stated = run.certificate
    if stated is None:
        return []
    bounds = bounds_table(stated, run.baseline)
    footnotes = [bounds.note] if bounds.any_below_baseline else []
    return [*footnotes, *notes(stated)]


def _flat(text: str) -> str:
    """Return text that cannot be taken for Markdown or HTML: names in it are untrusted."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(printable(text).split()))


def _tex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in " ".join(printable(text).split()))


def _cell(value: Any) -> Any:
    """Return a number or nothing as it is, and everything else as text that a spreadsheet does not compute."""
    if value is None or isinstance(value, int | float):
        return value
    plain = printable(str(value))
    return f"'{plain}" if plain.lstrip()[:1] in ("=", "+", "-", "@") else plain
