"""Tables as rows of text, for people (Markdown, HTML) and for programs (CSV)."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

from surefoot.proof.rounding import format_lower

# A cell that is wholly bold, slanted or code, as Markdown writes it.
_MARKED = re.compile(r"(\*\*|\*|`)([^*`]+)\1")
_TAGS = {"**": "strong", "*": "em", "`": "code"}


@dataclass(frozen=True)
class Table:
    """Heads, rows of text, and what a reader must know."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    left: int = 1  # columns that hold words
    last_words: bool = False  # whether the last one does too

    def markdown(self) -> str:
        """Return the table as Markdown."""
        marks = ["---" if self._holds_words(place) else "---:" for place in range(len(self.heads))]
        lines = [_line(self.heads), f"|{'|'.join(marks)}|", *(_line(row) for row in self.rows)]
        return "\n".join(lines)

    def comma_separated(self) -> str:
        """Return the table as CSV."""
        text = io.StringIO()
        rows = [[_parted(cell)[1] for cell in row] for row in (self.heads, *self.rows)]
        csv.writer(text, lineterminator="\n").writerows(rows)
        return text.getvalue()

    def html(self) -> str:
        """Return the table as HTML."""
        return f"<table>{self._row(self.heads, 'th')}{''.join(self._row(row, 'td') for row in self.rows)}</table>"

    def _row(self, cells: Sequence[str], tag: str) -> str:
        opened = [f"<{tag}>" if self._holds_words(place) else f'<{tag} class="number">' for place in range(len(cells))]
        written = "".join(f"{start}{_cell(cell)}</{tag}>" for start, cell in zip(opened, cells, strict=True))
        return f"<tr>{written}</tr>"

    def _holds_words(self, place: int) -> bool:
        return place < self.left or (self.last_words and place == len(self.heads) - 1)


def _parted(cell: str) -> tuple[str, str]:
    """Return the mark of a cell and what it says without it."""
    found = _MARKED.fullmatch(cell)
    return ("", cell.replace("`", "").replace("\u00a0", " ")) if found is None else (found[1], found[2])


def _cell(cell: str) -> str:
    mark, text = _parted(cell)
    written = html.escape(text)
    return f"<{_TAGS[mark]}>{written}</{_TAGS[mark]}>" if mark else written


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def digits_of(ceiling: float | None) -> int:
    """Return decimals for a task's numbers: tenths of steps, thousandths of probabilities."""
    return 1 if ceiling is not None and ceiling > 20 else 3


def measured(mean: float, error: float, digits: int) -> str:
    """Return an estimate with its standard error."""
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


def certified(value: float, digits: int) -> str:
    """Return a certified lower bound, rounded down."""
    return format_lower(value, digits)


UNMEASURED = "not measured yet"


@dataclass(frozen=True)
class Finding:
    """What we have measured about a claim, in words and as a table, and the verdict in a word or two."""

    measured: str
    verdict: str
    numbers: Table | None = None

    def in_words(self) -> str:
        """Return everything that was measured as text, for one cell of a larger table."""
        rows = [] if self.numbers is None else [_in_words(self.numbers, row) for row in self.numbers.rows]
        return "; ".join([*rows, self.measured] if self.measured else rows)


def by_budget(rows: Sequence[Sequence[str]], budgets: Sequence[float], names: Sequence[str] = ("",)) -> Table:
    """Return a table with one column per attack budget, after the columns that name a row."""
    return Table([*names, *(f"B = {budget:g}" for budget in budgets)], rows, left=len(names))


def _in_words(table: Table, row: Sequence[str]) -> str:
    name = ", ".join(f"{head} {cell}".strip() for head, cell in zip(table.heads, row[: table.left], strict=False))
    cells = zip(table.heads[table.left :], row[table.left :], strict=True)
    return f"{name}: " + ", ".join(f"{cell} at {head}" for head, cell in cells if cell)
