"""How far apart an agent's action values are: the units in which Algorithm 1 decides when to save its budget."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surefoot.attacks.base import check_choices
from surefoot.attacks.composed import Composed
from surefoot.attacks.dqn import PaperAttack
from surefoot.attacks.shortest_flip import ShortestFlip
from surefoot.attacks.victim import Smoothing, clean_values
from surefoot.play.channel import Attacker, View
from surefoot.play.loop import play_block
from surefoot.play.plan import Plan
from surefoot.play.streams import Purpose

EPISODES = 8
QUANTILES = (0.5, 0.75, 0.9)


@dataclass(frozen=True)
class GapRecorder:
    """An attacker that changes nothing and notes how much worse an action could be made at every step.

    Attributes:
        smoothing: The noise that values are averaged over.
        attack: Whose reach counts: at steps where it changes the action, by how much that lowers the value. Without
            one it is the gap between the best and the worst value.
        gaps: What was noted.
    """

    smoothing: Smoothing
    attack: Attacker | None = None
    gaps: list[Tensor] = field(default_factory=list)

    def propose(self, view: View) -> Tensor:
        """Note the gaps of this step, and propose no perturbation: so the whole budget is left at every step."""
        nothing = torch.zeros_like(view.observation)
        values = clean_values(view, self.smoothing)
        best = values.max(dim=1).values
        if self.attack is None:
            self.gaps.append((best - values.min(dim=1).values).cpu())
            return nothing
        perturbation = torch.as_tensor(self.attack.propose(view))
        (rows,) = perturbation.flatten(1).any(dim=1).nonzero(as_tuple=True)
        if rows.numel():
            there = clean_values(replace(view, observation=view.observation + perturbation), self.smoothing, rows)
            chosen = values[rows].gather(1, there.argmax(dim=1, keepdim=True)).squeeze(1)
            self.gaps.append((best[rows] - chosen).cpu())
        return nothing

    def describe(self) -> dict[str, Any]:
        """Return its name, for the record."""
        return {"name": "gap-recorder"}


def default_lambdas(plan: Plan, smoothing: Smoothing) -> tuple[float, ...]:
    """Return 0 and quantiles of the agent's own value gaps, from a few episodes without attack.

    Algorithm 1 attacks only towards actions whose value is ``lambda_q`` below the best one. Values have units of their
    own: a list that suits one agent may lie above every gap of another, which is then never attacked. Of Algorithm 1
    and of flips the gaps are those that they reach with the whole budget of the plan.
    """
    check_choices(plan.policy)
    attack = plan.attacker if _searches_targets(plan.attacker) else None
    recorder = GapRecorder(smoothing, attack)
    purpose = (Purpose.VALUE_GAPS,)
    play_block(replace(plan, attacker=recorder, n_episodes=EPISODES, purpose=purpose), 0)
    found = torch.cat([torch.empty(0), *recorder.gaps])
    found = found[found > 0]
    if found.numel() == 0:
        return (0.0,)
    gaps = np.quantile(found.double().numpy(), QUANTILES)
    # Three digits: they are printed, and whoever gives them again means the same attack.
    return (0.0, *sorted({float(f"{gap:.3g}") for gap in gaps} - {0.0}))


def _searches_targets(attacker: Attacker | None) -> bool:
    """Return whether an attacker makes the agent choose another action, or leaves an observation as it is."""
    if isinstance(attacker, Composed):
        return isinstance(attacker.direction, ShortestFlip)
    return isinstance(attacker, PaperAttack)
