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

    def to_memory(self, chosen: Tensor) -> Tensor:
        """Return what the next step's memory is given."""
        return one_hot(chosen, self.size).float()


class ContinuousHead(nn.Module):
    """A normal distribution squashed by tanh into the bounds of the actions; the deployed agent takes its center."""

    def __init__(self, width: int, low: tuple[float, ...], high: tuple[float, ...]) -> None:
        super().__init__()
        self.linear = _zero_layer(nn.Linear(width, len(low)))
        self.log_std = nn.Parameter(torch.ones(len(low)))
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

    def to_memory(self, chosen: Tensor) -> Tensor:
        """Return what the next step's memory is given."""
        return self.to_action(chosen)

    def _log_density(self, center: Tensor, chosen: Tensor) -> Tensor:
        standard = (chosen - center) * (-self.log_std).exp()
        return -(0.5 * standard.square() + self.log_std + 0.5 * math.log(2 * math.pi)).sum(dim=-1)


class FrameMemory(nn.Module):
    """Features of the last observations, as the paper's agents have them: two layers over the stack, with tanh."""

    def __init__(self, spaces: Spaces, n_stack: int, width: int) -> None:
        super().__init__()
        inputs = n_stack * math.prod(spaces.shape)
        self.n_stack = n_stack
        self.layers = nn.ModuleList((nn.Linear(inputs, width), nn.Linear(width, width)))
        self.scale: Tensor
        self.register_buffer("scale", torch.ones(spaces.shape))

    def start(self, _: int) -> Tensor:
        """Return what is remembered before the first observation: nothing."""
        return torch.empty(0)

    def step(self, seen: Tensor, _: Tensor, stack: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return inputs, features, and the stack with the newest observation; the first one fills it."""
        newest = seen.unsqueeze(1)
        frames = [newest] * self.n_stack
        if stack.numel() > 0:
            frames = [stack[:, 1:], newest]
        stack = torch.cat(frames, dim=1)
        return stack, self(stack), stack

    def forward(self, stacks: Tensor) -> Tensor:
        """Return the features of stacks (..., n_stack, observation)."""
        hidden = (stacks * self.scale).flatten(-2)
        for layer in self.layers:
            hidden = torch.tanh(layer(hidden))
        return hidden


class GruMemory(nn.Module):
    """Features of everything seen and done before: a GRU on the newest observation and the action before it."""

    def __init__(self, spaces: Spaces, actions: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(math.prod(spaces.shape) + actions, width)
        self.gru = nn.GRU(width, width)
        self.scale: Tensor
        self.register_buffer("scale", torch.ones(spaces.shape))

    def start(self, n_envs: int) -> Tensor:
        """Return what is remembered before the first observation."""
        return torch.zeros(1, n_envs, self.gru.hidden_size, device=self.scale.device)

    def step(self, seen: Tensor, last_action: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return inputs, features, and the new hidden state."""
        inputs = torch.cat((seen, last_action), dim=-1)
        features, hidden = self.gru(self._encode(inputs).unsqueeze(0), hidden)
        return inputs, features[0], hidden

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the features at every step of episodes (steps, episodes, observation and action)."""
        features: Tensor = self.gru(self._encode(inputs))[0]
        return features

    def _encode(self, inputs: Tensor) -> Tensor:
        wide = self.scale.numel()
        scaled = torch.cat((inputs[..., :wide] * self.scale, inputs[..., wide:]), dim=-1)
        return torch.tanh(self.linear(scaled))


class Actor(nn.Module):
    """What acts while training, and a guess of the clean observation that only makes its features better."""

    def __init__(self, spaces: Spaces, *, n_stack: int | None, width: int) -> None:
        super().__init__()
        self.spaces = spaces
        self.head: DiscreteHead | ContinuousHead
        if spaces.n_actions is None:
            assert spaces.low is not None
            assert spaces.high is not None
            self.head = ContinuousHead(width, spaces.low, spaces.high)
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
        self.scale: Tensor
        self.register_buffer("scale", torch.ones(spaces.shape))

    def forward(self, known: Tensor) -> Tensor:
        """Return one value per row."""
        wide = self.scale.numel()
        values: Tensor = self.layers(torch.cat((known[..., :wide] * self.scale, known[..., wide:]), dim=-1))
        return values.squeeze(-1)


def deployed_weights(actor: Actor) -> NamedArrays:
    """Return what the deployed agent needs of an actor, as ``policy_from_weights`` names it.

    The agent takes observations as they are, so the scale of the inputs is folded into the first layer.
    """
    state = {name: value.detach().cpu().numpy().copy() for name, value in actor.state_dict().items()}
    if isinstance(actor.memory, GruMemory):
        arrays = {part: state[f"memory.gru.{part}_l0"] for part in CELL_PARTS}
        arrays["encoder0.weight"] = _scaled_weight(state, "memory.linear", 1)
        arrays["encoder0.bias"] = state["memory.linear.bias"]
        arrays["head0.weight"] = state["head.linear.weight"]
        arrays["head0.bias"] = state["head.linear.bias"]
        return arrays
    return {
        "0.weight": _scaled_weight(state, "memory.layers.0", actor.memory.n_stack),
        "0.bias": state["memory.layers.0.bias"],
        "1.weight": state["memory.layers.1.weight"],
        "1.bias": state["memory.layers.1.bias"],
        "2.weight": state["head.linear.weight"],
        "2.bias": state["head.linear.bias"],
    }


def _scaled_weight(state: NamedArrays, layer: str, n_stack: int) -> NDArray[Any]:
    """Return the weight of a first layer that takes observations as they are."""
    weight = state[f"{layer}.weight"]
    scale = np.tile(state["memory.scale"], n_stack)
    # Inputs behind the observations, the last action of a GRU, were never scaled.
    n_unscaled = weight.shape[1] - len(scale)
    scaled: NDArray[Any] = weight * np.pad(scale, (0, n_unscaled), constant_values=1)
    return scaled


def _zero_layer(layer: nn.Linear) -> nn.Linear:
    """Begin with a policy that prefers nothing."""
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
