"""Sentences, numbers and tables as HTML; every name in them is untrusted input and is escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from surefoot.errors import printable
from surefoot.proof.rounding import format_budget, format_estimate, format_exact, format_lower, format_percent
from surefoot.report.certificate_text import bounds_table, budget_texts, notes, offsets_of, requested_lines
from surefoot.report.charts import Entry, Group
from surefoot.report.finished_run import FinishedRun
from surefoot.report.histograms import histogram_rows
from surefoot.report.sentences import ATTACK_HEADS, attack_rows, certified_runs

MOST_COLUMNS = 7
# What a reader looks for first, and what it is called.
FACT_NAMES = {
    "task": "task",
    "environment": "environment",
    "agent": "agent",
    "sigma": "sigma (noise)",
    "sigma_per_feature": "sigma of each feature",
    "action_sigma": "sigma on actions",
    "method": "method",
    "confidence": "confidence",
    "n_episodes": "episodes",
    "floor": "floor (lowest possible return)",
    "ceiling": "ceiling (highest possible return)",
    "n_stack": "stacked frames",
    "max_steps": "maximum steps",
    "seed": "seed",
    "device": "device",
    "lambdas": "lambda",
    "noise_samples": "noise samples of the attacker",
    "n_envs": "parallel environments",
    "block_size": "episodes in a block",
    "n_planned": "episodes planned",
    "purpose": "seed stream",
    "agent_sha256": "sha256 of the agent",
}


def escape(text: str) -> str:
    """Return text that is shown as it is: no markup, and no character that hides or reverses others."""
    return html.escape(printable(text))


# --- the top of a page ------------------------------------------------------------------------------------------------


def render_opening(number: tuple[str, str] | None, sentences: Sequence[str], inconsistencies: Sequence[str]) -> str:
    """Return the number that the page is about and the sentences at the top, after any inconsistency."""
    elements = []
    for found in inconsistencies:
        text = f"Inconsistency: {found}. One of the two is wrong."
        elements.append(tag("p", text, role="alert", kind="alarm"))
    if number is not None:
        value, of = number
        kind = "bound" if value.startswith("≥") else "estimate"
        elements.append(f'<p class="number {kind}"><b>{escape(value)}</b> <span>{escape(of)}</span></p>')
    elements.append(tag("p", sentences[0], kind="headline"))
    for sentence in sentences[1:]:
        elements.append(tag("p", sentence, kind="lead"))
    return "\n".join(elements)


def render_tiles(groups: Sequence[Group]) -> str:
    """Return the few numbers that a reader looks for first; only for a page about one certificate."""
    certified = certified_runs(groups)
    if len(certified) != 1:
        return ""
    run = certified[0]
    stated = run.proved
    estimate = format_estimate(stated.estimate, stated.estimate_sem, run.digits)
    shown = [
        _tile(budget_texts(stated)[run.headline_index], "attack budget of the bound", "bound"),
        _tile(estimate, "mean without attack, an estimate", "estimate"),
    ]
    if run.baseline is not None:
        mean = format_estimate(run.baseline.mean, run.baseline.sem, run.digits)
        shown.append(_tile(mean, "open-loop baseline, an estimate", "estimate"))
    shown.append(_tile(format_percent(stated.confidence), "confidence", "fact"))
    shown.append(_tile(f"{stated.n_episodes:,}", "episodes", "fact"))
    return f'<dl class="tiles">{"".join(shown)}</dl>'


def render_offsets(groups: Sequence[Group]) -> str:
    """Return what the headline's budget allows over time, drawn and as a table; empty where features have no names."""
    certified = certified_runs(groups)
    if len(certified) != 1:
        return ""
    run = certified[0]
    stated = run.proved
    held = offsets_of(stated, run.headline_index)
    if held is None:
        return ""
    heads, *body = held.rows()
    first = held.features[0]
    unit = f" in {first.unit}" if first.unit else ""
    caption = f"Offsets of budget {budget_texts(stated)[run.headline_index]}, by how long they are held"
    words = (
        "Spikes are cheap, what lasts is expensive: an offset b that is held for k steps uses b sqrt(k) of the budget. "
        f"Drawn: {first.name}{unit}."
    )
    return f"<h3>Offsets over time</h3>{tag('p', words)}{held.drawing()}{table(caption, heads, body)}"


def _tile(value: str, what: str, kind: str) -> str:
    number, plus_minus, error = value.partition(" ± ")
    shown = escape(number)
    if plus_minus:
        shown += f"<small>±\u00a0{escape(error)}</small>"
    return f'<div class="tile {kind}"><dt>{escape(what)}</dt><dd>{shown}</dd></div>'


# --- tables -----------------------------------------------------------------------------------------------------------


def bounds_tables(group: Group) -> str:
    """Return the certified bounds of a group as tables, next to what attacks measured."""
    certified = [_bounds_table(group, entry) for entry in group.certified]
    measured = ""
    for entry in group.attacked:
        measured += table(f"{entry.label}: measured, not bounds", ATTACK_HEADS, attack_rows(entry.run))
    return "\n".join(certified) + measured


def _bounds_table(group: Group, entry: Entry) -> str:
    """Return the bounds of a certificate, with a column for every attack on the same agent."""
    stated = entry.run.proved
    bounds = bounds_table(stated, entry.run.baseline)
    # Attacks have the color of the agent that they attack.
    attacks = [attack for attack in group.attacked if attack.color == entry.color]
    heads = [bounds.heads[0], "certified lower bound", "certified upper bound"]
    for attack in attacks:
        heads.append(f"{attack.label} (measured)")
    body = []
    for row in bounds.rows:
        cells = list(row.marked_cells)
        for attack in attacks:
            cells.append(_mean_under_attack(attack.run, row.l2_budget))
        body.append(cells)
    remarks = [*requested_lines(stated), *notes(stated)]
    if bounds.note:
        remarks.insert(0, bounds.note)
    page_part = table(entry.label, heads, body)
    for remark in remarks:
        page_part += tag("p", remark, kind="note")
    return page_part


def _mean_under_attack(run: FinishedRun, budget: float) -> str:
    attack = run.measured
    # An attack may have been run at other budgets than were certified: nothing is interpolated.
    if budget not in attack["budgets"]:
        return "not tried"
    index = attack["budgets"].index(budget)
    return format_estimate(attack["curve"][index], attack["curve_sem"][index], run.digits)


def comparison_table(group: Group) -> str:
    """Return one row per certificate: what was run and what it certifies at the budgets that all have."""
    if len(group.certified) < 2:
        return ""
    common = set(group.certified[0].run.proved.budgets.tolist())
    for entry in group.certified:
        common &= set(entry.run.proved.budgets.tolist())
    # Every second or third of them, where there are more than a page is wide.
    shown = sorted(common)[:: -(-len(common) // MOST_COLUMNS) or 1]
    heads = ["run", "sigma", "method", "episodes", "confidence", "no attack (estimate)"]
    for budget in shown:
        heads.append(f"B\u00a0=\u00a0{format_budget(budget)}")
    body = []
    for entry in group.certified:
        stated = entry.run.proved
        digits = entry.run.digits
        row = [
            entry.label,
            entry.run.noise.removeprefix("sigma "),
            stated.method,
            f"{stated.n_episodes:,}",
            format_percent(stated.confidence),
        ]
        row.append(f"{stated.estimate:.{digits}f}")
        lower = dict(zip(stated.budgets.tolist(), stated.lower.tolist(), strict=True))
        for budget in shown:
            row.append(format_lower(lower[budget], digits))
        body.append(row)
    return table("Certified lower bounds at budget B", heads, body)


def histogram_table(histogram: Mapping[str, Any]) -> str:
    """Return a histogram as a table of counts."""
    heads, body = histogram_rows(dict(histogram))
    return table("Number of episodes", heads, body)


# --- setups -----------------------------------------------------------------------------------------------------------


def render_setups(groups: Sequence[Group]) -> str:
    """Return the setup of every run."""
    setups: list[str] = []
    for group in groups:
        setups += map(_setup, group.entries)
    return "\n".join(setups)


def _setup(entry: Entry) -> str:
    items = []
    for key, value in known_facts(entry.run):
        if value is not None:
            items.append(f"<div><dt>{escape(key)}</dt><dd>{_fact_value(key, value)}</dd></div>")
    # Text of a file: with its line breaks spelled out, and without a button, nobody pastes what was not read.
    command = printable(str(entry.run.notes.get("command") or "")).replace("\n", "\\n").replace("\t", "\\t")
    repeat = ""
    if command:
        # A word of its own, so that no line breaks inside an option.
        words = " ".join(f"<span>{escape(word)}</span>" for word in command.split(" "))
        said = "It was made with, as run.json says (read it before you run it):"
        repeat = f'<p>{said}</p><div class="typed"><pre tabindex="0"><code>{words}</code></pre></div>'
    facts = f'<dl class="facts">{"".join(items)}</dl>'
    return f'<article class="setup"><h3>{escape(entry.label)}</h3>{repeat}{facts}</article>'


def _fact_value(key: str, value: Any) -> str:
    """Return one fact; of a hash the first digits, and a button that copies it whole."""
    text = plain(value)
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        return escape(text)
    button = f'<button type="button" class="copy" data-copy="{text}" aria-label="Copy {escape(key)}">Copy</button>'
    return f'<code title="{text}">{text[:12]}…</code> {button}'


def known_facts(run: FinishedRun) -> Iterator[tuple[str, Any]]:
    """Yield what is known about a run, what a reader looks for first at the top, and the hashes of its files."""
    facts = _setup_facts(run)
    yield "run directory", run.name
    for key, name in FACT_NAMES.items():
        if key in facts:
            yield name, facts[key]
    for key in sorted(facts.keys() - FACT_NAMES.keys() - {"schema"}):
        yield key.replace("_", " "), facts[key]
    if run.baseline is not None:
        yield "open-loop baseline", run.baseline.what
    yield "seconds", run.notes.get("wall_seconds")
    yield "run with", run.notes.get("versions")
    yield "certified with", run.notes.get("certified_with")
    for name, digest in run.digests.items():
        yield f"sha256 of {name}", digest


def _setup_facts(run: FinishedRun) -> dict[str, Any]:
    """Return the setup with what the result says about it, by the names of the files."""
    facts = dict(run.setup)
    for key, value in run.identity.items():
        # What the result does not know may still be known from the setup.
        if value is not None:
            facts[key] = value
    stated = run.certificate
    if stated is not None:
        for name in ("method", "confidence", "sigma", "floor", "ceiling"):
            facts[name] = getattr(stated, name)
        facts["n_episodes"] = stated.n_episodes
        facts.pop("stated_by_user", None)
        for name in {"floor", "ceiling"} & set(stated.metadata.get("stated_by_user") or ()):
            facts[name] = f"{plain(facts[name])}, stated by the user, not proved"
    if run.attack is not None:
        for name in ("method", "n_episodes", "noise_samples", "lambdas"):
            facts[name] = run.attack.get(name)
        # Those of one configuration, not of the run.
        facts.pop("attacker", None)
        facts.pop("budget", None)
    if facts.get("n_planned") == facts.get("n_episodes"):
        facts.pop("n_planned", None)
    if not facts.get("purpose"):
        facts.pop("purpose", None)
    if facts.get("seed") is not None:
        # As text: a seed has no thousands.
        facts["seed"] = str(facts["seed"])
    return facts


def plain(value: Any) -> str:
    """Return a fact as text."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {plain(part)}" for key, part in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value)) or "none"
    # True and False are integers of Python.
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return format_exact(value)
    return str(value)


# --- elements ---------------------------------------------------------------------------------------------------------


def table(caption: str, heads: Sequence[str], body: Iterable[Sequence[str]], *, kind: str = "numbers") -> str:
    """Return a table with a caption, its first column being the rows' headings; its cells are numbers or words."""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in heads)
    lines = []
    for first, *others in body:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in others)
        lines.append(f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>')
    return (
        f'<div class="scroll {kind}" tabindex="0" role="group" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
        "</div>"
    )


def facts_list(facts: Iterable[tuple[str, str]]) -> str:
    """Return facts with their names; a hash whole, on a line of its own, to be compared by eye."""
    items = []
    for name, text in facts:
        kind = "short"
        value = escape(text)
        if len(text) == 64 and name.startswith("sha256"):
            kind = "wide"
            value = f"<code>{value}</code>"
        items.append(f'<div class="{kind}"><dt>{escape(name)}</dt><dd>{value}</dd></div>')
    return f'<dl class="facts">{"".join(items)}</dl>'


def tag(name: str, text: str, kind: str = "", role: str = "") -> str:
    """Return an element with escaped text."""
    attributes = ""
    if kind:
        attributes += f' class="{kind}"'
    if role:
        attributes += f' role="{role}"'
    return f"<{name}{attributes}>{escape(text)}</{name}>"
