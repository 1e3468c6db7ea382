"""Draw the loop of attacker, noise and agent, and keep the certificate that ``make certify`` prints.

python docs/figures/idea.py           # writes idea-curve.json, the certificate, and the drawings
python docs/figures/idea.py --draw    # the drawings alone: idea-loop.svg and idea-loop-dark.svg
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

import surefoot

HERE = Path(__file__).resolve().parent
AGENT = "cartpole-5-gru-polished-s0.35"
SIGMA = 0.35
BUDGETS = tuple(step / 10 for step in range(11))
LIGHT = {"agent": "#0b5394", "attacker": "#a61c00", "noise": "#38761d", "words": "#333333", "paper": "white"}
DARK = {"agent": "#86bdf0", "attacker": "#ff9c8a", "noise": "#86cf9b", "words": "#d5dbe1", "paper": "#0d1117"}


def box(axes: Axes, centre: tuple[float, float], title: str, note: str, colors: dict[str, str]) -> None:
    """Draw one station of the loop."""
    x, y = centre
    colour = colors.get(title, colors["words"])
    width, height = 3.9, 1.75
    frame = {"boxstyle": "round,pad=0.05", "fc": colors["paper"], "ec": colour, "lw": 1.8}
    axes.add_patch(FancyBboxPatch((x - width / 2, y - height / 2), width, height, **frame))
    axes.text(x, y + 0.32, title, ha="center", va="center", fontsize=11, color=colour, weight="bold")
    axes.text(x, y - 0.38, note, ha="center", va="center", fontsize=8, color=colors["words"])


def arrow(axes: Axes, begin: tuple[float, float], end: tuple[float, float], color: str) -> None:
    """Draw one arrow between stations."""
    axes.add_patch(FancyArrowPatch(begin, end, arrowstyle="-|>", mutation_scale=14, lw=1.4, color=color))


def draw_loop(axes: Axes, colors: dict[str, str]) -> None:
    """Draw what happens to an observation on its way to the agent."""
    words = colors["words"]
    axes.set_xlim(-0.2, 10.2)
    axes.set_ylim(0.1, 7.7)
    axes.axis("off")
    axes.set_title("Every step: attack first, then noise", fontsize=11, color=words)
    left, right, low, high = 2.0, 8.0, 1.6, 6.2
    box(axes, (left, high), "environment", "unchanged", colors)
    box(axes, (right, high), "attacker", "adds a perturbation; l2 norm\nover the episode ≤ budget", colors)
    box(axes, (right, low), "noise", "adds fresh Gaussian noise,\nunknown to the attacker", colors)
    box(axes, (left, low), "agent", "deterministic function of\nits observations", colors)
    arrow(axes, (left + 2.05, high), (right - 2.05, high), words)
    arrow(axes, (right, high - 0.95), (right, low + 0.95), words)
    arrow(axes, (right - 2.05, low), (left + 2.05, low), words)
    arrow(axes, (left, low + 0.95), (left, high - 0.95), words)
    small = {"fontsize": 9, "color": words}
    axes.text(5.0, high + 0.25, "observation", ha="center", **small)
    axes.text(right - 0.2, (low + high) / 2, "perturbed\nobservation", ha="right", va="center", **small)
    axes.text(5.0, low - 0.55, "noisy\nobservation", ha="center", va="center", **small)
    axes.text(left + 0.2, (low + high) / 2, "action", ha="left", va="center", **small)


def certified() -> dict[str, Any]:
    """Return the certificate that ``make certify`` prints, and its bounds at the budgets in between."""
    episodes = surefoot.rollout("cartpole-5", AGENT, sigma=SIGMA, n_episodes=10_000)
    certificate = surefoot.certify(episodes, BUDGETS)
    between = [certificate.at(float(budget)) for budget in np.linspace(0, 1, 51)]
    curve = {name: [getattr(bound, name) for bound in between] for name in ("lower", "upper")}
    stated = {key: value for key, value in certificate.to_json().items() if key not in {"bets", "method_selection"}}
    return {**stated, "curve": {"budgets": [bound.budget for bound in between], **curve}}


def draw(colors: dict[str, str], name: str) -> None:
    """Write the loop in some colors."""
    figure = Figure(figsize=(4.6, 3.7), layout="constrained", facecolor=colors["paper"])
    FigureCanvasSVG(figure)
    draw_loop(figure.subplots(), colors)
    figure.savefig(HERE / name, metadata={"Date": None, "Creator": None})


def main() -> None:
    """Run the episodes of ``make certify`` and certify them, unless only the drawings are asked for; draw."""
    mpl.rcParams.update({"svg.hashsalt": "surefoot", "font.size": 9})
    if "--draw" not in sys.argv[1:]:
        (HERE / "idea-curve.json").write_text(json.dumps(certified(), indent=2) + "\n", encoding="utf-8")
    draw(LIGHT, "idea-loop.svg")
    draw(DARK, "idea-loop-dark.svg")


if __name__ == "__main__":
    main()
