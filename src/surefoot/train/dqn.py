"""Train an agent with SB3's DQN on noisy observations, keep the best on validation, stop at perfection.

Read from top to bottom: ``train`` builds the noisy environment and the learner, ``Validation`` plays ten episodes every
2,000 steps through the same channel that certifies, and the best policy is written as plain weights with a card.
"""

from __future__ import annotations

import csv
import io
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.wrappers import FrameStackObservation
from numpy.typing import NDArray
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from surefoot import zoo
from surefoot.episodes import Episodes, checked_sigma
from surefoot.errors import InputError
from surefoot.files import write_text
from surefoot.noise import NoisyObservation
from surefoot.play import Plan, play, single_thread
from surefoot.policies import MLP, Policy, weights_hash
from surefoot.policies_cnn import CNN, NATURE, cnn_policy
from surefoot.sb3 import from_model
from surefoot.tasks import Task
from surefoot.train.checkpoint import load_checkpoint, save_checkpoint
from surefoot.train.graph import GraphDQN
from surefoot.train.settings import DqnSettings
from surefoot.versions import versions

# Validation plays other episodes than any certificate, whatever the seeds.
VALIDATION = 1
CHECKPOINT_EVERY = 10
SEEDS = 2**32  # SB3 seeds numpy's global stream, which takes 32 bits

Progress = Callable[[int, int, float], None]


@dataclass
class Curve:
    """What validation has shown so far."""

    rows: list[tuple[int, float, float, float]] = field(default_factory=list)
    best: float = -np.inf
    best_step: int = 0
    best_weights: dict[str, NDArray[Any]] = field(default_factory=dict)

    def as_csv(self) -> str:
        """Return the curve as a table: step, mean and spread of the validation returns, exploration rate."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("step", "mean_return", "std_return", "exploration"))
        writer.writerows(self.rows)
        return text.getvalue()


def train(
    task: Task,
    sigma: float,
    settings: DqnSettings,
    out: Path,
    *,
    seed: int = 0,
    device: str = "cpu",
    resume: bool = False,
    command: str = "",
    preset: str = "",
    progress: Progress | None = None,
) -> Policy:
    """Train, and leave ``agent.npz``, ``agent.json``, ``curve.csv`` and TensorBoard events in ``out``."""
    checked_sigma(sigma)
    if not 0 <= seed < SEEDS:
        raise InputError(f"a training seed must lie from 0 to {SEEDS - 1}, got {seed}")
    if settings.total_steps < settings.validation_interval:
        raise InputError(
            f"total_steps must be at least validation_interval ({settings.validation_interval}), "
            f"got {settings.total_steps}: nothing would be validated or kept"
        )
    began = time.monotonic()
    _claim(out, resume)
    # The networks are small: more than one thread costs more than it brings.
    with single_thread():
        model = build_model(task, sigma, settings, seed, device)
        curve = Curve()
        if resume and (out / "checkpoint.npz").exists():
            load_checkpoint(out / "checkpoint.npz", model, curve)
        callback = Validation(task, sigma, settings, out, seed, curve, progress)
        left = settings.total_steps - model.num_timesteps
        if left > 0 and curve.best < _perfect(task):
            try:
                model.learn(left, callback, log_interval=sys.maxsize, reset_num_timesteps=False)
            except KeyboardInterrupt:
                # There is time to lose nothing; a kill loses what came after the last checkpoint.
                save_checkpoint(out / "checkpoint.npz", model, curve)
                raise
        callback.finish()
        policy = _policy(task, curve.best_weights, f"{task.name}-s{sigma:g}")
    facts = {
        "task": task.name,
        "sigma": sigma,
        "training": {
            "algorithm": "stable_baselines3.DQN",
            "graph_captured": isinstance(model, GraphDQN),
            "preset": preset,
            "settings": settings.facts(),
            "seed": seed,
            "device": device,
            "command": command,
            "steps": model.num_timesteps,
            "seconds": round(time.monotonic() - began, 1),
            "best_step": curve.best_step,
            "best_validation": curve.best,
        },
        "curve": [[row[0], row[1]] for row in curve.rows],
        "versions": versions(),
    }
    zoo.save(policy, out / "agent", facts)
    (out / "checkpoint.npz").unlink(missing_ok=True)
    return policy


def build_model(task: Task, sigma: float, settings: DqnSettings, seed: int, device: str) -> DQN:
    """Make SB3's DQN with the settings; on CUDA gradient steps of fully connected networks are captured as a graph."""
    graph = torch.device(device).type == "cuda" and task.cartridge is None
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


def training_environment(task: Task, sigma: float) -> gymnasium.Env[Any, Any]:
    """Return the task's environment as the agent sees it: noise on every new observation, then the frame stack."""
    noisy: gymnasium.Env[Any, Any] = NoisyObservation(task.open(), sigma)
    if task.frames > 1:
        noisy = FrameStackObservation(noisy, task.frames, padding_type="reset")
    return Monitor(noisy)


def validate(task: Task, policy: Policy, sigma: float, seed: int, stream: tuple[int, ...], episodes: int) -> Episodes:
    """Play episodes that no certificate uses, through the channel that certifies."""
    return play(Plan(task, policy, sigma, episodes, seed, stream=stream))


class Validation(BaseCallback):
    """Plays validation episodes at fixed intervals, keeps the strictly best weights, ends training at perfection."""

    model: DQN

    def __init__(
        self,
        task: Task,
        sigma: float,
        settings: DqnSettings,
        out: Path,
        seed: int,
        curve: Curve,
        progress: Progress | None,
    ) -> None:
        super().__init__()
        self.task, self.sigma, self.settings, self.out, self.seed = task, sigma, settings, out, seed
        self.curve, self.progress = curve, progress
        self.board = _board(out / "tensorboard")

    def _on_step(self) -> bool:
        if self.num_timesteps % self.settings.validation_interval:
            return True
        weights = q_weights(self.model)
        round_number = self.num_timesteps // self.settings.validation_interval
        played = validate(
            self.task,
            _policy(self.task, weights, "candidate"),
            self.sigma,
            self.seed,
            (VALIDATION, round_number),
            self.settings.validation_episodes,
        )
        mean, spread = float(played.returns.mean()), float(played.returns.std())
        self.curve.rows.append((self.num_timesteps, mean, spread, round(self.model.exploration_rate, 4)))
        if mean > self.curve.best:
            self.curve.best, self.curve.best_step, self.curve.best_weights = mean, self.num_timesteps, weights
        self._report(mean)
        if round_number % CHECKPOINT_EVERY == 0:
            save_checkpoint(self.out / "checkpoint.npz", self.model, self.curve)
            write_text(self.out / "curve.csv", self.curve.as_csv())
        return mean < _perfect(self.task)

    def finish(self) -> None:
        """Write the curve as it ended."""
        write_text(self.out / "curve.csv", self.curve.as_csv())
        if self.board is not None:
            self.board.close()

    def _report(self, mean: float) -> None:
        if self.board is not None:
            self.board.add_scalar("validation/mean_return", mean, self.num_timesteps)
            self.board.add_scalar("validation/best_mean_return", self.curve.best, self.num_timesteps)
            self.board.add_scalar("rollout/exploration_rate", self.model.exploration_rate, self.num_timesteps)
        if self.progress is not None:
            self.progress(self.num_timesteps, self.settings.total_steps, self.curve.best)


def q_weights(model: DQN) -> dict[str, NDArray[Any]]:
    """Return the Q-network's layers as arrays named ``0.weight``, ``0.bias``, ..., or as ``CNN`` names them."""
    if model.policy_class is model.policy_aliases["CnnPolicy"]:
        network = from_model(model).network
        assert isinstance(network, CNN)
        return {name: part.cpu().contiguous().numpy().copy() for name, part in network.named_parts()}
    layers = [layer for layer in model.q_net.q_net if isinstance(layer, torch.nn.Linear)]
    arrays: dict[str, NDArray[Any]] = {}
    for index, layer in enumerate(layers):
        arrays[f"{index}.weight"] = layer.weight.detach().cpu().numpy().copy()
        arrays[f"{index}.bias"] = layer.bias.detach().cpu().numpy().copy()
    return arrays


def _policy(task: Task, weights: Mapping[str, NDArray[Any]], name: str) -> Policy:
    if task.cartridge is not None:
        assert task.choices is not None
        return cnn_policy(weights, NATURE, task.frames, task.shape, task.choices, name)
    count = len(weights) // 2
    network = MLP([weights[f"{i}.weight"] for i in range(count)], [weights[f"{i}.bias"] for i in range(count)])
    policy = Policy(network, task.frames, task.shape, task.choices, name)
    layout, arrays = zoo.parts_of(policy)
    return Policy(network, task.frames, task.shape, task.choices, name, weights_hash(arrays, layout))


def _perfect(task: Task) -> float:
    return np.inf if task.ceiling is None else task.ceiling


def _claim(out: Path, resume: bool) -> None:
    if (out / "agent.json").exists():
        raise InputError(f"{out} already holds a trained agent; choose another --out")
    if out.is_dir() and any(out.iterdir()):
        checkpoint = (out / "checkpoint.npz").exists()
        if resume and not checkpoint:
            raise InputError(
                f"{out} holds no checkpoint to go on from; start without --resume, with an empty folder as --out"
            )
        if not resume:
            way = "give --resume to go on there, or choose" if checkpoint else "choose"
            raise InputError(f"{out} is not empty; {way} another --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror}; choose another --out") from error


def _board(folder: Path) -> Any:
    """Return a TensorBoard writer where TensorBoard is installed; the CSV holds the same numbers."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder))
