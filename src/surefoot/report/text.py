"""Numbers made for people: certified ones are always rounded against us."""

from __future__ import annotations

import math
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
    scale = 10**digits
    rounded = math.floor(value * scale) / scale
    # Multiplying may itself round up; a bound must not.
    return f"{rounded if rounded <= value else rounded - 1 / scale:.{digits}f}"


def up(value: float, digits: int = 2) -> str:
    """Format a certified upper limit, rounded up."""
    negated = down(-value, digits)
    return negated[1:] if negated.startswith("-") else f"{0 - float(negated):.{digits}f}"


def digits_for(certificate: Certificate) -> int:
    """Return decimals that show a thousandth of the range, at least two."""
    top = certificate.ceiling if certificate.ceiling is not None else max(certificate.estimate, certificate.floor + 1)
    return max(2, 3 - math.floor(math.log10(top - certificate.floor)))


def headline(certificate: Certificate) -> str:
    """Return the certificate in one sentence, at the budget nearest to sigma."""
    asked = [budget for budget in certificate.budgets if budget > 0] or list(certificate.budgets)
    budget = min(asked, key=lambda candidate: abs(candidate - certificate.sigma))
    digits = digits_for(certificate)
    lower = down(certificate.at(budget).lower, digits)
    best = "" if certificate.ceiling is None else f" of at most {certificate.ceiling:g}"
    return (
        f"With {certificate.confidence * 100:.10g}% confidence, no attacker who changes the observations by at most "
        f"{budget:g} (l2, over a whole episode) can push this agent's mean return below {lower}{best}."
    )


def rows(certificate: Certificate) -> list[tuple[str, str, str]]:
    """Return budget, certified lower and certified upper limit, as text."""
    digits = digits_for(certificate)
    upper = certificate.upper if certificate.upper is not None else [None] * len(certificate.budgets)
    return [
        (f"{budget:g}", down(low, digits), "unknown" if high is None else up(high, digits))
        for budget, low, high in zip(certificate.budgets, certificate.lower, upper, strict=True)
    ]


def notes(certificate: Certificate, blind: Floor | None) -> list[str]:
    """Return what a reader must know beside the table."""
    digits = digits_for(certificate)
    error = "" if certificate.estimate_sem is None else f" ± {certificate.estimate_sem:.{digits}f}"
    lines = [
        f"Without an attack the mean return is about {certificate.estimate:.{digits}f}{error} "
        "(an estimate with its standard error, not a bound).",
        f"{certificate.episodes:,} episodes, sigma {certificate.sigma:g}, method {certificate.method}; "
        f"all lower limits hold at once with {certificate.confidence * 100:.10g}% confidence"
        + ("." if certificate.upper is None else ", and so do all upper limits."),
    ]
    if blind is not None:
        below = [b for b, low in zip(certificate.budgets, certificate.lower, strict=True) if low < blind.mean]
        line = f"A policy that sees nothing ({blind.what}) reaches {blind.mean:.{digits}f} under any attack"
        lines.append(line + (f": from budget {min(below):g} on, the certificate says no more." if below else "."))
    return lines
