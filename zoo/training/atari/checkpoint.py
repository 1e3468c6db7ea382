"""The state of the Atari learner as plain arrays, without its replay buffer.

A resumed run steps fresh emulators and collects ``learning_starts`` steps with the network it has before it learns
again. Nothing learned is lost; the frames are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray

from surefoot.agents.networks import CNN
from surefoot.errors import InputError
from surefoot.train.folder import Arrays, TrainingFolder
from zoo.training.atari.learner import Averaged

MOMENTS = ("step", "exp_avg", "exp_avg_sq")


def save_checkpoint(folder: TrainingFolder, learner: Averaged, started_from: Mapping[str, str] | None) -> None:
    """Write everything needed to resume, except the replay buffer, in three files of at most 27 MB."""
    states = [learner.optimizer.state.get(parameter, {}) for parameter in learner.online.parameters()]
    folder.save(
        {"updates": learner.updates, "started_from": started_from},
        checkpoint_a=_weights("online", learner.online),
        checkpoint_b=_weights("average", learner.average) | _moments(states, "exp_avg"),
        checkpoint_c=_moments(states, "exp_avg_sq") | _moments(states, "step"),
    )


def load_checkpoint(folder: TrainingFolder, learner: Averaged) -> dict[str, str] | None:
    """Restore the learner and the directory's curve that ``save_checkpoint`` wrote.

    Returns:
        Name and SHA-256 of the agent that training was initialized from, if any.
    """
    header, parts = folder.load()
    arrays = {name: array for part in parts.values() for name, array in part.items()}
    expected = {f"online.{name}": part.shape for name, part in learner.online.named_parts()}
    if {name: arrays[name].shape for name in expected if name in arrays} != expected:
        raise InputError(f"{folder.path} contains a checkpoint of another task or version; choose another --out")
    learner.updates = header["updates"]
    for network in (learner.online, *learner.followers):
        _put(network, arrays, "online")
    # Killed between two files: the average restarts from the weights, the moments from nothing.
    _put(learner.average, arrays, "average" if any(name.startswith("average.") for name in arrays) else "online")
    if all(f"{key}.0" in arrays for key in MOMENTS):
        _put_moments(learner, arrays)
    found: dict[str, str] | None = header.get("started_from")
    return found


def _weights(prefix: str, network: CNN) -> Arrays:
    parts = network.named_parts()
    return {f"{prefix}.{name}": part.detach().cpu().contiguous().numpy() for name, part in parts}


def _moments(states: list[Any], key: str) -> Arrays:
    return {f"{key}.{i}": state[key].cpu().contiguous().numpy() for i, state in enumerate(states) if state}


@torch.no_grad()
def _put(network: CNN, arrays: Arrays, prefix: str) -> None:
    for name, part in network.named_parts():
        part.copy_(torch.from_numpy(arrays[f"{prefix}.{name}"]))


def _put_moments(learner: Averaged, arrays: Arrays) -> None:
    state = {
        i: {key: _like(parameter, arrays[f"{key}.{i}"], key) for key in MOMENTS}
        for i, parameter in enumerate(learner.online.parameters())
    }
    learner.optimizer.load_state_dict({"state": state, "param_groups": learner.optimizer.state_dict()["param_groups"]})
    # Loading replaces the tensor that holds the learner's rate.
    for group in learner.optimizer.param_groups:
        group["lr"] = learner.rate


def _like(parameter: torch.Tensor, values: NDArray[Any], key: str) -> torch.Tensor:
    """Return the values in the parameter's memory order, which the fused optimizer requires; a step is one number."""
    stored = torch.from_numpy(values)
    return stored if key == "step" else torch.empty_like(parameter, requires_grad=False).copy_(stored)
