"""The shortest perturbation after which an agent chooses a harmful action, a flip, found in a handful of gradients.

Algorithm 1 walks there in steps of one length, so that it takes hundreds of gradients where budgets are large, and as
many where nothing is to be found. Here every step looks where the boundary between the actions is along the gradient,
and goes there: at most twice as short or four times as long as before, because the gradient of a saturated network says
which way, but not how far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from surefoot.attacks.base import Described, check_discrete, normalize_rows
from surefoot.attacks.victim import UNDEFENDED, Smoothing, VictimBatch, clean_values, rows_per_batch
from surefoot.compute import expand_rows, row_norms
from surefoot.play.channel import View

HARMFUL = 0.5  # of the gap between best and worst action: what is at least so much worse than the best is harmful
SOFTNESS = 0.1  # of the same gap: over which the best of several actions is smoothed, or gradients jump between them
FIRST_MARGIN = 0.02  # of the same gap: by how much the first step of the search aims beyond the flip
SEARCH_STEPS = 6
LEAST_GROWTH, MOST_GROWTH = 1.02, 4.0  # of a perturbation that was too short
LEAST_SHRINKING, MOST_SHRINKING = 0.97, 0.5  # of one that was long enough
TURN = 2.0  # weight of a new gradient in the direction of the search, whose weight is 1


@dataclass(frozen=True)
class ShortestFlip(Described):
    """Make the agent choose a harmful action, one nearer to the worst than to the best, with as little as possible.

    Attributes:
        smoothing: The noise to average over.
    """

    name: ClassVar[str] = "shortest flip"

    smoothing: Smoothing = UNDEFENDED

    def perturbation(self, view: View, allowance: Tensor) -> Tensor:
        """Return the shortest flips found within the allowance, nothing where none was found."""
        check_discrete(view.policy)
        perturbations = torch.zeros_like(view.observation)
        (able,) = (allowance > 0).nonzero(as_tuple=True)
        if able.numel() == 0:
            return perturbations
        values = clean_values(view, self.smoothing, able)
        gap, harmful = find_harmful(values, HARMFUL)
        # Where all actions are worth the same, none is harmful.
        (matters,) = (gap > 0).nonzero(as_tuple=True)
        for some in torch.split(matters, rows_per_batch(view, self.smoothing)):
            if some.numel():
                rows = able[some]
                batch = VictimBatch.of(view, rows, self.smoothing)
                perturbations[rows] = find_shortest_flips(batch, harmful[some], gap[some], allowance[rows])
        return perturbations


def find_harmful(values: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Return the gap between best and worst action, and which actions are worse than the best by a share of it."""
    best = values.max(dim=1).values
    gap = best - values.min(dim=1).values
    harmful = values <= (best - share * gap).unsqueeze(1)
    return gap, harmful


def find_shortest_flips(
    batch: VictimBatch, harmful: Tensor, gap: Tensor, longest: Tensor, n_steps: int = SEARCH_STEPS
) -> Tensor:
    """Return the shortest perturbation found that flips each row, zeros where none did or none is needed.

    Args:
        batch: The rows.
        harmful: Which actions of each row are harmful, (rows, actions).
        gap: Between the values of the best and of the worst action.
        longest: The longest perturbation allowed.
        n_steps: Of the search; rows that did not flip in the first half are given up.
    """
    found = torch.zeros_like(batch.clean)
    shortest = torch.full_like(longest, torch.inf)
    flipped, lead, gradient = batch.lead_and_gradient(batch.clean, harmful, SOFTNESS * gap)
    direction = -normalize_rows(gradient)
    to_boundary = (lead + FIRST_MARGIN * gap) / row_norms(gradient).clamp_min(1e-12)
    size = torch.minimum(to_boundary, longest)
    # What is noisy may be flipped by chance, at no cost.
    (tried,) = (~flipped).nonzero(as_tuple=True)
    for number in range(n_steps):
        if number == n_steps // 2:
            (tried,) = shortest.isfinite().nonzero(as_tuple=True)
        if tried.numel() == 0:
            break
        part = batch.select_rows(tried)
        offset = direction[tried] * expand_rows(size[tried].to(part.clean.dtype), part.clean)
        flips, lead, gradient = part.lead_and_gradient(part.clean + offset, harmful[tried], SOFTNESS * gap[tried])
        shorter = flips & (size[tried] < shortest[tried])
        found[tried[shorter]] = offset[shorter]
        shortest[tried[shorter]] = size[tried[shorter]]
        # From the clean observation to where the lead, linearized here, is gone: a little beyond what has not flipped,
        # and a little before that where it has.
        margin = torch.where(flips, -FIRST_MARGIN, FIRST_MARGIN) * gap[tried]
        gone = (gradient * offset).flatten(1).sum(dim=1)
        to_boundary = (lead + margin - gone) / row_norms(gradient).clamp_min(1e-12)
        least = torch.where(flips, MOST_SHRINKING, LEAST_GROWTH) * size[tried]
        most = torch.where(flips, LEAST_SHRINKING, MOST_GROWTH) * size[tried]
        size[tried] = torch.minimum(to_boundary.clamp(least, most), longest[tried])
        direction[tried] = normalize_rows(direction[tried] - TURN * normalize_rows(gradient))
    return found
