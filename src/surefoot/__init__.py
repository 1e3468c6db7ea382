"""Surefoot: certified lower bounds on the return of reinforcement-learning agents under observation attacks.

Public names are loaded when they are first used: ``certify`` and ``Episodes`` need numpy and scipy only, whatever runs
episodes needs torch.
"""

import sys

# ``python -m surefoot`` puts the working directory first, where a folder of somebody else may have its own numpy.py. It
# is taken away before anything is imported; "-m" is the name of the program only while Python looks for the module.
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path and not __file__.startswith(f"{sys.path[0]}/surefoot/"):
    del sys.path[0]

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Where each public name is defined. Type checkers do not run this module; they read the imports below.
_PUBLIC = {
    "ActuatorNoise": "surefoot.play.envs.actuator.ActuatorNoise",
    "AttackCurve": "surefoot.api.attack.AttackCurve",
    "Attacker": "surefoot.play.channel.Attacker",
    "Bounds": "surefoot.proof.certificate.Bounds",
    "Certificate": "surefoot.proof.certificate.Certificate",
    "CertifiedEvalCallback": "surefoot.train.certified_eval.CertifiedEvalCallback",
    "CertifiedRun": "surefoot.api.returns.CertifiedRun",
    "Comparison": "surefoot.proof.comparison.Comparison",
    "EpisodeCertificate": "surefoot.proof.episode_budget.EpisodeCertificate",
    "Episodes": "surefoot.episodes.Episodes",
    "InputError": "surefoot.errors.InputError",
    "NoisyObservation": "surefoot.play.envs.noisy.NoisyObservation",
    "PerStepCertificate": "surefoot.proof.step_budget.PerStepCertificate",
    "Policy": "surefoot.agents.policies.Policy",
    "PredictableNoiseWarning": "surefoot.agents.smoothed.PredictableNoiseWarning",
    "Query": "surefoot.proof.query.Query",
    "SharedBudgetCertificate": "surefoot.proof.shared_budget.SharedBudgetCertificate",
    "SmoothedPolicy": "surefoot.agents.smoothed.SmoothedPolicy",
    "Spaces": "surefoot.agents.policies.Spaces",
    "Task": "surefoot.play.task.Task",
    "TunedRuns": "surefoot.api.plan.TunedRuns",
    "View": "surefoot.play.channel.View",
    "as_policy": "surefoot.agents.resolve.as_policy",
    "attack": "surefoot.api.attack.attack",
    "certify": "surefoot.proof.query.certify",
    "certify_per_step": "surefoot.proof.query.certify_per_step",
    "certify_run": "surefoot.api.certify.certify_run",
    "certify_shared_budget": "surefoot.proof.query.certify_shared_budget",
    "compare": "surefoot.api.compare.compare",
    "explain_budget": "surefoot.report.budget_words.explain_budget",
    "get_task": "surefoot.play.tasks.get_task",
    "make_task": "surefoot.play.environments.make_task",
    "measure_faults": "surefoot.api.faults.measure_faults",
    "plan": "surefoot.api.plan.plan",
    "rollout": "surefoot.runs.rollout.rollout",
    "smooth": "surefoot.agents.smoothed.smooth",
    "tune": "surefoot.api.plan.tune",
    "verify": "surefoot.verification.verify.verify",
}
__all__ = list(_PUBLIC)

if TYPE_CHECKING:
    from surefoot.agents.policies import Policy as Policy
    from surefoot.agents.policies import Spaces as Spaces
    from surefoot.agents.resolve import as_policy as as_policy
    from surefoot.agents.smoothed import PredictableNoiseWarning as PredictableNoiseWarning
    from surefoot.agents.smoothed import SmoothedPolicy as SmoothedPolicy
    from surefoot.agents.smoothed import smooth as smooth
    from surefoot.api.attack import AttackCurve as AttackCurve
    from surefoot.api.attack import attack as attack
    from surefoot.api.certify import certify_run as certify_run
    from surefoot.api.compare import compare as compare
    from surefoot.api.faults import measure_faults as measure_faults
    from surefoot.api.plan import TunedRuns as TunedRuns
    from surefoot.api.plan import plan as plan
    from surefoot.api.plan import tune as tune
    from surefoot.api.returns import CertifiedRun as CertifiedRun
    from surefoot.episodes import Episodes as Episodes
    from surefoot.errors import InputError as InputError
    from surefoot.play.channel import Attacker as Attacker
    from surefoot.play.channel import View as View
    from surefoot.play.environments import make_task as make_task
    from surefoot.play.envs.actuator import ActuatorNoise as ActuatorNoise
    from surefoot.play.envs.noisy import NoisyObservation as NoisyObservation
    from surefoot.play.task import Task as Task
    from surefoot.play.tasks import get_task as get_task
    from surefoot.proof.certificate import Bounds as Bounds
    from surefoot.proof.certificate import Certificate as Certificate
    from surefoot.proof.comparison import Comparison as Comparison
    from surefoot.proof.episode_budget import EpisodeCertificate as EpisodeCertificate
    from surefoot.proof.query import Query as Query
    from surefoot.proof.query import certify as certify
    from surefoot.proof.query import certify_per_step as certify_per_step
    from surefoot.proof.query import certify_shared_budget as certify_shared_budget
    from surefoot.proof.shared_budget import SharedBudgetCertificate as SharedBudgetCertificate
    from surefoot.proof.step_budget import PerStepCertificate as PerStepCertificate
    from surefoot.report.budget_words import explain_budget as explain_budget
    from surefoot.runs.rollout import rollout as rollout
    from surefoot.train.certified_eval import CertifiedEvalCallback as CertifiedEvalCallback
    from surefoot.verification.verify import verify as verify


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'surefoot' has no attribute {name!r}")
    module, _, attribute = _PUBLIC[name].rpartition(".")
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
