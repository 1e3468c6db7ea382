"""Returns as histograms, and the budget usage of attacks over the steps of an episode."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.proof.rounding import format_exact
from surefoot.report.charts import Group
from surefoot.report.curves import round_number

MOST_BARS = 48
FEW = 1  # a single bar as wide as the page shows nothing
MOST_STEP_BARS = 400  # bars of budget usage; longer episodes have neighboring steps added up


def histogram_data(group: Group) -> dict[str, Any] | None:
    """Return the distributions of a group's returns over common bins, or None where no returns were kept."""
    distributions = _distributions(group)
    if not distributions:
        return None
    together = np.concatenate([returns for _, returns, _ in distributions])
    low, high, whole = _shown_range(group, together)
    # The same bins for all of them, so that their bars can be compared.
    edges = bin_edges(low, high, whole)
    items = []
    for label, returns, digits in distributions:
        # Text of an estimate, with the decimals of its run: the page's script formats no numbers.
        mean = float(returns.sum()) / returns.size
        items.append({
            "label": label,
            "counts": np.histogram(returns, edges)[0].tolist(),
            "total": int(returns.size),
            "mean": float(f"{mean:.8g}"),
            "meanText": f"{mean:.{digits}f}",
        })  # fmt: skip
    # Then whole numbers lie in the middle of their bins.
    centered = bool(edges[0] % 1 == 0.5)
    return {"title": group.title, "whole": centered, "edges": [float(f"{edge:.8g}") for edge in edges], "items": items}


def bin_edges(low: float, high: float, whole: bool) -> NDArray[np.float64]:
    """Return the edges of at most MOST_BARS + 1 bins of round width; the largest whole number ends the last one."""
    if whole and abs(low) < 1e9 and high - low < 1e9:
        width = float(max(1, math.ceil(round_number((high - low + 1) / MOST_BARS, up=True))))
        count = math.ceil((high - low + 1) / width)
        first = high + 0.5 - count * width
        if count <= 2 * FEW:
            first -= FEW * width
            count += 2 * FEW
    else:
        width = round_number(((high - low) or abs(low) * 1e-3 or 1.0) / MOST_BARS, up=True)
        first = math.floor(low / width) * width
        count = math.floor((high - first) / width) + 1
    edges: NDArray[np.float64] = first + width * np.arange(count + 1, dtype=np.float64)
    return edges


def _shown_range(group: Group, together: NDArray[np.float64]) -> tuple[float, float, bool]:
    """Return the range to show, and whether it is one of whole numbers.

    Floor and ceiling of the return are in it, unless the returns would then crowd in a corner.
    """
    least = float(together.min())
    greatest = float(together.max())
    whole = bool((together == np.round(together)).all())
    floors = []
    ceilings = []
    for run in group.runs:
        for record in run.records:
            floors.append(record.floor)
            ceilings.append(-math.inf if record.ceiling is None else record.ceiling)
    low = min(floors)
    high = max(ceilings)
    if not math.isfinite(high) or (high - low > MOST_BARS and greatest - least < 0.1 * (high - low)):
        return least, greatest, whole
    return min(least, low), max(greatest, high), whole and low == round(low) and high == round(high)


def _distributions(group: Group) -> list[tuple[str, NDArray[np.float64], int]]:
    """Return the label, the returns and the decimals of each distribution."""
    found = []
    for entry in group.certified:
        name = "without attack" if len(group.entries) == 1 else f"{entry.label}, without attack"
        for record in entry.run.records:
            found.append((name, record.returns, entry.run.digits))
    for entry in group.attacked:
        # Runs without episode data have no records at all.
        for budget, record in zip(entry.run.measured["budgets"], entry.run.records, strict=False):
            found.append((f"{entry.label}, budget {format_exact(budget)}", record.returns, entry.run.digits))
    return found


def spending_data(group: Group) -> list[dict[str, Any]]:
    """Return, for every attack and budget, the mean squared perturbation at each step up to the last one."""
    found = []
    for entry in group.attacked:
        attack = entry.run.measured
        if attack.get("scope") is not None:
            # Every step has a budget of its own: nothing adds up.
            continue
        for number, budget in enumerate(attack["budgets"]):
            squares = np.array(attack["budget_used_per_step"][number], dtype=np.float64)
            if squares.size and budget > 0:
                found.append(_budget_usage(f"{entry.label}, budget {format_exact(budget)}", float(budget), squares))
    return found


def _budget_usage(label: str, budget: float, squares: NDArray[np.float64]) -> dict[str, Any]:
    total = float(squares.sum())
    # So many neighboring steps make one bar.
    together = -(-squares.size // MOST_STEP_BARS)
    bars = np.pad(squares, (0, -squares.size % together)).reshape(-1, together).sum(axis=1)
    says = f"On average {100 * (total / budget**2):.0f}% of the squared budget was used"
    if total > 0:
        half = int(np.searchsorted(np.cumsum(squares), total / 2))
        last = int(max(squares.nonzero()[0], default=0))
        says += f", half of that by step {half + 1:,}, all of it by step {last + 1:,}"
    return {
        "label": label,
        "together": together,
        "steps": int(squares.size),
        "values": [float(f"{value:.5g}") for value in bars],
        "says": f"{says}.",
    }


def histogram_rows(histogram: dict[str, Any]) -> tuple[list[str], list[Sequence[str]]]:
    """Return a histogram as a table: a heading per distribution, a row per bin that is not empty everywhere."""
    edges = histogram["edges"]
    items = histogram["items"]
    rows: list[Sequence[str]] = []
    for index in range(len(edges) - 1):
        counts = [item["counts"][index] for item in items]
        if any(counts):
            rows.append([f"{edges[index]:g} to {edges[index + 1]:g}", *map("{:,}".format, counts)])
    return ["return", *(item["label"] for item in items)], rows
