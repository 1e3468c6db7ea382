"""What a budget allows over time: the offset of a sensor that is held for so long.

An attacker that moves a feature by b at each of k steps uses an l2 budget of b sqrt(k), so that a budget B allows
b = B / sqrt(k): a spike may be large, and what lasts must be small.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Any

from surefoot.episodes import is_unit
from surefoot.files import is_count
from surefoot.proof.rounding import format_exact

_LETTERS = 'font-size="12" text-anchor="middle" fill="currentColor"'
MOST_ROWS = 8
MOST_NAMES = 8  # features with a column of their own
A_WHILE = 1.0  # s: what a sentence names
ROUND_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1_800.0, 3_600.0, 14_400.0, 86_400.0)
ROUND_STEPS = (2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)


@dataclass(frozen=True)
class Feature:
    """A part of an observation that an attacker can reach."""

    name: str  # what it is called
    unit: str = ""  # of its numbers; empty where nobody has said it
    scale: float = 1.0  # how much of it one unit of budget buys


@dataclass(frozen=True)
class HeldOffset:
    """A duration, and how large an offset of each feature that is held for so long uses up the budget."""

    steps: int  # steps for which it is held
    duration: str  # the same in words
    sizes: tuple[float, ...]  # one for each feature, if that alone is moved


@dataclass(frozen=True)
class HeldBudget:
    """An l2 budget of episodes of at most so many steps, and the features that an attacker may move."""

    budget: float
    max_steps: int
    features: Sequence[Feature]
    step_seconds: float | None = None

    def offsets(self) -> list[HeldOffset]:
        """Return offsets that use up the budget, for durations from one step to a whole episode."""
        found = []
        for steps in _durations(self.max_steps, self.step_seconds):
            sizes = tuple(feature.scale * self.budget / math.sqrt(steps) for feature in self.features)
            found.append(HeldOffset(steps, _describe_duration(steps, self.step_seconds), sizes))
        return found

    def rows(self) -> list[list[str]]:
        """Return a table as text, headings first, every offset rounded down."""
        heads = ["held for"]
        for feature in self.features:
            heads.append(f"{feature.name} ({feature.unit})" if feature.unit else feature.name)
        return [heads, *([held.duration, *map(format_offset, held.sizes)] for held in self.offsets())]

    def lines(self) -> list[str]:
        """Return the table as lines of text."""
        rows = self.rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return ["  ".join(map(str.rjust, row, widths)) for row in rows]

    def drawing(self) -> str:
        """Return the offsets of the first feature as bars, in SVG: as high as the offset, for so long as it is held."""
        found = self.offsets()
        width, height, room = 560, 150, 46
        step = width / len(found)
        bars = []
        for number, held in enumerate(found):
            high = (height - 20) * held.sizes[0] / found[0].sizes[0]
            middle = (number + 0.5) * step
            bars.append(
                f'<rect x="{middle - 0.3 * step:.1f}" y="{height - high:.1f}" width="{0.6 * step:.1f}" '
                f'height="{high:.1f}" fill="currentColor" fill-opacity="0.35"/>'
                f'<text x="{middle:.1f}" y="{height - high - 5:.1f}" {_LETTERS}>{format_offset(held.sizes[0])}</text>'
                f'<text x="{middle:.1f}" y="{height + 16}" {_LETTERS}>{held.duration}</text>'
            )
        return (
            f'<svg viewBox="0 0 {width} {height + room}" role="img" aria-label="Offsets by how long they are held">'
            f'{"".join(bars)}<text x="{width / 2}" y="{height + 38}" {_LETTERS}>held for</text></svg>'
        )

    def largest(self) -> str:
        """Return what the budget allows on the first feature for a second, or in one step, in words."""
        first = self.features[0]
        steps = 1
        if self.step_seconds is not None:
            steps = max(1, math.ceil(A_WHILE / self.step_seconds - 1e-9))
        size = format_offset(first.scale * self.budget / math.sqrt(steps))
        unit = f" {first.unit}" if first.unit else ""
        return f"{size}{unit} of {first.name} for {_describe_duration(steps, self.step_seconds)}"


def named_features(setup: Mapping[str, Any]) -> tuple[Feature, ...]:
    """Return the features that a setup names and that have noise; nothing where it names none, or makes no sense."""
    return tuple(_all_features(setup)[:MOST_NAMES])


def noisy_parts(setup: Mapping[str, Any]) -> tuple[list[str], list[str]] | None:
    """Return the names of the parts that have noise, and of those that have none; None where names do not say which."""
    sigmas = setup.get("sigma_per_feature")
    listed = setup.get("features")
    if not isinstance(sigmas, list) or not isinstance(listed, list):
        return None
    with_noise: list[str] = []
    without: list[str] = []
    begin = 0
    for row in listed:
        if not (isinstance(row, list) and len(row) == 3 and is_count(row[1])):
            return None
        own = {sigma > 0 for sigma in sigmas[begin : begin + row[1]]}
        begin += row[1]
        # Half of a part has no name.
        if len(own) != 1:
            return None
        (with_noise if True in own else without).append(str(row[0]))
    if begin != len(sigmas) or len(listed) > MOST_NAMES:
        return None
    return with_noise, without


def coordinate_names(setup: Mapping[str, Any], n_coordinates: int) -> list[str]:
    """Return what each number of an observation is called; nothing where the names of its parts do not say it."""
    listed = setup.get("features")
    names: list[str] = []
    if not isinstance(listed, list):
        return names
    for row in listed:
        if not (isinstance(row, list) and len(row) == 3 and is_count(row[1]) and row[1] <= n_coordinates):
            return []
        name, size, _ = row
        if size == 1:
            names.append(str(name))
        else:
            names += [f"{name} {place}" for place in range(1, size + 1)]
        # A file of others may list more than there is.
        if len(names) > n_coordinates:
            return []
    if len(names) < n_coordinates:
        return []
    return names


def _all_features(setup: Mapping[str, Any]) -> list[Feature]:
    listed = setup.get("features")
    sigmas = setup.get("sigma_per_feature")
    if not isinstance(listed, list) or not listed:
        return []
    found = []
    least = 1.0
    if isinstance(sigmas, list):
        # That of all features, in which budgets are measured, also of those that are not named here.
        least = min((sigma for sigma in sigmas if sigma > 0), default=1.0)
    begin = 0
    for row in listed:
        if not (isinstance(row, list) and len(row) == 3 and is_count(row[1])):
            return []
        name, size, unit = row
        if not is_unit(unit):
            # A file of others may say anything.
            return []
        own = [1.0]
        if isinstance(sigmas, list):
            own = sigmas[begin : begin + size]
        begin += size
        # Sigmas that differ inside of a part have no common offset.
        if own and own[0] > 0 and len(set(own)) == 1:
            found.append(Feature(str(name), str(unit), own[0] / least))
    return found


def unit_of_budgets(setup: Mapping[str, Any]) -> str:
    """Return the unit of the budgets of a setup; empty where features differ, or nobody has said it."""
    sigmas = setup.get("sigma_per_feature")
    if isinstance(sigmas, list) and len(set(sigmas) - {0}) > 1:
        # One of the features counts by another scale, whether it is named or not.
        return ""
    units = {feature.unit for feature in _all_features(setup)}
    return units.pop() if len(units) == 1 else ""


def step_seconds_of(setup: Mapping[str, Any]) -> float | None:
    """Return how long a step of a setup takes, None where nobody has said it."""
    seconds = setup.get("step_seconds")
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds < math.inf:
        return float(seconds)
    return None


def format_offset(size: float) -> str:
    """Format with three digits, rounded down so that it is within the budget; what has no more is shown as it is."""
    given = Decimal(f"{size:.12g}")
    return format_exact(float(given.normalize(Context(prec=3, rounding=ROUND_FLOOR))))


def _durations(max_steps: int, step_seconds: float | None) -> list[int]:
    """Return numbers of steps between one and an episode, round ones of steps or of seconds."""
    between: set[int] = set()
    if step_seconds is None:
        between = {steps for steps in ROUND_STEPS if 1 < steps < max_steps}
    else:
        for seconds in ROUND_SECONDS:
            steps = round(seconds / step_seconds)
            # Durations that are no whole number of steps are left out.
            if 1 < steps < max_steps and math.isclose(steps * step_seconds, seconds, rel_tol=1e-6):
                between.add(steps)
    # The long ones are what a reader does not expect to be so small.
    return sorted({1, max_steps, *sorted(between)[-(MOST_ROWS - 2) :]})


def _describe_duration(steps: int, step_seconds: float | None) -> str:
    if step_seconds is None:
        return "1 step" if steps == 1 else f"{steps:,} steps"
    if steps == 1:
        return "1 step"
    return f"{format_exact(float(f'{steps * step_seconds:.6g}'))} s"
