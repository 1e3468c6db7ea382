"""The HTML report of a comparison: what is proved about the difference, and which episodes changed."""

from __future__ import annotations

from pathlib import Path

from surefoot.files import write_text
from surefoot.proof.comparison import Comparison
from surefoot.proof.rounding import format_estimate, format_lower, format_percent, format_upper
from surefoot.report import html
from surefoot.report.comparison_text import (
    NOT_ALGORITHMS,
    describe_changes,
    difference_rows,
    digits_of,
    smallest_difference,
    state_assumption,
    state_gate,
    state_result,
)
from surefoot.report.finished_run import Tape
from surefoot.report.html import escape
from surefoot.report.page import drop_absent_parts, embed_json, fill_page, read_asset, why_no_replay
from surefoot.report.taped_frames import tape_data

_WIDTH = 420  # of the chart, in its own units
_ROW = 40
_LABELS = 70
_HALF_WORDS = 65


def write_comparison_page(comparison: Comparison, path: Path, tape: Tape | None = None, reason: object = None) -> None:
    """Write the page.

    Args:
        tape: The episode that was recorded for it.
        reason: Why there is none although one was to be.
    """
    opening = [state_result(comparison)]
    if assumed := state_assumption(comparison):
        opening.append(assumed)
    if comparison.question.gate is not None:
        opening.append(state_gate(comparison))
    opening += [smallest_difference(comparison), NOT_ALGORITHMS]
    changed = []
    for name, a, b in comparison.changes.largest if comparison.changes else ():
        changed.append([str(name), f"{a:g}", f"{b:g}", f"{a - b:+g}"])
    changes = ""
    sentence = describe_changes(comparison) or "The episodes of the two have nothing in common: none can be compared."
    if changed:
        heads = ["episode or seed", "return of A", "return of B", "difference"]
        changes = html.table("The largest differences; episodes.csv lists all", heads, changed)
    replays = []
    if tape is not None:
        replays.append(tape_data(tape, "A and B", path.parent.name))
    present = {"replay": bool(replays), "no-replay": not replays}
    page = fill_page(
        drop_absent_parts(read_asset("comparison.html"), present),
        {
            "title": escape(f"{comparison.names[0]} and {comparison.names[1]} compared"),
            "opening": html.render_opening(_lead(comparison), opening, []),
            "table": html.table(
                f"{format_percent(comparison.question.confidence)} confidence",
                ["attack budget", "A minus B", "why"],
                difference_rows(comparison),
                kind="words interval",
            ),
            "chart": _draw_chart(comparison),
            "change-sentence": escape(sentence),
            "changes": changes,
            "sides": _sides_table(comparison),
            "check": "Recompute all bounds by other code and rerun episodes; exit code 0 means verified. Agents and "
            "an environment of your own are named with <code>--agent</code>, <code>--agent-b</code> and "
            "<code>--env</code>:",
            "folder": escape(str(path.parent)),
            "no-replay": escape(why_no_replay([reason])),
            "data": embed_json({"charts": [], "histograms": [], "spending": [], "replays": replays}),
        },
    )
    write_text(path, page)


def _lead(comparison: Comparison) -> tuple[str, str]:
    """Return which agent is better and by how much, or that nothing says so."""
    low = comparison.interval.low
    high = comparison.interval.high
    if comparison.winner == "B":
        # By how much B is better, not A.
        low, high = -high, -low
    digits = digits_of(comparison)
    size = f"{format_lower(low, digits)} to {format_upper(high, digits)}"
    if comparison.winner is None:
        return "Not separated", f"mean return of A minus that of B: {size}"
    return f"{comparison.winner} is better", f"by {size} in mean return"


def _sides_table(comparison: Comparison) -> str:
    """Return what is known about both agents."""
    parts = []
    for index, side in enumerate("AB"):
        facts = comparison.sides[side]
        known = [
            ("episodes", f"{comparison.n_episodes[index]:,}"),
            ("mean return (an estimate)", format_estimate(comparison.means[index], None, digits_of(comparison))),
            ("seed", str(facts.get("seed"))),
            ("sha256 of the episodes", str(facts.get("record_sha256"))),
        ]
        parts.append(f"{html.tag('h3', f'{side}: {comparison.names[index]}')}{html.facts_list(known)}")
    return "".join(parts)


def _draw_chart(comparison: Comparison) -> str:
    """Return a drawing of the interval and of the bounds under attack around zero; the table says the same."""
    ranges = [(comparison.interval.low, comparison.interval.high)]
    span = comparison.limits[1] - comparison.limits[0]
    for attacked in comparison.attacked:
        ranges.append((attacked.at_least, span))
    reach = max(*(abs(low) for low, _ in ranges), abs(comparison.interval.high), 1e-12) * 1.1

    def place(value: float) -> float:
        inside = min(max(value, -reach), reach)
        return _LABELS + (_WIDTH - _LABELS - 10) * (inside + reach) / (2 * reach)

    zero = place(0)
    bottom = _ROW * len(ranges) + 8
    height = bottom + 22
    parts = [
        f'<svg class="differences" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="Differences and zero" '
        f'width="{_WIDTH}" height="{height}">',
        f'<line class="zero" x1="{zero:.1f}" x2="{zero:.1f}" y1="4" y2="{bottom}"/>',
        f'<text x="{zero:.1f}" y="{height - 6}" text-anchor="middle">0</text>',
        f'<text x="{_LABELS}" y="{height - 6}">B better</text>',
        f'<text x="{_WIDTH - 10}" y="{height - 6}" text-anchor="end">A better</text>',
    ]
    rows = difference_rows(comparison)
    for index, ((low, high), (budget, difference, _)) in enumerate(zip(ranges, rows, strict=True)):
        y = _ROW * index + 26
        left = place(low)
        right = place(high)
        # Near an edge the words would be cut off.
        middle = min(max((left + right) / 2, _LABELS + _HALF_WORDS), _WIDTH - _HALF_WORDS)
        parts.append(f'<text x="{_LABELS - 10}" y="{y + 4}" text-anchor="end">B = {escape(budget)}</text>')
        parts.append(f'<line class="range" x1="{left:.1f}" x2="{right:.1f}" y1="{y}" y2="{y}"/>')
        parts.append(
            f'<text class="value" x="{middle:.1f}" y="{y - 9}" text-anchor="middle">{escape(difference)}</text>'
        )
    parts.append("</svg>")
    return "".join(parts)
