"""Stable-Baselines3 models in and out; a model file is read as data, without unpickling anything in it.

A model ``.zip`` holds ``policy.pth`` (tensors, read with ``weights_only=True``) and ``data`` (JSON). Beside
every pickled field of ``data`` SB3 prints its first-level attributes; only these are read, and what they
cannot tell is refused.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray
from torch import Tensor, nn

from surefoot.agents.networks import CNN
from surefoot.agents.policies import MLP, Critic, Policy, Squashed
from surefoot.agents.sb3.cnn import cnn_settings, cnn_weights
from surefoot.agents.sb3.rebuild import ACTIVATIONS, rebuilt, wrapped
from surefoot.agents.sb3.settings import (
    Facts,
    UnreadableError,
    facts_of_file,
    facts_of_model,
    read_settings,
    read_tensors,
)
from surefoot.errors import InputError
from surefoot.files import write_whole

TRUST = "if you trust whoever made it, use --trust-pickle (trust_pickle=True)"


class Restacked(nn.Module):
    """A network made for stacks of another layout: frames on the first axis, or side by side on the last."""

    def __init__(self, network: nn.Module, stored: tuple[int, ...], last_axis: bool) -> None:
        super().__init__()
        self.network = network
        self.stored = stored
        self.last_axis = last_axis

    def forward(self, history: Tensor) -> Tensor:
        """Lay the frames out as the network knows them."""
        frames = history.movedim(1, -2) if self.last_axis else history
        output: Tensor = self.network(frames.reshape(len(history), 1, *self.stored))
        return output


def read_zip(
    path: str | Path, *, trust_pickle: bool = False, action_space: gymnasium.Space[Any] | None = None
) -> Policy:
    """Read an SB3 model file as a policy over its own observation shape, running none of its code.

    MlpPolicy of DQN, PPO, A2C, DDPG, TD3 and SAC and CnnPolicy of DQN can be read so. ``action_space`` is
    checked against the file, and gives the limits of continuous actions where the file prints them too
    coarsely. ``trust_pickle`` loads any model with SB3 itself, which unpickles: the file may then run whatever
    its maker put into it.
    """
    path = Path(path)
    data = read_settings(path)
    _refuse_contrib(path, data)
    if trust_pickle:
        policy = from_model(_load(path, data))
    else:
        weights = read_tensors(path)
        try:
            policy = rebuilt(_with_limits(facts_of_file(data), path, action_space), weights)
        except UnreadableError as reason:
            raise InputError(f"{path} cannot be read without unpickling: {reason}; {TRUST}") from reason
    if action_space is not None:
        check_actions(policy, action_space)
    return replace(policy, name=path.stem)


def from_model(model: Any) -> Policy:
    """Return the deterministic policy of a live SB3 model, as it is now; further training does not change it.

    A network that is neither a plain MLP nor DQN's convolutional one acts through SB3's own predict, without
    gradient (``differentiable`` is False).
    """
    name = type(model).__name__
    try:
        return replace(rebuilt(facts_of_model(model), model.policy.state_dict()), name=name)
    except UnreadableError:
        return replace(wrapped(model), name=name)


def fit_to(policy: Policy, shape: tuple[int, ...]) -> Policy:
    """Return the policy for an environment whose one observation has ``shape``; a stack becomes its frames.

    A file tells only the shape it was trained on: (k, *shape) is read as gymnasium's FrameStackObservation, a
    last axis k times as long as VecFrameStack; both put the oldest first. Frames are filled with the first
    observation, where VecFrameStack fills with zeros.
    """
    stored = policy.shape
    if stored == shape:
        return policy
    if policy.frames == 1 and stored[1:] == shape:
        return _restacked(policy, shape, stored[0], last_axis=False)
    times = stored[-1] // shape[-1] if stored and shape and shape[-1] else 0
    if policy.frames == 1 and times > 1 and stored == (*shape[:-1], times * shape[-1]):
        return _restacked(policy, shape, times, last_axis=True)
    raise InputError(
        f"the agent was made for observations of shape {stored}, the environment gives {shape}; "
        "expected the same shape or a stack of them"
    )


def single_shape(stacked: tuple[int, ...], frames: int) -> tuple[int, ...]:
    """Return the shape of one of the ``frames`` observations in a stack, or say that it is none."""
    if len(stacked) > 1 and stacked[0] == frames:
        return stacked[1:]
    if stacked and stacked[-1] % frames == 0:
        return (*stacked[:-1], stacked[-1] // frames)
    raise InputError(f"observations of shape {stacked} are no stack of {frames} frames")


def check_actions(policy: Policy, action_space: gymnasium.Space[Any]) -> None:
    """Say so if the environment does not take the actions of the policy."""
    if isinstance(action_space, Discrete):
        if policy.choices != action_space.n or action_space.start != 0:
            ours = "continuous actions" if policy.choices is None else f"{policy.choices} actions from 0"
            raise InputError(f"the agent has {ours}, the environment takes {action_space}")
        return
    if not isinstance(action_space, Box):
        raise InputError(f"actions must be Discrete or Box, the environment takes {action_space}")
    if policy.choices is not None:
        raise InputError(f"the agent has {policy.choices} actions from 0, the environment takes {action_space}")
    if policy.low is None or policy.high is None:
        return
    low, high = policy.low.cpu().numpy(), policy.high.cpu().numpy()
    if low.shape != action_space.shape or not _close(low, action_space.low, high, action_space.high):
        raise InputError(
            f"the agent's actions lie from {low.tolist()} to {high.tolist()}, the environment takes {action_space}"
        )


def write_zip(
    policy: Policy,
    path: str | Path,
    *,
    observation_space: gymnasium.Space[Any] | None = None,
    action_space: gymnasium.Space[Any] | None = None,
) -> None:
    """Write a policy as a file that SB3's ``DQN.load`` (discrete actions) or ``DDPG.load`` (continuous) opens.

    It takes float observations (frames, *shape), or shape when it has one frame, in the units of the policy.
    The spaces of the environment, when given, are checked against the policy. The same policy gives the same
    bytes.
    """
    discrete = isinstance(policy.network, MLP | CNN) and policy.choices is not None
    if not discrete and not (isinstance(policy.network, Squashed) and isinstance(policy.critic, Critic)):
        raise InputError(
            "only an MLP or a convolutional network with discrete actions, or an MLP with continuous ones between "
            "limits and a critic, can be written as an SB3 file, "
            f"got {type(policy.network).__name__} with choices={policy.choices}"
        )
    if observation_space is not None:
        _check_observations(policy, observation_space)
    if action_space is not None:
        check_actions(policy, action_space)
    content = _archive(policy)
    write_whole(Path(path), lambda file: _repack(content, file))


def _with_limits(facts: Facts, path: Path, action_space: gymnasium.Space[Any] | None) -> Facts:
    """Take the limits of actions from the environment where the file does not print all their digits."""
    if facts.choices is not None or facts.limits is not None:
        return facts
    if not isinstance(action_space, Box) or action_space.shape != (facts.width,):
        raise InputError(
            f"{path} does not print every digit of the limits of its {facts.width} continuous actions; "
            f"give the environment's action_space (a Box of shape {(facts.width,)})"
        )
    return replace(facts, limits=(action_space.low.astype(np.float32), action_space.high.astype(np.float32)))


def _refuse_contrib(path: Path, data: Mapping[str, Any]) -> None:
    policy_class = data.get("policy_class")
    module = str(policy_class.get("__module__") if isinstance(policy_class, dict) else None)
    if module.startswith("sb3_contrib"):
        memory = "recurrent agents are not supported" if "recurrent" in module else "expected an algorithm of SB3"
        raise InputError(f"{path} was made by {module}; {memory}")


def _load(path: Path, data: Mapping[str, Any]) -> Any:
    """Load with SB3 itself, unpickling; the kind of algorithm follows from the settings only it has."""
    kinds = {
        "policy_delay": "TD3",
        "target_entropy": "SAC",
        "exploration_fraction": "DQN",
        "clip_range": "PPO",
        "gae_lambda": "A2C",
    }
    kind = next((name for setting, name in kinds.items() if setting in data), None)
    if kind is None:
        raise InputError(f"{path} is of an unknown algorithm; expected DQN, PPO, A2C, DDPG, TD3 or SAC of SB3")
    try:
        import stable_baselines3

        # Acting needs no replay buffer, which would otherwise take gigabytes.
        return getattr(stable_baselines3, kind).load(path, device="cpu", buffer_size=1)
    except ImportError as error:
        raise InputError(f"{path} needs a package that is not here ({error}); pip install surefoot[train]") from error
    except Exception as error:  # unpickling may raise anything
        raise InputError(f"{path} could not be loaded by Stable-Baselines3: {error}") from error


def _restacked(policy: Policy, shape: tuple[int, ...], frames: int, *, last_axis: bool) -> Policy:
    # Flattened vectors side by side are the flattened stack: an MLP stays the MLP it is.
    flat = isinstance(policy.network, (MLP, Squashed)) and (not last_axis or len(shape) == 1)
    flat = flat or (isinstance(policy.network, CNN) and not last_axis)
    network = policy.network if flat else Restacked(policy.network, policy.shape, last_axis)
    return replace(policy, network=network, frames=frames, shape=shape)


def _close(low: NDArray[Any], other_low: NDArray[Any], high: NDArray[Any], other_high: NDArray[Any]) -> bool:
    return bool(np.allclose(low, other_low, rtol=1e-6) and np.allclose(high, other_high, rtol=1e-6))


def _check_observations(policy: Policy, space: gymnasium.Space[Any]) -> None:
    if not isinstance(space, Box) or not np.issubdtype(space.dtype, np.floating):
        raise InputError(f"an SB3 file of this agent takes float observations, the environment gives {space}")
    if space.shape != policy.shape:
        raise InputError(f"the agent sees observations of shape {policy.shape}, the environment gives {space.shape}")


class _Spaces(gymnasium.Env[Any, Any]):
    """No environment, only its spaces: SB3 makes no model without one."""

    def __init__(self, observation_space: Box, action_space: gymnasium.Space[Any]) -> None:
        self.observation_space = observation_space
        self.action_space = action_space


@dataclass(frozen=True)
class _Model:
    """What SB3 needs to make a model: algorithm, kind of policy, settings, actions, weights under its names."""

    algorithm: str
    kind: str
    settings: dict[str, Any]
    actions: gymnasium.Space[Any]
    weights: dict[str, Tensor]


def _archive(policy: Policy) -> bytes:
    """Return the file SB3 itself saves for a DQN or DDPG with these weights."""
    try:
        import stable_baselines3
    except ImportError as error:
        raise InputError("writing an SB3 file needs Stable-Baselines3; pip install surefoot[train]") from error
    stacked = policy.shape if policy.frames == 1 else (policy.frames, *policy.shape)
    made = _actor_and_critic(policy) if isinstance(policy.network, Squashed) else _q_network(policy)
    spaces = _Spaces(Box(-np.inf, np.inf, stacked, np.float32), made.actions)
    if made.kind == "CnnPolicy":
        spaces.observation_space.seed(0)  # SB3 draws a picture to learn its size, and pickles the generator
    with torch.random.fork_rng(devices=[]):  # making a model draws initial weights nobody asked for
        model = getattr(stable_baselines3, made.algorithm)(
            made.kind, spaces, buffer_size=1, device="cpu", policy_kwargs=made.settings
        )
    model.policy.load_state_dict(made.weights)
    content = io.BytesIO()
    model.save(content)
    return content.getvalue()


def _q_network(policy: Policy) -> _Model:
    network, actions = policy.network, Discrete(policy.choices or 1)
    if isinstance(network, CNN):
        return _Model("DQN", "CnnPolicy", cnn_settings(network), actions, cnn_weights(network))
    assert isinstance(network, MLP)
    settings = {"net_arch": _widths(network), "activation_fn": ACTIVATIONS[network.activation]}
    weights = _named({"q_net.q_net": network, "q_net_target.q_net": network})
    return _Model("DQN", "MlpPolicy", settings, actions, weights)


def _actor_and_critic(policy: Policy) -> _Model:
    squashed, critic = policy.network, policy.critic
    assert isinstance(squashed, Squashed)
    assert isinstance(critic, Critic)
    actor = squashed.network
    assert isinstance(actor, MLP)
    widths = {"pi": _widths(actor), "qf": _widths(critic.network)}
    parts = {f"actor{target}.mu": actor for target in ("", "_target")}
    parts |= {f"critic{target}.qf0": critic.network for target in ("", "_target")}
    actions = Box(squashed.low.cpu().numpy(), squashed.high.cpu().numpy())
    settings = {"net_arch": widths, "activation_fn": ACTIVATIONS[actor.activation]}
    return _Model("DDPG", "MlpPolicy", settings, actions, _named(parts))


def _widths(network: MLP) -> list[int]:
    return [layer.out_features for layer in network.linear[:-1]]


def _named(parts: Mapping[str, MLP]) -> dict[str, Tensor]:
    """Return the layers of every part under SB3's names."""
    return {
        f"{place}.{2 * i}.{part}": getattr(layer, part).detach().cpu()
        for place, network in parts.items()
        for i, layer in enumerate(network.linear)
        for part in ("weight", "bias")
    }


def _repack(content: bytes, file: IO[bytes]) -> None:
    """Copy the archive without what differs between writings: dates, addresses, facts of the machine."""
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(file, "w") as target:
        for name in source.namelist():
            if name != "system_info.txt":
                member = source.read(name)
                member = re.sub(rb" at 0x[0-9a-f]+", b"", member) if name == "data" else member
                target.writestr(zipfile.ZipInfo(name), member)
