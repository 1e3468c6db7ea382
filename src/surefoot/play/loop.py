"""The one loop in which the game meets the channel, and how its blocks are dealt to workers.

Which episodes are played is settled before anything runs. A run is cut into blocks; a block is the unit of determinism,
of distribution and of resuming, and its outcome depends on (setup, seed, index of the block) alone. Inside a block,
episode k is played by slot k mod S as its (k div S)-th, and every episode is played to its end, so that short episodes
are never favoured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surefoot.agents.policies import FrameStack, Policy
from surefoot.episodes import Episodes, checked_returns, checked_sigma, parted_sigma
from surefoot.errors import InputError
from surefoot.play.channel import Adversary, Channel, Record, feature_table
from surefoot.play.envs.base import Game
from surefoot.play.gains import Gains, check_per_step, weights
from surefoot.play.streams import Stream, block_seeds, check_purpose, seed_sequence
from surefoot.play.tasks import Task
from surefoot.play.workers import spread

Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything that settles a run in advance; the number of workers is not part of it.

    ``stream`` parts episodes of one seed by their purpose: what training validates on, no certificate uses.
    ``per_step`` keeps the rewards of each step, for certificates against a budget per step.
    ``features`` is the sigma of each feature where they differ; ``sigma`` is the least of them.
    """

    task: Task
    policy: Policy
    sigma: float
    episodes: int = 10_000
    seed: int = 0
    device: str = "cpu"
    slots: int | None = None
    rounds: int | None = None
    adversary: Adversary | None = None
    budget: float = 0.0
    stream: tuple[int, ...] = ()
    per_step: bool = False
    features: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for name, least in (("episodes", 1), ("seed", 0), ("slots", 1), ("rounds", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise InputError(f"{name} must be at least {least}, got {value}")
        seed_sequence(self.seed)
        check_purpose(self.stream)
        checked_sigma(self.sigma)
        if self.features is not None:
            if parted_sigma(self.features) != (self.sigma, self.features):
                raise InputError(f"sigma must be the least of the features' {self.features}, got {self.sigma}")
            feature_table(self.features, self.task.shape)
        if not (math.isfinite(self.budget) and self.budget >= 0):
            raise InputError(f"budget must be a finite number >= 0, got {self.budget}")
        _check_fit(self.task, self.policy)
        if self.per_step:
            check_per_step(self.task)

    @property
    def shape_of_blocks(self) -> tuple[int, int]:
        """Slots of a block, and episodes per block."""
        device = torch.device(self.device)
        slots = self.slots or self.task.slots_on(device)
        return slots, slots * (self.rounds or self.task.rounds_on(device))

    @property
    def blocks(self) -> int:
        """How many blocks the run has."""
        return -(-self.episodes // self.shape_of_blocks[1])

    def setup(self) -> dict[str, Any]:
        """Return all that a record of this plan must agree on, as ``Episodes.setup`` has it."""
        return {"sigma": self.sigma, "floor": self.task.floor, "ceiling": self.task.ceiling, **self.facts()}

    def facts(self) -> dict[str, Any]:
        """Return the setup as JSON data, as it is written into the record."""
        slots, block = self.shape_of_blocks
        return {
            "task": self.task.name,
            "environment": self.task.environment,
            "frames": self.policy.frames,
            "limit": self.task.limit,
            "method": self.task.method,
            "agent": self.policy.name,
            "agent_sha256": self.policy.sha256 or None,
            "seed": self.seed,
            "stream": [int(part) for part in self.stream],
            "planned": self.episodes,
            "slots": slots,
            "block": block,
            "device": self.device,
            "adversary": None if self.adversary is None else self.adversary.describe(),
            "budget": self.budget if self.adversary is not None else None,
            **({"rewards": list(self.task.rewards)} if self.per_step and self.task.rewards is not None else {}),
            **({} if self.features is None else {"features": list(self.features)}),
            **({} if self.task.discount is None else {"discount": self.task.discount}),
        }


def play(plan: Plan, *, workers: int = 1, store: Any = None, progress: Progress | None = None) -> Episodes:
    """Play every block of the plan and return the record; with a ``store``, resume from it and save to it."""
    if workers < 1:
        raise InputError(f"workers must be at least 1, got {workers}")
    done: dict[int, Episodes] = store.finished() if store is not None else {}
    missing = [index for index in range(plan.blocks) if index not in done]
    count = sum(len(block) for block in done.values())
    if progress is not None:
        progress(count, plan.episodes)
    for index, block in blocks_of(plan, missing, workers):
        done[index] = block
        count += len(block)
        if store is not None:
            store.save_block(index, block)
        if progress is not None:
            progress(count, plan.episodes)
    return Episodes.concat([done[index] for index in range(plan.blocks)])


def play_block(plan: Plan, index: int, build: Callable[..., Channel] | None = None) -> Episodes:
    """Play one block from first to last step; a pure function of the plan and the index.

    ``build`` makes another channel than usual, for instance one that takes notes of what passes through it.
    """
    slots, block = plan.shape_of_blocks
    count = min(block, plan.episodes - index * block)
    slots = min(slots, count)
    device = torch.device(plan.device)
    seeds = block_seeds(plan.seed, plan.stream, index)
    policy = plan.policy.to(device)
    game = plan.task.game(slots, seeds[0], device)
    channel = (build or Channel)(
        plan.sigma if plan.features is None else plan.features,
        slots,
        plan.task.shape,
        Stream(seeds[1], device),
        adversary=plan.adversary,
        budget=plan.budget,
        policy=policy,
        own=Stream(seeds[2], device),
        limit=plan.task.limit,
    )
    with single_thread(), torch.inference_mode(plan.adversary is None):
        try:
            loop = Loop(game, channel, policy, slots, count, device)
            loop.discount = plan.task.discount
            loop.gains = Gains(plan.task.limit, plan.task.rewards) if plan.per_step and plan.task.rewards else None
            table = loop.run(first=index * block)
        finally:
            game.close()
    return Episodes(
        returns=table[0].cpu().numpy(),
        sigma=channel.sigma,
        floor=plan.task.floor,
        ceiling=plan.task.ceiling,
        lengths=table[1].cpu().numpy().astype(np.int64),
        spent=table[2].cpu().numpy() if channel.ledger is not None else None,
        spending=channel.ledger.by_step.cpu().numpy() if channel.ledger is not None else None,
        gains=None if loop.gains is None else loop.gains.sums.numpy()[None],
        facts=plan.facts(),
    )


class Loop:
    """One block being played: rows are slots with an episode to play, dropped when they have none left."""

    def __init__(
        self, game: Game, channel: Channel, policy: Policy, slots: int, count: int, device: torch.device
    ) -> None:
        self.game, self.channel, self.policy = game, channel, policy
        self.slots, self.count = slots, count
        self.memory = FrameStack(policy.frames)
        self.slot = torch.arange(slots, device=device)
        self.turn = torch.zeros_like(self.slot)
        self.total = torch.zeros(slots, dtype=torch.float64, device=device)
        self.steps = torch.zeros_like(self.slot)
        self.alive = torch.ones(slots, dtype=torch.bool, device=device)
        self.fresh: Tensor | None = self.alive.clone()
        self.gains: Gains | None = None
        self.discount: float | None = None
        self.table = torch.full((3, count), torch.nan, dtype=torch.float64, device=device)
        # An adversary must not spend on episodes that are over, and some games cannot step them.
        self.patience = game.patience if channel.ledger is None else 1

    def run(self, first: int) -> Tensor:
        """Play to the end of the last episode; return returns, lengths and spending per episode."""
        observation = self.game.reset()
        self.memory.fill(torch.zeros_like(observation))
        action: Tensor | None = None
        clock = 0
        while self.slot.numel():
            seen = self.channel.send(observation, self.slot, self._record(first, action))
            history = self.memory.push(seen, self.fresh)
            self.fresh = None
            action = self.policy.act(history, self.steps)
            observation, reward, over = self.game.step(action)
            counted = torch.where(self.alive, reward, 0.0)
            self.total += counted if self.discount is None else counted * weights(self.discount, self.steps)
            if self.gains is not None:
                self.gains.add(self.steps, counted)
            self.steps += self.alive
            self.alive &= ~over
            clock += 1
            if clock % self.patience == 0 and not bool(self.alive.all()):
                observation, action = self._turn_over(observation, action)
        return self.table

    def _turn_over(self, observation: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Book finished episodes, start the next ones of their slots, drop slots that have none."""
        over = ~self.alive
        self._book(over)
        again = over & (self.slot + (self.turn + 1) * self.slots < self.count)
        if bool(again.any()):
            observation = observation.clone()
            observation[again] = self.game.restart(again)
            self.channel.restart(again)
            if self.channel.ledger is not None:
                # A view of a first step shows nothing of the slot's episode before.
                action, self.memory.history = action.clone(), self.memory.history.clone()
                action[again], self.memory.history[again] = 0, 0.0
            self.turn += again
            self.total[again] = 0.0
            self.steps[again] = 0
            self.alive |= again
            self.fresh = again
        # Where finished rows may idle, dropping them one by one would copy the memory more often than it saves.
        left = int(self.alive.sum())
        if left == 0 or self.patience == 1 or left <= 0.75 * self.slot.numel():
            rows = self.alive.nonzero().flatten()
            if left < self.slot.numel():
                self._keep(rows)
                observation, action = observation[rows], action[rows]
        return observation, action

    def _book(self, over: Tensor) -> None:
        episode = (self.slot + self.turn * self.slots)[over]
        self.table[0, episode] = self.total[over]
        self.table[1, episode] = self.steps[over].double()
        if self.channel.ledger is not None:
            self.table[2, episode] = self.channel.ledger.spent[over]

    def _keep(self, rows: Tensor) -> None:
        self.game.keep(rows)
        self.channel.keep(rows)
        self.memory.keep(rows)
        self.slot, self.turn, self.steps = self.slot[rows], self.turn[rows], self.steps[rows]
        self.total, self.alive = self.total[rows], self.alive[rows]
        if self.fresh is not None:
            self.fresh = self.fresh[rows]

    def _record(self, first: int, action: Tensor | None) -> Record:
        return Record(
            episode=first + self.slot + self.turn * self.slots,
            step=self.steps,
            fresh=self.fresh,
            state=self.game.state() if self.channel.ledger is not None else None,
            history=self.memory.history,
            action=action,
        )


@contextmanager
def single_thread() -> Iterator[None]:
    """Compute with one thread: the same bits whatever runs beside, and no collapse when processes share the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _played(plan: Plan, missing: list[int], workers: int) -> Iterator[tuple[int, Episodes]]:
    cuda = torch.device(plan.device).type == "cuda"
    # One process fills a GPU, unless it waits for emulators.
    if workers <= 1 or (cuda and not plan.task.emulated):
        yield from ((index, play_block(plan, index)) for index in missing)
        return
    if cuda:
        plan = replace(plan, policy=plan.policy.to("cpu"))  # what is on a GPU cannot be sent to another process
    yield from spread(play_block, plan, missing, workers, fresh=cuda)


def blocks_of(plan: Plan, missing: list[int], workers: int) -> Generator[tuple[int, Episodes], None, None]:
    """Yield numbers and blocks as they are finished, checked; whoever has enough closes the iterator."""
    for index, block in _played(plan, missing, min(workers, len(missing))):
        _check_block(plan, index, block)
        yield index, block


def _check_block(plan: Plan, index: int, block: Episodes) -> None:
    """Refuse at once what no certificate could be made of, rather than after hours of play."""
    try:
        checked_returns(block.returns, plan.task.floor, plan.task.ceiling)
    except InputError as error:
        first = index * plan.shape_of_blocks[1]
        raise InputError(f"in episodes {first} to {first + len(block) - 1} of {plan.task.name}: {error}") from error


def _check_fit(task: Task, policy: Policy) -> None:
    if policy.shape != task.shape:
        raise InputError(
            f"the agent {policy.name} expects observations of shape {policy.shape}, {task.name} gives {task.shape}"
        )
    if policy.choices != task.choices:
        kinds = [
            f"{n} discrete actions" if n is not None else "continuous actions" for n in (policy.choices, task.choices)
        ]
        raise InputError(f"the agent {policy.name} has {kinds[0]}, {task.name} takes {kinds[1]}")
