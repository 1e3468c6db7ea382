"""SB3's PPO on noisy observations of any environment, with a critic that sees the clean ones.

Read from top to bottom. What differs from SB3's defaults, the most important first: large batches (64 environments
times 200 steps; 16 times 256 where actions are continuous), with discrete actions a discount close to 1 and an entropy
bonus that does not fall, a critic that is given the clean observation and the time left, and a learning rate that falls
to 0. The actor sees noisy observations alone. Observations and rewards are normalized by VecNormalize, whose statistics
become part of the agent. The weights kept are those with the highest certified value on validation episodes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, MlpExtractor
from stable_baselines3.common.vec_env import VecEnv, VecNormalize
from torch import Tensor

from surefoot.agents.policies import Policy
from surefoot.agents.sb3.write import write_zip
from surefoot.compute import single_thread
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.streams import training_seeds
from surefoot.play.task import Task
from surefoot.train.cuda_graph import linear_of
from surefoot.train.deployed import arrays_of_layers, policy_from_weights
from surefoot.train.folder import Checkpoint, NamedArrays, TrainingFolder, TrainingRun
from surefoot.train.sb3_env import CLEAN, NOISY, NoisyAndClean
from surefoot.train.selection import validate
from surefoot.train.settings import Sb3PpoSettings

RUNNING = ("mean", "var", "count")


class ObservationParts(BaseFeaturesExtractor):
    """Some parts of a dictionary of observations, one after the other."""

    def __init__(self, observation_space: Any, keys: Sequence[str] = (NOISY,)) -> None:
        super().__init__(observation_space, sum(prod(observation_space[key].shape) for key in keys))
        self.keys = tuple(keys)

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        """Return the parts as rows."""
        return torch.cat([observations[key].flatten(1) for key in self.keys], dim=1)


class CleanCriticPolicy(ActorCriticPolicy):
    """An actor that is given the noisy observations alone, and a critic that is given other parts too."""

    def __init__(self, *arguments: Any, critic_keys: Sequence[str] = (NOISY, CLEAN), **settings: Any) -> None:
        self.critic_keys = tuple(critic_keys)
        settings |= {"features_extractor_class": ObservationParts, "share_features_extractor": False}
        super().__init__(*arguments, **settings)

    def _build_mlp_extractor(self) -> None:
        # SB3 gives both networks the same features; the critic's layers are made anew for its own, wider ones.
        self.vf_features_extractor = ObservationParts(self.observation_space, self.critic_keys)
        super()._build_mlp_extractor()
        wide = MlpExtractor(self.vf_features_extractor.features_dim, self.net_arch, self.activation_fn, self.device)
        self.mlp_extractor.value_net = wide.value_net


def build_sb3_ppo(task: Task, noise: Noise, settings: Sb3PpoSettings, seed: int, begun: int = 0) -> tuple[PPO, VecEnv]:
    """Make SB3's PPO for a task, and its environments; after ``begun`` steps, if resumed, with fresh samples."""
    # Streams for the environments, the noise, and SB3's own draws; a resumed run has other ones.
    seeds = training_seeds(seed, begun)
    env = NoisyAndClean(task, noise, n_stack=settings.n_stack, n_envs=settings.n_envs, seeds=seeds)
    model = PPO(
        CleanCriticPolicy,
        VecNormalize(env, gamma=settings.gamma, norm_obs_keys=[NOISY, CLEAN]),
        learning_rate=settings.learning_rate,
        n_steps=settings.n_steps,
        batch_size=settings.batch_size,
        n_epochs=settings.epochs,
        gamma=settings.gamma,
        gae_lambda=settings.trace,
        ent_coef=settings.entropy,
        policy_kwargs={
            "net_arch": list(settings.hidden),
            "critic_keys": [NOISY, CLEAN] if settings.clean_critic else [NOISY],
        },
        seed=int(seeds[3].generate_state(1)[0]),
        device="cpu",
    )
    return model, env


def actor_weights(model: PPO) -> NamedArrays:
    """Return the actor's layers and the statistics of what it is given."""
    hidden = linear_of(model.policy.mlp_extractor.policy_net)
    last = linear_of(model.policy.action_net)
    arrays = arrays_of_layers([*hidden, *last])
    running = _running_statistics(model)[NOISY]
    return arrays | {"mean": np.array(running.mean), "var": np.array(running.var)}


class Sb3Validation(BaseCallback):
    """Validates between iterations, and stops when steps or time are used up."""

    model: PPO

    def __init__(self, run: TrainingRun, settings: Sb3PpoSettings, folder: TrainingFolder) -> None:
        super().__init__()
        self.run = run
        self.settings = settings
        self.folder = folder

    def fraction_done(self) -> float:
        """Return which fraction of the training is over."""
        return self.folder.fraction_done(self.model.num_timesteps, self.settings.total_steps, self.run.time_limit)

    def learning_rate(self, _: float) -> float:
        """Return the learning rate, which falls to 0; SB3's own count of what is left is not used."""
        return self.settings.learning_rate * (1 - self.fraction_done())

    def _on_rollout_start(self) -> None:
        interval = self.settings.validation_interval
        if self.num_timesteps // interval != self.folder.curve.steps // interval:
            self.validate()

    def _on_step(self) -> bool:
        return self.fraction_done() < 1

    def validate(self) -> None:
        """Run the actor as it would be deployed, on episodes of their own; keep the best by certified value."""
        curve = self.folder.curve
        curve.steps = self.model.num_timesteps
        weights = actor_weights(self.model)
        candidate = deployed_agent(self.run.task, self.settings, weights, "candidate")
        n_episodes = self.settings.validation_episodes
        validate(self.run, curve, candidate, weights, n_episodes, number=len(curve.rows))
        self.save_checkpoint()
        if self.run.progress is not None:
            expected = round(curve.steps / max(self.fraction_done(), 1e-6))
            self.run.progress(curve.steps, max(curve.steps, expected), curve)

    def save_checkpoint(self) -> None:
        """Write everything needed to resume."""
        arrays: NamedArrays = {}
        for key, running in _running_statistics(self.model).items():
            for part in RUNNING:
                arrays[f"{key}.{part}"] = np.array(getattr(running, part))
        counters = {"num_timesteps": self.model.num_timesteps, "updates": self.model._n_updates}
        policy = self.model.policy
        self.folder.save_checkpoint(counters, {"policy": policy}, {"policy": policy.optimizer}, arrays)


def deployed_agent(task: Task, settings: Sb3PpoSettings, weights: NamedArrays, name: str) -> Policy:
    """Return the deployed agent: the actor behind its statistics."""
    return policy_from_weights(task.spaces, weights, name, n_stack=settings.n_stack, activation="tanh", squashed=False)


def train_sb3_ppo(run: TrainingRun, settings: Sb3PpoSettings) -> Policy:
    """Train until the steps or the time are used up; write the best agent, also as an SB3 zip, the curve, a checkpoint.

    Raises:
        InputError: If observations are not vectors, a setting is out of range, or the folder cannot be used.
    """
    task = run.task
    _check_vectors(task, settings)
    folder = run.open_folder()
    checkpoint = folder.load_checkpoint() if run.resume else None
    begun = 0 if checkpoint is None else int(checkpoint.counters["num_timesteps"])
    with single_thread():
        model, env = build_sb3_ppo(task, Noise.of(run.sigma), settings, run.seed, begun)
        if checkpoint is not None:
            restore_model(model, checkpoint)
        validation = Sb3Validation(run, settings, folder)
        # SB3 sets it only when learning begins; what fraction is done is asked before.
        validation.model = model
        model.lr_schedule = validation.learning_rate
        try:
            if validation.fraction_done() < 1:
                model.learn(sys.maxsize, validation, log_interval=sys.maxsize, reset_num_timesteps=False)
            # The last iteration has no rollout after it that would validate it.
            if not folder.curve.rows or folder.curve.steps != model.num_timesteps:
                validation.validate()
        except KeyboardInterrupt:
            validation.save_checkpoint()
            raise
        finally:
            env.close()
    policy = deployed_agent(task, settings, folder.curve.best_weights, f"{task.name}-s{run.sigma:g}")
    card = run.card("stable_baselines3.PPO", settings, budget=run.budget)
    # So that an agent of any environment can be certified from its card alone.
    card["environment"] = {
        "env": task.environment,
        **task.made_with,
        "floor": task.scoring.floor,
        "ceiling": task.scoring.ceiling,
        "max_steps": task.scoring.max_steps,
    }
    folder.finish(policy, card, keep_checkpoint=True)
    write_zip(policy, folder.path / "agent.zip", as_ppo=True)
    return policy


def restore_model(model: PPO, checkpoint: Checkpoint) -> None:
    """Restore what ``save_checkpoint`` wrote; episodes that were running are reset."""
    checkpoint.restore({"policy": model.policy}, {"policy": model.policy.optimizer})
    model.num_timesteps = int(checkpoint.counters["num_timesteps"])
    model._n_updates = int(checkpoint.counters["updates"])
    for key, running in _running_statistics(model).items():
        running.mean = checkpoint.arrays[f"{key}.mean"]
        running.var = checkpoint.arrays[f"{key}.var"]
        running.count = float(checkpoint.arrays[f"{key}.count"])


def _running_statistics(model: PPO) -> dict[str, Any]:
    """Return the running statistics of observations, by part, and of returns."""
    env = model.get_vec_normalize_env()
    assert env is not None
    assert isinstance(env.obs_rms, dict)
    return {**env.obs_rms, "returns": env.ret_rms}


def _check_vectors(task: Task, settings: Sb3PpoSettings) -> None:
    if task.cartridge is not None or len(task.spaces.shape) != 1:
        raise InputError(
            f"this training takes vectors as observations, those of {task.name} have shape {task.spaces.shape}; "
            "wrap the environment in FlattenObservation, or train with SB3's CnnPolicy on surefoot.NoisyObservation"
        )
    if settings.n_stack < 1:
        raise InputError(f"n_stack must be at least 1, got {settings.n_stack}")
