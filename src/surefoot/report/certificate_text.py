"""A certificate in words and as a table; every bound is rounded conservatively."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from surefoot.episodes import Baseline
from surefoot.errors import InputError
from surefoot.proof.certificate import Certificate
from surefoot.proof.rounding import (
    count_decimals,
    format_budget,
    format_estimate,
    format_exact,
    format_lower,
    format_noise,
    format_percent,
    format_upper,
)
from surefoot.provenance import install_command
from surefoot.report.offsets import HeldBudget, named_features, noisy_parts, step_seconds_of, unit_of_budgets

if TYPE_CHECKING:
    from pandas import DataFrame

TEXT_WIDTH = 78
_MOST_SIGMAS = 8  # that are listed; the others are in the file
ACTUATOR_NOTE = (
    "The noise of an action must be added behind the attacker, at the actuator: an agent that sends noisy commands "
    "over an attacked wire is not covered."
)
# What an attack is called, by what it perturbs.
_ATTACK_NAMES = {
    "observations": "observation attack",
    "actions": "action attack",
    "observations and actions": "attack on observations and actions",
}
_REASONS = {
    "proved": "stopped early: requirement proved",
    "refuted": "stopped early: requirement refuted",
    "close enough": "stopped early: within the tolerance",
    "stopped by hand": "interrupted",
    "all played": "all planned episodes",
}


# --- the whole certificate --------------------------------------------------------------------------------------------


def describe(certificate: Certificate, baseline: Baseline | None = None, required: float | None = None) -> str:
    """Return the whole certificate as text.

    Args:
        baseline: Open-loop baseline to compare with; bounds below it are marked.
        required: Budget of a requirement, which the sentence is then about.
    """
    table = bounds_table(certificate, baseline)
    # As wide as the headings, or as the longest number below them.
    budgets, lower, upper = zip(table.heads, *table.cells, strict=True)
    widths = (max(map(len, budgets)), max(map(len, lower)), max(map(len, upper)))
    lines = ["  ".join(map(str.rjust, table.heads, widths))]
    for row in table.rows:
        line = "  ".join(map(str.rjust, row.cells, widths))
        if row.uninformative:
            line += "  *"
        lines.append(line)
    remarks = [*requested_lines(certificate), *notes(certificate)]
    if table.any_uninformative:
        lines.append(table.note)
    elif table.note:
        remarks.append(table.note)
    sentence = _wrap(headline(certificate, required, baseline))
    parts = [sentence, "\n".join(lines)]
    index = headline_index(certificate, required, baseline)
    held = offsets_of(certificate, index)
    if held is not None:
        covered = f"Budget {budget_texts(certificate)[index]} covers, among all others, an offset of up to:"
        parts.append("\n".join([covered, *held.lines()]))
    return "\n\n".join([*parts, "\n".join(map(_wrap, remarks))])


def describe_briefly(certificate: Certificate) -> str:
    """Return a few lines for an interactive session."""
    agent = certificate.metadata.get("agent") or certificate.metadata.get("task") or "given returns"
    rows = bounds_table(certificate).rows
    shown = rows
    # The first, the middle and the last show how the bound falls.
    if len(rows) > 3:
        shown = [rows[0], rows[len(rows) // 2], rows[-1]]
    bounds = "".join(f"\n  budget {row.budget}: {row.lower} to {row.upper}" for row in shown)
    return (
        f"<{type(certificate).__name__} of {agent}: {describe_noise(certificate)}, {certificate.n_episodes:,} episodes,"
        f"\n  method {certificate.method}, {format_percent(certificate.confidence)} confidence, "
        f"{len(rows)} budgets{bounds}>"
    )


def as_html(certificate: Certificate) -> str:
    """Return the whole certificate for a notebook: the sentence, the table, the notes."""
    table = bounds_table(certificate)
    lines = []
    for row in (("budget", *table.heads[1:]), *table.cells):
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in row)
        lines.append(f"<tr>{cells}</tr>")
    sentence = f"<p>{escape(headline(certificate))}</p>"
    remarks = ""
    for line in (*requested_lines(certificate), *notes(certificate)):
        remarks += f"<p>{escape(line)}</p>"
    return f"{sentence}<table>{''.join(lines)}</table>{remarks}"


def as_frame(certificate: Certificate) -> DataFrame:
    """Return the budgets, in the norm they were asked for, and their bounds as a table of pandas."""
    try:
        from pandas import DataFrame
    except ImportError as error:
        raise InputError(f"to_frame() needs pandas; install it with: {install_command('frames')}") from error
    upper = None if certificate.upper is None else certificate.upper.tolist()
    return DataFrame({"budget": asked_budgets(certificate), "lower": certificate.lower.tolist(), "upper": upper})


def in_units(certificate: Certificate, raw_unit: float) -> Certificate:
    """Return a certificate in units of an agent's statistics, to be shown: all features then have one sigma.

    Args:
        certificate: In the units of the environment, in which each feature has a sigma of its own.
        raw_unit: What one of the other units is there, of the feature with the least sigma.
    """
    metadata = dict(certificate.metadata)
    del metadata["sigma_per_feature"]
    metadata["features"] = [["one feature", len(certificate.metadata["sigma_per_feature"]), "normalized units"]]
    # Twelve digits: those that were typed come back without the error of the division.
    budgets = [float(f"{budget / raw_unit:.12g}") for budget in certificate.budgets]
    sigma = float(f"{certificate.sigma / raw_unit:.12g}")
    return replace(certificate, budgets=np.array(budgets), sigma=sigma, metadata=metadata)


# --- the table --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BoundRow:
    """One budget and its bounds."""

    l2_budget: float  # the budget in l2, which attacks are measured in
    budget: str  # the budget as text, in the norm that was asked for
    lower: str  # the lower bound as text, rounded down
    upper: str  # the upper bound as text, rounded up, or "unknown"
    uninformative: bool  # whether the lower bound is not above the open-loop baseline

    @property
    def cells(self) -> tuple[str, str, str]:
        """Budget and bounds."""
        return self.budget, self.lower, self.upper

    @property
    def marked_cells(self) -> tuple[str, str, str]:
        """Budget and bounds, the lower one with a star where it is below the baseline."""
        mark = " *" if self.uninformative else ""
        return self.budget, f"{self.lower}{mark}", self.upper


@dataclass(frozen=True)
class BoundsTable:
    """The bounds of a certificate, smallest budget first."""

    heads: tuple[str, str, str]  # headings of budget, lower and upper bound
    rows: list[BoundRow]  # a row for every budget
    # What is said about the open-loop baseline: the footnote of marked rows where there are any; empty without a
    # baseline.
    note: str

    @property
    def cells(self) -> list[tuple[str, str, str]]:
        """The rows, without marks."""
        return [row.cells for row in self.rows]

    @property
    def any_uninformative(self) -> bool:
        """Whether rows are marked."""
        return any(row.uninformative for row in self.rows)


def bounds_table(certificate: Certificate, baseline: Baseline | None = None) -> BoundsTable:
    """Return the bounds as text, those below the open-loop baseline marked."""
    digits = digits_for(certificate)
    budgets = budget_texts(certificate)
    rows = []
    for index in sorted(range(certificate.budgets.size), key=certificate.budgets.tolist().__getitem__):
        lower = float(certificate.lower[index])
        upper = "unknown"
        if certificate.upper is not None:
            upper = format_upper(certificate.upper[index], digits)
        # As it is shown: one that is above by less than a digit says as little.
        below = baseline is not None and float(format_lower(lower, digits)) <= baseline.mean
        l2_budget = float(certificate.budgets[index])
        rows.append(BoundRow(l2_budget, budgets[index], format_lower(lower, digits), upper, below))
    budget_head = "attack budget"
    unit = unit_of_budgets(certificate.metadata)
    if unit:
        budget_head += f" ({unit})"
    if norm_of(certificate) != "l2":
        budget_head = f"{norm_of(certificate)} budget"
    table = BoundsTable((budget_head, "lower bound", "upper bound"), rows, "")
    if baseline is None:
        return table
    mean = format_estimate(baseline.mean, baseline.sem, digits)
    if table.any_uninformative:
        return replace(table, note=f"* at most the open-loop baseline of {mean} (an estimate): uninformative")
    return replace(table, note=f"Open-loop baseline: {mean} under any observation attack ({baseline.what}).")


def digits_for(certificate: Certificate) -> int:
    """Return decimals that show a thousandth of the range, at least two."""
    return count_decimals(certificate.floor, certificate.ceiling, certificate.estimate)


def norm_of(certificate: Certificate) -> str:
    """Return the norm in which the budgets were asked for."""
    return str(certificate.requested.get("norm", {}).get("name", "l2"))


def asked_budgets(certificate: Certificate) -> list[float]:
    """Return the budgets in the norm that they were asked for."""
    norm = certificate.requested.get("norm")
    if norm is None:
        return list(map(float, certificate.budgets))
    return list(map(float, norm["budgets"]))


def budget_texts(certificate: Certificate) -> list[str]:
    """Return each budget as text, in the norm or as the pair that was asked for."""
    pairs = certificate.requested.get("mixed")
    if pairs is None:
        return list(map(format_budget, asked_budgets(certificate)))
    texts = []
    for pair in pairs:
        texts.append(f"obs {format_budget(pair['observations'])}, act {format_budget(pair['actions'])}")
    return texts


# --- the sentence -----------------------------------------------------------------------------------------------------


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
    levels = [(certificate.floor + certificate.estimate) / 2]
    if baseline is not None:
        levels.insert(0, baseline.mean)
    digits = digits_for(certificate)
    shown = [float(format_lower(lower, digits)) for lower in certificate.lower]
    for level in levels:
        above = [index for index, lower in enumerate(shown) if lower > level]
        if above:
            return int(max(above, key=certificate.budgets.__getitem__))
    return int(certificate.lower.argmax())


def headline(certificate: Certificate, required: float | None = None, baseline: Baseline | None = None) -> str:
    """Return the certificate in one sentence, at the budget that ``headline_index`` names."""
    index = headline_index(certificate, required, baseline)
    norm = norm_of(certificate)
    lower = format_lower(certificate.lower[index], digits_for(certificate))
    if certificate.ceiling is not None:
        lower += f" (maximum {format_exact(certificate.ceiling)})"
    budget = f"budget {budget_texts(certificate)[index]}"
    unit = unit_of_budgets(certificate.metadata)
    if unit:
        budget += f" {unit}"
    if norm != "l2":
        budget = f"{norm} {budget}"
    scope = certificate.scope.format(norm=norm)
    if "mixed" in certificate.requested:
        scope = certificate.scope_of_pairs
    example = ""
    if _has_offsets(certificate) and certificate.budgets[index] > 0:
        example = f"; an offset of {_held_budget(certificate, index).largest()}, for example"
    return (
        f"With {format_percent(certificate.confidence)} confidence, "
        f"the {_name_mean(certificate)} "
        f"of the smoothed agent is at least {lower} under any {_ATTACK_NAMES[certificate.channel]}"
        f"{_attacked_part(certificate)} "
        f"with {budget} ({scope}{example}){assumption(certificate)}."
    )


def _has_offsets(certificate: Certificate) -> bool:
    """Return whether budgets are about whole episodes of features that have units, so that durations can be given."""
    is_plain = certificate.kind is None and certificate.channel == "observations" and norm_of(certificate) == "l2"
    return is_plain and any(feature.unit for feature in named_features(certificate.metadata))


def offsets_of(certificate: Certificate, index: int) -> HeldBudget | None:
    """Return what one of the budgets allows over time; None where features have no names."""
    if not _has_offsets(certificate) or certificate.max_steps is None or certificate.budgets[index] == 0:
        return None
    return _held_budget(certificate, index)


def _held_budget(certificate: Certificate, index: int) -> HeldBudget:
    budget = float(certificate.budgets[index])
    facts = certificate.metadata
    return HeldBudget(budget, certificate.max_steps or 1, named_features(facts), step_seconds_of(facts))


def assumption(certificate: Certificate) -> str:
    """Return what the bounds assume because the user stated it, as the end of a sentence; empty if nothing."""
    stated = certificate.metadata.get("stated_by_user") or ()
    assumed = []
    if returns := assumed_returns(stated, certificate.floor, certificate.ceiling):
        assumed.append(returns)
    # Certificates against a budget per step have a range of rewards.
    rewards = getattr(certificate, "reward_range", None)
    if "reward_range" in stated and rewards is not None:
        assumed.append(f"every reward is between {format_exact(rewards[0])} and {format_exact(rewards[1])}")
    if not assumed:
        return ""
    return f", assuming that {' and '.join(assumed)} (stated by the user, not proved)"


def assumed_returns(stated: Collection[str], floor: float, ceiling: float | None) -> str:
    """Return which returns are assumed not to occur because the user stated floor or ceiling; empty if none."""
    beyond = []
    if "floor" in stated:
        beyond.append(f"below {format_exact(floor)}")
    if "ceiling" in stated and ceiling is not None:
        beyond.append(f"above {format_exact(ceiling)}")
    if not beyond:
        return ""
    return f"no return is {' or '.join(beyond)}"


def _attacked_part(certificate: Certificate) -> str:
    """Return what of an observation may be attacked, where that is not all of it: nothing is proved about the rest."""
    features = certificate.metadata.get("sigma_per_feature") or ()
    noisy = sum(sigma > 0 for sigma in features)
    # Without a list of features all have the same noise.
    if noisy == len(features):
        return ""
    parts = noisy_parts(certificate.metadata)
    if parts is not None:
        return f" on {' and '.join(parts[0])} ({noisy:,} of {len(features):,} features)"
    return f" on the {noisy:,} of {len(features):,} features that have noise"


def _name_mean(certificate: Certificate) -> str:
    """Return what is bounded: an expected return, or where that is an event, how probable this is."""
    success = certificate.metadata.get("success")
    if success is not None and certificate.metadata.get("gamma") is None and not certificate.per:
        return f"probability of success ({success})"
    return f"expected {_name_return(certificate)}{certificate.per}"


def _name_return(certificate: Certificate) -> str:
    discount = certificate.metadata.get("gamma")
    if discount is None:
        return "return"
    return f"discounted return (gamma {format_exact(discount)})"


# --- what is next to the table ----------------------------------------------------------------------------------------


def requested_lines(certificate: Certificate) -> Iterator[str]:
    """Yield what was asked for in addition to the means: another norm, probabilities, quantiles, CVaR."""
    digits = digits_for(certificate)
    budgets = budget_texts(certificate)
    norm = certificate.requested.get("norm")
    if norm is not None:
        yield f"Perturbations with {norm['name']} norm b have an l2 norm of at most {norm['factor']:.6g} b."
    pairs = certificate.requested.get("mixed")
    if pairs is not None:
        costs = ", ".join(format_exact(float(f"{budget:.6g}")) for budget in certificate.budgets)
        yield f"Budgets on both in standard deviations, sqrt((obs/sigma)^2 + (act/action sigma)^2): {costs}."
    for row in certificate.requested.get("probabilities", ()):
        event = f"P(return >= {format_exact(row['at_least'])})"
        for budget, low, high in zip(budgets, row["lower"], row["upper"], strict=True):
            yield f"budget {budget}: {event} is at least {format_lower(low, 4)} and at most {format_upper(high, 4)}"
    named = []
    for row in certificate.requested.get("quantiles", ()):
        named.append((f"the {format_exact(row['q'])}-quantile", row))
    for row in certificate.requested.get("cvars", ()):
        named.append((f"the mean of the lowest {format_percent(row['q'])} of returns (CVaR)", row))
    for name, row in named:
        vacuous = []
        for budget, low, high in zip(budgets, row["lower"], row["upper"], strict=True):
            if low <= certificate.floor and (high is None or high == certificate.ceiling):
                vacuous.append(budget)
                continue
            line = f"budget {budget}: {name} is at least {format_lower(low, digits)}"
            if high is not None:
                line += f" and at most {format_upper(high, digits)}"
            yield line
        if vacuous:
            yield f"budget {', '.join(vacuous)}: nothing is certified about {name} but what the rules allow"


def notes(certificate: Certificate) -> list[str]:
    """Return what a reader must know next to the table."""
    mean = format_estimate(certificate.estimate, certificate.estimate_sem, digits_for(certificate))
    meaning = "estimate"
    if certificate.estimate_sem is not None:
        meaning = "estimate ± standard error"
    lines = [
        f"Mean {_name_return(certificate)} without attack: {mean} ({meaning})",
        f"{_describe_episodes(certificate)}, {describe_noise(certificate)}, {_describe_method(certificate)}",
    ]
    if certificate.metadata.get("stochastic"):
        lines.append("The policy draws random actions of its own.")
    last = f"All lower bounds hold simultaneously ({format_percent(certificate.confidence)} confidence)"
    if certificate.upper is not None:
        last += "; so do all upper bounds"
    lines.append(f"{last}.")
    bet_on = (certificate.method_selection or {}).get("budget")
    asked = asked_budgets(certificate)
    if len(asked) > 1 and bet_on in asked:
        # Two budgets may have the same bound, which would look like an error.
        which = budget_texts(certificate)[asked.index(bet_on)]
        lines.append(f"All bets were on budget {which}: the bounds at others follow from that one.")
    # The bound without attack says how small a loss so many episodes show.
    at_zero = certificate.lower[certificate.budgets == 0]
    if at_zero.size:
        smallest = max(0.0, certificate.estimate - float(at_zero[0]))
        lines.append(could_not_see(smallest, certificate.n_episodes, digits=digits_for(certificate)))
    if certificate.action_sigma > 0:
        lines.append(ACTUATOR_NOTE)
    return lines


def could_not_see(smallest: float, n_episodes: int, what: str = "a loss of mean return", digits: int = 2) -> str:
    """Return what is below the smallest loss or difference that so many episodes could have shown.

    >>> could_not_see(4.07, 100, "a difference")
    'What this run could not see: with 100 episodes a difference below 4.07 cannot be told from chance.'
    """
    return (
        f"What this run could not see: with {n_episodes:,} episodes {what} below {format_upper(smallest, digits)} "
        "cannot be told from chance."
    )


def _describe_episodes(certificate: Certificate) -> str:
    """Return how many episodes there are; those that share a seed are not independent."""
    n_draws = certificate.metadata.get("draws_per_seed") or 1
    if n_draws == 1:
        return f"{certificate.n_episodes:,} episodes"
    n_seeds = certificate.n_episodes // n_draws
    return f"{certificate.n_episodes:,} episodes ({n_draws} draws of the noise for each of {n_seeds:,} seeds)"


def describe_noise(certificate: Certificate) -> str:
    """Return the noise in words; where it differs from feature to feature, with the unit of the budgets."""
    features = certificate.metadata.get("sigma_per_feature")
    if features is None:
        return format_noise(certificate.sigma, certificate.action_sigma)
    if certificate.action_sigma > 0:
        return f"sigma {_list_sigmas(features)} by feature, sigma {format_exact(certificate.action_sigma)} on actions"
    parts = noisy_parts(certificate.metadata)
    if parts is not None and len(set(features) - {0}) == 1:
        with_noise, without = parts
        described = f"sigma {format_exact(certificate.sigma)} on {' and '.join(with_noise)}"
        if without:
            described += f" ({' and '.join(without)} without noise: taken not to be perturbed)"
        return described
    # Computed ones have 17 digits; the file has all of them.
    shown = [float(f"{sigma:.6g}") for sigma in features]
    unit = f"perturbations are divided by sigma / {certificate.sigma:.6g}{_untouched_features(features)}"
    return f"sigma {_list_sigmas(shown)} by feature ({unit})"


def _describe_method(certificate: Certificate) -> str:
    selection = certificate.method_selection or {}
    if selection.get("stopped"):
        reason = str(selection["stopped"])
        return f"method sequential (anytime-valid; {_REASONS.get(reason, reason)})"
    certain = getattr(certificate, "certain", None)
    if certain is not None:
        why = "sums of the episodes" if certain else "relative entropy, for the budget holds on average"
        return f"method {certificate.method} ({why})"
    if not selection.get("method"):
        return f"method {certificate.method}"
    how = "without pilot episodes"
    pilot = selection.get("pilot")
    if isinstance(pilot, int) and pilot:
        how = f"selected on {pilot:,} episodes"
    return f"method auto ({selection['method']}, {how})"


def _untouched_features(features: Sequence[float]) -> str:
    """Return what is assumed of features without noise."""
    count = sum(sigma == 0 for sigma in features)
    if count == 0:
        return ""
    return f"; features without noise ({count} of {len(features)}) are taken not to be perturbed"


def _list_sigmas(features: Sequence[float]) -> str:
    listed = list(map(format_exact, features[:_MOST_SIGMAS]))
    if len(features) > _MOST_SIGMAS:
        listed.append("...")
    return ", ".join(listed)


def _wrap(text: str) -> str:
    return textwrap.fill(text, TEXT_WIDTH, break_long_words=False, break_on_hyphens=False)


# --- the sentence of the file -----------------------------------------------------------------------------------------


def certificate_statement(certificate: Certificate) -> str:
    """Return the sentence of the certificate's file, about all of its budgets."""
    setting = f"noise sigma {format_exact(certificate.sigma)}"
    features = certificate.metadata.get("sigma_per_feature")
    if certificate.action_sigma > 0:
        setting = _both_noises(certificate)
    elif features is not None:
        setting = (
            f"noise sigma {_list_sigmas(features)} by feature; perturbations are divided by sigma / "
            f"{format_exact(certificate.sigma)} before their norm is taken, so that a plain norm of the budget is "
            f"covered too{_untouched_features(features)}"
        )
    if certificate.max_steps is not None:
        setting += f"; episodes of at most {certificate.max_steps} steps"
    if certificate.metadata.get("stochastic"):
        setting += "; the policy draws random actions of its own"
    at_most = ""
    upper_too = ""
    if certificate.upper is not None:
        at_most = " and at most upper[i]"
        upper_too = f", and so do all upper bounds{certificate.joint_clause}"
    return (
        f"Under every attack {certificate.attack_clause}, the expected {_name_return(certificate)}{certificate.per} of "
        f"the smoothed agent ({setting}) is at least lower[i]{at_most}{assumption(certificate)}. With confidence "
        f"{format_exact(certificate.confidence)} all lower bounds hold simultaneously, for all budgets{upper_too}."
        f"{f' {ACTUATOR_NOTE}' if certificate.action_sigma > 0 else ''}"
    )


def _both_noises(certificate: Certificate) -> str:
    """Return the noise on observations, where there is any, and on actions."""
    features = certificate.metadata.get("sigma_per_feature")
    on_actions = f"{format_exact(certificate.action_sigma)} on every action, clipped afterwards"
    if features is not None:
        return f"noise sigma {_list_sigmas(features)} by feature{_untouched_features(features)} and {on_actions}"
    if certificate.sigma > 0:
        return f"noise sigma {format_exact(certificate.sigma)} on every observation and {on_actions}"
    return f"noise sigma {on_actions}"
