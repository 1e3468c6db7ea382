"""Draw the study's figures for the documentation and put its tables into docs/study.md and docs/tasks/.

    python -m study.documentation            # draw into a folder under runs/ and print the tables
    python -m study.documentation --write    # renew docs/figures/study/ and the blocks of the pages

Everything comes from the committed numbers. ``docs/figures/study/made-from.json`` keeps their hash; a test compares it
with those that are committed. A figure of a page has four panels at most: larger ones are drawn task by task.
"""

from __future__ import annotations

import re
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from study import claims
from study.agents_table import ROOT, put
from study.draw import MAKERS, Drawn, draw, write_figure
from study.numbers import Study, fingerprint, open_study
from study.paper import EVERY, TARGETS, UNITS, Target
from study.tables import Table
from surefoot.files import write_json

MOST_PANELS = 4
WIDTH = 118  # of a line of text
# Figures of the overview, and those of them whose numbers are shown next to them.
OVERVIEW = ("toy", "framework", "certificates", "attacks", "rotation", "full-pong")
WITH_TABLE = ("toy", "rotation", "full-pong")
# The pages of the tasks, and what they show; CartPole's certificates have a figure of their own.
TASKS = {
    "cartpole": ("cartpole-5", "cartpole-1"),
    "pong": ("pong-1r", "pong-full"),
    "freeway": ("freeway",),
    "mountain-car": ("mountain-car",),
}
BY_TASK = (
    "environments",
    "certificates",
    "cartpole",
    "point-wise",
    "attacks",
    "attacks-bare",
    "attacks-smoothed",
    "clean-test",
    "training",
)
TABLES_BY_TASK = ("certificates", "cartpole", "clean-test")


def commands(drawn: list[Drawn]) -> Table:
    """Return what draws each figure and table, and how long it took."""
    rows = []
    for one in drawn:
        name, anchor = one.target.name, one.target.title.lower()
        words = "".join(letter for letter in anchor if letter.isalnum() or letter in " -").replace(" ", "-")
        link = f"[{one.target.title}](#{words})"
        rows.append([link, one.target.paper or "ours", f"`python -m study {name}`", f"{one.seconds:.1f}"])
    total = sum(one.seconds for one in drawn)
    rows.append(["everything", "", "`python -m study all`", f"{total:.0f}"])
    return Table(["figure or table", "in the paper", "command", "seconds"], rows, left=3)


def by_claim(study: Study, tasks: Sequence[str]) -> str:
    """Return the claims one by one: what is said in words as one table, numbers by budget as one table per task."""
    parts = []
    for claim, found in groupby(claims.findings(study, tasks), key=lambda one: one[0]):
        parts.append(textwrap.fill(f"**{claim.text}** ({claim.place})", WIDTH))
        judged = [(UNITS[task].title, finding) for _, task, finding in found]
        rows = [[task, one.measured, marked(one.verdict)] for task, one in judged if one.numbers is None]
        parts += [Table(["task", "ours", "reproduced?"], rows, left=3).markdown()] if rows else []
        for task, one in judged:
            if one.numbers is not None:
                words = f"*{task}.* Reproduced? {marked(one.verdict)}. {one.measured}".strip()
                parts += [textwrap.fill(words, WIDTH), one.numbers.markdown()]
    return "\n\n".join(parts)


def marked(verdict: str) -> str:
    """Return a verdict with a mark: reproduced, in part, or not."""
    first = re.split("[,:;]", verdict)[0].strip()
    mark = {"yes": "✓" if ";" not in verdict else "partly:", "no": "✗" if ";" not in verdict else "partly:"}
    return f"{mark.get(first, '')} {verdict}".strip()


def made_from(study: Study, drawn: list[Drawn]) -> dict[str, object]:
    """Return what the page was made from."""
    seconds = {one.target.name: round(one.seconds, 1) for one in drawn}
    return {"schema": 1, "data_sha256": fingerprint(study), "seconds": seconds}


def of_task(study: Study, page: str, out: Path) -> str:
    """Draw the figures of a task's page, and return its sections."""
    targets = {target.name: target for target in TARGETS}
    left_out = {"certificates"} if page == "cartpole" else set()
    parts = []
    for target in (targets[name] for name in BY_TASK if name not in left_out):
        shown = tuple(task for task in TASKS[page] if task in target.tasks)
        if shown:
            parts.append(f"## {target.title}\n\nThe paper's {target.paper}: `python -m study {target.name}`.")
            parts += [f"![{alt}](../figures/study/{name})" for alt, name in _figures(study, target, page, shown, out)]
            if target.name in TABLES_BY_TASK:
                _, table = MAKERS[target.name](study, shown)
                assert table is not None
                parts += _by_task(_without_hashes(table))
    return "\n\n".join([*parts, f"## Training settings that differ from the paper's\n\n{settings(study, page)}"])


def _by_task(table: Table) -> list[str]:
    """Return a table with a row per task that names its budgets as one table per task with these as heads."""
    titled = [place for place, row in enumerate(table.rows) if row[0].startswith("**")]
    if not titled:
        return [table.markdown()]
    parts = []
    for first, last in zip(titled, [*titled[1:], len(table.rows)], strict=True):
        title, *cells = (cell.strip("*") for cell in table.rows[first])
        budgets = [cell for cell in cells if cell]
        heads = [*table.heads[: table.left + 1], *budgets]
        rows = [row[: len(heads)] for row in table.rows[first + 1 : last]]
        parts += [f"Certified lower bounds, {title}:", Table(heads, rows, left=table.left).markdown()]
    return parts


def _without_hashes(table: Table) -> Table:
    """Return a table without its column of weights' hashes, which the results page has."""
    if "weights" not in table.heads:
        return table
    place = list(table.heads).index("weights")
    rows = [[cell for number, cell in enumerate(row) if number != place] for row in (table.heads, *table.rows)]
    return Table(rows[0], rows[1:], left=table.left - 1)


def _figures(study: Study, target: Target, page: str, shown: Sequence[str], out: Path) -> Iterator[tuple[str, str]]:
    """Draw a figure of some tasks, or one of each task or of some of its agents where it would have too many panels."""
    figure, _ = MAKERS[target.name](study, shown)
    assert figure is not None
    if len(figure.axes) <= MOST_PANELS:
        name = f"{target.name}-{page}.svg"
        write_figure(figure, out / name, "svg")
        yield f"{target.title}: {', '.join(UNITS[task].title for task in shown)}", name
    elif len(shown) > 1:
        for task in shown:
            yield from _figures(study, target, task, (task,), out)
    else:
        agents = study.of(shown[0])
        for number, first in enumerate(range(0, len(agents), MOST_PANELS), 1):
            part = replace(study, agents=tuple(agents[first : first + MOST_PANELS]))
            yield from _figures(part, target, f"{page}-{number}", shown, out)


def settings(study: Study, page: str) -> str:
    """Return the training settings of a page's tasks that are not the paper's."""
    _, table = MAKERS["training-settings"](study, TASKS[page])
    assert table is not None
    rows: list[list[str]] = []
    task = ""
    for row in table.rows:
        task = row[0] or task
        if row[2] != row[3]:
            rows.append([task if task not in {one[0] for one in rows} else "", *row[1:]])
    return Table(table.heads, rows, left=2).markdown()


def overview(study: Study, drawn: list[Drawn]) -> dict[str, str]:
    """Return the blocks of the overview."""
    blocks = {"commands": commands(drawn).markdown()}
    for one in (one for one in drawn if one.table is not None and one.target.name != "training-settings"):
        name, table = one.target.name, one.table
        assert table is not None
        if name in WITH_TABLE or not one.target.paper.startswith("Figure"):
            nothing = f"Nothing has been measured: `python -m study {name}` has no numbers to show."
            shown = by_claim(study, EVERY) if name == "claims" else table.markdown()
            blocks[name] = shown if table.rows else nothing
    return blocks


def main() -> None:
    """Draw, and print or write."""
    write = "--write" in sys.argv[1:]
    out = ROOT / "docs" / "figures" / "study" if write else Path("runs/docs-study")
    study = open_study(ROOT / "study" / "data")
    with tempfile.TemporaryDirectory() as folder:
        drawn = [draw(study, target, EVERY, Path(folder)) for target in TARGETS]
        for name in OVERVIEW:
            out.mkdir(parents=True, exist_ok=True)
            (out / f"{name}.svg").write_bytes((Path(folder) / f"{name}.svg").read_bytes())
    pages = {"study.md": overview(study, drawn)}
    pages |= {f"tasks/{page}.md": {"figures": of_task(study, page, out)} for page in TASKS}
    for page, blocks in pages.items():
        for block, content in blocks.items():
            if write:
                put(ROOT / "docs" / page, block, content)
            else:
                print(f"{page}, {block}:\n\n{content}\n")
    if write:
        write_json(out / "made-from.json", made_from(study, drawn))


if __name__ == "__main__":
    main()
