"""Policies written as Stable-Baselines3 model files, which plain SB3 opens."""

from __future__ import annotations

import io
import pickle
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
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
from surefoot.agents.sb3.recurrent import lstm_model
from surefoot.agents.sb3.settings import ACTIVATIONS
from surefoot.errors import InputError
from surefoot.files import write_whole


def write_zip(policy: Policy, path: str | Path, *, as_ppo: bool = False) -> str:
    """Write a policy as a file that SB3's ``DQN.load`` (discrete actions) or ``DDPG.load`` (continuous) opens.

    Continuous actions without tanh are written for ``PPO.load``, an LSTM without encoder for sb3-contrib's
    ``RecurrentPPO.load``, whichever its actions. ``as_ppo`` writes discrete actions for ``PPO.load`` too. A file of PPO
    has a new critic: acting does not use it.

    It takes float observations (n_stack, *shape), or shape when it has one frame, in the units of the policy.
    The same policy gives the same bytes. Statistics of observations go into ``vecnormalize.pkl`` in a folder named like
    the file, where RL Baselines3 Zoo has them; ``VecNormalize.load`` opens it. Returns the class that loads the file.
    """
    bare, statistics = taken_apart(policy)
    made = _model(bare, as_ppo=as_ppo)
    content = _archive(bare, made)
    write_whole(Path(path), lambda file: _repack(content, file))
    if statistics is not None:
        saved = _statistics(bare, statistics)
        write_whole(statistics_path(Path(path)), lambda file: _write(file, saved))
    return f"{made.package}.{made.algorithm}"


def statistics_path(path: Path) -> Path:
    """Return where the statistics of a model file are written."""
    return path.with_suffix("") / "vecnormalize.pkl"


class _Spaces(gymnasium.Env[Any, Any]):
    """No environment, only its spaces: SB3 makes no model without one."""

    def __init__(self, observation_space: Box, action_space: gymnasium.Space[Any]) -> None:
        self.observation_space = observation_space
        self.action_space = action_space


def _statistics(policy: Policy, statistics: Statistics) -> bytes:
    """Return what ``VecNormalize.save`` writes for frozen statistics."""
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    observations = Box(-np.inf, np.inf, policy.spaces.stacked_shape, np.float32)
    wrapper = VecNormalize(
        DummyVecEnv([lambda: _Spaces(observations, Discrete(1))]),
        training=False,
        norm_reward=False,
        clip_obs=statistics.clip,
        epsilon=statistics.epsilon,
    )
    running: Any = wrapper.obs_rms
    running.mean = statistics.mean.reshape(policy.spaces.stacked_shape)
    running.var = statistics.var.reshape(policy.spaces.stacked_shape)
    return pickle.dumps(wrapper)


def _write(file: IO[bytes], content: bytes) -> None:
    file.write(content)


@dataclass(frozen=True)
class _Model:
    """What SB3 needs to make a model: algorithm, kind of policy, settings, actions, weights under its names."""

    algorithm: str
    kind: str
    settings: dict[str, Any]
    actions: gymnasium.Space[Any]
    weights: dict[str, Tensor]

    @property
    def package(self) -> str:
        """Where the algorithm comes from."""
        return "sb3_contrib" if self.algorithm == "RecurrentPPO" else "stable_baselines3"


def _model(policy: Policy, *, as_ppo: bool) -> _Model:
    """Return the policy as SB3 has it, or say why it has no such model."""
    if not policy.stacks_frames:
        return _recurrent(policy)
    n_actions = policy.spaces.n_actions
    if isinstance(policy.network, MLP) and (as_ppo or (n_actions is None and policy.spaces.low is not None)):
        return _actor(policy, policy.network)
    discrete = isinstance(policy.network, MLP | CNN) and n_actions is not None
    actor = policy.network.network if isinstance(policy.network, Squashed) else policy.network
    if not discrete and not (isinstance(policy.network, Squashed) and isinstance(policy.critic, Critic)):
        raise InputError(
            "only an MLP or a convolutional network with discrete actions, or an MLP with bounded continuous "
            "actions and a critic, can be written as an SB3 file, "
            f"got {type(policy.network).__name__} with n_actions={n_actions}"
        )
    if isinstance(actor, MLP) and actor.bound is not None:
        raise InputError(
            f"{policy.name} clips its outputs before the tanh (state-dependent exploration), which no SB3 file written "
            "here can say; keep the file that it was read from"
        )
    return _actor_and_critic(policy) if isinstance(policy.network, Squashed) else _q_network(policy)


def _archive(policy: Policy, made: _Model) -> bytes:
    """Return the file SB3 itself saves for a model with these weights."""
    try:
        algorithms = import_module(made.package)
    except ImportError as error:
        needed = "Stable-Baselines3" if made.package == "stable_baselines3" else "sb3-contrib"
        raise InputError(f"writing an SB3 file needs {needed}; from a checkout: pip install '.[all]'") from error
    spaces = _Spaces(Box(-np.inf, np.inf, policy.spaces.stacked_shape, np.float32), made.actions)
    if made.kind == "CnnPolicy":
        spaces.observation_space.seed(0)  # SB3 draws a picture to learn its size, and pickles the generator
    with torch.random.fork_rng(devices=[]):  # making a model draws initial weights
        torch.manual_seed(0)
        own = {} if made.algorithm.endswith("PPO") else {"buffer_size": 1}
        model = getattr(algorithms, made.algorithm)(made.kind, spaces, device="cpu", policy_kwargs=made.settings, **own)
    rest = model.policy.state_dict() if made.algorithm == "PPO" else {}
    model.policy.load_state_dict({**rest, **made.weights})
    content = io.BytesIO()
    model.save(content)
    return content.getvalue()


def _recurrent(policy: Policy) -> _Model:
    made = lstm_model(policy)
    if made is None:
        raise InputError(
            f"{policy.name} cannot be written as an SB3 file: of agents with memory of their own sb3-contrib's "
            "RecurrentPPO has only an LSTM over the observation alone, without encoder"
        )
    return _Model("RecurrentPPO", "MlpLstmPolicy", made[0], _actions(policy), made[1])


def _actions(policy: Policy) -> gymnasium.Space[Any]:
    low, high = policy.spaces.low, policy.spaces.high
    if low is not None and high is not None:
        return Box(np.array(low, dtype=np.float32), np.array(high, dtype=np.float32))
    return Discrete(policy.spaces.n_actions or 1)


def _actor(policy: Policy, network: MLP) -> _Model:
    widths = _widths(network)
    settings = {"net_arch": {"pi": widths, "vf": widths}, "activation_fn": ACTIVATIONS[network.activation]}
    last = f"policy_net.{2 * len(widths)}."
    named = _named({"policy_net": network})
    weights = {
        f"action_net.{name.removeprefix(last)}" if name.startswith(last) else f"mlp_extractor.{name}": value
        for name, value in named.items()
    }
    return _Model("PPO", "MlpPolicy", settings, _actions(policy), weights)


def _q_network(policy: Policy) -> _Model:
    network, actions = policy.network, Discrete(policy.spaces.n_actions or 1)
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
        for part in PARTS
    }


def _repack(content: bytes, file: IO[bytes]) -> None:
    """Copy the archive without what differs between writings: dates, addresses, facts of the machine."""
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(file, "w") as target:
        for name in source.namelist():
            if name != "system_info.txt":
                member = source.read(name)
                member = re.sub(rb" at 0x[0-9a-f]+", b"", member) if name == "data" else member
                target.writestr(zipfile.ZipInfo(name), member)
