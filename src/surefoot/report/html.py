"""The page's sentences and tables as HTML; every name in them is foreign text and is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from surefoot.report.charts import Group, digits_of
from surefoot.report.histograms import rows_of
from surefoot.report.sentences import digits_for, down, exact, headline, headline_budget, notes, percent, rows
from surefoot.runs.read import Published, Run

MOST_COLUMNS = 7


def title_of(groups: Sequence[Group]) -> str:
    """Return what the page is called."""
    runs = [run for group in groups for run in group.runs]
    certified = [run for run in runs if run.certificate is not None]
    agents = list(dict.fromkeys(str(run.whom["agent"]) for run in runs if run.whom.get("agent")))
    if len(certified) > 1:
        return f"{len(certified)} certificates compared"
    if certified and certified[0].whom.get("agent"):
        return f"{certified[0].whom['agent']} certified"
    if len(agents) == 1:
        return f"{agents[0]} under attack"
    return "Certificate" if certified else f"{len(runs)} attacks"


def opening(groups: Sequence[Group], clashes: Sequence[str]) -> str:
    """Return the sentences that stand at the top: first what is proved, then what was measured."""
    proved = [_sentence(run.certificate) for group in groups for run, _, _ in group.certified if run.certificate]
    measured = [_attack_sentence(run) for group in groups for run, _, _ in group.attacked]
    if len(proved) == 1:
        lead, rest = proved[0], measured
    elif proved:
        lead, rest = _comparison(len(proved)), measured
    else:
        lead, rest = measured[0], measured[1:]
    alarm = [
        tag("p", f"Contradiction: {clash}. One of the two is wrong.", role="alert", kind="alarm") for clash in clashes
    ]
    return "\n".join([*alarm, tag("p", lead, kind="headline"), *(tag("p", text, kind="lead") for text in rest)])


def _sentence(stated: Published) -> str:
    """Return what is proved; of a certificate against another attacker its own words, for ours would claim more."""
    if stated.kind is None:
        return headline(stated)
    budget = headline_budget(stated)
    lower = dict(zip(stated.budgets, stated.lower, strict=True))[budget]
    return f"{stated.statement} At budget {exact(budget)} 'lower' is {down(lower, digits_for(stated))}."


def _comparison(count: int) -> str:
    return (
        f"{count} certificates, compared. Each holds with its own confidence by itself; "
        "for all of them together the risks add up."
    )


def curve_words(groups: Sequence[Group]) -> tuple[str, str]:
    """Return the title of the curves and how their lines and marks are told apart."""
    proved = any(group.certified for group in groups)
    floor = any(run.blind is not None for group in groups for run in group.runs)
    measured = "Hollow marks" + (" and the dotted line" if floor else "")
    told = f"{measured} are measured: they show what happened, not what could happen."
    solid = "A solid line is proved, with the stated confidence, against every attacker. " if proved else ""
    title = "What an attacker can do at most" if proved else "What the attacks did"
    return title, f"{solid}{told} Move over the chart, or move the slider, to read a budget."


def tiles(groups: Sequence[Group]) -> str:
    """Return the few numbers that a reader looks for first; only for a page about one certificate."""
    certified = [run for group in groups for run, _, _ in group.certified]
    if len(certified) != 1 or certified[0].certificate is None:
        return ""
    run, stated = certified[0], certified[0].certificate
    digits, budget = digits_for(stated), headline_budget(stated)
    lower = dict(zip(stated.budgets, stated.lower, strict=True))[budget]
    error = "" if stated.estimate_sem is None else f" ± {stated.estimate_sem:.{digits}f}"
    shown = [
        (f"≥ {down(lower, digits)}", f"certified at budget {exact(budget)}", "bound"),
        (f"{stated.estimate:.{digits}f}{error}", "mean without attack, an estimate", "estimate"),
    ]
    if run.blind is not None:
        shown.append((f"{run.blind.mean:.{digits}f}", "a policy that sees nothing, an estimate", "estimate"))
    shown += [(percent(stated.confidence), "confidence", "fact"), (f"{stated.episodes:,}", "episodes", "fact")]
    cells = "".join(
        f'<div class="tile {kind}"><dt>{escape(what)}</dt><dd>{escape(value)}</dd></div>' for value, what, kind in shown
    )
    return f'<dl class="tiles">{cells}</dl>'


def limits_tables(group: Group) -> str:
    """Return the certified limits of a group as tables, with what attacks measured beside them."""
    return "\n".join(_limits_table(group, run, label) for run, label, _ in group.certified) + _attack_tables(group)


def _limits_table(group: Group, run: Run, label: str) -> str:
    stated = run.certificate
    assert stated is not None
    attacks = [(other, name) for other, name, colour in group.attacked if colour == _colour(group, run)]
    heads = ["budget", "certified lower bound", "certified upper bound", *(f"{name} (measured)" for _, name in attacks)]
    body = [
        [*row, *(_measured(other, budget) for other, _ in attacks)]
        for row, budget in zip(rows(stated), stated.budgets, strict=True)
    ]
    said = "".join(tag("p", sentence, kind="note") for sentence in notes(stated, run.blind))
    return table(label, heads, body) + said


def _attack_tables(group: Group) -> str:
    made = []
    for run, label, _ in group.attacked:
        assert run.attack is not None
        digits = digits_of(run)
        body = [
            [exact(budget), f"{mean:.{digits}f} ± {sem:.{digits}f}", "none" if margin is None else f"{margin:g}"]
            for budget, mean, sem, margin in zip(
                *(run.attack[key] for key in ("budgets", "curve", "curve_sem", "curve_lambda")), strict=True
            )
        ]
        made.append(table(f"{label}: measured, not bounds", ["budget", "mean ± standard error", "lambda_Q"], body))
    return "".join(made)


def _measured(run: Run, budget: float) -> str:
    assert run.attack is not None
    digits = digits_of(run)
    for tried, mean, sem in zip(*(run.attack[key] for key in ("budgets", "curve", "curve_sem")), strict=True):
        if tried == budget:
            return f"{mean:.{digits}f} ± {sem:.{digits}f}"
    return "not tried"


def _colour(group: Group, wanted: Run) -> int:
    return next(colour for run, _, colour in group.certified if run is wanted)


def comparison_table(group: Group) -> str:
    """Return one row per certificate: what was played and what it certifies at the budgets that all have."""
    entries = [(run.certificate, label) for run, label, _ in group.certified if run.certificate is not None]
    if len(entries) < 2:
        return ""
    common = sorted(set.intersection(*(set(stated.budgets) for stated, _ in entries)))
    chosen = common[:: -(-len(common) // MOST_COLUMNS)]
    heads = ["run", "sigma", "method", "episodes", "confidence", "no attack (estimate)"]
    body = [_comparison_row(stated, label, chosen) for stated, label in entries]
    return table("Certified lower bounds at budget B", [*heads, *(f"B\u00a0=\u00a0{exact(b)}" for b in chosen)], body)


def _comparison_row(stated: Published, label: str, chosen: Sequence[float]) -> list[str]:
    digits = digits_for(stated)
    limits = dict(zip(stated.budgets, stated.lower, strict=True))
    played = [exact(stated.sigma), stated.method, f"{stated.episodes:,}", percent(stated.confidence)]
    return [label, *played, f"{stated.estimate:.{digits}f}", *(down(limits[budget], digits) for budget in chosen)]


def histogram_table(histogram: Mapping[str, Any]) -> str:
    """Return a histogram as a table of counts."""
    heads, body = rows_of(dict(histogram))
    return table("Number of episodes", heads, body)


def _attack_sentence(run: Run) -> str:
    assert run.attack is not None
    attack, digits = run.attack, digits_of(run)
    # Of equally low means the one with the larger budget says more.
    worst = min(range(len(attack["curve"])), key=lambda number: (attack["curve"][number], -attack["budgets"][number]))
    agent, noise = (
        attack.get("agent"),
        f"behind noise of sigma {exact(run.sigma)}" if run.sigma > 0 else "without noise",
    )
    return (
        f"The strongest attack tried (method {attack.get('method')}, budget {exact(attack['budgets'][worst])}) left "
        f"{agent}, {noise}, with a mean return of {attack['curve'][worst]:.{digits}f} ± "
        f"{attack['curve_sem'][worst]:.{digits}f} over {attack['episodes']:,} episodes: a measurement, not a bound."
    )


def table(caption: str, heads: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Return a table with a caption, its first column being the rows' headings."""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in heads)
    lines = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>' + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:]) + "</tr>"
        for row in body
    )
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def tag(name: str, text: str, kind: str = "", role: str = "") -> str:
    """Return an element with escaped text."""
    marks = (f' class="{kind}"' if kind else "") + (f' role="{role}"' if role else "")
    return f"<{name}{marks}>{escape(text)}</{name}>"
