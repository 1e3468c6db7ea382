"""Stable-Baselines3 models in and out; a model file is read as data, without unpickling anything in it.

A model ``.zip`` holds ``policy.pth`` (tensors, read with ``weights_only=True``) and ``data`` (JSON). Beside
every pickled field of ``data`` SB3 prints its first-level attributes; only these are read, and what they
cannot tell is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray
from torch import Tensor, nn

from surefoot.agents.networks import CNN, MLP, Squashed
from surefoot.agents.policies import Policy
from surefoot.agents.sb3.rebuild import rebuilt, wrapped
from surefoot.agents.sb3.settings import (
    Facts,
    UnreadableError,
    facts_of_file,
    facts_of_model,
    read_settings,
    read_tensors,
)
from surefoot.errors import InputError

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
