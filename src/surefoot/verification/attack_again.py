"""The attack that a record describes, built again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from surefoot.attacks.registry import METHODS, Configuration
from surefoot.attacks.victim import smoothing_of
from surefoot.errors import InputError
from surefoot.play.plan import Plan
from surefoot.play.streams import Purpose
from surefoot.verification.play_again import CannotRerunError, ForgedError

NOISE_SAMPLES = 128  # that an attack averages over unless another number is asked for


def with_recorded_attack(plan: Plan, setup: Mapping[str, Any]) -> Plan:
    """Return the plan under the attack of a setup, on the seed stream of attacked episodes; as it is without one.

    Raises:
        CannotRerunError: If the attack is code, a file, or has other settings than those of its name.
        ForgedError: If no run has this setup.
    """
    if setup.get("purpose") == [Purpose.ATTACK]:
        plan = replace(plan, purpose=(Purpose.ATTACK,), episodes_per_env=1)
    described = setup.get("attacker")
    if described is None:
        return plan
    try:
        budget = float(setup["budget"])
        plan = replace(plan, budget=budget)
    except (InputError, LookupError, TypeError, ValueError, OverflowError) as error:
        raise ForgedError(f"the setup cannot be run: {error}") from error
    chosen = Configuration(
        task=plan.task,
        policy=plan.policy,
        budget=budget,
        smoothing=smoothing_of(plan.noise, NOISE_SAMPLES),
        noise=plan.noise,
    )
    for method in METHODS.values():
        # One that does not fit the agent was not the one.
        with suppress(InputError):
            attacker = method.attacker(chosen)
            if json.loads(json.dumps(attacker.describe())) == described:
                return replace(plan, attacker=attacker)
    raise CannotRerunError(
        "the attack is none that follows from its name and budget (a learned one is a file, one of your own is code): "
        "its episodes are not rerun"
    )
