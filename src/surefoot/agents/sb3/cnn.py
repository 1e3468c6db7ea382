"""The convolutional Q-network of Stable-Baselines3 (DQN with CnnPolicy), from its weights and back to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from surefoot.agents.networks import CNN, NATURE_STRIDES, PARTS, Sizes, cnn_policy
from surefoot.agents.policies import Policy
from surefoot.agents.sb3.settings import Facts, UnreadableError
from surefoot.errors import InputError

NATURE = "<class 'stable_baselines3.common.torch_layers.NatureCNN'>"
RELU = "<class 'torch.nn.modules.activation.ReLU'>"
EXTRACTOR, HEAD = "q_net.features_extractor", "q_net.q_net"


def has_convolutions(weights: Mapping[str, Tensor]) -> bool:
    """Return whether these are weights of a DQN for images."""
    return f"{EXTRACTOR}.cnn.0.weight" in weights


def rebuilt_cnn(facts: Facts, weights: Mapping[str, Tensor]) -> Policy:
    """Build the Q-network; pixels are expected in [0, 1], where SB3 divides by 255 itself."""
    settings = facts.settings
    extractor, activation = settings.get("features_extractor_class"), settings.get("activation_fn")
    if extractor is not None and str(extractor) != NATURE:
        raise UnreadableError(f"it has a feature extractor of its own, {extractor}")
    if facts.n_actions is None or len(facts.shape) != 3:
        raise UnreadableError(
            f"its observations have shape {facts.shape}, expected channels x height x width and discrete actions"
        )
    if facts.pixels == (settings.get("normalize_images") is False):
        raise UnreadableError("its pixels are neither bytes that it scales nor floats that it does not")
    arrays = {
        new: weights[old].detach().cpu().float().numpy().copy()
        for new, old in _names(weights).items()
        if old in weights
    }
    used = {name for name in weights if not name.startswith("q_net_target.")}
    if used != set(_names(weights).values()):
        odd = ", ".join(sorted(used ^ set(_names(weights).values()))[:3])
        raise UnreadableError(f"its weights are not those of SB3's convolutional network ({odd})")
    hidden = _heads(weights) > 1
    if hidden and activation is not None and str(activation) != RELU:
        raise UnreadableError(f"its activation is {activation}, expected ReLU")
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise InputError("the model's weights are not finite; its training has diverged")
    sizes = Sizes(NATURE_STRIDES, 1 + _heads(weights))
    try:
        return cnn_policy(arrays, sizes, 1, facts.shape, facts.n_actions)
    except InputError as error:
        raise UnreadableError(f"its layers do not fit together: {error}") from error


def cnn_weights(network: CNN) -> dict[str, Tensor]:
    """Return the network's weights under SB3's names, for its Q-network and its target network."""
    if network.sizes.strides != NATURE_STRIDES or network.sizes.linear < 2:
        raise InputError(f"SB3's convolutional network has strides {NATURE_STRIDES}, got {network.sizes.strides}")
    parts = {name: part.detach().cpu().contiguous() for name, part in network.named_parts()}
    names = _layer_names(network.sizes.linear - 1)
    return {
        f"{net}{old.removeprefix('q_net')}.{part}": parts[f"{new}.{part}"]
        for net in ("q_net", "q_net_target")
        for new, old in names.items()
        for part in PARTS
    }


def cnn_settings(network: CNN) -> dict[str, Any]:
    """Return the ``policy_kwargs`` of a CnnPolicy with this network, for pixels in [0, 1]."""
    widths = [getattr(layer, "out_features", 0) for layer in network.linear]
    return {
        "normalize_images": False,
        "net_arch": widths[1:-1],
        "features_extractor_kwargs": {"features_dim": widths[0]},
    }


def _names(weights: Mapping[str, Tensor]) -> dict[str, str]:
    layers = _layer_names(_heads(weights))
    return {f"{new}.{part}": f"{old}.{part}" for new, old in layers.items() for part in PARTS}


def _layer_names(heads: int) -> dict[str, str]:
    """Return SB3's name for each of our layers."""
    names = {f"conv{index}": f"{EXTRACTOR}.cnn.{2 * index}" for index in range(len(NATURE_STRIDES))}
    names["linear0"] = f"{EXTRACTOR}.linear.0"
    return names | {f"linear{index + 1}": f"{HEAD}.{2 * index}" for index in range(heads)}


def _heads(weights: Mapping[str, Tensor]) -> int:
    return sum(name.startswith(f"{HEAD}.") and name.endswith(".weight") for name in weights)
