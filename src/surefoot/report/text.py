"""Numbers made for people: certified ones are always rounded against us."""

from __future__ import annotations

from typing import Protocol

from surefoot.report.stated import Stated
from surefoot.rounding import decimals, down, exact, limit_rows, percent, up

__all__ = [
    "Floor",
    "digits_for",
    "down",
    "exact",
    "headline",
    "headline_budget",
    "notes",
    "percent",
    "rows",
    "up",
]


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


def digits_for(certificate: Stated) -> int:
    """Return decimals that show a thousandth of the range, at least two."""
    return decimals(certificate.floor, certificate.ceiling, certificate.estimate)


def headline_budget(certificate: Stated) -> float:
    """Return the budget that the sentence is about: of those asked for, the one nearest to sigma."""
    asked = [budget for budget in certificate.budgets if budget > 0] or list(certificate.budgets)
    return float(min(asked, key=lambda candidate: abs(candidate - certificate.sigma)))


def headline(certificate: Stated) -> str:
    """Return the certificate in one sentence, at the budget nearest to sigma."""
    budget = headline_budget(certificate)
    digits = digits_for(certificate)
    limits = dict(zip(certificate.budgets, certificate.lower, strict=True))
    lower = down(limits[budget], digits)
    best = "" if certificate.ceiling is None else f" of at most {exact(certificate.ceiling)}"
    return (
        f"With {percent(certificate.confidence)} confidence, no attacker who changes the observations by at most "
        f"{exact(budget)} (l2, over a whole episode) can push this agent's mean return below {lower}{best}."
    )


def rows(certificate: Stated) -> list[tuple[str, str, str]]:
    """Return budget, certified lower and certified upper limit, as text."""
    return limit_rows(certificate.budgets, certificate.lower, certificate.upper, digits_for(certificate))


def notes(certificate: Stated, blind: Floor | None) -> list[str]:
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
