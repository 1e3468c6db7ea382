"""SB3's DDPG on noisy observations: how the paper trains its agents with continuous actions (Table 2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import DDPG
from stable_baselines3.common.noise import OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv

from surefoot.agents import files as zoo
from surefoot.agents.networks import Critic, Squashed
from surefoot.agents.policies import Policy
from surefoot.errors import InputError
from surefoot.play.task import Task
from surefoot.train.cuda_graph import GraphDDPG
from surefoot.train.dqn import layers_of, mlp_of
from surefoot.train.folder import Arrays
from surefoot.train.settings import DdpgSettings
from surefoot.train.validation import Learner, training_environment


def build_model(task: Task, sigma: float, settings: DdpgSettings, seed: int, device: str) -> DDPG:
    """Make SB3's DDPG with the settings; on CUDA its gradient steps are captured as a graph.

    It trains once per episode, with as many gradient steps as the episode had steps.
    """
    graph = torch.device(device).type == "cuda"
    algorithm = GraphDDPG if graph else DDPG
    width = len(_limits(task)[0])
    return algorithm(
        "MlpPolicy",
        DummyVecEnv([lambda: training_environment(task, sigma)]),
        learning_rate=settings.learning_rate,
        # More than is ever collected would only be memory that stays empty.
        buffer_size=min(settings.buffer_size, settings.total_steps),
        learning_starts=settings.learning_starts,
        batch_size=settings.batch_size,
        tau=settings.tau,
        gamma=settings.gamma,
        train_freq=(1, "episode"),
        gradient_steps=-1,
        action_noise=OrnsteinUhlenbeckActionNoise(np.zeros(width), settings.exploration_noise * np.ones(width)),
        policy_kwargs={
            "net_arch": list(settings.hidden),
            "optimizer_kwargs": {"fused": True, "capturable": True} if graph else {},
        },
        seed=seed,
        device=device,
    )


def kept_weights(model: DDPG) -> Arrays:
    """Return actor and critic: attacks on the agent use the critic for the value of an action."""
    return {**layers_of(model.actor.mu), **layers_of(model.critic.q_networks[0], "critic.")}


def policy_of(task: Task, weights: Mapping[str, NDArray[Any]], name: str) -> Policy:
    """Return the policy of the weights, its critic included."""
    low, high = (np.asarray(limit, dtype=np.float32) for limit in _limits(task))
    return zoo.hashed(
        Policy(
            Squashed(mlp_of(weights), low, high),
            task.spaces,
            name=name,
            critic=Critic(mlp_of(weights, "critic."), low, high),
        )
    )


def _limits(task: Task) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if task.spaces.low is None or task.spaces.high is None:
        raise InputError(
            f"DDPG needs bounded continuous actions, {task.name} has {task.spaces.n_actions} discrete ones"
        )
    return task.spaces.low, task.spaces.high


LEARNER = Learner(
    algorithm="stable_baselines3.DDPG",
    build=build_model,
    weights=kept_weights,
    policy=policy_of,
    validates_there=True,
)
