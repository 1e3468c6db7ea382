"""Perturbations kept to a ball, a box, or unit length, row by row."""

from __future__ import annotations

import torch
from torch import Tensor

from surefoot.play.channel import norms


def inside(offset: Tensor, radius: Tensor) -> Tensor:
    """Return each row shortened to its radius where it is longer."""
    size = norms(offset)
    shrink = torch.where(size > radius, radius / size.clamp_min(1e-300), torch.ones_like(size))
    return (offset * wide(shrink, offset)).to(offset.dtype)


def boxed(moved: Tensor, low: tuple[float, ...] | None, high: tuple[float, ...] | None) -> Tensor:
    """Return each row clamped to its limits, where it has any."""
    if low is not None:
        moved = torch.maximum(moved, moved.new_tensor(low))
    return moved if high is None else torch.minimum(moved, moved.new_tensor(high))


def unit(direction: Tensor) -> Tensor:
    """Return each row scaled to length 1; rows of zeros stay zeros."""
    size = norms(direction)
    inverse = torch.where(size > 0, 1 / size.clamp_min(1e-300), torch.zeros_like(size))
    return (direction.double() * wide(inverse, direction)).to(direction.dtype)


def wide(values: Tensor, like: Tensor) -> Tensor:
    """Return one value per row, shaped so that it spreads over ``like``."""
    return values.view(-1, *[1] * (like.dim() - 1))
