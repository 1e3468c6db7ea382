"""What attacks share: a description for records, checks that an agent can be attacked, perturbations kept to a set."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from surefoot.agents.policies import Policy
from surefoot.compute import expand_rows, row_norms
from surefoot.errors import InputError


@dataclass(frozen=True)
class Described:
    """Base of attacks and their parts: a name for records, and settings that are the dataclass's fields."""

    name: ClassVar[str]

    def describe(self) -> dict[str, Any]:
        """Return the name and the settings as JSON data, for the record."""
        return {"name": self.name, **asdict(self)}


def check_choices(policy: Policy) -> int:
    """Return the number of discrete actions of a policy, or say that it has continuous ones."""
    if policy.spaces.n_actions is None:
        raise InputError(
            f"this attack needs discrete actions, the agent {policy.name} has continuous ones; use method='adaptive'"
        )
    return policy.spaces.n_actions


def check_moves(policy: Policy) -> None:
    """Raise if a policy has discrete actions."""
    if policy.spaces.n_actions is not None:
        raise InputError(f"this attack needs continuous actions, the agent {policy.name} has discrete ones")


def check_discrete(policy: Policy) -> int:
    """Return the number of actions of a policy whose values have gradients, or say why it cannot be attacked so."""
    _check_gradients(policy)
    return check_choices(policy)


def check_continuous(policy: Policy) -> nn.Module:
    """Return the critic of a policy with continuous actions and gradients, or say why it cannot be attacked so."""
    check_moves(policy)
    _check_gradients(policy)
    if policy.critic is None:
        raise InputError(
            f"this attack asks the agent's critic, {policy.name} has none (DDPG, TD3 and SAC do); use method='adaptive'"
        )
    return policy.critic


def _check_gradients(policy: Policy) -> None:
    if not policy.differentiable:
        raise InputError(
            f"this attack needs gradients, the agent {policy.name} has none (a plain function?); use method='adaptive'"
        )


def project(perturbation: Tensor, radius: Tensor, norm: str = "l2") -> Tensor:
    """Return each row shortened to its radius where it is longer; in linf each number."""
    if norm == "linf":
        most = expand_rows(radius, perturbation)
        return torch.minimum(torch.maximum(perturbation, -most), most).to(perturbation.dtype)
    size = row_norms(perturbation)
    # Divided by at least 1e-300, because torch computes both branches.
    shrink = torch.where(size > radius, radius / size.clamp_min(1e-300), torch.ones_like(size))
    return (perturbation * expand_rows(shrink, perturbation)).to(perturbation.dtype)


def clip_to_box(moved: Tensor, low: tuple[float, ...] | None, high: tuple[float, ...] | None) -> Tensor:
    """Return each row clamped to its box, where it has one."""
    if low is not None:
        moved = torch.maximum(moved, _bound_like(low, moved))
    if high is not None:
        moved = torch.minimum(moved, _bound_like(high, moved))
    return moved


def _bound_like(values: tuple[float, ...], like: Tensor) -> Tensor:
    # A single number is filled in by the device itself; a list is copied there, for which a GPU would have to stop.
    if len(values) == 1:
        return like.new_full((), values[0])
    return like.new_tensor(values)


def normalize_rows(direction: Tensor, norm: str = "l2") -> Tensor:
    """Return of each row the point of the unit ball that lies farthest along it; rows of zeros stay zeros.

    In l2 that is the row scaled to length 1, in linf the corner with its signs.
    """
    if norm == "linf":
        return direction.sign()
    size = row_norms(direction)
    inverse = torch.where(size > 0, 1 / size.clamp_min(1e-300), torch.zeros_like(size))
    return (direction.double() * expand_rows(inverse, direction)).to(direction.dtype)
