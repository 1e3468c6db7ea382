"""The paper's claims held against our numbers, one function each: what was measured, and whether it agrees."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from study.figures.pong import FULL, ROUND, ways
from study.numbers import Agent, Study, budgets_of
from study.paper import MAIN, ROUNDS, UNITS
from study.style import attack_curve, mean_of
from study.tables import Table, certified, digits_of, measured
from surefoot.play.tasks import TASKS

UNMEASURED = "not measured yet"
Curve = tuple[list[float], list[float], list[float]]  # budgets, means, standard errors
SURE = 2.0  # standard errors that two means must differ by to be called different


@dataclass(frozen=True)
class Finding:
    """What we have measured about a claim, and the verdict in a word or two."""

    measured: str
    verdict: str


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


def root_law(study: Study, task: str) -> Finding:
    """Compare the budget b that halves the chance of winning a round with what the same attack does to a whole game.

    If rounds were alike and independent, n rounds that are each won half as often would take a budget of b sqrt(n),
    and the game would end about even. What a smaller budget takes at most follows from the best way to spread it.
    """
    one, game = study.bare(ROUND), study.bare(task)
    first, whole = study.attack(one), study.attack(game)
    if one is None or game is None or first is None or whole is None:
        return Finding(UNMEASURED, UNMEASURED)
    rounds, games = attack_curve(study, one, first), attack_curve(study, game, whole)
    half, even = falls_to(rounds[1][0] / 2, *rounds[:2]), falls_to(0.0, *games[:2])
    if half is None:
        return Finding(f"no budget up to {rounds[0][-1]:g} halves the chance to win a round", "not measured far enough")
    root, last = math.sqrt(ROUNDS), games[0][-1]
    text = (
        f"one round: won with {rounds[1][0]:.3f}, half of that at b = {half:.3f} (interpolated); whole games, of "
        f"{ROUNDS} rounds or more: {_games_in_words(*games)}. The root law predicts an even game at b sqrt({ROUNDS}) = "
        f"{half * root:.2f} or more, and at B = {last:g} {_loss_in_words(rounds, games)}"
    )
    if even is not None:
        return Finding(text, f"{'yes' if even >= half * root else 'no'}: even at B = {even:.2f} = {even / half:.1f} b")
    return Finding(
        text,
        f"not contradicted: at B = {last:g} = {last / half:.1f} b a game is far from even, as the law says; the budget "
        f"at which it is even (predicted: {root:.1f} b or more) was not reached, so the root itself is not shown",
    )


def _games_in_words(budgets: list[float], means: list[float], errors: list[float]) -> str:
    rows = zip(budgets, means, errors, strict=True)
    return ", ".join(f"{measured(mean, error, 1)} at B = {budget:g}" for budget, mean, error in rows)


def _loss_in_words(rounds: Curve, games: Curve) -> str:
    goals, count = spread_best(games[0][-1], *rounds[:2])
    lost, error = games[1][0] - games[1][-1], math.hypot(games[2][0], games[2][-1])
    return f"{goals:.1f} goals lost if spread over {count} rounds; Algorithm 1 cost {measured(lost, error, 1)}"


def falls_to(level: float, budgets: Sequence[float], means: Sequence[float]) -> float | None:
    """Return the budget at which the mean falls to a level, between two that were measured; None if it never does."""
    for place in range(1, len(means)):
        if means[place] <= level:
            return float(np.interp(-level, [-means[place - 1], -means[place]], budgets[place - 1 : place + 1]))
    return None


def spread_best(budget: float, budgets: Sequence[float], won: Sequence[float]) -> tuple[float, int]:
    """Return how many rounds a budget costs at most, and over how many it is spread then, each at a measured budget."""
    ways = [(each, min(ROUNDS, math.floor((budget / each) ** 2 + 1e-9))) for each in budgets if each > 0]
    return max((count * (won[0] - won[budgets.index(each)]), count) for each, count in ways)


MAIN_TEXT, CARTPOLE, FULL_GAME, CDF = (
    "Section 5.2",
    "appendix, Additional Cartpole Results",
    "appendix, Full Pong Game",
    "appendix, CDF Smoothing Details",
)
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
    Claim(
        "The budget required to attack a serial game grows with the square root of its rounds",
        FULL_GAME,
        (FULL,),
        root_law,
    ),
)
