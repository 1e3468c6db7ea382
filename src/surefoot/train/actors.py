"""The networks of PPO: an actor that sees what the agent sees, and a critic that also sees the clean observation.

An actor turns what is seen into features, from a stack of frames or with a GRU, and features into a distribution over
actions. The two kinds of memory have the same methods, so that the rest of training does not know which it has.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import log_softmax, one_hot

from surefoot.agents.policies import Spaces
from surefoot.agents.recurrent import CELL_PARTS
from surefoot.play.streams import Stream
from surefoot.train.folder import NamedArrays

LITTLE = math.log(0.2)  # of the deviation before tanh that explores around a teacher's actions


class DiscreteHead(nn.Module):
    """One logit for each action; the deployed agent takes the largest."""

    def __init__(self, width: int, n_actions: int) -> None:
        super().__init__()
        self.linear = _zero_layer(nn.Linear(width, n_actions))
        self.size = n_actions

    def draw(self, features: Tensor, stream: Stream) -> tuple[Tensor, Tensor]:
        """Return random actions and the logarithms of their probabilities."""
        logs = log_softmax(self.linear(features), dim=-1)
        # One uniform number per row, against the distribution function of the actions.
        below = logs.exp().cumsum(dim=-1)[:, :-1]
        chosen = (stream.uniform(0.0, 1.0, (len(features), 1)) > below).sum(dim=-1)
        return chosen, logs.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)

    def evaluate(self, features: Tensor, chosen: Tensor, _: Stream) -> tuple[Tensor, Tensor]:
        """Return the logarithms of the probabilities of what was chosen, and the entropies."""
        logs = log_softmax(self.linear(features), dim=-1)
        return logs.gather(-1, chosen.unsqueeze(-1)).squeeze(-1), -(logs.exp() * logs).sum(dim=-1)

    def to_action(self, chosen: Tensor) -> Tensor:
        """Return what the environment is given."""
        return chosen

    def to_memory(self, action: Tensor) -> Tensor:
        """Return what the next step's memory is given of an action."""
        return one_hot(action, self.size).float()

    def imitation_error(self, features: Tensor, wanted: Tensor) -> Tensor:
        """Return how improbable the actions are that a teacher wanted: minus the logarithm of their probability."""
        return -log_softmax(self.linear(features), dim=-1).gather(-1, wanted.unsqueeze(-1)).squeeze(-1)

    def explore_little(self) -> None:
        """Keep what was imitated: how sure the teacher's actions are is in the logits already."""


class ContinuousHead(nn.Module):
    """A normal distribution squashed by tanh into the bounds of the actions; the deployed agent takes its center."""

    def __init__(self, width: int, low: tuple[float, ...], high: tuple[float, ...], *, log_std: float) -> None:
        super().__init__()
        self.linear = _zero_layer(nn.Linear(width, len(low)))
        self.log_std = nn.Parameter(torch.full((len(low),), log_std))
        self.low: Tensor
        self.high: Tensor
        self.register_buffer("low", torch.tensor(low))
        self.register_buffer("high", torch.tensor(high))
        self.size = len(low)

    def draw(self, features: Tensor, stream: Stream) -> tuple[Tensor, Tensor]:
        """Return random numbers before tanh and the logarithms of their densities there."""
        center = self.linear(features)
        chosen = center + self.log_std.exp() * stream.normal(tuple(center.shape))
        return chosen, self._log_density(center, chosen)

    def evaluate(self, features: Tensor, chosen: Tensor, stream: Stream) -> tuple[Tensor, Tensor]:
        """Return the logarithms of the densities before tanh (ratios stay the same), and the entropies after it."""
        center = self.linear(features)
        # The entropy after tanh has no formula: one fresh sample estimates it.
        fresh = center + self.log_std.exp() * stream.normal(tuple(center.shape))
        # log(1 - tanh(x)^2), without the cancellation: what tanh takes from the entropy.
        squeezed = 2 * (math.log(2) - fresh - nn.functional.softplus(-2 * fresh))
        entropy = (self.log_std + 0.5 * math.log(2 * math.pi * math.e) + squeezed).sum(dim=-1)
        return self._log_density(center, chosen), entropy

    def to_action(self, chosen: Tensor) -> Tensor:
        """Return what the environment is given."""
        return self.low + 0.5 * (torch.tanh(chosen) + 1) * (self.high - self.low)

    def to_memory(self, action: Tensor) -> Tensor:
        """Return what the next step's memory is given of an action."""
        return action.float()

    def imitation_error(self, features: Tensor, wanted: Tensor) -> Tensor:
        """Return the squared distance to the actions that a teacher wanted, in units of half their range."""
        away = self.to_action(self.linear(features)) - wanted
        return (2 * away / (self.high - self.low)).square().mean(dim=-1)

    def explore_little(self) -> None:
        """Stay near what was imitated."""
        with torch.no_grad():
            self.log_std.fill_(LITTLE)

    def _log_density(self, center: Tensor, chosen: Tensor) -> Tensor:
        standard = (chosen - center) * (-self.log_std).exp()
        return -(0.5 * standard.square() + self.log_std + 0.5 * math.log(2 * math.pi)).sum(dim=-1)


class Normalization(nn.Module):
    """Observations in units of their spread, measured while training and then frozen into the first layer."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.mean: Tensor
        self.scale: Tensor
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("scale", torch.ones(shape))

    def forward(self, observation: Tensor) -> Tensor:
        """Return observations with a mean of 0 and a spread of 1, noise included."""
        return (observation - self.mean) * self.scale


class FrameMemory(nn.Module):
    """Features of the last observations, as the paper's agents have them: two layers over the stack, with tanh."""

    def __init__(self, spaces: Spaces, n_stack: int, width: int) -> None:
        super().__init__()
        inputs = n_stack * math.prod(spaces.shape)
        self.n_stack = n_stack
        self.layers = nn.ModuleList((nn.Linear(inputs, width), nn.Linear(width, width)))
        self.normalize = Normalization(spaces.shape)

    def start(self, n_envs: int) -> Tensor:
        """Return stacks before the first observation, which fills them."""
        return torch.zeros(n_envs, self.n_stack, *self.normalize.mean.shape, device=self.normalize.mean.device)

    def step(self, seen: Tensor, _: Tensor, stack: Tensor, episode_start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return inputs, features, and the stack with the newest observation; the first one fills it."""
        newest = seen.unsqueeze(1)
        pushed = torch.cat((stack[:, 1:], newest), dim=1)
        stack = torch.where(episode_start.view(-1, 1, 1), newest, pushed)
        return stack, self(stack), stack

    def forward(self, stacks: Tensor, _: Tensor | None = None) -> Tensor:
        """Return the features of stacks (..., n_stack, observation)."""
        hidden: Tensor = self.normalize(stacks).flatten(-2)
        for layer in self.layers:
            hidden = torch.tanh(layer(hidden))
        return hidden


class GruMemory(nn.Module):
    """Features of everything seen and done before: a GRU on the newest observation and the action before it."""

    def __init__(self, spaces: Spaces, actions: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(math.prod(spaces.shape) + actions, width)
        self.gru = nn.GRU(width, width)
        self.normalize = Normalization(spaces.shape)

    def start(self, n_envs: int) -> Tensor:
        """Return what is remembered before the first observation."""
        return torch.zeros(n_envs, self.gru.hidden_size, device=self.normalize.mean.device)

    def step(
        self, seen: Tensor, last_action: Tensor, hidden: Tensor, episode_start: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return inputs, features, and the new hidden state; an episode begins with zeros."""
        begins = episode_start.unsqueeze(-1)
        inputs = torch.cat((seen, last_action.masked_fill(begins, 0.0)), dim=-1)
        hidden = hidden.masked_fill(begins, 0.0)
        features = self.gru(self._encode(inputs).unsqueeze(0), hidden.unsqueeze(0))[0][0]
        return inputs, features, features

    def forward(self, inputs: Tensor, hidden: Tensor | None = None) -> Tensor:
        """Return the features at every step of sequences (steps, sequences, observation and action).

        Args:
            inputs: What was seen and done.
            hidden: What was remembered before the first step; None: nothing.
        """
        began = None if hidden is None else hidden.unsqueeze(0)
        features: Tensor = self.gru(self._encode(inputs), began)[0]
        return features

    def _encode(self, inputs: Tensor) -> Tensor:
        wide = self.normalize.mean.numel()
        scaled = torch.cat((self.normalize(inputs[..., :wide]), inputs[..., wide:]), dim=-1)
        return torch.tanh(self.linear(scaled))


class Actor(nn.Module):
    """What acts while training, and a guess of the clean observation that only makes its features better."""

    def __init__(self, spaces: Spaces, *, n_stack: int | None, width: int, log_std: float) -> None:
        super().__init__()
        self.spaces = spaces
        self.head: DiscreteHead | ContinuousHead
        if spaces.n_actions is None:
            assert spaces.low is not None
            assert spaces.high is not None
            self.head = ContinuousHead(width, spaces.low, spaces.high, log_std=log_std)
        else:
            self.head = DiscreteHead(width, spaces.n_actions)
        self.memory: FrameMemory | GruMemory
        if n_stack is None:
            self.memory = GruMemory(spaces, self.head.size, width)
        else:
            self.memory = FrameMemory(spaces, n_stack, width)
        self.clean = nn.Linear(width, math.prod(spaces.shape))


class CleanCritic(nn.Module):
    """The value of a step: of the clean observation, the time, and the actor's features."""

    def __init__(self, spaces: Spaces, *, features: int, width: int) -> None:
        super().__init__()
        inputs = math.prod(spaces.shape) + 1 + features
        layers = (nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
        self.layers = nn.Sequential(*layers)
        self.normalize = Normalization(spaces.shape)

    def forward(self, known: Tensor) -> Tensor:
        """Return one value per row."""
        wide = self.normalize.mean.numel()
        values: Tensor = self.layers(torch.cat((self.normalize(known[..., :wide]), known[..., wide:]), dim=-1))
        return values.squeeze(-1)


def deployed_weights(actor: Actor) -> NamedArrays:
    """Return what the deployed agent needs of an actor, as ``policy_from_weights`` names it.

    The agent takes observations as they are, so their normalization is folded into the first layer.
    """
    state = {name: value.detach().cpu().numpy().copy() for name, value in actor.state_dict().items()}
    if isinstance(actor.memory, GruMemory):
        arrays = {part: state[f"memory.gru.{part}_l0"] for part in CELL_PARTS}
        arrays["encoder0.weight"], arrays["encoder0.bias"] = _raw_layer(state, "memory.linear", 1)
        arrays["head0.weight"] = state["head.linear.weight"]
        arrays["head0.bias"] = state["head.linear.bias"]
        return arrays
    weight, bias = _raw_layer(state, "memory.layers.0", actor.memory.n_stack)
    return {
        "0.weight": weight,
        "0.bias": bias,
        "1.weight": state["memory.layers.1.weight"],
        "1.bias": state["memory.layers.1.bias"],
        "2.weight": state["head.linear.weight"],
        "2.bias": state["head.linear.bias"],
    }


def _raw_layer(state: NamedArrays, layer: str, n_stack: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return weight and bias of a first layer that takes observations as they are."""
    weight = state[f"{layer}.weight"].astype(np.float64)
    mean = np.tile(state["memory.normalize.mean"], n_stack).astype(np.float64)
    scale = np.tile(state["memory.normalize.scale"], n_stack).astype(np.float64)
    # Inputs behind the observations, the last action of a GRU, were never scaled.
    n_unscaled = weight.shape[1] - len(scale)
    raw = weight * np.pad(scale, (0, n_unscaled), constant_values=1)
    bias = state[f"{layer}.bias"] - raw[:, : len(mean)] @ mean
    return raw.astype(np.float32), bias.astype(np.float32)


def _zero_layer(layer: nn.Linear) -> nn.Linear:
    """Begin with a policy that prefers nothing."""
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
