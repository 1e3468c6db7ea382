"""Draw the study's figures for the documentation and put its tables into docs/study.md, from the committed numbers.

    python -m study.documentation            # draw into a folder under runs/ and print the tables
    python -m study.documentation --write    # renew docs/figures/study/ and the blocks of docs/study.md

``docs/figures/study/made-from.json`` keeps the hash of the numbers; a test compares it with those that are committed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from study.agents_table import ROOT, put
from study.draw import Drawn, draw
from study.numbers import Study, fingerprint, open_study
from study.paper import EVERY, TARGETS
from study.tables import Table
from surefoot.files import write_json

# Figures whose numbers the page shows next to them.
WITH_TABLE = ("certificates", "cartpole", "full-pong", "point-wise", "clean-test", "rotation", "toy")


def commands(drawn: list[Drawn]) -> Table:
    """Return what draws each figure and table, and how long it took."""
    rows = []
    for one in drawn:
        name, anchor = one.target.name, one.target.title.lower()
        words = "".join(letter for letter in anchor if letter.isalnum() or letter in " -").replace(" ", "-")
        link = f"[{one.target.title}](#{words})"
        rows.append([link, one.target.paper or "ours", f"`surefoot reproduce {name}`", f"{one.seconds:.1f}"])
    total = sum(one.seconds for one in drawn)
    rows.append(["everything", "", "`surefoot reproduce all`", f"{total:.0f}"])
    return Table(["figure or table", "in the paper", "command", "seconds"], rows, left=3)


def made_from(study: Study, drawn: list[Drawn]) -> dict[str, object]:
    """Return what the page was made from."""
    seconds = {one.target.name: round(one.seconds, 1) for one in drawn}
    return {"schema": 1, "data_sha256": fingerprint(study), "seconds": seconds}


def main() -> None:
    """Draw, and print or write."""
    write = "--write" in sys.argv[1:]
    out = ROOT / "docs" / "figures" / "study" if write else Path("runs/docs-study")
    study = open_study(ROOT / "study" / "data")
    drawn = [draw(study, target, EVERY, out) for target in TARGETS]
    blocks = {"commands": commands(drawn).markdown()}
    for one in drawn:
        name = one.target.name
        if one.table is not None and (name in WITH_TABLE or not one.target.paper.startswith("Figure")):
            nothing = f"Nothing has been measured: `surefoot reproduce {name}` has no numbers to show."
            blocks[name] = one.table.markdown() if one.table.rows else nothing
    for path in (path for one in drawn for path in one.files if path.suffix != ".png"):
        path.unlink()  # the page shows pictures; the command writes the rest too
    for block, content in blocks.items():
        if write:
            put(ROOT / "docs" / "study.md", block, content)
        else:
            print(f"{block}:\n\n{content}\n")
    if write:
        write_json(out / "made-from.json", made_from(study, drawn))


if __name__ == "__main__":
    main()
