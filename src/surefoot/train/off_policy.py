"""SB3's DQN and DDPG on noisy observations, as the paper trains its agents.

Read from top to bottom: the training, the two algorithms (DQN: Table 1, DDPG: Table 2), validation every so many steps,
and the checkpoint.

A resumed run starts a new episode in a freshly seeded environment, so it is not bit for bit the run that was stopped;
everything learned and collected is kept. Only the replay buffer of pixels is not, which takes gigabytes: a resumed run
collects as many transitions again before it learns, and these steps do not count.
"""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.wrappers import FrameStackObservation
from stable_baselines3 import DDPG, DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.noise import OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import DummyVecEnv

from surefoot.agents import files as agent_files
from surefoot.agents.networks import CNN
from surefoot.agents.policies import Policy
from surefoot.agents.sb3.read import from_model
from surefoot.compute import single_thread
from surefoot.errors import InputError
from surefoot.files import read_json, write_text
from surefoot.play.envs.noisy import NoisyObservation
from surefoot.play.task import Task
from surefoot.train.deployed import arrays_of_layers, policy_from_weights
from surefoot.train.folder import (
    NamedArrays,
    TrainingFolder,
    TrainingProgress,
    TrainingRun,
    candidate,
    copy_agent,
    has_checkpoint,
)
from surefoot.train.selection import validate
from surefoot.train.settings import DdpgSettings, DqnSettings, OffPolicySettings

N_SEEDS = 2**32  # SB3 seeds numpy's global stream, which takes 32 bits

# A checkpoint holds the replay buffer, of pixels gigabytes: not after every validation, but a kill must not cost hours.
CHECKPOINT_EVERY = 10
CHECKPOINT_SECONDS = 300.0

# The last two are DQN's alone.
COUNTERS = ("num_timesteps", "_n_updates", "_episode_num", "_n_calls", "exploration_rate")
BUFFER_COLUMNS = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")


def train_off_policy(run: TrainingRun, settings: OffPolicySettings) -> Policy:
    """Train, and write ``agent.npz``, ``agent.json``, ``curve.csv`` and TensorBoard events.

    Where the settings ask for repeats, this training seed and those after it are trained, each in ``repeat-K``; the
    agent with the highest validation is kept, and its model card lists them all.

    Returns:
        The agent that was best on validation.

    Raises:
        InputError: If the seed or a setting is out of range, or the folder cannot be used.
    """
    _check_off_policy(run.seed, settings)
    if settings.repeats == 1:
        return _train_one(run, settings)
    run.open_folder()
    parts = [run.out / f"repeat-{number}" for number in range(settings.repeats)]
    for number, path in enumerate(parts):
        if (path / "agent.json").exists():
            continue
        resume = has_checkpoint(path)
        if path.exists() and not resume:
            shutil.rmtree(path)  # killed before its first checkpoint
        progress = _progress_of_part(run.progress, number, settings.repeats)
        part = replace(run, out=path, seed=run.seed + number, resume=resume, progress=progress)
        _train_one(part, settings)
    return _keep_best(parts, run.out)


def training_environment(task: Task, sigma: float) -> gymnasium.Env[Any, Any]:
    """Return the task's environment as the agent sees it: noise on every new observation, then the frame stack."""
    noisy: gymnasium.Env[Any, Any] = NoisyObservation(task.backend.open(), sigma)
    if task.spaces.n_stack > 1:
        noisy = FrameStackObservation(noisy, task.spaces.n_stack, padding_type="reset")
    return Monitor(noisy)


def build_dqn(task: Task, sigma: float, settings: DqnSettings, seed: int, device: str) -> DQN:
    """Make SB3's DQN with the settings."""
    policy_options: dict[str, Any] = {"net_arch": list(settings.hidden)}
    if task.cartridge is not None:
        # Noisy pixels are floats around [0, 1] and are kept so; SB3 would take bytes and divide them by 255.
        policy_options["normalize_images"] = False
    return DQN(
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


def build_ddpg(task: Task, sigma: float, settings: DdpgSettings, seed: int, device: str) -> DDPG:
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
    return DDPG(
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


def kept_weights(model: Any) -> NamedArrays:
    """Return what is kept of the model when it is the best so far: what acts, and DDPG's critic, which attacks ask."""
    if isinstance(model, DDPG):
        critic = arrays_of_layers(model.critic.q_networks[0], "critic.")
        return arrays_of_layers(model.actor.mu) | critic
    # Exploration and target network belong to training: the agent is the Q-network alone.
    if not sees_pixels(model):
        return arrays_of_layers(model.q_net.q_net)
    network = from_model(model).network
    assert isinstance(network, CNN)
    return {name: part.cpu().contiguous().numpy().copy() for name, part in network.named_parts()}


def _train_one(run: TrainingRun, settings: OffPolicySettings) -> Policy:
    if run.noise.action_sigma > 0:
        raise InputError("noise on actions (action_sigma=) is trained with PPO alone; leave it out, or the preset")
    folder = run.open_folder()
    task = run.task
    # The networks are small: more than one thread costs more than it brings.
    with single_thread():
        model: OffPolicyAlgorithm
        if isinstance(settings, DdpgSettings):
            model = build_ddpg(task, run.sigma, settings, run.seed, run.device)
        else:
            model = build_dqn(task, run.sigma, settings, run.seed, run.device)
        if run.resume:
            load_checkpoint(folder, model)
        steps_left = settings.total_steps - model.num_timesteps
        if steps_left > 0 and not is_perfect(task, settings, folder.curve.best):
            validation = ValidationCallback(run, settings, folder)
            try:
                model.learn(steps_left, validation, log_interval=sys.maxsize, reset_num_timesteps=False)
            except KeyboardInterrupt:
                # There is time to lose nothing; a kill loses what came after the last checkpoint.
                save_checkpoint(folder, model)
                raise
        policy = policy_from_weights(task.spaces, folder.curve.best_weights, f"{task.name}-s{run.sigma:g}")
    folder.curve.steps = model.num_timesteps
    folder.finish(policy, run.card(f"stable_baselines3.{type(model).__name__}", settings))
    return policy


class ValidationCallback(BaseCallback):
    """Runs validation episodes at fixed intervals, keeps the strictly best weights, may stop at a perfect one."""

    model: OffPolicyAlgorithm

    def __init__(self, run: TrainingRun, settings: OffPolicySettings, folder: TrainingFolder) -> None:
        super().__init__()
        self.run = run
        self.settings = settings
        self.folder = folder
        self.saved = time.monotonic()

    def _on_step(self) -> bool:
        if self.num_timesteps % self.settings.validation_interval:
            return True
        number = self.num_timesteps // self.settings.validation_interval
        curve = self.folder.curve
        curve.steps = self.num_timesteps
        weights = kept_weights(self.model)
        played = validate(
            self.run,
            curve,
            policy_from_weights(self.run.task.spaces, weights, "candidate"),
            weights,
            self.settings.validation_episodes,
            number=number,
            exploration=self._exploration(),
            by_bound=False,
            # The networks of DDPG are larger: its episodes run where it learns.
            device=self.model.device.type if isinstance(self.model, DDPG) else "cpu",
        )
        mean = float(played.returns.mean())
        if self.run.progress is not None:
            self.run.progress(self.num_timesteps, self.settings.total_steps, curve)
        if number % CHECKPOINT_EVERY == 0 or time.monotonic() - self.saved >= CHECKPOINT_SECONDS:
            save_checkpoint(self.folder, self.model)
            self.saved = time.monotonic()
        # Where training waits for the end of an episode, SB3 would run beyond the last step.
        is_last = self.num_timesteps >= self.settings.total_steps
        return not (is_last or is_perfect(self.run.task, self.settings, mean))

    def _exploration(self) -> float:
        """Return DQN's rate of random actions, or the noise on DDPG's."""
        rate: float = getattr(self.model, "exploration_rate", getattr(self.settings, "exploration_noise", 0.0))
        return round(rate, 4)


def is_perfect(task: Task, settings: OffPolicySettings, mean: float) -> bool:
    """Return whether a validation ends training: nothing could replace it, and the settings stop there."""
    ceiling = task.scoring.ceiling
    return settings.stop_when_perfect and ceiling is not None and mean >= ceiling


def save_checkpoint(folder: TrainingFolder, model: OffPolicyAlgorithm) -> None:
    """Write everything needed to resume."""
    buffer = buffer_of(model)
    folder.curve.steps = model.num_timesteps
    counters = {
        "model": {name: getattr(model, name) for name in COUNTERS if hasattr(model, name)},
        "buffer_position": buffer.pos,
        "buffer_full": buffer.full,
        "total_steps": model._total_timesteps,
    }
    n_filled = 0 if sees_pixels(model) else buffer.size()
    columns = {f"buffer.{name}": getattr(buffer, name)[:n_filled] for name in BUFFER_COLUMNS}
    folder.save_checkpoint(counters, {"policy": model.policy}, _optimizers(model), columns)


def load_checkpoint(folder: TrainingFolder, model: OffPolicyAlgorithm) -> None:
    """Restore the model and the directory's curve that ``save_checkpoint`` wrote."""
    checkpoint = folder.load_checkpoint()
    counters = checkpoint.counters
    checkpoint.restore({"policy": model.policy}, _optimizers(model))
    for name, value in counters["model"].items():
        setattr(model, name, value)
    # Another stream than the first run's, because it starts in the middle of the schedule.
    model.set_random_seed(((model.seed or 0) + model.num_timesteps) % N_SEEDS)
    buffer = buffer_of(model)
    if sees_pixels(model):
        count = buffer.buffer_size if counters["buffer_full"] else counters["buffer_position"]
        _refill_buffer(model, count, counters["total_steps"] - model.num_timesteps)
        return
    buffer.pos = counters["buffer_position"]
    buffer.full = counters["buffer_full"]
    for name in BUFFER_COLUMNS:
        stored = checkpoint.arrays[f"buffer.{name}"]
        getattr(buffer, name)[: len(stored)] = stored


def _refill_buffer(model: OffPolicyAlgorithm, count: int, steps_left: int) -> None:
    """Collect transitions without learning from them, exploring as the schedule says; counters stay as they were."""
    counters = {name: getattr(model, name) for name in COUNTERS if hasattr(model, name)}
    gradient_steps = model.gradient_steps
    model.gradient_steps = 0
    # The step at which a callback stops is not collected.
    last = model.num_timesteps + count
    model.learn(steps_left, lambda *_: model.num_timesteps <= last, log_interval=sys.maxsize, reset_num_timesteps=False)
    model.gradient_steps = gradient_steps
    for name, value in counters.items():
        setattr(model, name, value)


def sees_pixels(model: OffPolicyAlgorithm) -> bool:
    """Return whether observations are stacks of frames and the network is convolutional."""
    return len(model.observation_space.shape or ()) == 3


def buffer_of(model: OffPolicyAlgorithm) -> ReplayBuffer:
    """Return the replay buffer, which every off-policy learner has."""
    assert model.replay_buffer is not None
    return model.replay_buffer


def _optimizers(model: OffPolicyAlgorithm) -> dict[str, torch.optim.Optimizer]:
    """Return the optimizers by the network they train; DQN has one, DDPG two."""
    if isinstance(model, DDPG):
        return {"actor": model.actor.optimizer, "critic": model.critic.optimizer}
    return {"q_network": model.policy.optimizer}


def _keep_best(parts: list[Path], out: Path) -> Policy:
    """Write the agent with the highest validation, the first of equals; its card lists all as candidates."""
    cards = [read_json(path / "agent.json") for path in parts]
    best = 0
    for number, card in enumerate(cards):
        if card["training"]["best_validation"] > cards[best]["training"]["best_validation"]:
            best = number
    write_text(out / "curve.csv", (parts[best] / "curve.csv").read_text())
    copy_agent(str(parts[best]), out / "agent", candidates=[candidate(card) for card in cards])
    return agent_files.load(str(out))


def _progress_of_part(progress: TrainingProgress | None, number: int, repeats: int) -> TrainingProgress | None:
    """Return the progress of one of several runs as that of them all."""
    if progress is None:
        return None
    return lambda step, of, curve: progress(number * of + step, repeats * of, curve)


def _check_off_policy(seed: int, settings: OffPolicySettings) -> None:
    if settings.repeats < 1:
        raise InputError(f"repeats must be at least 1, got {settings.repeats}")
    if not 0 <= seed <= N_SEEDS - settings.repeats:
        raise InputError(f"a training seed must be between 0 and {N_SEEDS - settings.repeats}, got {seed}")
    if settings.total_steps < settings.validation_interval:
        raise InputError(
            f"total_steps must be at least validation_interval ({settings.validation_interval}), "
            f"got {settings.total_steps}: nothing would be validated or kept"
        )
