"""From the weights that a trainer keeps to the agent that is deployed: one naming of arrays, one function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from surefoot.agents.files import hashed
from surefoot.agents.networks import MLP, NATURE, Critic, Squashed, cnn_policy, stored_layers
from surefoot.agents.policies import Policy, Spaces
from surefoot.agents.recurrent import CELL_PARTS, Form, recurrent_policy
from surefoot.train.folder import NamedArrays


def arrays_of_layers(network: nn.Module, prefix: str = "") -> NamedArrays:
    """Return the fully connected layers as arrays named ``0.weight``, ``0.bias``, ``1.weight``, ..."""
    arrays: NamedArrays = {}
    linear = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    for index, layer in enumerate(linear):
        arrays[f"{prefix}{index}.weight"] = layer.weight.detach().cpu().numpy().copy()
        arrays[f"{prefix}{index}.bias"] = layer.bias.detach().cpu().numpy().copy()
    return arrays


def policy_from_weights(
    spaces: Spaces,
    weights: Mapping[str, NDArray[Any]],
    name: str,
    *,
    n_stack: int | None = None,
    activation: str = "relu",
) -> Policy:
    """Return the agent of the weights that a trainer kept, its actions not random.

    Which network it is follows from the names of the arrays: ``conv0.weight`` of convolutions, those of a GRU cell, or
    fully connected layers as ``arrays_of_layers`` names them, with ``activation`` between them. Continuous actions are
    behind a tanh; there may be a critic of them under ``critic.``.
    """
    if n_stack is not None:
        spaces = replace(spaces, n_stack=n_stack)
    if "conv0.weight" in weights:
        assert spaces.n_actions is not None
        return cnn_policy(weights, NATURE, spaces.n_stack, spaces.shape, spaces.n_actions, name)
    if CELL_PARTS[0] in weights:
        return recurrent_policy(dict(weights), spaces, Form(squashed=spaces.n_actions is None), name)
    # Fully connected layers: DQN, DDPG, and PPO with frames.
    network = _mlp_from_arrays(weights, "", activation)
    if spaces.n_actions is not None:
        policy = Policy(network, spaces, name=name)
    else:
        low = np.asarray(spaces.low, dtype=np.float32)
        high = np.asarray(spaces.high, dtype=np.float32)
        # Attacks use the critic for the value of an action, where there is one.
        critic = None
        if "critic.0.weight" in weights:
            critic = Critic(_mlp_from_arrays(weights, "critic.", activation), low, high)
        policy = Policy(Squashed(network, low, high), spaces, name=name, critic=critic)
    return hashed(policy)


def _mlp_from_arrays(arrays: Mapping[str, NDArray[Any]], prefix: str, activation: str) -> MLP:
    count = 0
    while f"{prefix}{count}.weight" in arrays:
        count += 1
    return MLP(*stored_layers(arrays, prefix, count), activation)
