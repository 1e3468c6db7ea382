"""Policies written as Stable-Baselines3 model files, which plain SB3 opens."""

from __future__ import annotations

import io
import pickle
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from surefoot.agents.networks import CNN, MLP, PARTS, Critic, Squashed
from surefoot.agents.normalization import Statistics, taken_apart
from surefoot.agents.policies import Policy
from surefoot.agents.sb3.cnn import cnn_settings, cnn_weights
from surefoot.agents.sb3.settings import SB3_ACTIVATIONS
from surefoot.errors import InputError
from surefoot.files import write_whole
from surefoot.provenance import install_command


def write_zip(policy: Policy, path: str | Path, *, as_ppo: bool = False) -> str:
    """Write a policy as a file that SB3's ``DQN.load`` (discrete actions) or ``DDPG.load`` (continuous) opens.

    Continuous actions without tanh are written for ``PPO.load``; ``as_ppo`` writes discrete actions for it too. A file
    of PPO has a new critic: acting does not use it.

    It takes float observations (n_stack, *shape), or shape when it has one frame, in the units of the policy.
    The same policy gives the same bytes. Statistics of observations go into ``vecnormalize.pkl`` in a folder named like
    the file, where RL Baselines3 Zoo has them; ``VecNormalize.load`` opens it. Returns the class that loads the file.
    """
    bare, statistics = taken_apart(policy)
    made = _describe_model(bare, as_ppo=as_ppo)
    content = _save_model(bare, made)
    write_whole(Path(path), lambda file: _repack(content, file))
    if statistics is not None:
        saved = _save_statistics(bare, statistics)
        write_whole(statistics_path(Path(path)), lambda file: file.write(saved))
    return f"stable_baselines3.{made.algorithm}"


def statistics_path(path: Path) -> Path:
    """Return where the statistics of a model file are written."""
    return path.with_suffix("") / "vecnormalize.pkl"


class _SpacesOnly(gymnasium.Env[Any, Any]):
    """No environment, only its spaces: SB3 makes no model without one."""

    def __init__(self, observation_space: Box, action_space: gymnasium.Space[Any]) -> None:
        self.observation_space = observation_space
        self.action_space = action_space


def _save_statistics(policy: Policy, statistics: Statistics) -> bytes:
    """Return what ``VecNormalize.save`` writes for frozen statistics."""
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    observations = Box(-np.inf, np.inf, policy.spaces.stacked_shape, np.float32)
    wrapper = VecNormalize(
        DummyVecEnv([lambda: _SpacesOnly(observations, Discrete(1))]),
        training=False,
        norm_reward=False,
        clip_obs=statistics.clip,
        epsilon=statistics.epsilon,
    )
    running: Any = wrapper.obs_rms
    running.mean = statistics.mean.reshape(policy.spaces.stacked_shape)
    running.var = statistics.var.reshape(policy.spaces.stacked_shape)
    return pickle.dumps(wrapper)


@dataclass(frozen=True)
class _Model:
    """What SB3 needs to make a model: algorithm, kind of policy, settings, actions, weights under its names."""

    algorithm: str
    kind: str
    settings: dict[str, Any]
    actions: gymnasium.Space[Any]
    weights: dict[str, Tensor]


def _describe_model(policy: Policy, *, as_ppo: bool) -> _Model:
    """Return the policy as SB3 has it, or say why it has no such model."""
    if not policy.stacks_frames:
        raise InputError(f"{policy.name} has a memory of its own, and SB3 no such agents: it cannot be written")
    network = policy.network
    is_discrete = policy.spaces.n_actions is not None
    if isinstance(network, Squashed) and isinstance(policy.critic, Critic):
        return _describe_actor_and_critic(policy.name, network, policy.critic)
    if isinstance(network, MLP) and (as_ppo or (not is_discrete and policy.spaces.low is not None)):
        return _describe_actor(policy, network)
    if isinstance(network, MLP | CNN) and is_discrete:
        return _describe_q_network(policy, network)
    raise InputError(
        "only an MLP or a convolutional network with discrete actions, or an MLP with bounded continuous actions and a "
        f"critic, can be written as an SB3 file, got {type(network).__name__} with n_actions={policy.spaces.n_actions}"
    )


def _save_model(policy: Policy, made: _Model) -> bytes:
    """Return the file SB3 itself saves for a model with these weights."""
    try:
        import stable_baselines3
    except ImportError as error:
        raise InputError(
            f"writing an SB3 file needs Stable-Baselines3; install it with: {install_command('train')}"
        ) from error
    spaces = _SpacesOnly(Box(-np.inf, np.inf, policy.spaces.stacked_shape, np.float32), made.actions)
    if made.kind == "CnnPolicy":
        # SB3 draws a picture to learn its size, and pickles the generator.
        spaces.observation_space.seed(0)
    # Making a model draws initial weights.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        options: dict[str, Any] = {"device": "cpu", "policy_kwargs": made.settings}
        if made.algorithm != "PPO":
            options["buffer_size"] = 1
        model = getattr(stable_baselines3, made.algorithm)(made.kind, spaces, **options)
    weights = made.weights
    if made.algorithm == "PPO":
        # Its critic stays as it was drawn: acting does not use it.
        weights = {**model.policy.state_dict(), **weights}
    model.policy.load_state_dict(weights)
    content = io.BytesIO()
    model.save(content)
    return content.getvalue()


def _action_space(policy: Policy) -> gymnasium.Space[Any]:
    low = policy.spaces.low
    high = policy.spaces.high
    if low is not None and high is not None:
        return Box(np.array(low, dtype=np.float32), np.array(high, dtype=np.float32))
    return Discrete(policy.spaces.n_actions or 1)


def _describe_actor(policy: Policy, network: MLP) -> _Model:
    widths = _hidden_widths(network)
    settings = {"net_arch": {"pi": widths, "vf": widths}, "activation_fn": SB3_ACTIVATIONS[network.activation]}
    weights = _layer_weights("mlp_extractor.policy_net", network)
    for part in PARTS:
        # The last layer has a name of its own.
        weights[f"action_net.{part}"] = weights.pop(f"mlp_extractor.policy_net.{2 * len(widths)}.{part}")
    return _Model("PPO", "MlpPolicy", settings, _action_space(policy), weights)


def _describe_q_network(policy: Policy, network: MLP | CNN) -> _Model:
    actions = _action_space(policy)
    if isinstance(network, CNN):
        return _Model("DQN", "CnnPolicy", cnn_settings(network), actions, cnn_weights(network))
    settings = {"net_arch": _hidden_widths(network), "activation_fn": SB3_ACTIVATIONS[network.activation]}
    weights = _layer_weights("q_net.q_net", network) | _layer_weights("q_net_target.q_net", network)
    return _Model("DQN", "MlpPolicy", settings, actions, weights)


def _describe_actor_and_critic(name: str, squashed: Squashed, critic: Critic) -> _Model:
    actor = squashed.network
    assert isinstance(actor, MLP)
    if actor.bound is not None:
        raise InputError(
            f"{name} clips its outputs before the tanh (state-dependent exploration), which no SB3 file written here "
            "can say; keep the file that it was read from"
        )
    widths = {"pi": _hidden_widths(actor), "qf": _hidden_widths(critic.network)}
    weights: dict[str, Tensor] = {}
    for target in ("", "_target"):
        weights |= _layer_weights(f"actor{target}.mu", actor)
        weights |= _layer_weights(f"critic{target}.qf0", critic.network)
    actions = Box(squashed.low.cpu().numpy(), squashed.high.cpu().numpy())
    settings = {"net_arch": widths, "activation_fn": SB3_ACTIVATIONS[actor.activation]}
    return _Model("DDPG", "MlpPolicy", settings, actions, weights)


def _hidden_widths(network: MLP) -> list[int]:
    return [layer.out_features for layer in network.linear[:-1]]


def _layer_weights(place: str, network: MLP) -> dict[str, Tensor]:
    """Return the layers of a network under SB3's names, where activations have numbers too."""
    weights = {}
    for index, layer in enumerate(network.linear):
        for part in PARTS:
            weights[f"{place}.{2 * index}.{part}"] = getattr(layer, part).detach().cpu()
    return weights


def _repack(content: bytes, file: IO[bytes]) -> None:
    """Copy the archive without what differs between writings: dates, addresses, facts of the machine."""
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(file, "w") as target:
        for name in source.namelist():
            if name == "system_info.txt":
                continue
            member = source.read(name)
            if name == "data":
                member = re.sub(rb" at 0x[0-9a-f]+", b"", member)
            target.writestr(zipfile.ZipInfo(name), member)
