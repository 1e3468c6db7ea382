"""Bounds for a budget per step (T4, T8), recomputed from the recorded rewards; nothing else of surefoot is imported.

With p_t the mean share of step t's reward in [low, high], under any attack with at most e per observation,
E[Y] >= sum over t of low + (high - low) g_t(p_t), g_t(p) = Phi(Phi^-1(p) - e sqrt(t) / sigma). For any guess q_t of p_t
the tangent at q_t is nowhere above g_t. So the sum over all steps of an episode of low + (high - low) [g_t(q_t) +
g_t'(q_t) (share_t - q_t)] is a number with a mean of at most the bound, and bets on it prove what bets on returns do.

Whether the return will be at least y may be known after step t: if what was paid so far reaches y even if every step
that is left, of an episode that is not over, pays the least. Of the chance of that g_t is left under attack too, so
that for any step and any guess of it, a pair for each y, tangents at the guesses add up to such a number as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from surefoot.verification.recompute.bands import Claim, Side
from surefoot.verification.recompute.bets import Account, PlannedBet, PlannedBettor, settled

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StepRewards:
    """The rewards of episodes as recorded: how many steps in a row each was paid, and how many steps each has."""

    values: Floats
    repeats: NDArray[np.int64]
    lengths: NDArray[np.int64]
    n_steps: int
    low: float
    high: float

    def mirrored(self) -> StepRewards:
        """Return the same with minus the rewards."""
        return replace(self, values=-self.values, low=-self.high, high=-self.low)

    def step_by_step(self) -> Floats:
        """Return the rewards of all steps of all episodes, one after the other."""
        return np.repeat(self.values, self.repeats)


class StepAccount(Account):
    """The capital of one bettor on the rewards of each step; its ``returns`` are the numbers of the episodes."""

    def __init__(self, rewards: StepRewards, paid: Floats, floor: float, bettor: PlannedBettor) -> None:
        super().__init__(np.arange(float(rewards.lengths.size)), floor, bettor)
        self.rewards = rewards
        self.paid = paid
        self.starts = np.concatenate([[0], np.cumsum(rewards.lengths)])

    def _has_valid_guesses(self, bet: PlannedBet) -> bool:
        if bet.guesses is None:
            return False
        points, guess, *steps = bet.guesses
        n_steps = self.rewards.n_steps
        are_chances = bool(np.all((guess >= 0) & (guess < 1)))
        if not steps:
            return are_chances and guess.shape == (n_steps,)
        is_ascending = bool(np.all(np.diff(points, prepend=self.floor) > 0))
        are_steps = bool(np.all((steps[0] >= 1) & (steps[0] <= n_steps) & (steps[0] % 1 == 0)))
        return are_chances and is_ascending and are_steps and points.shape == guess.shape == steps[0].shape

    def _score_returns(self, bet: PlannedBet, returns: Floats) -> tuple[Floats, float]:
        """Return the scores of the episodes with these numbers, and the lowest score that any episode has."""
        assert bet.guesses is not None
        episodes = returns.astype(np.int64)
        points, guess, *steps = bet.guesses
        if steps:
            return self._score_sums(episodes, points, guess, steps[0])
        return self._score_steps(episodes, guess)

    def _score_steps(self, episodes: NDArray[np.int64], guess: Floats) -> tuple[Floats, float]:
        rewards = self.rewards
        slope, at_none = self._tangents(guess, np.arange(1, rewards.n_steps + 1))
        width = rewards.high - rewards.low
        lowest = float(np.sum(rewards.low + width * at_none))
        # Rounded conservatively: a lower score proves less.
        lowest -= 1e-12 * (width * float(np.sum(slope + 1)) + rewards.n_steps * abs(rewards.low))
        reward, whose, step = self._each_step(episodes)
        above = np.bincount(whose, slope[step] * reward, episodes.size) - rewards.low * float(slope.sum())
        return lowest + np.maximum(above, 0.0), lowest

    def _score_sums(
        self, episodes: NDArray[np.int64], points: Floats, guess: Floats, steps: Floats
    ) -> tuple[Floats, float]:
        rewards = self.rewards
        slope, at_none = self._tangents(guess, steps)
        below = np.concatenate([[self.floor], points[:-1]])
        lowest = self.floor + float(np.sum((points - below) * at_none))
        lowest -= 1e-12 * (float(np.sum((points - below) * (slope + 1))) + abs(self.floor))
        reward, whose, step = self._each_step(episodes)
        scores = np.full(episodes.size, lowest)
        for known_after in np.unique(steps):
            paid = np.bincount(whose, reward * (step < known_after), episodes.size)
            is_over = rewards.lengths[episodes] <= known_after
            to_come = np.where(is_over, 0.0, (rewards.n_steps - known_after) * rewards.low)
            # Less than what is sure, by more than the error of the sums.
            sure = paid + to_come - 1e-12 * rewards.n_steps * (rewards.high - rewards.low)
            for index in np.flatnonzero(steps == known_after):
                scores += slope[index] * np.clip(sure - below[index], 0.0, points[index] - below[index])
        return scores, lowest

    def _tangents(self, guess: Floats, steps: NDArray[Any]) -> tuple[Floats, Floats]:
        """Return slope and height at 0 of the tangent at each guess, of what is decided at each step."""
        # Up to step t an attack has spent at most a share t / T of its squared budget.
        shift = self.radius * np.sqrt(steps / self.rewards.n_steps)
        if self.radius == 0:
            return np.ones(guess.size), np.zeros(guess.size)
        z = norm.ppf(guess)
        # g'(q) = phi(z - shift) / phi(z)
        slope = np.exp(shift * z - shift**2 / 2)
        return slope, norm.cdf(z - shift) - guess * slope

    def _each_step(self, episodes: NDArray[np.int64]) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
        """Return the rewards of these episodes, in a row, and of which episode and of which of its steps each is."""
        lengths = self.rewards.lengths[episodes]
        whose = np.repeat(np.arange(episodes.size), lengths)
        step = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return self.paid[self.starts[episodes[0]] : self.starts[episodes[-1] + 1]], whose, step


def settle_step_bets(
    rewards: StepRewards,
    claim: Claim,
    ends: tuple[float, float],
    bettors: Sequence[PlannedBettor],
    rows: list[Any],
) -> tuple[Side, list[str]]:
    """Return what planned bets on the rewards have proved, and where the recorded bets are others."""
    paid = rewards.step_by_step()

    def open_account(bettor: PlannedBettor) -> Account:
        return StepAccount(rewards, paid, ends[0], bettor)

    return settled(np.empty(0), claim, ends, bettors, rows, open_account)
