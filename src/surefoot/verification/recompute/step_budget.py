"""Bounds for a budget per step (T4), recomputed from the recorded rewards; nothing else of surefoot is imported.

With p_t the mean share of step t's reward in [low, high], under any attack with at most e per observation,
E[Y] >= sum over t of low + (high - low) g_t(p_t), g_t(p) = Phi(Phi^-1(p) - e sqrt(t) / sigma). For any guess q_t of p_t
the tangent at q_t is nowhere above g_t. So the sum over all steps of an episode of low + (high - low) [g_t(q_t) +
g_t'(q_t) (share_t - q_t)] is a number with a mean of at most the bound, and bets on it prove what bets on returns do.
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

    def __init__(self, rewards: StepRewards, paid: Floats, bettor: PlannedBettor) -> None:
        super().__init__(np.arange(float(rewards.lengths.size)), rewards.n_steps * rewards.low, bettor)
        self.rewards = rewards
        self.paid = paid
        self.starts = np.concatenate([[0], np.cumsum(rewards.lengths)])

    def _has_valid_guesses(self, bet: PlannedBet) -> bool:
        if bet.guesses is None:
            return False
        _, guess = bet.guesses
        return guess.shape == (self.rewards.n_steps,) and bool(np.all((guess >= 0) & (guess < 1)))

    def _score_returns(self, bet: PlannedBet, returns: Floats) -> tuple[Floats, float]:
        """Return the scores of the episodes with these numbers, and the lowest score that any episode has."""
        assert bet.guesses is not None
        _, guess = bet.guesses
        rewards = self.rewards
        # Up to step t an attack has spent at most a share t / T of its squared budget.
        shift = self.radius * np.sqrt(np.arange(1, rewards.n_steps + 1) / rewards.n_steps)
        z = norm.ppf(guess)
        slope = np.ones(rewards.n_steps)
        at_none = np.zeros(rewards.n_steps)
        if self.radius > 0:
            # g'(q) = phi(z - shift) / phi(z)
            slope = np.exp(shift * z - shift**2 / 2)
            at_none = norm.cdf(z - shift) - guess * slope
        width = rewards.high - rewards.low
        lowest = float(np.sum(rewards.low + width * at_none))
        # Rounded conservatively: a lower score proves less.
        lowest -= 1e-12 * (width * float(np.sum(slope + 1)) + rewards.n_steps * abs(rewards.low))
        episodes = returns.astype(np.int64)
        lengths = rewards.lengths[episodes]
        # Which episode each step belongs to, and which of its steps it is.
        whose = np.repeat(np.arange(episodes.size), lengths)
        step = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        reward = self.paid[self.starts[episodes[0]] : self.starts[episodes[-1] + 1]]
        above = np.bincount(whose, slope[step] * reward, episodes.size) - rewards.low * float(slope.sum())
        return lowest + np.maximum(above, 0.0), lowest


def settle_step_bets(
    rewards: StepRewards, claim: Claim, bettors: Sequence[PlannedBettor], rows: list[Any]
) -> tuple[Side, list[str]]:
    """Return what planned bets on the rewards have proved, and where the recorded bets are others."""
    paid = rewards.step_by_step()
    ends = (rewards.n_steps * rewards.low, rewards.n_steps * rewards.high)

    def open_account(bettor: PlannedBettor) -> Account:
        return StepAccount(rewards, paid, bettor)

    return settled(np.empty(0), claim, ends, bettors, rows, open_account)
