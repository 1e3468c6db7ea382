"""Figures 1, 2 and 6: drawings that explain the theory, computed where there is something to compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from numpy.typing import NDArray

from study.numbers import Study
from study.tables import Table

CLEAN, HOSTILE, PLAIN = "#0b5394", "#a61c00", "#333333"
SEED, DRAWS = 0, 2_000
FIRST, SECOND = 0.6, 1.6  # offsets of the toy: the first blindly, the second only where the first has worked
SHIFT, SHARE = (1.1, 0.8), 0.8  # of Figure 6: an offset in two dimensions, and how often the function is one
Floats = NDArray[np.float64]


def toy(_study: Study, _tasks: Sequence[str]) -> tuple[Figure, Table]:
    """Draw the toy: in the static case noise moves as a whole, an attacker that adapts bends it."""
    figure = Figure(figsize=(8.6, 7.0), layout="constrained")
    FigureCanvasAgg(figure)
    panels = [figure.add_subplot(2, 2, number) for number in range(1, 5)]
    noise = np.random.default_rng(SEED).standard_normal((DRAWS, 2))
    static = noise + np.array([FIRST, FIRST])
    adapted = adaptive(noise)
    _cloud(panels[0], noise, static, "(a) static: one perturbation,\nfixed before the noise is drawn")
    axis = np.linspace(-4, 5, 300)
    for place, colour, line, name in ((0.0, CLEAN, "-", "clean"), (FIRST, HOSTILE, "--", "attacked")):
        density = np.exp(-((axis - place) ** 2) / 2) / np.sqrt(2 * np.pi)
        panels[1].plot(axis, density, color=colour, ls=line, label=name)
    panels[1].set(title="(b) step 1:\ntwo Gaussians", xlabel="first observation, seen (sigmas)", ylabel="density")
    panels[1].legend(fontsize=8)
    panels[2].plot(axis, np.zeros_like(axis), color=CLEAN, label="clean")
    panels[2].step(axis, np.where(axis > FIRST, SECOND, 0.0), color=HOSTILE, ls="--", where="mid", label="attacker")
    panels[2].set(
        title="(c) step 2: the perturbation depends\non the noisy observation of step 1",
        xlabel="first observation, seen (sigmas)",
        ylabel="second perturbation (sigmas)",
    )
    panels[2].legend(fontsize=8)
    _cloud(panels[3], noise, adapted, "(d) adaptive: what is seen\nis no Gaussian any more")
    for axes in panels:
        axes.title.set_fontsize(10)
        axes.grid(alpha=0.25)
    return figure, _toy_table(static, adapted)


def adaptive(noise: Floats) -> Floats:
    """Return what is seen of two observations at 0 under the toy's adaptive attacker."""
    seen = noise.copy()
    seen[:, 0] += FIRST
    seen[:, 1] += np.where(seen[:, 0] > FIRST, SECOND, 0.0)
    return seen


def _toy_table(static: Floats, adapted: Floats) -> Table:
    rows = []
    for name, seen in (("static", static), ("adaptive", adapted)):
        spread = np.cov(seen.T)
        rows.append([name, f"{spread[0, 0]:.2f}", f"{spread[1, 1]:.2f}", f"{spread[0, 1]:.2f}"])
    return Table(["attacker", "variance, first", "variance, second", "covariance"], rows)


def _cloud(axes: Axes, clean: Floats, hostile: Floats, title: str) -> None:
    axes.plot(*clean.T, "o", ms=2, color=CLEAN, alpha=0.4, label="clean", rasterized=True)
    axes.plot(*hostile.T, "x", ms=3, color=HOSTILE, alpha=0.4, label="attacked", rasterized=True)
    axes.set(title=title, xlabel="first observation, seen (sigmas)", ylabel="second observation, seen (sigmas)")
    axes.set(xlim=(-4.2, 5.2), ylim=(-4.2, 5.2), aspect="equal")
    axes.legend(fontsize=8, loc="upper left", markerscale=2)


def framework(_study: Study, _tasks: Sequence[str]) -> tuple[Figure, None]:
    """Draw the two systems and what goes between them."""
    figure = Figure(figsize=(9.5, 3.9), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set(xlim=(0, 19), ylim=(0, 7.6))
    axes.axis("off")
    _box(axes, (0.3, 0.6, 7.4, 6.2), "System A", "", CLEAN)
    _box(axes, (11.3, 0.6, 7.4, 6.2), "System B", "", HOSTILE)
    _box(axes, (0.9, 3.5, 6.2, 1.9), "environment", "moves on, pays the reward", PLAIN)
    _box(axes, (0.9, 1.0, 6.2, 1.9), "agent", "acts on all it has seen", PLAIN)
    _box(axes, (11.9, 3.5, 6.2, 1.9), "attacker", "perturbation; in all at most B (l2)", PLAIN)
    _box(axes, (11.9, 1.0, 6.2, 1.9), "smoothing", "noise N(0, sigma² I)", PLAIN)
    _arrow(axes, (7.3, 4.45), (11.7, 4.45), "state, observation,\nlast action: token")
    _arrow(axes, (11.7, 1.95), (7.3, 1.95), "perturbation + noise")
    return figure, None


def _box(axes: Axes, place: tuple[float, float, float, float], title: str, note: str, colour: str) -> None:
    x, y, width, height = place
    axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0.1", fc="white", ec=colour, lw=1.6))
    options: dict[str, Any] = {"ha": "center", "color": colour}
    if note:
        axes.text(x + width / 2, y + height * 0.68, title, va="center", weight="bold", fontsize=11, **options)
        axes.text(x + width / 2, y + height * 0.28, note, va="center", fontsize=9.5, **options)
    else:
        axes.text(x + width / 2, y + height - 0.5, title, va="center", weight="bold", fontsize=12, **options)


def _arrow(axes: Axes, begin: tuple[float, float], end: tuple[float, float], text: str) -> None:
    axes.add_patch(FancyArrowPatch(begin, end, arrowstyle="-|>", mutation_scale=16, lw=1.6, color=PLAIN))
    axes.text((begin[0] + end[0]) / 2, begin[1] + 0.25, text, ha="center", va="bottom", fontsize=9, color=PLAIN)


def rotation(_study: Study, _tasks: Sequence[str]) -> tuple[Figure, Table]:
    """Draw a perturbation in two dimensions and one of the same size along the first: they leave the same chance."""
    from scipy.stats import norm

    size = float(np.hypot(*SHIFT))
    cut = float(norm.ppf(SHARE))
    figure = Figure(figsize=(9.2, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    noise = np.random.default_rng(SEED).standard_normal((DRAWS, 2))
    rows = []
    cases = ((np.array(SHIFT), "any direction"), (np.array([size, 0.0]), "along the first coordinate"))
    for number, (shift, title) in enumerate(cases):
        axes = figure.add_subplot(1, 2, number + 1)
        inside = (noise + shift) @ (shift / size) <= cut
        _half_planes(axes, shift / size, cut)
        axes.plot(*(noise + shift).T, ".", ms=1.5, color="0.25", alpha=0.5, rasterized=True)
        axes.plot([0, shift[0]], [0, shift[1]], "k-", lw=1.5)
        axes.plot([0], [0], "o", color="black", ms=7, label="clean")
        axes.plot(*shift, "X", color="black", ms=9, label="perturbed")
        axes.set(title=f"{title}: size {size:.2f} sigma", xlim=(-3, 5), ylim=(-4, 4), aspect="equal")
        axes.set(xlabel="first coordinate (sigmas)", ylabel="second coordinate (sigmas)")
        axes.legend(loc="upper right", fontsize=9)
        rows.append([title, f"{inside.mean():.3f}", f"{float(norm.cdf(cut - size)):.3f}"])
    figure.suptitle("Worst-case function: 1 on the plain side, 0 on the hatched side", fontsize=10)
    return figure, Table(["perturbation", "share of 1, drawn", "share of 1, Theorem 1"], rows)


def _half_planes(axes: Axes, direction: Floats, cut: float) -> None:
    across, up = np.meshgrid(np.linspace(-3, 5, 161), np.linspace(-4, 4, 161))
    height = across * direction[0] + up * direction[1]
    axes.contourf(across, up, height, levels=[-99, cut, 99], colors=["#dfe9f5", "#f6e0db"])
    axes.contourf(across, up, height, levels=[cut, 99], colors="none", hatches=["///"])
    axes.contour(across, up, height, levels=[cut], colors="black", linewidths=1)
