"""The learned attacker of agents on pixels: what was learned says when and how much, a gradient says where.

An undefended agent chooses another action or does not, and the perturbation that makes it choose a harmful one, a flip,
has a worth and a cost. Its worth is by how much the agent's own values on clean frames fall, its cost the length of the
shortest perturbation along the gradient. Of an agent with noise every little push makes a harmful action a little more
likely, so every step gets what the harm of one more unit there is worth. ``FlipRule`` holds what was learned for a
budget, with which agents of both kinds are attacked; ``learning_flips`` learns it.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surefoot.agents.networks import weights_hash
from surefoot.attacks.base import Described, check_discrete, project
from surefoot.attacks.shortest_flip import SOFTNESS, find_harmful, find_shortest_flips
from surefoot.attacks.victim import UNDEFENDED, Smoothing, VictimBatch, clean_values, rows_per_batch
from surefoot.compute import row_norms
from surefoot.files import write_npz
from surefoot.play.channel import View

ATTACKER_SCHEMA = 1
THOROUGH_STEPS = 12
PUSH_STEPS = 5
PUSH_RATE = 0.5  # of the way to what the gradient asks for: what a step of the search for a push goes
SPENT = 0.04  # of the budget: with less left nothing is tried


@dataclass(frozen=True, kw_only=True)
class FlipRule:
    """Which flips are worth their cost, and what a push may cost.

    Attributes:
        budget: The l2 budget of an episode that it was learned for.
        price: What a perturbation that takes the whole budget has to be worth, in the agent's values; one that takes a
            share of the squared budget, that share of it.
        least_gap: The least gap between the best and the worst action's value at which a flip is tried.
        harmful: Of that gap: actions at least so much worse than the best are harmful.
    """

    budget: float
    price: float
    least_gap: float = 0.0
    harmful: float = 0.5

    def pays(self, gap: Tensor, cost: Tensor, budget: float) -> Tensor:
        """Return which flips are worth their cost, when the budget of the episode is ``budget``."""
        return (gap >= self.least_gap) & (gap >= self.price * (cost / budget).square())


@dataclass(frozen=True)
class FlipAttack(Described):
    """Makes an agent without noise choose a harmful action, wherever its rule says that this is worth its cost.

    Attributes:
        budget: The l2 budget of an episode.
        rule: Which flips it buys.
    """

    name: ClassVar[str] = "learned flips"

    budget: float
    rule: FlipRule

    def propose(self, view: View) -> Tensor:
        """Return the shortest flips found where they pay, nothing elsewhere."""
        check_discrete(view.policy)
        perturbations = torch.zeros_like(view.observation)
        (rows,) = (view.budget_left > SPENT * self.budget).nonzero(as_tuple=True)
        if rows.numel() == 0:
            return perturbations
        values = clean_values(view, UNDEFENDED, rows)
        gap, harmful = find_harmful(values, self.rule.harmful)
        (matters,) = ((gap >= self.rule.least_gap) & (gap > 0)).nonzero(as_tuple=True)
        for some in torch.split(matters, rows_per_batch(view, UNDEFENDED)):
            if some.numel():
                perturbations[rows[some]] = self._flip(view, rows[some], gap[some], harmful[some])
        return perturbations

    def _flip(self, view: View, rows: Tensor, gap: Tensor, harmful: Tensor) -> Tensor:
        """Return the flip of each row, nothing where none was found that pays."""
        batch = VictimBatch.of(view, rows, UNDEFENDED)
        clean = view.observation[rows]
        left = view.budget_left[rows]
        found = torch.zeros_like(clean)
        flipped, lead, gradient = batch.lead_and_gradient(clean, harmful, SOFTNESS * gap)
        # How far it is to the flip if the lead falls as it begins to.
        cost = lead.clamp_min(0) / row_norms(gradient).clamp_min(1e-12)
        (tried,) = (~flipped & (cost <= left) & self.rule.pays(gap, cost, self.budget)).nonzero(as_tuple=True)
        if tried.numel() == 0:
            return found
        found[tried] = find_shortest_flips(
            batch.select_rows(tried), harmful[tried], gap[tried], left[tried], THOROUGH_STEPS
        )
        return found


@dataclass(frozen=True)
class PushAttack(Described):
    """Pushes an agent with noise towards harmful actions, at every step as far as the harm is worth the price.

    A push by delta is worth E[loss of value of the action chosen under the noise] and costs a price times its squared
    length, so the best push is the gradient of its worth over twice the price: that is where the search ends.

    Attributes:
        budget: The l2 budget of an episode.
        price: What a push that takes the whole budget has to be worth.
        smoothing: The noise that values and gradients are averaged over.
    """

    name: ClassVar[str] = "learned pushes"

    budget: float
    price: float
    smoothing: Smoothing

    def propose(self, view: View) -> Tensor:
        """Return the push of every row that has budget left."""
        check_discrete(view.policy)
        perturbations = torch.zeros_like(view.observation)
        (able,) = (view.budget_left > SPENT * self.budget).nonzero(as_tuple=True)
        for rows in torch.split(able, rows_per_batch(view, self.smoothing)):
            if rows.numel():
                perturbations[rows] = self._push(view, rows)
        return perturbations

    def _push(self, view: View, rows: Tensor) -> Tensor:
        values = clean_values(view, self.smoothing, rows)
        loss = values.max(dim=1, keepdim=True).values - values
        softness = SOFTNESS * loss.max(dim=1).values.clamp_min(1e-12)
        batch = VictimBatch.of(view, rows, self.smoothing)
        left = view.budget_left[rows]
        push = torch.zeros_like(batch.clean)
        for _ in range(PUSH_STEPS):
            gradient = batch.loss_gradient(batch.clean + push, loss, softness)
            wanted = project(gradient * (self.budget**2 / (2 * self.price)), left)
            push = push + PUSH_RATE * (wanted - push)
        return push


@dataclass(frozen=True, eq=False)
class PixelAttacker:
    """What was learned against an agent on pixels: a rule for each budget.

    Attributes:
        rules: The rules; of a budget without one the nearest is used.
        card: What it was trained on and how, JSON data.
    """

    rules: tuple[FlipRule, ...]
    card: dict[str, Any] = field(default_factory=dict)

    def of_run(self, budget: float, smoothing: Smoothing) -> FlipAttack | PushAttack:
        """Return the attack of a run with this budget on an agent with this noise."""
        rule = min(self.rules, key=lambda rule: abs(np.log((budget + 1e-9) / rule.budget)))
        return build_attack(budget, rule, smoothing)

    @property
    def sha256(self) -> str:
        """Hash of its rules."""
        return weights_hash(self.arrays(), {})

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return its rules as the array that the file has, a row each."""
        return {"rules": np.array([astuple(rule) for rule in self.rules])}

    def save(self, path: str | Path) -> None:
        """Write rules and card to an ``.npz``."""
        write_npz(Path(path), {"schema": ATTACKER_SCHEMA, "sha256": self.sha256, "card": self.card}, self.arrays())


def build_attack(budget: float, rule: FlipRule, smoothing: Smoothing) -> FlipAttack | PushAttack:
    """Return the attack by a rule: flips of an agent without noise, pushes of one with noise."""
    if smoothing.sigma == 0:
        return FlipAttack(budget, rule)
    return PushAttack(budget, rule.price, smoothing)


def rules_of(array: NDArray[Any]) -> tuple[FlipRule, ...]:
    """Return the rules of a file's array.

    Raises:
        ValueError: If it is no array of rules.
    """
    if array.dtype != np.float64 or array.ndim != 2 or array.shape[1] != 4 or not 0 < len(array) <= 1_000:
        raise ValueError("rules must be rows of a budget, a price, a gap and a share in double precision")
    if not (np.isfinite(array).all() and (array[:, 0] > 0).all() and (array >= 0).all()):
        raise ValueError("rules must be finite numbers of at least 0, with budgets above 0")
    if not ((array[:, 1] > 0) & (array[:, 3] <= 1)).all():
        raise ValueError("rules must have prices above 0, and shares of at most 1")
    return tuple(
        FlipRule(budget=budget, price=price, least_gap=gap, harmful=harmful)
        for budget, price, gap, harmful in array.tolist()
    )
