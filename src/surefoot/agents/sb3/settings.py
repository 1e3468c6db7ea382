"""What a Stable-Baselines3 model says about itself; files are read as data, nothing is unpickled."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from numpy.typing import NDArray
from torch import Tensor, nn

from surefoot.agents.policies import Spaces
from surefoot.agents.sb3.inert_pickle import Reader
from surefoot.errors import InputError
from surefoot.files import MOST_ARRAYS, MOST_TEXT, check_members, check_size, open_zip, reject_duplicate_keys, untrusted

# Numbers of an observation or an action, and combinations of the parts of an action.
MOST_IN_SPACE = 2**24

SpaceLimits = tuple[NDArray[np.float32], NDArray[np.float32]]
PartSizes = tuple[tuple[str, int], ...]


class UnreadableError(Exception):
    """Why a model cannot be rebuilt from its weights and settings."""


SB3_ACTIVATIONS = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "leaky_relu": nn.LeakyReLU,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
}


@dataclass(frozen=True)
class Facts:
    """What the settings of a model say, from a file or from a live object."""

    module: str  # where its policy class was defined, which says how it names its weights
    shape: tuple[int, ...]  # shape of its observations, stacked if it was trained on stacks
    n_actions: int | None  # number of discrete actions, or None for continuous ones
    width: int  # number of outputs of its actor
    limits: SpaceLimits | None  # low and high of continuous actions; None when discrete
    settings: Mapping[str, Any]  # the policy_kwargs, classes as the strings Python prints for them
    pixels: bool = False  # whether observations are bytes, which SB3 divides by 255
    state_noise: bool = False  # whether it explored with noise that depends on the state (use_sde)
    parts: PartSizes | None = None  # name and size of each part of an observation, where it is a dictionary of vectors
    factors: tuple[int, ...] | None = None  # how many values each part of an action has, where it has parts
    binary: bool = False  # whether these parts are yes or no, with one output each

    @property
    def spaces(self) -> Spaces:
        """Observations and actions; those of SB3 count from 0."""
        own = Spaces(shape=self.shape, n_actions=self.n_actions, first_action=0, factors=self.factors, parts=self.parts)
        if self.limits is None:
            return own
        low, high = self.limits
        return replace(own, low=tuple(low.tolist()), high=tuple(high.tolist()))


def read_settings(path: Path) -> dict[str, Any]:
    """Return the JSON of the file; its pickled fields stay the strings they are."""
    with untrusted(path, "SB3 model file: its settings are not JSON"):
        # SB3 itself writes NaN and infinities.
        data = json.loads(_read_member(path, "data", MOST_TEXT), object_pairs_hook=reject_duplicate_keys)
    if not isinstance(data, dict):
        raise InputError(f"{path} is not an SB3 model file: expected a JSON object, got {type(data).__name__}")
    return data


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the weights of the file's policy; anything but plain tensors is rejected."""
    content = _read_member(path, "policy.pth", MOST_ARRAYS)
    try:
        _check_pickles(path, content)
        weights = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except InputError:
        raise
    except Exception as error:
        # A hostile stream may raise anything.
        raise InputError(
            f"{path} is rejected: its policy.pth is damaged or contains more than tensors, which would execute code; "
            "ask its author to save it again with Stable-Baselines3"
        ) from error
    if not isinstance(weights, dict) or not all(map(_is_plain, weights.values())):
        raise InputError(f"{path} is rejected: its policy.pth is not a dictionary of plain tensors")
    # Many tensors may share one storage.
    check_size(path, "policy.pth", sum(value.nbytes for value in weights.values()), MOST_ARRAYS)
    return {str(name): value for name, value in weights.items()}


def _check_pickles(path: Path, content: bytes) -> None:
    """Read all pickles of what torch saved as data: torch calls a few functions, and hashes whatever a key is."""
    # That is how torch recognizes its format since 1.6.
    if content.startswith(b"PK\x03\x04"):
        check_members(path, io.BytesIO(content))
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            check_size(path, "policy.pth", sum(one.file_size for one in archive.infolist()), MOST_ARRAYS)
            for one in archive.infolist():
                if one.filename.endswith(".pkl"):
                    Reader(io.BytesIO(archive.read(one)), _is_of_tensors).load()
        return
    # Before 1.6 torch saved five pickles and then the numbers: nothing is smaller in the file than in memory.
    file = io.BytesIO(content)
    for _ in range(5):
        Reader(file, _is_of_tensors).load()


def _is_of_tensors(module: str, name: str) -> bool:
    if module == "torch._utils":
        return name in ("_rebuild_tensor_v2", "_rebuild_parameter")
    return module == "torch" and name.endswith("Storage")


def _is_plain(value: Any) -> bool:
    """Return whether this is a tensor with a number in memory for each of its entries."""
    if not isinstance(value, Tensor) or value.layout != torch.strided or value.device.type != "cpu":
        return False
    if value.is_quantized or value.is_complex() or value.is_neg():
        return False
    # A tensor with other strides may claim any size over a few bytes.
    return value.is_contiguous()


def facts_of_model(model: Any) -> Facts:
    """Return what the attributes of a live model say."""
    observations = model.observation_space
    pixels = observations.dtype == np.uint8
    parts = None
    if isinstance(observations, Dict):
        if any(isinstance(part, Box) and part.dtype == np.uint8 for part in observations.values()):
            raise UnreadableError("a part of its observations is a picture")
        parts = tuple((name, spaces.flatdim(part)) for name, part in observations.items())
        shape: tuple[int, ...] = (spaces.flatdim(observations),)
    elif isinstance(observations, Discrete):
        shape = (spaces.flatdim(observations),)
    elif isinstance(observations, Box) and (pixels or np.issubdtype(observations.dtype, np.floating)):
        shape = observations.shape
    else:
        raise UnreadableError("its observations are not a Box of floats or bytes")
    return Facts(
        module=type(model.policy).__module__,
        shape=shape,
        settings=model.policy_kwargs,
        pixels=pixels,
        state_noise=bool(getattr(model, "use_sde", False)),
        parts=parts,
        **live_actions(model.action_space),
    )


def live_actions(space: spaces.Space[Any]) -> dict[str, Any]:
    """Return what ``Facts`` says of actions."""
    if isinstance(space, Discrete) and space.start == 0:
        return {"n_actions": int(space.n), "width": int(space.n), "limits": None}
    factors = action_factors(space)
    if factors is not None:
        return facts_of_action_parts(factors, binary=isinstance(space, MultiBinary))
    if not isinstance(space, Box) or len(space.shape) != 1:
        raise UnreadableError("its actions are neither Discrete from 0 nor a one-dimensional Box")
    limits = (space.low.astype(np.float32), space.high.astype(np.float32))
    return {"n_actions": None, "width": space.shape[0], "limits": limits}


def action_factors(actions: spaces.Space[Any]) -> tuple[int, ...] | None:
    """Return how many values each part of an action has, from 0; None for actions without parts."""
    if isinstance(actions, MultiBinary):
        return (2,) * prod(actions.shape)
    if isinstance(actions, MultiDiscrete) and not actions.start.any():
        return tuple(map(int, actions.nvec.ravel()))
    return None


def facts_of_action_parts(counts: Sequence[int], *, binary: bool) -> dict[str, Any]:
    """Return what ``Facts`` says of actions in parts; a binary part has one output, others one for each value."""
    combinations = 1
    for count in counts:
        combinations *= count
        # The network has a value for each; and the product of a million twos takes forever.
        if combinations > MOST_IN_SPACE:
            raise UnreadableError(f"the parts of its actions have more than {MOST_IN_SPACE:,} combinations")
    width = len(counts) if binary else sum(counts)
    return {"n_actions": combinations, "width": width, "limits": None, "factors": tuple(counts), "binary": binary}


def _read_member(path: Path, name: str, most: int) -> bytes:
    with untrusted(path, "zip file"), open_zip(path) as archive:
        if name not in archive.namelist():
            raise InputError(f"{path} is not an SB3 model file: it has no {name}; it may be truncated")
        check_size(path, name, archive.getinfo(name).file_size, most)
        return archive.read(name)
    raise AssertionError
