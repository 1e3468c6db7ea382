"""The sentence that belongs to the fields of a certificate, written a second time, in the words of its schema."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

# What an attack may do, by the name of the certificate's file; then the words around it.
_ATTACKS = {
    1: {
        "certificate.json": "whose offsets to the observations have an l2 norm of at most the budget over the whole "
        "episode",
        "shared.json": "whose squared offsets to the observations of {shared} have a sum of at most the square of the "
        "budget, on average over its attacks",
        "per-step.json": "whose offset to each single observation has an l2 norm of at most the budget",
    },
    2: {
        "certificate.json": "whose perturbations of the observations of one episode have a total l2 norm of at most "
        "budgets[i]",
        "shared.json": "whose squared perturbations of the observations of {shared} sum to at most the square of "
        "budgets[i] in expectation",
        "per-step.json": "whose perturbation of each single observation has an l2 norm of at most budgets[i]",
    },
}
_WORDS = {
    1: {
        "attack": "adversary",
        "changes": "offsets",
        "lower": "'lower'",
        "upper": "'upper'",
        "gamma": "discount",
        "bounds": "limits",
        "all lower": "all lower limits hold, for all budgets at once",
        "jointly": "together with confidence {joint} at least",
    },
    2: {
        "attack": "attack",
        "changes": "perturbations",
        "lower": "lower[i]",
        "upper": "upper[i]",
        "gamma": "gamma",
        "bounds": "bounds",
        "all lower": "all lower bounds hold simultaneously, for all budgets",
        "jointly": "jointly with confidence {joint} or more",
    },
}


def sentence(name: str, certificate: Mapping[str, Any]) -> str:
    """Return what a certificate says.

    Args:
        name: Name of its file.
        certificate: Its fields, with the names of schema 2; ``schema`` says in whose words.
    """
    words, bounded = _WORDS[certificate["schema"]], certificate.get("upper") is not None
    many = certificate.get("n_shared_episodes")
    attack = _ATTACKS[certificate["schema"]][name].format(
        shared="an episode" if many == 1 else f"{many} episodes together"
    )
    gamma = certificate.get("gamma")
    what = "return" if gamma is None else f"discounted return ({words['gamma']} {_digits(gamma)})"
    per = " per episode" if name == "shared.json" else ""
    said = (
        f"Under every {words['attack']} {attack}, the expected {what}{per} of the smoothed agent (noise sigma "
        f"{_noise(certificate, words['changes'])}{_steps(certificate)}) is at least {words['lower']}"
    )
    assumed = _assumed(certificate)
    confidence = f"With confidence {_digits(certificate.get('confidence'))} {words['all lower']}"
    if not bounded:
        return f"{said}{assumed}. {confidence}."
    return (
        f"{said} and at most {words['upper']}{assumed}. {confidence}, and so do all upper {words['bounds']}"
        f"{_both(certificate, words) if name == 'certificate.json' else ''}."
    )


def _assumed(certificate: Mapping[str, Any]) -> str:
    """Return what the sentence must assume, because the certificate says that the user stated it."""
    stated, said = certificate.get("stated_by_user"), []
    if not isinstance(stated, list):
        return ""
    if "floor" in stated:
        said.append(f"no return is below {_digits(certificate.get('floor'))}")
    if "ceiling" in stated:
        above = f"above {_digits(certificate.get('ceiling'))}"
        said = [f"{said[0]} or {above}"] if said else [f"no return is {above}"]
    rewards = certificate.get("reward_range")
    if "rewards" in stated and isinstance(rewards, list) and len(rewards) == 2:
        said.append(f"every reward is between {_digits(rewards[0])} and {_digits(rewards[1])}")
    return f", assuming that {' and '.join(said)} (stated by the user, not proved)" if said else ""


def _both(certificate: Mapping[str, Any], words: Mapping[str, str]) -> str:
    together = ", jointly with the lower ones" if certificate.get("method") == "dkw" else ""
    jointly = words["jointly"].format(joint=_digits(certificate.get("joint_confidence")))
    return f"{together}; lower and upper {words['bounds']} hold {jointly}"


def _steps(certificate: Mapping[str, Any]) -> str:
    """Return after how many steps episodes are cut off; certificates of older versions do not say."""
    cut = f"; episodes of at most {certificate['max_steps']} steps" if "max_steps" in certificate else ""
    return cut + ("; the policy draws random actions of its own" if certificate.get("stochastic") else "")


def _noise(certificate: Mapping[str, Any], changes: str) -> str:
    least, features = _digits(certificate.get("sigma")), certificate.get("sigma_per_feature")
    if not isinstance(features, list):
        return least
    without = features.count(0)
    shown = ", ".join(map(_digits, features[:8])) + ("" if len(features) <= 8 else ", ...")
    return (
        f"{shown} by feature; {changes} are divided by sigma / {least} before their norm is taken, so that a plain "
        "norm of the budget is covered too"
    ) + (f"; features without noise ({without} of {len(features)}) are taken not to be perturbed" if without else "")


def _digits(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "?"
    text = f"{Decimal(repr(float(value))).normalize():f}"
    return text if len(text) <= 20 else repr(float(value))
