"""Tables as rows of text, for people (Markdown) and for programs (CSV)."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from surefoot.rounding import down


@dataclass(frozen=True)
class Table:
    """Heads, rows of text, and what a reader must know."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    left: int = 1  # columns that hold words

    def markdown(self) -> str:
        """Return the table as Markdown."""
        marks = "|" + "---|" * self.left + "---:|" * (len(self.heads) - self.left)
        lines = [_line(self.heads), marks, *(_line(row) for row in self.rows)]
        return "\n".join(lines)

    def comma_separated(self) -> str:
        """Return the table as CSV."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.heads, *self.rows])
        return text.getvalue()


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
    return down(value, digits)
