"""Agents with a GRU or an LSTM: observation and last action -> encoder -> cell -> fully connected layers -> values.

Arrays, named as torch orders them (gates r, z, n of a GRU; i, f, g, o of an LSTM):
``encoder0.weight``, ``encoder0.bias``, ...   fully connected layers before the cell, an activation after each; may be
                                              none. The first layer sees the flattened observation, then the last action
``weight_ih``, ``weight_hh``, ``bias_ih``, ``bias_hh``   of the cell
``head0.weight``, ``head0.bias``, ...         fully connected layers after the cell, an activation between them
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from surefoot.agents.memory import Recurrent, quick_tanh
from surefoot.agents.networks import (
    ACTIVATIONS,
    MLP,
    Arrays,
    Layers,
    Squashed,
    fit_together,
    stored_bounds,
    stored_layers,
    weights_hash,
)
from surefoot.agents.policies import Policy, Spaces
from surefoot.errors import InputError

CELL_CLASSES: dict[str, type[nn.GRUCell] | type[nn.LSTMCell]] = {"gru": nn.GRUCell, "lstm": nn.LSTMCell}
CELL_PARTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


@dataclass(frozen=True, kw_only=True)
class Form:
    """What the arrays of a recurrent agent do not say."""

    kind: str = "gru"  # "gru" or "lstm"
    activation: str = "tanh"  # of encoder and head
    last_action: bool = True  # whether the last action is an input: one-hot, or as it was; zeros at the first step
    # Whether continuous actions go through tanh and are stretched to their bounds; otherwise clipped.
    squashed: bool = False


class Encoder(nn.Module):
    """Fully connected layers with an activation after each."""

    def __init__(self, layers: MLP) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, seen: Tensor) -> Tensor:
        """Return the inputs of the cell."""
        activation = ACTIVATIONS[self.layers.activation]
        if self.layers.activation == "tanh":
            activation = quick_tanh
        return activation(self.layers(seen))


class Visible(nn.Module):
    """A network over an LSTM's hidden state; the cell state next to it is not shown."""

    def __init__(self, network: MLP, width: int) -> None:
        super().__init__()
        self.network = network
        self.width = width

    def forward(self, memory: Tensor) -> Tensor:
        """Return the outputs of the network."""
        output: Tensor = self.network(memory[:, : self.width])
        return output


def recurrent_policy(arrays: Arrays, spaces: Spaces, form: Form, name: str = "policy") -> Policy:
    """Return the policy of these weights, checked to fit together; its hash covers exactly the arrays given."""
    spaces = replace(spaces, n_stack=1)
    check_recurrent_fit(arrays, spaces, form)
    head = MLP(*_stored_part(arrays, "head"), form.activation)
    network: nn.Module = head
    # The memory of an LSTM is hidden and cell state side by side; only the hidden one is shown to the head.
    if form.kind == "lstm":
        network = Visible(head, width=arrays["weight_hh"].shape[1])
    if form.squashed:
        network = Squashed(network, np.asarray(spaces.low), np.asarray(spaces.high))
    # Without layers in front the cell sees the observation itself.
    layers = MLP(*_stored_part(arrays, "encoder"), form.activation)
    encoder: nn.Module = Encoder(layers) if layers.layers else nn.Identity()
    action_size = spaces.n_outputs if form.last_action else 0
    memory = Recurrent(encoder, _make_cell(arrays, form.kind), action_size=action_size)
    policy = Policy(network, spaces, memory, name)
    layout, stored = recurrent_parts(policy)
    return replace(policy, sha256=weights_hash(stored, layout))


def recurrent_parts(policy: Policy) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the layout and the arrays of a recurrent policy."""
    memory = policy.memory
    head = policy.network
    squashed = isinstance(head, Squashed)
    if isinstance(head, Squashed):
        head = head.network
    if isinstance(head, Visible):
        head = head.network
    known_encoder = isinstance(memory, Recurrent) and isinstance(memory.encoder, Encoder | nn.Identity)
    if not isinstance(memory, Recurrent) or not known_encoder or not isinstance(head, MLP):
        raise InputError(f"only a GRU or an LSTM with fully connected layers can be stored; {policy.name} is neither")
    arrays = {part: getattr(memory.cell, part).detach().cpu().numpy() for part in CELL_PARTS}
    arrays |= head.arrays("head")
    n_encoder = 0
    if isinstance(memory.encoder, Encoder):
        arrays |= memory.encoder.layers.arrays("encoder")
        n_encoder = len(memory.encoder.layers.layers)
    layout: dict[str, Any] = {
        "kind": "lstm" if isinstance(memory.cell, nn.LSTMCell) else "gru",
        "activation": head.activation,
        "width": memory.cell.hidden_size,
        "encoder": n_encoder,
        "layers": len(head.layers),
        "last_action": memory.has_action,
        "n_stack": 1,
        "shape": list(policy.spaces.shape),
        "n_actions": policy.spaces.n_actions,
    }
    if policy.spaces.low is not None:
        layout |= {**stored_bounds(policy.spaces), "squashed": squashed}
    return layout, arrays


def check_recurrent_fit(arrays: Arrays, spaces: Spaces, form: Form) -> None:
    """Raise InputError if the arrays do not lead from observation and last action to values or actions."""
    if form.kind not in CELL_CLASSES:
        raise InputError(f"a recurrent agent is one of {', '.join(CELL_CLASSES)}, got {form.kind!r}")
    if spaces.n_actions is None and (spaces.low is None or spaces.high is None):
        raise InputError("a recurrent agent with continuous actions needs their bounds")
    if form.squashed and spaces.n_actions is not None:
        raise InputError("discrete actions cannot be squashed")
    _check_names(arrays)
    inputs = int(np.prod(spaces.shape))
    if form.last_action:
        inputs += spaces.n_outputs
    encoder = _stored_part(arrays, "encoder")
    cell_inputs = inputs
    if encoder[1]:
        cell_inputs = encoder[1][-1].size
    # The gates of a cell are stacked: r, z, n of a GRU, i, f, g, o of an LSTM.
    n_gates = 3 if form.kind == "gru" else 4
    hidden = arrays["bias_ih"].size // n_gates
    stacked = n_gates * hidden
    expected = [(stacked, cell_inputs), (stacked, hidden), (stacked,), (stacked,)]
    found = [arrays[part].shape for part in CELL_PARTS]
    if found != expected or hidden == 0:
        raise InputError(f"the cell has shapes {found}, expected {expected}")
    encoder_fits = not encoder[0] or fit_together(encoder, inputs, cell_inputs)
    if not encoder_fits or not fit_together(_stored_part(arrays, "head"), hidden, spaces.n_outputs):
        raise InputError(f"the layers do not lead from {inputs} inputs over {hidden} to {spaces.n_outputs} outputs")


def _check_names(arrays: Arrays) -> None:
    """Raise InputError unless the arrays are those of a cell, a head, and layers without a gap in their numbers."""
    expected = set(CELL_PARTS)
    for part in ("encoder", "head"):
        for index in range(_count_layers(arrays, part)):
            expected |= {f"{part}{index}.weight", f"{part}{index}.bias"}
    if set(arrays) != expected or "head0.weight" not in expected:
        odd = ", ".join(sorted(set(arrays) ^ (expected | {"head0.weight"}))[:3])
        raise InputError(f"a recurrent agent needs the arrays of its cell and a head, got or misses {odd}")


def _count_layers(arrays: Arrays, part: str) -> int:
    return sum(name.startswith(part) and name.endswith(".weight") for name in arrays)


def _stored_part(arrays: Arrays, part: str) -> Layers:
    return stored_layers(arrays, part, _count_layers(arrays, part))


def _make_cell(arrays: Arrays, kind: str) -> nn.GRUCell | nn.LSTMCell:
    cell = CELL_CLASSES[kind](arrays["weight_ih"].shape[1], arrays["weight_hh"].shape[1])
    with torch.no_grad():
        for part in CELL_PARTS:
            getattr(cell, part).copy_(torch.from_numpy(np.ascontiguousarray(arrays[part], dtype=np.float32)))
    return cell
