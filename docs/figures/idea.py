"""Draw the idea in one figure: the loop on the left, a real certificate on the right.

surefoot certify cartpole-5 --sigma 0.2 --budgets 0:1:0.02 --json --quiet > docs/figures/cartpole-5-s0.2.json
python docs/figures/idea.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from surefoot.play.tasks import CARTPOLE_BLIND

HERE = Path(__file__).resolve().parent
BOUND, UPPER, FLOOR, ATTACK, NOISE, PLAIN = "#0b5394", "#7f9fbf", "#b45f06", "#a61c00", "#38761d", "#333333"


def box(axes: Axes, centre: tuple[float, float], title: str, note: str, colour: str) -> None:
    """Draw one station of the loop."""
    x, y = centre
    width, height = 3.6, 1.7
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
    box(axes, (left, high), "environment", "the game, unchanged", PLAIN)
    box(axes, (right, high), "attacker", "adds an offset; all offsets\nof an episode: l2 ≤ budget", ATTACK)
    box(axes, (right, low), "noise", "adds fresh Gaussian noise,\nunknown to the attacker", NOISE)
    box(axes, (left, low), "agent", "deterministic function of\nall it has seen", BOUND)
    arrow(axes, (left + 1.9, high), (right - 1.9, high))
    arrow(axes, (right, high - 0.95), (right, low + 0.95))
    arrow(axes, (right - 1.9, low), (left + 1.9, low))
    arrow(axes, (left, low + 0.95), (left, high - 0.95))
    small = {"fontsize": 9, "color": PLAIN}
    axes.text(5.0, high + 0.25, "observation", ha="center", **small)
    axes.text(right - 0.2, (low + high) / 2, "tampered\nobservation", ha="right", va="center", **small)
    axes.text(5.0, low - 0.55, "what the\nagent sees", ha="center", va="center", **small)
    axes.text(left + 0.2, (low + high) / 2, "action", ha="left", va="center", **small)


def draw_curve(axes: Axes, certificate: dict[str, Any]) -> None:
    """Draw the certified curve, the estimate as a single mark, and the floor of a policy that sees nothing."""
    budgets = certificate["budgets"]
    axes.plot(budgets, certificate["upper"], color=UPPER, lw=1.4, ls="--", label="certified upper bound")
    axes.plot(budgets, certificate["lower"], color=BOUND, lw=2.4, label="certified lower bound")
    axes.fill_between(budgets, certificate["lower"], certificate["upper"], color=BOUND, alpha=0.07, lw=0)
    axes.plot(
        [0],
        [certificate["estimate"]],
        "D",
        mfc="white",
        color="black",
        ms=7,
        clip_on=False,
        zorder=5,
        label="mean without attack (an estimate)",
    )
    axes.axhline(CARTPOLE_BLIND.mean, color=FLOOR, ls=":", lw=1.8, label="a policy that sees nothing (an estimate)")
    axes.set_xlim(0, budgets[-1])
    axes.set_ylim(0, 1.06 * certificate["ceiling"])
    axes.set_xlabel("attack budget: l2 change of the observations over a whole episode", fontsize=9)
    axes.set_ylabel("mean return")
    axes.set_title(
        f"{certificate['agent']}: {certificate['episodes']:,} episodes, {certificate['confidence']:.0%} confidence",
        fontsize=11,
    )
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(0.015, 0.42), framealpha=0.95)


def main() -> None:
    """Read the committed certificate and write idea.png."""
    certificate = json.loads((HERE / "cartpole-5-s0.2.json").read_text(encoding="utf-8"))
    figure = Figure(figsize=(11, 4.3), layout="constrained")
    FigureCanvasAgg(figure)
    loop, curve = figure.subplots(1, 2, width_ratios=(1, 1.1))
    draw_loop(loop)
    draw_curve(curve, certificate)
    figure.savefig(HERE / "idea.png", dpi=130, metadata={"Software": None})


if __name__ == "__main__":
    main()
