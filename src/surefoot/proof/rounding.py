"""Numbers as text: certified ones are always rounded against us, what was asked for keeps all its digits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any


def down(value: float, digits: int = 2) -> str:
    """Format a certified lower limit, rounded down."""
    return _rounded(value, digits, ROUND_FLOOR)


def up(value: float, digits: int = 2) -> str:
    """Format a certified upper limit, rounded up."""
    return _rounded(value, digits, ROUND_CEILING)


def exact(value: float) -> str:
    """Format what was asked for with all its digits: a budget rounded up would claim more than was proved."""
    text = f"{Decimal(repr(float(value))).normalize():f}"
    return text if len(text) <= 20 else repr(float(value))


def percent(confidence: float) -> str:
    """Format a confidence with all its digits: 99.9999999999% is not 100%."""
    return f"{(Decimal(repr(float(confidence))) * 100).normalize():f}%"


def decimals(floor: float, ceiling: float | None, estimate: float) -> int:
    """Return decimals that show a thousandth of the range of the return, at least two."""
    top = ceiling if ceiling is not None else max(estimate, floor + 1)
    spread = top - floor
    return max(2, 3 - math.floor(math.log10(spread))) if 0 < spread < math.inf else 2


def limit_rows(
    budgets: Iterable[float], lower: Iterable[float], upper: Iterable[float] | None, digits: int
) -> list[tuple[str, str, str]]:
    """Return budget, certified lower and certified upper limit, as text."""
    lower = list(lower)
    highs = [None] * len(lower) if upper is None else upper
    return [
        (exact(budget), down(low, digits), "unknown" if high is None else up(high, digits))
        for budget, low, high in zip(budgets, lower, highs, strict=True)
    ]


def limit_table(
    budgets: Iterable[float], lower: Iterable[float], upper: Iterable[float] | None, digits: int
) -> list[str]:
    """Return the same as lines of a table, aligned to the right, under a head."""
    table = [("budget", "lower", "upper"), *limit_rows(budgets, lower, upper, digits)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table]


def discount_of(facts: Mapping[str, Any]) -> dict[str, float]:
    """Return the discount as a field of a certificate, where there is one."""
    return {} if facts.get("discount") is None else {"discount": float(facts["discount"])}


def features_of(facts: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return the sigmas of all features as a field of a certificate, where they differ."""
    return {} if facts.get("features") is None else {"features": [float(one) for one in facts["features"]]}


def noise_of(sigma: float, facts: Mapping[str, Any]) -> str:
    """Return the noise in words; where it differs from feature to feature, with the unit of the budgets."""
    features = features_of(facts).get("features")
    if features is None:
        return f"sigma {exact(sigma)}"
    shown = ", ".join(exact(one) for one in features[:8]) + (", ..." if len(features) > 8 else "")
    return (
        f"sigma {shown} by feature; offsets are divided by sigma / {exact(sigma)} before their norm is taken, so that "
        "a plain norm of the budget is covered too"
    )


def return_of(facts: Mapping[str, Any]) -> str:
    """Return what is added up, in words."""
    found = discount_of(facts)
    return f"discounted return (discount {exact(found['discount'])})" if found else "return"


def _rounded(value: float, digits: int, direction: str) -> str:
    # In decimal arithmetic, for in binary the multiplication and the division may round the other way.
    step = Decimal(1).scaleb(-digits)
    rounded = Decimal(repr(float(value))).quantize(step, direction, Context(prec=2000))
    return f"{abs(rounded) if rounded == 0 else rounded:f}"
