"""The paper's claims held against our numbers, one function each: what was measured, and whether it agrees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from study.figures.pong import FULL, ROUND, ways
from study.numbers import Agent, Study, budgets_of
from study.paper import MAIN, UNITS
from study.serial import root_law, root_law_of_one_agent
from study.style import mean_of
from study.tables import UNMEASURED, Finding, Table, certified, digits_of, measured
from surefoot.play.tasks import TASKS

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
    rows = []
    for claim in CLAIMS:
        for task in (task for task in claim.tasks if task in tasks):
            finding = claim.judge(study, task)
            rows.append([claim.text, claim.place, UNITS[task].title, finding.measured, finding.verdict])
    return Table(["the paper's claim", "place", "task", "ours", "reproduced?"], rows, left=5)


def effective(study: Study, task: str) -> Finding:
    """Return how much of the undefended agent's return an attack takes: all of it is down to the open-loop baseline.

    At a budget an attack is effective if it takes half of that, hardly if less, and not if the means do not differ by
    two standard errors. Where an open-loop policy is no worse than the agent, all of it is down to the floor.
    """
    bare = study.bare(task)
    found, record = study.attack(bare), None if bare is None else study.record(bare)
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
        f"without attack {measured(clean, error, digits)}, at B = {found['budgets'][-1]:g} {last}, "
        f"open-loop baseline {blind:.{digits}f}"
    )
    return Finding(text, "; ".join(f"{verdict}, at B = {', '.join(where)}" for verdict, where in at.items() if where))


def non_vacuous(study: Study, task: str) -> Finding:
    """Compare the undefended agent's attacked means with the best certified bound at the same budgets."""
    bare = study.attack(study.bare(task))
    agents = study.smoothed(task)
    if bare is None or not agents:
        return Finding(UNMEASURED, UNMEASURED)
    digits, parts, held = digits_of(TASKS[task].scoring.ceiling), [], []
    for budget, mean, error in zip(bare["budgets"], bare["curve"], bare["curve_sem"], strict=True):
        best, agent = max(((study.certificate(one).at(budget).lower, one) for one in agents), key=lambda pair: pair[0])
        more = best > mean + doubt(error, bare["episodes"], task)
        held += [f"{budget:g}"] if more else []
        parts.append(
            f"B = {budget:g}: certified {certified(best, digits)} (sigma {agent.sigma:g}), "
            f"undefended {measured(mean, error, digits)}"
        )
    verdict = f"yes, at B = {', '.join(held)}" if held else "no"
    return Finding("; ".join(parts), verdict + _blind_note(study, task, bare["budgets"], agents))


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
    """Return by how much attacked means lie above the certified bounds, over all agents, budgets and lambdas."""
    margins = []
    for agent in study.smoothed(task):
        found = study.attack(agent)
        if found is not None:
            for budget, row in zip(found["budgets"], found["mean"], strict=True):
                margins.append((min(row) - study.certificate(agent).at(budget).lower, agent, budget))
    if not margins:
        return Finding(UNMEASURED, UNMEASURED)
    digits = digits_of(TASKS[task].scoring.ceiling)
    least, most = min(margins, key=lambda row: row[0]), max(margins, key=lambda row: row[0])
    text = (
        f"least margin {least[0]:.{digits}f} (sigma {least[1].sigma:g}, B = {least[2]:g}), "
        f"largest {most[0]:.{digits}f} (sigma {most[1].sigma:g}, B = {most[2]:g})"
    )
    return Finding(text, "yes" if least[0] > 0 else f"no: at B = {least[2]:g} an attack went below its bound")


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
    parts, signs = [], []
    for place, budget in enumerate(five["budgets"]):
        if budget not in one["budgets"]:
            continue
        there = one["budgets"].index(budget)
        pair = (five["curve"][place], five["curve_sem"][place]), (one["curve"][there], one["curve_sem"][there])
        parts.append(f"B = {budget:g}: five {measured(*pair[0], 1)}, one {measured(*pair[1], 1)}")
        apart = SURE * float(np.hypot(pair[0][1], pair[1][1]))
        gap = pair[0][0] - pair[1][0]
        signs += [f"{budget:g}"] if gap < -apart else []
    verdict = f"only at B = {', '.join(signs)}" if signs and len(signs) < len(parts) else "yes" if signs else "no"
    return Finding("; ".join(parts), verdict)


def full_pong_vacuous(study: Study, _task: str) -> Finding:
    """Compare what each method certifies of the whole game with the undefended agent under attack."""
    bare, agents = study.attack(study.bare(FULL)), study.smoothed(FULL)
    if not agents:
        return Finding(UNMEASURED, UNMEASURED)
    if bare is None:
        return Finding(_ways_in_words(study, agents, budgets_of(TASKS[FULL])[::4]), "undefended agent not attacked yet")
    held: dict[str, set[str]] = {}
    for agent in agents:
        for way in ways(study, agent.sigma):
            room = [doubt(error, bare["episodes"], FULL) for error in bare["curve_sem"]]
            limits = np.array(bare["curve"]) + np.array(room)
            better = [f"{budget:g}" for budget in np.array(bare["budgets"])[way.lower(bare["budgets"]) > limits]]
            held.setdefault(way.name, set()).update(better)
    beaten = [f"{name}: above the undefended agent at B = {', '.join(sorted(at))}" for name, at in held.items() if at]
    nowhere = ", ".join(name for name, at in held.items() if not at)
    verdict = "; ".join(
        [*beaten, f"nowhere above the undefended agent by {nowhere}" if nowhere else "vacuous by no method"]
    )
    return Finding(_ways_in_words(study, agents, bare["budgets"]), verdict)


def _ways_in_words(study: Study, agents: Sequence[Agent], budgets: Sequence[float]) -> str:
    parts = []
    for agent in agents:
        for way in ways(study, agent.sigma):
            numbers = ", ".join(certified(float(value), 1) for value in way.lower(budgets))
            parts.append(f"sigma {agent.sigma:g}, {way.name}: {numbers}")
    return f"score at B = {', '.join(f'{budget:g}' for budget in budgets)}: " + "; ".join(parts)


MAIN_TEXT, CARTPOLE, FULL_GAME, CDF = (
    "Section 5.2",
    "appendix, Additional Cartpole Results",
    "appendix, Full Pong Game",
    "appendix, CDF Smoothing Details",
)
SERIAL = "The budget required to attack a serial game grows with the square root of its rounds"
EXCEEDS = "The certificate exceeds the undefended agent under attack"
CLAIMS = (
    Claim("Attacks are effective on undefended agents", MAIN_TEXT, MAIN, effective),
    Claim(EXCEEDS, "Sections 1 and 5.2", ("cartpole-5", ROUND), non_vacuous),
    Claim(EXCEEDS, CARTPOLE, ("cartpole-1",), non_vacuous),
    Claim("A smoothed agent under attack keeps more than is certified", MAIN_TEXT, MAIN, above_bound),
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
