"""Perturbations kept to a ball, a box, or unit length, row by row."""

from __future__ import annotations

import torch
from torch import Tensor

from surefoot.compute import expand_rows, norms


def project_l2(perturbation: Tensor, radius: Tensor) -> Tensor:
    """Return each row shortened to its radius where it is longer."""
    size = norms(perturbation)
    shrink = torch.where(size > radius, radius / size.clamp_min(1e-300), torch.ones_like(size))
    return (perturbation * expand_rows(shrink, perturbation)).to(perturbation.dtype)


def clip_to_box(moved: Tensor, low: tuple[float, ...] | None, high: tuple[float, ...] | None) -> Tensor:
    """Return each row clamped to its box, where it has one."""
    if low is not None:
        moved = torch.maximum(moved, _bound(low, moved))
    return moved if high is None else torch.minimum(moved, _bound(high, moved))


def _bound(values: tuple[float, ...], like: Tensor) -> Tensor:
    # A single number is filled in by the device itself; a list is copied there, for which a GPU would have to stop.
    return like.new_full((), values[0]) if len(values) == 1 else like.new_tensor(values)


def normalize_rows(direction: Tensor) -> Tensor:
    """Return each row scaled to length 1; rows of zeros stay zeros."""
    size = norms(direction)
    inverse = torch.where(size > 0, 1 / size.clamp_min(1e-300), torch.zeros_like(size))
    return (direction.double() * expand_rows(inverse, direction)).to(direction.dtype)
