"""What every training does beside learning: the noisy environment, validation through the channel, the best weights."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import FrameStackObservation
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from surefoot.agents.policies import Policy
from surefoot.episodes import Episodes
from surefoot.files import write_text
from surefoot.play.envs.noisy import NoisyObservation
from surefoot.play.loop import Plan, play
from surefoot.play.streams import Purpose
from surefoot.play.tasks import Task
from surefoot.train.sb3_checkpoint import save_checkpoint

CHECKPOINT_EVERY = 10

Progress = Callable[[int, int, float], None]
Weights = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Learner:
    """One algorithm as the rest of training sees it.

    ``algorithm``       its name for the card
    ``build``           makes the SB3 model from (task, sigma, settings, seed, device)
    ``weights``         what of the model is kept when it is the best so far
    ``policy``          makes the policy from (task, weights, name)
    ``ends_perfect``    whether a perfect validation ends training
    ``validates_there`` whether validation is played on the learner's device instead of the CPU
    """

    algorithm: str
    build: Callable[[Task, float, Any, int, str], OffPolicyAlgorithm]
    weights: Callable[[Any], Weights]
    policy: Callable[[Task, Mapping[str, NDArray[Any]], str], Policy]
    ends_perfect: bool = True
    validates_there: bool = False


@dataclass
class Curve:
    """What validation has shown so far."""

    rows: list[tuple[int, float, float, float]] = field(default_factory=list)
    best: float = -np.inf
    best_step: int = 0
    best_weights: Weights = field(default_factory=dict)

    def as_csv(self) -> str:
        """Return the curve as a table: step, mean and spread of the validation returns, exploration rate."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("step", "mean_return", "std_return", "exploration"))
        writer.writerows(self.rows)
        return text.getvalue()


def training_environment(task: Task, sigma: float) -> gymnasium.Env[Any, Any]:
    """Return the task's environment as the agent sees it: noise on every new observation, then the frame stack."""
    noisy: gymnasium.Env[Any, Any] = NoisyObservation(task.open(), sigma)
    if task.frames > 1:
        noisy = FrameStackObservation(noisy, task.frames, padding_type="reset")
    return Monitor(noisy)


def validate(
    task: Task, policy: Policy, sigma: float, seed: int, stream: tuple[int, ...], episodes: int, device: str = "cpu"
) -> Episodes:
    """Play episodes that no certificate uses, through the channel that certifies."""
    return play(Plan(task, policy, sigma, episodes, seed, device, stream=stream))


class Validation(BaseCallback):
    """Plays validation episodes at fixed intervals, keeps the strictly best weights, may end training at perfection."""

    model: OffPolicyAlgorithm

    def __init__(
        self,
        learner: Learner,
        task: Task,
        sigma: float,
        settings: Any,
        out: Path,
        seed: int,
        curve: Curve,
        progress: Progress | None,
    ) -> None:
        super().__init__()
        self.learner = learner
        self.task, self.sigma, self.settings, self.out, self.seed = task, sigma, settings, out, seed
        self.curve, self.progress = curve, progress
        self.board = _board(out / "tensorboard")

    def _on_step(self) -> bool:
        if self.num_timesteps % self.settings.validation_interval:
            return True
        weights = self.learner.weights(self.model)
        round_number = self.num_timesteps // self.settings.validation_interval
        played = validate(
            self.task,
            self.learner.policy(self.task, weights, "candidate"),
            self.sigma,
            self.seed,
            (Purpose.VALIDATION, round_number),
            self.settings.validation_episodes,
            self.model.device.type if self.learner.validates_there else "cpu",
        )
        mean, spread = float(played.returns.mean()), float(played.returns.std())
        self.curve.rows.append((self.num_timesteps, mean, spread, self._exploration()))
        if mean > self.curve.best:
            self.curve.best, self.curve.best_step, self.curve.best_weights = mean, self.num_timesteps, weights
        self._report(mean)
        if round_number % CHECKPOINT_EVERY == 0:
            save_checkpoint(self.out / "checkpoint.npz", self.model, self.curve)
            write_text(self.out / "curve.csv", self.curve.as_csv())
        # Where training waits for the end of an episode, SB3 would play on beyond the last step.
        last = self.num_timesteps >= self.settings.total_steps
        return not (last or (self.learner.ends_perfect and mean >= perfect(self.task)))

    def finish(self) -> None:
        """Write the curve as it ended."""
        write_text(self.out / "curve.csv", self.curve.as_csv())
        if self.board is not None:
            self.board.close()

    def _exploration(self) -> float:
        return round(getattr(self.model, "exploration_rate", getattr(self.settings, "exploration_noise", 0.0)), 4)

    def _report(self, mean: float) -> None:
        if self.board is not None:
            self.board.add_scalar("validation/mean_return", mean, self.num_timesteps)
            self.board.add_scalar("validation/best_mean_return", self.curve.best, self.num_timesteps)
            self.board.add_scalar("rollout/exploration", self._exploration(), self.num_timesteps)
        if self.progress is not None:
            self.progress(self.num_timesteps, self.settings.total_steps, self.curve.best)


def perfect(task: Task) -> float:
    """Return the return no policy can beat."""
    return np.inf if task.ceiling is None else task.ceiling


def _board(folder: Path) -> Any:
    """Return a TensorBoard writer where TensorBoard is installed; the CSV holds the same numbers."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder))
