"""Checks a comparison: both records, which episodes were paired, every bound, and a sample of both agents' episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from surefoot.episodes import MOST_ASKED
from surefoot.errors import InputError
from surefoot.files import read_json
from surefoot.verification.bounds import divisor_of_budgets
from surefoot.verification.claims import check_budgets_used, check_draws, check_noise, check_record
from surefoot.verification.limits import check_limits
from surefoot.verification.plan_again import planner_version, recompute_means
from surefoot.verification.recompute.bands import CannotRecomputeError
from surefoot.verification.recompute.paired_wins import check_wins_bound, share_lower
from surefoot.verification.recompute.run_files import Raw, close, differences, is_number, read_side, same
from surefoot.verification.verdict import FAILED, IMPOSSIBLE, Verdict

if TYPE_CHECKING:
    from surefoot.verification.play_again import RerunOptions

Floats = NDArray[np.float64]

COMPARISON_FILE = "comparison.json"
SCHEMA = 1
MOST_EXACT = 100_000  # pairs, up to which bounds of wins are exact ones
LISTED_CHANGES = 10  # changed episodes that are named
ENDINGS = ("proved", "refuted", "out of reach", "all played", "stopped by hand")
# The fields of the file; all others are refused, because nothing here checks them.
FIELDS = frozenset(
    """
    schema confidence budgets gate names winner passed low high resolution pairing means n_episodes n_pairs floor
    ceiling attacked attacked_by changes anytime stopped planner sides command versions replay
    """.split()
)
# In what the episodes of two agents may differ, and those of one without attack and under one.
_FREE = frozenset(
    """
    agent agent_sha256 sigma sigma_per_feature action_sigma n_stack memory stochastic pixel_max seed purpose n_planned
    n_envs block_size device attacker budget scope reward_range stated_by_user episode_seeds binary
    """.split()
)
_FREE_UNDER_ATTACK = frozenset(("attacker", "budget", "purpose"))
# Bounds are rounded outward by 1e-9 of the range and computed by other formulas here.
_ROUNDING = 1e-7


def check_comparison(folder: Path, verdict: Verdict) -> dict[str, Raw]:
    """Check all that the files of a comparison say; return the record of each side."""
    content = read_json(folder / COMPARISON_FILE)
    if not same(content.get("schema"), SCHEMA):
        raise InputError(
            f"{folder / COMPARISON_FILE} has schema {content.get('schema')!r}, this version reads {SCHEMA}"
        )
    strange = sorted(set(content) ^ FIELDS)
    if strange:
        verdict.note("fields", IMPOSSIBLE, f"missing or unknown: {', '.join(strange)}")
        return {}
    described = content["sides"]
    if not _describes_sides(described):
        verdict.note(
            "sides", FAILED, "there must be A, B and nothing else but B-attacked, each with what is said of it"
        )
        return {}
    sides = {}
    usable = True
    for side, facts in described.items():
        raw = read_side(folder / side, _claimed_of(content, side))
        found = Verdict(run=verdict.run)
        check_limits([raw], found)
        usable = check_record(raw, found) and usable
        for check in found.checks:
            verdict.note(f"{side}: {check.name}", check.result, check.detail)
        for line in found.not_checked:
            verdict.not_checked.insert(0, f"{side}: {line}")
        verdict.judge(f"{side}: certificate and episode data", _check_side(facts, raw), raw.sha256())
        sides[side] = raw
    if not usable:
        return sides
    try:
        wrong = _check_content(content, sides)
    # A file may have anything in any field.
    except (CannotRecomputeError, TypeError, ValueError, LookupError, ArithmeticError) as error:
        verdict.note("bounds", IMPOSSIBLE, str(error))
        return sides
    verdict.judge("bounds", wrong, "recomputed from the returns: the interval, the bounds under attack, the gate")
    return sides


def _describes_sides(found: Any) -> bool:
    """Return whether this says something of both agents, and of no folder but theirs."""
    if not isinstance(found, dict) or not {"A", "B"} <= set(found) <= {"A", "B", "B-attacked"}:
        return False
    return all(isinstance(facts, dict) for facts in found.values())


def rerun_sides(sides: dict[str, Raw], verdict: Verdict, options: RerunOptions, agent_b: object) -> None:
    """Rerun a sample of each agent's episodes, and run fresh ones."""
    from surefoot.verification.rerun import rerun_compared

    known = list(verdict.checks)
    rival = replace(options, agent=agent_b)
    given = {"A": options, "B": rival, "B-attacked": rival}
    parts = {side: Verdict(run=verdict.run, checks=list(known)) for side in sides}
    rerun_compared(sides, parts, given)
    for side, part in parts.items():
        for check in part.checks[len(known) :]:
            detail = check.detail
            if side != "A":
                detail = detail.replace("with --agent", "with --agent-b")
            verdict.note(f"{side}: {check.name}", check.result, detail)
        for line in part.not_checked:
            verdict.not_checked.insert(0, f"{side}: {line}")
    # Of two agents, what is worse: a forgery of either is enough.
    complete = [part for part in parts.values() if part.replayed and part.fresh is not None]
    if parts and len(complete) == len(parts):
        worst = max(complete, key=lambda part: part.miss_least or 0.0)
        verdict.blocks = worst.blocks
        verdict.block_episodes = worst.block_episodes
        verdict.forged_blocks = worst.forged_blocks
        verdict.miss_one = worst.miss_one
        verdict.miss_least = worst.miss_least
        verdict.seed = worst.seed
        verdict.fresh = worst.fresh
        verdict.replayed = worst.replayed


def _claimed_of(content: dict[str, Any], side: str) -> dict[str, Any]:
    """Return what ``check_record`` and the rerun read of a certificate, for the record of one side."""
    facts = content["sides"][side]
    claimed = {"method": "betting", "budgets": [0.0], "sigma": 1.0, "stated_by_user": facts.get("stated_by_user", [])}
    if "action_sigma" in facts:
        claimed["action_sigma"] = facts["action_sigma"]
    if side == "A" and content["budgets"]:
        # Of A alone something is claimed under attack.
        claimed |= {"budgets": content["budgets"], "sigma": facts.get("sigma")}
    if content.get("anytime"):
        goal = {key: content[key] for key in ("confidence", "budgets", "gate")}
        claimed |= {"method": "sequential", "method_selection": {"compare": goal, "stopped": content.get("stopped")}}
    return claimed


def _check_side(stated: dict[str, Any], raw: Raw) -> list[str]:
    keys = ("task", "agent", "agent_sha256", "seed", "attacker", "budget", "sigma")
    expected = {key: raw.setup.get(key) for key in keys}
    if "action_sigma" in raw.setup:
        expected["action_sigma"] = raw.setup["action_sigma"]
    # What the user stated is checked with the limits.
    claimed = {key: value for key, value in stated.items() if key != "stated_by_user"}
    wrong = differences(claimed, {**expected, "record_sha256": raw.sha256()})
    return wrong + check_noise(raw.setup) + check_draws(raw) + check_budgets_used(raw)


def _check_content(content: dict[str, Any], sides: dict[str, Raw]) -> list[str]:
    """Return what is wrong with the numbers of a comparison."""
    a = sides["A"]
    b = sides["B"]
    here = planner_version()
    if content["planner"] != here:
        raise CannotRecomputeError(f"planned by version {content['planner']!r}, this version re-runs {here}")
    wrong = _check_question(content) + _differing("A and B", a, b, _FREE)
    if "B-attacked" in sides:
        wrong += _differing("B and B-attacked", b, sides["B-attacked"], _FREE_UNDER_ATTACK)
    if wrong:
        return wrong
    pairing = _expected_pairing(a.setup, b.setup)
    if content["pairing"] != pairing:
        return [*wrong, f"the episodes are paired by {pairing}, not by {content['pairing']!r:.40}"]
    if not content["anytime"]:
        for side, raw in sides.items():
            if raw.setup.get("n_planned", raw.returns.size) != raw.returns.size:
                wrong.append(f"{side} has another number of episodes than planned")
    elif pairing == "unknown":
        wrong.append("a run that stops by itself needs episodes that belong together")
    x, y, names = _align(a, b, pairing)
    alpha = 1 - float(content["confidence"])
    if not 0 < alpha < 1:
        raise CannotRecomputeError(f"a confidence of {content['confidence']!r:.40} is none")
    budgets = content["budgets"]
    without = alpha / 2 if budgets else alpha
    wrong += _check_interval(content, x, y, pairing, without, only_wins=_only_wins(a, b))
    wrong += _check_attacked(content, sides, alpha / 4)
    wrong += _check_derived(content, sides, x, y, names)
    return wrong


def _differing(who: str, one: Raw, other: Raw, free: frozenset[str]) -> list[str]:
    keys = sorted({*one.setup, *other.setup} - free)
    return [f"{who} have another {key}" for key in keys if not same(one.setup.get(key), other.setup.get(key))]


def _check_question(content: dict[str, Any]) -> list[str]:
    """Return what is wrong with what was asked, and with how it is written."""
    wrong = []
    budgets = content["budgets"]
    if not isinstance(budgets, list) or not all(map(is_number, budgets)) or not np.all(np.diff([0.0, *budgets]) > 0):
        wrong.append("budgets must be numbers above 0 in ascending order")
    elif len(budgets) > MOST_ASKED:
        wrong.append(f"there are {len(budgets)} budgets, expected at most {MOST_ASKED}")
    gate = content["gate"]
    if gate is not None:
        margin = gate["margin"]
        if set(gate) != {"margin"} or not (margin is None or (is_number(margin) and margin >= 0)):
            wrong.append(f"the gate is {gate!r:.60}, expected a margin >= 0 or none")
    if any(set(row) != {"budget", "lower", "upper"} for row in content["attacked"]):
        wrong.append("a row under attack must have budget, lower and upper and nothing else")
    if not is_number(content["confidence"]) or not isinstance(content["anytime"], bool):
        wrong.append("the confidence must be a number, and anytime true or false")
    elif content["stopped"] not in (ENDINGS if content["anytime"] else (None,)):
        wrong.append(f"no such run stops because of {content['stopped']!r:.60}")
    return wrong


def _expected_pairing(a: dict[str, Any], b: dict[str, Any]) -> str:
    if "episode_seeds" in a and "episode_seeds" in b:
        return "seeds"
    for setup in (a, b):
        if not (isinstance(setup.get("block_size"), int) and isinstance(setup.get("seed"), int)):
            return "unknown"
    if a["seed"] != b["seed"] or a.get("purpose") != b.get("purpose"):
        return "independent"
    alike = all(a.get(key) == b.get(key) for key in ("n_envs", "block_size", "device"))
    drawn = a.get("stochastic") or b.get("stochastic") or (a.get("budget") and b.get("budget"))
    return "seeds" if alike and a.get("n_envs") == a["block_size"] and not drawn else "unknown"


def _align(a: Raw, b: Raw, pairing: str) -> tuple[Floats, Floats, list[int]]:
    n = min(a.returns.size, b.returns.size)
    if pairing == "unknown":
        return a.returns, b.returns, []
    if pairing == "independent":
        tables = [raw.returns[: n * (raw.returns.size // n)].reshape(n, -1) for raw in (a, b)]
        groups = [np.minimum(np.maximum(table.mean(axis=1), table.min(axis=1)), table.max(axis=1)) for table in tables]
        return groups[0], groups[1], []
    if "episode_seeds" not in a.setup:
        return a.returns[:n], b.returns[:n], list(range(n))
    seeds_a = a.setup["episode_seeds"]
    seeds_b = b.setup["episode_seeds"]
    for raw, seeds in ((a, seeds_a), (b, seeds_b)):
        if len(seeds) != raw.returns.size or len(set(seeds)) != len(seeds):
            raise CannotRecomputeError("there must be one seed for each episode, and none twice")
    row_of = {seed: row for row, seed in enumerate(seeds_b)}
    rows_a = [row for row, seed in enumerate(seeds_a) if seed in row_of]
    names = [seeds_a[row] for row in rows_a]
    rows_b = [row_of[name] for name in names]
    return a.returns[rows_a], b.returns[rows_b], names


def _only_wins(a: Raw, b: Raw) -> bool:
    """Return whether bounds are those of wins and losses.

    Raises:
        CannotRecomputeError: If the records say so, and have other returns: a step of one millionth would be a win.
    """
    larger = max(a.returns.size, b.returns.size) >= 2 * min(a.returns.size, b.returns.size)
    grouped = _expected_pairing(a.setup, b.setup) == "independent" and larger
    if a.setup.get("binary") is not True or b.setup.get("binary") is not True:
        return False
    for raw in (a, b):
        if not np.isin(raw.returns, (raw.setup["floor"], raw.setup["ceiling"])).all():
            raise CannotRecomputeError("wins and losses allow only the returns floor and ceiling")
    return not grouped


def _check_interval(
    content: dict[str, Any], x: Floats, y: Floats, pairing: str, alpha: float, *, only_wins: bool
) -> list[str]:
    """Return what is wrong with the interval of the difference without attack."""
    floor = float(content["floor"])
    ceiling = float(content["ceiling"])
    span = ceiling - floor
    anytime = bool(content["anytime"])
    if not (is_number(content["low"]) and is_number(content["high"])):
        return ["low and high must be numbers"]
    if pairing == "unknown" and only_wins:
        return _check_wins_of_two(content, x, y, alpha / 4)
    if pairing == "unknown":
        ends = (floor, ceiling)
        mirrored = (-ceiling, -floor)
        wrong = []
        # Minus the highest mean of the one is the lower bound of minus it.
        for name, sign, one, other in (("low", 1.0, x, y), ("high", -1.0, y, x)):
            best, least = recompute_means(one, ends, alpha / 4, [0.0], anytime=False)
            also_best, also_least = recompute_means(-other, mirrored, alpha / 4, [0.0], anytime=False)
            wrong += _compare(name, sign * content[name], best + also_best, least + also_least, span)
        return wrong
    wrong = []
    for name, sign in (("low", 1.0), ("high", -1.0)):
        claimed = sign * content[name]
        outcomes = sign * (x - y)
        if only_wins and not anytime and outcomes.size <= MOST_EXACT:
            a_alone = int((outcomes > 0).sum())
            b_alone = int((outcomes < 0).sum())
            # Rounded outward before it was written.
            wrong += check_wins_bound(outcomes.size, a_alone, b_alone, alpha / 2, claimed / span)
        else:
            best, least = recompute_means(outcomes, (-span, span), alpha / 2, [0.0], anytime=anytime)
            wrong += _compare(name, claimed, best[0], least[0], span)
    return wrong


def _check_wins_of_two(content: dict[str, Any], x: Floats, y: Floats, alpha: float) -> list[str]:
    """Return what is wrong with the interval from wins of episodes that nothing pairs: bounds of both shares."""
    floor = float(content["floor"])
    span = float(content["ceiling"]) - floor
    wrong = []
    for name, sign, one, other in (("low", 1, x, y), ("high", -1, y, x)):
        won = int((one > floor).sum())
        lost = int((other == floor).sum())
        least = share_lower(won, one.size, alpha)
        most = 1 - share_lower(lost, other.size, alpha)
        bound = span * (least - most)
        wrong += _compare(name, sign * content[name], bound + _ROUNDING * span, bound, span)
    return wrong


def _compare(name: str, claimed: float, best: Any, least: Any, span: float) -> list[str]:
    if claimed > float(np.asarray(best).item()) + 1e-12 * span:
        return [f"{name} claims more than the returns prove"]
    if claimed < float(np.asarray(least).item()) - _ROUNDING * span:
        return [f"{name} is not what the method gives"]
    return []


def _check_attacked(content: dict[str, Any], sides: dict[str, Raw], alpha: float) -> list[str]:
    """Return what is wrong with the bounds under attack."""
    budgets = content["budgets"]
    rows = content["attacked"]
    if [row["budget"] for row in rows] != budgets:
        return ["the rows under attack are not those of the budgets"]
    if not budgets:
        return []
    floor = float(content["floor"])
    ceiling = float(content["ceiling"])
    a = sides["A"]
    b = sides.get("B-attacked", sides["B"])
    anytime = bool(content["anytime"])
    if a.setup.get("attacker") is not None:
        return ["A's episodes were attacked"]
    if sides["B"].setup.get("attacker") is not None:
        return ["B's episodes were attacked, and the bounds under attack say that those are without"]
    if "B-attacked" in sides and (a.setup.get("action_sigma") or b.setup.get("action_sigma")):
        return ["B was attacked, and where actions have noise nothing says that its budgets count as those of A"]
    if "B-attacked" in sides and _exceeds_budgets(a.setup, b.setup):
        return ["the attack on B may change some features more than the budgets of A count"]
    if "B-attacked" in sides and not b.setup.get("budget", np.inf) <= budgets[0]:
        return ["the attack on B had a larger budget than the smallest that is asked for"]
    divisor = divisor_of_budgets(a.setup)
    scaled = [budget / divisor for budget in budgets]
    best, least = recompute_means(a.returns, (floor, ceiling), alpha, scaled, anytime=anytime)
    top, bottom = recompute_means(-b.returns, (-ceiling, -floor), alpha, [0.0], anytime=anytime)
    wrong = []
    for row, high, low in zip(rows, best, least, strict=True):
        wrong += _compare(f"the bound of A at {row['budget']:g}", row["lower"], high, low, ceiling - floor)
        wrong += _compare(f"the bound of B at {row['budget']:g}", -row["upper"], top[0], bottom[0], ceiling - floor)
    return wrong


def _exceeds_budgets(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Return whether a budget buys more of some feature by B's sigmas than by A's, both in units of their least."""
    one = a.get("sigma_per_feature")
    other = b.get("sigma_per_feature")
    n_features = max(len(one or ()), len(other or ()))
    # Where all features have one sigma, or none, a budget buys the same of each.
    by_a = np.asarray(one or [1.0] * n_features, dtype=np.float64)
    by_b = np.asarray(other or [1.0] * n_features, dtype=np.float64)
    if by_a.shape != by_b.shape:
        return True
    least_a, least_b = (float(np.min(sigmas[sigmas > 0], initial=np.inf)) for sigmas in (by_a, by_b))
    # Multiplied by both, because a division rounds.
    return bool(np.any(by_b * least_a > by_a * least_b * (1 + 1e-9)))


def _check_derived(
    content: dict[str, Any], sides: dict[str, Raw], x: Floats, y: Floats, names: Sequence[int]
) -> list[str]:
    """Return which of the fields that follow from bounds and returns do not."""
    low = content["low"]
    high = content["high"]
    winner = None
    if low > 0:
        winner = "A"
    elif high < 0:
        winner = "B"
    gate = content["gate"]
    passed = True
    if gate is not None:
        shown = [low, *(row["lower"] - row["upper"] for row in content["attacked"])]
        if gate["margin"] is None:
            passed = min(shown) > 0
        else:
            passed = min(shown) >= -gate["margin"]
    attacked_by = None
    if "B-attacked" in sides:
        attacked_by = _attack_name(sides["B-attacked"].setup.get("attacker") or {})
    named = zip(content["names"], (sides["A"], sides["B"]), strict=True)
    expected = {
        "names": [_name_of(raw.setup) or str(name) for name, raw in named],
        "changes": _find_changes(x, y, names),
        "winner": winner,
        "passed": passed,
        "n_episodes": [sides["A"].returns.size, sides["B"].returns.size],
        "n_pairs": min(x.size, y.size),
        "floor": sides["A"].setup["floor"],
        "ceiling": sides["A"].setup["ceiling"],
        "attacked_by": attacked_by,
    }
    wrong = differences({key: content[key] for key in expected}, expected)
    span = abs(float(content["ceiling"]) - float(content["floor"]))
    for claimed, found in zip(content["means"], (x.mean(), y.mean()), strict=True):
        if not close(claimed, float(found), _ROUNDING * span):
            wrong.append(f"the mean return is {found:.9g}, not {claimed!r}")
    if not close(content["resolution"], (high - low) / 2, _ROUNDING * span):
        wrong.append("the resolution is half of the interval")
    return wrong


def _attack_name(attacker: dict[str, Any]) -> str:
    """Return what an attack is called in sentences: its name, or those of its two parts."""
    if "direction" not in attacker:
        return str(attacker.get("name"))
    return f"{attacker['direction'].get('name')} ({attacker['timing'].get('name')})"


def _name_of(setup: dict[str, Any]) -> str | None:
    """Return what an agent is called in sentences, None where its episodes do not say it."""
    agent = setup.get("agent")
    if not agent:
        return None
    if setup.get("attacker") is not None:
        return f"{agent}, attacked with budget {setup.get('budget')}"
    if not isinstance(setup.get("block_size"), int):
        return str(agent)
    noises = []
    if setup["sigma"]:
        noises.append(f"sigma {setup['sigma']:g}")
    if setup.get("action_sigma"):
        noises.append(f"sigma {setup['action_sigma']:g} on actions")
    return f"{agent}, {', '.join(noises) or 'undefended'}"


def _find_changes(x: Floats, y: Floats, names: Sequence[int]) -> dict[str, Any] | None:
    """Return how many of the episodes that belong together differ, and those that differ most."""
    if not names:
        return None
    rows = sorted(np.flatnonzero(x != y).tolist(), key=lambda row: -abs(x[row] - y[row]))[:LISTED_CHANGES]
    return {
        "higher": int((x > y).sum()),
        "lower": int((x < y).sum()),
        "equal": int((x == y).sum()),
        "largest": [[names[row], float(x[row]), float(y[row])] for row in rows],
    }
