"""How large the perturbation of a faulty sensor would be, in l2, measured on episodes of an agent's own.

A certificate covers every perturbation within its budget, whatever made it. A sensor that freezes, fails, lags or
replays perturbs by the difference of what it shows and what is true, which nothing bounds: here it is measured along
episodes without any fault.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.agents.policies import Sigma
from surefoot.api.setup import as_task, plan_run
from surefoot.errors import InputError
from surefoot.play.channel import Attacker, View
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.streams import Purpose
from surefoot.play.task import Task

FAULTS = {
    "freeze": "the last value is shown on",
    "dropout": "zeros are shown",
    "delay": "the value of so many steps before is shown, to the end",
    "replay": "the values of another episode are shown",
}
MOST_NUMBERS = 50_000_000  # that are kept of all observations
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FaultSize:
    """How large the perturbation of a fault would be."""

    fault: str  # which one, of ``FAULTS``
    steps: int  # for how many steps; of a delay, by how many
    mild: float  # in a tenth of the episodes the l2 norm of all perturbations is below this
    median: float  # in half of them
    n_episodes: int  # in how many it was measured: those that are long enough


def measure_faults(
    task: str | Task,
    agent: object = None,
    *,
    sigma: Sigma | None = None,
    steps: Sequence[int] = (1, 10, 100),
    n_episodes: int = 64,
    seed: int = 0,
) -> list[FaultSize]:
    """Return how large the perturbations of faults would be in episodes of a smoothed agent, as budgets count them.

    Along episodes that no fault has disturbed: where an agent reacts to a fault, what is true moves away from them. A
    fault begins at a random step, and hits all features that have noise.

    >>> import surefoot
    >>> first = surefoot.measure_faults("cartpole-1", "cartpole-1-s0.2", sigma=0.2, n_episodes=16)[0]
    >>> first.fault, first.steps, first.n_episodes
    ('freeze', 1, 16)

    Args:
        task: A task's name, or a Task.
        agent: What ``surefoot.rollout`` takes; the task's pretrained agent by default.
        sigma: Its noise, which says what is measured and in which units; the paper's for this task by default.
        steps: For how many steps a fault lasts.
        n_episodes: In how many episodes.
        seed: Of the episodes, and of when faults begin.
    """
    if not steps or min(steps) < 1:
        raise InputError(f"steps= must be whole numbers of at least 1, got {list(steps)}")
    task = as_task(task)
    plan = plan_run(task, agent, sigma=sigma, n_episodes=n_episodes, seed=seed)
    if plan.noise.sigma == 0:
        raise InputError("faults are measured in units of the noise; give sigma= above 0")
    if n_episodes * task.scoring.max_steps * math.prod(task.spaces.shape) > MOST_NUMBERS:
        raise InputError(
            f"{n_episodes} episodes of {task.name} have more than {MOST_NUMBERS:,} numbers; give n_episodes= fewer"
        )
    episodes = _clean_episodes(plan)
    rng = np.random.default_rng(seed)
    found = []
    for fault in FAULTS:
        for count in steps:
            sizes = _sizes(fault, count, episodes, rng)
            if len(sizes):
                mild, median = np.quantile(sizes, (0.1, 0.5)).tolist()
                found.append(FaultSize(fault, count, mild, median, len(sizes)))
    return found


class _Recorder(Attacker):
    """Perturbs nothing, and keeps the clean observations of every episode."""

    def __init__(self) -> None:
        self.kept: dict[int, list[Floats]] = {}

    def propose(self, view: View) -> Any:
        """Note what is true."""
        clean = view.observation.double().flatten(1).numpy()
        for episode, row in zip(view.episode.tolist(), clean, strict=True):
            self.kept.setdefault(episode, []).append(row)
        return np.zeros(view.observation.shape)


def _clean_episodes(plan: Plan) -> list[Floats]:
    """Return the clean observations of each episode, (steps, features), of features with noise in units of a budget."""

    recorder = _Recorder()
    play(replace(plan, purpose=(Purpose.TAPED,), attacker=recorder, budget=0.0), workers=1)
    sigmas = plan.noise.over(plan.task.spaces.shape).astype(np.float64).ravel()
    noisy = sigmas > 0
    # As budgets count: a perturbation of a feature divided by its sigma, times the least one.
    return [np.array(rows)[:, noisy] / sigmas[noisy] * plan.noise.sigma for _, rows in sorted(recorder.kept.items())]


def _sizes(fault: str, count: int, episodes: Sequence[Floats], rng: np.random.Generator) -> Floats:
    """Return the l2 norm of a fault in each episode that is long enough for it."""
    sizes = []
    for number, clean in enumerate(episodes):
        if len(clean) <= count:
            continue
        # A value before it is needed, to freeze at.
        begin = int(rng.integers(1, len(clean) - count + 1))
        true = clean[begin : begin + count]
        if fault == "freeze":
            shown = np.broadcast_to(clean[begin - 1], true.shape)
        elif fault == "dropout":
            shown = np.zeros_like(true)
        elif fault == "delay":
            true = clean[count:]
            shown = clean[:-count]
        else:
            other = episodes[(number + 1) % len(episodes)]
            if len(episodes) < 2 or len(other) < begin + count:
                continue
            shown = other[begin : begin + count]
        sizes.append(float(np.linalg.norm(shown - true)))
    return np.array(sizes)
