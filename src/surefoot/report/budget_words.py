"""What an attack budget is in the units of the observations: perturbations that use it up, in words.

Numbers are rounded down, so that every perturbation that is named is within the budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal

from surefoot.errors import InputError
from surefoot.proof.certificate import checked_budget
from surefoot.proof.rounding import exact

_FEW = 8  # values that are listed one by one
_WHITE = 255  # levels of a pixel between black, 0, and white, 1
NORMS = ("l2", "l1", "linf")

# Names and units of observations, by environment; the one with a star is the one an attacker would move first.
_PLACE = ("*position", "along the track")
FEATURES: dict[str, tuple[tuple[str, str], ...]] = {
    "CartPole": (
        ("cart position", "m"),
        ("cart velocity", "m/s"),
        ("*pole angle", "rad"),
        ("pole angular velocity", "rad/s"),
    ),
    "MountainCar": (_PLACE, ("velocity", "per step")),
    "MountainCarContinuous": (_PLACE, ("velocity", "per step")),
    "Pendulum": (("cosine of the angle", ""), ("*sine of the angle", ""), ("angular velocity", "rad/s")),
    "Acrobot": (
        ("cosine of the first angle", ""),
        ("*sine of the first angle", ""),
        ("cosine of the second angle", ""),
        ("sine of the second angle", ""),
        ("first angular velocity", "rad/s"),
        ("second angular velocity", "rad/s"),
    ),
    "LunarLander": (
        ("horizontal position", "half widths of the screen"),
        ("height", "half heights of the screen"),
        ("horizontal velocity", ""),
        ("vertical velocity", ""),
        ("*angle", "rad"),
        ("angular velocity", ""),
        ("contact of the left leg", ""),
        ("contact of the right leg", ""),
    ),
}
FEATURES["LunarLanderContinuous"] = FEATURES["LunarLander"]
IMAGES = {"PongNoFrameskip": (84, 84), "FreewayNoFrameskip": (84, 84)}  # of the paper's tasks


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What a budget is spent on.

    Attributes:
        features: Names and units, empty where they are unknown.
        main: The feature that stands for all.
        n: Number of values in one observation, None if unknown.
        image: Whether observations are images with values from 0 to 1.
        max_steps: Most steps of an episode, None if unknown.
        scales: What one unit of budget is for each feature; empty where it is 1 for all.
    """

    features: tuple[tuple[str, str], ...]
    main: int
    n: int | None
    image: bool
    max_steps: int | None
    scales: tuple[float, ...]


def explain_budget(
    budget: float,
    env: str | None = None,
    *,
    shape: Sequence[int] | None = None,
    max_steps: int | None = None,
    sigma: float | Sequence[float] | None = None,
    norm: str = "l2",
    per_step: bool = False,
) -> list[str]:
    """Return perturbations that use up an attack budget, in words; every one of them is within it.

    Args:
        budget: The attack budget, in the units of the observations (images: from 0 to 1).
        env: Gymnasium ID; features of known environments are named.
        shape: Shape of one observation; two dimensions or more are an image.
        max_steps: Most steps of an episode.
        sigma: The agent's noise; where it differs from feature to feature, so does what a budget buys.
        norm: "l2", "l1" or "linf".
        per_step: Whether the budget is for every single step instead of a whole episode.

    Raises:
        InputError: If the budget is negative, or a number makes no sense.
    """
    if norm not in NORMS:
        raise InputError(f"norm must be one of {', '.join(NORMS)}, got {norm!r}")
    if max_steps is not None and max_steps < 1:
        raise InputError(f"max_steps must be at least 1, got {max_steps}")
    seen = _observed(env, shape, max_steps, sigma)
    least = None if sigma is None else min(_listed(sigma))
    lines = (
        _pixels(checked_budget(budget), seen, norm, per_step)
        if seen.image
        else _values(checked_budget(budget), seen, norm, per_step)
    )
    if norm == "l2" and least:
        lines.append(f"{_down(budget / least)} times sigma, the standard deviation of the noise on every value")
    return lines


def _observed(
    env: str | None, shape: Sequence[int] | None, max_steps: int | None, sigma: float | Sequence[float] | None
) -> Observed:
    known = (env or "").rpartition("/")[2].rpartition("-v")[0]
    sizes = tuple(shape) if shape is not None else IMAGES.get(known)
    if sizes is not None and any(size < 1 for size in sizes):
        raise InputError(f"shape must have positive sizes, got {sizes}")
    n = None if sizes is None else math.prod(sizes)
    named = FEATURES.get(known, ())
    named = named if n in (None, len(named)) else ()
    noise = () if sigma is None else _listed(sigma)
    return Observed(
        features=tuple((name.removeprefix("*"), unit) for name, unit in named),
        main=next((number for number, (name, _) in enumerate(named) if name.startswith("*")), 0),
        n=len(named) or n,
        image=sizes is not None and len(sizes) >= 2,
        max_steps=max_steps,
        scales=tuple(one / min(noise) for one in noise) if len(set(noise)) > 1 else (),
    )


def _listed(sigma: float | Sequence[float]) -> tuple[float, ...]:
    found = (float(sigma),) if isinstance(sigma, int | float) else tuple(float(one) for one in sigma)
    if not found or min(found) < 0 or (len(found) > 1 and min(found) == 0):
        raise InputError(f"sigma must be positive, got {sigma}")
    return found


def _share(budget: float, n: float, norm: str) -> float:
    """Return by how much each of n values can be changed together."""
    return budget / {"l2": math.sqrt(n), "l1": n, "linf": 1.0}[norm]


def _values(budget: float, seen: Observed, norm: str, per_step: bool) -> list[str]:
    """Return the words for observations that are a list of numbers."""
    steps = None if per_step else seen.max_steps
    once = "at every step" if per_step else "in one step"
    if seen.features and len(seen.features) <= _FEW:
        moved = [_moved(seen, number, budget) for number in range(len(seen.features))]
        lines = [f"{', '.join(moved[:-1])} or {moved[-1]}, {once}"]
    else:
        lines = [f"{_moved(seen, seen.main, budget)}, {once}"]
    if seen.n is not None and seen.n > 1 and not seen.scales:
        lines.append(f"all {seen.n:,} values by {_down(_share(budget, seen.n, norm))}, {once}")
    if steps is not None:
        lines.append(f"{_moved(seen, seen.main, _share(budget, steps, norm))}, at each of {steps:,} steps")
        if seen.n is not None and seen.n > 1 and not seen.scales:
            each = _down(_share(budget, seen.n * steps, norm))
            lines.append(f"all {seen.n:,} values by {each}, at each of {steps:,} steps")
    return lines


def _moved(seen: Observed, number: int, by: float) -> str:
    """Return one feature and by how much it is moved; an angle in degrees too."""
    name, unit = seen.features[number] if seen.features else ("one value", "")
    moved = by * (seen.scales[number] if number < len(seen.scales) else 1.0)
    degrees = f" ({math.degrees(moved):.3g} degrees)" if unit == "rad" else ""
    return f"{name} by {_down(moved)}{f' {unit}' if unit else ''}{degrees}"


def _pixels(budget: float, seen: Observed, norm: str, per_step: bool) -> list[str]:
    """Return the words for images, in levels of 1/255."""
    assert seen.n is not None
    levels, once = budget * _WHITE, "in every frame" if per_step else "once"
    many = {"l2": budget**2, "l1": budget, "linf": math.inf}[norm]
    lines = [f"one pixel by {_level(levels)}, {once}"]
    if levels > _WHITE and norm != "linf":
        lines = [f"{_whole(many):,} pixels from black to white, {once}"]
    faint = {"l2": levels**2, "l1": levels}.get(norm)
    if faint is not None and levels >= 1:
        where = "of every frame" if per_step else "of one frame or of several"
        lines.append(f"1/{_WHITE} on {_whole(faint):,} pixels {where}")
    lines.append(f"all {seen.n:,} pixels by {_level(_share(levels, seen.n, norm))}, {once}")
    if seen.max_steps is not None and not per_step:
        frames = f"in each of {seen.max_steps:,} frames"
        for what, n in (("one pixel", 1), (f"all {seen.n:,} pixels", seen.n)):
            lines.append(f"{what} by {_level(_share(levels, n * seen.max_steps, norm))}, {frames}")
    return lines


def _level(levels: float) -> str:
    """Format a change of a pixel, which cannot be more than from black to white."""
    return f"{_down(min(levels, _WHITE))}/{_WHITE}"


def _whole(number: float) -> int:
    """Round down, but not a whole number that was computed a rounding error too low."""
    return math.floor(number * (1 + 1e-12))


def _down(number: float) -> str:
    """Format with three digits, rounded down; what has no more is shown as it is."""
    given = Decimal(f"{number:.12g}")
    return exact(float(given.normalize(Context(prec=3, rounding=ROUND_FLOOR))))
