"""From the weights and settings of an SB3 or sb3-contrib model to the deterministic function it acts by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from torch import Tensor

from surefoot.agents.networks import MLP, PARTS, Critic, Joint, Layers, Squashed, fit_together, weights_hash
from surefoot.agents.policies import Policy
from surefoot.agents.recurrent import Form
from surefoot.agents.sb3.cnn import Rebuilt, rebuild_cnn
from surefoot.agents.sb3.recurrent import RECURRENT, rebuild_lstm
from surefoot.agents.sb3.settings import SB3_ACTIVATIONS, Facts, UnreadableError
from surefoot.errors import InputError


@dataclass(frozen=True)
class _Family:
    """Where a policy class keeps its actor: layers ``trunk``.0, .2, ..., then ``head`` if apart."""

    trunk: str  # names of its layers but for their number
    head: str | None  # name of the last layer, where it stands apart
    activation: str  # between the layers, where the settings do not say
    squashed: bool  # whether continuous actions pass a tanh, where the settings do not say
    unused: tuple[str, ...]  # how names begin that acting does not use
    images: str  # name of the feature extractor of images


QRDQN_MODULE = "sb3_contrib.qrdqn.policies"
ARS = "sb3_contrib.ars.policies"
ACTOR_CRITIC = _Family(
    "mlp_extractor.policy_net",
    "action_net",
    "tanh",
    False,
    ("mlp_extractor.value_net.", "value_net.", "log_std", "pi_features_extractor.", "vf_features_extractor."),
    "features_extractor",
)
STOCHASTIC_ACTOR = _Family(
    "actor.latent_pi", "actor.mu", "relu", True, ("actor.log_std", "critic"), "actor.features_extractor"
)
FAMILIES = {
    "stable_baselines3.dqn.policies": _Family(
        "q_net.q_net", None, "relu", False, ("q_net_target.",), "q_net.features_extractor"
    ),
    "stable_baselines3.common.policies": ACTOR_CRITIC,
    "stable_baselines3.td3.policies": _Family(
        "actor.mu", None, "relu", True, ("actor_target.", "critic"), "actor.features_extractor"
    ),
    "stable_baselines3.sac.policies": STOCHASTIC_ACTOR,
    "sb3_contrib.common.maskable.policies": ACTOR_CRITIC,
    RECURRENT: replace(ACTOR_CRITIC, unused=(*ACTOR_CRITIC.unused, "lstm_actor.", "lstm_critic.", "critic.")),
    "sb3_contrib.tqc.policies": STOCHASTIC_ACTOR,
    QRDQN_MODULE: _Family(
        "quantile_net.quantile_net", None, "relu", False, ("quantile_net_target.",), "quantile_net.features_extractor"
    ),
    ARS: _Family("action_net", None, "relu", True, (), "features_extractor"),
}
# Layers that actor and critic shared before SB3 1.8.
SHARED = "mlp_extractor.shared_net"
FLATTEN = "<class 'stable_baselines3.common.torch_layers.FlattenExtractor'>"
# Of vectors it puts one after the other.
COMBINED = "<class 'stable_baselines3.common.torch_layers.CombinedExtractor'>"
# Settings that do not change the deterministic action, or whose effect is read elsewhere.
KNOWN_SETTINGS = frozenset(
    """
    net_arch activation_fn squash_output features_extractor_class features_extractor_kwargs optimizer_class
    optimizer_kwargs n_critics share_features_extractor normalize_images use_sde log_std_init ortho_init full_std
    use_expln clip_mean n_quantiles with_bias lstm_hidden_size n_lstm_layers shared_lstm enable_critic_lstm lstm_kwargs
    device
    """.split()
)


def rebuild_policy(facts: Facts, weights: Mapping[str, Tensor]) -> Policy:
    """Build the actor from its weights; the layers follow from their shapes."""
    family = FAMILIES.get(facts.module)
    if family is None:
        raise UnreadableError(f"its policy class comes from {facts.module}, which is not known here")
    _check_settings(facts.settings)
    layers = _actor_layers(family, weights, facts)
    squashed = _squashes(family, facts, layers)
    # A clipped mean is a layer and a Hardtanh in a sequence: its weights have another name.
    has_clipped_mean = f"{family.head}.0.weight" in weights
    if family is STOCHASTIC_ACTOR and has_clipped_mean != (_mean_bound(family, facts) is not None):
        raise InputError("the model's weights are those of another use_sde or clip_mean than it says; save it again")
    if facts.module == RECURRENT:
        _check_extractor(facts)
        activation = _activation(facts.settings, family.activation)
        form = Form(kind="lstm", activation=activation, last_action=False, squashed=squashed)
        return rebuild_lstm(facts, weights, layers, form)
    if f"{family.images}.cnn.0.weight" in weights:
        network, arrays, layout = rebuild_cnn(facts, weights, family.images, layers, family.activation)
        if facts.n_actions is None:
            layout["squashed"] = squashed
    else:
        network, arrays, layout = _rebuild_mlp(family, facts, layers, squashed)
    for array in arrays.values():
        if not np.isfinite(array).all():
            raise InputError("the model's weights are not finite; its training has diverged")
    if facts.factors is not None:
        network = Joint(network, facts.factors, binary=facts.binary)
        layout["factors"] = facts.factors
    if facts.limits is None:
        return Policy(network, facts.spaces, sha256=weights_hash(arrays, layout))
    low, high = facts.limits
    if not (low <= high).all() or (squashed and not np.isfinite((low, high)).all()):
        raise InputError(f"the model's actions range from {low} to {high}, expected finite bounds in this order")
    arrays |= {"low": low, "high": high}
    if squashed:
        network = Squashed(network, low, high)
    critic = _rebuild_critic(weights, facts, _activation(facts.settings, family.activation))
    return Policy(network, facts.spaces, sha256=weights_hash(arrays, layout), critic=critic)


def _rebuild_mlp(family: _Family, facts: Facts, layers: Layers, squashed: bool) -> Rebuilt:
    """Return the network of fully connected layers, its arrays, and what else its hash covers."""
    if facts.pixels:
        raise UnreadableError("its observations are uint8 (an image?), expected floats")
    _check_extractor(facts)
    matrices, biases = layers
    if not fit_together(layers, prod(facts.shape), facts.width):
        raise UnreadableError(
            f"its layers {[m.shape for m in matrices]} do not lead from {facts.shape} to {facts.width}"
        )
    activation = _activation(facts.settings, family.activation)
    bound = _mean_bound(family, facts)
    arrays = {}
    for index, (matrix, bias) in enumerate(zip(matrices, biases, strict=True)):
        arrays[f"weight{index}"] = matrix
        arrays[f"bias{index}"] = bias
    layout = {"activation": activation, "squashed": squashed, "shape": facts.shape, "n_actions": facts.n_actions}
    if bound is not None:
        layout["bound"] = bound
    return MLP(matrices, biases, activation, bound=bound), arrays, layout


def _check_extractor(facts: Facts) -> None:
    extractor = facts.settings.get("features_extractor_class")
    plain = FLATTEN if facts.parts is None else COMBINED
    if extractor is not None and str(extractor) != plain:
        raise UnreadableError(f"it has a feature extractor of its own, {extractor}")


def _mean_bound(family: _Family, facts: Facts) -> float | None:
    """Return to what generalized state-dependent exploration clips the outputs of SAC and TQC before the tanh."""
    if family is not STOCHASTIC_ACTOR or not facts.state_noise:
        return None
    bound = float(facts.settings.get("clip_mean", 2.0))
    return bound if bound > 0 else None


def _squashes(family: _Family, facts: Facts, layers: Layers) -> bool:
    """Return whether continuous actions pass a tanh."""
    if facts.n_actions is not None:
        return False
    # ARS's LinearPolicy has one layer and no tanh.
    linear = facts.module == ARS and len(layers[0]) == 1 and "net_arch" not in facts.settings
    return bool(facts.settings.get("squash_output", family.squashed and not linear))


def _rebuild_critic(weights: Mapping[str, Tensor], facts: Facts, activation: str) -> Critic | None:
    """Build the first critic of DDPG, TD3, SAC and TQC from its weights; None when there is none that is an MLP."""
    names = {name for name in weights if name.startswith("critic.qf0.")}
    layers = []
    expected = set()
    for index in range(len(names)):
        layer = f"critic.qf0.{2 * index}"
        if f"{layer}.weight" in names:
            layers.append(layer)
            expected |= {f"{layer}.weight", f"{layer}.bias"}
    if facts.limits is None or not layers or names != expected:
        return None
    # The critics of TQC have quantiles of the value; attacks look at its mean.
    found = _mean_of_quantiles(_copy_layers(weights, layers), 1)
    if not fit_together(found, prod(facts.shape) + facts.width, 1):
        return None
    return Critic(MLP(*found, activation), *facts.limits)


def _copy_layers(weights: Mapping[str, Tensor], layers: Sequence[str]) -> Layers:
    """Return the matrices and biases of some layers, as copies; ARS may have none of the latter."""
    matrices = []
    biases = []
    for layer in layers:
        matrix = weights[f"{layer}.weight"].detach().cpu().float().numpy().copy()
        bias = np.zeros(len(matrix), dtype=np.float32)
        if f"{layer}.bias" in weights:
            bias = weights[f"{layer}.bias"].detach().cpu().float().numpy().copy()
        matrices.append(matrix)
        biases.append(bias)
    return matrices, biases


def _actor_layers(family: _Family, weights: Mapping[str, Tensor], facts: Facts) -> Layers:
    """Return the actor's fully connected layers after its feature extractor, or say that there is something else."""
    names = {name for name in weights if not name.startswith((*family.unused, f"{family.images}."))}
    layers = []
    for trunk in (SHARED, family.trunk):
        # Activations have numbers too: layers have the even ones.
        sequence = [f"{trunk}.{2 * index}" for index in range(len(names))]
        if facts.module == ARS:
            # The linear policy of earlier releases is one layer, not a sequence of one.
            sequence.append(trunk)
        layers += [name for name in sequence if f"{name}.weight" in names]
    if family.head is not None:
        layers.append(f"{family.head}.0" if f"{family.head}.0.weight" in names else family.head)
    expected = {f"{layer}.{part}" for layer in layers for part in PARTS}
    matrices_only = {f"{layer}.weight" for layer in layers}
    complete = names == expected or (facts.module == ARS and names == matrices_only)
    if not layers or not complete:
        odd = ", ".join(sorted(names ^ expected)[:3])
        raise UnreadableError(f"its weights are not those of plain fully connected layers ({odd or 'there are none'})")
    found = _copy_layers(weights, layers)
    if facts.module == QRDQN_MODULE:
        return _mean_of_quantiles(found, facts.width)
    return found


def _mean_of_quantiles(layers: Layers, outputs: int) -> Layers:
    """Return layers whose outputs are the means of the quantiles, which come quantile by quantile."""
    matrices, biases = layers
    last = matrices[-1]
    if len(last) == outputs or len(last) % outputs:
        return layers
    # In double precision, so that it is rounded once.
    mean = last.reshape(-1, outputs, last.shape[1]).mean(axis=0, dtype=np.float64).astype(np.float32)
    mean_bias = biases[-1].reshape(-1, outputs).mean(axis=0, dtype=np.float64).astype(np.float32)
    return [*matrices[:-1], mean], [*biases[:-1], mean_bias]


def _check_settings(settings: Mapping[str, Any]) -> None:
    unknown = sorted(set(settings) - KNOWN_SETTINGS)
    if unknown:
        raise UnreadableError(f"it was made with policy_kwargs of unknown effect: {', '.join(unknown)}")


def _activation(settings: Mapping[str, Any], default: str) -> str:
    given = settings.get("activation_fn")
    if given is None:
        return default
    for name, kind in SB3_ACTIVATIONS.items():
        if str(kind) == str(given):
            return name
    raise UnreadableError(f"its activation is {given}, expected one of {', '.join(SB3_ACTIVATIONS)}")
