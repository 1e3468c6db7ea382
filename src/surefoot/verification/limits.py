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
    """What is proved about the returns of a setup."""

    by: str = ""  # what proves it, in words; empty where nothing does
    floor: float | None = None  # no return is below it; None if nothing is proved
    ceiling: float | None = None  # no return is above it; None if nothing is proved
    # The same two without room for the rounding of sums, for what setups may state.
    tightest: tuple[float | None, float | None] = (None, None)
    # Lowest and highest reward of a step; None where nothing is proved.
    rewards: tuple[float | None, float | None] = (None, None)
    is_task: bool = False  # whether this is one of our own tasks, whose setups have exactly these limits


def check_limits(certified: list[Raw], verdict: Verdict) -> None:
    """Check that floor and ceiling claim no more than is proved, and that certificates name those nothing proves."""
    setup = certified[0].setup
    try:
        proved = proved_limits(setup)
    except ImportError as error:
        verdict.note(CHECK, SKIPPED, f"whether they are proved is known only with the extra 'play': {error}")
        verdict.not_checked.insert(0, "that no return can be below the floor or above the ceiling")
        return
    stated = _unproved_limits(setup, proved)
    wrong = _check_tightness(setup, proved) + _check_returns_possible(certified[0], proved)
    for raw in certified:
        wrong += _check_stated(raw, stated)
    described = [_describe_limit(setup, name, name in stated, proved.by) for name in ("floor", "ceiling")]
    verdict.judge(CHECK, wrong, "; ".join(described))
    if stated:
        verdict.not_checked.insert(0, f"what the user stated without a proof: {' and '.join(stated)}")


def proved_limits(setup: Mapping[str, Any]) -> Proved:
    """Return what is proved about the returns that a setup describes.

    Raises:
        ImportError: If what knows tasks and environments is not installed.
    """
    if not is_count(setup.get("block_size")):
        # Precomputed returns: nobody knows where they are from.
        return Proved()
    from surefoot.play.floors import named_rules
    from surefoot.play.tasks import TASKS, discounted

    name = str(setup.get("task"))
    gamma = setup.get("gamma")
    try:
        if name in TASKS:
            task = TASKS[name]
            if gamma is not None:
                task = discounted(task, gamma)
            limits = (task.scoring.floor, task.scoring.ceiling)
            rewards = task.scoring.reward_range or (None, None)
            return Proved(f"the task {name}", *limits, tightest=limits, rewards=rewards, is_task=True)
        environment = str(setup.get("environment"))
        made = {key: setup[key] for key in ("env_kwargs", "wrappers", "env_modules", "success") if key in setup}
        rules = named_rules(environment, **made)
        if rules is None:
            return Proved()
        max_steps = setup["max_steps"]
        tightest = rules.tightest(max_steps, gamma)
        by = f"the rules of {environment}"
        if "success" in made:
            by = f"a return that is 1 for an episode with the success {made['success']!s:.60} and 0 for others"
        return Proved(by, *rules.limits(max_steps, gamma), tightest, rules.rewards)
    except (InputError, KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        # A setup that cannot be run proves nothing; other checks say what is wrong with it.
        return Proved()


def _unproved_limits(setup: Mapping[str, Any], proved: Proved) -> list[str]:
    """Return which limits of a setup nothing proves."""
    unproved = {
        "floor": proved.floor is None,
        "ceiling": proved.ceiling is None,
        "reward_range": None in proved.rewards,
    }
    return [name for name in LIMITS if setup.get(name) is not None and unproved[name]]


def _check_tightness(setup: Mapping[str, Any], proved: Proved) -> list[str]:
    """Return which limits claim more than is proved, and which are not those of the task."""
    rewards = setup.get("reward_range")
    wrong = []
    if proved.is_task:
        known: dict[str, Any] = {"floor": proved.floor, "ceiling": proved.ceiling}
        if rewards is not None:
            known["reward_range"] = list(proved.rewards)
        for name, value in known.items():
            if not same(setup.get(name), value):
                wrong.append(f"{name} is {setup.get(name)!r}, {proved.by} has {value!r}")
        return wrong
    if not isinstance(rewards, list) or len(rewards) != 2:
        rewards = [None, None]
    # A low end that is higher than what is proved claims more, and a high end that is lower.
    low_ends = (("floor", setup.get("floor"), proved.tightest[0]), ("lowest reward", rewards[0], proved.rewards[0]))
    high_ends = (
        ("ceiling", setup.get("ceiling"), proved.tightest[1]),
        ("highest reward", rewards[1], proved.rewards[1]),
    )
    for ends, sign in ((low_ends, 1), (high_ends, -1)):
        for what, claimed, end in ends:
            if end is not None and is_number(claimed) and sign * claimed > sign * end:
                wrong.append(f"the {what} {claimed!r} claims more than {proved.by} prove, which allow {end:.9g}")
    return wrong


def _check_returns_possible(raw: Raw, proved: Proved) -> list[str]:
    """Return which returns are not possible by the rules, whatever floor and ceiling the setup states."""
    least, greatest = extremes(raw.returns)
    wrong = []
    if proved.floor is not None and least < proved.floor:
        wrong.append(f"a return is {least:.12g}, and {proved.by} allow none below {proved.floor:.12g}")
    if proved.ceiling is not None and greatest > proved.ceiling:
        wrong.append(f"a return is {greatest:.12g}, and {proved.by} allow none above {proved.ceiling:.12g}")
    return wrong


def _check_stated(raw: Raw, stated: list[str]) -> list[str]:
    """Return which limits a certificate relies on as if they were proved."""
    said = raw.certificate.get("stated_by_user", [])
    if not names_limits(said):
        return [f"{raw.name} says that {said!r:.60} was stated by the user, expected some of {', '.join(LIMITS)}"]
    unsaid = [name for name in stated if name not in said]
    ending = f"and {raw.name} does not say that the user stated it"
    return [f"nothing proves the {name} {raw.setup[name]!r}, {ending}" for name in unsaid]


def _describe_limit(setup: Mapping[str, Any], name: str, stated: bool, by: str) -> str:
    value = setup.get(name)
    if value is None:
        return f"no {name}"
    shown = f"{value:.12g}" if is_number(value) else repr(value)
    if stated:
        return f"{name} {shown} STATED BY THE USER, not proved"
    return f"{name} {shown}: proved by {by}"
