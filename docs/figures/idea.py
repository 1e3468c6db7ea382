"""Draw the loop of attacker, noise and agent, and keep the certificate that ``make certify`` prints.

python docs/figures/idea.py    # writes idea-loop.svg and idea-curve.json, the certificate
"""

from __future__ import annotations

import json
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
BOUND, ATTACK, NOISE, PLAIN = "#0b5394", "#a61c00", "#38761d", "#333333"


def box(axes: Axes, centre: tuple[float, float], title: str, note: str, colour: str) -> None:
    """Draw one station of the loop."""
    x, y = centre
    width, height = 3.9, 1.75
    axes.add_patch(
        FancyBboxPatch(
            (x - width / 2, y - height / 2), width, height, boxstyle="round,pad=0.05", fc="white", ec=colour, lw=1.8
        )
    )
    axes.text(x, y + 0.32, title, ha="center", va="center", fontsize=11, color=colour, weight="bold")
    axes.text(x, y - 0.38, note, ha="center", va="center", fontsize=8, color=PLAIN)


def arrow(axes: Axes, begin: tuple[float, float], end: tuple[float, float]) -> None:
    """Draw one arrow between stations."""
    axes.add_patch(FancyArrowPatch(begin, end, arrowstyle="-|>", mutation_scale=14, lw=1.4, color=PLAIN))


def draw_loop(axes: Axes) -> None:
    """Draw what happens to an observation on its way to the agent."""
    axes.set_xlim(-0.2, 10.2)
    axes.set_ylim(0.1, 7.7)
    axes.axis("off")
    axes.set_title("Every step: attack first, then noise", fontsize=11)
    left, right, low, high = 2.0, 8.0, 1.6, 6.2
    box(axes, (left, high), "environment", "unchanged", PLAIN)
    box(axes, (right, high), "attacker", "adds a perturbation; l2 norm\nover the episode ≤ budget", ATTACK)
    box(axes, (right, low), "noise", "adds fresh Gaussian noise,\nunknown to the attacker", NOISE)
    box(axes, (left, low), "agent", "deterministic function of\nits observations", BOUND)
    arrow(axes, (left + 2.05, high), (right - 2.05, high))
    arrow(axes, (right, high - 0.95), (right, low + 0.95))
    arrow(axes, (right - 2.05, low), (left + 2.05, low))
    arrow(axes, (left, low + 0.95), (left, high - 0.95))
    small = {"fontsize": 9, "color": PLAIN}
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


def main() -> None:
    """Run the episodes of ``make certify``, certify them, write the numbers and the figure."""
    mpl.rcParams.update({"svg.hashsalt": "surefoot", "font.size": 9})
    (HERE / "idea-curve.json").write_text(json.dumps(certified(), indent=2) + "\n", encoding="utf-8")
    figure = Figure(figsize=(4.6, 3.7), layout="constrained")
    FigureCanvasSVG(figure)
    draw_loop(figure.subplots())
    figure.savefig(HERE / "idea-loop.svg", metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main()
