"""The figure of the records page: certified CartPole returns over the budget, ours next to published ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from study.records_page import BUDGETS, USUAL, best
from study.style import FLOOR, style
from surefoot.play.tasks import TASKS

# Who of the others is drawn, and how the legend names them.
PEERS = {
    "CAMP, best single seed and sigma": "CAMP (2025), best seed",
    "Policy smoothing (Kumar et al., ICLR 2022), best of sigma 0.2 and 0.4": "policy smoothing (2022)",
}


def draw(found: Mapping[str, Any], path: Path) -> None:
    """Draw the best bounds of CartPole with ten thousand episodes, and write the figure."""
    mpl.rcParams.update({"svg.hashsalt": "surefoot", "font.size": 9})
    figure = Figure(figsize=(6.4, 3.7), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.subplots()
    for rank, (label, budgets, values) in enumerate(curves(found)):
        look = style(rank)
        axes.plot(budgets, values, color=look.colour, ls=look.line, marker=look.mark, ms=5, lw=1.8, label=label)
    baseline = TASKS["cartpole-5"].baseline
    assert baseline is not None
    axes.axhline(baseline.mean, color=FLOOR, ls=":", lw=1.8, label="open-loop baseline (estimate)")
    axes.set_xlim(0.17, 1.03)
    axes.set_ylim(0, 206)
    axes.set_xlabel("attack budget (l2 norm over an episode)")
    axes.set_ylabel("certified mean return (of 200)")
    axes.set_title(f"CartPole: best certified lower bound, {USUAL:,} episodes, 95% confidence")
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, loc="lower left", bbox_to_anchor=(0.0, 0.21), framealpha=0.95)
    figure.savefig(path, metadata={"Date": None, "Creator": None})


def curves(found: Mapping[str, Any]) -> list[tuple[str, list[float], list[float]]]:
    """Return the drawn lines: label, budgets, certified values."""
    rows = [row for row in found["agents"] if row["task"].startswith("cartpole") and row["n_episodes"] == USUAL]
    groups = {
        "ours with memory (GRU)": [row for row in rows if row["memory"] == "GRU"],
        "ours, five frames": [row for row in rows if row["memory"] == "5 frames" and not row["paper_style"]],
        "ours of the paper's kind": [row for row in rows if row["memory"] == "5 frames" and row["paper_style"]],
    }
    budgets = list(BUDGETS["cartpole-5"])
    lines = [(label, budgets, [value for value, _ in best(group, "auto")]) for label, group in groups.items() if group]
    for row in (row for row in found["peers"] if row["task"] == "cartpole-5" and row["who"] in PEERS):
        values = [row["bounds"][f"{budget:g}"] for budget in budgets]
        lines.append((PEERS[row["who"]], budgets, values))
    return lines
