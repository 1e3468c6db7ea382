"""Figures of certificates, readable in black and white: bounds are lines, estimates are single marks."""

from __future__ import annotations

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from surefoot.proof.episode_budget import Certificate
from surefoot.report.sentences import Floor, exact, percent

BOUND, OTHER, FLOOR = "#0b5394", "#7f9fbf", "#b45f06"


def certificate_figure(certificate: Certificate, blind: Floor | None = None) -> Figure:
    """Draw the certified limits over the budget, the estimate at budget 0, and the blind floor."""
    figure = Figure(figsize=(6.8, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    budgets = np.linspace(0, max(*certificate.budgets, 1e-9), 101)
    limits = [certificate.at(float(budget)) for budget in budgets]
    axes.plot(budgets, [limit.lower for limit in limits], color=BOUND, lw=2.2, label="certified lower bound")
    axes.plot(certificate.budgets, certificate.lower, "o", color=BOUND, ms=4)
    if certificate.upper is not None:
        upper = [limit.upper for limit in limits if limit.upper is not None]
        axes.plot(budgets, upper, color=OTHER, lw=1.4, ls="--", label="certified upper bound")
    error = 0.0 if certificate.estimate_sem is None else 1.96 * certificate.estimate_sem
    axes.errorbar(
        [0],
        [certificate.estimate],
        yerr=[error],
        fmt="D",
        mfc="white",
        color="black",
        ms=6,
        capsize=3,
        clip_on=False,
        zorder=5,
        label="mean without attack (an estimate, not a bound)",
    )
    if blind is not None:
        axes.axhline(blind.mean, color=FLOOR, ls=":", lw=1.6, label="a policy that sees nothing")
    top = certificate.ceiling if certificate.ceiling is not None else certificate.estimate
    margin = 0.05 * (top - certificate.floor) or 1.0
    axes.set_ylim(certificate.floor - margin, top + margin)
    axes.set_xlim(left=-0.02 * float(budgets[-1]), right=1.02 * float(budgets[-1]))
    axes.set_xlabel("attack budget: l2 change of the observations over a whole episode")
    axes.set_ylabel("mean return")
    name = certificate.facts.get("agent") or certificate.facts.get("task") or "outcomes given"
    axes.set_title(
        f"{name}: sigma {exact(certificate.sigma)}, {certificate.episodes:,} episodes, "
        f"{percent(certificate.confidence)} confidence ({certificate.method})",
        fontsize=10,
        parse_math=False,
    )
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, loc="best", framealpha=0.9)
    return figure
