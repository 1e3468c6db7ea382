"""SB3's DQN on noisy observations: how the paper trains its agents with discrete actions (Table 1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from stable_baselines3 import DQN
from stable_baselines3.common.vec_env import DummyVecEnv

from surefoot.agents import files as zoo
from surefoot.agents.networks import CNN, MLP, NATURE, cnn_policy
from surefoot.agents.policies import Policy
from surefoot.agents.sb3.read import from_model
from surefoot.play.task import Task
from surefoot.train.cuda_graph import GraphDQN, linear_of
from surefoot.train.folder import Arrays
from surefoot.train.settings import DqnSettings
from surefoot.train.validation import Learner, training_environment


def build_model(task: Task, sigma: float, settings: DqnSettings, seed: int, device: str) -> DQN:
    """Make SB3's DQN with the settings; on CUDA its gradient steps are captured as a graph."""
    graph = torch.device(device).type == "cuda"
    algorithm = GraphDQN if graph else DQN
    return algorithm(
        "MlpPolicy" if task.cartridge is None else "CnnPolicy",
        DummyVecEnv([lambda: training_environment(task, sigma)]),
        learning_rate=settings.learning_rate,
        buffer_size=settings.buffer_size,
        learning_starts=settings.learning_starts,
        batch_size=settings.batch_size,
        gamma=settings.gamma,
        train_freq=settings.train_interval,
        gradient_steps=settings.gradient_steps,
        target_update_interval=settings.target_interval,
        exploration_fraction=settings.exploration_fraction,
        exploration_initial_eps=settings.exploration_initial,
        exploration_final_eps=settings.exploration_final,
        policy_kwargs={
            "net_arch": list(settings.hidden),
            "optimizer_kwargs": {"fused": True, "capturable": True} if graph else {},
            # Noisy pixels are floats around [0, 1] and are kept so; SB3 would take bytes and divide them by 255.
            **({} if task.cartridge is None else {"normalize_images": False}),
        },
        seed=seed,
        device=device,
    )


def layers_of(network: torch.nn.Module, prefix: str = "") -> Arrays:
    """Return a network's layers as arrays named ``0.weight``, ``0.bias``, ``1.weight``, ..."""
    arrays: Arrays = {}
    for index, layer in enumerate(linear_of(network)):
        arrays[f"{prefix}{index}.weight"] = layer.weight.detach().cpu().numpy().copy()
        arrays[f"{prefix}{index}.bias"] = layer.bias.detach().cpu().numpy().copy()
    return arrays


def mlp_of(weights: Mapping[str, NDArray[Any]], prefix: str = "") -> MLP:
    """Return the network whose layers ``layers_of`` returned under the prefix."""
    count = sum(f"{prefix}{i}.weight" in weights for i in range(len(weights)))
    return MLP(
        [weights[f"{prefix}{i}.weight"] for i in range(count)], [weights[f"{prefix}{i}.bias"] for i in range(count)]
    )


def kept_weights(model: DQN) -> Arrays:
    """Return the Q-network's layers, those of pixels as ``CNN`` names them."""
    if model.policy_class is not model.policy_aliases["CnnPolicy"]:
        return layers_of(model.q_net.q_net)
    network = from_model(model).network
    assert isinstance(network, CNN)
    return {name: part.cpu().contiguous().numpy().copy() for name, part in network.named_parts()}


def policy_of(task: Task, weights: Mapping[str, NDArray[Any]], name: str) -> Policy:
    """Return the policy of the weights: convolutional for pixels, else fully connected."""
    if task.cartridge is not None:
        assert task.spaces.n_actions is not None
        return cnn_policy(weights, NATURE, task.spaces.n_stack, task.spaces.shape, task.spaces.n_actions, name)
    return zoo.hashed(Policy(mlp_of(weights), task.spaces, name=name))


LEARNER = Learner(
    algorithm="stable_baselines3.DQN",
    build=build_model,
    weights=kept_weights,
    policy=policy_of,
)
