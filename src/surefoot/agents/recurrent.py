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
    Squashed,
    fit_together,
    stored_bounds,
    stored_layers,
    weights_hash,
)
from surefoot.agents.policies import Policy, Spaces
from surefoot.errors import InputError

CELLS: dict[str, type[nn.GRUCell] | type[nn.LSTMCell]] = {"gru": nn.GRUCell, "lstm": nn.LSTMCell}
CELL_PARTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


@dataclass(frozen=True, kw_only=True)
class Form:
    """What the arrays of a recurrent agent do not say.

    Attributes:
        kind: "gru" or "lstm".
        activation: Of encoder and head.
        last_action: Whether the last action is an input: one-hot, or as it was; zeros at the first step.
        squashed: Whether continuous actions go through tanh and are stretched to their bounds; otherwise clipped.
    """

    kind: str = "gru"
    activation: str = "tanh"
    last_action: bool = True
    squashed: bool = False


class Encoder(nn.Module):
    """Fully connected layers with an activation after each."""

    def __init__(self, layers: MLP) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, seen: Tensor) -> Tensor:
        """Return the inputs of the cell."""
        activation = quick_tanh if self.layers.activation == "tanh" else ACTIVATIONS[self.layers.activation]
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
    """Return the policy of these weights, checked to fit together; its hash covers exactly the arrays given.

    Args:
        arrays: The weights, by the names above.
        spaces: Observations and actions; continuous ones need bounds.
        form: What the arrays do not say.
        name: Its name.
    """
    spaces = replace(spaces, n_stack=1)
    check_fit(arrays, spaces, form)
    width = arrays["weight_hh"].shape[1]
    layers = {part: MLP(*_layers(arrays, part), form.activation) for part in ("encoder", "head")}
    network: nn.Module = layers["head"] if form.kind == "gru" else Visible(layers["head"], width)
    if form.squashed:
        network = Squashed(network, np.asarray(spaces.low), np.asarray(spaces.high))
    policy = Policy(
        network,
        spaces,
        Recurrent(
            Encoder(layers["encoder"]) if layers["encoder"].layers else nn.Identity(),
            _cell(arrays, form.kind),
            action_size=spaces.n_outputs if form.last_action else 0,
        ),
        name,
    )
    layout, stored = recurrent_parts(policy)
    return replace(policy, sha256=weights_hash(stored, layout))


def recurrent_parts(policy: Policy) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the layout and the arrays of a recurrent policy."""
    memory, head = policy.memory, policy.network
    squashed = isinstance(head, Squashed)
    head = head.network if isinstance(head, Squashed) else head
    head = head.network if isinstance(head, Visible) else head
    known = isinstance(memory, Recurrent) and isinstance(memory.encoder, Encoder | nn.Identity)
    if not known or not isinstance(memory, Recurrent) or not isinstance(head, MLP):
        raise InputError(f"only a GRU or an LSTM with fully connected layers can be stored; {policy.name} is neither")
    encoder = memory.encoder.layers if isinstance(memory.encoder, Encoder) else None
    arrays = {part: getattr(memory.cell, part).detach().cpu().numpy() for part in CELL_PARTS}
    arrays |= head.arrays("head") | ({} if encoder is None else encoder.arrays("encoder"))
    layout: dict[str, Any] = {
        "kind": "lstm" if isinstance(memory.cell, nn.LSTMCell) else "gru",
        "activation": head.activation,
        "width": memory.cell.hidden_size,
        "encoder": 0 if encoder is None else len(encoder.layers),
        "layers": len(head.layers),
        "last_action": memory.has_action,
        "frames": 1,
        "shape": list(policy.spaces.shape),
        "choices": policy.spaces.n_actions,
    }
    if policy.spaces.low is not None:
        layout |= {**stored_bounds(policy.spaces), "squashed": squashed}
    return layout, arrays


def check_fit(arrays: Arrays, spaces: Spaces, form: Form) -> None:
    """Raise InputError if the arrays do not lead from observation and last action to values or actions."""
    if form.kind not in CELLS:
        raise InputError(f"a recurrent agent is one of {', '.join(CELLS)}, got {form.kind!r}")
    if spaces.n_actions is None and (spaces.low is None or spaces.high is None):
        raise InputError("a recurrent agent with continuous actions needs their bounds")
    if form.squashed and spaces.n_actions is not None:
        raise InputError("discrete actions cannot be squashed")
    layers = [f"{part}{i}" for part in ("encoder", "head") for i in range(_count(arrays, part))]
    expected = {f"{layer}.{part}" for layer in layers for part in ("weight", "bias")} | set(CELL_PARTS)
    if set(arrays) != expected or "head0" not in layers:
        odd = ", ".join(sorted(set(arrays) ^ (expected | {"head0.weight"}))[:3])
        raise InputError(f"a recurrent agent needs the arrays of its cell and a head, got or misses {odd}")
    outputs = spaces.n_outputs
    into = int(np.prod(spaces.shape)) + outputs * form.last_action
    width, gates = arrays["bias_ih"].size, 3 if form.kind == "gru" else 4
    hidden, encoder = width // gates, _layers(arrays, "encoder")
    fed = encoder[1][-1].size if encoder[1] else into
    shapes = [(gates * hidden, fed), (gates * hidden, hidden), (gates * hidden,), (gates * hidden,)]
    if [arrays[part].shape for part in CELL_PARTS] != shapes or hidden == 0:
        raise InputError(f"the cell has shapes {[arrays[part].shape for part in CELL_PARTS]}, expected {shapes}")
    if (encoder[0] and not fit_together(encoder, into, fed)) or not fit_together(
        _layers(arrays, "head"), hidden, outputs
    ):
        raise InputError(f"the layers do not lead from {into} inputs over {hidden} to {outputs} outputs")


def _count(arrays: Arrays, part: str) -> int:
    return sum(name.startswith(part) and name.endswith(".weight") for name in arrays)


def _layers(arrays: Arrays, part: str) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    return stored_layers(arrays, part, _count(arrays, part))


def _cell(arrays: Arrays, kind: str) -> nn.GRUCell | nn.LSTMCell:
    cell = CELLS[kind](arrays["weight_ih"].shape[1], arrays["weight_hh"].shape[1])
    with torch.no_grad():
        for part in CELL_PARTS:
            getattr(cell, part).copy_(torch.from_numpy(np.ascontiguousarray(arrays[part], dtype=np.float32)))
    return cell
