"""Print the tables of the shipped agents as Markdown, or with --write put them into the pages that show them.

    python docs/figures/agents_table.py            # print
    python docs/figures/agents_table.py --write    # renew README.md, docs/design.md and zoo/README.md in place

Everything is measured anew: 10,000 episodes of every agent, with the command that stands above each table.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from statistics import median
from typing import Any

from surefoot.report.text import down
from surefoot.zoo import card_of, shipped

ROOT = Path(__file__).resolve().parents[2]
SUREFOOT = (sys.executable, "-m", "surefoot.cli")
WIDTH = 100
BUDGETS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def command_output(folder: Path, *arguments: str) -> str:
    """Run the command in a fresh folder and return what it printed."""
    call = (*SUREFOOT, "certify", *arguments, "--quiet", "--out", str(folder))
    environment = {"COLUMNS": str(WIDTH), "PYTHONPATH": str(ROOT / "src")}
    result = subprocess.run(call, check=True, capture_output=True, text=True, env=environment, cwd=ROOT)
    return result.stdout


def certified(folder: Path) -> str:
    """Return the certified numbers of every smoothed agent, rounded down."""
    heads = ("agent", "weights", "mean, no attack", *(f"B = {budget:g}" for budget in BUDGETS))
    lines = ["| " + " | ".join(heads) + " |", "|---|---|" + "---:|" * (len(heads) - 2)]
    for card in (card_of(name) for name in shipped()):
        if card["sigma"] == 0:
            continue
        budgets = ",".join(f"{budget:g}" for budget in BUDGETS)
        options = ("--agent", card["name"], "--sigma", f"{card['sigma']:g}", "--budgets", budgets, "--json")
        options = (*options, "--method", "paper")
        answer = json.loads(command_output(folder / card["name"], card["task"], *options))
        cells = (
            f"`{card['name']}`",
            f"`{card['sha256'][:8]}`",
            f"{answer['estimate']:.2f} ± {answer['estimate_sem']:.2f}",
            *(down(value, 1) for value in answer["lower"]),
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def printed(folder: Path) -> str:
    """Return what the first command prints, the folder named as it is by default."""
    text = command_output(folder, "cartpole-5", "--sigma", "0.2", "--episodes", "10000", "--confidence", "0.95")
    text = text.replace(str(folder), "runs/cartpole-5-s0.2-sigma0.2-seed0-n10000")
    wrapped = [textwrap.fill(line, WIDTH) if len(line) > WIDTH else line for line in text.strip().splitlines()]
    return "\n".join(("```text", *wrapped, "```"))


def candidates() -> str:
    """Return every training seed's numbers, from the cards."""
    lines = [
        "| agent | preset | seed | steps | best validation | mean | certified at B = sigma |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for card in (card_of(name) for name in shipped()):
        training = card["training"]
        for other in card["candidates"]:
            chosen = (other["preset"], other["seed"]) == (training["preset"], training["seed"])
            name = f"**{card['name']}**" if chosen else card["name"]
            lines.append(f"| {name} | {other['preset']} | {other['seed']} | {_numbers(other, card)} |")
    return "\n".join(lines)


def presets() -> str:
    """Return how the presets compare where both were tried, from the cards."""
    lines = [
        "| agent | preset | seeds | lowest | median | highest certified at B = sigma |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for card in (card_of(name) for name in shipped()):
        groups: dict[str, list[float]] = {}
        for other in card["candidates"]:
            groups.setdefault(other["preset"], []).append(other["selection"]["certified_at_sigma"])
        if len(groups) > 1:
            for preset, found in sorted(groups.items()):
                three = " | ".join(down(value, 1) for value in (min(found), median(found), max(found)))
                lines.append(f"| {card['name']} | {preset} | {len(found)} | {three} |")
    return "\n".join(lines)


def _numbers(other: dict[str, Any], card: dict[str, Any]) -> str:
    found = other["selection"]
    bound = down(found["certified_at_sigma"], 1) if card["sigma"] > 0 else "none"
    return f"{other['steps']:,} | {other['best_validation']:.1f} | {found['mean']:.2f} ± {found['sem']:.2f} | {bound}"


def put(path: Path, block: str, content: str) -> None:
    """Replace what stands between the marks of a block."""
    text = path.read_text(encoding="utf-8")
    marks = re.compile(rf"(<!-- begin: {block} -->\n).*?(<!-- end: {block} -->)", re.DOTALL)
    if not marks.search(text):
        raise SystemExit(f"{path.name} has no block {block!r}")
    path.write_text(marks.sub(lambda found: f"{found[1]}\n{content}\n\n{found[2]}", text), encoding="utf-8")


def main() -> None:
    """Measure and print, or write."""
    with tempfile.TemporaryDirectory() as folder:
        blocks = (
            ("README.md", "certify", printed(Path(folder) / "headline")),
            ("README.md", "agents", certified(Path(folder))),
            ("zoo/README.md", "candidates", candidates()),
            ("docs/design.md", "presets", presets()),
        )
    for page, block, content in blocks:
        if "--write" in sys.argv[1:]:
            put(ROOT / page, block, content)
        else:
            print(f"{page}, {block}:\n\n{content}\n")


if __name__ == "__main__":
    main()
