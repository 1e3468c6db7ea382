"""The open-loop baseline: what a fixed sequence of actions reaches, under any attack on observations.

A certificate below its mean is uninformative. The search is small: every constant action and every square wave between
two actions, in two phases; of continuous actions the lowest, the middle and the highest are tried, and of many actions
the best constant ones alternate. Waves are tried on a few episodes, the most promising ones on more; the best on these
is measured on others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import torch
from torch import Tensor, nn

from surefoot.agents.policies import Policy, Spaces
from surefoot.episodes import Baseline
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.play.rollout import Progress, play
from surefoot.play.streams import Purpose
from surefoot.play.task import Task
from surefoot.play.workers import Workers, as_workers

HALF_PERIODS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
MOST_PROMISING = 16  # waves that are tried on all episodes of the search
MOST_IN_TURN = 6  # actions that alternate: of 64 there would be 90,000 waves


@dataclass(frozen=True)
class Wave:
    """Play ``first`` and ``second`` in turn, ``half`` steps each, beginning ``ahead`` steps into the first half."""

    first: int
    second: int
    half: int
    ahead: int

    def describe(self, names: Sequence[str]) -> str:
        """Return it in words, its actions by their names."""
        first = names[self.first]
        second = names[self.second]
        if self.first == self.second:
            return f"action {first} at every step"
        every = "every step"
        if self.half > 1:
            every = f"every {self.half} steps"
        if not self.ahead:
            return f"actions {first} and {second} alternating {every}"
        left = self.half - self.ahead
        steps = "1 step"
        if left > 1:
            steps = f"{left} steps"
        return f"action {first} for {steps}, then {second} and {first} alternating {every}"


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


def candidate_waves(actions: Sequence[int], in_turn: Sequence[int] | None = None) -> Iterator[Wave]:
    """Yield the candidates: every action alone, and those of ``in_turn`` (default: all) alternating."""
    for action in actions:
        yield Wave(action, action, 1, 0)
    if in_turn is None:
        in_turn = actions
    for first, second in permutations(in_turn, 2):
        for half in HALF_PERIODS:
            for ahead in sorted({0, half // 2}):
                yield Wave(first, second, half, ahead)


def outputs_of(task: Task) -> Tensor:
    """Return what a policy puts out for each action that waves are made of, one row each."""
    if task.spaces.n_actions is not None:
        return torch.eye(task.spaces.n_actions)
    limits = torch.empty(0)
    if task.spaces.low is not None:
        limits = torch.tensor([task.spaces.low, task.spaces.high])
    if limits.numel() == 0 or not torch.isfinite(limits).all():
        raise InputError(
            "the search for an open-loop baseline needs discrete actions or continuous ones with limits, "
            f"{task.name} has none"
        )
    # The lowest, the middle and the highest value of all actions together.
    return torch.stack((limits[0], limits.mean(dim=0), limits[1]))


def names_of(task: Task) -> list[str]:
    """Return the actions' names: numbers of discrete ones, values of continuous ones."""
    if task.spaces.n_actions is not None:
        return [str(action) for action in range(task.spaces.n_actions)]
    names = []
    for row in outputs_of(task).tolist():
        values = ", ".join(f"{value:g}" for value in row)
        if len(row) > 1:
            values = f"({values})"
        names.append(values)
    return names


def open_loop_policy(task: Task, wave: Wave) -> Policy:
    """Return the policy that follows a wave."""
    network = Clockwork(wave, outputs_of(task))
    spaces = Spaces(shape=task.spaces.shape, n_actions=task.spaces.n_actions)
    return Policy(network, spaces, name=wave.describe(names_of(task)), open_loop=True)


def find_baseline(
    task: Task,
    *,
    seed: int = 0,
    search: int | None = None,
    measure: int | None = None,
    workers: int | Workers = 1,
    progress: Progress | None = None,
    command: str | None = None,
) -> Baseline:
    """Find the best wave on ``search`` episodes per candidate, and measure it on ``measure`` others.

    How many these are by default the task says. ``progress`` is called with the numbers of candidates tried and of all,
    and ``command`` measures it again, by default that of the task.
    """
    actions = task.baseline_search.actions or range(len(outputs_of(task)))
    if search is None:
        search = task.baseline_search.n_search
    if measure is None:
        measure = task.baseline_search.n_measure
    if search < 1 or measure < 2:
        raise InputError(
            "an open-loop baseline is searched on at least 1 and measured on at least 2 episodes, "
            f"got {search} and {measure}"
        )
    scores: dict[Wave, float] = {}
    count = len(list(candidate_waves(actions, actions[:MOST_IN_TURN])))
    workers = as_workers(workers)
    # Loading a cartridge takes longer than running it for a few episodes.
    n_envs = None
    if task.cartridge is not None:
        n_envs = min(search, 4)

    numbers: dict[Wave, int] = {}

    def score_candidates(candidates: Sequence[Wave], n_episodes: int) -> None:
        plans = []
        for wave in candidates:
            # Every candidate on random numbers of its own.
            number = numbers.setdefault(wave, len(numbers))
            plans.append(_plan_wave(task, wave, n_episodes, seed, (Purpose.BASELINE_SEARCH, number), n_envs))
        before = len(scores)
        for done, (place, mean) in enumerate(workers.map_unordered(_play_one, plans, range(len(plans))), start=1):
            scores[candidates[place]] = mean
            if progress is not None:
                progress(min(max(len(scores), before + done), count), count)

    score_candidates(list(candidate_waves(actions, ())), search)
    best_alone = sorted(scores, key=scores.__getitem__, reverse=True)[:MOST_IN_TURN]
    alternating = list(candidate_waves((), sorted(wave.first for wave in best_alone)))
    # Most waves are far from the best, and a few episodes tell.
    score_candidates(alternating, first_look(search))
    promising = sorted(alternating, key=scores.__getitem__, reverse=True)[:MOST_PROMISING]
    for wave in set(alternating) - set(promising):
        del scores[wave]
    if first_look(search) < search:
        score_candidates(promising, search)
    best = max(scores, key=scores.__getitem__)
    # On episodes that did not choose it: the best of many is lucky on those that did.
    measured = play(_plan_wave(task, best, measure, seed, (Purpose.BASELINE,)), workers=workers).returns
    sem = float(measured.std(ddof=1)) / measured.size**0.5
    return Baseline(
        mean=float(measured.mean()),
        sem=sem,
        n_episodes=measured.size,
        what=best.describe(names_of(task)),
        command=command or f"surefoot baseline {task.name}",
    )


def first_look(search: int) -> int:
    """Return on how many episodes every wave is tried, before the most promising ones are on ``search``."""
    return min(search, max(4, search // 8))


def count_episodes(task: Task) -> int:
    """Return how many episodes the search and the measurement of a task take."""
    settings = task.baseline_search
    actions = settings.actions or range(len(outputs_of(task)))
    alternating = len(list(candidate_waves((), actions[:MOST_IN_TURN])))
    looks = first_look(settings.n_search) * alternating
    return settings.n_search * (len(actions) + MOST_PROMISING) + looks + settings.n_measure


def _play_one(plans: Sequence[Plan], number: int) -> float:
    return float(play(plans[number]).returns.mean())


def _plan_wave(
    task: Task, wave: Wave, n_episodes: int, seed: int, purpose: tuple[int, ...], n_envs: int | None = None
) -> Plan:
    return Plan(
        task=task,
        policy=open_loop_policy(task, wave),
        noise=Noise.of(0.0),
        n_episodes=n_episodes,
        seed=seed,
        n_envs=n_envs,
        purpose=purpose,
    )
