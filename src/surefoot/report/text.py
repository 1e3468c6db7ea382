"""Numbers made for people: certified ones are always rounded against us."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Protocol

from surefoot.certify import Certificate


class Floor(Protocol):
    """What a policy reaches that sees nothing but the clock."""

    @property
    def mean(self) -> float:
        """Its estimated mean return."""
        ...

    @property
    def what(self) -> str:
        """The policy in words."""
        ...


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


def _rounded(value: float, digits: int, direction: str) -> str:
    # In decimal arithmetic, for in binary the multiplication and the division may round the other way.
    step = Decimal(1).scaleb(-digits)
    rounded = Decimal(repr(float(value))).quantize(step, direction, Context(prec=2000))
    return f"{abs(rounded) if rounded == 0 else rounded:f}"


def digits_for(certificate: Certificate) -> int:
    """Return decimals that show a thousandth of the range, at least two."""
    top = certificate.ceiling if certificate.ceiling is not None else max(certificate.estimate, certificate.floor + 1)
    spread = top - certificate.floor
    return max(2, 3 - math.floor(math.log10(spread))) if 0 < spread < math.inf else 2


def headline(certificate: Certificate) -> str:
    """Return the certificate in one sentence, at the budget nearest to sigma."""
    asked = [budget for budget in certificate.budgets if budget > 0] or list(certificate.budgets)
    budget = min(asked, key=lambda candidate: abs(candidate - certificate.sigma))
    digits = digits_for(certificate)
    lower = down(certificate.at(budget).lower, digits)
    best = "" if certificate.ceiling is None else f" of at most {exact(certificate.ceiling)}"
    return (
        f"With {percent(certificate.confidence)} confidence, no attacker who changes the observations by at most "
        f"{exact(budget)} (l2, over a whole episode) can push this agent's mean return below {lower}{best}."
    )


def rows(certificate: Certificate) -> list[tuple[str, str, str]]:
    """Return budget, certified lower and certified upper limit, as text."""
    digits = digits_for(certificate)
    upper = certificate.upper if certificate.upper is not None else [None] * len(certificate.budgets)
    return [
        (exact(budget), down(low, digits), "unknown" if high is None else up(high, digits))
        for budget, low, high in zip(certificate.budgets, certificate.lower, upper, strict=True)
    ]


def notes(certificate: Certificate, blind: Floor | None) -> list[str]:
    """Return what a reader must know beside the table."""
    digits = digits_for(certificate)
    error = "" if certificate.estimate_sem is None else f" ± {certificate.estimate_sem:.{digits}f}"
    lines = [
        f"Without an attack the mean return is about {certificate.estimate:.{digits}f}{error} "
        "(an estimate with its standard error, not a bound).",
        f"{certificate.episodes:,} episodes, sigma {exact(certificate.sigma)}, method {certificate.method}; "
        f"all lower limits hold at once with {percent(certificate.confidence)} confidence"
        + ("." if certificate.upper is None else ", and so do all upper limits."),
    ]
    if blind is not None:
        below = [b for b, low in zip(certificate.budgets, certificate.lower, strict=True) if low < blind.mean]
        line = f"A policy that sees nothing ({blind.what}) reaches {blind.mean:.{digits}f} under any attack"
        lines.append(line + (f": from budget {exact(min(below))} on, the certificate says no more." if below else "."))
    return lines
