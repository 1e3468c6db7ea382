"""A callback for Stable-Baselines3: certify while training, and keep the model with the best certified bound."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from stable_baselines3.common.callbacks import BaseCallback

from surefoot.agents.resolve import as_policy
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.streams import Purpose
from surefoot.play.task import Task
from surefoot.play.tasks import get_task
from surefoot.proof.certificate import Certificate
from surefoot.proof.query import Query
from surefoot.proof.rounding import format_lower
from surefoot.train.selection import ALPHA


class CertifiedEvalCallback(BaseCallback):
    """Certifies the model at intervals and keeps the one with the best bound, like SB3's ``EvalCallback`` the mean.

    It logs ``certified/lower_B0.2`` (the lower bound at the budget) next to ``eval/mean_reward`` and
    ``eval/mean_ep_length`` (with noise, without attack). Every evaluation uses fresh episodes from a seed stream that
    no certificate uses, and does not touch the random numbers of the training. Each bound holds with 95% confidence for
    its model. The best of many looks better than it is: certify the model that was kept with ``surefoot certify``.

    Attributes:
        best: Certificate of the model that was kept; None before the first evaluation.

    Example:
        >>> import gymnasium, surefoot
        >>> from stable_baselines3 import PPO
        >>> task = surefoot.make_task("CartPole-v1", max_steps=50)
        >>> callback = surefoot.CertifiedEvalCallback(
        ...     task, sigma=0.2, budget=0.1, n_eval_episodes=20, eval_freq=64, verbose=0
        ... )
        >>> env = surefoot.NoisyObservation(gymnasium.make("CartPole-v1"), sigma=0.2)
        >>> model = PPO("MlpPolicy", env, n_steps=64, batch_size=64, seed=0, device="cpu")
        >>> _ = model.learn(64, callback=callback)
        >>> bool(callback.best.lower[0] <= callback.best.estimate)
        True
    """

    def __init__(
        self,
        task: str | Task,
        *,
        sigma: float | Sequence[float],
        budget: float,
        n_eval_episodes: int = 500,
        eval_freq: int = 10_000,
        best_model_save_path: str | Path | None = None,
        seed: int = 0,
        verbose: int = 1,
    ) -> None:
        """Describe the evaluations.

        Args:
            task: A task's name, or a Task: ``surefoot.make_task("CartPole-v1")``. It has the environment without
                noise; the noise is added here, whatever the training environment does.
            sigma: Standard deviation of the noise, or one per feature.
            budget: Attack budget at which the models are compared.
            n_eval_episodes: Episodes of each evaluation.
            eval_freq: Evaluate after this many calls, one per step of the vectorized environment, as in SB3.
            best_model_save_path: Folder for ``best_model.zip`` and its VecNormalize statistics, which
                ``surefoot certify --agent FOLDER/best_model.zip`` finds.
            seed: Seed of the evaluations.
            verbose: 1 prints every new best bound, 0 nothing.

        Raises:
            InputError: If a number makes no sense.
        """
        super().__init__(verbose)
        if eval_freq < 1:
            raise InputError(f"eval_freq must be at least 1, got {eval_freq}")
        self.task = get_task(task) if isinstance(task, str) else task
        self.noise = Noise.of(sigma)
        self.query = Query(budgets=(budget,), confidence=1 - ALPHA)
        self.n_eval_episodes = n_eval_episodes
        self.eval_freq = eval_freq
        self.seed = seed
        self.folder = None if best_model_save_path is None else Path(best_model_save_path)
        self.best: Certificate | None = None

    def _on_step(self) -> bool:
        if self.n_calls % self.eval_freq == 0:
            self._evaluate(self.n_calls // self.eval_freq)
        return True

    def _evaluate(self, number: int) -> None:
        # A network that is rebuilt draws weights before it gets its own: not from the stream of the training.
        with torch.random.fork_rng(devices=[]):
            policy = as_policy(self.model, self.task.spaces)
        # Every evaluation has a number and so episodes of its own, which no certificate uses.
        plan = Plan(
            task=self.task,
            policy=policy,
            noise=self.noise,
            n_episodes=self.n_eval_episodes,
            seed=self.seed,
            purpose=(Purpose.VALIDATION, number),
        )
        played = play(plan)
        certificate = self.query.answer(played)
        assert played.lengths is not None
        self.logger.record(f"certified/lower_B{certificate.budgets[0]:g}", float(certificate.lower[0]))
        self.logger.record("eval/mean_reward", certificate.estimate)
        self.logger.record("eval/mean_ep_length", float(played.lengths.mean()))
        self.logger.record("time/total_timesteps", self.num_timesteps, exclude="tensorboard")
        self.logger.dump(self.num_timesteps)
        # As good is not better: the earlier model stays.
        if self.best is None or certificate.lower[0] > self.best.lower[0]:
            self.best = certificate
            self._keep_model(certificate)

    def _keep_model(self, certificate: Certificate) -> None:
        """Say that the model is the best so far, and save it with its statistics."""
        if self.verbose:
            print(
                f"Best certified bound so far: {format_lower(certificate.lower[0])} at budget "
                f"{certificate.budgets[0]:g} after {self.num_timesteps:,} steps"
            )
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self.model.save(self.folder / "best_model.zip")
        # Where the loader of agents looks for them.
        statistics = self.model.get_vec_normalize_env()
        if statistics is not None:
            (self.folder / "best_model").mkdir(exist_ok=True)
            statistics.save(str(self.folder / "best_model" / "vecnormalize.pkl"))
