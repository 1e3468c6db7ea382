"""Sentences, numbers and tables as HTML; every name in them is untrusted input and is escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from surefoot.errors import printable
from surefoot.proof.certificate import Certificate
from surefoot.proof.rounding import exact, format_budget, format_estimate, format_lower, percent
from surefoot.report.certificate_text import bounds_table, budget_texts, digits_for, notes, requested_lines
from surefoot.report.charts import Group, digits_of
from surefoot.report.finished_run import FinishedRun
from surefoot.report.histograms import rows_of
from surefoot.report.sentences import IDLE, budget_used

MOST_COLUMNS = 7
# What a reader looks for first, and what it is called.
NAMES = {
    "task": "task",
    "environment": "environment",
    "agent": "agent",
    "sigma": "sigma (noise)",
    "features": "sigma of each feature",
    "method": "method",
    "confidence": "confidence",
    "episodes": "episodes",
    "floor": "floor (lowest possible return)",
    "ceiling": "ceiling (highest possible return)",
    "frames": "stacked frames",
    "limit": "maximum steps",
    "seed": "seed",
    "device": "device",
    "lambdas": "lambda",
    "draws": "noise samples of the attacker",
    "slots": "parallel environments",
    "block": "episodes in a block",
    "planned": "episodes planned",
    "stream": "seed stream",
    "agent_sha256": "sha256 of the agent",
}


def escape(text: str) -> str:
    """Return text that is shown as it is: no markup, and no character that hides or reverses others."""
    return html.escape(printable(text))


def opening(number: tuple[str, str] | None, sentences: Sequence[str], inconsistencies: Sequence[str]) -> str:
    """Return the number that the page is about and the sentences at the top, after any inconsistency."""
    alarm = [
        tag("p", f"Inconsistency: {found}. One of the two is wrong.", role="alert", kind="alarm")
        for found in inconsistencies
    ]
    lead, *rest = sentences
    first = []
    if number is not None:
        value, of = number
        kind = "bound" if value.startswith("≥") else "estimate"
        first = [f'<p class="number {kind}"><b>{escape(value)}</b> <span>{escape(of)}</span></p>']
    return "\n".join([*alarm, *first, tag("p", lead, kind="headline"), *(tag("p", said, kind="lead") for said in rest)])


def tiles(groups: Sequence[Group]) -> str:
    """Return the few numbers that a reader looks for first; only for a page about one certificate."""
    certified = [run for group in groups for run, _, _ in group.certified]
    if len(certified) != 1 or certified[0].certificate is None:
        return ""
    run, stated = certified[0], certified[0].certificate
    digits, budget = digits_for(stated), budget_texts(stated)[run.headline_index]
    shown = [(budget, "attack budget of the bound", "bound")]
    estimates = [("mean without attack, an estimate", stated.estimate, stated.estimate_sem)]
    if run.baseline is not None:
        estimates.append(("open-loop baseline, an estimate", run.baseline.mean, run.baseline.sem))
    shown += [(format_estimate(mean, sem, digits), what, "estimate") for what, mean, sem in estimates]
    shown += [(percent(stated.confidence), "confidence", "fact"), (f"{stated.n_episodes:,}", "episodes", "fact")]
    return f'<dl class="tiles">{"".join(_tile(*one) for one in shown)}</dl>'


def _tile(value: str, what: str, kind: str) -> str:
    number, plus_minus, error = value.partition(" ± ")
    small = f"<small>±\u00a0{escape(error)}</small>" if plus_minus else ""
    return f'<div class="tile {kind}"><dt>{escape(what)}</dt><dd>{escape(number)}{small}</dd></div>'


def bounds_tables(group: Group) -> str:
    """Return the certified bounds of a group as tables, next to what attacks measured."""
    return "\n".join(_bounds_table(group, *entry) for entry in group.certified) + _attack_tables(group)


def _bounds_table(group: Group, run: FinishedRun, label: str, color: int) -> str:
    stated = run.certificate
    assert stated is not None
    bounds = bounds_table(stated, run.baseline)
    attacks = [(attack, name) for attack, name, attacked in group.attacked if attacked == color]
    heads = [bounds.heads[0], *(f"certified {head}" for head in bounds.heads[1:])]
    heads += [f"{name} (measured)" for _, name in attacks]
    body = []
    for row in bounds.rows:
        measured = [_measured(attack, row.l2_budget) for attack, _ in attacks]
        body.append([*row.marked_cells, *measured])
    remarks = [*requested_lines(stated), *notes(stated)]
    if bounds.note:
        remarks.insert(0, bounds.note)
    return table(label, heads, body) + "".join(tag("p", sentence, kind="note") for sentence in remarks)


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
                format_estimate(mean, sem, digits),
                "none" if lambda_ is None else f"{lambda_:g}",
                "did not attack" if used < IDLE else f"{used:.0%}",
            ]
            for budget, mean, sem, lambda_, used in columns
        ]
        heads = ["budget", "mean ± standard error", "lambda", "mean budget used"]
        made.append(table(f"{label}: measured, not bounds", heads, body))
    return "".join(made)


def _measured(run: FinishedRun, budget: float) -> str:
    assert run.attack is not None
    if budget not in run.attack["budgets"]:
        return "not tried"
    index = run.attack["budgets"].index(budget)
    return format_estimate(run.attack["curve"][index], run.attack["curve_sem"][index], digits_of(run))


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


def setups(groups: Sequence[Group]) -> str:
    """Return the setup of every run."""
    named = [entry for group in groups for entry in zip(group.runs, group.labels, strict=True)]
    return "\n".join(_setup(run, label) for run, label in named)


def _setup(run: FinishedRun, label: str) -> str:
    items = "".join(
        f"<div><dt>{escape(key)}</dt><dd>{_fact(key, v)}</dd></div>" for key, v in known_facts(run) if v is not None
    )
    # Text of a file: with its line breaks spelled out, and without a button, nobody pastes what was not read.
    command = printable(str(run.notes.get("command") or "")).replace("\n", "\\n").replace("\t", "\\t")
    # A word of its own, so that no line breaks inside an option.
    words = " ".join(f"<span>{escape(word)}</span>" for word in command.split(" "))
    typed = f'<pre tabindex="0"><code>{words}</code></pre>'
    said = "It was made with, as run.json says (read it before you run it):"
    repeat = f'<p>{said}</p><div class="typed">{typed}</div>' if command else ""
    return f'<article class="setup"><h3>{escape(label)}</h3>{repeat}<dl class="facts">{items}</dl></article>'


def _fact(key: str, value: Any) -> str:
    """Return one fact; of a hash the first digits, and a button that copies it whole."""
    text = plain(value)
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        return escape(text)
    return f'<code title="{text}">{text[:12]}…</code> {_copy(text, key)}'


def _copy(text: str, what: str) -> str:
    return (
        f'<button type="button" class="copy" data-copy="{escape(text)}" aria-label="Copy {escape(what)}">Copy</button>'
    )


def known_facts(run: FinishedRun) -> Iterator[tuple[str, Any]]:
    """Yield what is known about a run, what a reader looks for first at the top, and the hashes of its files."""
    facts = {**run.setup, **{key: value for key, value in run.identity.items() if value is not None}}
    stated = run.certificate
    if stated is not None:
        facts |= {key: getattr(stated, key) for key in ("method", "confidence", "sigma", "floor", "ceiling")}
        facts["episodes"] = stated.n_episodes
        facts.pop("stated_by_user", None)
        for name in {"floor", "ceiling"} & set(stated.metadata.get("stated_by_user") or ()):
            facts[name] = f"{plain(facts[name])}, stated by the user, not proved"
    if run.attack is not None:
        facts |= {key: run.attack.get(key) for key in ("method", "episodes", "draws", "lambdas")}
        facts = {
            key: value for key, value in facts.items() if key not in {"adversary", "budget"}
        }  # those of one configuration
    if facts.get("planned") == facts.get("episodes"):
        facts.pop("planned", None)
    if not facts.get("stream"):
        facts.pop("stream", None)
    facts["seed"] = None if facts.get("seed") is None else str(facts["seed"])
    yield "run directory", run.name
    for key in (*(key for key in NAMES if key in facts), *sorted(set(facts) - set(NAMES) - {"schema"})):
        yield NAMES.get(key, key.replace("_", " ")), facts[key]
    if run.baseline is not None:
        yield "open-loop baseline", run.baseline.what
    yield "seconds", run.notes.get("wall_seconds")
    yield "run with", run.notes.get("versions")
    yield "certified with", run.notes.get("certified_with")
    for name, digest in run.digests.items():
        yield f"sha256 of {name}", digest


def plain(value: Any) -> str:
    """Return a fact as text."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {plain(part)}" for key, part in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(plain(part) for part in value) or "none"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return exact(value) if isinstance(value, float) else str(value)


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
