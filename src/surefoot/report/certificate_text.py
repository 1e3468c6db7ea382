"""A certificate in words: one sentence, a table, and what a reader must know next to it, in lines of 78 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from surefoot.episodes import Baseline
from surefoot.errors import InputError
from surefoot.proof.certificate import Certificate
from surefoot.proof.rounding import decimals, exact, format_budget, format_estimate, format_lower, format_upper, percent

if TYPE_CHECKING:
    from pandas import DataFrame

COLUMNS = 78
_REASONS = {
    "proved": "stopped early: requirement proved",
    "refuted": "stopped early: requirement refuted",
    "close enough": "stopped early: within the tolerance",
    "stopped by hand": "interrupted",
    "all played": "all planned episodes",
}


def describe(certificate: Certificate, baseline: Baseline | None = None, required: float | None = None) -> str:
    """Return the whole certificate as text.

    Args:
        certificate: What to describe.
        baseline: Open-loop baseline to compare with; bounds below it are marked.
        required: Budget of a requirement, which the sentence is then about.
    """
    first = "attack budget" if norm_of(certificate) == "l2" else f"{norm_of(certificate)} budget"
    table = [(first, "lower bound", "upper bound"), *bound_rows(certificate)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
    said = [*requested_lines(certificate), *notes(certificate)]
    below = [] if baseline is None else _below(certificate, baseline)
    if baseline is not None and below:
        marked = len(table) - len(below)
        lines[marked:] = [f"{line}  *" for line in lines[marked:]]
        lines.append(below_note(certificate, baseline))
    elif baseline is not None:
        said.append(baseline_note(certificate, baseline))
    return "\n\n".join(
        [_wrapped(headline(certificate, required, baseline)), "\n".join(lines), "\n".join(map(_wrapped, said))]
    )


def as_html(certificate: Certificate) -> str:
    """Return the whole certificate for a notebook: the sentence, the table, the notes."""
    cells = [("budget", "lower bound", "upper bound"), *bound_rows(certificate)]
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in cells)
    said = [headline(certificate), *requested_lines(certificate), *notes(certificate)]
    first, *others = (f"<p>{escape(line)}</p>" for line in said)
    return f"{first}<table>{rows}</table>{''.join(others)}"


def describe_briefly(certificate: Certificate) -> str:
    """Return a few lines for an interactive session."""
    agent = certificate.metadata.get("agent") or certificate.metadata.get("task") or "given returns"
    rows = bound_rows(certificate)
    shown = rows if len(rows) <= 3 else [rows[0], rows[len(rows) // 2], rows[-1]]
    bounds = "".join(f"\n  budget {budget}: {low} to {high}" for budget, low, high in shown)
    return (
        f"<{type(certificate).__name__} of {agent}: {noise_words(certificate)}, {certificate.n_episodes:,} episodes,"
        f"\n  method {certificate.method}, {percent(certificate.confidence)} confidence, {len(rows)} budgets{bounds}>"
    )


def as_frame(certificate: Certificate) -> DataFrame:
    """Return the budgets, in the norm they were asked for, and their bounds as a table of pandas."""
    try:
        from pandas import DataFrame
    except ImportError as error:
        raise InputError("to_frame() needs pandas: pip install pandas") from error
    columns = {"budget": asked_budgets(certificate), "lower": certificate.lower.tolist()}
    return DataFrame(columns | {"upper": None if certificate.upper is None else certificate.upper.tolist()})


def headline_index(certificate: Certificate, required: float | None = None, baseline: Baseline | None = None) -> int:
    """Return which budget the sentence is about.

    It is the required one, or that of a stopping rule. Otherwise it is the largest at which the lower bound is above
    the open-loop baseline; if there is none, above half of what the agent has without attack (from the floor up); if
    there is none either, the budget with the highest bound. So it is never a vacuous one where another is not.
    """
    asked = asked_budgets(certificate)
    for wanted in (required, (certificate.method_selection or {}).get("budget")):
        if wanted is not None and wanted in asked:
            return asked.index(float(wanted))
    half = (certificate.floor + certificate.estimate) / 2
    for least in (half,) if baseline is None else (baseline.mean, half):
        above = (certificate.lower > least).nonzero()[0].tolist()
        if above:
            return int(max(above, key=certificate.budgets.__getitem__))
    return int(certificate.lower.argmax())


def headline(certificate: Certificate, required: float | None = None, baseline: Baseline | None = None) -> str:
    """Return the certificate in one sentence, at the budget that ``headline_index`` names."""
    index, name = headline_index(certificate, required, baseline), norm_of(certificate)
    lower = format_lower(certificate.lower[index], digits_for(certificate))
    best = "" if certificate.ceiling is None else f" (maximum {exact(certificate.ceiling)})"
    return (
        f"With {percent(certificate.confidence)} confidence, the expected {_return(certificate)}{certificate.per} of "
        f"the smoothed agent is at least {lower}{best} under any observation attack{_where(certificate)} with "
        f"{'' if name == 'l2' else f'{name} '}budget {budget_texts(certificate)[index]} "
        f"({certificate.scope.format(norm=name)}){assumption(certificate)}."
    )


def assumption(certificate: Certificate) -> str:
    """Return what the bounds assume because the user stated it, as the end of a sentence; empty if nothing."""
    stated = certificate.metadata.get("stated_by_user") or ()
    assumed = [assumed_returns(stated, certificate.floor, certificate.ceiling)]
    rewards = getattr(certificate, "reward_range", None)  # of certificates against a budget per step
    if "rewards" in stated and rewards is not None:
        assumed.append(f"every reward is between {exact(rewards[0])} and {exact(rewards[1])}")
    said = " and ".join(filter(None, assumed))
    return f", assuming that {said} (stated by the user, not proved)" if said else ""


def assumed_returns(stated: Collection[str], floor: float, ceiling: float | None) -> str:
    """Return which returns are assumed not to occur because the user stated floor or ceiling; empty if none."""
    beyond = [f"below {exact(floor)}"] if "floor" in stated else []
    if "ceiling" in stated and ceiling is not None:
        beyond.append(f"above {exact(ceiling)}")
    return f"no return is {' or '.join(beyond)}" if beyond else ""


def _where(certificate: Certificate) -> str:
    """Return what of an observation may be attacked, where that is not all of it."""
    features = certificate.metadata.get("features") or ()
    noisy = sum(sigma > 0 for sigma in features)
    return f" on the {noisy:,} of {len(features):,} features that have noise" if noisy < len(features) else ""


def digits_for(certificate: Certificate) -> int:
    """Return decimals that show a thousandth of the range, at least two."""
    return decimals(certificate.floor, certificate.ceiling, certificate.estimate)


def norm_of(certificate: Certificate) -> str:
    """Return the norm in which the budgets were asked for."""
    return str(certificate.requested.get("norm", {}).get("name", "l2"))


def budget_texts(certificate: Certificate) -> list[str]:
    """Return each budget as text, in the norm that was asked for."""
    return [format_budget(budget) for budget in asked_budgets(certificate)]


def asked_budgets(certificate: Certificate) -> list[float]:
    """Return the budgets in the norm that they were asked for."""
    norm = certificate.requested.get("norm")
    return certificate.budgets.tolist() if norm is None else [float(budget) for budget in norm["budgets"]]


def bound_rows(certificate: Certificate) -> list[tuple[str, str, str]]:
    """Return budget, certified lower and certified upper bound as text, smallest budget first."""
    digits = digits_for(certificate)
    lower = [format_lower(value, digits) for value in certificate.lower]
    upper = ["unknown"] * len(lower)
    if certificate.upper is not None:
        upper = [format_upper(value, digits) for value in certificate.upper]
    rows = list(zip(budget_texts(certificate), lower, upper, strict=True))
    return [rows[index] for index in _ascending(certificate)]


def notes(certificate: Certificate) -> list[str]:
    """Return what a reader must know next to the table."""
    mean = format_estimate(certificate.estimate, certificate.estimate_sem, digits_for(certificate))
    meaning = "estimate" if certificate.estimate_sem is None else "estimate ± standard error"
    return [
        f"Mean {_return(certificate)} without attack: {mean} ({meaning})",
        f"{certificate.n_episodes:,} episodes, {noise_words(certificate)}, {_method(certificate)}",
        *(["The policy draws random actions of its own."] if certificate.metadata.get("stochastic") else []),
        f"All lower bounds hold simultaneously ({percent(certificate.confidence)} confidence)"
        + ("." if certificate.upper is None else "; so do all upper bounds."),
    ]


def below_note(certificate: Certificate, baseline: Baseline) -> str:
    """Return the footnote of a table whose rows below the open-loop baseline are marked."""
    return f"* below the open-loop baseline of {_mean(baseline, certificate)} (an estimate): uninformative"


def baseline_note(certificate: Certificate, baseline: Baseline) -> str:
    """Return the open-loop baseline, and from which budget on it is above what is certified."""
    below = _below(certificate, baseline)
    return f"Open-loop baseline: {_mean(baseline, certificate)} under any observation attack ({baseline.what})." + (
        f" At budgets of {below[0]} and above the lower bound is below this baseline and the certificate is "
        "uninformative."
        if below
        else ""
    )


def requested_lines(certificate: Certificate) -> Iterator[str]:
    """Yield what was asked for in addition to the means: another norm, probabilities, quantiles."""
    digits, budgets = digits_for(certificate), budget_texts(certificate)
    norm = certificate.requested.get("norm")
    if norm is not None:
        yield f"Perturbations with {norm['name']} norm b have an l2 norm of at most {norm['factor']:.6g} b."
    for row in certificate.requested.get("probabilities", ()):
        for budget, low, high in zip(budgets, row["lower"], row["upper"], strict=True):
            at_most = f" and at most {format_upper(high, 4)}"
            said = f"P(return >= {exact(row['at_least'])}) is at least {format_lower(low, 4)}{at_most}"
            yield f"budget {budget}: {said}"
    for row in certificate.requested.get("quantiles", ()):
        for budget, low, high in zip(budgets, row["lower"], row["upper"], strict=True):
            at_most = "" if high is None else f" and at most {format_upper(high, digits)}"
            yield f"budget {budget}: the {exact(row['q'])}-quantile is at least {format_lower(low, digits)}{at_most}"


def noise_words(certificate: Certificate) -> str:
    """Return the noise in words; where it differs from feature to feature, with the unit of the budgets."""
    features = certificate.metadata.get("features")
    if features is None:
        return f"sigma {exact(certificate.sigma)}"
    unit = f"perturbations are divided by sigma / {exact(certificate.sigma)}{_untouched(features)}"
    return f"sigma {_listed(features)} by feature ({unit})"


def statement(certificate: Certificate) -> str:
    """Return the sentence of the certificate's file."""
    least, noise = exact(certificate.sigma), exact(certificate.sigma)
    features = certificate.metadata.get("features")
    if features is not None:
        noise = (
            f"{_listed(features)} by feature; perturbations are divided by sigma / {least} before their norm is taken, "
            f"so that a plain norm of the budget is covered too{_untouched(features)}"
        )
    steps = "" if certificate.max_steps is None else f"; episodes of at most {certificate.max_steps} steps"
    steps += "; the policy draws random actions of its own" if certificate.metadata.get("stochastic") else ""
    bounded = certificate.upper is not None
    return (
        f"Under every attack {certificate.attack_clause}, the expected {_return(certificate)}{certificate.per} of the "
        f"smoothed agent (noise sigma {noise}{steps}) is at least lower[i]"
        + (" and at most upper[i]" if bounded else "")
        + f"{assumption(certificate)}. With confidence {exact(certificate.confidence)} all lower bounds hold "
        + "simultaneously, for all budgets"
        + (f", and so do all upper bounds{certificate.joint_clause}." if bounded else ".")
    )


def _untouched(features: Sequence[float]) -> str:
    """Return what is assumed of features without noise."""
    count = sum(sigma == 0 for sigma in features)
    return f"; features without noise ({count} of {len(features)}) are taken not to be perturbed" if count else ""


def _listed(features: Sequence[float]) -> str:
    return ", ".join(exact(one) for one in features[:8]) + (", ..." if len(features) > 8 else "")


def _return(certificate: Certificate) -> str:
    discount = certificate.metadata.get("discount")
    return "return" if discount is None else f"discounted return (gamma {exact(discount)})"


def _method(certificate: Certificate) -> str:
    selection = certificate.method_selection or {}
    if selection.get("stopped"):
        reason = str(selection["stopped"])
        return f"method sequential (anytime-valid; {_REASONS.get(reason, reason)})"
    if selection.get("method"):
        pilot = selection.get("pilot")
        looked = f"selected on {pilot:,} episodes" if isinstance(pilot, int) and pilot else "without pilot episodes"
        return f"method auto ({selection['method']}, {looked})"
    return f"method {certificate.method}"


def _below(certificate: Certificate, baseline: Baseline) -> list[str]:
    """Return the budgets, ascending, at which the lower bound is below the baseline."""
    texts = budget_texts(certificate)
    return [texts[index] for index in _ascending(certificate) if certificate.lower[index] < baseline.mean]


def _mean(baseline: Baseline, certificate: Certificate) -> str:
    return format_estimate(baseline.mean, baseline.sem, digits_for(certificate))


def _ascending(certificate: Certificate) -> list[int]:
    return sorted(range(certificate.budgets.size), key=certificate.budgets.tolist().__getitem__)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, COLUMNS, break_long_words=False, break_on_hyphens=False)
