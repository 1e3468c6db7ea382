"""Observations normalized by the agent: running statistics of its training, frozen (SB3's VecNormalize).

They belong to the agent, after the channel: noise and budgets stay in the units of the environment's observations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from surefoot.agents.memory import Recurrent
from surefoot.agents.networks import weights_hash
from surefoot.agents.policies import Policy, listed
from surefoot.errors import InputError


@dataclass(frozen=True, eq=False, kw_only=True)
class Statistics:
    """What an observation is normalized by: (observation - mean) / sqrt(var + epsilon), clipped to +-clip."""

    mean: NDArray[np.float64]  # mean of each number of an observation, float64
    var: NDArray[np.float64]  # variance of each, float64
    epsilon: float  # added to the variance
    clip: float  # largest absolute value that is left
    # Name and size of each part, where observations have parts; otherwise None.
    parts: tuple[tuple[str, int], ...] | None = None

    def __post_init__(self) -> None:
        with np.errstate(invalid="ignore"):
            divisor = self.var + self.epsilon
        finite = np.isfinite(self.mean).all() and np.isfinite(divisor).all() and (divisor > 0).all()
        if self.mean.shape != self.var.shape or not finite or not self.clip > 0:
            raise InputError(
                "statistics of observations need a finite mean and a positive variance of every number and a clip > 0, "
                f"got shapes {self.mean.shape} and {self.var.shape}, epsilon {self.epsilon} and clip {self.clip}"
            )

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Return whether these can be statistics of observations of a shape, or of one of a stack of them."""
        try:
            self.over(shape)
        except InputError:
            return False
        return True

    def over(self, shape: tuple[int, ...]) -> Statistics:
        """Return the statistics of a stack of observations, where these are of one of them."""
        own = self.mean.shape
        if own == shape:
            return self
        # Frames on an axis of their own, as FrameStackObservation has them.
        if own and shape[1:] == own:
            mean = np.broadcast_to(self.mean, shape).copy()
            var = np.broadcast_to(self.var, shape).copy()
            return replace(self, mean=mean, var=var)
        # Or side by side along the last axis, as VecFrameStack has them.
        if own and shape and shape[:-1] == own[:-1] and own[-1] > 0:
            n_frames, rest = divmod(shape[-1], own[-1])
            if n_frames > 1 and rest == 0:
                repeats = (1,) * (len(own) - 1) + (n_frames,)
                return replace(self, mean=np.tile(self.mean, repeats), var=np.tile(self.var, repeats))
        raise InputError(
            f"the statistics are of observations of shape {own}, the agent was made for {shape}; "
            "give the file that was saved with this agent"
        )


class Normalized(nn.Module):
    """A network behind frozen statistics of the flattened history; in double precision, as SB3 computes it."""

    def __init__(self, network: nn.Module, statistics: Statistics) -> None:
        super().__init__()
        self.network = network
        self.statistics = statistics
        self.mean: Tensor
        self.scale: Tensor
        self.register_buffer("mean", torch.from_numpy(statistics.mean.ravel().copy()))
        scale = np.sqrt(statistics.var + statistics.epsilon)
        self.register_buffer("scale", torch.from_numpy(scale.ravel().copy()))

    def forward(self, history: Tensor, *others: Tensor) -> Tensor:
        """Return what the network makes of normalized histories, and of an action where it is a critic."""
        clip = self.statistics.clip
        flat = ((history.flatten(1).double() - self.mean) / self.scale).clamp(-clip, clip)
        output: Tensor = self.network(flat.float().reshape(history.shape), *others)
        return output


def normalized(policy: Policy, statistics: Statistics) -> Policy:
    """Return the policy with statistics of its observations, or of the single ones of its stack."""
    whole = policy.spaces.stacked_shape
    parts = policy.spaces.parts
    if statistics.parts is not None and parts is not None and statistics.parts != parts:
        raise InputError(
            f"the statistics are of the parts {listed(statistics.parts)}, the agent's observations have "
            f"{listed(parts)}; expected the same in the same order: normalize all parts in training"
        )
    own = statistics.over(whole)
    sha256 = ""
    if policy.sha256:
        arrays: dict[str, NDArray[Any]] = {"mean": own.mean.ravel(), "var": own.var.ravel()}
        sha256 = weights_hash(arrays, {"agent": policy.sha256, "epsilon": own.epsilon, "clip": own.clip})
    if not policy.stacks_frames:
        # What is remembered is what the encoder makes of an observation: normalized before it.
        return replace(policy, memory=_with_encoder(policy, lambda encoder: Normalized(encoder, own)), sha256=sha256)
    return replace(
        policy,
        network=Normalized(policy.network, own),
        critic=None if policy.critic is None else Normalized(policy.critic, own),
        sha256=sha256,
    )


def taken_apart(policy: Policy) -> tuple[Policy, Statistics | None]:
    """Return the policy over normalized observations, and the statistics it has; None if it has none."""
    if isinstance(policy.memory, Recurrent) and isinstance(policy.memory.encoder, Normalized):
        encoder = policy.memory.encoder
        return replace(policy, memory=_with_encoder(policy, lambda _: encoder.network)), encoder.statistics
    if not isinstance(policy.network, Normalized):
        return policy, None
    critic = policy.critic
    if isinstance(critic, Normalized):
        critic = critic.network
    return replace(policy, network=policy.network.network, critic=critic), policy.network.statistics


def feature_scales(policy: Policy) -> list[float] | None:
    """Return what each feature of an observation is divided by; None if the agent does not normalize observations.

    Of a stack, the newest observation counts: that is where noise and attacks come in.
    """
    _, own = taken_apart(policy)
    if own is None:
        return None
    scales = np.sqrt(own.var + own.epsilon).reshape(-1)
    newest: list[float] = scales[-prod(policy.spaces.shape) :].tolist()
    return newest


def _with_encoder(policy: Policy, change: Callable[[nn.Module], nn.Module]) -> Recurrent:
    """Return the memory with another encoder."""
    memory = policy.memory
    if not isinstance(memory, Recurrent) or memory.has_action:
        raise InputError(
            "statistics of observations go with frame stacks, or with recurrent agents without last action"
        )
    return Recurrent(change(memory.encoder), memory.cell, action_size=0)
