"""The sentences of a page: what is proved, what was measured, and how to read both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from surefoot.errors import InputError
from surefoot.proof.episode_budget import EpisodeCertificate
from surefoot.proof.rounding import format_budget, format_estimate, format_exact, format_lower
from surefoot.report.budget_words import explain_budget
from surefoot.report.certificate_text import asked_budgets, headline, norm_of
from surefoot.report.charts import Group
from surefoot.report.comparison_text import NOT_ALGORITHMS
from surefoot.report.finished_run import CHANNELS, FinishedRun, scope_words

IDLE_SHARE = 0.01  # of the budget: an attack that used less did not attack
ATTACK_HEADS = ("attack budget", "mean ± standard error", "lambda", "mean budget used")


def title_of(groups: Sequence[Group]) -> str:
    """Return the title of the page."""
    runs = _all_runs(groups)
    certified = certified_runs(groups)
    if len(certified) > 1:
        return f"{len(certified)} certificates compared"
    if certified and certified[0].identity.get("agent"):
        return f"{certified[0].identity['agent']} certified"
    agents = {str(run.identity["agent"]) for run in runs if run.identity.get("agent")}
    if len(agents) == 1:
        return f"{agents.pop()} under attack"
    if certified:
        return "Certificate"
    return f"{len(runs)} attacks"


def opening_sentences(groups: Sequence[Group]) -> list[str]:
    """Return the sentences at the top: first what is proved, then what was measured."""
    proved = []
    for run in certified_runs(groups):
        proved.append(headline(run.proved, run.required, run.baseline))
    if len(proved) > 1:
        # A reader who picks the best of several certificates relies on all of them.
        proved = [
            *filter(None, map(side_by_side, groups)),
            f"Each of the {len(proved)} certificates holds with its own confidence. If you rely on several of them, "
            "their error probabilities add up.",
        ]
        if len({run.identity.get("agent_sha256") for run in certified_runs(groups)}) > 1:
            proved.append(NOT_ALGORITHMS)
    measured = []
    for group in groups:
        for entry in group.attacked:
            measured.append(attack_sentence(entry.run))
        measured += [between_sentence(entry.run, group) for entry in group.certified]
    return [sentence for sentence in (*proved, *measured) if sentence]


def side_by_side(group: Group) -> str:
    """Return what several certificates of one task say at one budget, the highest bound first.

    The budget is that of a headline, the largest that all of them have; empty where they have none in common.
    """
    entries = group.certified
    if len(entries) < 2:
        return ""
    asked = [asked_budgets(entry.run.proved) for entry in entries]
    common = set.intersection(*map(set, asked))
    headlined = {budgets[entry.run.headline_index] for entry, budgets in zip(entries, asked, strict=True)} & common
    if not headlined:
        return ""
    budget = max(headlined)
    bounds = []
    for entry, budgets in zip(entries, asked, strict=True):
        bounds.append((float(entry.run.proved.lower[budgets.index(budget)]), entry))
    bounds.sort(key=lambda bound: -bound[0])
    said = [f"{entry.label} at least {format_lower(lower, entry.run.digits)}" for lower, entry in bounds]
    return f"Certified at budget {format_budget(budget)}: {', '.join(said)}."


def between_sentence(certified: FinishedRun, group: Group) -> str:
    """Return between which numbers the mean under the worst attack is, at the largest budget that has both.

    Empty where no attack on the same agent has a budget of the certificate.
    """
    proved = certified.proved
    if proved.kind is not None:
        return ""
    found = []
    for entry in group.attacked:
        attack = entry.run.measured
        if certified.matches(entry.run):
            found += list(zip(attack["budgets"], attack["curve"], attack["curve_sem"], strict=True))
    listed = [float(budget) for budget in proved.budgets]
    common = [one for one in found if one[0] in listed]
    if not common:
        return ""
    budget = max(one[0] for one in common)
    mean, sem = min((mean, sem) for at, mean, sem in common if at == budget)
    lower = float(proved.lower[listed.index(budget)])
    return (
        f"Under the worst attack with budget {format_exact(budget)} the expected return is between "
        f"{format_lower(lower, certified.digits)} (certified) and {format_estimate(mean, sem, certified.digits)} (the "
        "strongest attack tried)."
    )


def lead_number(groups: Sequence[Group]) -> tuple[str, str] | None:
    """Return the one number that a page is about, and of what it is; None for a page about several runs."""
    runs = _all_runs(groups)
    certified = certified_runs(groups)
    if len(certified) == 1:
        run = certified[0]
        what = "certified"
        if run.proved.ceiling is not None:
            what = f"of {format_exact(run.proved.ceiling)}, certified"
            # "-100 of 0" would say little.
            if run.proved.floor < 0:
                scale = f"{format_exact(run.proved.floor)} to {format_exact(run.proved.ceiling)}"
                what = f"on a scale from {scale}, certified"
        return f"≥ {format_lower(run.proved.lower[run.headline_index], run.digits)}", what
    if not certified and len(runs) == 1:
        mean, _, error = _strongest_attack(runs[0])[0].partition(" ± ")
        what = "mean return under the strongest attack tried"
        if error:
            what = f"± {error}, {what}"
        return mean, what
    return None


def _all_runs(groups: Sequence[Group]) -> list[FinishedRun]:
    return [run for group in groups for run in group.runs]


def certified_runs(groups: Sequence[Group]) -> list[FinishedRun]:
    """Return the runs that have a certificate."""
    return [entry.run for group in groups for entry in group.certified]


def curve_words(groups: Sequence[Group]) -> tuple[str, str]:
    """Return the title of the curves and how to read their lines and marks."""
    certified = certified_runs(groups)
    has_baseline = any(run.baseline is not None for run in _all_runs(groups))
    words = []
    title = "Measured attacks"
    if certified:
        title = "Certified bounds under attack"
        words.append("A solid line is proved, with the stated confidence, against every attacker.")
        if any(isinstance(run.proved, EpisodeCertificate) and run.proved.betting for run in certified):
            words.append(
                "Bets were made for the marked budgets: left of a mark the line is flat where what was proved for the "
                "mark is the best for smaller budgets too."
            )
    marks = "Hollow marks and the dotted line" if has_baseline else "Hollow marks"
    words.append(
        f"{marks} are measured: they show what happened, not what could happen "
        "(error bars: ±\u00a01.96 standard errors)."
    )
    if certified and has_baseline:
        words.append("Bounds in the shaded region, below the open-loop baseline, are uninformative.")
    words.append("Move over the chart, or move the slider, to read a budget.")
    return title, " ".join(words)


def budget_meanings(groups: Sequence[Group]) -> list[str]:
    """Return what the budgets of the page bound, one text per threat."""
    meanings = []
    for run in certified_runs(groups):
        meanings.append(run.proved.scope.format(norm=norm_of(run.proved)))
    for group in groups:
        for entry in group.attacked:
            meanings.append(scope_words(entry.run.identity.get("scope"), entry.run.channel))
    # Each once, in the order of the runs.
    return list(dict.fromkeys(meanings))


def budget_units(groups: Sequence[Group]) -> str:
    """Return the units of the page's budgets, those of runs with noise on observations and actions among them."""
    units = {
        "observations": "the units of the observations",
        "actions": "the units of the actions",
        "observations and actions": "standard deviations of the noise",
    }
    return " or ".join(units[channel] for channel in _channels_of(groups))


def perturbed_words(groups: Sequence[Group], noise: str) -> str:
    """Return what an attacker perturbs and where noise is added to it, as the rest of a sentence.

    Args:
        groups: The groups of the page.
        noise: "noise is", or what says whether there is any.
    """
    channels = " ".join(_channels_of(groups))
    words = []
    if "observations" in channels:
        words.append(f"observations before {noise} added and the agent receives them")
    if "actions" in channels:
        words.append(f"actions before {noise} added to them at the actuator")
    return ", and ".join(words)


def excluded_channels(groups: Sequence[Group]) -> str:
    """Return what no attacker of the page perturbs, before all else that is excluded; empty if that is nothing."""
    channels = " ".join(_channels_of(groups))
    excluded = [f"{name}, " for name in CHANNELS if name not in channels]
    return "".join(excluded)


def _channels_of(groups: Sequence[Group]) -> list[str]:
    """Return what the runs of a page are about attacks on, each once."""
    found = []
    for group in groups:
        found += [entry.run.channel for entry in (*group.certified, *group.attacked)]
    return list(dict.fromkeys(found))


def budget_examples(groups: Sequence[Group]) -> str:
    """Return what the headline's budget, or an attack's largest, is in the units of the observations."""
    run = [*groups[0].certified, *groups[0].attacked][0].run
    if run.action_sigma > 0:
        # The words are about observations.
        return ""
    # Attacks are measured with one sigma.
    sigma: Any = run.sigma
    norm, _, per_step = str(run.identity.get("scope") or "l2").partition(" ")
    if run.certificate is None:
        budget = max(run.measured["budgets"])
    else:
        budget = asked_budgets(run.certificate)[run.headline_index]
        sigma = run.certificate.metadata.get("sigma_per_feature") or sigma
        norm = norm_of(run.certificate)
        per_step = "per step" if run.certificate.kind == "per-step" else ""
    shape = None
    if run.tape is not None and "quiet_clean" in run.tape[1]:
        shape = run.tape[1]["quiet_clean"].shape[1:]
    steps = run.setup.get("max_steps")
    try:
        lines = explain_budget(
            budget,
            str(run.setup.get("environment") or ""),
            shape=shape,
            max_steps=steps if isinstance(steps, int) else None,
            sigma=sigma,
            norm=norm,
            per_step=bool(per_step),
        )
    except (InputError, TypeError, ValueError):
        # A file of others may say anything, and the page can do without this.
        return ""
    return f"Budget {format_budget(budget)} is, for example: {'; or '.join(lines)}."


def excluded_threat(groups: Sequence[Group]) -> str:
    """Return the threat that a page about whole episodes must exclude; empty where a budget per step is certified."""
    if any(run.proved.kind == "per-step" for run in certified_runs(groups)):
        return ""
    return ", or with a budget for each single step"


# --- attacks ----------------------------------------------------------------------------------------------------------


def attack_sentence(run: FinishedRun) -> str:
    """Return what the strongest attack of a run measured, in one sentence."""
    attack = run.measured
    mean, worst = _strongest_attack(run)
    noise = "undefended (sigma = 0)"
    if run.sigma > 0 or run.action_sigma > 0:
        noise = f"smoothed with {run.noise}"
    return (
        f"Under the strongest attack tried (method {attack.get('method')}, "
        f"budget {format_exact(attack['budgets'][worst])}), "
        f"{attack.get('agent')}, {noise}, had a mean return of {mean} over {attack['n_episodes']:,} episodes: a "
        "measurement, not a bound."
    )


def _strongest_attack(run: FinishedRun) -> tuple[str, int]:
    """Return the lowest mean under attack as text, and which budget it belongs to."""
    curve = run.measured["curve"]
    budgets = run.measured["budgets"]
    # Of equally low means the one with the larger budget says more.
    worst = min(range(len(curve)), key=lambda number: (curve[number], -budgets[number]))
    return format_estimate(curve[worst], run.measured["curve_sem"][worst], run.digits), worst


def attack_rows(run: FinishedRun) -> list[Sequence[str]]:
    """Return the strongest attack at each budget as rows of text below ``ATTACK_HEADS``."""
    attack = run.measured
    rows: list[Sequence[str]] = []
    for index, used in enumerate(budget_used(attack)):
        budget = format_budget(attack["budgets"][index])
        mean = format_estimate(attack["curve"][index], attack["curve_sem"][index], run.digits)
        lambda_ = attack["curve_lambda"][index]
        lambda_text = "none" if lambda_ is None else format_exact(lambda_)
        usage = "did not attack" if used < IDLE_SHARE else f"{used:.0%}"
        rows.append((budget, mean, lambda_text, usage))
    return rows


def budget_used(attack: Mapping[str, Any]) -> list[float]:
    """Return the mean share of its budget that the strongest attack at each budget used; 1 for a budget of 0."""
    shares = []
    for index, budget in enumerate(attack["budgets"]):
        # Files that do not say how much was used count as if all of it was: nothing is called idle without evidence.
        share = 1.0
        if "mean_budget_used" in attack and budget > 0:
            best = attack["lambdas"].index(attack["curve_lambda"][index])
            share = attack["mean_budget_used"][index][best] / budget
        shares.append(share)
    return shares


def attack_notes(attack: Mapping[str, Any]) -> list[str]:
    """Return the warnings about an attack that hardly attacked, and what to try."""
    notes = []
    # A row for every budget, in it a value for every lambda.
    idle: list[bool] = []
    shown_idle = False
    for row, chosen in zip(attack["did_not_attack"], attack["curve_lambda"], strict=False):
        idle += row
        shown_idle |= row[attack["lambdas"].index(chosen)]
    if shown_idle:
        notes.append("* did not attack: used less than 1% of its budget.")
    # Two digits, without an exponent.
    invisible = float(f"{attack['invisible_loss']:.2g}")
    notes.append(
        f"With {attack['n_episodes']:,} episodes a mean loss below {invisible:,g} is invisible: an "
        "attack that takes all of the return, but so rarely, may change none of them."
    )
    largest = attack["budgets"].index(max(attack["budgets"]))
    worst = attack["lambdas"].index(attack["curve_lambda"][largest])
    # Of the same episodes with and without attack, so that an agent which lost everything at every budget counts.
    is_harmless = attack["loss"][largest][worst] <= 2 * attack["loss_sem"][largest][worst]
    if is_harmless or (attack["did_not_attack"] and all(idle)):
        untried = []
        if attack["method"] not in ("learned", "strongest"):
            untried.append("method='strongest'")
        if not {0.0, None} & set(attack["lambdas"]):
            untried.append("lambda 0")
        untried.append("or larger budgets" if untried else "larger budgets")
        notes.append(
            "Warning: the mean return under attack is not significantly lower than without. This does not show that "
            f"the agent is robust; try {', '.join(untried)}."
        )
    return notes
