"""What attacks share: a description for records, and checks that an agent can be attacked."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from torch import nn

from surefoot.agents.policies import Policy
from surefoot.errors import InputError

# Records call some settings by other names than the code. They decide whether a run may be resumed.
STORED = {"lambda_q": "margin", "n_samples": "draws"}


@dataclass(frozen=True)
class Described:
    """Base of attacks and their parts: a name for records, and settings that are the dataclass's fields."""

    name: ClassVar[str]

    def describe(self) -> dict[str, Any]:
        """Return the name and the settings as JSON data, for the record."""
        settings = asdict(self, dict_factory=lambda pairs: {STORED.get(key, key): value for key, value in pairs})
        return {"name": self.name, **settings}


def check_choices(policy: Policy) -> int:
    """Return the number of discrete actions of a policy, or say that it has continuous ones."""
    if policy.spaces.n_actions is None:
        raise InputError(
            f"this attack needs discrete actions, the agent {policy.name} has continuous ones; use --method adaptive"
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
            f"this attack asks the agent's critic, {policy.name} has none (DDPG, TD3 and SAC do); use --method adaptive"
        )
    return policy.critic


def _check_gradients(policy: Policy) -> None:
    if not policy.differentiable:
        raise InputError(
            f"this attack needs gradients, the agent {policy.name} has none (a plain function?); use --method adaptive"
        )
