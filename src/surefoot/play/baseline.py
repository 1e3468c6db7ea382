"""The floor nobody plots: how well a policy does that sees nothing but the clock.

Such a policy is certified at every budget, so a certificate below its mean is worth nothing. The search is small: every
constant action and every square wave between two actions, in two phases; of continuous actions the lowest, the middle
and the highest are tried. The best on one set of episodes is measured on another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import torch
from torch import Tensor, nn

from surefoot.agents.policies import Policy
from surefoot.episodes import Episodes, Noise
from surefoot.errors import InputError
from surefoot.play.plan import Plan
from surefoot.play.rollout import Progress, play
from surefoot.play.streams import Purpose
from surefoot.play.tasks import Blind, Task

HALF_PERIODS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


@dataclass(frozen=True)
class Wave:
    """Play ``first`` and ``second`` in turn, ``half`` steps each, beginning ``ahead`` steps into the first half."""

    first: int
    second: int
    half: int
    ahead: int

    def told(self, names: Sequence[str]) -> str:
        """Return it in words, its actions by their names."""
        first, second = names[self.first], names[self.second]
        if self.first == self.second:
            return f"action {first} at every step"
        start = f", {self.ahead} steps in" if self.ahead else ""
        return f"actions {first} and {second} in turn, {self.half} steps each{start}"


class Clockwork(nn.Module):
    """A wave as a network over the clock: rows of a table of outputs, one for each action."""

    def __init__(self, wave: Wave, table: Tensor) -> None:
        super().__init__()
        self.wave = wave
        self.table: Tensor
        self.register_buffer("table", table)

    def forward(self, steps: Tensor) -> Tensor:
        """Return the output of the action it is time for."""
        second = ((steps + self.wave.ahead) // self.wave.half) % 2 == 1
        return self.table[torch.where(second, self.wave.second, self.wave.first)]


def waves(actions: Sequence[int]) -> Iterator[Wave]:
    """Yield the candidates."""
    for action in actions:
        yield Wave(action, action, 1, 0)
    for first, second in permutations(actions, 2):
        for half in HALF_PERIODS:
            yield from (Wave(first, second, half, ahead) for ahead in sorted({0, half // 2}))


def outputs_of(task: Task) -> Tensor:
    """Return what a policy puts out for each action that waves are made of, one row each."""
    if task.choices is not None:
        return torch.eye(task.choices)
    limits = torch.tensor(task.actions if task.actions is not None else math.nan)
    if not torch.isfinite(limits).all():
        raise InputError(
            f"the search for a blind policy needs discrete actions or continuous ones with limits, {task.name} has none"
        )
    return torch.stack((limits[0], limits.mean(dim=0), limits[1]))


def names_of(task: Task) -> list[str]:
    """Return the actions' names: numbers of discrete ones, values of continuous ones."""
    if task.choices is not None:
        return [str(action) for action in range(task.choices)]
    rows = [[f"{value:g}" for value in row] for row in outputs_of(task).tolist()]
    return [row[0] if len(row) == 1 else f"({', '.join(row)})" for row in rows]


def blind_policy(task: Task, wave: Wave) -> Policy:
    """Return the policy that plays a wave."""
    network = Clockwork(wave, outputs_of(task))
    return Policy(network, 1, task.shape, task.choices, wave.told(names_of(task)), blind=True)


def find_blind(
    task: Task,
    *,
    seed: int = 0,
    search: int | None = None,
    measure: int | None = None,
    progress: Progress | None = None,
) -> Blind:
    """Find the best wave on ``search`` episodes each and measure it on ``measure`` other ones (default: the task's)."""
    actions = task.distinct or range(len(outputs_of(task)))
    search = task.blind_search[0] if search is None else search
    measure = task.blind_search[1] if measure is None else measure
    if search < 1 or measure < 2:
        raise InputError(
            f"a blind policy is searched on at least 1 and measured on at least 2 episodes, got {search} and {measure}"
        )
    candidates = list(waves(actions))
    scores = []
    for number, wave in enumerate(candidates):
        # Loading a cartridge takes longer than playing it for a few episodes.
        slots = None if task.cartridge is None else min(search, 4)
        scores.append(float(_played(task, wave, search, seed, (Purpose.BASELINE_SEARCH, number), slots).returns.mean()))
        if progress is not None:
            progress(number + 1, len(candidates))
    best = candidates[scores.index(max(scores))]
    measured = _played(task, best, measure, seed, (Purpose.BASELINE,)).returns
    sem = float(measured.std(ddof=1)) / measured.size**0.5
    return Blind(float(measured.mean()), sem, measured.size, best.told(names_of(task)), f"surefoot blind {task.name}")


def _played(
    task: Task, wave: Wave, episodes: int, seed: int, stream: tuple[int, ...], slots: int | None = None
) -> Episodes:
    return play(
        Plan(
            task=task,
            policy=blind_policy(task, wave),
            noise=Noise.of(0.0),
            n_episodes=episodes,
            seed=seed,
            n_envs=slots,
            purpose=stream,
        )
    )
