"""The sentence that belongs to the fields of a certificate, written a second time."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any


def whole_sentence(certificate: Mapping[str, Any]) -> str:
    """Return what a certificate for whole episodes says."""
    bounded = certificate.get("upper") is not None
    together = ", jointly with the lower ones" if certificate.get("method") == "dkw" else ""
    joint = _digits(certificate.get("joint_confidence"))
    both = f"{together}; lower and upper limits hold together with confidence {joint} at least" if bounded else ""
    return (
        "Under every adversary whose offsets to the observations have an l2 norm of at most the budget over the whole "
        f"episode, the expected {_return(certificate)} of the smoothed agent {_ending(certificate, both)}"
    )


def shared_sentence(certificate: Mapping[str, Any]) -> str:
    """Return what a certificate of a shared budget says."""
    many = certificate.get("shared_by")
    who = "an episode" if many == 1 else f"{many} episodes together"
    return (
        f"Under every adversary whose squared offsets to the observations of {who} have a sum of at most the square of "
        f"the budget, on average over its attacks, the expected {_return(certificate)} per episode of the smoothed "
        f"agent {_ending(certificate, '')}"
    )


def step_sentence(certificate: Mapping[str, Any]) -> str:
    """Return what a certificate for a budget per step says."""
    return (
        "Under every adversary whose offset to each single observation has an l2 norm of at most the budget, the "
        f"expected {_return(certificate)} of the smoothed agent {_ending(certificate, '')}"
    )


SENTENCES = {"certificate.json": whole_sentence, "shared.json": shared_sentence, "per-step.json": step_sentence}


def _return(certificate: Mapping[str, Any]) -> str:
    discount = certificate.get("discount")
    return "return" if discount is None else f"discounted return (discount {_digits(discount)})"


def _ending(certificate: Mapping[str, Any], both: str) -> str:
    confidence = _digits(certificate.get("confidence"))
    bounded = certificate.get("upper") is not None
    highest = " and at most 'upper'" if bounded else ""
    also = ", and so do all upper limits" if bounded else ""
    return (
        f"(noise sigma {_noise(certificate)}{_steps(certificate)}) is at least 'lower'{highest}. With confidence "
        f"{confidence} all lower limits hold, for all budgets at once{also}{both}."
    )


def _steps(certificate: Mapping[str, Any]) -> str:
    """Return after how many steps episodes are cut off; certificates of older versions do not say."""
    cut = f"; episodes of at most {certificate['max_steps']} steps" if "max_steps" in certificate else ""
    return cut + ("; the policy draws random actions of its own" if certificate.get("stochastic") else "")


def _noise(certificate: Mapping[str, Any]) -> str:
    least, features = _digits(certificate.get("sigma")), certificate.get("features")
    if not isinstance(features, list):
        return least
    without = features.count(0)
    shown = ", ".join(map(_digits, features[:8])) + ("" if len(features) <= 8 else ", ...")
    return (
        f"{shown} by feature; offsets are divided by sigma / {least} before their norm is taken, so that a plain norm "
        "of the budget is covered too"
    ) + (f"; features without noise ({without} of {len(features)}) are taken not to be perturbed" if without else "")


def _digits(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "?"
    text = f"{Decimal(repr(float(value))).normalize():f}"
    return text if len(text) <= 20 else repr(float(value))
