"""Write the map of the paper, docs/paper.md, from its data, docs/paper.json.

    python docs/paper_map.py    # after a change of the data

An item has its place in the paper, where it is implemented or shown (a module, ``module.py:name``, a page with an
anchor, or a command), and a verdict: equal, deviation (with the headings of docs/deviations.md), or not done.
``tests/test_docs.py`` checks that all of these exist.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "docs" / "paper.json"
VERDICTS = ("equal", "deviation", "not done")
DIFFERENCES = "docs/deviations.md"
PAGE = ROOT / "docs" / "paper.md"
INTRODUCTION = """# Map of the paper

Every theorem, lemma, equation, algorithm, figure, table, setting and claim of the paper (Kumar, Levine and Feizi,
*Policy Smoothing for Provably Robust Reinforcement Learning*, ICLR 2022), and where it is here. Modules are below
`src/surefoot/` unless they begin with `study/`, `examples/` or `tests/`. Sections are the paper's; appendix sections
are given by their titles. Where we differ, the last column links to [the difference](deviations.md). The table is
made from [paper.json](paper.json) by `python docs/paper_map.py`."""


def page(data: dict[str, Any]) -> str:
    """Return the page as Markdown."""
    items = [item for section in data["sections"] for item in section["items"]]
    counts = [f"{sum(item['verdict'] == name for item in items)} {name}" for name in VERDICTS]
    total = f"{len(items)} items: {', '.join(counts)}."
    return "\n\n".join((INTRODUCTION, total, *(table(section) for section in data["sections"]))) + "\n"


def table(section: dict[str, Any]) -> str:
    """Return one section as a heading and a table."""
    lines = [f"## {section['title']}", "", "| in the paper | place | here | status |", "|---|---|---|---|"]
    for item in section["items"]:
        places = ", ".join(linked(where) for where in item["where"])
        lines.append(f"| {item['item']} | {item['paper']} | {places} | {verdict(item)} |")
    return "\n".join(lines)


def linked(where: str) -> str:
    """Return a place as code or, for a page, as a link with the heading's words."""
    path, _, anchor = where.partition("#")
    if not path.endswith(".md"):
        return f"`{where}`"
    return f"[{title(path, anchor)}]({os.path.relpath(path, 'docs')}{'#' if anchor else ''}{anchor})"


def title(path: str, anchor: str) -> str:
    """Return the heading of a page that has an anchor, or the page's own."""
    found = re.findall(r"^#+ (.+)$", (ROOT / path).read_text(encoding="utf-8"), flags=re.MULTILINE)
    named = {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-"): one for one in found}
    return named.get(anchor, found[0])


def verdict(item: dict[str, Any]) -> str:
    """Return the verdict with its links and note."""
    links = ", ".join(
        f"[{title('docs/deviations.md', anchor)}](deviations.md#{anchor})" for anchor in item.get("deviations", ())
    )
    stated = f"**{item['verdict']}**: {links}" if links else item["verdict"]
    return "; ".join((stated, item["note"]) if "note" in item else (stated,))


if __name__ == "__main__":
    PAGE.write_text(page(json.loads(DATA.read_text(encoding="utf-8"))), encoding="utf-8")
