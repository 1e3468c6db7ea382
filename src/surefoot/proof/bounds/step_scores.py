"""T4 and T8: a budget for every step instead of the whole episode, as scores of one episode.

Let each perturbation have an l2 norm of at most e, those up to step t together of at most e sqrt(t). Let the reward r_t
of each of T steps (0 after the end) be in [low, high]. With c = e sqrt(T) / sigma, the scaled norm of all of them,
let g_t(p) = Phi(Phi^-1(p) - c sqrt(t / T)), and V_c the least mean return that such an attack leaves.

(a) T4. (r_t - low) / (high - low) is the probability of a yes to some question about the first t steps, so Theorem 1
applies to its mean p_t without attack: V_c >= sum over t of low + (high - low) g_t(p_t).

(b) g_t is convex and lies above each of its tangents. For ANY guesses q_t in [0, 1), made before the episode is seen,

    psi = sum over t of  low + (high - low) [g_t(q_t) - q_t g_t'(q_t)] + g_t'(q_t) (r_t - low)

is a score of one episode whose mean is at most V_c. It is lowest where all rewards are: bets know what they can lose.

(c) T8. After step t the return is surely at least K_t: what was paid, and low for each of the T - t steps left if the
episode is not over. K_t is known after t steps. So for any times t(x), fixed before the episode is seen, and a floor a
that no return is below, P(Y >= x) is under attack at least P(K_t(x) >= x), to which Theorem 1 applies. Scores are those
of ``tangent_scores`` with 1{K_t(x) >= x} for 1{X >= x} and g_t(x) for g_c, t the same from one point to the next.

(d) Both are scores for claims about one V_c: a bettor may use them by turns. V_c falls with c. And let c >= r. Of an
attack for c, r/c of each perturbation is an attack for r; the rest has an l2 norm of at most (c - r) sigma in all, and
moves noise around what the first adds. Theorem 1 holds for that too, as its induction needs no unattacked game to begin
with: (V_c - floor) / range >= Phi(Phi^-1((V_r - floor) / range) - (c - r)), as ``settle`` and ``implied`` say of L_c.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import InputError
from surefoot.proof.bounds.bands import Counts
from surefoot.proof.bounds.samples import OrderedOutcomes, Sample, Samples
from surefoot.proof.bounds.tangent_scores import Guesses, Score, TangentScore, checked_score, tangent_lines

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
    ``asked``    steps after which it is asked what the return surely is,
    ``sure``     and the answers, a row for each episode (c)
    """

    values: Floats
    begins: Counts
    ends: Counts
    first: Counts
    n_steps: int
    low: float
    high: float
    asked: Counts = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    sure: Floats = field(default_factory=lambda: np.empty((0, 0)))

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
        which = {"values": self.values[runs], "begins": self.begins[runs], "ends": self.ends[runs], "first": starts}
        return replace(self, **which, sure=self.sure[first:last])

    def asked_after(self, steps: Counts) -> RewardRuns:
        """Return the same with what the return of each episode is surely at least, as is known after each step (c)."""
        lengths = self.ends[self.first[1:] - 1]
        sure = np.empty((self.size, steps.size))
        for column, step in zip(sure.T, steps.tolist(), strict=True):
            paid = self.values * np.clip(step - self.begins, 0, self.ends - self.begins)
            column[:] = np.add.reduceat(paid, self.first[:-1])
            column[lengths > step] += self.low * (self.n_steps - step)
        return replace(self, asked=steps, sure=sure - _ROUNDING * (self.ceiling - self.floor))  # sums rounded down

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
        # a step after the end pays 0, which is minus low above the least
        each = rewards.values * (self.paid[rewards.ends] - self.paid[rewards.begins])
        above = np.add.reduceat(each, rewards.first[:-1]) - rewards.low * self.paid[-1]
        scores: Floats = self.lowest + np.maximum(above, 0.0)
        return scores


def step_scores(guesses: Floats, scaled_budget: float, n_steps: int, low: float, high: float) -> list[StepScore]:
    """Return the score of each row of guesses of p_t, t = 1 to n_steps (b): E psi <= V_c for all guesses in [0, 1)."""
    slopes, offsets = tangent_lines(guesses, scaled_budget * np.sqrt(np.arange(1, n_steps + 1) / n_steps))
    scores = []
    for slope, offset in zip(slopes, offsets, strict=True):
        rounding = _ROUNDING * (high - low) * float((slope + 1).sum()) + _ROUNDING * n_steps * abs(low)
        lowest = n_steps * low + (high - low) * float(offset.sum()) - rounding
        scores.append(StepScore(np.concatenate([[0.0], np.cumsum(slope)]), lowest))
    return scores


@dataclass(frozen=True, eq=False)
class SumScore:
    """The score of (c): for each step what it adds to ``lowest``, along straight lines through (knots, heights)."""

    knots: Floats
    heights: Mapping[int, Floats]
    lowest: float

    def __call__(self, rewards: RewardRuns) -> Floats:
        """Score episodes."""
        scores = np.full(rewards.size, self.lowest)
        for step, heights in self.heights.items():
            [sure] = rewards.sure.T[rewards.asked == step]
            scores += np.interp(sure, self.knots, heights)
        return scores


class OrderedRewards(OrderedOutcomes):
    """The episodes that have come, in their order, with their rewards; ``outcomes`` are their returns."""

    def __init__(self, rewards: RewardRuns, returns: Floats | None = None, samples: Samples | None = None) -> None:
        if returns is None:
            returns = np.add.reduceat(rewards.values * (rewards.ends - rewards.begins), rewards.first[:-1])
        super().__init__(returns, samples)
        self.rewards = rewards

    def before(self, index: int) -> OrderedRewards:
        """Return the episodes before an index and nothing else: what may decide about those from the index on."""
        return OrderedRewards(self.rewards.rows(0, index), self.outcomes[:index], self.samples)

    def scored(self, score: Score, first: int, last: int) -> Sample:
        """Return the scores of the episodes from one index up to another."""
        return Sample.of(score(self.rewards.rows(first, last)))

    def make_score(self, guesses: Guesses | None, scaled_budget: float, floor: float) -> Score:
        """Return the score that guesses make, checked: one for each step (b), or for points, each with a step (c)."""
        rewards = self.rewards
        if guesses is None:
            raise ValueError("a score of rewards needs guesses")
        points, means, *steps = guesses
        if steps:
            if steps[0].shape != points.shape or not np.isin(steps[0], rewards.asked).all():
                raise ValueError("guesses need a step for each point, after which something was asked")
            whole = checked_score((points, means), scaled_budget * np.sqrt(steps[0] / rewards.n_steps), floor)
            assert isinstance(whole, TangentScore)
            rises = {step: np.where(steps[0] == step, np.diff(whole.heights), 0.0) for step in np.unique(steps[0])}
            heights = {int(step): np.append(0.0, np.cumsum(rise)) for step, rise in rises.items()}
            return SumScore(whole.knots, heights, whole.lowest)
        if means.shape != (rewards.n_steps,) or not np.all((means >= 0) & (means < 1)):
            raise ValueError("guesses need one probability for each step, in [0, 1)")
        return step_scores(means[None], scaled_budget, rewards.n_steps, rewards.low, rewards.high)[0]
