"""What one attack budget may cover, each threat with the certificates that answer it.

``THREATS``  the threats by the kind that a certificate's file names; asking and reading pick from it
``EPISODE``  the usual one: a budget for every single episode
"""

from __future__ import annotations

from surefoot.proof.episode_budget import EpisodeBudget
from surefoot.proof.shared_budget import SharedBudget
from surefoot.proof.step_budget import StepBudget

Threat = EpisodeBudget | SharedBudget | StepBudget

EPISODE = EpisodeBudget()
THREATS: dict[str | None, type[Threat]] = {
    None: EpisodeBudget,  # files of the usual kind name none
    "shared": SharedBudget,
    "per-step": StepBudget,
}
