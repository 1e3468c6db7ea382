"""The HTML report of a comparison: what is proved about the difference, and which episodes changed."""

from __future__ import annotations

from pathlib import Path

from surefoot.files import write_text
from surefoot.proof.comparison import NOT_ALGORITHMS, Comparison
from surefoot.proof.rounding import format_estimate, format_exact, format_lower, format_percent, format_upper
from surefoot.report import html
from surefoot.report.finished_run import Tape
from surefoot.report.html import escape
from surefoot.report.page import drop_absent_parts, embed_json, fill_page, read_asset, why_no_replay
from surefoot.report.taped_frames import tape_data

_WIDTH = 420  # of the chart, in its own units
_ROW = 34
_LABELS = 70


def write_comparison_page(comparison: Comparison, path: Path, tape: Tape | None = None, reason: object = None) -> None:
    """Write the page.

    Args:
        comparison: What is proved.
        path: Where it goes.
        tape: The episode that was recorded for it.
        reason: Why there is none although one was to be.
    """
    opening = [comparison.statement]
    if comparison.assumption:
        opening.append(comparison.assumption)
    if comparison.question.gate is not None:
        opening.append(f"{'Passed' if comparison.passed else 'NOT passed'}: {comparison.question.gate}.")
    opening += [comparison.could_not_see, NOT_ALGORITHMS]
    changed = []
    for name, a, b in comparison.changes.largest if comparison.changes else ():
        changed.append([str(name), f"{a:g}", f"{b:g}", f"{a - b:+g}"])
    changes = ""
    sentence = comparison.change_sentence or "The episodes of the two have nothing in common: none can be compared."
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
                comparison.rows(),
                kind="words interval",
            ),
            "chart": _draw_chart(comparison),
            "change-sentence": escape(sentence),
            "changes": changes,
            "sides": _sides_table(comparison),
            "check": "Recompute all bounds by other code and rerun episodes; exit code 0 means verified. Agents and an "
            "environment of your own are named with --agent, --agent-b and --env:",
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
    digits = comparison.digits
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
            ("mean return (an estimate)", format_estimate(comparison.means[index], None, comparison.digits)),
            ("seed", str(facts.get("seed"))),
            ("sha256 of the episodes", str(facts.get("record_sha256"))),
        ]
        parts.append(f"{html.tag('h3', f'{side}: {comparison.names[index]}')}{html.facts_list(known)}")
    return "".join(parts)


def _draw_chart(comparison: Comparison) -> str:
    """Return a drawing of the interval and of the bounds under attack around zero; the table says the same."""
    rows = [("0", comparison.interval.low, comparison.interval.high)]
    span = comparison.limits[1] - comparison.limits[0]
    for row in comparison.attacked:
        rows.append((format_exact(row.budget), row.at_least, span))
    reach = max(*(abs(low) for _, low, _ in rows), abs(comparison.interval.high), 1e-12) * 1.1

    def place(value: float) -> float:
        inside = min(max(value, -reach), reach)
        return _LABELS + (_WIDTH - _LABELS - 10) * (inside + reach) / (2 * reach)

    height = _ROW * len(rows) + 30
    parts = [
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="Differences and zero" '
        f'width="{_WIDTH}" height="{height}">',
        f'<line x1="{place(0):.1f}" x2="{place(0):.1f}" y1="4" y2="{height - 22}" stroke="currentColor" '
        'stroke-dasharray="4 3"/>',
        f'<text x="{place(0):.1f}" y="{height - 6}" text-anchor="middle" fill="currentColor">0</text>',
    ]
    for index, (budget, low, high) in enumerate(rows):
        y = _ROW * index + _ROW / 2
        parts.append(
            f'<text x="{_LABELS - 10}" y="{y + 5:.1f}" text-anchor="end" fill="currentColor">{escape(budget)}</text>'
        )
        parts.append(
            f'<line x1="{place(low):.1f}" x2="{place(high):.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="currentColor" '
            'stroke-width="5"/>'
        )
    parts.append("</svg>")
    return "".join(parts)
