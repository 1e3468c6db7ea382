"""How many episodes a figure takes: the paper's sizes, and small ones to try the pipeline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from surefoot.play.tasks import TASKS
from surefoot.train.presets import PAPER
from surefoot.train.settings import DqnSettings, OffPolicySettings


@dataclass(frozen=True)
class AttackSize:
    """Attacks on one agent: the grid of budgets and lambdas, and the episodes of each configuration."""

    budgets: tuple[float, ...]
    lambdas: tuple[float, ...]
    episodes: int
    draws: int = 128


@dataclass(frozen=True)
class Sizes:
    """What is run for one task.

    ``episodes``         episodes without attack, for certificates
    ``bare``, ``smoothed``  attacks on agents without and with noise
    ``timed``            attacked episodes of a measured time, undefended and smoothed
    ``training``         settings of a training
    """

    episodes: int
    bare: AttackSize
    smoothed: AttackSize
    timed: tuple[int, int]
    training: OffPolicySettings

    def attacks(self, sigma: float) -> AttackSize:
        """Return the attacks on an agent with this noise."""
        return self.smoothed if sigma > 0 else self.bare


CARTPOLE_BUDGETS = (0.2, 0.4, 0.6, 0.8, 1.0)
MOUNTAIN_CAR_BUDGETS = (0.1, 0.2, 0.3, 0.4, 0.5)
ATARI_BUDGETS = (0.1, 0.2, 0.3, 0.4)
# The paper's list for the task, and what fits the value gaps of our agents.
BARE_LAMBDAS = {
    "cartpole-5": (0, 0.05, 0.1, 0.2, 0.5, 1, 4, 6, 8, 10),
    "cartpole-1": (0, 0.05, 0.1, 0.2, 0.5, 1, 1.6, 2.4),
}
# Averaging over noise makes every configuration a hundred times as costly: the paper's list, one lambda_q below it,
# and on five frames 0, 1 and 2, which a public copy of the paper's script has for smoothed agents.
SMOOTHED_LAMBDAS = {"cartpole-5": (0.1, 0, 1, 2, 4, 6, 8, 10), "cartpole-1": (0.1, 0, 0.05, 1)}


def full(task: str) -> Sizes:
    """Return the paper's sizes: 10,000 episodes, 1,000 attacked ones (Mountain Car: 250), 128 noise samples."""
    budgets, attacked, timed = _full_attack(task)
    margins = TASKS[task].paper.lambdas
    return Sizes(
        episodes=10_000,
        bare=AttackSize(budgets, BARE_LAMBDAS.get(task, margins), attacked),
        smoothed=AttackSize(budgets, SMOOTHED_LAMBDAS.get(task, margins), attacked),
        timed=timed,
        training=PAPER[task],
    )


def _full_attack(task: str) -> tuple[tuple[float, ...], int, tuple[int, int]]:
    if task.startswith("cartpole"):
        return CARTPOLE_BUDGETS, 1_000, (500, 20)
    if task == "mountain-car":
        return MOUNTAIN_CAR_BUDGETS, 250, (100, 8)
    return ATARI_BUDGETS, 1_000, (4, 1)


def quick(task: str) -> Sizes:
    """Return sizes with which every figure can be drawn in minutes on two cores."""
    large = full(task)
    if task.startswith("cartpole"):
        bare = AttackSize((0.4, 1.0), large.bare.lambdas[1:3], 30)
        smoothed = AttackSize((0.2, 0.6), large.smoothed.lambdas[:2], 6, draws=4)
        return Sizes(500, bare, smoothed, (20, 2), _short(large.training, 3_000, 500, gradient_steps=64))
    if task == "mountain-car":
        bare = AttackSize((0.2, 0.5), large.bare.lambdas[:1], 4)
        smoothed = AttackSize((0.5,), large.smoothed.lambdas[:1], 2, draws=2)
        return Sizes(500, bare, smoothed, (2, 1), _short(large.training, 1_000, 500))
    return _quick_atari(task, large)


def _quick_atari(task: str, large: Sizes) -> Sizes:
    whole = task == "pong-full"
    bare = AttackSize((0.1, 0.4), large.bare.lambdas[-1:], 1 if whole else 2)
    # A whole game has thousands of frames, each attacked in many small steps.
    smoothed = AttackSize((0.1,), large.smoothed.lambdas[-1:], 1, draws=1 if whole else 2)
    training = _short(
        large.training, 600, 300, validation_episodes=1 if whole else 2, learning_starts=100, buffer_size=1_000
    )
    return Sizes({"pong-1r": 32, "freeway": 10}.get(task, 2), bare, smoothed, (1, 1), training)


def _short(settings: OffPolicySettings, steps: int, interval: int, **others: Any) -> OffPolicySettings:
    if isinstance(settings, DqnSettings):
        others["exploration_fraction"] = 0.5
    return replace(settings, total_steps=steps, validation_interval=interval, repeats=1, **others)
