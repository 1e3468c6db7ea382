"""What an attack budget is in the units of the observations: perturbations that use it up, in words.

Numbers are rounded down, so that every perturbation that is named is within the budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from surefoot.errors import InputError
from surefoot.proof.certificate import checked_budget
from surefoot.proof.query import NORMS
from surefoot.report.offsets import Feature, HeldBudget, format_offset

_FEW_VALUES = 8  # values that are listed one by one
_WHITE = 255  # levels of a pixel between black, 0, and white, 1

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
    """What a budget is spent on."""

    features: tuple[tuple[str, str], ...]  # names and units, empty where they are unknown
    main: int  # the feature that stands for all
    n: int | None  # number of values in one observation, None if unknown
    image: bool  # whether observations are images with values from 0 to 1
    max_steps: int | None  # most steps of an episode, None if unknown
    scales: tuple[float, ...]  # what one unit of budget is for each feature; empty where it is 1 for all


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

    Example:
        >>> import surefoot
        >>> for line in surefoot.explain_budget(0.2, "MountainCar-v0", max_steps=200):
        ...     print(line)
        position by 0.2 along the track or velocity by 0.2 per step, in one step
        all 2 values by 0.141, in one step
        position by 0.0141 along the track, at each of 200 steps
        all 2 values by 0.01, at each of 200 steps
    """
    if norm not in NORMS:
        raise InputError(f"norm must be one of {', '.join(NORMS)}, got {norm!r}")
    if max_steps is not None and max_steps < 1:
        raise InputError(f"max_steps must be at least 1, got {max_steps}")
    budget = checked_budget(budget)
    sigmas = _checked_sigmas(sigma)
    observed = _describe_observations(env, shape, max_steps, sigmas)
    if observed.image:
        lines = _explain_pixels(budget, observed, norm, per_step)
    else:
        lines = _explain_values(budget, observed, norm, per_step)
    if norm == "l2" and any(sigmas):
        times = format_offset(budget / min(sigmas))
        lines.append(f"{times} times sigma, the standard deviation of the noise on every value")
    return lines


def held_for(
    budget: float,
    env: str | None = None,
    *,
    shape: Sequence[int] | None = None,
    max_steps: int | None = None,
    sigma: float | Sequence[float] | None = None,
    step_seconds: float | None = None,
) -> list[str]:
    """Return how large an offset may be that is held for some time, as lines of a table.

    The arguments are those of ``explain_budget``; images, and episodes of unknown length, have no table.
    """
    observed = _describe_observations(env, shape, max_steps, _checked_sigmas(sigma))
    if observed.image or max_steps is None:
        return []
    feature = Feature("one value")
    if observed.features:
        name, unit = observed.features[observed.main]
        feature = Feature(name, unit)
    if observed.scales:
        feature = replace(feature, scale=observed.scales[observed.main])
    return HeldBudget(checked_budget(budget), max_steps, (feature,), step_seconds).lines()


def _checked_sigmas(sigma: float | Sequence[float] | None) -> tuple[float, ...]:
    """Return one sigma, or one per feature; none where nothing is known. One may be 0: then there is no noise."""
    if sigma is None:
        return ()
    if isinstance(sigma, int | float):
        sigma = (sigma,)
    sigmas = tuple(map(float, sigma))
    if not sigmas or min(sigmas) < 0 or (len(sigmas) > 1 and min(sigmas) == 0):
        raise InputError(f"sigma must be positive, got {sigmas}")
    return sigmas


def _describe_observations(
    env: str | None, shape: Sequence[int] | None, max_steps: int | None, sigmas: tuple[float, ...]
) -> Observed:
    name = (env or "").rpartition("/")[2].rpartition("-v")[0]
    sizes = IMAGES.get(name) if shape is None else tuple(shape)
    n = None
    if sizes is not None:
        if any(size < 1 for size in sizes):
            raise InputError(f"shape must have positive sizes, got {sizes}")
        n = math.prod(sizes)
    named = FEATURES.get(name, ())
    if n is not None and n != len(named):
        # Somebody has wrapped the environment: its features are others.
        named = ()
    features = []
    main = 0
    for number, (feature, unit) in enumerate(named):
        features.append((feature.removeprefix("*"), unit))
        if feature.startswith("*"):
            main = number
    scales: tuple[float, ...] = ()
    if len(set(sigmas)) > 1:
        scales = tuple(sigma / min(sigmas) for sigma in sigmas)
    return Observed(
        features=tuple(features),
        main=main,
        n=len(named) or n,
        image=sizes is not None and len(sizes) >= 2,
        max_steps=max_steps,
        scales=scales,
    )


def _share_evenly(budget: float, n: float, norm: str) -> float:
    """Return by how much each of n values can be changed together."""
    return budget / {"l2": math.sqrt(n), "l1": n, "linf": 1.0}[norm]


def _explain_values(budget: float, seen: Observed, norm: str, per_step: bool) -> list[str]:
    """Return the words for observations that are a list of numbers."""
    once = "at every step" if per_step else "in one step"
    moved = _move_feature(seen, seen.main, budget)
    if 0 < len(seen.features) <= _FEW_VALUES:
        *others, last = [_move_feature(seen, number, budget) for number in range(len(seen.features))]
        moved = f"{', '.join(others)} or {last}"
    lines = [f"{moved}, {once}"]
    # Where a budget buys more of one feature than of another, no one number moves all of them.
    n = seen.n or 1
    has_common_share = n > 1 and not seen.scales
    if has_common_share:
        lines.append(f"all {n:,} values by {format_offset(_share_evenly(budget, n, norm))}, {once}")
    if seen.max_steps is not None and not per_step:
        always = f"at each of {seen.max_steps:,} steps"
        share = _share_evenly(budget, seen.max_steps, norm)
        lines.append(f"{_move_feature(seen, seen.main, share)}, {always}")
        if has_common_share:
            share = _share_evenly(budget, n * seen.max_steps, norm)
            lines.append(f"all {n:,} values by {format_offset(share)}, {always}")
    return lines


def _move_feature(seen: Observed, number: int, by: float) -> str:
    """Return one feature and by how much it is moved; an angle in degrees too."""
    name = "one value"
    unit = ""
    if seen.features:
        name, unit = seen.features[number]
    if number < len(seen.scales):
        by *= seen.scales[number]
    text = f"{name} by {format_offset(by)}"
    if unit:
        text += f" {unit}"
    if unit == "rad":
        text += f" ({math.degrees(by):.3g} degrees)"
    return text


def _explain_pixels(budget: float, seen: Observed, norm: str, per_step: bool) -> list[str]:
    """Return the words for images, in levels of 1/255."""
    assert seen.n is not None
    levels = budget * _WHITE
    once = "in every frame" if per_step else "once"
    lines = [f"one pixel by {_format_level(levels)}, {once}"]
    # A change of 1 on n pixels has the l2 norm sqrt(n) and the l1 norm n.
    power = {"l2": 2, "l1": 1}.get(norm)
    if levels > _WHITE and power is not None:
        lines = [f"{_round_count(budget**power):,} pixels from black to white, {once}"]
    if levels >= 1 and power is not None:
        where = "of every frame" if per_step else "of one frame or of several"
        lines.append(f"1/{_WHITE} on {_round_count(levels**power):,} pixels {where}")
    lines.append(f"all {seen.n:,} pixels by {_format_level(_share_evenly(levels, seen.n, norm))}, {once}")
    if seen.max_steps is not None and not per_step:
        always = f"in each of {seen.max_steps:,} frames"
        for what, n in (("one pixel", 1), (f"all {seen.n:,} pixels", seen.n)):
            share = _share_evenly(levels, n * seen.max_steps, norm)
            lines.append(f"{what} by {_format_level(share)}, {always}")
    return lines


def _format_level(levels: float) -> str:
    """Format a change of a pixel, which cannot be more than from black to white."""
    return f"{format_offset(min(levels, _WHITE))}/{_WHITE}"


def _round_count(number: float) -> int:
    """Round down, but not a whole number that was computed a rounding error too low."""
    return math.floor(number * (1 + 1e-12))
