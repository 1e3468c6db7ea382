"""The LSTM of sb3-contrib's RecurrentPPO (MlpLstmPolicy), from its weights and back to them.

Its memory begins with zeros and does not hold the last action; only the actor's LSTM acts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from surefoot.agents.memory import Recurrent
from surefoot.agents.networks import MLP, Layers
from surefoot.agents.policies import Policy
from surefoot.agents.recurrent import CELL_PARTS, Form, Visible, recurrent_policy
from surefoot.agents.sb3.settings import SB3_ACTIVATIONS, Facts, UnreadableError
from surefoot.errors import InputError

RECURRENT = "sb3_contrib.common.recurrent.policies"
SUPPORTED = (
    "of recurrent agents only one plain LSTM over flat float observations is supported; others can be certified as a "
    "surefoot.Policy with a memory"
)
ACTOR_NAMES = {f"lstm_actor.{part}_l0": part for part in CELL_PARTS}


def rebuild_lstm(facts: Facts, weights: Mapping[str, Tensor], heads: Layers, form: Form) -> Policy:
    """Build the policy of one LSTM and the fully connected layers after it.

    Args:
        facts: What the model says about itself.
        weights: Its weights by name.
        heads: The layers after the LSTM.
        form: Activation, and whether actions are squashed.
    """
    if facts.pixels:
        raise InputError(f"the model's observations are images: {SUPPORTED}")
    found = {name for name in weights if name.startswith("lstm_actor.")}
    if found != set(ACTOR_NAMES) or facts.settings.get("lstm_kwargs"):
        odd = ", ".join(sorted(found ^ set(ACTOR_NAMES))[:3]) or "with lstm_kwargs"
        raise InputError(f"the model's LSTM is not one plain layer ({odd}): {SUPPORTED}")
    arrays = {ours: weights[theirs].detach().cpu().float().numpy().copy() for theirs, ours in ACTOR_NAMES.items()}
    for index, (matrix, bias) in enumerate(zip(*heads, strict=True)):
        arrays[f"head{index}.weight"] = matrix
        arrays[f"head{index}.bias"] = bias
    try:
        return recurrent_policy(arrays, facts.spaces, form)
    except InputError as error:
        raise UnreadableError(f"its layers do not fit together: {error}") from error


def lstm_model(policy: Policy) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
    """Return the settings and weights of the same agent as RecurrentPPO has them; None if it has no such agent."""
    memory = policy.memory
    head = policy.network
    if not isinstance(memory, Recurrent) or not isinstance(memory.cell, nn.LSTMCell) or memory.has_action:
        return None
    if not isinstance(memory.encoder, nn.Identity) or not isinstance(head, Visible):
        return None
    network = head.network
    assert isinstance(network, MLP)
    widths = [layer.out_features for layer in network.linear[:-1]]
    width = memory.cell.hidden_size
    settings = {
        "lstm_hidden_size": width,
        # The value of a state is not ours to say: no second LSTM for it.
        "shared_lstm": True,
        "enable_critic_lstm": False,
        "net_arch": {"pi": widths, "vf": []},
        "activation_fn": SB3_ACTIVATIONS[network.activation],
    }
    weights = {theirs: getattr(memory.cell, ours).detach().cpu() for theirs, ours in ACTOR_NAMES.items()}
    for index, layer in enumerate(network.linear):
        # Activations have numbers of their own between the layers; the last layer has a name.
        name = f"mlp_extractor.policy_net.{2 * index}" if index < len(widths) else "action_net"
        weights[f"{name}.weight"] = layer.weight.detach().cpu()
        weights[f"{name}.bias"] = layer.bias.detach().cpu()
    weights["value_net.weight"] = torch.zeros(1, width)
    weights["value_net.bias"] = torch.zeros(1)
    if policy.spaces.n_actions is None:
        weights["log_std"] = torch.zeros(network.linear[-1].out_features)
    return settings, weights
