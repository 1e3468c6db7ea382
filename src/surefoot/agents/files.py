"""Agents on disk: plain weights (``.npz``) next to a JSON model card. Loading one executes no code from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from surefoot.agents.memory import FrameStack, Recurrent
from surefoot.agents.networks import (
    CNN,
    MLP,
    Critic,
    Sizes,
    Squashed,
    cnn_parts,
    cnn_policy,
    fit_together,
    stored_bounds,
    stored_layers,
    weights_hash,
)
from surefoot.agents.normalization import Statistics, normalized, taken_apart
from surefoot.agents.policies import Policy, Spaces
from surefoot.agents.recurrent import CELL_CLASSES, Form, recurrent_parts, recurrent_policy
from surefoot.errors import InputError, did_you_mean
from surefoot.files import read_arrays, read_json, untrusted, write_arrays, write_json
from surefoot.provenance import checkout

CARD_SCHEMA = 1
# The names of arrays that normalize observations begin so.
STATISTICS_PREFIX = "normalization."


def agents_dir() -> Path:
    """Return the directory of the pretrained agents: inside an installed package, next to ``src`` in a checkout."""
    root = checkout()
    if root is None:
        return Path(str(files("surefoot"))) / "_zoo"
    return root / "zoo"


def list_agents() -> list[str]:
    """Return the names of the pretrained agents."""
    return sorted(path.name.removesuffix(".json") for path in agents_dir().glob("*.json"))


def default_agent(task: str, sigma: float) -> str:
    """Return the name of the pretrained agent for a task and a sigma, or say that there is none."""
    name = f"{task}-s{sigma:g}"
    known = list_agents()
    if name not in known:
        # Large agents are a package of their own.
        missing = "none; in a checkout pip install ./zoo has those of Atari and MuJoCo"
        available = ", ".join(other for other in known if other.startswith(f"{task}-")) or missing
        raise InputError(
            f"there is no pretrained agent for {task} at sigma {sigma:g}; name one with agent= (available: {available})"
        )
    return name


def find_card(name_or_path: str) -> Path:
    """Return the path of an agent's model card.

    A plain name means the pretrained agent of that name, whatever is in the working directory (``./NAME`` is a path).
    Otherwise it is the path of the card, of the weights, of both without their suffix, or of a training directory.
    """
    # Names contain dots (cartpole-5-s0.2), so suffixes are added and cut as text.
    bare = name_or_path.removesuffix(".npz").removesuffix(".json")
    if name_or_path in list_agents():
        return agents_dir() / f"{name_or_path}.json"
    for candidate in (Path(f"{bare}.json"), Path(name_or_path) / "agent.json", agents_dir() / f"{bare}.json"):
        if candidate.is_file():
            return candidate
    if meant := did_you_mean(name_or_path, list_agents()):
        raise InputError(f"unknown agent {name_or_path!r}{meant} Or give a path; 'surefoot agents' lists the others")
    if Path(name_or_path).is_file():
        raise InputError(
            f"{name_or_path} is not a file of an agent: expected an SB3 .zip, .onnx, TorchScript .pt, or the card "
            "of an agent of ours; load other weights into their torch module and give that as module:name"
        )
    known = list_agents()
    shown = ", ".join(known[:5]) or "none"
    if len(known) > 5:
        shown += f" and {len(known) - 5} more, which 'surefoot agents' lists"
    raise InputError(f"unknown agent {name_or_path!r}; pretrained agents: {shown}; or give a path")


def load(name_or_path: str) -> Policy:
    """Load an agent and check its weights against the hash in its model card."""
    card = find_card(name_or_path)
    weights = card.with_name(f"{card.name.removesuffix('.json')}.npz")
    return from_parts(read_json(card), read_arrays(weights), str(card))


def load_card(name_or_path: str) -> dict[str, Any]:
    """Return an agent's model card."""
    return read_json(find_card(name_or_path))


def from_parts(card: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], origin: str) -> Policy:
    """Build a policy from a model card and its arrays."""
    if card.get("schema") != CARD_SCHEMA:
        raise InputError(f"{origin} has schema {card.get('schema')}, this version reads {CARD_SCHEMA}")
    layout = card.get("layout")
    expected = card.get("sha256")
    known_kind = isinstance(layout, Mapping) and str(layout.get("kind")) in READERS
    if not isinstance(layout, Mapping) or not known_kind or not {"name", "sha256"} <= card.keys():
        raise InputError(f"{origin} is not a model card that fits its weights: missing or wrong name, layout or sha256")
    found = weights_hash(dict(arrays), dict(layout))
    if found != expected:
        raise InputError(f"the weights of {origin} have hash {found[:12]}, its card says {str(expected)[:12]}")
    network_arrays = {key: array for key, array in arrays.items() if not key.startswith(STATISTICS_PREFIX)}
    try:
        policy = replace(READERS[layout["kind"]](layout, network_arrays), name=str(card["name"]), sha256=found)
        if "normalization" in layout:
            policy = replace(normalized(policy, _stored_statistics(layout["normalization"], arrays)), sha256=found)
    except InputError as error:
        raise InputError(f"the layers of {origin} do not fit together: {error}") from error
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{origin} is not a model card that fits its weights: missing or wrong {error}") from error
    # Stored again it must be the same file: what a card says besides would make two agents of one hash.
    with untrusted(origin, "model card"):
        stored_layout, stored_arrays = parts_of(policy)
        built = weights_hash(stored_arrays, stored_layout)
    if built != found:
        raise InputError(
            f"{origin} has arrays or settings that its agent does not use: expected only those that the hash of the "
            "agent is made of, so that no other agent has the same hash"
        )
    return policy


def _stored_statistics(settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Statistics:
    return Statistics(
        mean=np.asarray(arrays[f"{STATISTICS_PREFIX}mean"], dtype=np.float64),
        var=np.asarray(arrays[f"{STATISTICS_PREFIX}var"], dtype=np.float64),
        epsilon=float(settings["epsilon"]),
        clip=float(settings["clip"]),
    )


def _stored_spaces(layout: Mapping[str, Any]) -> Spaces:
    """Return the spaces in a layout, without its stack."""
    shape = tuple(layout["shape"])
    if layout["n_actions"] is not None:
        return Spaces(shape=shape, n_actions=int(layout["n_actions"]))
    return Spaces(shape=shape, n_actions=None, low=tuple(layout["low"]), high=tuple(layout["high"]))


def _read_connected(layout: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Policy:
    layers = stored_layers(arrays, "", int(layout["layers"]))
    critic = stored_layers(arrays, "critic.", int(layout.get("critic", 0)))
    spaces = replace(_stored_spaces(layout), n_stack=int(layout["n_stack"]))
    activation = layout["activation"]
    bound = None if layout.get("bound") is None else float(layout["bound"])
    outputs = spaces.n_outputs
    action_size = outputs if layout.get("last_action") else 0
    inputs = spaces.n_stack * (int(np.prod(spaces.shape)) + action_size)
    has_critic = bool(critic[0])
    if not fit_together(layers, inputs, outputs) or (has_critic and not fit_together(critic, inputs + outputs, 1)):
        raise InputError(f"{[weight.shape for weight in (*layers[0], *critic[0])]}")
    network: nn.Module = MLP(*layers, activation, bound=bound)
    memory = FrameStack(spaces.n_stack, action_size=action_size)
    if spaces.n_actions is not None:
        return Policy(network, spaces, memory)
    low = np.asarray(spaces.low, dtype=np.float32)
    high = np.asarray(spaces.high, dtype=np.float32)
    if layout.get("squashed", True):
        network = Squashed(network, low, high)
    policy = Policy(network, spaces, memory)
    if has_critic:
        policy = replace(policy, critic=Critic(MLP(*critic, activation), low, high))
    return policy


def _read_convolutional(layout: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Policy:
    sizes = Sizes(tuple(map(int, layout["strides"])), int(layout["layers"]))
    return cnn_policy(arrays, sizes, int(layout["n_stack"]), tuple(layout["shape"]), int(layout["n_actions"]))


def _read_recurrent(layout: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Policy:
    form = Form(
        kind=str(layout["kind"]),
        activation=str(layout["activation"]),
        last_action=bool(layout["last_action"]),
        squashed=bool(layout.get("squashed", False)),
    )
    return recurrent_policy(arrays, _stored_spaces(layout), form)


READERS: dict[str, Callable[[Mapping[str, Any], Mapping[str, NDArray[Any]]], Policy]] = {
    "mlp": _read_connected,
    "cnn": _read_convolutional,
    **dict.fromkeys(CELL_CLASSES, _read_recurrent),
}


def parts_of(policy: Policy) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the layout and the arrays of a fully connected policy, its critic included, or another kind."""
    bare, statistics = taken_apart(policy)
    if statistics is not None:
        layout, arrays = parts_of(bare)
        layout["normalization"] = {"epsilon": statistics.epsilon, "clip": statistics.clip}
        shape = policy.spaces.stacked_shape
        arrays[f"{STATISTICS_PREFIX}mean"] = statistics.mean.reshape(shape)
        arrays[f"{STATISTICS_PREFIX}var"] = statistics.var.reshape(shape)
        return layout, arrays
    if isinstance(policy.memory, Recurrent):
        return recurrent_parts(policy)
    if isinstance(policy.network, CNN):
        return cnn_parts(policy)
    network = policy.network
    if isinstance(network, Squashed):
        network = network.network
    spaces = policy.spaces
    bounded = spaces.low is not None and spaces.high is not None
    if not isinstance(network, MLP) or (spaces.n_actions is None and not bounded):
        raise InputError(
            "only fully connected, convolutional and recurrent agents with discrete actions, or fully connected and "
            f"recurrent ones with bounded continuous actions, can be stored; {policy.name} is neither"
        )
    arrays = network.arrays()
    layout = {
        "kind": "mlp",
        "activation": network.activation,
        "layers": len(network.layers),
        "n_stack": spaces.n_stack,
        "shape": list(spaces.shape),
        "n_actions": spaces.n_actions,
    }
    if policy.memory.has_action:
        layout["last_action"] = True
    if network.bound is not None:
        layout["bound"] = network.bound
    if bounded:
        layout |= stored_bounds(spaces)
        if not isinstance(policy.network, Squashed):
            layout["squashed"] = False
    if isinstance(policy.critic, Critic):
        layout["critic"] = len(policy.critic.network.layers)
        arrays |= policy.critic.network.arrays("critic.")
    return layout, arrays


def hashed(policy: Policy) -> Policy:
    """Return the policy with the hash its card will have."""
    layout, arrays = parts_of(policy)
    return replace(policy, sha256=weights_hash(arrays, layout))


def save(policy: Policy, path: Path, facts: Mapping[str, Any]) -> None:
    """Write ``path``.npz and ``path``.json; ``facts`` (task, sigma, settings, curve, ...) go into the card."""
    layout, arrays = parts_of(policy)
    card = {
        "schema": CARD_SCHEMA,
        "name": policy.name,
        "layout": layout,
        "sha256": weights_hash(arrays, layout),
        **facts,
    }
    write_arrays(path.with_name(f"{path.name}.npz"), arrays)
    write_json(path.with_name(f"{path.name}.json"), card)
