"""Surefoot: certified lower bounds on the reward of reinforcement-learning agents under observation attacks.

``certify`` and ``Episodes`` need numpy and scipy only; everything that plays loads torch when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

from surefoot.certify import Certificate, Limits, certify
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.per_step import StepCertificate, certify_per_step
from surefoot.shared import SharedCertificate, certify_shared

if TYPE_CHECKING:
    from surefoot.defence import PredictableNoiseWarning, SmoothedPolicy, smooth
    from surefoot.noise import NoisyObservation
    from surefoot.policies import Policy
    from surefoot.runs import rollout
    from surefoot.tasks import Task, find_task, task_of_environment
    from surefoot.verification.run import verify
    from surefoot.zoo import load as load_agent

_LATER = {
    "NoisyObservation": ("surefoot.noise", "NoisyObservation"),
    "Policy": ("surefoot.policies", "Policy"),
    "PredictableNoiseWarning": ("surefoot.defence", "PredictableNoiseWarning"),
    "SmoothedPolicy": ("surefoot.defence", "SmoothedPolicy"),
    "Task": ("surefoot.tasks", "Task"),
    "find_task": ("surefoot.tasks", "find_task"),
    "load_agent": ("surefoot.zoo", "load"),
    "rollout": ("surefoot.runs", "rollout"),
    "smooth": ("surefoot.defence", "smooth"),
    "task_of_environment": ("surefoot.tasks", "task_of_environment"),
    "verify": ("surefoot.verification.run", "verify"),
}

__all__ = [
    "Certificate",
    "Episodes",
    "InputError",
    "Limits",
    "NoisyObservation",
    "Policy",
    "PredictableNoiseWarning",
    "SharedCertificate",
    "SmoothedPolicy",
    "StepCertificate",
    "Task",
    "certify",
    "certify_per_step",
    "certify_shared",
    "find_task",
    "load_agent",
    "rollout",
    "smooth",
    "task_of_environment",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Load what needs torch or gymnasium only when it is asked for."""
    if name not in _LATER:
        raise AttributeError(f"module 'surefoot' has no attribute {name!r}")
    module, attribute = _LATER[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
