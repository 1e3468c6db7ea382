"""What an SB3 training run does in addition to learning: the noisy environment, and validation through the channel."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.wrappers import FrameStackObservation
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from surefoot.agents.policies import Policy
from surefoot.play.envs.noisy import NoisyObservation
from surefoot.play.task import Task
from surefoot.train.folder import Arrays, TrainingFolder, TrainingRun
from surefoot.train.sb3_checkpoint import save_checkpoint
from surefoot.train.selection import validate
from surefoot.train.settings import Settings

# A checkpoint holds the replay buffer, of pixels gigabytes: not after every validation, but a kill must not cost hours.
CHECKPOINT_EVERY, CHECKPOINT_SECONDS = 10, 300.0


@dataclass(frozen=True)
class Learner:
    """One algorithm as the rest of training sees it.

    Attributes:
        algorithm: Its name in the model card.
        build: Makes the SB3 model from (task, sigma, settings, seed, device).
        weights: Returns what is kept of the model when it is the best so far.
        policy: Makes the policy from (task, weights, name).
        validates_there: Whether validation runs on the learner's device instead of the CPU.
    """

    algorithm: str
    build: Callable[[Task, float, Any, int, str], OffPolicyAlgorithm]
    weights: Callable[[Any], Arrays]
    policy: Callable[[Task, Mapping[str, NDArray[Any]], str], Policy]
    validates_there: bool = False


def training_environment(task: Task, sigma: float) -> gymnasium.Env[Any, Any]:
    """Return the task's environment as the agent sees it: noise on every new observation, then the frame stack."""
    noisy: gymnasium.Env[Any, Any] = NoisyObservation(task.backend.open(), sigma)
    if task.spaces.n_stack > 1:
        noisy = FrameStackObservation(noisy, task.spaces.n_stack, padding_type="reset")
    return Monitor(noisy)


class Validation(BaseCallback):
    """Runs validation episodes at fixed intervals, keeps the strictly best weights, may stop at a perfect one."""

    model: OffPolicyAlgorithm

    def __init__(self, learner: Learner, run: TrainingRun, settings: Settings, folder: TrainingFolder) -> None:
        super().__init__()
        self.learner, self.run, self.settings, self.folder = learner, run, settings, folder
        self.board = _board(folder.path / "tensorboard")
        self.saved = time.monotonic()

    def _on_step(self) -> bool:
        if self.num_timesteps % self.settings.validation_interval:
            return True
        number, curve = self.num_timesteps // self.settings.validation_interval, self.folder.curve
        weights = self.learner.weights(self.model)
        played = validate(
            self.run,
            self.learner.policy(self.run.task, weights, "candidate"),
            self.settings.validation_episodes,
            number=number,
            device=self.model.device.type if self.learner.validates_there else "cpu",
        )
        curve.steps = self.num_timesteps
        mean = curve.add(played.returns, self._exploration(), weights)
        self._report(mean)
        if number % CHECKPOINT_EVERY == 0 or time.monotonic() - self.saved >= CHECKPOINT_SECONDS:
            save_checkpoint(self.folder, self.model)
            self.saved = time.monotonic()
        # Where training waits for the end of an episode, SB3 would run beyond the last step.
        last = self.num_timesteps >= self.settings.total_steps
        return not (last or is_perfect(self.run.task, self.settings, mean))

    def close(self) -> None:
        """Close the TensorBoard file."""
        if self.board is not None:
            self.board.close()

    def _exploration(self) -> float:
        rate: float = getattr(self.model, "exploration_rate", getattr(self.settings, "exploration_noise", 0.0))
        return round(rate, 4)

    def _report(self, mean: float) -> None:
        if self.board is not None:
            self.board.add_scalar("validation/mean_return", mean, self.num_timesteps)
            self.board.add_scalar("validation/best_mean_return", self.folder.curve.best, self.num_timesteps)
            self.board.add_scalar("rollout/exploration", self._exploration(), self.num_timesteps)
        if self.run.progress is not None:
            self.run.progress(self.num_timesteps, self.settings.total_steps, self.folder.curve)


def is_perfect(task: Task, settings: Settings, mean: float) -> bool:
    """Return whether a validation ends training: nothing could replace it, and the settings stop there."""
    return settings.stop_when_perfect and task.scoring.ceiling is not None and mean >= task.scoring.ceiling


def _board(folder: Path) -> Any:
    """Return a TensorBoard writer where TensorBoard is installed; the CSV holds the same numbers."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder))
