"""The convolutional network of Stable-Baselines3 (CnnPolicy), from its weights; that of DQN also back to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray
from torch import Tensor, nn

from surefoot.agents.networks import CNN, NATURE_STRIDES, PARTS, Layers, Sizes, check_fit, cnn_parts
from surefoot.agents.policies import Policy
from surefoot.agents.sb3.settings import Facts, UnreadableError
from surefoot.errors import InputError

NATURE_CLASS = "<class 'stable_baselines3.common.torch_layers.NatureCNN'>"
RELU_CLASS = "<class 'torch.nn.modules.activation.ReLU'>"
Q_NETWORKS = ("q_net", "q_net_target")

# A network, the arrays and the layout that its hash covers.
Rebuilt = tuple[nn.Module, dict[str, NDArray[Any]], dict[str, Any]]


def rebuild_cnn(facts: Facts, weights: Mapping[str, Tensor], extractor: str, heads: Layers, activation: str) -> Rebuilt:
    """Build the network; pixels are expected in [0, 1], where SB3 divides by 255 itself.

    ``extractor`` is the name of the feature extractor, ``heads`` are the fully connected layers after it, and
    ``activation`` is between these where the settings do not say.
    """
    settings = facts.settings
    kind = settings.get("features_extractor_class")
    if kind is not None and str(kind) != NATURE_CLASS:
        raise UnreadableError(f"it has a feature extractor of its own, {kind}")
    if len(facts.shape) != 3:
        raise UnreadableError(f"its observations have shape {facts.shape}, expected channels x height x width")
    if facts.pixels == (settings.get("normalize_images") is False):
        raise UnreadableError("its pixels are neither bytes that it scales nor floats that it does not")
    arrays = _read_extractor(weights, extractor)
    for index, (matrix, bias) in enumerate(zip(*heads, strict=True), start=1):
        arrays[f"linear{index}.weight"] = matrix
        arrays[f"linear{index}.bias"] = bias
    default = RELU_CLASS if activation == "relu" else activation
    between = str(settings.get("activation_fn", default))
    if len(heads[0]) > 1 and between != RELU_CLASS:
        raise UnreadableError(f"its activation is {between}, expected ReLU after convolutions")
    if facts.state_noise and facts.n_actions is None:
        raise UnreadableError("its convolutional actor was trained with state-dependent exploration (use_sde)")
    sizes = Sizes(NATURE_STRIDES, 1 + len(heads[0]))
    try:
        check_fit(arrays, sizes, 1, facts.shape, facts.width)
    except InputError as error:
        raise UnreadableError(f"its layers do not fit together: {error}") from error
    network = CNN(arrays, sizes)
    layout, stored = cnn_parts(Policy(network, facts.spaces))
    return network, stored, layout


def _read_extractor(weights: Mapping[str, Tensor], extractor: str) -> dict[str, NDArray[Any]]:
    """Return the weights of the feature extractor as ``CNN`` names them."""
    arrays = {}
    expected = set()
    for ours, theirs in _extractor_layers(extractor).items():
        for part in PARTS:
            name = f"{theirs}.{part}"
            expected.add(name)
            if name in weights:
                arrays[f"{ours}.{part}"] = weights[name].detach().cpu().float().numpy().copy()
    found = {name for name in weights if name.startswith(f"{extractor}.")}
    if found != expected:
        odd = ", ".join(sorted(found ^ expected)[:3])
        raise UnreadableError(f"its weights are not those of SB3's convolutional network ({odd})")
    return arrays


def _extractor_layers(extractor: str) -> dict[str, str]:
    """Return SB3's name for each of our layers in a feature extractor; activations have numbers there too."""
    layers = {f"conv{index}": f"{extractor}.cnn.{2 * index}" for index in range(len(NATURE_STRIDES))}
    layers["linear0"] = f"{extractor}.linear.0"
    return layers


def cnn_weights(network: CNN) -> dict[str, Tensor]:
    """Return the network's weights under SB3's names, for its Q-network and its target network."""
    if network.sizes.strides != NATURE_STRIDES or network.sizes.linear < 2:
        raise InputError(f"SB3's convolutional network has strides {NATURE_STRIDES}, got {network.sizes.strides}")
    parts = dict(network.named_parts())
    weights = {}
    for q_network in Q_NETWORKS:
        layers = _extractor_layers(f"{q_network}.features_extractor")
        for index in range(network.sizes.linear - 1):
            layers[f"linear{index + 1}"] = f"{q_network}.q_net.{2 * index}"
        for ours, theirs in layers.items():
            for part in PARTS:
                weights[f"{theirs}.{part}"] = parts[f"{ours}.{part}"].detach().cpu().contiguous()
    return weights


def cnn_settings(network: CNN) -> dict[str, Any]:
    """Return the ``policy_kwargs`` of a CnnPolicy with this network, for pixels in [0, 1]."""
    widths = [getattr(layer, "out_features", 0) for layer in network.linear]
    return {
        "normalize_images": False,
        "net_arch": widths[1:-1],
        "features_extractor_kwargs": {"features_dim": widths[0]},
    }
