"""What a certificate says, against its own record: facts, hash, returns, limits, estimate, sentence."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.verification.raw import Raw, differences, same
from surefoot.verification.recompute import CannotRecomputeError, Claim, Side, recompute
from surefoot.verification.verdict import IMPOSSIBLE, Verdict

FIELDS = {
    *("schema", "task", "agent", "agent_sha256", "seed", "sigma", "confidence", "joint_confidence", "episodes"),
    *("method", "step", "record_sha256", "floor", "ceiling", "budgets", "lower", "upper", "estimate", "estimate_sem"),
    "statement",
}
_ROUNDING = 1e-7  # of the range: limits are rounded outwards by 1e-9 of it, and computed by other formulas here


def check_claims(raw: Raw, verdict: Verdict) -> None:
    """Check everything that can be told from the files alone."""
    strange = sorted(set(raw.certificate) ^ FIELDS)
    if strange:
        verdict.note("fields", IMPOSSIBLE, f"fields that are missing or not known here: {', '.join(strange)}")
    _check_facts(raw, verdict)
    claimed, found = raw.certificate.get("record_sha256"), raw.sha256()
    wrong = [] if claimed == found else [f"the certificate is of the record {claimed!r}, here lies {found!r}"]
    verdict.judge("hash of the record", wrong, found)
    if _check_returns(raw, verdict):
        _check_limits(raw, verdict)
        _check_estimate(raw, verdict)
    wrong = [] if raw.certificate.get("statement") == _sentence(raw.certificate) else ["it is not the one that follows"]
    verdict.judge("sentence", wrong, "it says what the fields say")


def _check_facts(raw: Raw, verdict: Verdict) -> None:
    certificate, setup = raw.certificate, raw.setup
    names = ("sigma", "floor", "ceiling", "task", "agent", "agent_sha256", "seed")
    wrong = differences({name: certificate.get(name) for name in names}, {name: setup.get(name) for name in names})
    count = raw.returns.size
    wrong += [
        f"{name} is {value!r}, the record has {count} returns"
        for name, value in (("episodes", certificate.get("episodes")), ("planned", setup.get("planned", count)))
        if not same(value, count)
    ]
    if setup.get("adversary") is not None or "spent" in raw.arrays:
        wrong.append("the record is of attacked play")
    verdict.judge("certificate and record", wrong, f"{count} episodes, sigma {setup.get('sigma')}, the same setup")
    if raw.written_setup is not None or raw.run is not None:
        wrong = differences(raw.written_setup or {}, {"schema": 1, **setup})
        verdict.judge("setup.json and record", wrong, "the same setup")
    if raw.run is not None:
        wrong = differences({"agent": raw.run.get("agent_sha256")}, {"agent": setup.get("agent_sha256")})
        verdict.judge("run.json and record", wrong, "the same agent")


def _check_returns(raw: Raw, verdict: Verdict) -> bool:
    """Check that the returns are what a certificate may be made of; without that nothing can be recomputed."""
    low, high = raw.setup.get("floor"), raw.setup.get("ceiling")
    wrong = []
    if not _is_number(low) or not (high is None or (_is_number(high) and high > low)):
        wrong.append(f"floor {low!r} and ceiling {high!r} are no limits")
    elif not np.isfinite(raw.returns).all() or raw.returns.min() < low:
        wrong.append("some return is not finite or lies below the floor")
    elif high is not None and raw.returns.max() > high:
        wrong.append("some return lies above the ceiling")
    usable = not wrong
    lengths = raw.arrays.get("lengths")
    if lengths is not None and (lengths.shape != raw.returns.shape or (lengths < 1).any()):
        wrong.append("not every episode has a length of at least one step")
    verdict.judge("returns", wrong + _twins(raw), "finite, within floor and ceiling, no two blocks alike")
    return usable


def _twins(raw: Raw) -> list[str]:
    """Find blocks that agree in every outcome although such agreement has a probability below 10^-12."""
    size = raw.setup.get("block")
    if not isinstance(size, int) or size < 1:
        return []
    _, inverse, counts = np.unique(raw.returns, return_inverse=True, return_counts=True)
    surprise = -np.log(counts[inverse] / raw.returns.size)
    seen: dict[bytes, int] = {}
    found = []
    for index, begin in enumerate(range(0, raw.returns.size, size)):
        block = raw.returns[begin : begin + size].tobytes()
        if block in seen and surprise[begin : begin + size].sum() > math.log(1e12):
            found.append(f"block {index} repeats block {seen[block]}")
        seen.setdefault(block, index)
    return found


def _check_limits(raw: Raw, verdict: Verdict) -> None:
    certificate = raw.certificate
    try:
        claim = claim_of(certificate)
        lower, upper = recompute(raw.returns, claim)
    except CannotRecomputeError as error:
        verdict.note("limits", IMPOSSIBLE, str(error))
        return
    top = float(raw.returns.max()) if claim.ceiling is None else claim.ceiling
    hair = 1e-10 * (top - claim.floor) + 1e-14 * max(abs(claim.floor), abs(top))
    wrong = _compared("lower", certificate.get("lower"), lower, hair, 1, claim)
    if upper is not None:
        wrong += _compared("upper", certificate.get("upper"), upper, hair, -1, claim)
    elif certificate.get("upper") is not None:
        wrong.append("upper limits are claimed without a ceiling")
    both = max(0.0, 1 - (claim.alpha if claim.method == "dkw" else 2 * claim.alpha))
    if not _close(certificate.get("joint_confidence"), both, 1e-12):
        wrong.append(f"joint_confidence is {certificate.get('joint_confidence')!r}, expected {both:.12g}")
    good = f"{len(claim.budgets)} budgets recomputed from the returns with method {claim.method}"
    verdict.judge("limits", wrong, good)


def claim_of(certificate: dict[str, Any]) -> Claim:
    """Return what the limits are said to be computed from, or say what of it is no such thing."""
    numbers = {name: certificate.get(name) for name in ("confidence", "sigma", "floor")}
    budgets, ceiling, step = (certificate.get(name) for name in ("budgets", "ceiling", "step"))
    for name, value in numbers.items():
        if not _is_number(value):
            raise CannotRecomputeError(f"{name} is {value!r}, expected a number")
    confidence, sigma, floor = (float(value) for value in numbers.values())  # type: ignore[arg-type]
    if not (0 < confidence < 1 and sigma > 0):
        raise CannotRecomputeError(f"confidence {confidence} and sigma {sigma} allow no certificate")
    if not isinstance(budgets, list) or not budgets or not all(_is_number(b) and b >= 0 for b in budgets):
        raise CannotRecomputeError(f"budgets are {budgets!r}, expected numbers >= 0")
    if not (ceiling is None or _is_number(ceiling)) or not (step is None or _is_number(step)):
        raise CannotRecomputeError(f"ceiling is {ceiling!r} and step {step!r}, expected numbers or null")
    method = str(certificate.get("method"))
    return Claim(method, 1 - confidence, sigma, floor, ceiling, tuple(map(float, budgets)), step)


def _compared(name: str, claimed: Any, found: Side, hair: float, sign: int, claim: Claim) -> list[str]:
    """Say at which budgets a limit is better than the returns allow, or not the one the method gives."""
    if not isinstance(claimed, list) or len(claimed) != len(claim.budgets) or not all(map(_is_number, claimed)):
        return [f"{name} must hold one number per budget"]
    loose = hair / 1e-10 * _ROUNDING
    wrong = []
    for budget, value, best, least in zip(claim.budgets, claimed, found.best, found.least, strict=True):
        if sign * (value - best) > hair:
            wrong.append(f"at budget {budget:g} {name} is {value!r}, the returns prove no better than {best:.9g}")
        elif sign * (least - value) > loose:
            wrong.append(f"at budget {budget:g} {name} is {value!r}, the method gives {best:.9g}")
    return wrong


def _check_estimate(raw: Raw, verdict: Verdict) -> None:
    returns: NDArray[np.float64] = raw.returns
    mean = math.fsum(returns.tolist()) / returns.size
    spread = max(1e-300, float(np.abs(returns).max()))
    wrong = [] if _close(raw.certificate.get("estimate"), mean, 1e-9 * spread) else [f"the mean return is {mean:.9g}"]
    error = raw.certificate.get("estimate_sem")
    if returns.size == 1:
        wrong += [] if error is None else ["a single episode has no standard error"]
    else:
        expected = math.sqrt(math.fsum(((returns - mean) ** 2).tolist()) / (returns.size - 1) / returns.size)
        wrong += [] if _close(error, expected, 1e-9 * spread) else [f"its standard error is {expected:.9g}"]
    verdict.judge("estimate", wrong, f"the mean return is {mean:.6g}")


def _sentence(certificate: dict[str, Any]) -> str:
    """Write the sentence that belongs to the fields."""
    sigma, confidence, joint = (_digits(certificate.get(key)) for key in ("sigma", "confidence", "joint_confidence"))
    bounded = certificate.get("upper") is not None
    together = ", jointly with the lower ones" if certificate.get("method") == "dkw" else ""
    return (
        "Under every adversary whose offsets to the observations have an l2 norm of at most the budget over the whole "
        f"episode, the expected return of the smoothed agent (noise sigma {sigma}) is at least 'lower'"
        + (" and at most 'upper'" if bounded else "")
        + f". With confidence {confidence} all lower limits hold, for all budgets at once"
        + (
            f", and so do all upper limits{together}; lower and upper limits hold together with confidence {joint} "
            "at least."
            if bounded
            else "."
        )
    )


def _digits(value: Any) -> str:
    if not _is_number(value):
        return "?"
    text = f"{Decimal(repr(float(value))).normalize():f}"
    return text if len(text) <= 20 else repr(float(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _close(value: Any, expected: float, within: float) -> bool:
    return _is_number(value) and abs(value - expected) <= within
