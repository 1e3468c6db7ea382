"""The networks of policies: fully connected (``MLP``), squashed, critics, actions in parts, convolutional (``CNN``).

Also what is done with their weights: hashes, layouts and half precision."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import conv2d

from surefoot.agents.policies import Policy, Spaces
from surefoot.errors import InputError
from surefoot.provenance import sha256

Arrays = Mapping[str, NDArray[Any]]
# Weights and biases, first layer first.
Layers = tuple[list[NDArray[Any]], list[NDArray[Any]]]
PARTS = ("weight", "bias")
NATURE_STRIDES = (4, 2, 1)


class MLP(nn.Module):
    """Fully connected layers over the flattened history, the same activation between them, none at the end.

    ``bound``  to what absolute value the outputs are clipped, None for no bound (SAC with state-dependent exploration)
    """

    def __init__(
        self,
        weights: list[NDArray[Any]],
        biases: list[NDArray[Any]],
        activation: str = "relu",
        *,
        bound: float | None = None,
    ) -> None:
        super().__init__()
        self.bound = bound
        if activation not in ACTIVATIONS:
            raise InputError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
        self.activation = activation
        self.layers = nn.ModuleList()
        for weight, bias in zip(weights, biases, strict=True):
            layer = nn.Linear(weight.shape[1], weight.shape[0])
            with torch.no_grad():
                layer.weight.copy_(torch.from_numpy(np.ascontiguousarray(weight, dtype=np.float32)))
                layer.bias.copy_(torch.from_numpy(np.ascontiguousarray(bias, dtype=np.float32)))
            self.layers.append(layer)
        self.requires_grad_(False)

    @property
    def linear(self) -> list[nn.Linear]:
        """The layers, first to last."""
        return [layer for layer in self.layers if isinstance(layer, nn.Linear)]

    def arrays(self, prefix: str = "") -> dict[str, NDArray[Any]]:
        """Return the weights by their names in files: ``0.weight``, ``0.bias``, ..."""
        named = {}
        for index, layer in enumerate(self.layers):
            for part in PARTS:
                parameter: Tensor = getattr(layer, part)
                named[f"{prefix}{index}.{part}"] = parameter.detach().cpu().numpy()
        return named

    def forward(self, history: Tensor) -> Tensor:
        """Return the outputs, (rows, width of the last layer)."""
        hidden = history.flatten(1)
        # A slice of a ModuleList would be a new module at every step.
        *inner, last = self.layers
        for layer in inner:
            hidden = ACTIVATIONS[self.activation](layer(hidden))
        output: Tensor = last(hidden)
        if self.bound is None:
            return output
        return output.clamp(-self.bound, self.bound)


class _Bounded(nn.Module):
    """A network and the bounds of the actions it knows."""

    def __init__(self, network: nn.Module, low: NDArray[Any], high: NDArray[Any]) -> None:
        super().__init__()
        self.network = network
        self.low: Tensor
        self.high: Tensor
        self.register_buffer("low", torch.as_tensor(low, dtype=torch.float32))
        self.register_buffer("high", torch.as_tensor(high, dtype=torch.float32))


class Squashed(_Bounded):
    """A network whose outputs go through tanh and are then stretched from [-1, 1] to [low, high]."""

    def forward(self, history: Tensor) -> Tensor:
        """Return actions inside the bounds."""
        return self.low + 0.5 * (torch.tanh(self.network(history)) + 1.0) * (self.high - self.low)


class Critic(_Bounded):
    """The value of continuous actions: a network over the flattened history and the action scaled to [-1, 1]."""

    network: MLP

    def forward(self, history: Tensor, action: Tensor) -> Tensor:
        """Return one value per row."""
        # As SB3 scales actions before its critics see them.
        scaled = 2.0 * ((action - self.low) / (self.high - self.low)) - 1.0
        output: Tensor = self.network(torch.cat((history.flatten(1), scaled), dim=1))
        return output[:, 0]


class Joint(nn.Module):
    """A network with outputs for each part of an action, as one value for every combination of them.

    The best combination is the best value of each part: values add, in double precision, so that no sum is rounded to
    another order. The last part counts fastest.
    """

    def __init__(self, network: nn.Module, factors: tuple[int, ...], *, binary: bool) -> None:
        """Wrap a network.

        Args:
            network: Its outputs are the values of the first part, of the second, and so on; of binary parts one each,
                the value of 1, where 0 has the value 0.
            factors: How many values each part has.
            binary: Whether parts are binary in this sense.
        """
        super().__init__()
        self.network = network
        self.factors = factors
        self.binary = binary

    def forward(self, history: Tensor) -> Tensor:
        """Return one value per combination."""
        output: Tensor = self.network(history).double()
        if self.binary:
            # One output for each part, the value of 1: that of 0 is put before it.
            output = torch.stack((torch.zeros_like(output), output), dim=2).flatten(1)
        first, *others = torch.split(output, list(self.factors), dim=1)
        for values in others:
            first = (first.unsqueeze(2) + values.unsqueeze(1)).flatten(1)
        return first


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    # In place: the layer's output is ours alone, and a second buffer per layer costs a third of the forward's time.
    "relu": torch.relu_,
    "tanh": torch.tanh_,
    "elu": nn.functional.elu,
    "leaky_relu": nn.functional.leaky_relu,
    "silu": nn.functional.silu,
    "gelu": nn.functional.gelu,
}


def stored_layers(arrays: Arrays, prefix: str, count: int) -> Layers:
    """Return the first ``count`` layers among named arrays."""
    weights = [arrays[f"{prefix}{index}.weight"] for index in range(count)]
    biases = [arrays[f"{prefix}{index}.bias"] for index in range(count)]
    return weights, biases


def stored_bounds(spaces: Spaces) -> dict[str, list[float]]:
    """Return the bounds of continuous actions as a layout has them, in single precision."""
    return {"low": torch.tensor(spaces.low).tolist(), "high": torch.tensor(spaces.high).tolist()}


def fit_together(layers: Layers, inputs: int, outputs: int) -> bool:
    """Return whether fully connected layers lead from so many inputs to so many outputs."""
    weights, biases = layers
    width = inputs
    for weight, bias in zip(weights, biases, strict=True):
        if bias.ndim != 1 or weight.shape != (bias.size, width):
            return False
        width = bias.size
    return len(biases) > 0 and width == outputs


def weights_hash(arrays: dict[str, NDArray[Any]], layout: dict[str, Any]) -> str:
    """Return the SHA-256 over the layout and every array's name, shape, dtype and bytes, in name order.

    Of what ``files.parts_of`` returns no two agents have the same bytes. A JSON object says itself where it ends; the
    layout fixes which names follow; shapes end with a bracket, types (<f2, <f4) have three characters; shape and type
    fix the number of bytes. Arrays that a layout does not use would spoil that, so readers reject them.
    """
    chunks = [json.dumps(layout, sort_keys=True).encode()]
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        chunks += [f"{name}{array.shape}{array.dtype.str}".encode(), array.tobytes()]
    return sha256(*chunks)


@dataclass(frozen=True)
class Sizes:
    """What the weights of a network say: how many convolutions and linear layers, and the convolutions' strides."""

    strides: tuple[int, ...]
    linear: int


class CNN(nn.Module):
    """Convolutions over the frames as channels, then linear layers; ReLU between all of them, none at the end.

    ``arrays``  named ``conv0.weight``, ``conv0.bias``, ..., ``linear0.weight``, ``linear0.bias``, ...
    """

    def __init__(self, arrays: Arrays, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.convolutions = nn.ModuleList()
        for index, stride in enumerate(sizes.strides):
            out, into, high, wide = arrays[f"conv{index}.weight"].shape
            self.convolutions.append(nn.Conv2d(into, out, (high, wide), stride))
        self.linear = nn.ModuleList()
        for index in range(sizes.linear):
            outputs, inputs = arrays[f"linear{index}.weight"].shape
            self.linear.append(nn.Linear(inputs, outputs))
        with torch.no_grad():
            for name, parameter in self.named_parts():
                parameter.copy_(torch.from_numpy(np.ascontiguousarray(arrays[name], dtype=np.float32)))
        self.requires_grad_(False)
        # A fifth faster on a CPU than the other order of memory.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @property
    def channels(self) -> int:
        """Number of stacked frames."""
        first = self.convolutions[0]
        assert isinstance(first, nn.Conv2d)
        return first.in_channels

    def named_parts(self) -> list[tuple[str, Tensor]]:
        """Return the parameters by the names of ``arrays``."""
        named = []
        for kind, layers in (("conv", self.convolutions), ("linear", self.linear)):
            for index, layer in enumerate(layers):
                named += [(f"{kind}{index}.{part}", getattr(layer, part)) for part in PARTS]
        return named

    def forward(self, history: Tensor) -> Tensor:
        """Return the values of the actions, (rows, width of the last layer)."""
        return self.after_first(self.first(history))

    def first(self, history: Tensor) -> Tensor:
        """Return what the first convolution makes of stacks, before its ReLU, (rows, height, width, channels).

        Channels come last so that picking rows keeps the order of memory.
        """
        hidden: Tensor = self.convolutions[0](history.reshape(len(history), self.channels, *history.shape[-2:]))
        return hidden.permute(0, 2, 3, 1)

    def first_of_change(self, change: Tensor, episode_start: Tensor | None) -> Tensor:
        """Return by how much ``first`` changes when the newest observation changes by ``change``.

        It is linear: an attack, which changes one observation many times, computes the rest of it once. The stacks of
        rows that begin an episode (None if none does) are filled with the newest observation.
        """
        layer = self.convolutions[0]
        assert isinstance(layer, nn.Conv2d)
        into = change.reshape(len(change), -1, *change.shape[-2:])
        n_stack = layer.in_channels // into.shape[1]
        weight = layer.weight.view(len(layer.weight), n_stack, into.shape[1], *layer.kernel_size)
        newest = conv2d(into, weight[:, -1], stride=layer.stride).permute(0, 2, 3, 1)
        if episode_start is None:
            return newest
        # A stack that begins an episode is filled with the observation: it changes every frame.
        filled = conv2d(into, weight.sum(dim=1), stride=layer.stride).permute(0, 2, 3, 1)
        return torch.where(episode_start.view(-1, 1, 1, 1), filled, newest)

    def after_first(self, hidden: Tensor) -> Tensor:
        """Return the values of the actions, of what ``first`` made; ``hidden`` is overwritten."""
        hidden = torch.relu_(hidden).permute(0, 3, 1, 2)
        for layer in self.convolutions[1:]:
            hidden = torch.relu_(layer(hidden))
        hidden = hidden.flatten(1)
        for layer in self.linear[:-1]:
            hidden = torch.relu_(layer(hidden))
        output: Tensor = self.linear[-1](hidden)
        return output


def cnn_policy(
    arrays: Arrays, sizes: Sizes, n_stack: int, shape: tuple[int, ...], n_actions: int, name: str = "policy"
) -> Policy:
    """Return the policy of these weights, checked to fit together; its hash covers exactly the arrays given."""
    check_fit(arrays, sizes, n_stack, shape, n_actions)
    spaces = Spaces(shape=shape, n_actions=n_actions, n_stack=n_stack)
    policy = Policy(CNN(arrays, sizes), spaces, name=name)
    layout, stored = cnn_parts(policy)
    return replace(policy, sha256=weights_hash(stored, layout))


def cnn_parts(policy: Policy) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the layout and the arrays of a convolutional policy, in half precision where that loses nothing."""
    network = policy.network
    assert isinstance(network, CNN)
    arrays: dict[str, NDArray[Any]] = {}
    halves: dict[str, NDArray[Any]] = {}
    exact = True
    for name, part in network.named_parts():
        arrays[name] = part.detach().cpu().contiguous().numpy()
        with np.errstate(over="ignore"):
            halves[name] = arrays[name].astype(np.float16)
        exact = exact and np.array_equal(halves[name], arrays[name])
    layout = {
        "kind": "cnn",
        "activation": "relu",
        "strides": list(network.sizes.strides),
        "layers": network.sizes.linear,
        "n_stack": policy.spaces.n_stack,
        "shape": list(policy.spaces.shape),
        "n_actions": policy.spaces.n_actions,
    }
    return layout, (halves if exact else arrays)


def check_fit(arrays: Arrays, sizes: Sizes, n_stack: int, shape: tuple[int, ...], n_actions: int) -> None:
    """Raise InputError if the layers do not lead from stacked frames to one value per action."""
    expected = set()
    for kind, count in (("conv", len(sizes.strides)), ("linear", sizes.linear)):
        for index in range(count):
            expected |= {f"{kind}{index}.weight", f"{kind}{index}.bias"}
    if set(arrays) != expected or not sizes.strides or not sizes.linear or len(shape) < 2:
        odd = ", ".join(sorted(set(arrays) ^ expected)[:3])
        raise InputError(f"a convolutional agent needs convolutions and linear layers over frames, got {odd or shape}")
    width = _flattened_width(arrays, sizes.strides, n_stack * int(np.prod(shape[:-2])), shape)
    for index in range(sizes.linear):
        weight = arrays[f"linear{index}.weight"]
        bias = arrays[f"linear{index}.bias"]
        if weight.ndim != 2 or bias.shape != weight.shape[:1] or weight.shape[1] != width:
            raise InputError(f"layer linear{index} has shape {weight.shape}, expected {width} inputs and one bias each")
        width = weight.shape[0]
    if width != n_actions:
        raise InputError(f"the network has {width} outputs, expected one for each of {n_actions} actions")


def _flattened_width(arrays: Arrays, strides: Sequence[int], channels: int, shape: tuple[int, ...]) -> int:
    high, wide = shape[-2:]
    for index, stride in enumerate(strides):
        weight = arrays[f"conv{index}.weight"]
        bias = arrays[f"conv{index}.bias"]
        if weight.ndim != 4 or bias.shape != weight.shape[:1] or weight.shape[1] != channels or stride < 1:
            raise InputError(f"layer conv{index} has shape {weight.shape}, expected {channels} input channels")
        if high < weight.shape[2] or wide < weight.shape[3]:
            raise InputError(f"layer conv{index} with kernel {weight.shape[2:]} does not fit into {high} x {wide}")
        channels = weight.shape[0]
        high = (high - weight.shape[2]) // stride + 1
        wide = (wide - weight.shape[3]) // stride + 1
    return channels * high * wide


NATURE = Sizes(NATURE_STRIDES, linear=2)
