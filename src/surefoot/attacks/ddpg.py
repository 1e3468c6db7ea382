"""Algorithm 2 of the paper: gradient descent on the value of what a DDPG agent is made to do, in batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from surefoot.attacks.base import Described, check_continuous, clip_to_box, normalize_rows, project
from surefoot.attacks.victim import UNDEFENDED, Smoothing, VictimBatch, noisy_clean_memories, rows_per_pass
from surefoot.compute import row_norms
from surefoot.errors import InputError
from surefoot.play.channel import View


@dataclass(frozen=True)
class DdpgAttack(Described):
    """Show the agent what makes it take the least valuable action, at a price for moving far.

    o' starts at o and goes down the gradient D of Q(C; o, pi(C'; o')) + ``weight`` ||o' - o||^2 (lambda) by steps of
    length ``step`` (eta), ``steps`` times (tau), projected on the ball of the budget left and on the box, and stops as
    soon as ||D|| <= ``tolerance`` ||o'||. The printed algorithm goes up the gradient, the text wants the minimum.
    """

    name: ClassVar[str] = "paper"

    weight: float  # the paper's lambda
    step: float = 0.01  # step size eta
    steps: int = 100  # step count tau
    tolerance: float = 0.001  # of the stopping rule
    # For a smoothed agent: Q and pi get independent noise, the same samples at every step.
    smoothing: Smoothing = UNDEFENDED
    low: tuple[float, ...] | None = None  # box of the perturbed observation before the noise, one bound per feature
    high: tuple[float, ...] | None = None  # likewise
    least: float = 0.001  # a remaining budget smaller than this is not spent any more: a tenth of one step

    def __post_init__(self) -> None:
        if not self.weight >= 0:
            raise InputError(f"lambda must be >= 0, got {self.weight}")
        if not (self.step > 0 and self.steps >= 1 and self.tolerance >= 0 and self.least >= 0):
            raise InputError(
                "step must be > 0, steps >= 1, tolerance and least >= 0, "
                f"got {self.step}, {self.steps}, {self.tolerance} and {self.least}"
            )

    def propose(self, view: View) -> Tensor:
        """Return o' - o."""
        check_continuous(view.policy)
        perturbations = torch.zeros_like(view.observation)
        # Most steps of a long episode come after the budget is spent.
        (rows,) = (view.budget_left >= max(self.least, 1e-12)).nonzero(as_tuple=True)
        size = max(1, rows_per_pass(view) // self.smoothing.samples_used)
        for some in torch.split(rows, size):
            if some.numel():
                perturbations[some] = self.descend_rows(view, some) - view.observation[some]
        return perturbations

    def descend_rows(self, view: View, rows: Tensor) -> Tensor:
        """Run the loop for some rows at once; rows whose gradient has vanished drop out."""
        clean = noisy_clean_memories(view, rows, self.smoothing)
        batch = VictimBatch.of(view, rows, self.smoothing)
        start = view.observation[rows]
        left = view.budget_left[rows]
        ends = start.clone()
        moved = start
        place = torch.arange(rows.numel(), device=rows.device)
        for _ in range(self.steps):
            # Of Q(C; o, pi(C'; o')) + lambda ||o' - o||^2.
            gradient = batch.value_gradient(moved, clean) + 2 * self.weight * (moved - start)
            on = row_norms(gradient) > self.tolerance * row_norms(moved)
            # Rows that have converged stay where they are, and the others go on in a smaller batch.
            if not bool(on.all()):
                ends[place[~on]] = moved[~on]
                batch = batch.select_rows(on)
                clean = clean[on]
                place = place[on]
                gradient = gradient[on]
                moved = moved[on]
                start = start[on]
                left = left[on]
                if place.numel() == 0:
                    return ends
            step = self.step * normalize_rows(gradient, view.scope.norm)
            moved = start + project(moved - step - start, left, view.scope.norm)
            moved = clip_to_box(moved, self.low, self.high)
        ends[place] = moved
        return ends
