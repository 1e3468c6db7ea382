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

NATURE = "<class 'stable_baselines3.common.torch_layers.NatureCNN'>"
RELU = "<class 'torch.nn.modules.activation.ReLU'>"
EXTRACTOR, HEAD = "q_net.features_extractor", "q_net.q_net"

# A network, the arrays and the layout that its hash covers.
Rebuilt = tuple[nn.Module, dict[str, NDArray[Any]], dict[str, Any]]


def rebuilt_cnn(facts: Facts, weights: Mapping[str, Tensor], extractor: str, heads: Layers, activation: str) -> Rebuilt:
    """Build the network; pixels are expected in [0, 1], where SB3 divides by 255 itself.

    Args:
        facts: What the model says about itself.
        weights: Its weights by name.
        extractor: The name of its feature extractor.
        heads: The fully connected layers after it.
        activation: Between the layers of ``heads`` where the settings do not say.
    """
    settings = facts.settings
    kind = settings.get("features_extractor_class")
    if kind is not None and str(kind) != NATURE:
        raise UnreadableError(f"it has a feature extractor of its own, {kind}")
    if len(facts.shape) != 3:
        raise UnreadableError(f"its observations have shape {facts.shape}, expected channels x height x width")
    if facts.pixels == (settings.get("normalize_images") is False):
        raise UnreadableError("its pixels are neither bytes that it scales nor floats that it does not")
    arrays = _convolutions(weights, extractor)
    for index, (matrix, bias) in enumerate(zip(*heads, strict=True), start=1):
        arrays |= {f"linear{index}.weight": matrix, f"linear{index}.bias": bias}
    between = str(settings.get("activation_fn", {"relu": RELU}.get(activation, activation)))
    if len(heads[0]) > 1 and between != RELU:
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


def _convolutions(weights: Mapping[str, Tensor], extractor: str) -> dict[str, NDArray[Any]]:
    """Return the weights of the feature extractor as ``CNN`` names them."""
    layers = {f"conv{index}": f"{extractor}.cnn.{2 * index}" for index in range(len(NATURE_STRIDES))}
    layers["linear0"] = f"{extractor}.linear.0"
    names = {f"{new}.{part}": f"{old}.{part}" for new, old in layers.items() for part in PARTS}
    found = {name for name in weights if name.startswith(f"{extractor}.")}
    if found != set(names.values()):
        odd = ", ".join(sorted(found ^ set(names.values()))[:3])
        raise UnreadableError(f"its weights are not those of SB3's convolutional network ({odd})")
    return {new: weights[old].detach().cpu().float().numpy().copy() for new, old in names.items()}


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


def _layer_names(heads: int) -> dict[str, str]:
    """Return SB3's name for each of our layers."""
    names = {f"conv{index}": f"{EXTRACTOR}.cnn.{2 * index}" for index in range(len(NATURE_STRIDES))}
    names["linear0"] = f"{EXTRACTOR}.linear.0"
    return names | {f"linear{index + 1}": f"{HEAD}.{2 * index}" for index in range(heads)}
