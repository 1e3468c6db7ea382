"""SB3's DQN on noisy observations: how the paper trains its agents with discrete actions (Table 1)."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.wrappers import FrameStackObservation
from stable_baselines3 import DQN
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import nn

from surefoot.agents.networks import CNN
from surefoot.agents.sb3.read import from_model
from surefoot.play.envs.noisy import NoisyObservation
from surefoot.play.task import Task
from surefoot.train.deployed import arrays_of_layers
from surefoot.train.folder import NamedArrays
from surefoot.train.settings import DqnSettings


def training_environment(task: Task, sigma: float) -> gymnasium.Env[Any, Any]:
    """Return the task's environment as the agent sees it: noise on every new observation, then the frame stack."""
    noisy: gymnasium.Env[Any, Any] = NoisyObservation(task.backend.open(), sigma)
    if task.spaces.n_stack > 1:
        noisy = FrameStackObservation(noisy, task.spaces.n_stack, padding_type="reset")
    return Monitor(noisy)


def build_dqn(
    task: Task, sigma: float, settings: DqnSettings, seed: int, device: str, algorithm: type[DQN] = DQN
) -> DQN:
    """Make SB3's DQN with the settings."""
    policy_options: dict[str, Any] = {"net_arch": list(settings.hidden)}
    if task.cartridge is not None:
        # Noisy pixels are floats around [0, 1] and are kept so; SB3 would take bytes and divide them by 255.
        policy_options["normalize_images"] = False
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
        policy_kwargs=policy_options,
        seed=seed,
        device=device,
    )


def q_network_weights(model: DQN) -> NamedArrays:
    """Return the Q-network's layers, those of pixels as ``CNN`` names them."""
    # Exploration and target network belong to training: the agent is the Q-network alone.
    if not sees_pixels(model):
        return arrays_of_layers(linear_of(model.q_net.q_net))
    network = from_model(model).network
    assert isinstance(network, CNN)
    return {name: part.cpu().contiguous().numpy().copy() for name, part in network.named_parts()}


def sees_pixels(model: OffPolicyAlgorithm) -> bool:
    """Return whether observations are stacks of frames and the network is convolutional."""
    return len(model.observation_space.shape or ()) == 3


def linear_of(network: nn.Module) -> list[nn.Linear]:
    """Return the fully connected layers, first to last."""
    return [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
