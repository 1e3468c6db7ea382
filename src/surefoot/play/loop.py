"""The one loop in which the environment meets the channels.

Which episodes are run is fixed before anything runs. Inside a block, episode k is run by environment k mod n_envs as
its (k div n_envs)-th, and every episode is run to its end, so that short episodes are never favored.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surefoot.agents.own_randomness import seeded
from surefoot.agents.torch_agents import kept_state
from surefoot.compute import keep_freed_memory, single_thread
from surefoot.episodes import Episodes
from surefoot.errors import DependentRowsError, InputError
from surefoot.play.channel import Channel, Ledger, Rows, action_channel, observation_channel
from surefoot.play.envs.base import BatchEnv
from surefoot.play.envs.gymnasium_env import are_same_streams, global_streams
from surefoot.play.meter import Meter
from surefoot.play.plan import Plan, limits_of_actions
from surefoot.play.reset_luck import read_luck
from surefoot.play.row_checks import RowChecks
from surefoot.play.streams import DeployedStream, Purpose, Stream, block_seeds, draw_seeds, policy_seeds


@dataclass(frozen=True, eq=False, kw_only=True)
class Step:
    """One step of all rows, for the ``watch`` callback."""

    episode: Tensor  # which episode each row runs, -1 where it is over
    observation: Tensor  # the clean observation
    seen: Tensor  # what the agent sees of it
    action: Tensor | None  # the action of the step before as the agent chose it, None at the first
    budget_used: Tensor | None  # the l2 budget used so far, this step included; None without an attacker


Watch = Callable[[Step], None]


def play_block(plan: Plan, index: int, *, watch: Watch | None = None, backwards: bool = False) -> Episodes:
    """Run one block from first to last step; a pure function of the plan and the index.

    Args:
        watch: Called at every step, before the agent acts; it must not change anything.
        backwards: Whether the last draw of the noise is run first, which changes nothing where draws are independent.
    """
    first = index * plan.block_size
    count = min(plan.block_size, plan.n_episodes - first)
    if plan.draws_per_seed == 1:
        seeds = block_seeds(plan.seed, plan.purpose, index)
        own = policy_seeds(plan.seed, plan.purpose, index)
        return _play_rows(plan, index, first, count, seeds, own, watch)
    order = range(1, plan.draws_per_seed + 1)
    draws = []
    for draw in reversed(order) if backwards else order:
        seeds = draw_seeds(plan.seed, draw, index)
        own = policy_seeds(plan.seed, (Purpose.DRAWS, draw), index)
        draws.append(_play_rows(plan, index, first, count // plan.draws_per_seed, seeds, own, watch))
    if backwards:
        draws.reverse()
    return _join_draws(draws)


def _join_draws(draws: list[Episodes]) -> Episodes:
    """Return the episodes of all draws, those of one seed in a row."""
    returns = np.stack([draw.returns for draw in draws], axis=1).ravel()
    lengths = np.stack([np.asarray(draw.lengths) for draw in draws], axis=1).ravel()
    return replace(draws[0], returns=returns, lengths=lengths)


def _play_rows(
    plan: Plan,
    index: int,
    first: int,
    count: int,
    seeds: tuple[np.random.SeedSequence, ...],
    policy_streams: tuple[np.random.SeedSequence, int],
    watch: Watch | None,
) -> Episodes:
    """Run episodes of a block with these streams; they count from ``first``."""
    n_envs = min(plan.block_envs, count)
    device = torch.device(plan.device)
    # Streams of their own, so that an attacker that draws random numbers learns nothing about the noise.
    env_seeds, noise_seeds, own_seeds, actuator_seeds = seeds
    backend = plan.task.backend
    env = backend.batch(plan.block_envs if backend.fixed_rows else n_envs, env_seeds, device)
    ledger = None
    if plan.attacker is not None:
        ledger = make_ledger(plan, n_envs, Stream(own_seeds, device))
    channel, actuator = open_channels(plan, n_envs, noise_seeds, actuator_seeds, ledger)
    own: AbstractContextManager[None] = nullcontext()
    if plan.policy.stochastic:
        own = seeded(*policy_streams)
    shared = global_streams()
    keep_freed_memory()
    # As the agent is deployed, without gradients, which only attacks need: a program can tell inference mode from that.
    with single_thread(), torch.set_grad_enabled(plan.attacker is not None):
        try:
            loop = BlockLoop(plan=plan, env=env, channel=channel, actuator=actuator, ledger=ledger, count=count)
            before = kept_state(loop.policy)
            with own:
                loop.run_episodes(first, watch, Meter(index))
            if kept_state(loop.policy) != before:
                raise DependentRowsError(
                    f"the agent {plan.policy.name} has changed itself while it ran (a counter, or a buffer), so that "
                    "it may act otherwise later; let it keep nothing from one call to the next"
                )
            channel.check(loop.largest, is_double=loop.all_double)
            if plan.draws_per_seed > 1 and not are_same_streams(shared, global_streams()):
                raise DependentRowsError(
                    f"{plan.task.name} draws from a generator that all its copies share, so that a seed does not fix "
                    "its own randomness; draw all of it from self.np_random, or leave draws_per_seed out"
                )
        finally:
            env.close()
    budget_used = None
    budget_used_per_step = None
    if ledger is not None:
        budget_used = loop.table[2].cpu().numpy()
        budget_used_per_step = ledger.used_by_step.cpu().numpy()
    reward_values = None
    reward_repeats = None
    if loop.rewards is not None:
        reward_values, reward_repeats = loop.rewards.runs()
    return Episodes(
        returns=loop.table[0].cpu().numpy(),
        sigma=plan.noise.sigma,
        floor=plan.task.scoring.floor,
        ceiling=plan.task.scoring.ceiling,
        lengths=loop.table[1].cpu().numpy().astype(np.int64),
        budget_used=budget_used,
        budget_used_per_step=budget_used_per_step,
        reward_values=reward_values,
        reward_repeats=reward_repeats,
        luck=loop.luck,
        metadata=plan.facts(),
    )


def _noise_stream(plan: Plan, seeds: np.random.SeedSequence) -> Stream:
    device = torch.device(plan.device)
    if plan.deployed_noise:
        return DeployedStream(device)
    return Stream(seeds, device)


def open_channels(
    plan: Plan,
    n_envs: int,
    noise_seeds: np.random.SeedSequence,
    actuator_seeds: np.random.SeedSequence,
    ledger: Ledger | None,
) -> tuple[Channel, Channel | None]:
    """Return the channel of observations, and that of actions where these have noise or an attacker."""
    # The same ledger for both channels: one budget covers what is done to either.
    on_observations = ledger if "observations" in plan.channels else None
    on_actions = ledger if "actions" in plan.channels else None
    shape = plan.task.spaces.shape
    channel = observation_channel(plan.noise, n_envs, shape, _noise_stream(plan, noise_seeds), on_observations)
    actuator = None
    if plan.noise.action_sigma > 0 or on_actions is not None:
        limits = limits_of_actions(plan.task)
        actuator = action_channel(plan.noise, n_envs, limits, _noise_stream(plan, actuator_seeds), on_actions)
    return channel, actuator


def make_ledger(plan: Plan, n_envs: int, stream: Stream) -> Ledger:
    """Open the books of a plan's attacker, for one block."""
    assert plan.attacker is not None
    return Ledger(
        attacker=plan.attacker,
        budget=plan.budget,
        policy=plan.policy.to(stream.device),
        stream=stream,
        n_envs=n_envs,
        shape=plan.task.spaces.shape,
        max_steps=plan.task.scoring.max_steps,
        scope=plan.scope,
    )


class BlockLoop:
    """One block being run: rows are environments with an episode to run, dropped when they have none left."""

    def __init__(
        self,
        *,
        plan: Plan,
        env: BatchEnv,
        channel: Channel,
        count: int,
        actuator: Channel | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        device = torch.device(plan.device)
        scoring = plan.task.scoring
        self.env = env
        self.channel = channel
        self.actuator = actuator
        self.ledger = ledger
        self.policy = plan.policy.to(device)
        self.n_envs = channel.n_envs
        self.count = count
        self.gamma = scoring.gamma
        self.max_steps = scoring.max_steps
        self.recall = self.policy.memory
        self.memory = torch.empty(0)
        # Of each row: which environment it is, which of its episodes it runs, the return and the steps so far.
        self.number = torch.arange(self.n_envs, device=device)
        self.turn = torch.zeros_like(self.number)
        self.total = torch.zeros(self.n_envs, dtype=torch.float64, device=device)
        self.nothing = torch.zeros((), dtype=torch.float64, device=device)
        self.steps = torch.zeros_like(self.number)
        self.alive = torch.ones(self.n_envs, dtype=torch.bool, device=device)
        self.episode_start: Tensor | None = self.alive.clone()
        self.rewards = None
        if plan.per_step and scoring.reward_range is not None:
            self.rewards = RewardRecorder(self.n_envs, scoring.reward_range)
        # Return, length and budget used of every episode, by its number in the block.
        self.table = torch.full((3, count), torch.nan, dtype=torch.float64, device=device)
        self.largest = torch.zeros((), device=device)  # absolute value of any observation
        self.all_double = True  # whether every observation came in double precision
        self.reads_luck = plan.luck
        self.luck: NDArray[np.float64] | None = None
        self.units = None
        self.noisy = None
        if isinstance(channel.sigmas, Tensor):
            self.noisy = channel.sigmas > 0
            # What has no noise is compared with nothing, but must be finite.
            self.units = channel.sigmas.masked_fill(channel.sigmas == 0, torch.inf)
        elif plan.noise.action_sigma > 0 and plan.noise.sigma == 0:
            self.noisy = torch.zeros(plan.task.spaces.shape, dtype=torch.bool, device=device)
        # An attacker must not spend on episodes that are over, and some environments cannot step them.
        self.done_check_interval = env.done_check_interval if ledger is None else 1
        # After so many steps everything is over, where every row has one episode: nobody needs to ask.
        self.last_step = self.max_steps if count <= self.n_envs else None

    def run_episodes(self, first: int, watch: Watch | None = None, meter: Meter | None = None) -> None:
        """Run to the end of the last episode; ``table`` then has returns, lengths and budgets used per episode."""
        observation = self.env.reset()
        if len(observation) > self.n_envs:
            # The last block may have fewer episodes than rows.
            self.env.keep_rows(self.number)
            observation = observation[: self.n_envs]
        if self.reads_luck is not None:
            # before anything is perturbed, and before the first noise; each row runs one episode
            self.luck = read_luck(self.reads_luck, observation, getattr(self.env, "reset_infos", None))
        self.memory = self.recall.empty(observation.float())
        action: Tensor | None = None
        row_checks = RowChecks(self.policy, self.noisy)
        n_steps = 0
        while self.number.numel():
            # Looked at when the block is over, because asking a GPU at every step would make it wait. One number is
            # kept: a small tensor of every step would lie between the large ones, whose memory could not be reused.
            scaled = observation if self.units is None else observation / self.units
            torch.maximum(self.largest, scaled.abs().amax().float(), out=self.largest)
            self.all_double = self.all_double and observation.dtype == torch.float64
            rows = None
            if self.ledger is not None:
                rows = self._rows_for_view(first, observation, action)
            seen = self.channel.send(observation, rows)
            if self.ledger is not None and rows is not None:
                self.ledger.note_observation(rows)
            if watch is not None:
                watch(self._step_to_watch(first, observation, seen, action))
            before = (self.memory, seen, action, self.episode_start)
            self.memory = self.recall.advance(*before)
            self.episode_start = None
            action = self.policy.act(self.memory, self.steps)
            if row_checks.is_due():
                row_checks.check_step(before, self.memory, action)
            del before  # memory to be used again
            # The agent remembers the action that it chose: what becomes of it behind its back it does not know.
            executed = action
            if self.actuator is not None:
                if rows is not None:
                    rows = replace(rows, memory=self.memory, chosen=action.float())
                executed = self.actuator.send(action, rows)
            observation, reward, over = self.env.step(executed)
            # An environment that has no episode left to run may be stepped on: its rewards count for nothing.
            self.add_rewards(torch.where(self.alive, reward, self.nothing))
            self.steps += self.alive
            self.alive &= ~over
            n_steps += 1
            # Asking whether episodes are over makes a GPU wait, too.
            is_looked_at = n_steps % self.done_check_interval == 0 or n_steps == self.last_step
            if is_looked_at and not bool(self.alive.all()):
                observation, action = self._finish_and_restart(observation, action)
            if meter is not None and meter.is_due:
                meter.write_episodes(self._episodes_done())

    def _episodes_done(self) -> float:
        """Return how many episodes are done, those that are not over by their share of the most steps."""
        booked = int((~self.table[1].isnan()).sum())
        return booked + float(torch.where(self.alive, self.steps / self.max_steps, 1.0).sum())

    def add_rewards(self, reward: Tensor) -> None:
        """Add the rewards of one step to the returns."""
        if self.gamma is None:
            self.total += reward
        else:
            gamma = torch.tensor(self.gamma, dtype=torch.float64, device=reward.device)
            self.total += reward * torch.pow(gamma, self.steps)
        if self.rewards is not None:
            self.rewards.add_rewards(self._episode(), self.alive, reward)

    def _finish_and_restart(self, observation: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Book finished episodes, start the next ones of their environments, drop those that have none."""
        over = ~self.alive
        self._book_finished(over)
        again = over & (self.number + (self.turn + 1) * self.n_envs < self.count)
        if bool(again.any()):
            observation = observation.clone()
            observation[again] = self.env.restart_rows(again)
            for channel in self._channels():
                channel.restart_rows(again)
            if self.ledger is not None:
                self.ledger.restart_rows(again)
                # A view of a first step shows nothing of the environment's episode before.
                action = action.clone()
                self.memory = self.memory.clone()
                action[again] = 0
                self.memory[again] = 0.0
            self.turn += again
            self.total[again] = 0.0
            self.steps[again] = 0
            self.alive |= again
            self.episode_start = again
        # Where finished rows may idle, dropping them one by one would copy the memory more often than it saves.
        n_alive = int(self.alive.sum())
        n_rows = self.number.numel()
        if n_alive == 0 or self.done_check_interval == 1 or n_alive <= 0.75 * n_rows:
            rows = self.alive.nonzero().flatten()
            if n_alive < n_rows:
                self._keep_rows(rows)
                observation = observation[rows]
                action = action[rows]
        return observation, action

    def _book_finished(self, over: Tensor) -> None:
        if self.rewards is not None:
            self.rewards.end_runs(over, self._episode())
        episode = self._episode()[over]
        self.table[0, episode] = self.total[over]
        self.table[1, episode] = self.steps[over].double()
        if self.ledger is not None:
            self.table[2, episode] = self.ledger.budget_used[over]

    def _episode(self) -> Tensor:
        """Return which episode of the block each row runs."""
        return self.number + self.turn * self.n_envs

    def _keep_rows(self, rows: Tensor) -> None:
        if self.rewards is not None:
            self.rewards.keep_rows(rows)
        self.env.keep_rows(rows)
        for channel in self._channels():
            channel.keep_rows(rows)
        if self.ledger is not None:
            self.ledger.keep_rows(rows)
        self.number = self.number[rows]
        self.turn = self.turn[rows]
        self.steps = self.steps[rows]
        self.total = self.total[rows]
        self.alive = self.alive[rows]
        self.memory = self.memory[rows]
        if self.episode_start is not None:
            self.episode_start = self.episode_start[rows]

    def _channels(self) -> list[Channel]:
        return [self.channel] if self.actuator is None else [self.channel, self.actuator]

    def _rows_for_view(self, first: int, observation: Tensor, action: Tensor | None) -> Rows:
        return Rows(
            episode=first + self._episode(),
            step=self.steps,
            episode_start=self.episode_start,
            observation=observation,
            state=self.env.read_state(),
            memory=self.memory,
            action=action,
        )

    def _step_to_watch(self, first: int, observation: Tensor, seen: Tensor, action: Tensor | None) -> Step:
        budget_used = None if self.ledger is None else self.ledger.budget_used
        episode = (first + self._episode()).masked_fill(~self.alive, -1)
        return Step(episode=episode, observation=observation.float(), seen=seen, action=action, budget_used=budget_used)


class RewardRecorder:
    """Rewards of each episode as runs of equal ones, on the CPU."""

    def __init__(self, n_envs: int, limits: tuple[float, float]) -> None:
        self.low, self.high = limits
        # Of each row: the last reward, and how many steps in a row it was paid.
        self.value = torch.zeros(n_envs, dtype=torch.float64)
        self.repeats = torch.zeros(n_envs, dtype=torch.int64)
        self._ended: list[tuple[Tensor, Tensor, Tensor]] = []

    def add_rewards(self, episode: Tensor, alive: Tensor, rewards: Tensor) -> None:
        """Add the rewards of one step of every row that is alive; reject what is outside of the limits."""
        if bool(((rewards < self.low) | (rewards > self.high)).any()):
            wrong = f"got one between {float(rewards.min()):g} and {float(rewards.max()):g}"
            raise InputError(f"every reward must be between {self.low:g} and {self.high:g}, {wrong}; give true limits")
        paid = rewards.double().cpu()
        alive = alive.cpu()
        self.end_runs(alive & (paid != self.value), episode)
        self.value = torch.where(alive, paid, self.value)
        self.repeats += alive

    def end_runs(self, rows: Tensor, episode: Tensor) -> None:
        """Keep the runs of these rows, which another reward or the end of the episode ends."""
        ended = rows.cpu() & (self.repeats > 0)
        if bool(ended.any()):
            self._ended.append((episode.cpu()[ended], self.value[ended], self.repeats[ended]))
            self.repeats[ended] = 0

    def keep_rows(self, rows: Tensor) -> None:
        """Drop all other rows."""
        self.value = self.value[rows.cpu()]
        self.repeats = self.repeats[rows.cpu()]

    def runs(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the rewards of all runs that have ended, by episode and step, and how often each was repeated."""
        episode, value, repeats = (torch.cat(column).numpy() for column in zip(*self._ended, strict=True))
        # Runs of one episode ended in their order.
        order = np.argsort(episode, kind="stable")
        return value[order], repeats[order]
