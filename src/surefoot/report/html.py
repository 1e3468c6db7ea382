"""Sentences, numbers and tables as HTML; every name in them is untrusted input and is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from surefoot.proof.certificate import Certificate
from surefoot.proof.rounding import exact, format_budget, format_lower, percent
from surefoot.proof.wording import baseline_note, bound_rows, budget_texts, digits_for, notes, requested_lines
from surefoot.report.charts import Group, digits_of
from surefoot.report.finished_run import FinishedRun
from surefoot.report.histograms import rows_of
from surefoot.report.sentences import IDLE, budget_used

MOST_COLUMNS = 7


def opening(sentences: Sequence[str], inconsistencies: Sequence[str]) -> str:
    """Return the sentences at the top, the first one large, after any inconsistency."""
    alarm = [
        tag("p", f"Inconsistency: {found}. One of the two is wrong.", role="alert", kind="alarm")
        for found in inconsistencies
    ]
    lead, *rest = sentences
    return "\n".join([*alarm, tag("p", lead, kind="headline"), *(tag("p", text, kind="lead") for text in rest)])


def tiles(groups: Sequence[Group]) -> str:
    """Return the few numbers that a reader looks for first; only for a page about one certificate."""
    certified = [run for group in groups for run, _, _ in group.certified]
    if len(certified) != 1 or certified[0].certificate is None:
        return ""
    run, stated = certified[0], certified[0].certificate
    digits, index = digits_for(stated), run.headline_index
    budget = budget_texts(stated)[index]
    error = "" if stated.estimate_sem is None else f" ± {stated.estimate_sem:.{digits}f}"
    shown = [
        (f"≥ {format_lower(stated.lower[index], digits)}", f"certified at budget {budget}", "bound"),
        (f"{stated.estimate:.{digits}f}{error}", "mean without attack, an estimate", "estimate"),
    ]
    if run.baseline is not None:
        shown.append((f"{run.baseline.mean:.{digits}f}", "open-loop baseline, an estimate", "estimate"))
    shown += [(percent(stated.confidence), "confidence", "fact"), (f"{stated.n_episodes:,}", "episodes", "fact")]
    cells = "".join(
        f'<div class="tile {kind}"><dt>{escape(what)}</dt><dd>{escape(value)}</dd></div>' for value, what, kind in shown
    )
    return f'<dl class="tiles">{cells}</dl>'


def bounds_tables(group: Group) -> str:
    """Return the certified bounds of a group as tables, next to what attacks measured."""
    return "\n".join(_bounds_table(group, run, label) for run, label, _ in group.certified) + _attack_tables(group)


def _bounds_table(group: Group, run: FinishedRun, label: str) -> str:
    stated = run.certificate
    assert stated is not None
    attacks = [(other, name) for other, name, color in group.attacked if color == _color(group, run)]
    heads = [
        "attack budget",
        "certified lower bound",
        "certified upper bound",
        *(f"{name} (measured)" for _, name in attacks),
    ]
    body = [
        [*row, *(_measured(other, budget) for other, _ in attacks)]
        for row, budget in zip(bound_rows(stated), sorted(stated.budgets.tolist()), strict=True)
    ]
    said = [*requested_lines(stated), *notes(stated)]
    if run.baseline is not None:
        said.append(baseline_note(stated, run.baseline))
    return table(label, heads, body) + "".join(tag("p", sentence, kind="note") for sentence in said)


def _attack_tables(group: Group) -> str:
    made = []
    for run, label, _ in group.attacked:
        assert run.attack is not None
        digits = digits_of(run)
        columns = zip(
            *(run.attack[key] for key in ("budgets", "curve", "curve_sem", "curve_lambda")),
            budget_used(run.attack),
            strict=True,
        )
        body = [
            [
                format_budget(budget),
                f"{mean:.{digits}f} ± {sem:.{digits}f}",
                "none" if lambda_ is None else f"{lambda_:g}",
                "did not attack" if used < IDLE else f"{used:.0%}",
            ]
            for budget, mean, sem, lambda_, used in columns
        ]
        heads = ["budget", "mean ± standard error", "lambda_Q", "mean budget used"]
        made.append(table(f"{label}: measured, not bounds", heads, body))
    return "".join(made)


def _measured(run: FinishedRun, budget: float) -> str:
    assert run.attack is not None
    digits = digits_of(run)
    for tried, mean, sem in zip(*(run.attack[key] for key in ("budgets", "curve", "curve_sem")), strict=True):
        if tried == budget:
            return f"{mean:.{digits}f} ± {sem:.{digits}f}"
    return "not tried"


def _color(group: Group, wanted: FinishedRun) -> int:
    return next(color for run, _, color in group.certified if run is wanted)


def comparison_table(group: Group) -> str:
    """Return one row per certificate: what was run and what it certifies at the budgets that all have."""
    entries = [(run.certificate, label) for run, label, _ in group.certified if run.certificate is not None]
    if len(entries) < 2:
        return ""
    common = sorted(set.intersection(*(set(stated.budgets.tolist()) for stated, _ in entries)))
    chosen = common[:: -(-len(common) // MOST_COLUMNS)]
    heads = ["run", "sigma", "method", "episodes", "confidence", "no attack (estimate)"]
    body = [_comparison_row(stated, label, chosen) for stated, label in entries]
    return table(
        "Certified lower bounds at budget B", [*heads, *(f"B\u00a0=\u00a0{format_budget(b)}" for b in chosen)], body
    )


def _comparison_row(stated: Certificate, label: str, chosen: Sequence[float]) -> list[str]:
    digits = digits_for(stated)
    lower = dict(zip(stated.budgets.tolist(), stated.lower.tolist(), strict=True))
    played = [exact(stated.sigma), stated.method, f"{stated.n_episodes:,}", percent(stated.confidence)]
    return [
        label,
        *played,
        f"{stated.estimate:.{digits}f}",
        *(format_lower(lower[budget], digits) for budget in chosen),
    ]


def histogram_table(histogram: Mapping[str, Any]) -> str:
    """Return a histogram as a table of counts."""
    heads, body = rows_of(dict(histogram))
    return table("Number of episodes", heads, body)


def table(caption: str, heads: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Return a table with a caption, its first column being the rows' headings."""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in heads)
    lines = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>' + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:]) + "</tr>"
        for row in body
    )
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def tag(name: str, text: str, kind: str = "", role: str = "") -> str:
    """Return an element with escaped text."""
    marks = (f' class="{kind}"' if kind else "") + (f' role="{role}"' if role else "")
    return f"<{name}{marks}>{escape(text)}</{name}>"
