"""Who vouches for floor and ceiling: our own task, the rules of a known environment, or only the user.

It is derived a second time from the setup, as data: nothing that the setup names is imported or made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from surefoot.episodes import LIMITS, names_limits
from surefoot.errors import InputError
from surefoot.files import extremes, is_count
from surefoot.verification.recompute.run_files import Raw, is_number, same
from surefoot.verification.verdict import SKIPPED, Verdict

CHECK = "floor and ceiling"


@dataclass(frozen=True)
class Proved:
    """What is proved about the returns of a setup.

    Attributes:
        by: What proves it, in words; empty where nothing does.
        floor: No return is below it; None if nothing is proved.
        ceiling: No return is above it; None if nothing is proved.
        tightest: The same two without room for the rounding of sums, for what setups may state.
        rewards: Lowest and highest reward of a step; None where nothing is proved.
        is_task: Whether this is one of our own tasks, whose setups have exactly these limits.
    """

    by: str = ""
    floor: float | None = None
    ceiling: float | None = None
    tightest: tuple[float | None, float | None] = (None, None)
    rewards: tuple[float | None, float | None] = (None, None)
    is_task: bool = False


def check_limits(certified: list[Raw], verdict: Verdict) -> None:
    """Check that floor and ceiling claim no more than is proved, and that certificates name those nothing proves."""
    setup = certified[0].setup
    try:
        proved = proved_limits(setup)
    except ImportError as error:
        verdict.note(CHECK, SKIPPED, f"whether they are proved cannot be said here: {error}")
        verdict.not_checked.insert(0, "that no return can be below the floor or above the ceiling")
        return
    stated = _stated(setup, proved)
    wrong = _tighter(setup, proved) + _outside(certified[0], proved)
    for raw in certified:
        wrong += _unsaid(raw, stated)
    verdict.judge(CHECK, wrong, "; ".join(_described(setup, name, name in stated, proved.by) for name in LIMITS[:2]))
    if stated:
        verdict.not_checked.insert(0, f"what the user stated without a proof: {' and '.join(stated)}")


def proved_limits(setup: Mapping[str, Any]) -> Proved:
    """Return what is proved about the returns that a setup describes.

    Raises:
        ImportError: If what knows tasks and environments is not installed.
    """
    if not is_count(setup.get("block")):
        return Proved()  # precomputed returns: nobody knows where they are from
    from surefoot.play.floors import named_rules
    from surefoot.play.tasks import TASKS, discounted

    name, gamma = str(setup.get("task")), setup.get("discount")
    try:
        if name in TASKS:
            scoring = (TASKS[name] if gamma is None else discounted(TASKS[name], gamma)).scoring
            own = (scoring.floor, scoring.ceiling)
            return Proved(f"the task {name}", *own, own, scoring.reward_range or (None, None), is_task=True)
        made = {key: setup[key] for key in ("env_kwargs", "wrappers", "env_modules") if key in setup}
        environment = str(setup.get("environment"))
        rules = named_rules(environment, **made)
        if rules is None:
            return Proved()
        ends, tightest = rules.limits(setup["limit"], gamma), rules.tightest(setup["limit"], gamma)
        return Proved(f"the rules of {environment}", *ends, tightest, rules.rewards)
    except (InputError, KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        return Proved()  # a setup that cannot be run proves nothing; other checks say what is wrong with it


def _given(setup: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits that a setup has, by name."""
    return {name: setup[name] for name in LIMITS if setup.get(name) is not None}


def _stated(setup: Mapping[str, Any], proved: Proved) -> list[str]:
    """Return which limits of a setup nothing proves."""
    unproved = {"floor": proved.floor is None, "ceiling": proved.ceiling is None, "rewards": None in proved.rewards}
    return [name for name in _given(setup) if unproved[name]]


def _tighter(setup: Mapping[str, Any], proved: Proved) -> list[str]:
    """Return which limits claim more than is proved, and which are not those of the task."""
    rewards = setup.get("rewards")
    if proved.is_task:
        known: dict[str, Any] = {"floor": proved.floor, "ceiling": proved.ceiling}
        if rewards is not None:
            known["rewards"] = list(proved.rewards)
        return [
            f"{name} is {setup.get(name)!r}, {proved.by} has {value!r}"
            for name, value in known.items()
            if not same(setup.get(name), value)
        ]
    low, high = rewards if isinstance(rewards, list) and len(rewards) == 2 else (None, None)
    # What is claimed, what is proved, and whether more is claimed by a larger number.
    claims: tuple[tuple[str, Any, float | None, bool], ...] = (
        ("floor", setup.get("floor"), proved.tightest[0], True),
        ("ceiling", setup.get("ceiling"), proved.tightest[1], False),
        ("lowest reward", low, proved.rewards[0], True),
        ("highest reward", high, proved.rewards[1], False),
    )
    return [
        f"the {what} {claimed!r} claims more than {proved.by} prove, which allow {end:.9g}"
        for what, claimed, end, is_low in claims
        if end is not None and is_number(claimed) and (claimed > end if is_low else claimed < end)
    ]


def _outside(raw: Raw, proved: Proved) -> list[str]:
    """Return which returns are not possible by the rules, whatever floor and ceiling the setup states."""
    least, greatest = extremes(raw.returns)
    wrong = []
    if proved.floor is not None and least < proved.floor:
        wrong.append(f"a return is {least:.12g}, and {proved.by} allow none below {proved.floor:.12g}")
    if proved.ceiling is not None and greatest > proved.ceiling:
        wrong.append(f"a return is {greatest:.12g}, and {proved.by} allow none above {proved.ceiling:.12g}")
    return wrong


def _unsaid(raw: Raw, stated: list[str]) -> list[str]:
    """Return which limits a certificate relies on as if they were proved."""
    said = raw.certificate.get("stated_by_user", [])
    if not names_limits(said):
        return [f"{raw.name} says that {said!r:.60} was stated by the user, expected some of {', '.join(LIMITS)}"]
    return [
        f"nothing proves the {name} {raw.setup[name]!r}, and {raw.name} does not say that the user stated it"
        for name in stated
        if name not in said
    ]


def _described(setup: Mapping[str, Any], name: str, stated: bool, by: str) -> str:
    value = setup.get(name)
    if value is None:
        return f"no {name}"
    shown = f"{value:.12g}" if is_number(value) else repr(value)
    return f"{name} {shown} STATED BY THE USER, not proved" if stated else f"{name} {shown}: proved by {by}"
