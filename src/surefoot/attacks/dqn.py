"""Algorithm 1 of the paper: targeted PGD on a DQN agent that saves its budget for the steps that matter, in batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from surefoot.attacks.base import Described, check_discrete, clip_to_box, normalize_rows, project
from surefoot.attacks.victim import UNDEFENDED, Smoothing, VictimBatch, clean_values, rows_per_batch
from surefoot.errors import InputError
from surefoot.play.channel import View


@dataclass(frozen=True)
class PaperAttack(Described):
    """Push the agent into the worst action it can be pushed into, if that action is bad enough.

    Targets are the actions whose clean value lies at least ``lambda_q`` below the best one. For every target, o' starts
    at o and climbs the log-softmax of the target by steps of length ``step`` (eta), projected on the ball of the budget
    left B, at most floor(``multiplier`` B / ``step``) times (nu), and stops as soon as the agent would choose it.
    Of the targets reached, the one with the lowest clean value wins; if none is reached, no budget is used.
    """

    name: ClassVar[str] = "paper"

    lambda_q: float  # the paper's threshold of values: budget is saved where no action is that much worse than the best
    step: float = 0.01  # step size eta
    multiplier: float = 2.0  # step multiplier nu
    # For a smoothed agent: every value and gradient is a mean over the same noise samples.
    smoothing: Smoothing = UNDEFENDED
    # Box of the perturbed observation before the noise, one bound per feature or one for all.
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None  # likewise

    def __post_init__(self) -> None:
        if not self.lambda_q >= 0:
            raise InputError(f"lambda_Q must be >= 0, got {self.lambda_q}")
        if not (self.step > 0 and self.multiplier > 0):
            raise InputError(f"step and multiplier must be > 0, got {self.step} and {self.multiplier}")

    def propose(self, view: View) -> Tensor:
        """Return o_worst - o."""
        check_discrete(view.policy)
        perturbations = torch.zeros_like(view.observation)
        # Most steps of a long episode come after the budget is spent.
        (able,) = (self.tries(view.budget_left) > 0).nonzero(as_tuple=True)
        if able.numel() == 0:
            return perturbations
        values = clean_values(view, self.smoothing, able)
        best = values.max(dim=1).values
        # The targets: pairs of row and action.
        who, actions = (values <= best.unsqueeze(1) - self.lambda_q).nonzero(as_tuple=True)
        if who.numel() == 0:
            return perturbations
        rows = able[who]
        size = rows_per_batch(view, self.smoothing)
        ends = []
        hits = []
        for some_rows, some_actions in zip(torch.split(rows, size), torch.split(actions, size), strict=True):
            end, hit = self.climb(view, some_rows, some_actions)
            ends.append(end)
            hits.append(hit)
        moved = torch.cat(ends)
        reached = torch.cat(hits)
        # The first of the lowest values wins, and only a value below the best is worth anything.
        gain = reached & (values[who, actions] < best[who])
        score = torch.full_like(values, math.inf)
        score[who[gain], actions[gain]] = values[who, actions][gain]
        wins = gain & (score.argmin(dim=1)[who] == actions)
        perturbations[rows[wins]] = (moved - view.observation[rows])[wins]
        return perturbations

    def tries(self, left: Tensor) -> Tensor:
        """Return floor(nu B / eta); a quotient that is whole but for rounding counts as whole."""
        return torch.floor(self.multiplier * left / self.step + 1e-9).long()

    def climb(self, view: View, rows: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Run the inner loop for all pairs of row and target at once; pairs that are done drop out."""
        batch = VictimBatch.of(view, rows, self.smoothing)
        pair = torch.arange(rows.numel(), device=rows.device)
        start = view.observation[rows]
        left = view.budget_left[rows]
        moved = start
        limit = self.tries(left)
        ends = start.clone()
        reached = torch.zeros_like(rows, dtype=torch.bool)
        count = 0
        while pair.numel():
            values, gradient = batch.values_and_gradient(moved, actions)
            hit = values.argmax(dim=1) == actions
            count += 1
            done = hit | (limit <= count)
            if bool(done.any()):
                reached[pair[hit]] = True
                ends[pair[hit]] = moved[hit]
                (on,) = (~done).nonzero(as_tuple=True)
                batch = batch.select_rows(on)
                pair = pair[on]
                actions = actions[on]
                gradient = gradient[on]
                moved = moved[on]
                start = start[on]
                left = left[on]
                limit = limit[on]
            moved = self.take_step(moved, gradient, start, left, view.scope.norm)
        return ends, reached

    def take_step(self, moved: Tensor, gradient: Tensor, start: Tensor, left: Tensor, norm: str = "l2") -> Tensor:
        """Take one step of length eta, back to the ball and the box where it left them; a zero gradient stays put."""
        moved = moved + self.step * normalize_rows(gradient, norm)
        moved = start + project(moved - start, left, norm)
        return clip_to_box(moved, self.low, self.high)
