"""Surefoot: certified lower bounds on the return of reinforcement-learning agents under observation attacks.

``certify`` and ``Episodes`` need numpy and scipy only; everything that plays loads torch when first used.
"""

import sys

# ``python -m surefoot`` puts the working directory first, where a folder of somebody else may have its own numpy.py. It
# is taken away before anything is imported; "-m" is the name of the program only while Python looks for the module.
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path and not __file__.startswith(f"{sys.path[0]}/surefoot/"):
    del sys.path[0]

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.proof.certificate import Bounds, Certificate
from surefoot.proof.episode_budget import EpisodeCertificate
from surefoot.proof.query import Query, certify, certify_per_step, certify_shared_budget
from surefoot.proof.shared_budget import SharedBudgetCertificate
from surefoot.proof.step_budget import PerStepCertificate

if TYPE_CHECKING:
    from surefoot.agents.files import load as load_agent
    from surefoot.agents.policies import Policy
    from surefoot.agents.smoothed import PredictableNoiseWarning, SmoothedPolicy, smooth
    from surefoot.api.attack import AttackCurve, attack
    from surefoot.api.certify import certify_run
    from surefoot.api.compare import ComparedRun, compare
    from surefoot.api.plan import TunedRuns, plan, tune
    from surefoot.api.returns import CertifiedRun
    from surefoot.play.environments import make_task
    from surefoot.play.envs.noisy import NoisyObservation
    from surefoot.play.task import Task
    from surefoot.play.tasks import get_task
    from surefoot.report.budget_words import explain_budget
    from surefoot.runs.rollout import rollout
    from surefoot.train.certified_eval import CertifiedEvalCallback
    from surefoot.verification.verify import verify

_LATER = {
    "AttackCurve": ("surefoot.api.attack", "AttackCurve"),
    "CertifiedRun": ("surefoot.api.returns", "CertifiedRun"),
    "ComparedRun": ("surefoot.api.compare", "ComparedRun"),
    "TunedRuns": ("surefoot.api.plan", "TunedRuns"),
    "certify_run": ("surefoot.api.certify", "certify_run"),
    "compare": ("surefoot.api.compare", "compare"),
    "plan": ("surefoot.api.plan", "plan"),
    "tune": ("surefoot.api.plan", "tune"),
    "CertifiedEvalCallback": ("surefoot.train.certified_eval", "CertifiedEvalCallback"),
    "NoisyObservation": ("surefoot.play.envs.noisy", "NoisyObservation"),
    "Policy": ("surefoot.agents.policies", "Policy"),
    "PredictableNoiseWarning": ("surefoot.agents.smoothed", "PredictableNoiseWarning"),
    "SmoothedPolicy": ("surefoot.agents.smoothed", "SmoothedPolicy"),
    "Task": ("surefoot.play.task", "Task"),
    "attack": ("surefoot.api.attack", "attack"),
    "explain_budget": ("surefoot.report.budget_words", "explain_budget"),
    "get_task": ("surefoot.play.tasks", "get_task"),
    "load_agent": ("surefoot.agents.files", "load"),
    "rollout": ("surefoot.runs.rollout", "rollout"),
    "smooth": ("surefoot.agents.smoothed", "smooth"),
    "make_task": ("surefoot.play.environments", "make_task"),
    "verify": ("surefoot.verification.verify", "verify"),
}

__all__ = [
    "AttackCurve",
    "Bounds",
    "Certificate",
    "CertifiedEvalCallback",
    "CertifiedRun",
    "ComparedRun",
    "EpisodeCertificate",
    "Episodes",
    "InputError",
    "NoisyObservation",
    "PerStepCertificate",
    "Policy",
    "PredictableNoiseWarning",
    "Query",
    "SharedBudgetCertificate",
    "SmoothedPolicy",
    "Task",
    "TunedRuns",
    "attack",
    "certify",
    "certify_per_step",
    "certify_run",
    "certify_shared_budget",
    "compare",
    "explain_budget",
    "get_task",
    "load_agent",
    "make_task",
    "plan",
    "rollout",
    "smooth",
    "tune",
    "verify",
]


# Old names of public functions, for one minor version.
_RENAMED = {"certify_shared": "certify_shared_budget", "find_task": "get_task", "task_of_environment": "make_task"}


def __getattr__(name: str) -> Any:
    """Load what needs torch or gymnasium only when it is asked for."""
    if name in _RENAMED:
        message = f"surefoot.{name} is now surefoot.{_RENAMED[name]}; the old name will be removed in the next version"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return getattr(sys.modules[__name__], _RENAMED[name])
    if name not in _LATER:
        raise AttributeError(f"module 'surefoot' has no attribute {name!r}")
    module, attribute = _LATER[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
