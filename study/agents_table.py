"""Print the tables of the pretrained agents as Markdown, or with --write put them into the pages that show them.

    python -m study.agents_table            # print
    python -m study.agents_table --write    # update README.md, docs/ and zoo/README.md in place

The certified numbers are those of the episode data under ``study/data/episodes``, which
``python -m study.renew --run episodes`` runs as the command above each table does.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from study.numbers import Study, shipped_agents
from study.style import mean_of
from study.tables import Table, measured
from surefoot.agents.files import list_agents, load_card
from surefoot.episodes import Baseline
from surefoot.play.tasks import TASKS
from surefoot.proof.query import certify
from surefoot.proof.rounding import format_lower

ROOT = Path(__file__).resolve().parents[1]
SUREFOOT = (sys.executable, "-m", "surefoot")
WIDTH = 78
CARTPOLE = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
MOUNTAIN_CAR = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
ATARI = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4)
HEADLINE = "cartpole-5-gru-polished-s0.35"  # what ``make certify`` certifies


def command_output(folder: Path, *arguments: str) -> str:
    """Run the command in a fresh folder and return what it printed."""
    call = (*SUREFOOT, "certify", *arguments, "--quiet", "--out", str(folder))
    environment = {"COLUMNS": str(WIDTH), "PYTHONPATH": str(ROOT / "src")}
    result = subprocess.run(call, check=True, capture_output=True, text=True, env=environment, cwd=ROOT)
    return result.stdout


def certified(tasks: tuple[str, ...], budgets: tuple[float, ...], digits: int) -> str:
    """Return the certified numbers of the smoothed agents of some tasks, rounded down, and their baselines."""
    study = Study(ROOT / "study" / "data", shipped_agents())
    rows: list[list[str]] = []
    floors: dict[Baseline, list[str]] = {}
    for agent in (agent for task in tasks for agent in study.smoothed(task)):
        record = study.record(agent)
        assert record is not None
        answer = certify(record, budgets, method="paper")
        mean = measured(*mean_of(record.returns), digits + 1)
        bounds = [format_lower(value, digits) for value in answer.lower]
        rows.append([f"`{agent.name}`", f"`{agent.sha256[:8]}`", f"{len(record):,}", mean, *bounds])
        blind = TASKS[agent.task].baseline
        if blind is not None:
            same = [f"*{format_lower(blind.mean, digits)}*"] * len(budgets)
            mean = measured(blind.mean, blind.sem, digits + 1)
            floors[blind] = ["*open-loop baseline*", "", f"{blind.n_episodes:,}", mean, *same]
    heads = ["agent", "weights", "episodes", "mean, no attack", *(f"B = {budget:g}" for budget in budgets)]
    return Table(heads, [*rows, *floors.values()], left=2).markdown()


def printed(folder: Path) -> str:
    """Return what the first command prints, the folder named as it is by default."""
    sigma = f"{load_card(HEADLINE)['sigma']:g}"
    asked = ("cartpole-5", "--agent", HEADLINE, "--sigma", sigma, "--episodes", "10000", "--confidence", "0.95")
    text = command_output(folder, *asked)
    text = text.replace(str(folder), f"runs/{HEADLINE}-sigma{sigma}-n10000")
    lines = every_second_row(text.strip().splitlines())
    wrapped = [textwrap.fill(line, WIDTH) if len(line) > WIDTH else line for line in lines]
    return "\n".join(("```text", *wrapped, "```"))


def every_second_row(lines: Sequence[str]) -> list[str]:
    """Return the lines of a printed certificate with every second budget, the first and the last among them."""
    rows = [line for line in lines if re.fullmatch(r" *[\d.]+ +[\d.]+ +[\d.]+(?:  \*)?", line)]
    return [line for line in lines if line not in rows[1::2]]


def candidates() -> str:
    """Return every training seed's numbers, from the cards."""
    lines = [
        "| agent | preset | seed | steps | best validation | mean | certified at B = sigma |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for card in (load_card(name) for name in list_agents()):
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
    for card in (load_card(name) for name in list_agents()):
        groups: dict[str, list[float]] = {}
        for other in card["candidates"]:
            if other["selection"] is not None:
                groups.setdefault(other["preset"], []).append(other["selection"]["certified_at_sigma"])
        if len(groups) > 1:
            for preset, found in sorted(groups.items()):
                three = " | ".join(format_lower(value, 1) for value in (min(found), median(found), max(found)))
                lines.append(f"| {card['name']} | {preset} | {len(found)} | {three} |")
    return "\n".join(lines)


def _numbers(other: dict[str, Any], card: dict[str, Any]) -> str:
    large = card["task"].startswith("cartpole") or "environment" in card
    found, digits = other["selection"], 1 if large else 3
    of_task = f" on `{other['trained_on']}`" if "trained_on" in other else ""
    begun = f"{other['steps']:,} | {other['best_validation']:.{digits}f}{of_task}"
    if found is None:
        return f"{begun} | no finalist | none"
    bound = format_lower(found["certified_at_sigma"], digits) if card["sigma"] > 0 else "none"
    return f"{begun} | {found['mean']:.{digits + 1}f} ± {found['sem']:.{digits + 1}f} | {bound}"


def put(path: Path, block: str, content: str) -> None:
    """Replace the text between the marks of a block."""
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
            ("docs/results.md", "agents", certified(("cartpole-1", "cartpole-5"), CARTPOLE, 1)),
            ("docs/results.md", "mountain-car", certified(("mountain-car",), MOUNTAIN_CAR, 3)),
            ("docs/results.md", "pong-1r", certified(("pong-1r",), ATARI, 3)),
            ("docs/results.md", "freeway", certified(("freeway",), ATARI, 3)),
            ("docs/results.md", "pong-full", certified(("pong-full",), ATARI, 2)),
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
