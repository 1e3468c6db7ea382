"""Numbers made for people: certified ones are always rounded against us."""

from __future__ import annotations

from typing import Protocol

from surefoot.proof.certificate import ThreatCertificate
from surefoot.proof.query import Answer
from surefoot.proof.rounding import decimals, down, exact, limit_rows, noise_of, percent, return_of, up
from surefoot.report.stated import Stated

__all__ = [
    "Floor",
    "digits_for",
    "down",
    "exact",
    "headline",
    "headline_budget",
    "law_lines",
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
    if isinstance(certificate, ThreatCertificate):
        said = certificate.headline(exact(budget), lower)
        return f"With {percent(certificate.confidence)} confidence, {said}{best}."
    return (
        f"With {percent(certificate.confidence)} confidence, no attacker who changes the observations by at most "
        f"{exact(budget)} (l2, over a whole episode) can push this agent's mean {return_of(certificate.facts)} "
        f"below {lower}{best}."
    )


def rows(certificate: Stated) -> list[tuple[str, str, str]]:
    """Return budget, certified lower and certified upper limit, as text."""
    return limit_rows(certificate.budgets, certificate.lower, certificate.upper, digits_for(certificate))


def law_lines(certificate: Answer) -> list[str]:
    """Return the certified probabilities and quantiles that were asked for, one line per budget and question."""
    digits = digits_for(certificate)
    lines = []
    norm = certificate.asked.get("norm", {"budgets": ()})
    for given, budget, low in zip(norm["budgets"], certificate.budgets, certificate.lower, strict=False):
        said = f"{norm['name']} budget {exact(given)}: an l2 budget of {float(budget):.6g} includes it"
        lines.append(f"{said}, so the mean is at least {down(low, digits)}")
    for row in certificate.asked.get("probabilities", ()):
        for budget, low, high in zip(certificate.budgets, row["lower"], row["upper"], strict=True):
            said = f"P(return >= {exact(row['at_least'])}) is at least {down(low, 4)} and at most {up(high, 4)}"
            lines.append(f"budget {exact(budget)}: {said}")
    for row in certificate.asked.get("quantiles", ()):
        for budget, low, high in zip(certificate.budgets, row["lower"], row["upper"], strict=True):
            most = "" if high is None else f" and at most {up(high, digits)}"
            lines.append(
                f"budget {exact(budget)}: the {exact(row['q'])}-quantile is at least {down(low, digits)}{most}"
            )
    return [*lines, ""] if lines else []


def _method(certificate: Stated) -> str:
    choice, pilot = certificate.choice or {}, (certificate.choice or {}).get("pilot")
    if choice.get("stopped"):
        return f"valid at every stopping time ({choice['stopped']})"
    if choice.get("method"):
        looked = f"on the first {pilot:,} episodes" if isinstance(pilot, int) and pilot else "without a pilot"
        return f"method auto ({choice['method']}, chosen {looked})"
    return f"method {certificate.method}"


def notes(certificate: Stated, blind: Floor | None) -> list[str]:
    """Return what a reader must know beside the table."""
    digits = digits_for(certificate)
    error = "" if certificate.estimate_sem is None else f" ± {certificate.estimate_sem:.{digits}f}"
    lines = [
        f"Without an attack the mean {return_of(certificate.facts)} is about {certificate.estimate:.{digits}f}{error} "
        "(an estimate with its standard error, not a bound).",
        f"{certificate.episodes:,} episodes, {noise_of(certificate.sigma, certificate.facts)}, {_method(certificate)}; "
        f"all lower limits hold at once with {percent(certificate.confidence)} confidence"
        + ("." if certificate.upper is None else ", and so do all upper limits."),
    ]
    if blind is not None:
        below = [b for b, low in zip(certificate.budgets, certificate.lower, strict=True) if low < blind.mean]
        line = f"A policy that sees nothing ({blind.what}) reaches {blind.mean:.{digits}f} under any attack"
        lines.append(line + (f": from budget {exact(min(below))} on, the certificate says no more." if below else "."))
    return lines
