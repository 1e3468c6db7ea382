"""SB3's PPO on noisy observations of any environment, with a critic that sees the clean ones.

Read from top to bottom. What differs from SB3's defaults, the most important first: large batches (64 environments
times 200 steps; 16 times 256 where actions are continuous), with discrete actions a discount close to 1 and an entropy
bonus that does not fall, a critic that is given the clean observation and the time left, and a learning rate that falls
to 0. The actor sees noisy observations alone. Observations and rewards are normalized by VecNormalize, whose statistics
become part of the agent. The weights kept are those with the highest certified value on validation episodes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, MlpExtractor
from stable_baselines3.common.vec_env import VecEnv, VecNormalize
from torch import Tensor, nn

from surefoot.agents.files import hashed
from surefoot.agents.networks import MLP, PARTS
from surefoot.agents.normalization import Statistics, normalized
from surefoot.agents.policies import Policy
from surefoot.agents.sb3.write import write_zip
from surefoot.compute import single_thread
from surefoot.episodes import Noise
from surefoot.errors import InputError
from surefoot.play.streams import training_seeds
from surefoot.play.task import Task
from surefoot.train.folder import Arrays, TrainingFolder, TrainingRun, load_optimizer, optimizer_arrays, under
from surefoot.train.sb3_env import CLEAN, NOISY, NoisyAndClean
from surefoot.train.selection import predicted_bound, validate
from surefoot.train.settings import Facts, setting

RUNNING = ("mean", "var", "count")


@dataclass(frozen=True)
class Sb3PpoSettings(Facts):
    """Settings of SB3's PPO for any environment."""

    total_steps: int = setting(1_000_000, "environment steps in total, over which the learning rate falls to 0")
    validation_interval: int = setting(100_000, "steps between validations")
    validation_episodes: int = setting(200, "episodes per validation")
    n_stack: int = setting(1, "how many observations the agent is given, the newest included")
    hidden: tuple[int, ...] = setting((64, 64), "widths of the hidden layers of actor and critic")
    n_envs: int = setting(64, "environments that run in parallel")
    n_steps: int = setting(200, "steps of each of them per iteration")
    batch_size: int = setting(3_200, "transitions per gradient step")
    epochs: int = setting(4, "how often every transition is learned from")
    learning_rate: float = setting(1e-3, "learning rate of Adam at the start")
    gamma: float = setting(0.999, "discount in training; certificates are about the undiscounted return")
    trace: float = setting(0.97, "lambda of the generalized advantages")
    entropy: float = setting(0.05, "weight of the entropy bonus")
    clean_critic: bool = setting(True, "whether the critic sees the clean observation and the time left")


DISCRETE = Sb3PpoSettings()
# Continuous control takes many more gradient steps than CartPole, with new samples in between: with 64 environments
# times 200 steps HalfCheetah learns nothing in 200,000 steps. An entropy bonus would widen the actions without end.
CONTINUOUS = replace(
    DISCRETE,
    n_envs=16,
    n_steps=256,
    batch_size=256,
    epochs=10,
    learning_rate=5e-4,
    gamma=0.99,
    trace=0.95,
    entropy=0.0,
)


def default_settings(task: Task) -> Sb3PpoSettings:
    """Return the settings for the kind of actions that a task takes; long episodes are validated on less often."""
    settings = CONTINUOUS if task.spaces.n_actions is None else DISCRETE
    # Validation runs at most half as many steps as training.
    rare = 2 * settings.validation_episodes * task.scoring.max_steps
    return replace(settings, validation_interval=max(settings.validation_interval, rare))


class Parts(BaseFeaturesExtractor):
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
        settings |= {"features_extractor_class": Parts, "share_features_extractor": False}
        super().__init__(*arguments, **settings)

    def _build_mlp_extractor(self) -> None:
        self.vf_features_extractor = Parts(self.observation_space, self.critic_keys)
        super()._build_mlp_extractor()
        wide = MlpExtractor(self.vf_features_extractor.features_dim, self.net_arch, self.activation_fn, self.device)
        self.mlp_extractor.value_net = wide.value_net


def build_model(task: Task, noise: Noise, settings: Sb3PpoSettings, seed: int, begun: int = 0) -> tuple[PPO, VecEnv]:
    """Make SB3's PPO for a task, and its environments; after ``begun`` steps, if resumed, with fresh samples."""
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


def kept_weights(model: PPO) -> Arrays:
    """Return the actor's layers and the statistics of what it is given."""
    layers = [layer for layer in model.policy.mlp_extractor.policy_net if isinstance(layer, nn.Linear)]
    arrays = {
        f"{index}.{part}": getattr(layer, part).detach().cpu().numpy().copy()
        for index, layer in enumerate((*layers, model.policy.action_net))
        for part in PARTS
    }
    running = _statistics(model)[NOISY]
    return arrays | {"mean": np.array(running.mean), "var": np.array(running.var)}


def policy_of(task: Task, n_stack: int, weights: Mapping[str, NDArray[Any]], name: str) -> Policy:
    """Return the deployed agent: the actor behind its statistics, its actions not random."""
    spaces, count = task.spaces, sum(key.endswith(".weight") for key in weights)
    matrices, biases = ([weights[f"{index}.{part}"] for index in range(count)] for part in PARTS)
    spaces = replace(spaces, n_stack=n_stack)
    plain = Policy(MLP(matrices, biases, "tanh"), spaces, name=name)
    shape = spaces.stacked_shape
    # What VecNormalize does by default.
    statistics = Statistics(
        mean=weights["mean"].reshape(shape), var=weights["var"].reshape(shape), epsilon=1e-8, clip=10.0
    )
    return hashed(normalized(plain, statistics))


class Validation(BaseCallback):
    """Validates between iterations, lets the learning rate fall, and stops when steps or time are used up."""

    model: PPO

    def __init__(self, run: TrainingRun, settings: Sb3PpoSettings, folder: TrainingFolder) -> None:
        super().__init__()
        self.run, self.settings, self.folder = run, settings, folder

    def spent(self) -> float:
        """Return which fraction of the training is over."""
        return self.folder.spent(self.model.num_timesteps, self.settings.total_steps, self.run.time_limit)

    def _on_rollout_start(self) -> None:
        last = self.folder.curve.steps // self.settings.validation_interval
        if self.num_timesteps // self.settings.validation_interval != last:
            self.validate()

    def _on_step(self) -> bool:
        return self.spent() < 1

    def validate(self) -> None:
        """Run the actor as it would be deployed, on episodes of their own; keep the best by certified value."""
        curve, weights = self.folder.curve, kept_weights(self.model)
        curve.steps = self.model.num_timesteps
        candidate = policy_of(self.run.task, self.settings.n_stack, weights, "candidate")
        played = validate(self.run, candidate, self.settings.validation_episodes, number=len(curve.rows))
        curve.add(played.returns, 0.0, weights, predicted_bound(played, self.run.budget))
        save_checkpoint(self.folder, self.model)
        if self.run.progress is not None:
            self.run.progress(curve.steps, max(curve.steps, round(curve.steps / max(self.spent(), 1e-6))), curve)


def train_sb3_ppo(run: TrainingRun, settings: Sb3PpoSettings) -> Policy:
    """Train until the steps or the time are used up; write the best agent, also as an SB3 zip, the curve, a checkpoint.

    Raises:
        InputError: If observations are not vectors, a setting is out of range, or the folder cannot be used.
    """
    task = run.task
    _check(task, settings)
    folder = run.folder()
    header, parts = folder.load() if run.resume else ({}, {})
    with single_thread():
        model, env = build_model(task, Noise.of(run.sigma), settings, run.seed, int(header.get("num_timesteps", 0)))
        if run.resume:
            load_checkpoint(folder, model, header, parts["checkpoint"])
        watch = Validation(run, settings, folder)
        watch.model = model
        model.lr_schedule = _falling(settings.learning_rate, watch.spent)
        try:
            if watch.spent() < 1:
                model.learn(sys.maxsize, watch, log_interval=sys.maxsize, reset_num_timesteps=False)
            if not folder.curve.rows or folder.curve.steps != model.num_timesteps:
                watch.validate()
        except KeyboardInterrupt:
            save_checkpoint(folder, model)
            raise
        finally:
            env.close()
    policy = policy_of(task, settings.n_stack, folder.curve.best_weights, f"{task.name}-s{run.sigma:g}")
    limits = {"floor": task.scoring.floor, "ceiling": task.scoring.ceiling, "max_steps": task.scoring.max_steps}
    card = run.card("stable_baselines3.PPO", settings, budget=run.budget)
    card["environment"] = {"env": task.environment, **task.made_with, **limits}
    folder.finish(policy, card, keep_checkpoint=True)
    write_zip(policy, folder.path / "agent.zip", as_ppo=True)
    return policy


def save_checkpoint(folder: TrainingFolder, model: PPO) -> None:
    """Write everything needed to resume."""
    arrays = {f"policy.{name}": value.cpu().numpy() for name, value in model.policy.state_dict().items()}
    for key, running in _statistics(model).items():
        arrays |= {f"{key}.{name}": np.array(getattr(running, name)) for name in RUNNING}
    header = {"num_timesteps": model.num_timesteps, "updates": model._n_updates}
    folder.save(header, checkpoint=arrays | optimizer_arrays(model.policy.optimizer, "adam."))


def load_checkpoint(folder: TrainingFolder, model: PPO, header: Mapping[str, Any], arrays: Arrays) -> None:
    """Restore what ``save_checkpoint`` wrote; episodes that were running are reset."""
    try:
        stored = {name: torch.from_numpy(value) for name, value in under(arrays, "policy.").items()}
        model.policy.load_state_dict(stored)
        model.num_timesteps, model._n_updates = int(header["num_timesteps"]), int(header["updates"])
        for key, running in _statistics(model).items():
            running.mean, running.var = arrays[f"{key}.mean"], arrays[f"{key}.var"]
            running.count = float(arrays[f"{key}.count"])
    except (KeyError, RuntimeError) as error:
        raise InputError(
            f"{folder.path} contains a checkpoint of another task or version; choose another --out"
        ) from error
    load_optimizer(model.policy.optimizer, under(arrays, "adam."))


def _statistics(model: PPO) -> dict[str, Any]:
    """Return the running statistics of observations, by part, and of returns."""
    env = model.get_vec_normalize_env()
    assert env is not None
    assert isinstance(env.obs_rms, dict)
    return {**env.obs_rms, "returns": env.ret_rms}


def _falling(rate: float, spent: Callable[[], float]) -> Callable[[float], float]:
    return partial(_rate, rate, spent)


def _rate(rate: float, spent: Callable[[], float], _: float) -> float:
    return rate * (1 - spent())


def _check(task: Task, settings: Sb3PpoSettings) -> None:
    if task.cartridge is not None or len(task.spaces.shape) != 1:
        raise InputError(
            f"this training takes vectors as observations, those of {task.name} have shape {task.spaces.shape}; "
            "wrap the environment in FlattenObservation, or train with SB3's CnnPolicy on surefoot.NoisyObservation"
        )
    if settings.n_stack < 1:
        raise InputError(f"n_stack must be at least 1, got {settings.n_stack}")
