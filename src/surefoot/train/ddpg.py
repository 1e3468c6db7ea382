"""SB3's DDPG on noisy observations: how the paper trains its agents with continuous actions (Table 2)."""

from __future__ import annotations

import numpy as np
from stable_baselines3 import DDPG
from stable_baselines3.common.noise import OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv

from surefoot.errors import InputError
from surefoot.play.task import Task
from surefoot.train.deployed import arrays_of_layers
from surefoot.train.dqn import linear_of, training_environment
from surefoot.train.folder import NamedArrays
from surefoot.train.settings import DdpgSettings


def build_ddpg(
    task: Task, sigma: float, settings: DdpgSettings, seed: int, device: str, algorithm: type[DDPG] = DDPG
) -> DDPG:
    """Make SB3's DDPG with the settings.

    It trains once per episode, with as many gradient steps as the episode had steps.

    Raises:
        InputError: If actions are not continuous and bounded.
    """
    if task.spaces.low is None or task.spaces.high is None:
        raise InputError(
            f"DDPG needs bounded continuous actions, {task.name} has {task.spaces.n_actions} discrete ones"
        )
    n_actions = len(task.spaces.low)
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
        action_noise=OrnsteinUhlenbeckActionNoise(np.zeros(n_actions), settings.exploration_noise * np.ones(n_actions)),
        policy_kwargs={"net_arch": list(settings.hidden)},
        seed=seed,
        device=device,
    )


def actor_critic_weights(model: DDPG) -> NamedArrays:
    """Return actor and critic: attacks on the agent use the critic for the value of an action."""
    actor = arrays_of_layers(linear_of(model.actor.mu))
    critic = arrays_of_layers(linear_of(model.critic.q_networks[0]), "critic.")
    return actor | critic
