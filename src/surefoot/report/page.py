"""The HTML report of one or several runs: one file that needs no network and runs only its own script."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from surefoot.errors import InputError, printable
from surefoot.files import write_text
from surefoot.provenance import versions
from surefoot.report import html, sentences
from surefoot.report.charts import Group, chart_data, find_inconsistencies, group_runs
from surefoot.report.finished_run import FinishedRun
from surefoot.report.histograms import histogram_data, spending_data
from surefoot.report.html import escape
from surefoot.report.taped_frames import replay_data

REPORT_FILE = "report.html"
LARGEST_PAGE = 8_000_000  # bytes of a page
MOST_OF_REPLAYS = 5_000_000
SCRIPTS = ("draw.js", "curve.js", "outcomes.js", "scenes.js", "replay.js", "theme.js", "main.js")
NOT_REPLAYED = (
    "No episode is shown here, because the run recorded none: run the same command with --record. Precomputed returns "
    "have none."
)


def write_report(runs: Sequence[FinishedRun], path: Path) -> None:
    """Write one page about all these runs."""
    if not runs:
        raise InputError("a report needs at least one run directory, got none")
    page = build_page(runs)
    if len(page.encode()) > LARGEST_PAGE:
        raise InputError(
            f"the page about {len(runs)} runs would have {len(page.encode()):,} bytes, more than {LARGEST_PAGE:,}; "
            "name fewer run directories"
        )
    write_text(path, page)


def build_page(runs: Sequence[FinishedRun]) -> str:
    """Return the page as text."""
    groups = group_runs(runs)
    histograms = []
    spending = []
    inconsistencies = []
    for group in groups:
        histogram = histogram_data(group)
        if histogram is not None:
            histograms.append(histogram)
        spending += spending_data(group)
        inconsistencies += find_inconsistencies(group)
    replays = _replays(groups)
    has_proof = any(group.certified for group in groups)
    present = {
        "histogram": bool(histograms),
        "spending": bool(spending),
        "replay": bool(replays),
        "no-replay": not replays,
        "proved": has_proof,
        "attacks-only": not has_proof,
    }
    data = {
        "charts": list(map(chart_data, groups)),
        "histograms": histograms,
        "spending": spending,
        "replays": replays,
    }
    top = html.render_opening(sentences.lead_number(groups), sentences.opening_sentences(groups), inconsistencies)
    curve_title, curve_text = sentences.curve_words(groups)
    return fill_page(
        drop_absent_parts(read_asset("page.html"), present),
        {
            "title": escape(sentences.title_of(groups)),
            "opening": top,
            "budget-meaning": escape("; or the ".join(sentences.budget_meanings(groups))),
            "budget-units": sentences.budget_units(groups),
            "perturbed-if-noise": sentences.perturbed_words(groups, "noise, if there is any, is"),
            "perturbed": sentences.perturbed_words(groups, "noise is"),
            "excluded-channels": sentences.excluded_channels(groups),
            "budget-examples": escape(sentences.budget_examples(groups)),
            "offsets": html.render_offsets(groups),
            "excluded-threat": escape(sentences.excluded_threat(groups)),
            "curve-title": escape(curve_title),
            "curve-text": escape(curve_text),
            "tiles": html.render_tiles(groups),
            "charts": "\n".join(_chart(group, number) for number, group in enumerate(groups)),
            "histogram-tables": "\n".join(map(html.histogram_table, histograms)),
            "no-replay": escape(why_no_replay(run.notes.get("replay") for run in runs)),
            "setups": html.render_setups(groups),
            "data": embed_json(data),
        },
    )


def embed_json(data: Any) -> str:
    """Return JSON that can be inside a script element: nothing in it can end the element or begin another."""
    # Signs of markup as \u003c and so on, which JSON reads as the same text.
    text = json.dumps(_spell_out(data), allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _spell_out(data: Any) -> Any:
    """Spell out control and bidirectional characters in all texts, as ``escape`` does."""
    if isinstance(data, dict):
        return {key: _spell_out(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return list(map(_spell_out, data))
    if isinstance(data, str):
        return printable(data)
    return data


def _chart(group: Group, number: int) -> str:
    return fill_template(
        read_asset("chart.html"),
        {
            "number": str(number),
            "title": escape(group.title),
            "comparison": html.comparison_table(group),
            "all": "All bounds as a table" if group.certified else "All means as a table",
            "tables": html.bounds_tables(group),
        },
    )


def _replays(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Return the replays, as many as a page can carry."""
    found = []
    size = 0
    for group in groups:
        for entry in group.entries:
            replay = replay_data(entry.run, entry.label)
            if replay is None:
                continue
            # The first ones that fit: their order is that of the runs.
            size += len(json.dumps(replay))
            if size <= MOST_OF_REPLAYS:
                found.append(replay)
    return found


def why_no_replay(reasons: Iterable[object]) -> str:
    """Return why a page shows no episode; reasons are what run directories say."""
    for reason in reasons:
        if reason:
            return f"No episode could be shown: {reason}."
    return NOT_REPLAYED


def drop_absent_parts(template: str, present: dict[str, bool]) -> str:
    """Drop the parts of the template that have nothing to show."""
    for name, keep in present.items():
        part = re.compile(rf"<!-- begin {name} -->(.*?)<!-- end {name} -->\n?", re.DOTALL)
        template = part.sub(r"\1" if keep else "", template)
    return template


def fill_page(body: str, values: dict[str, str]) -> str:
    """Return a page of this body, with the head, the style and the script that all pages have."""
    # Content Security Policy: whatever a name in somebody's file smuggles in, only this style and this script run.
    style = read_asset("page.css")
    script = "\n".join(map(read_asset, SCRIPTS))
    nothing = "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:"
    policy = f"{nothing}; style-src {_policy_hash(style)}; script-src {_policy_hash(script)}"
    version = escape(versions()["surefoot"])
    known = {"style": style, "script": script, "policy": policy, "version": version, **values}
    return fill_template(read_asset("head.html") + body, known)


def fill_template(template: str, values: dict[str, str]) -> str:
    """Put every value in its place, in one pass: a value is never taken for a placeholder."""
    return re.sub(r"\{\{([a-z-]+)\}\}", lambda place: values[place[1]], template)


def _policy_hash(content: str) -> str:
    # The browser hashes exactly the text between the tags.
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def read_asset(name: str) -> str:
    """Return a template, a style or a script of the pages."""
    return (files("surefoot.report") / "assets" / name).read_text(encoding="utf-8")
