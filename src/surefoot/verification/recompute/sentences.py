"""The sentence that belongs to the fields of a certificate, written a second time.

It is compared because it carries what the user only stated: a certificate must not hide its assumptions.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

MOST_SIGMAS = 8  # of features that a sentence lists
# What an attack may do, by the name of the certificate's file.
_ATTACKS = {
    "certificate.json": "whose perturbations of the {channels} of one episode{divided} have a total l2 norm of at most "
    "budgets[i]",
    "shared.json": "whose squared perturbations of the {channels} of {shared}{divided} sum to at most the square of "
    "budgets[i]",
    "per-step.json": "whose perturbation of each single {channel}{divided} has an l2 norm of at most budgets[i]",
}


def write_sentence(name: str, certificate: Mapping[str, Any]) -> str:
    """Return what a certificate says."""
    n_shared = certificate.get("n_shared_episodes")
    shared = "an episode" if n_shared == 1 else f"{n_shared} episodes together"
    attack = _ATTACKS[name].format(shared=shared, **_describe_channel(certificate))
    if name == "shared.json" and certificate.get("certain") is not True:
        attack += " in expectation"
    what = "return"
    if certificate.get("gamma") is not None:
        what = f"discounted return (gamma {_format_number(certificate['gamma'])})"
    if name == "shared.json":
        what += " per episode"
    sentence = (
        f"Under every attack {attack}, the expected {what} of the smoothed agent (noise sigma "
        f"{_describe_noise(certificate)}{_recorded_episodes(certificate)}) is at least lower[i]"
    )
    has_upper = certificate.get("upper") is not None
    if has_upper:
        sentence += " and at most upper[i]"
    confidence = _format_number(certificate.get("confidence"))
    sentence += (
        f"{_describe_assumptions(certificate)}. With confidence {confidence} all lower bounds hold simultaneously, for "
        "all budgets"
    )
    if has_upper:
        sentence += ", and so do all upper bounds"
        if name == "certificate.json":
            sentence += _describe_joint_confidence(certificate)
    if certificate.get("action_sigma"):
        return (
            f"{sentence}. The noise of an action must be added behind the attacker, at the actuator: an agent that "
            "sends noisy commands over an attacked wire is not covered."
        )
    return f"{sentence}."


def _describe_channel(certificate: Mapping[str, Any]) -> dict[str, str]:
    """Return what may be perturbed: what has noise."""
    if not certificate.get("action_sigma"):
        return {"channels": "observations", "channel": "observation", "divided": ""}
    if not certificate.get("sigma"):
        return {"channels": "actions", "channel": "action", "divided": ""}
    return {
        "channels": "observations and actions",
        "channel": "observation together with the action after it",
        "divided": ", each divided by the sigma of its noise,",
    }


def _describe_assumptions(certificate: Mapping[str, Any]) -> str:
    """Return what the sentence must assume, because the certificate says that the user stated it."""
    stated = certificate.get("stated_by_user")
    if not isinstance(stated, list):
        return ""
    limits = []
    if "floor" in stated:
        limits.append(f"below {_format_number(certificate.get('floor'))}")
    if "ceiling" in stated:
        limits.append(f"above {_format_number(certificate.get('ceiling'))}")
    assumptions = []
    if limits:
        assumptions.append(f"no return is {' or '.join(limits)}")
    rewards = certificate.get("reward_range")
    if "reward_range" in stated and isinstance(rewards, list) and len(rewards) == 2:
        low, high = rewards
        assumptions.append(f"every reward is between {_format_number(low)} and {_format_number(high)}")
    if not assumptions:
        return ""
    return f", assuming that {' and '.join(assumptions)} (stated by the user, not proved)"


def _describe_joint_confidence(certificate: Mapping[str, Any]) -> str:
    # The two-sided DKW inequality alone is about both sides at once.
    together = ", jointly with the lower ones" if certificate.get("method") == "dkw" else ""
    joint = _format_number(certificate.get("joint_confidence"))
    return f"{together}; lower and upper bounds hold jointly with confidence {joint} or more"


def _recorded_episodes(certificate: Mapping[str, Any]) -> str:
    """Return after how many steps episodes are cut off, and whether the policy itself is random."""
    described = ""
    if "max_steps" in certificate:
        described += f"; episodes of at most {certificate['max_steps']} steps"
    if certificate.get("stochastic"):
        described += "; the policy draws random actions of its own"
    return described


def _describe_noise(certificate: Mapping[str, Any]) -> str:
    smallest = _format_number(certificate.get("sigma"))
    features = certificate.get("sigma_per_feature")
    on_actions = f"{_format_number(certificate.get('action_sigma'))} on every action, clipped afterwards"
    if not isinstance(features, list):
        if not certificate.get("action_sigma"):
            return smallest
        if not certificate.get("sigma"):
            return on_actions
        return f"{smallest} on every observation and {on_actions}"
    shown = ", ".join(_format_number(sigma) for sigma in features[:MOST_SIGMAS])
    if len(features) > MOST_SIGMAS:
        shown += ", ..."
    described = f"{shown} by feature"
    if not certificate.get("action_sigma"):
        described += (
            f"; perturbations are divided by sigma / {smallest} before their norm is taken, so that a plain norm of "
            "the budget is covered too"
        )
    # Nothing hides a perturbation of a feature without noise: the sentence must say that none is assumed.
    without = features.count(0)
    if without:
        described += f"; features without noise ({without} of {len(features)}) are taken not to be perturbed"
    if certificate.get("action_sigma"):
        described += f" and {on_actions}"
    return described


def _format_number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "?"
    text = f"{Decimal(repr(float(value))).normalize():f}"
    return text if len(text) <= 20 else repr(float(value))
