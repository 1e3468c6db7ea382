"""Compares a certificate with its episode data: setup, hash, returns, bounds, estimate, sentence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.episodes import LARGEST, MOST_ASKED, MOST_THRESHOLDS
from surefoot.files import extremes, is_count
from surefoot.play.independence import dependent_returns, repeated_blocks
from surefoot.verification.plan_again import check_choice, other_planner, plan_shared, recompute_bets
from surefoot.verification.recompute.auto import chosen_method, recompute_auto
from surefoot.verification.recompute.bands import CannotRecomputeError, Claim, Side, recompute
from surefoot.verification.recompute.distribution import compare_distribution
from surefoot.verification.recompute.run_files import Raw, close, differences, is_number, misshapen, same
from surefoot.verification.recompute.sentences import sentence
from surefoot.verification.recompute.shared_budget import METHODS as SHARED_METHODS
from surefoot.verification.recompute.shared_budget import SharedClaim, pilot_of, recompute_shared
from surefoot.verification.recompute.step_budget import recompute_per_step
from surefoot.verification.recompute.stops_and_norms import check_norm, check_stop, stop_for
from surefoot.verification.verdict import IMPOSSIBLE, Verdict

ALL = {
    *(
        "schema",
        "task",
        "agent",
        "agent_sha256",
        "seed",
        "sigma",
        "confidence",
        "n_episodes",
        "method",
        "record_sha256",
    ),
    *("floor", "ceiling", "budgets", "lower", "upper", "estimate", "estimate_sem", "statement"),
}
FIELDS = {
    "certificate.json": ALL | {"joint_confidence", "threshold_spacing"},
    "shared.json": ALL | {"kind", "n_shared_episodes", "n_pilot_episodes"},
    "per-step.json": ALL | {"kind", "n_steps", "reward_range"},
}
# On the safe side: bounds are rounded outward by 1e-9 of the range of the returns (by older versions, of the whole
# range), and computed by other formulas here. On the unsafe side nothing is allowed but the rounding of a float.
_ROUNDING, _OLD_ROUNDING, _UNSAFE = 1e-7, 2e-9, 1e-15


def check_record(raw: Raw, verdict: Verdict) -> bool:
    """Check the episode data and the files next to them; without usable returns nothing can be recomputed."""
    given = raw.run is not None and raw.run.get("played") is False  # precomputed returns have no setup.json
    if raw.written_setup is not None or (raw.run is not None and not given):
        wrong = differences(dict(raw.written_setup or {}), {"schema": 1, **raw.setup, **_ending(raw)})
        verdict.judge("setup.json and episode data", wrong, "the same setup")
    if raw.run is not None:
        wrong = differences({"agent": raw.run.get("agent_sha256")}, {"agent": raw.setup.get("agent_sha256")})
        verdict.judge("run.json and episode data", wrong, "the same agent")
    return _check_returns(raw, verdict)


def _ending(raw: Raw) -> dict[str, Any]:
    """Return what setup.json of a sequential run has besides the setup: the goal that the certificate states."""
    if raw.certificate.get("method") != "sequential" or "sequential" not in (raw.written_setup or {}):
        return {}
    choice = raw.certificate.get("method_selection")
    goal = {key: value for key, value in (choice or {}).items() if key != "stopped"} if choice else None
    # Directories written before the goal was part of the setup do not have it.
    return {"sequential": True, **({"goal": goal} if "goal" in (raw.written_setup or {}) else {})}


def check_claims(raw: Raw, verdict: Verdict, usable: bool, prefix: str = "") -> None:
    """Check everything in a certificate that the files alone can confirm or refute."""
    optional = {
        "gamma",
        "sigma_per_feature",
        "stochastic",
        "norm",
        "method_selection",
        "bets",
        "planner",
        "max_steps",
        "stated_by_user",
        *(("probabilities", "quantiles") if raw.name == "certificate.json" else ()),
    }
    strange = sorted((set(raw.certificate) - optional) ^ FIELDS[raw.name])
    if strange:
        verdict.note(f"{prefix}fields", IMPOSSIBLE, f"missing or unknown: {', '.join(strange)}")
    verdict.judge(f"{prefix}certificate and episode data", _facts(raw), f"{raw.returns.size} episodes, the same setup")
    claimed, found = raw.certificate.get("record_sha256"), raw.sha256()
    wrong = [] if claimed == found else [f"the certificate names episode data {claimed!r}, the file has {found!r}"]
    verdict.judge(f"{prefix}hash of the episode data", wrong, found)
    if "max_steps" not in raw.certificate and raw.setup.get("limit") is not None:
        verdict.not_checked.insert(0, f"that episodes are cut off after {raw.setup['limit']!r} steps is not stated")
    unknown = other_planner(raw.certificate)
    if unknown is not None:
        verdict.note(f"{prefix}choice", IMPOSSIBLE, unknown)
        verdict.not_checked[:0] = _unplanned(raw.certificate)
    if usable:
        try:
            wrong = COMPARE[raw.name](raw) + check_norm(raw)
            verdict.judge(f"{prefix}bounds", wrong, f"recomputed from the returns, method {raw.certificate['method']}")
        except (CannotRecomputeError, TypeError, ValueError, KeyError, ArithmeticError) as error:
            verdict.note(f"{prefix}bounds", IMPOSSIBLE, str(error))
        verdict.judge(f"{prefix}estimate", _estimate(raw), "the mean return and its standard error")
    wrong = (
        []
        if raw.certificate.get("statement") == sentence(raw.name, raw.certificate)
        else ["it does not follow from the fields"]
    )
    verdict.judge(f"{prefix}sentence", wrong, "it agrees with the fields")


def _unplanned(certificate: dict[str, Any]) -> list[str]:
    """Describe what stays unknown where the planner cannot be re-run."""
    method = ["that the method was selected on the pilot episodes alone"] if certificate["method"] == "auto" else []
    return method + (["that the bets were planned on earlier returns alone"] if certificate.get("bets") else [])


def _facts(raw: Raw) -> list[str]:
    certificate, setup, count = raw.certificate, raw.setup, raw.returns.size
    names = ("sigma", "floor", "ceiling", "task", "agent", "agent_sha256", "seed", "stochastic")
    pairs = {**{name: name for name in names}, "gamma": "discount", "sigma_per_feature": "features"}
    wrong = differences(
        {name: certificate.get(name) for name in pairs}, {name: setup.get(key) for name, key in pairs.items()}
    )
    if "max_steps" in certificate and not same(certificate["max_steps"], setup.get("limit")):
        wrong.append(f"max_steps is {certificate['max_steps']!r}, the setup has {setup.get('limit')!r}")
    if not same(certificate.get("n_episodes"), count):
        wrong.append(f"n_episodes is {certificate.get('n_episodes')!r}, the episode data have {count} returns")
    planned = setup.get("planned", count)
    if not same(planned, count) and not _stopped(certificate, setup, count):
        wrong.append(f"{planned!r} episodes were planned, the episode data have {count} returns")
    features = setup.get("features")
    if features is not None and not _least_of(features, setup.get("sigma")):
        wrong.append(f"sigma {setup.get('sigma')!r} is not the smallest sigma of the features {features!r}")
    if setup.get("adversary") is not None or "spent" in raw.arrays:
        wrong.append("the episodes were attacked")
    return wrong


def _least_of(features: Any, sigma: Any) -> bool:
    """Whether sigma is the smallest of several sigmas that differ; budgets are measured in it. 0 means no noise."""
    right = isinstance(features, list) and all(is_number(one) and one >= 0 for one in features)
    return right and len(set(features)) > 1 and same(min(one for one in features if one > 0), sigma)


def _stopped(certificate: dict[str, Any], setup: dict[str, Any], count: int) -> bool:
    """Whether a run may have ended before all that was planned: an anytime-valid method, after a whole block."""
    block, planned = setup.get("block"), setup.get("planned")
    whole = isinstance(block, int) and block > 0 and count % block == 0
    return certificate.get("method") == "sequential" and whole and isinstance(planned, int) and count < planned


def _check_returns(raw: Raw, verdict: Verdict) -> bool:
    """Check that the returns can be certified at all; otherwise nothing can be recomputed."""
    low: Any = raw.setup.get("floor")
    high: Any = raw.setup.get("ceiling")
    wrong, (least, greatest) = [], extremes(raw.returns)
    ends = [end for end in (low, high, least, greatest) if is_number(end)]
    if not is_number(low) or not (high is None or (is_number(high) and high > low)):
        wrong.append(f"floor {low!r} and ceiling {high!r} are not a valid range")
    elif not (math.isfinite(least) and math.isfinite(greatest) and least >= low):
        wrong.append("a return is not finite or is below the floor")
    elif high is not None and greatest > high:
        wrong.append("a return is above the ceiling")
    elif max(abs(end) for end in ends) > LARGEST:
        wrong.append(f"a return, the floor or the ceiling is beyond {LARGEST:g}: sums of squares leave the floats")
    repeated = repeated_blocks(raw.returns, raw.setup.get("block"))
    verdict.judge("returns", wrong + repeated, "finite, within floor and ceiling, no repeated blocks")
    if not wrong and is_count(raw.setup.get("slots")):
        dependent = dependent_returns(raw.returns, raw.setup)
        verdict.judge("independence", dependent, "blocks, environments and their turns differ by chance only")
    misfit = misshapen(raw)
    verdict.judge("arrays", misfit, f"{', '.join(sorted(raw.arrays))}: of declared types, shapes and ranges")
    # A failed check is enough: of millions of invented returns nothing more need be computed.
    return not (wrong or repeated or misfit)


def _limits(raw: Raw) -> list[str]:
    certificate, claim = raw.certificate, claim_of(raw.certificate)
    lower, upper, wrong = _recomputed(raw, claim)
    wrong += _both_compared(raw, claim, lower, upper) + check_stop(raw, claim, lower)
    wrong += compare_distribution(raw, claim)
    both = max(0.0, 1 - (claim.alpha if claim.method == "dkw" else 2 * claim.alpha))
    if not close(certificate.get("joint_confidence"), both, 1e-12):
        wrong.append(f"joint_confidence is {certificate.get('joint_confidence')!r}, expected {both:.12g}")
    return wrong


def _recomputed(raw: Raw, claim: Claim) -> tuple[Side, Side | None, list[str]]:
    """Return lower and upper bounds, and what is wrong with the recorded choices."""
    choice, bets = raw.certificate.get("method_selection"), raw.certificate.get("bets")
    method = chosen_method(raw.returns.size, choice) if claim.method == "auto" else claim.method
    other = other_planner(raw.certificate)
    if claim.method == "auto":
        declared = raw.setup.get("method") == "binary"
        wrong = [] if other else check_choice(raw.returns, claim, choice, declared=declared)
    else:
        wrong = (
            []
            if choice is None or method == "sequential"
            else [f"the method {method} selects no method, but a choice is recorded"]
        )
    if method in ("betting", "sequential"):
        stop = stop_for(claim, choice) if method == "sequential" else None
        lower, upper, unplanned = recompute_bets(raw.returns, claim, bets, stop)
        if other and unplanned:
            raise CannotRecomputeError(f"the bets differ from those planned here: {other}")
        return lower, upper, wrong + unplanned
    lower, upper = (
        recompute_auto(raw.returns, claim, choice) if claim.method == "auto" else recompute(raw.returns, claim)
    )
    return lower, upper, wrong + ([] if bets is None else [f"the method {method} makes no bets, but bets are recorded"])


def _shared_limits(raw: Raw) -> list[str]:
    certificate, claim = raw.certificate, claim_of(raw.certificate)
    many = certificate.get("n_shared_episodes")
    if certificate.get("kind") != "shared" or not isinstance(many, int) or isinstance(many, bool) or many < 1:
        raise CannotRecomputeError(f"kind {certificate.get('kind')!r}, shared by {many!r}: not computed here")
    if claim.method not in SHARED_METHODS:
        raise CannotRecomputeError(f"the method {claim.method!r} of a shared budget is not computed here")
    binary = claim.ceiling is not None and np.isin(raw.returns, (claim.floor, claim.ceiling)).all()
    if claim.method == "binary" and not binary:
        raise CannotRecomputeError("the binary method allows only the returns floor and ceiling")
    costs = tuple((budget / claim.sigma) ** 2 / (2 * many) for budget in claim.budgets)
    terms = SharedClaim(claim.method, claim.alpha, claim.floor, claim.ceiling, costs)
    lower, upper = recompute_shared(raw.returns, terms, plan_shared)
    wrong = _both_compared(raw, claim, Side(lower, lower), None if upper is None else Side(upper, upper))
    pilot = pilot_of(raw.returns.size) if claim.method == "betting" else 0
    return wrong + ([] if same(certificate.get("n_pilot_episodes"), pilot) else [f"there are {pilot} pilot episodes"])


def _step_limits(raw: Raw) -> list[str]:
    certificate, claim, gains = raw.certificate, claim_of(raw.certificate), raw.arrays.get("gains")
    low, high = (certificate.get("reward_range") or [None, None])[:2]
    if certificate.get("kind") != "per-step" or claim.method != "per-step":
        raise CannotRecomputeError(f"kind {certificate.get('kind')!r}, method {claim.method!r}: not computed here")
    if gains is None or gains.ndim != 2 or not is_number(low) or not is_number(high) or not low <= 0 <= high:
        raise CannotRecomputeError("the episode data have no rewards of each step, or no range for them")
    if not low < high or not same(certificate.get("reward_range"), raw.setup.get("rewards")):
        raise CannotRecomputeError(
            f"reward_range {certificate.get('reward_range')!r}, the setup has {raw.setup.get('rewards')!r}"
        )
    radii = [budget / claim.sigma for budget in claim.budgets]
    lower, upper = recompute_per_step(gains, raw.returns.size, (low, high), claim.alpha, radii)
    lower, upper = np.maximum(lower, claim.floor), np.minimum(upper, upper if claim.ceiling is None else claim.ceiling)
    wrong = _both_compared(raw, claim, Side(lower, lower), None if claim.ceiling is None else Side(upper, upper))
    return wrong + ([] if same(certificate.get("n_steps"), gains.shape[1]) else [f"there are {gains.shape[1]} steps"])


def _both_compared(raw: Raw, claim: Claim, lower: Side, upper: Side | None) -> list[str]:
    least, most = extremes(raw.returns)
    top = most if claim.ceiling is None else claim.ceiling
    older = _OLD_ROUNDING * (top - claim.floor) + 1e-14 * max(abs(claim.floor), abs(top))
    wrong = _compared("lower", raw.certificate.get("lower"), lower, _ROUNDING * (most - claim.floor) + older, 1, claim)
    if any(is_number(value) and value > most for value in raw.certificate.get("lower") or ()):
        wrong.append(f"a lower bound is above the largest return, {most:g}")
    if upper is not None:
        loose = _ROUNDING * (top - least) + older
        return wrong + _compared("upper", raw.certificate.get("upper"), upper, loose, -1, claim)
    return wrong + ([] if raw.certificate.get("upper") is None else ["there are upper bounds without a ceiling"])


def claim_of(certificate: dict[str, Any]) -> Claim:
    """Return what the bounds are said to be computed from, or raise CannotRecomputeError if it is not valid."""
    numbers = {name: certificate.get(name) for name in ("confidence", "sigma", "floor")}
    budgets, ceiling, step = (certificate.get(name) for name in ("budgets", "ceiling", "threshold_spacing"))
    for name, value in numbers.items():
        if not is_number(value):
            raise CannotRecomputeError(f"{name} is {value!r}, expected a number")
    confidence, sigma, floor = (float(value) for value in numbers.values())  # type: ignore[arg-type]
    if not (0 < confidence < 1 and sigma > 0):
        raise CannotRecomputeError(f"confidence {confidence} and sigma {sigma} do not allow a certificate")
    if not isinstance(budgets, list) or not budgets or not all(is_number(b) and b >= 0 for b in budgets):
        raise CannotRecomputeError(f"budgets are {budgets!r:.200}, expected numbers >= 0")
    for name in ("budgets", "probabilities", "quantiles"):
        asked = certificate.get(name)
        if isinstance(asked, list) and len(asked) > MOST_ASKED:
            raise CannotRecomputeError(f"there are {len(asked)} {name}, expected at most {MOST_ASKED}")
    if not (ceiling is None or is_number(ceiling)) or not (step is None or is_number(step)):
        raise CannotRecomputeError(f"ceiling is {ceiling!r} and threshold_spacing {step!r}, expected numbers or null")
    method = str(certificate.get("method"))
    coarse = ceiling is None or step is None or (ceiling - floor) / MOST_THRESHOLDS <= step
    if method == "per-threshold" and not coarse:
        raise CannotRecomputeError(
            f"a threshold spacing of {step!r} from {floor} to {ceiling} makes more than {MOST_THRESHOLDS} thresholds"
        )
    return Claim(method, 1 - confidence, sigma, floor, ceiling, tuple(map(float, budgets)), step)


def _compared(name: str, claimed: Any, found: Side, loose: float, sign: int, claim: Claim) -> list[str]:
    """Return at which budgets a bound is better than the returns allow, or not the one the method gives."""
    if not isinstance(claimed, list) or len(claimed) != len(claim.budgets) or not all(map(is_number, claimed)):
        return [f"{name} must contain one number per budget"]
    wrong = []
    for budget, value, best, least in zip(claim.budgets, claimed, found.best, found.least, strict=True):
        if sign * (value - best) > _UNSAFE * max(abs(best), abs(claim.floor)):
            wrong.append(f"at budget {budget:g} {name} is {value!r}, the returns prove no better than {best:.9g}")
        elif sign * (least - value) > loose:
            wrong.append(f"at budget {budget:g} {name} is {value!r}, the method gives {best:.9g}")
    return wrong


def _estimate(raw: Raw) -> list[str]:
    returns: NDArray[np.float64] = raw.returns
    mean = math.fsum(returns.tolist()) / returns.size
    spread = max(1e-300, *(abs(one) for one in extremes(returns)))
    wrong = [] if close(raw.certificate.get("estimate"), mean, 1e-9 * spread) else [f"the mean return is {mean:.9g}"]
    error = raw.certificate.get("estimate_sem")
    if returns.size == 1:
        return wrong + ([] if error is None else ["a single episode has no standard error"])
    squares = math.fsum(((returns - mean) ** 2).tolist())
    expected = math.sqrt(squares / (returns.size - 1) / returns.size)
    return wrong + ([] if close(error, expected, 1e-9 * spread) else [f"its standard error is {expected:.9g}"])


COMPARE = {"certificate.json": _limits, "shared.json": _shared_limits, "per-step.json": _step_limits}
