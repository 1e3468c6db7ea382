"""The sentences of a page: what is proved, what was measured, and how to read both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from surefoot.errors import InputError
from surefoot.proof.rounding import exact, format_budget, format_estimate, format_lower
from surefoot.report.budget_words import explain_budget
from surefoot.report.certificate_text import asked_budgets, digits_for, headline, norm_of
from surefoot.report.charts import ATTACK_SCOPE, Group, digits_of
from surefoot.report.finished_run import FinishedRun

IDLE = 0.01  # of the budget: an attack that used less did not attack


def title_of(groups: Sequence[Group]) -> str:
    """Return the title of the page."""
    runs = [run for group in groups for run in group.runs]
    certified = [run for run in runs if run.certificate is not None]
    agents = list(dict.fromkeys(str(run.identity["agent"]) for run in runs if run.identity.get("agent")))
    if len(certified) > 1:
        return f"{len(certified)} certificates compared"
    if certified and certified[0].identity.get("agent"):
        return f"{certified[0].identity['agent']} certified"
    if len(agents) == 1:
        return f"{agents[0]} under attack"
    return "Certificate" if certified else f"{len(runs)} attacks"


def opening_sentences(groups: Sequence[Group]) -> list[str]:
    """Return the sentences at the top: first what is proved, then what was measured."""
    certified = [run for group in groups for run, _, _ in group.certified]
    proved = [headline(run.certificate, run.required, run.baseline) for run in certified if run.certificate is not None]
    measured = [attack_sentence(run) for group in groups for run, _, _ in group.attacked]
    if len(proved) > 1:
        proved = [
            f"Each of the {len(proved)} certificates holds with its own confidence. If you rely on several of them, "
            "their error probabilities add up."
        ]
    return [*proved, *measured]


def lead_number(groups: Sequence[Group]) -> tuple[str, str] | None:
    """Return the one number that a page is about, and of what it is; None for a page about several runs."""
    runs = [run for group in groups for run in group.runs]
    certified = [run for run in runs if run.certificate is not None]
    if len(certified) == 1 and certified[0].certificate is not None:
        stated = certified[0].certificate
        lower = format_lower(stated.lower[certified[0].headline_index], digits_for(stated))
        return f"≥ {lower}", "certified" if stated.ceiling is None else f"of {exact(stated.ceiling)}, certified"
    if not certified and len(runs) == 1:
        mean, _, error = _lowest(runs[0])[0].partition(" ± ")
        return mean, f"{f'± {error}, ' if error else ''}mean return under the strongest attack tried"
    return None


def curve_words(groups: Sequence[Group]) -> tuple[str, str]:
    """Return the title of the curves and how to read their lines and marks."""
    proved = any(group.certified for group in groups)
    baseline = any(run.baseline is not None for group in groups for run in group.runs)
    measured = "Hollow marks" + (" and the dotted line" if baseline else "")
    explained = (
        f"{measured} are measured: they show what happened, not what could happen "
        "(error bars: ±\u00a01.96 standard errors)."
    )
    solid = "A solid line is proved, with the stated confidence, against every attacker. " if proved else ""
    shaded = " Bounds in the shaded region, below the open-loop baseline, are uninformative." if proved else ""
    title = "Certified bounds under attack" if proved else "Measured attacks"
    below = shaded if baseline else ""
    return title, f"{solid}{explained}{below} Move over the chart, or move the slider, to read a budget."


def budget_meanings(groups: Sequence[Group]) -> list[str]:
    """Return what the budgets of the page bound, one text per threat."""
    certificates = [run.certificate for group in groups for run, _, _ in group.certified]
    stated = [one.scope.format(norm=norm_of(one)) for one in certificates if one is not None]
    attacks = [ATTACK_SCOPE for group in groups if group.attacked]
    return list(dict.fromkeys([*stated, *attacks]))


def budget_examples(groups: Sequence[Group]) -> str:
    """Return what the headline's budget, or an attack's largest, is in the units of the observations."""
    (run, _, _), *_ = [*groups[0].certified, *groups[0].attacked]
    stated, steps, tape = run.certificate, run.setup.get("limit"), run.tape
    budget = max((run.attack or {})["budgets"]) if stated is None else asked_budgets(stated)[run.headline_index]
    try:
        lines = explain_budget(
            budget,
            str(run.setup.get("environment") or ""),
            shape=None if tape is None or "quiet_clean" not in tape[1] else tape[1]["quiet_clean"].shape[1:],
            max_steps=steps if isinstance(steps, int) else None,
            sigma=(stated.metadata.get("features") if stated is not None else None) or run.sigma,
            norm="l2" if stated is None else norm_of(stated),
            per_step=stated is not None and stated.kind == "per-step",
        )
    except (InputError, TypeError, ValueError):  # a file of others may say anything; the page can do without this
        return ""
    return f"Budget {format_budget(budget)} is, for example: {'; or '.join(lines)}."


def excluded_threat(groups: Sequence[Group]) -> str:
    """Return the threat that a page about whole episodes must exclude; empty where a budget per step is certified."""
    kinds = {run.certificate.kind for group in groups for run, _, _ in group.certified if run.certificate is not None}
    return "" if "per-step" in kinds else ", or with a budget for each single step"


def attack_sentence(run: FinishedRun) -> str:
    """Return what the strongest attack of a run measured, in one sentence."""
    assert run.attack is not None
    attack = run.attack
    mean, worst = _lowest(run)
    noise = f"smoothed with sigma {exact(run.sigma)}" if run.sigma > 0 else "undefended (sigma = 0)"
    return (
        f"Under the strongest attack tried (method {attack.get('method')}, budget {exact(attack['budgets'][worst])}), "
        f"{attack.get('agent')}, {noise}, had a mean return of {mean} over {attack['episodes']:,} episodes: a "
        "measurement, not a bound."
    )


def _lowest(run: FinishedRun) -> tuple[str, int]:
    """Return the lowest mean under attack as text, and which budget it belongs to."""
    assert run.attack is not None
    curve, budgets = run.attack["curve"], run.attack["budgets"]
    # Of equally low means the one with the larger budget says more.
    worst = min(range(len(curve)), key=lambda number: (curve[number], -budgets[number]))
    return format_estimate(curve[worst], run.attack["curve_sem"][worst], digits_of(run)), worst


def budget_used(attack: Mapping[str, Any]) -> list[float]:
    """Return the mean share of its budget that the strongest attack at each budget used; 1 for a budget of 0."""
    if "mean_spent" not in attack:
        return [1.0] * len(attack["budgets"])
    best = [attack["lambdas"].index(lambda_) for lambda_ in attack["curve_lambda"]]
    used = [row[column] for row, column in zip(attack["mean_spent"], best, strict=True)]
    return [1.0 if budget == 0 else one / budget for budget, one in zip(attack["budgets"], used, strict=True)]


def attack_notes(attack: Mapping[str, Any]) -> list[str]:
    """Return the warnings about an attack that hardly attacked, and what to try."""
    notes = []
    if any(any(row) for row in attack["did_not_attack"]):
        notes.append("* did not attack: used less than 1% of its budget.")
    curve, sem, budgets = attack["curve"], attack["curve_sem"], attack["budgets"]
    first, last = budgets.index(min(budgets)), budgets.index(max(budgets))
    # Two standard errors of the difference of two independent means.
    flat = len(budgets) > 1 and curve[last] >= curve[first] - 2 * math.hypot(sem[last], sem[first])
    if flat or (attack["did_not_attack"] and all(all(row) for row in attack["did_not_attack"])):
        untried = ["method='adaptive'"] if attack["method"] != "adaptive" else []
        untried += ["lambda 0"] if not {0.0, None} & set(attack["lambdas"]) else []
        notes.append(
            "Warning: the mean return does not fall significantly with the budget. This does not show that the agent is robust; try "
            f"{', '.join([*untried, 'or larger budgets' if untried else 'larger budgets'])}."
        )
    return notes
