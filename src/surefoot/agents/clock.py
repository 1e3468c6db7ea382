"""Agents that know the time: the share of the episode that is left, appended to each observation.

sb3-contrib's TimeFeatureWrapper does that in the environment. Here the agent counts its own steps, after the channel:
the time carries no noise and cannot be tampered with.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from surefoot.agents.networks import weights_hash
from surefoot.agents.policies import Policy, listed
from surefoot.errors import InputError


class ClockMemory:
    """A memory of the present observation and the number of steps before it, (rows, 1, size + 1)."""

    has_action = False

    def empty(self, observation: Tensor) -> Tensor:
        """Return zeros."""
        return observation.new_zeros(len(observation), 1, observation[0].numel() + 1)

    def advance(
        self,
        memory: Tensor,
        seen: Tensor,
        action: Tensor | None = None,  # noqa: ARG002
        episode_start: Tensor | None = None,
    ) -> Tensor:
        """Count one more step; rows that begin an episode begin at 0."""
        steps = memory[:, 0, -1] + 1
        if episode_start is not None:
            steps = steps.masked_fill(episode_start, 0.0)
        return torch.cat((seen.flatten(1), steps.unsqueeze(1)), dim=1).unsqueeze(1)

    def to(self, device: torch.device | str) -> ClockMemory:  # noqa: ARG002
        """Return itself: there are no weights."""
        return self

    def describe(self) -> str:
        """Return what it is."""
        return "the time left"


class TimeLeft(nn.Module):
    """A network that is given the time left in place of the steps that were counted."""

    def __init__(self, network: nn.Module, max_steps: int) -> None:
        super().__init__()
        self.network = network
        self.max_steps = max_steps

    def forward(self, memory: Tensor, *others: Tensor) -> Tensor:
        """Return what the network makes of observation and time, and of an action where it is a critic."""
        # In double precision, as the wrapper computes it.
        left = (1 - memory[..., -1:].double() / self.max_steps).to(memory.dtype)
        output: Tensor = self.network(torch.cat((memory[..., :-1], left), dim=-1), *others)
        return output


def with_clock(policy: Policy, max_steps: int) -> Policy:
    """Return a policy whose last input is the time left of ``max_steps`` as one of the others' observations."""
    spaces = policy.spaces
    if spaces.n_stack != 1 or len(spaces.shape) != 1 or spaces.shape[0] < 2:
        raise InputError(
            f"the time left can be appended to vectors only, the agent takes {spaces.n_stack} of {spaces.shape}; "
            "give an environment that appends it"
        )
    parts = spaces.parts
    if parts is not None:
        # The wrapper appends the time to the part of this name, which comes last where goals are the other parts.
        name, size = parts[-1]
        if name != "observation" or size < 2:
            raise InputError(
                f"the time left is the last number of the part observation, the agent takes {listed(parts)}; "
                "give an environment that appends it"
            )
        parts = (*parts[:-1], (name, size - 1))
    digest = ""
    if policy.sha256:
        digest = weights_hash({}, {"agent": policy.sha256, "time_feature": max_steps})
    return replace(
        policy,
        network=TimeLeft(policy.network, max_steps),
        critic=None if policy.critic is None else TimeLeft(policy.critic, max_steps),
        spaces=replace(spaces, shape=(spaces.shape[0] - 1,), parts=parts),
        memory=ClockMemory(),
        sha256=digest,
    )
