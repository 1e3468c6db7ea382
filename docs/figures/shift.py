"""Draw T1: the lowest value that a probability can fall to under attack.

python docs/figures/shift.py    # writes shift.svg
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from surefoot.proof.bounds.gaussian_shift import shift_down

HERE = Path(__file__).resolve().parent
SCALED_BUDGETS = ((0.5, "-"), (1.0, "--"), (2.0, "-."), (3.0, ":"))


def main() -> None:
    """Write the figure."""
    mpl.rcParams.update({"svg.hashsalt": "surefoot", "font.size": 9})
    figure = Figure(figsize=(4.6, 3.7), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.subplots()
    p = np.linspace(0, 1, 401)
    axes.plot(p, p, color="#999999", lw=1, label="without attack")
    for budget, dashes in SCALED_BUDGETS:
        axes.plot(p, shift_down(p, budget), color="#0b5394", lw=2, ls=dashes, label=f"$B = {budget:g}\\,\\sigma$")
    axes.set_xlabel("probability without attack, $p$")
    axes.set_ylabel("lowest probability under attack, $g_c(p)$")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, loc="upper left")
    figure.savefig(HERE / "shift.svg", metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main()
