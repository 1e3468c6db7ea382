"""The adversary that the certificate is tight for (paper, section 4 and Appendix A)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from surefoot.errors import InputError
from surefoot.play.channel import View


@dataclass(frozen=True)
class Structured:
    """The whole budget on the first coordinate of the first observation, nothing afterwards: (B, 0, ..., 0), 0, ...

    No adversary of any kind can lower a probability p further than this one lowers it in the worst game for it, to
    Phi(Phi^-1(p) - B / sigma). In other games it may do nothing at all.

    ``sign``  +1 raises the coordinate, -1 lowers it
    """

    sign: int = 1

    def __post_init__(self) -> None:
        if self.sign not in (1, -1):
            raise InputError(f"sign must be 1 or -1, got {self.sign}")

    def propose(self, view: View) -> Tensor:
        """Return everything that is left on the first coordinate at the first step, zeros later."""
        offset = torch.zeros(view.observation.shape, dtype=torch.float64, device=view.observation.device)
        offset.flatten(1)[:, 0] = torch.where(view.step == 0, self.sign * view.left, 0.0)
        return offset

    def describe(self) -> dict[str, Any]:
        """Return its name and sign."""
        return {"name": "structured", "sign": self.sign}
