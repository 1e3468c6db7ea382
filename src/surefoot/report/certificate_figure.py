"""Figures of certificates and comparisons, readable in black and white: bounds are lines, estimates single marks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from surefoot.episodes import Baseline
from surefoot.proof.certificate import Certificate
from surefoot.proof.comparison import Comparison
from surefoot.proof.rounding import format_exact, format_noise, format_percent
from surefoot.report.offsets import unit_of_budgets

BOUND_COLOR = "#0b5394"
UPPER_COLOR = "#7f9fbf"
BASELINE_COLOR = "#b45f06"
# Of several runs: told apart in black and white too.
RUN_COLORS = ("#0b5394", "#b45f06", "#38761d", "#741b47", "#666666", "#0b8a8a")
RUN_DASHES = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)))
RUN_MARKS = ("o", "s", "^", "D", "v", "x")


@dataclass(frozen=True, kw_only=True)
class DrawnRun:
    """A certificate and its curve, which may be finer than the budgets of the file."""

    label: str  # what the legend calls it
    certificate: Certificate
    baseline: Baseline | None  # the open-loop baseline, where it is known
    budgets: Sequence[float]  # budgets of the curve
    lower: Sequence[float | None]  # its lower bounds; None where they are not known
    upper: Sequence[float | None] | None  # its upper bounds; None where there are none


def drawn_certificate(certificate: Certificate, baseline: Baseline | None = None) -> DrawnRun:
    """Return the curve of a certificate that can be asked at any budget; of one that was read from a file, steps."""
    budgets = np.linspace(0, max(*certificate.budgets, 1e-9), 101).tolist()
    lower: list[float | None] = []
    upper: list[float | None] = []
    for budget in budgets:
        bounds = certificate.at(budget)
        lower.append(bounds.lower)
        upper.append(bounds.upper)
    return DrawnRun(
        label="certified lower bound",
        certificate=certificate,
        baseline=baseline,
        budgets=budgets,
        lower=lower,
        upper=None if certificate.upper is None else upper,
    )


def certificate_figure(certificate: Certificate, baseline: Baseline | None = None) -> Figure:
    """Draw the certified bounds over the budget, the estimate at budget 0, and the open-loop baseline."""
    return run_figure(drawn_certificate(certificate, baseline))


def run_figure(run: DrawnRun) -> Figure:
    """Draw one certificate with everything that is known of it."""
    certificate = run.certificate
    baseline = run.baseline
    budgets = run.budgets
    figure = Figure(figsize=(6.8, 4.2))
    FigureCanvasAgg(figure)
    # Margins by hand: a layout engine draws everything twice, half of what a short run takes.
    figure.subplots_adjust(left=0.14, right=0.98, bottom=0.13, top=0.92)
    axes = figure.add_subplot()
    axes.plot(budgets, _with_gaps(run.lower), color=BOUND_COLOR, lw=2.2, label="certified lower bound")
    # Marks where a budget was asked for.
    axes.plot(certificate.budgets, certificate.lower, "o", color=BOUND_COLOR, ms=4)
    if run.upper is not None:
        axes.plot(budgets, _with_gaps(run.upper), color=UPPER_COLOR, lw=1.4, ls="--", label="certified upper bound")
    error = 1.96 * (certificate.estimate_sem or 0.0)
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
    if baseline is not None:
        axes.axhline(baseline.mean, color=BASELINE_COLOR, ls=":", lw=1.6, label="open-loop baseline")
    highest = certificate.estimate + error
    top = highest if certificate.ceiling is None else certificate.ceiling
    bottom = min(certificate.floor, certificate.estimate - error)
    # Where all returns are equal, the axis still needs a length.
    margin = 0.05 * (top - bottom) or 1.0
    axes.set_ylim(bottom - margin, max(top, highest) + margin)
    axes.set_xlim(left=-0.02 * budgets[-1], right=1.02 * budgets[-1])
    _label_axes(axes, unit_of_budgets(certificate.metadata), "mean return")
    name = certificate.metadata.get("agent") or certificate.metadata.get("task") or "given returns"
    axes.set_title(
        f"{name}: {format_noise(certificate.sigma, certificate.action_sigma)}, {certificate.n_episodes:,} episodes, "
        f"{format_percent(certificate.confidence)} confidence ({certificate.method})",
        fontsize=10,
        parse_math=False,
    )
    return figure


def runs_figure(runs: Sequence[DrawnRun]) -> Figure:
    """Draw the lower bounds of several certificates, told apart by color, line and mark."""
    figure = Figure(figsize=(6.8, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for number, run in enumerate(runs):
        color = RUN_COLORS[number % len(RUN_COLORS)]
        dashes = RUN_DASHES[number % len(RUN_DASHES)]
        mark = RUN_MARKS[number % len(RUN_MARKS)]
        axes.plot(run.budgets, _with_gaps(run.lower), color=color, ls=dashes, lw=2)
        stated = run.certificate
        axes.plot(stated.budgets, stated.lower, mark, color=color, ms=5)
        # For the legend: line and mark together.
        axes.plot([], [], color=color, ls=dashes, lw=2, marker=mark, ms=5, label=run.label)
    baselines = {run.baseline.mean for run in runs if run.baseline is not None}
    for mean in sorted(baselines):
        axes.axhline(mean, color="black", ls=":", lw=1.2, label="open-loop baseline")
    units = {unit_of_budgets(run.certificate.metadata) for run in runs}
    unit = units.pop() if len(units) == 1 else ""
    _label_axes(axes, unit, "certified lower bound on the mean return")
    return figure


def _label_axes(axes: Axes, unit: str, returns: str) -> None:
    """Name the axes and the lines; text of others is no formula."""
    budget = f"attack budget ({unit})" if unit else "attack budget"
    axes.set_xlabel(f"{budget}: total l2 norm of the perturbations of one episode", parse_math=False)
    axes.set_ylabel(returns)
    axes.grid(alpha=0.25)
    for text in axes.legend(fontsize=8, loc="best", framealpha=0.9).get_texts():
        text.set_parse_math(False)


def _with_gaps(values: Sequence[float | None]) -> list[float]:
    """Return values for a line, with gaps where they are not known."""
    return [np.nan if value is None else value for value in values]


def comparison_figure(comparison: Comparison) -> Figure:
    """Draw the interval of the difference without attack, the lower bounds under attack, and zero."""
    figure = Figure(figsize=(6.8, 1.6 + 0.5 * len(comparison.attacked)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    labels = ["0"]
    low, high = comparison.interval.low, comparison.interval.high
    axes.plot([low, high], [0, 0], color=BOUND_COLOR, lw=5, solid_capstyle="butt", label="interval")
    a, b = comparison.means
    axes.plot([a - b], [0], "D", mfc="white", color="black", ms=6, label="difference of means (an estimate)")
    for place, row in enumerate(comparison.attacked, start=1):
        labels.append(format_exact(row.budget))
        axes.plot([row.at_least], [place], ">", color=BOUND_COLOR, ms=8)
    axes.axvline(0, color="black", lw=1, ls="--")
    gate = comparison.question.gate
    if gate is not None and gate.margin:
        axes.axvline(-gate.margin, color=BASELINE_COLOR, lw=1.4, ls=":", label="margin")
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set_ylabel("attack budget")
    axes.set_xlabel("mean return of A minus that of B; under attack: at least")
    confidence = format_percent(comparison.question.confidence)
    axes.set_title(f"A: {comparison.names[0]}, B: {comparison.names[1]} ({confidence} confidence)", fontsize=10)
    axes.title.set_parse_math(False)
    axes.legend(fontsize=8, loc="best")
    return figure
