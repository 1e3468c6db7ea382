"""Algorithm 2 of the paper: gradient descent on the value of what a DDPG agent is made to do, in batch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from surefoot.attacks.projections import boxed, inside, unit
from surefoot.attacks.victim import BARE, Scene, Smoothing, check_continuous, noisy_clean, rows_at_once
from surefoot.errors import InputError
from surefoot.play.channel import View, norms


@dataclass(frozen=True)
class DdpgAttack:
    """Show the agent what makes it do the least valuable thing, at a price for moving far.

    o' starts at o and goes down the gradient D of Q(C; o, pi(C'; o')) + ``weight`` ||o' - o||^2 (lambda) by steps of
    length ``step`` (eta), ``steps`` times (tau), projected on the ball of the budget left and on the box, and stops as
    soon as ||D|| <= ``tolerance`` ||o'||. The printed algorithm goes up the gradient, the text wants the minimum.

    ``smoothing``  sigma and draws, for a smoothed agent: Q and pi see independent noise, the same draws at every step
    ``low``, ``high``  limits of what the agent is shown before the noise, one per feature
    ``least``      a budget left that is smaller than this is not spent any more: a tenth of one step
    """

    weight: float
    step: float = 0.01
    steps: int = 100
    tolerance: float = 0.001
    smoothing: Smoothing = BARE
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None
    least: float = 0.001

    def __post_init__(self) -> None:
        if not self.weight >= 0:
            raise InputError(f"lambda must be >= 0, got {self.weight}")
        if not (self.step > 0 and self.steps >= 1 and self.tolerance >= 0 and self.least >= 0):
            raise InputError(
                "step must be > 0, steps >= 1, tolerance and least >= 0, "
                f"got {self.step}, {self.steps}, {self.tolerance} and {self.least}"
            )

    def describe(self) -> dict[str, Any]:
        """Return its name and settings."""
        return {"name": "paper", **asdict(self)}

    def propose(self, view: View) -> Tensor:
        """Return o' - o."""
        check_continuous(view.policy)
        offsets = torch.zeros_like(view.observation)
        (rows,) = (view.left >= max(self.least, 1e-12)).nonzero(as_tuple=True)
        size = max(1, rows_at_once(view) // (self.smoothing.draws if self.smoothing.sigma > 0 else 1))
        for some in torch.split(rows, size):
            if some.numel():
                offsets[some] = self.descend(view, some) - view.observation[some]
        return offsets

    def descend(self, view: View, rows: Tensor) -> Tensor:
        """Run the loop for some rows at once; rows whose gradient has vanished drop out."""
        clean = noisy_clean(view, rows, self.smoothing)
        scene = Scene.of(view, rows, self.smoothing)
        start, left = view.observation[rows], view.left[rows]
        ends, moved, place = start.clone(), start, torch.arange(rows.numel(), device=rows.device)
        for _ in range(self.steps):
            gradient = scene.value_gradient(moved, clean) + 2 * self.weight * (moved - start)
            on = norms(gradient) > self.tolerance * norms(moved)
            if not bool(on.all()):
                ends[place[~on]] = moved[~on]
                scene, clean, place, gradient = scene.part(on), clean[on], place[on], gradient[on]
                moved, start, left = moved[on], start[on], left[on]
                if place.numel() == 0:
                    return ends
            moved = start + inside(moved - self.step * unit(gradient) - start, left)
            moved = boxed(moved, self.low, self.high)
        ends[place] = moved
        return ends
