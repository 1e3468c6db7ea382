"""The learned attacker of agents on pixels: what was learned says when and how much, a gradient says where.

At every step the perturbation that makes the agent choose a harmful action, a flip, has a worth and a cost. Its worth
is by how much the agent's own values on clean frames fall, its cost the length of the shortest perturbation along the
gradient. ``FlipRule`` says which flips are worth their cost; ``learning_flips`` learns one for each budget.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surefoot.agents.networks import weights_hash
from surefoot.attacks.base import Described, check_discrete
from surefoot.attacks.victim import UNDEFENDED, Smoothing, VictimBatch, clean_values, rows_per_batch
from surefoot.compute import expand_rows, row_norms
from surefoot.files import write_npz
from surefoot.play.channel import View

ATTACKER_SCHEMA = 1
HARMFUL = 0.5  # of the gap between best and worst action: what is at least so much worse than the best is harmful
SOFTNESS = 0.1  # of the same gap: over which the best of several actions is smoothed, or gradients jump between them
SEARCH_STEPS = 8
FIRST_MARGIN = 0.02  # of the same gap: by how much the first step of the search aims beyond the flip
SPENT = 0.04  # of the budget: with less left nothing is tried


@dataclass(frozen=True, kw_only=True)
class FlipRule:
    """Which flips are worth their cost.

    Attributes:
        budget: The l2 budget of an episode that it was learned for.
        least_gap: The least gap between the best and the worst action's value at which a flip is tried.
        price: A flip that takes the whole budget has to be worth ``price`` times ``least_gap``; one that takes a share
            of the squared budget, that share of it.
    """

    budget: float
    least_gap: float
    price: float

    def pays(self, gap: Tensor, cost: Tensor, budget: float) -> Tensor:
        """Return which flips are worth their cost, when the budget of the episode is ``budget``."""
        asked = self.price * (cost / budget).square()
        return gap >= self.least_gap * asked.clamp_min(1)


@dataclass(frozen=True)
class FlipAttack(Described):
    """Makes the agent choose a harmful action, wherever its rule says that this is worth its cost.

    Attributes:
        budget: The l2 budget of an episode.
        rule: Which flips it buys.
        smoothing: The noise that values and gradients are averaged over.
    """

    name: ClassVar[str] = "learned flips"

    budget: float
    rule: FlipRule
    smoothing: Smoothing = UNDEFENDED

    def propose(self, view: View) -> Tensor:
        """Return the shortest flips found where they pay, nothing elsewhere."""
        check_discrete(view.policy)
        perturbations = torch.zeros_like(view.observation)
        (rows,) = (view.budget_left > SPENT * self.budget).nonzero(as_tuple=True)
        if rows.numel() == 0:
            return perturbations
        values = clean_values(view, self.smoothing, rows)
        best = values.max(dim=1).values
        gap = best - values.min(dim=1).values
        (matters,) = ((gap >= self.rule.least_gap) & (gap > 0)).nonzero(as_tuple=True)
        harmful = values <= (best - HARMFUL * gap).unsqueeze(1)
        for some in torch.split(matters, rows_per_batch(view, self.smoothing)):
            if some.numel():
                perturbations[rows[some]] = self._flip(view, rows[some], gap[some], harmful[some])
        return perturbations

    def _flip(self, view: View, rows: Tensor, gap: Tensor, harmful: Tensor) -> Tensor:
        """Return the flip of each row, nothing where none was found that pays."""
        batch = VictimBatch.of(view, rows, self.smoothing)
        clean = view.observation[rows]
        left = view.budget_left[rows]
        found = torch.zeros_like(clean)
        flipped, lead, gradient = batch.lead_and_gradient(clean, harmful, SOFTNESS * gap)
        # How far it is to the flip if the lead falls as it begins to.
        cost = lead.clamp_min(0) / row_norms(gradient).clamp_min(1e-12)
        (tried,) = (~flipped & (cost <= left) & self.rule.pays(gap, cost, self.budget)).nonzero(as_tuple=True)
        if tried.numel() == 0:
            return found
        offset, size = _shortest_flip(
            batch.select_rows(tried), clean[tried], harmful[tried], gap[tried], (lead[tried], gradient[tried])
        )
        bought = size <= left[tried]
        found[tried[bought]] = offset[bought]
        return found


def _shortest_flip(
    batch: VictimBatch, clean: Tensor, harmful: Tensor, gap: Tensor, begin: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """Return the shortest perturbation found that flips each row, and its length, infinite where none was found.

    Every step goes to the point nearest to the clean observation at which the lead, linearized where the search is,
    falls short by a margin; the margin grows until the action flips and shrinks after that.
    """
    lead, gradient = begin
    offset = torch.zeros_like(clean)
    found = torch.zeros_like(clean)
    shortest = torch.full_like(gap, torch.inf, dtype=torch.float64)
    margin = FIRST_MARGIN * gap
    for _ in range(SEARCH_STEPS):
        at_zero = lead - (gradient * offset).flatten(1).sum(dim=1)
        length = (at_zero + margin) / gradient.flatten(1).square().sum(dim=1).clamp_min(1e-24)
        offset = -expand_rows(length, gradient) * gradient
        flipped, lead, gradient = batch.lead_and_gradient(clean + offset, harmful, SOFTNESS * gap)
        size = row_norms(offset)
        better = flipped & (size < shortest)
        found[better] = offset[better]
        shortest = torch.where(better, size, shortest)
        margin = torch.where(flipped, 0.7 * margin, 1.7 * margin)
    return found, shortest


@dataclass(frozen=True, eq=False)
class PixelAttacker:
    """What was learned against an agent on pixels: a rule for each budget.

    Attributes:
        rules: The rules; of a budget without one the nearest is used.
        card: What it was trained on and how, JSON data.
    """

    rules: tuple[FlipRule, ...]
    card: dict[str, Any] = field(default_factory=dict)

    def of_run(self, budget: float, smoothing: Smoothing) -> FlipAttack:
        """Return the attack of a run with this budget on an agent with this noise."""
        rule = min(self.rules, key=lambda rule: abs(np.log((budget + 1e-9) / rule.budget)))
        return FlipAttack(budget, rule, smoothing)

    @property
    def sha256(self) -> str:
        """Hash of its rules."""
        return weights_hash(self.arrays(), {})

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return its rules as the array that the file has, a row each."""
        return {"rules": np.array([[rule.budget, rule.least_gap, rule.price] for rule in self.rules])}

    def save(self, path: str | Path) -> None:
        """Write rules and card to an ``.npz``."""
        write_npz(Path(path), {"schema": ATTACKER_SCHEMA, "sha256": self.sha256, "card": self.card}, self.arrays())


def rules_of(array: NDArray[Any]) -> tuple[FlipRule, ...]:
    """Return the rules of a file's array.

    Raises:
        ValueError: If it is no array of rules.
    """
    if array.dtype != np.float64 or array.ndim != 2 or array.shape[1] != 3 or not 0 < len(array) <= 1_000:
        raise ValueError("rules must be rows of a budget, a gap and a price in double precision")
    if not (np.isfinite(array).all() and (array[:, 0] > 0).all() and (array >= 0).all()):
        raise ValueError("rules must be finite numbers of at least 0, with budgets above 0")
    return tuple(FlipRule(budget=budget, least_gap=gap, price=price) for budget, gap, price in array.tolist())
