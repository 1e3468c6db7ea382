"""How far apart an agent's action values are: the units in which Algorithm 1 decides when to save its budget."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surefoot.attacks.base import check_choices
from surefoot.attacks.victim import Smoothing, clean_values
from surefoot.play.channel import View
from surefoot.play.loop import play_block
from surefoot.play.plan import Plan
from surefoot.play.streams import Purpose

EPISODES = 8
QUANTILES = (0.5, 0.75, 0.9)


@dataclass(frozen=True)
class GapRecorder:
    """An attacker that changes nothing and notes the gap between the best and the worst value at every step."""

    smoothing: Smoothing
    gaps: list[Tensor] = field(default_factory=list)

    def propose(self, view: View) -> Tensor:
        """Note the gap of every row, and propose no perturbation."""
        values = clean_values(view, self.smoothing)
        self.gaps.append((values.max(dim=1).values - values.min(dim=1).values).cpu())
        return torch.zeros_like(view.observation)

    def describe(self) -> dict[str, Any]:
        """Return its name, for the record."""
        return {"name": "gap-recorder"}


def default_lambdas(plan: Plan, smoothing: Smoothing) -> tuple[float, ...]:
    """Return 0 and quantiles of the agent's own value gaps, from a few episodes without attack.

    Algorithm 1 attacks only towards actions whose value is ``lambda_q`` below the best one. Values have units of their
    own: a list that suits one agent may lie above every gap of another, which is then never attacked. The plan's
    attacker, budget and number of episodes do not matter.
    """
    check_choices(plan.policy)
    recorder = GapRecorder(smoothing)
    purpose = (Purpose.VALUE_GAPS,)
    play_block(replace(plan, attacker=recorder, budget=0.0, n_episodes=EPISODES, purpose=purpose), 0)
    gaps = np.quantile(torch.cat(recorder.gaps).double().numpy(), QUANTILES)
    # Three digits: they are printed, and whoever gives them again means the same attack.
    return (0.0, *sorted({float(f"{gap:.3g}") for gap in gaps} - {0.0}))
