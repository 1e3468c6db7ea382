"""Compares certificates with the files next to them: setup, hash, returns, arrays, bounds, estimate, sentence."""

from __future__ import annotations

import math
from typing import Any

from surefoot.episodes import check_arrays, checked_returns, mean_by_seed
from surefoot.errors import InputError
from surefoot.files import extremes, is_count, untrusted
from surefoot.play.independence import dependent_returns, repeated_blocks
from surefoot.verification.bounds import CHECKS
from surefoot.verification.plan_again import other_planner
from surefoot.verification.recompute.bands import CannotRecomputeError
from surefoot.verification.recompute.run_files import Raw, check_sums, close, differences, is_number, same
from surefoot.verification.recompute.sentences import write_sentence
from surefoot.verification.verdict import FAILED, IMPOSSIBLE, Verdict

# Fields of certificates that the setup has too.
_COPIED: tuple[str, ...] = ("sigma", "sigma_per_feature", "floor", "ceiling", "gamma", "max_steps")
_COPIED += ("task", "agent", "agent_sha256", "seed", "stochastic", "action_sigma", "draws_per_seed")
_COPIED += ("success", "features", "step_seconds", "luck")
_NEEDED = {"schema", "confidence", "n_episodes", "method", "record_sha256", "budgets", "lower", "upper", "statement"}
_NEEDED |= {"task", "agent", "agent_sha256", "seed", "sigma", "floor", "ceiling", "estimate", "estimate_sem"}
_OPTIONAL = {"gamma", "sigma_per_feature", "stochastic", "norm", "max_steps"}
_OPTIONAL |= {
    "stated_by_user",
    "action_sigma",
    "channel",
    "draws_per_seed",
    "luck",
    "success",
    "features",
    "step_seconds",
}
_NEEDED_BY_FILE = {
    "certificate.json": _NEEDED | {"joint_confidence", "threshold_spacing"},
    "shared.json": _NEEDED | {"kind", "n_shared_episodes", "certain", "n_pilot_episodes"},
    "per-step.json": _NEEDED | {"kind", "n_steps", "reward_range", "planner", "bets"},
}
_OPTIONAL_BY_FILE = {
    "certificate.json": _OPTIONAL
    | {"mixed", "probabilities", "quantiles", "cvars", "method_selection", "planner", "bets"},
    "shared.json": _OPTIONAL | {"planner"},
    "per-step.json": _OPTIONAL,
}


def check_record(raw: Raw, verdict: Verdict) -> bool:
    """Check the episode data and the files next to them; return whether bounds can be recomputed from the returns."""
    # Precomputed returns have no setup.json.
    is_precomputed = raw.run is not None and raw.run.get("played") is False
    if raw.written_setup is not None or (raw.run is not None and not is_precomputed):
        wrong = differences(raw.written_setup or {}, _expected_setup_file(raw))
        verdict.judge("setup.json and episode data", wrong, "the same setup")
    if raw.run is not None:
        wrong = differences({"agent": raw.run.get("agent_sha256")}, {"agent": raw.setup.get("agent_sha256")})
        verdict.judge("run.json and episode data", wrong, "the same agent")
    wrong = _check_returns(raw)
    independent, block = mean_by_seed(raw.returns, raw.setup)
    repeated = repeated_blocks(independent, block)
    verdict.judge("returns", wrong + repeated, "finite, within floor and ceiling, no repeated blocks")
    if not wrong and is_count(raw.setup.get("n_envs")):
        dependent = dependent_returns(independent, {**raw.setup, "block_size": block})
        verdict.judge("independence", dependent, "blocks, environments and their turns differ by chance only")
    wrong_arrays = _check_arrays(raw)
    verdict.judge("arrays", wrong_arrays, f"{', '.join(sorted(raw.arrays))}: of declared types, shapes and ranges")
    # A failed check is enough: of millions of invented returns nothing more need be computed.
    return not (wrong or repeated or wrong_arrays)


def check_claims(raw: Raw, verdict: Verdict, usable: bool, prefix: str = "") -> None:
    """Check everything in a certificate that the files alone can confirm or refute.

    Args:
        usable: Whether bounds can be recomputed from the returns.
        prefix: What the names of these checks begin with.
    """
    certificate = raw.certificate
    strange = sorted((set(certificate) - _OPTIONAL_BY_FILE[raw.name]) ^ _NEEDED_BY_FILE[raw.name])
    if strange:
        verdict.note(f"{prefix}fields", IMPOSSIBLE, f"missing or unknown: {', '.join(strange)}")
    n = raw.returns.size
    wrong_facts = _check_facts(raw)
    wrong_hash = _check_hash(raw)
    verdict.judge(f"{prefix}certificate and episode data", wrong_facts, f"{n} episodes, the same setup")
    verdict.judge(f"{prefix}hash of the episode data", wrong_hash, raw.sha256())
    unknown = other_planner(certificate)
    if unknown is not None:
        verdict.note(f"{prefix}choice", IMPOSSIBLE, unknown)
        if certificate.get("bets"):
            verdict.not_checked.insert(0, "that the bets were planned on earlier returns alone")
        if certificate["method"] == "auto":
            verdict.not_checked.insert(0, "that the method was selected on the pilot episodes alone")
    # Of other episodes than those the certificate is about nothing need be computed: there may be millions.
    if usable and not (wrong_facts or wrong_hash):
        _check_bounds(raw, verdict, prefix)
        verdict.judge(f"{prefix}estimate", _check_estimate(raw), "the mean return and its standard error")
    wrong = []
    if certificate.get("statement") != write_sentence(raw.name, certificate):
        wrong.append("it does not follow from the fields")
    verdict.judge(f"{prefix}sentence", wrong, "it agrees with the fields")


def _check_bounds(raw: Raw, verdict: Verdict, prefix: str) -> None:
    wrong = []
    try:
        for check in CHECKS[raw.name]:
            wrong += check(raw)
    # A certificate may have anything in any field.
    except (CannotRecomputeError, TypeError, ValueError, LookupError, ArithmeticError) as error:
        result = FAILED if wrong else IMPOSSIBLE
        verdict.note(f"{prefix}bounds", result, "; ".join([*wrong, str(error)]))
        return
    verdict.judge(f"{prefix}bounds", wrong, f"recomputed from the returns, method {raw.certificate['method']}")


def _expected_setup_file(raw: Raw) -> dict[str, Any]:
    """Return what setup.json must have: the setup of the episodes and, of a sequential run, its goal."""
    expected = {"schema": 1, **raw.setup}
    choice = raw.certificate.get("method_selection")
    if raw.certificate.get("method") == "sequential" and isinstance(choice, dict):
        expected["sequential"] = True
        expected["goal"] = {key: value for key, value in choice.items() if key != "stopped"}
    return expected


def _check_hash(raw: Raw) -> list[str]:
    claimed = raw.certificate.get("record_sha256")
    found = raw.sha256()
    if claimed != found:
        return [f"the certificate names episode data {claimed!r}, the file has {found!r}"]
    return []


def _check_facts(raw: Raw) -> list[str]:
    """Return where a certificate states another setup or number of episodes than its episode data have."""
    certificate = raw.certificate
    setup = raw.setup
    stated = {name: certificate.get(name) for name in _COPIED}
    wrong = differences(stated, {name: setup.get(name) for name in _COPIED})
    n = raw.returns.size
    if not same(certificate.get("n_episodes"), n):
        wrong.append(f"n_episodes is {certificate.get('n_episodes')!r}, the episode data have {n} returns")
    planned = setup.get("n_planned", n)
    if not same(planned, n) and not _may_have_stopped(raw):
        wrong.append(f"{planned!r} episodes were planned, the episode data have {n} returns")
    wrong += check_noise(setup) + check_draws(raw)
    channel = _channel_of(setup)
    if certificate.get("channel") != channel:
        wrong.append(f"the channel is {certificate.get('channel')!r:.60}, by the noise it is {channel!r}")
    if setup.get("attacker") is not None or check_budgets_used(raw):
        wrong.append("the episodes were attacked")
    return wrong


def check_noise(setup: dict[str, Any]) -> list[str]:
    """Return what is wrong with the noise of a setup, in which budgets are measured."""
    wrong = []
    features = setup.get("sigma_per_feature")
    if features is not None and not _is_smallest_sigma(setup.get("sigma"), features):
        wrong.append(f"sigma {setup.get('sigma')!r} is not the smallest sigma of the features {features!r:.200}")
    on_actions = setup.get("action_sigma")
    if on_actions is not None and not (is_number(on_actions) and on_actions > 0):
        wrong.append(f"action_sigma is {on_actions!r:.60}, expected a number > 0 or none")
    return wrong


def check_draws(raw: Raw) -> list[str]:
    """Return whether episodes that share the seed of the environment are taken for independent ones, or the reverse."""
    n_draws = raw.setup.get("draws_per_seed", 1)
    is_nested = raw.name == "certificate.json" and raw.certificate.get("method") == "nested"
    if is_nested == (n_draws != 1):
        return []
    method = raw.certificate.get("method")
    return [f"bounds of {raw.name} by the method {method!r:.40} are not about {n_draws!r:.40} draws per seed"]


def check_budgets_used(raw: Raw) -> list[str]:
    """Return whether budgets used are recorded of episodes that nobody attacked."""
    booked = sorted({"budget_used", "budget_used_per_step"} & raw.arrays.keys())
    if raw.setup.get("attacker") is not None or not booked:
        return []
    return [f"there is {' and '.join(booked)}, and nobody attacked"]


def _channel_of(setup: dict[str, Any]) -> str | None:
    """Return what may be attacked by the noise of a setup; None where that is observations alone, as usual."""
    if not setup.get("action_sigma"):
        return None
    if not setup.get("sigma"):
        return "actions"
    return "observations and actions"


def _is_smallest_sigma(sigma: Any, features: Any) -> bool:
    """Whether sigma is the smallest of several sigmas that differ; budgets are measured in it. 0 means no noise."""
    if not isinstance(features, list) or not all(is_number(one) and one >= 0 for one in features):
        return False
    positive = [one for one in features if one > 0]
    return len(set(features)) > 1 and same(min(positive), sigma)


def _may_have_stopped(raw: Raw) -> bool:
    """Whether a run may have ended before all that was planned: an anytime-valid method, after a whole block."""
    block = raw.setup.get("block_size")
    planned = raw.setup.get("n_planned")
    if raw.certificate.get("method") != "sequential" or not is_count(block) or not is_count(planned):
        return False
    n = raw.returns.size
    return n < planned and n % block == 0


def _check_returns(raw: Raw) -> list[str]:
    floor = raw.setup.get("floor")
    ceiling = raw.setup.get("ceiling")
    if not is_number(floor) or not (ceiling is None or is_number(ceiling)):
        return [f"floor {floor!r:.60} and ceiling {ceiling!r:.60} are no numbers"]
    try:
        checked_returns(raw.returns, floor, ceiling)
    except InputError as error:
        return [str(error)]
    return []


def _check_arrays(raw: Raw) -> list[str]:
    """Return what is wrong with the arrays: their names, types, shapes and ranges, and what rewards add up to."""
    try:
        with untrusted("episodes.npz", "record of episodes"):
            check_arrays("episodes.npz", raw.arrays, raw.setup)
            return check_sums(raw)
    except InputError as error:
        return [str(error)]


def _check_estimate(raw: Raw) -> list[str]:
    """Compare the mean return and its standard error, both with exact sums."""
    returns = raw.returns
    n = returns.size
    mean = math.fsum(returns.tolist()) / n
    least, greatest = extremes(returns)
    within = 1e-9 * max(1e-300, abs(least), abs(greatest))
    wrong = []
    if not close(raw.certificate.get("estimate"), mean, within):
        wrong.append(f"the mean return is {mean:.9g}")
    stated = raw.certificate.get("estimate_sem")
    # Episodes of one seed depend on each other.
    independent, _ = mean_by_seed(returns, raw.setup)
    n = independent.size
    if n == 1:
        if stated is not None:
            wrong.append("a single episode has no standard error")
        return wrong
    squares = math.fsum(((independent - mean) ** 2).tolist())
    standard_error = math.sqrt(squares / (n - 1) / n)
    if not close(stated, standard_error, within):
        wrong.append(f"its standard error is {standard_error:.9g}")
    return wrong
