"""What a task is: an environment, its scoring, and how the paper certifies it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from surefoot.agents.policies import Spaces
from surefoot.episodes import LIMITS, Baseline
from surefoot.play.envs.atari.emulators import Cartridge
from surefoot.play.envs.base import BatchEnv

Limits = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """What an episode is worth, as far as the rules say."""

    max_steps: int  # maximum episode length
    floor: float  # lowest return the rules allow
    ceiling: float | None  # highest return the rules allow, None if unknown
    # Whether the rewards so far are between floor and ceiling after every step, not only the last.
    holds_throughout: bool = False
    # Lowest and highest reward of one step, 0 among them, where they are known.
    reward_range: tuple[float, float] | None = None
    binary: bool = False  # whether every return is the floor or the ceiling: a loss or a win
    gamma: float | None = None  # the discount, where the return is sum gamma^t r_t; None for the plain sum
    stated: tuple[str, ...] = LIMITS  # which of these limits nothing proves: whoever made the task stated them


@dataclass(frozen=True, kw_only=True)
class Backend:
    """What runs a task."""

    # Builds a number of environments from a seed stream, with observations on a device.
    batch: Callable[[int, np.random.SeedSequence, torch.device], BatchEnv]
    open: Callable[[], Any]  # opens one Gymnasium environment with the task's rules, without noise or frame stack
    cartridge: Cartridge | None = None  # the Atari game, where it is one
    # Whether all blocks of a run have the same number of rows, even where some have no episode to run.
    fixed_rows: bool = False


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """How a run is cut: what fits the cache on a CPU, what fills a GPU."""

    n_envs: int = 32  # environments that run in parallel in one block
    episodes_per_env: int = 8  # episodes that each of them runs in turn
    gpu_n_envs: int | None = None  # ``n_envs`` on a GPU, where it differs
    # ``episodes_per_env`` on a GPU, where it differs: more where starting takes longer.
    gpu_episodes_per_env: int | None = None
    # ``n_envs`` of recurrent agents on a CPU, where it differs: their rows take less of the cache than frame stacks and
    # wide layers do.
    recurrent_n_envs: int | None = None

    def on(self, device: torch.device, *, recurrent: bool = False) -> tuple[int, int]:
        """Return environments per block, and episodes per environment."""
        if device.type != "cuda":
            n_envs = self.n_envs
            if recurrent and self.recurrent_n_envs is not None:
                n_envs = self.recurrent_n_envs
            return n_envs, self.episodes_per_env
        # Numbers that are not given are those of the CPU.
        return self.gpu_n_envs or self.n_envs, self.gpu_episodes_per_env or self.episodes_per_env


@dataclass(frozen=True, kw_only=True)
class PaperSetup:
    """How the paper certifies and attacks a task."""

    sigma: float = 0.2  # standard deviation of the noise
    budgets: tuple[float, ...] = ()  # attack budgets of its figures; none for a task that is not the paper's
    # What makes its attacks save their budget: value gaps lambda_Q, or weights lambda.
    lambdas: tuple[float, ...] = (0.0,)


@dataclass(frozen=True, kw_only=True)
class BaselineSearch:
    """How the open-loop baseline is searched for."""

    actions: tuple[int, ...] | None = None  # the actions that differ in what they do, where not all do
    n_search: int = 2_000  # episodes per candidate
    n_measure: int = 100_000  # episodes to measure the best one on


@dataclass(frozen=True, kw_only=True, repr=False)
class Task:
    """One experiment's fixed facts.

    Attributes:
        name: What people type.
        environment: The Gymnasium ID whose rules hold.
        made_with: What records say of how the environment is made, besides its name: arguments, wrappers.
        features: Name, size and unit of each part of an observation, where parts have names or units were given.
        step_seconds: How long a step takes, where somebody said it.
        spaces: Observations, in the environment's own units (pixels: [0, 1]), and actions.
        box: Lowest and highest values of what is observed, which attacks keep to; None if there are none.
        scoring: What an episode is worth.
        backend: What runs it.
        blocks: How a run is cut.
        paper: How the paper certifies it.
        baseline: The open-loop baseline, if it was measured.
        baseline_search: How that is searched for.

    Examples:
        >>> import surefoot
        >>> task = surefoot.get_task("mountain-car")
        >>> task
        <Task mountain-car: observations of shape (2,), continuous actions, floor 0, ceiling 1, at most 999 steps>
        >>> task.spaces.n_stack, task.paper.sigma
        (5, 0.2)
    """

    name: str
    environment: str
    spaces: Spaces
    box: Limits | None = None
    scoring: Scoring
    backend: Backend
    blocks: Blocks = field(default_factory=Blocks)
    paper: PaperSetup
    baseline: Baseline | None = None
    baseline_search: BaselineSearch = field(default_factory=BaselineSearch)
    made_with: Mapping[str, Any] = field(default_factory=dict)
    features: tuple[tuple[str, int, str], ...] = ()
    step_seconds: float | None = None

    def __repr__(self) -> str:
        scoring = self.scoring
        spaces = self.spaces
        actions = "continuous actions"
        if spaces.n_actions is not None:
            actions = f"{spaces.n_actions} actions"
        top = "no known ceiling"
        if scoring.ceiling is not None:
            top = f"ceiling {scoring.ceiling:g}"
        return (
            f"<Task {self.name}: observations of shape {spaces.shape}, {actions}, floor {scoring.floor:g}, {top}, at "
            f"most {scoring.max_steps} steps>"
        )

    @property
    def cartridge(self) -> Cartridge | None:
        """The Atari game, where it is one."""
        return self.backend.cartridge
