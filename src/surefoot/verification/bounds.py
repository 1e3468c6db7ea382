"""Compares the bounds of each kind of certificate with those that its returns give: ``CHECKS``."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from surefoot.episodes import MOST_ASKED, MOST_BOUNDED, MOST_EPISODES, MOST_THRESHOLDS
from surefoot.files import extremes, is_count
from surefoot.verification.plan_again import (
    check_choice,
    is_planned,
    other_planner,
    plan_shared,
    recompute_bets,
    recompute_group_bets,
    recompute_luck_bets,
    recompute_step_bets,
)
from surefoot.verification.recompute.auto import chosen_method, recompute_auto
from surefoot.verification.recompute.bands import CannotRecomputeError, Claim, Side, recompute
from surefoot.verification.recompute.distribution import KINDS, compare_distribution
from surefoot.verification.recompute.run_files import Raw, close, is_number, same
from surefoot.verification.recompute.sequential import check_stop, read_stop
from surefoot.verification.recompute.shared_budget import SHARED_METHODS, SharedClaim, pilot_of, recompute_shared
from surefoot.verification.recompute.step_budget import StepRewards
from surefoot.verification.recompute.sums import recompute_sums

# Returns what is wrong, in words; raises CannotRecomputeError where that cannot be said.
Check = Callable[[Raw], list[str]]
# On the safe side: bounds are rounded outward by 1e-9 of the range of the returns, and computed by other formulas here.
_ROUNDING = 1e-7
# On the unsafe side nothing is allowed but the rounding of a float.
_UNSAFE = 1e-15
_NORM_FIELDS = {"name", "budgets", "coordinates", "observations", "factor"}


def check_episode_bounds(raw: Raw) -> list[str]:
    """Check the bounds for a budget per episode, and the choices that they rest on."""
    certificate = raw.certificate
    claim = read_claim(certificate)
    choice = certificate.get("method_selection")
    bets = certificate.get("bets")
    other = other_planner(certificate)
    wrong = []
    method = claim.method
    if claim.method == "auto":
        method = chosen_method(raw.returns.size, choice)
        if other is None:
            declared = bool(raw.setup.get("binary"))
            features = raw.arrays.get("luck")
            wrong += check_choice(raw.returns, claim, choice, declared=declared, features=features)
    elif choice is not None and method != "sequential":
        wrong.append(f"the method {method} selects no method, but a choice is recorded")
    bettings = ("betting", "sequential", "nested", "luck")
    if method in bettings:
        lower, upper, unplanned = _recompute_betting(raw, claim, method)
        if other and unplanned:
            raise CannotRecomputeError(f"the bets differ from those planned here: {other}")
        wrong += unplanned
    elif claim.method == "auto":
        lower, upper = recompute_auto(raw.returns, claim, choice)
    else:
        lower, upper = recompute(raw.returns, claim)
    if bets is not None and method not in bettings:
        wrong.append(f"the method {method} makes no bets, but bets are recorded")
    return wrong + _compare_bounds(raw, claim, lower, upper)


def _recompute_betting(raw: Raw, claim: Claim, method: str) -> tuple[Side, Side | None, list[str]]:
    """Return lower and upper bounds of a method that bets, and where its bets are not those planned here."""
    bets = raw.certificate.get("bets")
    if method == "nested":
        return recompute_group_bets(raw.returns, raw.setup.get("draws_per_seed"), claim, bets)
    if method == "luck":
        if "luck" not in raw.arrays:
            raise CannotRecomputeError("the episode data do not say what was known at reset")
        return recompute_luck_bets(raw.returns, raw.arrays["luck"], claim, bets)
    choice = raw.certificate.get("method_selection")
    stop = None
    if method == "sequential":
        stop = read_stop(choice, claim.budgets)
    # returns that have selected the method are not bet on
    n_inspected = 0
    if claim.method == "auto":
        assert choice is not None
        n_inspected = choice["pilot"]
    return recompute_bets(raw.returns, claim, bets, stop, n_inspected=n_inspected)


def check_shared_bounds(raw: Raw) -> list[str]:
    """Check the bounds for a budget that several episodes share."""
    certificate = raw.certificate
    claim = read_claim(certificate)
    n_shared = certificate.get("n_shared_episodes")
    certain = certificate.get("certain")
    if certificate.get("kind") != "shared" or not is_count(n_shared) or not isinstance(certain, bool):
        raise CannotRecomputeError(
            f"kind {certificate.get('kind')!r}, shared by {n_shared!r}, certain {certain!r:.40}: not computed here"
        )
    least, most = extremes(raw.returns)
    if least < claim.floor or (claim.ceiling is not None and most > claim.ceiling):
        raise CannotRecomputeError(f"returns from {least:g} to {most:g} are not between floor and ceiling")
    if certain:
        return _check_sum_bounds(raw, claim, n_shared)
    if claim.method not in SHARED_METHODS:
        raise CannotRecomputeError(f"the method {claim.method!r} of a shared budget is not computed here")
    is_binary = claim.ceiling is not None and bool(np.isin(raw.returns, (claim.floor, claim.ceiling)).all())
    if claim.method == "binary" and not is_binary:
        raise CannotRecomputeError("the binary method allows only the returns floor and ceiling")
    costs = tuple(radius**2 / (2 * n_shared) for radius in claim.scaled_budgets)
    shared = SharedClaim(claim.method, claim.alpha, claim.floor, claim.ceiling, costs)
    lower, upper = recompute_shared(raw.returns, shared, plan_shared)
    upper_side = None if upper is None else Side(upper, upper)
    wrong = _compare_bounds(raw, claim, Side(lower, lower), upper_side)
    n_pilot = pilot_of(raw.returns.size) if claim.method == "betting" else 0
    if not same(certificate.get("n_pilot_episodes"), n_pilot):
        wrong.append(f"there are {n_pilot} pilot episodes")
    return wrong


def _check_sum_bounds(raw: Raw, claim: Claim, n_shared: int) -> list[str]:
    """Check the bounds for a certain budget that several episodes share."""
    if claim.method not in ("band", "binary") or n_shared > MOST_EPISODES:
        raise CannotRecomputeError(f"the method {claim.method!r} for sums of {n_shared} episodes is not computed here")
    lower, upper = recompute_sums(raw.returns, claim, n_shared)
    wrong = _compare_bounds(raw, claim, lower, upper)
    if not same(raw.certificate.get("n_pilot_episodes"), 0):
        wrong.append("there are no pilot episodes")
    return wrong


def check_step_bounds(raw: Raw) -> list[str]:
    """Check the bounds for a budget per step."""
    certificate = raw.certificate
    claim = read_claim(certificate)
    if certificate.get("kind") != "per-step" or claim.method != "per-step":
        raise CannotRecomputeError(f"kind {certificate.get('kind')!r}, method {claim.method!r}: not computed here")
    if "reward_values" not in raw.arrays:
        raise CannotRecomputeError("the episode data have no rewards of each step")
    low, high = certificate.get("reward_range") or (None, None)
    if not (is_number(low) and is_number(high) and low <= 0 <= high and low < high):
        raise CannotRecomputeError(f"rewards from {low!r:.60} to {high!r:.60} are no range that contains 0")
    if not same([low, high], raw.setup.get("reward_range")):
        raise CannotRecomputeError(f"reward_range {[low, high]}, the setup has {raw.setup.get('reward_range')!r:.60}")
    n_steps = raw.setup["max_steps"]
    steps = StepRewards(
        values=raw.arrays["reward_values"],
        repeats=raw.arrays["reward_repeats"],
        lengths=raw.arrays["lengths"],
        n_steps=n_steps,
        low=float(low),
        high=float(high),
    )
    # Of all steps together, in sigmas: e sqrt(T) / sigma.
    unit = claim.sigma / math.sqrt(n_steps)
    # No return is outside of what all rewards add up to, nor of what was stated of it.
    floor = max(claim.floor, n_steps * steps.low)
    ceiling = n_steps * steps.high
    if claim.ceiling is not None:
        ceiling = min(ceiling, claim.ceiling)
    if not floor < ceiling:
        raise CannotRecomputeError(f"no return can be from {floor:g} to {ceiling:g}")
    whole = replace(claim, sigma=unit, floor=floor, ceiling=ceiling)
    lower, upper, unplanned = recompute_step_bets(steps, whole, certificate.get("bets"))
    other = other_planner(certificate)
    if other and unplanned:
        raise CannotRecomputeError(f"the bets differ from those planned here: {other}")
    lower = Side(*(np.maximum(side, claim.floor) for side in (lower.best, lower.least)))
    upper_side = None
    if claim.ceiling is not None:
        upper_side = Side(*(np.minimum(side, claim.ceiling) for side in (upper.best, upper.least)))
    wrong = unplanned + _compare_bounds(raw, claim, lower, upper_side)
    if not same(certificate.get("n_steps"), n_steps):
        wrong.append(f"there are {n_steps} steps")
    return wrong


def check_distribution(raw: Raw) -> list[str]:
    """Check the probabilities, quantiles and CVaR that were asked for."""
    return compare_distribution(raw, read_claim(raw.certificate))


def check_joint_confidence(raw: Raw) -> list[str]:
    """Check the confidence of lower and upper bounds together: a union bound, but for two-sided DKW bands."""
    claim = read_claim(raw.certificate)
    alpha = claim.alpha if claim.method == "dkw" else 2 * claim.alpha
    expected = max(0.0, 1 - alpha)
    stated = raw.certificate.get("joint_confidence")
    if close(stated, expected, 1e-12):
        return []
    return [f"joint_confidence is {stated!r}, expected {expected:.12g}"]


def check_planner(raw: Raw) -> list[str]:
    """Check that no planner is named where nothing is planned, and so nothing is compared with its plans."""
    planner = raw.certificate.get("planner")
    if planner is None or is_planned(raw.certificate):
        return []
    return [f"the planner is {planner!r:.60}, but the method {raw.certificate['method']} plans nothing"]


def check_norm(raw: Raw) -> list[str]:
    """Check that the l2 budgets include the budgets of another norm that were asked for."""
    norm = raw.certificate.get("norm")
    if norm is None:
        return []
    if raw.certificate.get("action_sigma") and raw.certificate.get("sigma"):
        return ["observations and actions have noise, and no norm but l2 puts perturbations of both together"]
    if not isinstance(norm, dict) or set(norm) != _NORM_FIELDS:
        raise CannotRecomputeError("the norm must have its name, budgets, coordinates, observations and factor")
    max_steps = raw.setup.get("max_steps")
    n_observations = None
    if raw.name == "per-step.json":
        n_observations = 1
    elif is_count(max_steps):
        n_observations = max_steps * raw.certificate.get("n_shared_episodes", 1)
    if norm["name"] not in ("l1", "linf") or not same(norm["observations"], n_observations):
        return [f"the norm {norm['name']!r} over {norm['observations']!r} observations is not that of the setup"]
    # |x|_2 <= |x|_1, and |x|_2 <= sqrt(number of coordinates) |x|_inf
    factor = 1.0
    if norm["name"] == "linf":
        if not is_count(norm["coordinates"]) or n_observations is None:
            return ["an l-infinity norm needs the number of coordinates"]
        factor = math.sqrt(norm["coordinates"] * n_observations)
    wrong = ["the l2 budgets do not follow from the norm"]
    given = norm["budgets"]
    used = raw.certificate["budgets"]
    if not isinstance(given, list) or len(given) != len(used) or not close(norm["factor"], factor, 1e-9 * factor):
        return wrong
    for budget, l2_budget in zip(given, used, strict=True):
        if not is_number(budget) or not factor * budget <= l2_budget <= factor * budget * (1 + 1e-9):
            return wrong
    return []


def check_mixed(raw: Raw) -> list[str]:
    """Check that budgets for observations and actions together are the root of the sum of their scaled squares."""
    pairs = raw.certificate.get("mixed")
    if pairs is None:
        return []
    certificate = raw.certificate
    divisor = divisor_of_budgets(certificate)
    sigmas = {"observations": float(certificate["sigma"]), "actions": float(certificate.get("action_sigma", 0.0))}
    if not isinstance(pairs, list) or len(pairs) != len(certificate["budgets"]):
        return ["mixed must have a pair for every budget"]
    wrong = []
    for pair, budget in zip(pairs, certificate["budgets"], strict=True):
        if not isinstance(pair, dict) or set(pair) != set(sigmas) or not all(map(_is_budget, pair.values())):
            return [f"{pair!r:.100} is no pair of budgets for observations and actions"]
        squares = 0.0
        for name, sigma in sigmas.items():
            # Without noise nothing may be perturbed.
            if pair[name] > 0 and sigma == 0:
                wrong.append(f"there is a budget of {pair[name]:g} for {name}, which have no noise")
            elif pair[name] != 0:
                squares += (pair[name] * divisor / sigma) ** 2
        if not close(budget, math.sqrt(squares), 1e-12 * budget):
            wrong.append(f"the budget {budget!r} is not that of {pair!r:.100}")
    return wrong


# What is checked of the bounds of each certificate, by its file.
CHECKS: dict[str, tuple[Check, ...]] = {
    "certificate.json": (
        check_episode_bounds,
        check_stop,
        check_distribution,
        check_joint_confidence,
        check_planner,
        check_norm,
        check_mixed,
    ),
    "shared.json": (check_shared_bounds, check_planner, check_norm),
    "per-step.json": (check_step_bounds, check_norm),
}


def divisor_of_budgets(certificate: dict[str, Any]) -> float:
    """Return what budgets are divided by: the only sigma; 1 where observations and actions have one each."""
    on_actions = certificate.get("action_sigma", 0.0)
    if not is_number(on_actions):
        raise CannotRecomputeError(f"action_sigma is {on_actions!r:.60}, expected a number")
    sigmas = [sigma for sigma in (float(certificate["sigma"]), float(on_actions)) if sigma != 0]
    if min(sigmas, default=0.0) < 0:
        raise CannotRecomputeError(f"the sigmas {sigmas} must not be below 0")
    if len(sigmas) == 2:
        return 1.0
    return sum(sigmas)


def read_claim(certificate: dict[str, Any]) -> Claim:
    """Return what the bounds are said to be computed from.

    Raises:
        CannotRecomputeError: If that is not valid, or more than any certificate has.
    """
    for name in ("confidence", "sigma", "floor"):
        if not is_number(certificate.get(name)):
            raise CannotRecomputeError(f"{name} is {certificate.get(name)!r:.60}, expected a number")
    confidence = float(certificate["confidence"])
    sigma = divisor_of_budgets(certificate)
    floor = float(certificate["floor"])
    if not (0 < confidence < 1 and sigma > 0):
        raise CannotRecomputeError(f"confidence {confidence} and sigma {sigma} do not allow a certificate")
    budgets = certificate.get("budgets")
    if not isinstance(budgets, list) or not budgets or not all(map(_is_budget, budgets)):
        raise CannotRecomputeError(f"budgets are {budgets!r:.200}, expected numbers >= 0")
    n_asked = 0
    for name in ("budgets", *KINDS):
        asked = certificate.get(name)
        if not isinstance(asked, list):
            continue
        if len(asked) > MOST_ASKED:
            raise CannotRecomputeError(f"there are {len(asked)} {name}, expected at most {MOST_ASKED}")
        if name in KINDS:
            n_asked += len(asked)
    if n_asked * len(budgets) > MOST_BOUNDED:
        raise CannotRecomputeError(
            f"there are {n_asked} {', '.join(KINDS)} at {len(budgets)} budgets, expected at most {MOST_BOUNDED} bounds"
        )
    ceiling: Any = certificate.get("ceiling")
    step: Any = certificate.get("threshold_spacing")
    if not (ceiling is None or is_number(ceiling)) or not (step is None or is_number(step)):
        raise CannotRecomputeError(f"ceiling is {ceiling!r} and threshold_spacing {step!r}, expected numbers or null")
    if ceiling is not None and not ceiling > floor:
        raise CannotRecomputeError(f"the ceiling {ceiling!r} is not above the floor {floor!r}")
    method = str(certificate.get("method"))
    # As a share of the range: a count of thresholds with a tiny spacing would overflow.
    finest = 0.0 if ceiling is None else (ceiling - floor) / MOST_THRESHOLDS
    if method == "per-threshold" and step is not None and step < finest:
        raise CannotRecomputeError(
            f"a threshold spacing of {step!r} from {floor} to {ceiling} makes more than {MOST_THRESHOLDS} thresholds"
        )
    return Claim(method, 1 - confidence, sigma, floor, ceiling, tuple(map(float, budgets)), step)


def _is_budget(value: Any) -> bool:
    return is_number(value) and value >= 0


def _compare_bounds(raw: Raw, claim: Claim, lower: Side, upper: Side | None) -> list[str]:
    """Return where the bounds of a certificate are not those that were recomputed."""
    least, most = extremes(raw.returns)
    top = most if claim.ceiling is None else claim.ceiling
    floats = 1e-14 * max(abs(claim.floor), abs(top))
    claimed: Any = raw.certificate.get("lower")
    wrong = _compare_side("lower", claimed, lower, _ROUNDING * (most - claim.floor) + floats, 1, claim)
    if not wrong and max(claimed) > most:
        wrong.append(f"a lower bound is above the largest return, {most:g}")
    claimed = raw.certificate.get("upper")
    if upper is not None:
        wrong += _compare_side("upper", claimed, upper, _ROUNDING * (top - least) + floats, -1, claim)
    elif claimed is not None:
        wrong.append("there are upper bounds without a ceiling")
    return wrong


def _compare_side(name: str, claimed: Any, found: Side, loose: float, sign: int, claim: Claim) -> list[str]:
    """Return at which budgets a bound is better than the returns allow, or not the one the method gives.

    Args:
        loose: By how much a bound may be worse than the least that the method would have claimed.
        sign: 1 where larger bounds claim more, -1 where smaller ones do.
    """
    if not isinstance(claimed, list) or len(claimed) != len(claim.budgets) or not all(map(is_number, claimed)):
        return [f"{name} must contain one number per budget"]
    wrong = []
    for budget, value, best, least in zip(claim.budgets, claimed, found.best, found.least, strict=True):
        if sign * (value - best) > _UNSAFE * max(abs(best), abs(claim.floor)):
            wrong.append(f"at budget {budget:g} {name} is {value!r}, the returns prove no better than {best:.9g}")
        elif sign * (least - value) > loose:
            wrong.append(f"at budget {budget:g} {name} is {value!r}, the method gives {best:.9g}")
    return wrong
