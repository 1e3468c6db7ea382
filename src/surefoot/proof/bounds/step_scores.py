"""T4: a budget for every step instead of the whole episode, as scores of one episode.

(a) Let each perturbation have an l2 norm of at most e, and let the reward r_t of each of T steps (0 after the end) lie
in [low, high]. r_t depends only on what happened up to step t, and by then all perturbations together have an l2 norm
of at most e sqrt(t). (r_t - low) / (high - low) is the probability of a yes to some question about those steps, so
Theorem 1 applies to it. With p_t its mean without attack and c = e sqrt(T) / sigma, the scaled norm of what e adds up
to,

    E[Y] >= L_c = sum over t of  low + (high - low) g_t(p_t),      g_t(p) = Phi(Phi^-1(p) - c sqrt(t / T)).

(b) g_t is convex and lies above each of its tangents. For ANY guesses q_t in [0, 1), made before the episode is seen,

    psi = sum over t of  low + (high - low) [g_t(q_t) - q_t g_t'(q_t)] + g_t'(q_t) (r_t - low)

is a score of one episode whose mean is at most L_c, with equality if q = p. Bets on it need no union over the steps.

(c) psi is lowest where all rewards are: bets know what they can lose.

(d) With floor = T low and ceiling = T high, all that ``tangent_scores`` and ``settle`` say of L_c at several scaled
budgets is true of this L_c. It falls with c. And for c >= r, as g_t of c is g_t of c - r after g_t of r, and as
(c - r) sqrt(t / T) is at most c - r and g convex, (L_c - floor) / range >= g_(c-r)((L_r - floor) / range).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from surefoot.errors import InputError
from surefoot.proof.bounds.bands import Counts
from surefoot.proof.bounds.samples import OrderedOutcomes, Sample, Samples
from surefoot.proof.bounds.tangent_scores import Guesses, Score

Floats = NDArray[np.float64]

_ROUNDING = 1e-12  # of the range of the score: more than the error of Phi, Phi^-1, exp and of the sums


@dataclass(frozen=True, eq=False)
class RewardRuns:
    """The rewards of episodes in their order: runs of equal rewards, one after the other.

    ``values``   the reward of each run
    ``begins``   the step after which each run begins, 0 for the first of an episode, and after which it
    ``ends``     ends
    ``first``    the first run of each episode, and the number of runs last
    ``n_steps``  every episode is over after so many steps
    """

    values: Floats
    begins: Counts
    ends: Counts
    first: Counts
    n_steps: int
    low: float
    high: float

    @classmethod
    def of(cls, values: Floats, repeats: Counts, lengths: Counts, n_steps: int, low: float, high: float) -> RewardRuns:
        """Return the runs of episodes of these lengths: ``repeats[k]`` steps in a row pay ``values[k]``.

        Raises:
            InputError: If these are not the rewards of such episodes.
        """
        in_time = bool(np.all((lengths >= 1) & (lengths <= n_steps)))
        if values.shape != repeats.shape or not np.all(repeats >= 1) or not in_time:
            raise InputError(f"expected rewards, how often each is repeated, and episodes of 1 to {n_steps} steps")
        if not np.all((values >= low) & (values <= high)):
            raise InputError(f"every reward must be between {low:g} and {high:g}")
        done = np.concatenate([[0], np.cumsum(repeats)])
        starts = np.concatenate([[0], np.cumsum(lengths)])
        first = np.searchsorted(done, starts)
        # a run that crosses the end of an episode would pay one episode's rewards to the next
        if done[-1] != starts[-1] or not np.array_equal(done[first], starts):
            raise InputError("the rewards do not end where the episodes do")
        before = np.repeat(starts[:-1], np.diff(first))
        return cls(values, done[:-1] - before, done[1:] - before, first, n_steps, low, high)

    @property
    def size(self) -> int:
        """The number of episodes."""
        return self.first.size - 1

    def rows(self, first: int, last: int) -> RewardRuns:
        """Return the episodes from one index up to another."""
        runs = slice(int(self.first[first]), int(self.first[last]))
        starts = self.first[first : last + 1] - self.first[first]
        limits = (self.n_steps, self.low, self.high)
        return RewardRuns(self.values[runs], self.begins[runs], self.ends[runs], starts, *limits)

    def mirrored(self) -> RewardRuns:
        """Return the same episodes with minus their rewards, for upper bounds."""
        return RewardRuns(-self.values, self.begins, self.ends, self.first, self.n_steps, -self.high, -self.low)

    @property
    def floor(self) -> float:
        """The lowest sum of so many rewards."""
        return self.n_steps * self.low

    @property
    def ceiling(self) -> float:
        """The highest."""
        return self.n_steps * self.high


@dataclass(frozen=True, eq=False)
class StepScore:
    """The score psi: ``lowest`` if every step pays the least, and ``slopes[t]`` more for each unit of reward there.

    ``paid``  the sum of the slopes up to each step, from none to all
    """

    paid: Floats
    lowest: float

    def __call__(self, rewards: RewardRuns) -> Floats:
        """Score episodes."""
        if rewards.size == 0:
            return np.empty(0)
        # a step after the end pays 0, which is minus low above the least
        each = rewards.values * (self.paid[rewards.ends] - self.paid[rewards.begins])
        above = np.add.reduceat(each, rewards.first[:-1]) - rewards.low * self.paid[-1]
        scores: Floats = self.lowest + np.maximum(above, 0.0)
        return scores


def step_scores(guesses: Floats, scaled_budget: float, n_steps: int, low: float, high: float) -> list[StepScore]:
    """Return the score of each row of guesses of p_t, t = 1, 2, ..., n_steps (b).

    E psi <= L_c for all rewards and all guesses in [0, 1), good or bad.
    """
    shift = scaled_budget * np.sqrt(np.arange(1, n_steps + 1) / n_steps)
    # minus infinity for a guess of 0, where tangent and curve are 0
    z = ndtri(guesses)
    with np.errstate(under="ignore", invalid="ignore"):
        slopes = np.where(shift == 0, 1.0, np.exp(shift * z - shift**2 / 2))
        offsets = np.where((shift > 0) & (guesses > 0), ndtr(z - shift) - guesses * slopes, 0.0)
    scores = []
    for slope, offset in zip(slopes, offsets, strict=True):
        rounding = _ROUNDING * (high - low) * float((slope + 1).sum()) + _ROUNDING * n_steps * abs(low)
        lowest = n_steps * low + (high - low) * float(offset.sum()) - rounding
        scores.append(StepScore(np.concatenate([[0.0], np.cumsum(slope)]), lowest))
    return scores


class OrderedRewards(OrderedOutcomes):
    """The episodes that have come, in their order, with their rewards; ``outcomes`` are their returns."""

    def __init__(self, rewards: RewardRuns, returns: Floats | None = None, samples: Samples | None = None) -> None:
        if returns is None:
            paid = rewards.values * (rewards.ends - rewards.begins)
            returns = np.add.reduceat(paid, rewards.first[:-1])
        super().__init__(returns, samples)
        self.rewards = rewards

    def before(self, index: int) -> OrderedRewards:
        """Return the episodes before an index and nothing else: what may decide about those from the index on."""
        return OrderedRewards(self.rewards.rows(0, index), self.outcomes[:index], self.samples)

    def scored(self, score: Score, first: int, last: int) -> Sample:
        """Return the scores of the episodes from one index up to another."""
        return Sample.of(score(self.rewards.rows(first, last)))

    def make_score(self, guesses: Guesses | None, scaled_budget: float, floor: float) -> Score:
        """Return the score that guesses make, one for each step.

        Raises:
            ValueError: If the mean of the score could exceed the worst-case mean.
        """
        rewards = self.rewards
        if guesses is None or floor > rewards.floor:
            raise ValueError(f"a score of rewards needs guesses, and a floor of at most {rewards.floor}")
        _, means = guesses
        if means.shape != (rewards.n_steps,) or not np.all((means >= 0) & (means < 1)):
            raise ValueError("guesses need one probability for each step, in [0, 1)")
        [score] = step_scores(means[None], scaled_budget, rewards.n_steps, rewards.low, rewards.high)
        return score
