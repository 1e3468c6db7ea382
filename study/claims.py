"""The paper's claims held against our numbers, one function each: what was measured, and whether it agrees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from study.figures.pong import FULL, ROUND, ways
from study.numbers import Agent, Study, budgets_of, cell_sizes
from study.paper import MAIN, UNITS
from study.sandwich import agents as attacked_agents
from study.sandwich import cells
from study.serial import root_law, root_law_of_one_agent
from study.step_wise import farther_than_actions
from study.style import mean_of
from study.tables import UNMEASURED, Finding, Table, by_budget, certified, digits_of, measured
from surefoot.agents.files import load_card
from surefoot.play.tasks import TASKS

UNDER_ATTACK = "undefended agent under attack"
AttackOn = Callable[[Study, Agent | None], dict[str, Any] | None]
SURE = 2.0  # standard errors that two means must differ by to be called different


@dataclass(frozen=True)
class Claim:
    """What the paper says and where, the tasks it is about, and how our numbers are held against it."""

    text: str
    place: str
    tasks: Sequence[str]
    judge: Callable[[Study, str], Finding]


def claims(study: Study, tasks: Sequence[str]) -> Table:
    """Return every claim of the paper with its place there, our numbers and the verdict."""
    rows = [
        [claim.text, claim.place, UNITS[task].title, finding.in_words(), finding.verdict]
        for claim, task, finding in findings(study, tasks)
    ]
    return Table(["the paper's claim", "place", "task", "ours", "reproduced?"], rows, left=5)


def findings(study: Study, tasks: Sequence[str]) -> Iterator[tuple[Claim, str, Finding]]:
    """Hold every claim of the paper against our numbers, task by task."""
    for claim in CLAIMS:
        for task in (task for task in claim.tasks if task in tasks):
            yield claim, task, claim.judge(study, task)


def strongest(study: Study, agent: Agent | None) -> dict[str, Any] | None:
    """Return what the paper's attack achieved on an agent, with lower means where another attack on it has them.

    An attack that needs less than a budget is one with that budget too.
    """
    found = study.attack(agent)
    if found is None or agent is None:
        return found
    paper = zip(found["budgets"], found["curve"], found["curve_sem"], strict=True)
    measured_at = [(budget, mean, error, found["n_episodes"]) for budget, mean, error in paper]
    # Not of an agent of one's own that has the name of a pretrained one.
    if agent.name in attacked_agents() and load_card(agent.name)["sha256"] == agent.sha256:
        measured_at += [(cell.budget, cell.mean, cell.sem, cell.episodes) for cell in cells(agent.name)]
    lowest = []
    for budget in found["budgets"]:
        within = [one for one in measured_at if one[0] <= budget]
        lowest.append(min(within, key=lambda one: one[1]))
    _, means, errors, sizes = zip(*lowest, strict=True)
    return {**found, "curve": means, "curve_sem": errors, "sizes": sizes}


def effective(study: Study, task: str, attack_on: AttackOn = Study.attack) -> Finding:
    """Return how much of the undefended agent's return an attack takes: all of it is down to the open-loop baseline.

    At a budget an attack is effective if it takes half of that, hardly if less, and not if the means do not differ by
    two standard errors. Where an open-loop policy is no worse than the agent, all of it is down to the floor.
    """
    bare = study.bare(task)
    found, record = attack_on(study, bare), None if bare is None else study.record(bare)
    if found is None or record is None:
        return Finding(UNMEASURED, UNMEASURED)
    (clean, error), rules = mean_of(record.returns), TASKS[task]
    blind = rules.scoring.floor if rules.baseline is None else rules.baseline.mean
    least = blind if blind < clean else rules.scoring.floor
    at: dict[str, list[str]] = {"yes": [], "hardly": [], "no": []}
    for budget, mean, sem in zip(found["budgets"], found["curve"], found["curve_sem"], strict=True):
        differ = clean - mean > SURE * float(np.hypot(error, sem))
        half = clean - mean >= (clean - least) / 2
        at["yes" if differ and half else "hardly" if differ else "no"].append(f"{budget:g}")
    digits = digits_of(rules.scoring.ceiling)
    last = measured(found["curve"][-1], found["curve_sem"][-1], digits)
    text = (
        f"{measured(clean, error, digits)} without attack, {last} at B = {found['budgets'][-1]:g}; "
        f"open-loop baseline {blind:.{digits}f}"
    )
    return Finding(text, _by_verdict(at))


def _by_verdict(at: dict[str, list[str]]) -> str:
    """Return every verdict with the budgets it holds at."""
    return "; ".join(f"{verdict}, at B = {', '.join(where)}" for verdict, where in at.items() if where)


def non_vacuous(study: Study, task: str, attack_on: AttackOn = Study.attack) -> Finding:
    """Compare the undefended agent's attacked means with the best certified bound at the same budgets."""
    bare = attack_on(study, study.bare(task))
    agents = study.smoothed(task)
    if bare is None or not agents:
        return Finding(UNMEASURED, UNMEASURED)
    digits, columns = digits_of(TASKS[task].scoring.ceiling), []
    at: dict[str, list[str]] = {"yes": [], "no": []}
    sizes = bare.get("sizes", [bare["n_episodes"]] * len(bare["budgets"]))
    for budget, mean, error, size in zip(bare["budgets"], bare["curve"], bare["curve_sem"], sizes, strict=True):
        best, agent = max(((study.certificate(one).at(budget).lower, one) for one in agents), key=lambda pair: pair[0])
        at["yes" if best > mean + doubt(error, size, task) else "no"].append(f"{budget:g}")
        columns.append((certified(best, digits), f"{agent.sigma:g}", measured(mean, error, digits)))
    names = ("certified lower bound", "of the agent with sigma", UNDER_ATTACK)
    table = by_budget(
        [[name, *row] for name, row in zip(names, zip(*columns, strict=True), strict=True)], bare["budgets"]
    )
    return Finding("", _by_verdict(at) + _blind_note(study, task, bare["budgets"], agents), table)


def doubt(error: float, episodes: int, task: str) -> float:
    """Return how far above an attacked mean the true mean may well be: two standard errors, and never nothing.

    Where every episode ended alike the standard error is 0, which proves nothing; three outcomes at the ceiling may
    still have been missed.
    """
    rules = TASKS[task]
    assert rules.scoring.ceiling is not None
    return max(SURE * error, 3 / episodes * (rules.scoring.ceiling - rules.scoring.floor))


def _blind_note(study: Study, task: str, budgets: Sequence[float], agents: Sequence[Agent]) -> str:
    blind = TASKS[task].baseline
    if blind is None:
        return ""
    below = [
        f"{budget:g}"
        for budget in budgets
        if max(study.certificate(agent).at(budget).lower for agent in agents) <= blind.mean
    ]
    return f"; below the open-loop baseline at B = {', '.join(below)}" if below else ""


def above_bound(study: Study, task: str) -> Finding:
    """Return by how much attacked means lie above the certified bounds, over all agents, budgets and lambdas.

    Where a mean is above its bound by no more than what it is in doubt, the two are not distinguished.
    """
    margins, close = [], []
    attacks = [(agent, found) for agent in study.smoothed(task) if (found := study.attack(agent)) is not None]
    for agent, found in attacks:
        for budget, means, errors, sizes in zip(
            found["budgets"], found["mean"], found["sem"], cell_sizes(found), strict=True
        ):
            lowest = int(np.argmin(means))
            margin = means[lowest] - study.certificate(agent).at(budget).lower
            margins.append((margin, agent, budget))
            if 0 < margin <= doubt(errors[lowest], sizes[lowest], task):
                close.append(f"sigma {agent.sigma:g}, B = {budget:g}")
    if not margins:
        return Finding(UNMEASURED, UNMEASURED)
    digits = digits_of(TASKS[task].scoring.ceiling)
    least, most = min(margins, key=lambda row: row[0]), max(margins, key=lambda row: row[0])
    text = (
        f"least margin {least[0]:.{digits}f} (sigma {least[1].sigma:g}, B = {least[2]:g}), "
        f"largest {most[0]:.{digits}f} (sigma {most[1].sigma:g}, B = {most[2]:g})"
    )
    if least[0] <= 0:
        return Finding(text, f"no: at B = {least[2]:g} an attack went below its bound")
    return Finding(text, "yes" + (f"; too few episodes to tell at {' and '.join(close)}" if close else ""))


def point_wise_better(study: Study, task: str) -> Finding:
    """Compare the paper's two methods on the same episodes."""
    gains = []
    for agent in study.smoothed(task):
        for budget in budgets_of(TASKS[task]):
            pair = [study.certificate(agent, method).at(budget).lower for method in ("per-threshold", "dkw")]
            gains.append((pair[0] - pair[1], agent, budget, pair))
    if not gains:
        return Finding(UNMEASURED, UNMEASURED)
    least, most = min(gains, key=lambda row: row[0]), max(gains, key=lambda row: row[0])
    text = (
        f"least gain {least[0]:.1f} (sigma {least[1].sigma:g}, B = {least[2]:g}), largest {most[0]:.1f} "
        f"(sigma {most[1].sigma:g}, B = {most[2]:g}: {certified(most[3][0], 1)} against {certified(most[3][1], 1)})"
    )
    return Finding(text, "yes" if least[0] >= 0 else "not everywhere")


def more_vulnerable(study: Study, _task: str) -> Finding:
    """Compare the undefended five-frame agent under attack with the undefended one-frame agent."""
    five, one = (study.attack(study.bare(task)) for task in ("cartpole-5", "cartpole-1"))
    if five is None or one is None:
        return Finding(UNMEASURED, UNMEASURED)
    shared = [budget for budget in five["budgets"] if budget in one["budgets"]]
    columns, signs = [], []
    for budget in shared:
        pair = [_attacked_mean(found, budget) for found in (five, one)]
        columns.append([measured(*mean, 1) for mean in pair])
        apart = SURE * float(np.hypot(pair[0][1], pair[1][1]))
        signs += [f"{budget:g}"] if pair[0][0] - pair[1][0] < -apart else []
    rows = [[name, *row] for name, row in zip(("five frames", "one frame"), zip(*columns, strict=True), strict=False)]
    verdict = f"only at B = {', '.join(signs)}" if signs and len(signs) < len(shared) else "yes" if signs else "no"
    return Finding("", verdict, by_budget(rows, shared))


def _attacked_mean(found: Any, budget: float) -> tuple[float, float]:
    place = found["budgets"].index(budget)
    return found["curve"][place], found["curve_sem"][place]


def full_pong_vacuous(study: Study, _task: str) -> Finding:
    """Compare what each method certifies of the whole game with the undefended agent under attack."""
    bare, agents = study.attack(study.bare(FULL)), study.smoothed(FULL)
    if not agents:
        return Finding(UNMEASURED, UNMEASURED)
    if bare is None:
        numbers = _ways_by_budget(study, agents, budgets_of(TASKS[FULL])[::4])
        return Finding("", "undefended agent not attacked yet", numbers)
    held: dict[str, set[str]] = {}
    for agent in agents:
        for way in ways(study, agent.sigma):
            room = [doubt(error, bare["n_episodes"], FULL) for error in bare["curve_sem"]]
            limits = np.array(bare["curve"]) + np.array(room)
            better = [f"{budget:g}" for budget in np.array(bare["budgets"])[way.lower(bare["budgets"]) > limits]]
            held.setdefault(way.name, set()).update(better)
    beaten = [f"{name}: above the undefended agent at B = {', '.join(sorted(at))}" for name, at in held.items() if at]
    nowhere = "; ".join(name for name, at in held.items() if not at) if beaten else "any method"
    rest = f"nowhere above the undefended agent by {nowhere}" if nowhere else "vacuous by no method"
    verdict = "; ".join([*beaten, rest])
    means = [measured(mean, error, 1) for mean, error in zip(bare["curve"], bare["curve_sem"], strict=True)]
    return Finding("", verdict, _ways_by_budget(study, agents, bare["budgets"], [["0", UNDER_ATTACK, *means]]))


def _ways_by_budget(
    study: Study, agents: Sequence[Agent], budgets: Sequence[float], more: Sequence[list[str]] = ()
) -> Table:
    rows = [
        [f"{agent.sigma:g}", way.name, *(certified(float(value), 1) for value in way.lower(budgets))]
        for agent in agents
        for way in ways(study, agent.sigma)
    ]
    return by_budget([*rows, *more], budgets, ("sigma", "method"))


MAIN_TEXT, CARTPOLE, FULL_GAME, CDF = (
    "Section 5.2",
    "appendix, Additional Cartpole Results",
    "appendix, Full Pong Game",
    "appendix, CDF Smoothing Details",
)
SERIAL = "The budget required to attack a serial game grows with the square root of its rounds"
EXCEEDS = "The certificate exceeds the undefended agent under attack"
AGAIN = "asked again with the strongest attack"
CLAIMS = (
    Claim("Attacks are effective on undefended agents", MAIN_TEXT, MAIN, effective),
    Claim(EXCEEDS, "Sections 1 and 5.2", ("cartpole-5", ROUND), non_vacuous),
    Claim(EXCEEDS, CARTPOLE, ("cartpole-1",), non_vacuous),
    Claim(
        "Attacks are effective on undefended agents",
        AGAIN,
        ("cartpole-5", ROUND, "freeway"),
        partial(effective, attack_on=strongest),
    ),
    Claim(EXCEEDS, AGAIN, ("cartpole-5", ROUND), partial(non_vacuous, attack_on=strongest)),
    Claim("A smoothed agent under attack keeps more than is certified", MAIN_TEXT, MAIN, above_bound),
    Claim(
        "Certifying the return covers larger budgets than certifying every action",
        "Section 2",
        ("cartpole-1",),
        farther_than_actions,
    ),
    Claim("Point-wise bounds certify more than DKW", CDF, ("cartpole-5",), point_wise_better),
    Claim(
        "The undefended multi-frame agent is much more vulnerable than the single-frame one",
        CARTPOLE,
        ("cartpole-1",),
        more_vulnerable,
    ),
    Claim("The certificate of a whole game is vacuous", FULL_GAME, (FULL,), full_pong_vacuous),
    Claim(SERIAL, FULL_GAME, (FULL,), root_law),
    Claim(f"{SERIAL} (one agent in rounds and games)", FULL_GAME, (FULL,), root_law_of_one_agent),
)
