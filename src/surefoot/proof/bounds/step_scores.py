"""T4 and T8: a budget for every step instead of the whole episode, as scores of one episode.

Let each perturbation have an l2 norm of at most e, and let the reward r_t of each of T steps (0 after the end) lie in
[low, high], low <= 0 <= high. What has happened up to step t was touched by perturbations that together have an l2 norm
of at most e sqrt(t). With the scaled budget c = e sqrt(T) / sigma, what e adds up to, write g_t(p) =
Phi(Phi^-1(p) - c sqrt(t / T)), and V_c for the least mean return that any such attack leaves.

(a) T4. (r_t - low) / (high - low) is the probability of a yes to some question about the first t steps, so Theorem 1
applies to its mean p_t without attack:

    V_c >= sum over t of  low + (high - low) g_t(p_t).

(b) g_t is convex and lies above each of its tangents. For ANY guesses q_t in [0, 1), made before the episode is seen,

    psi = sum over t of  low + (high - low) [g_t(q_t) - q_t g_t'(q_t)] + g_t'(q_t) (r_t - low)

is a score of one episode whose mean is at most V_c. Bets on it need no union over the steps. psi is lowest where all
rewards are: bets know what they can lose.

(c) T8. After step t the return is surely at least K_t: what has been paid, and low for each of the T - t steps left if
the episode is not over. K_t is known after t steps. So for any times t(x), fixed before the episode is seen, and a
floor a that no return is below, P(Y >= x) >= P(K_t(x) >= x) under attack, to which Theorem 1 applies:

    V_c >= a + int from a up of  g_t(x)( P(K_t(x) >= x without attack) ) dx.

Tangents at guesses q(x) make the score  a + int [g(q) - q g'(q)] dx + int g'(q(x)) 1{K_t(x) >= x} dx  of it as in
``tangent_scores``. It is lowest where no x is known to be reached. Here q and t are constant between two points, and
beyond the last point the guess is 0.

(d) Both are scores for claims about the same V_c: a bettor may use now one and now the other, as earlier episodes
advise. V_c falls with c. And let c >= r, and no return be outside of floor and ceiling. An attack for c that is scaled
down to r, step by step, is an attack for r; the rest of it has an l2 norm of at most (c - r) sigma in all. The
induction of Theorem 1 begins as well at an attacked game: given what has happened, noise around r/c of a perturbation
is moved by the rest of it. So (V_c - floor) / range >= g((V_r - floor) / range), g for a scaled budget of c - r: all
that ``settle`` and ``implied`` say of L_c is true of V_c.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import InputError
from surefoot.proof.bounds.bands import Counts
from surefoot.proof.bounds.samples import OrderedOutcomes, Sample, Samples
from surefoot.proof.bounds.tangent_scores import Guesses, Score, tangent_lines

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
        limits = (self.n_steps, self.low, self.high)
        asked = (self.asked, self.sure[first:last])
        return RewardRuns(self.values[runs], self.begins[runs], self.ends[runs], starts, *limits, *asked)

    def asked_after(self, steps: Counts) -> RewardRuns:
        """Return the same with what the return of each episode is surely at least, as is known after each step (c)."""
        lengths = self.ends[self.first[1:] - 1]
        sure = np.empty((self.size, steps.size))
        for column, step in zip(sure.T, steps.tolist(), strict=True):
            paid = self.values * np.clip(step - self.begins, 0, self.ends - self.begins)
            column[:] = np.add.reduceat(paid, self.first[:-1])
            # low for each step that is left, unless the episode is over
            column[lengths > step] += self.low * (self.n_steps - step)
        return replace(self, asked=steps, sure=sure)

    def mirrored(self) -> RewardRuns:
        """Return the same episodes with minus their rewards, for upper bounds."""
        return RewardRuns(-self.values, self.begins, self.ends, self.first, self.n_steps, -self.high, -self.low)

    def are_within(self, totals: Floats, floor: float, ceiling: float) -> bool:
        """Return whether sums of rewards are between floor and ceiling, up to the rounding of sums."""
        rounding = _ROUNDING * (self.ceiling - self.floor)
        return bool(np.all((totals >= floor - rounding) & (totals <= ceiling + rounding)))

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
    slopes, offsets = tangent_lines(guesses, _shifts(np.arange(1, n_steps + 1), scaled_budget, n_steps))
    scores = []
    for slope, offset in zip(slopes, offsets, strict=True):
        rounding = _ROUNDING * (high - low) * float((slope + 1).sum()) + _ROUNDING * n_steps * abs(low)
        lowest = n_steps * low + (high - low) * float(offset.sum()) - rounding
        scores.append(StepScore(np.concatenate([[0.0], np.cumsum(slope)]), lowest))
    return scores


def _shifts(steps: Floats | Counts, scaled_budget: float, n_steps: int) -> Floats:
    """Return the scaled norm of all perturbations up to each step."""
    shifts: Floats = scaled_budget * np.sqrt(steps / n_steps)
    return shifts


@dataclass(frozen=True, eq=False)
class SumScore:
    """The score of (c): along straight lines through (``knots``, heights) at what the return surely is.

    ``heights``  for each step, what is known after it adds at each knot, the first of them the floor
    """

    knots: Floats
    heights: Mapping[int, Floats]
    lowest: float

    def __call__(self, rewards: RewardRuns) -> Floats:
        """Score episodes."""
        scores = np.full(rewards.size, self.lowest)
        for step, heights in self.heights.items():
            column = int(np.flatnonzero(rewards.asked == step)[0])
            scores += np.interp(rewards.sure[:, column], self.knots, heights)
        return scores


def sum_score(
    points: Floats, survival: Floats, steps: Floats, scaled_budget: float, limits: RewardRuns, floor: float
) -> SumScore:
    """Return the score of guesses of P(K_t >= point), t the step that is named for each point (c).

    E psi <= V_c for all rewards, all guesses in [0, 1) and all steps, good or bad.

    Args:
        points: Points above the floor, ascending; ``survival`` has a guess for each, ``steps`` a step that is asked.
        scaled_budget: What the budgets of all steps add up to, in units of sigma.
        limits: Rewards with the same limits as those that are scored.
        floor: No return is below it.
    """
    knots = np.concatenate([[floor], points])
    gaps = np.diff(knots)
    slopes, offsets = tangent_lines(survival, _shifts(steps, scaled_budget, limits.n_steps))
    heights = {}
    for step in np.unique(steps).tolist():
        rises = np.where(steps == step, gaps * slopes, 0.0)
        heights[int(step)] = np.concatenate([[0.0], np.cumsum(rises)])
    # of the sums of all rewards, too
    summed = limits.n_steps * (limits.high - limits.low) * (1 + float(slopes.max(initial=0.0)))
    rounding = _ROUNDING * (float(gaps @ (slopes + 1)) + abs(floor) + summed)
    return SumScore(knots, heights, floor + float(gaps @ offsets) - rounding)


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
        """Return the score that guesses make: one for each step (b), or for points, with a step for each (c).

        Raises:
            ValueError: If the mean of the score could exceed the worst-case mean.
        """
        rewards = self.rewards
        if guesses is None:
            raise ValueError("a score of rewards needs guesses")
        if not rewards.are_within(self.outcomes, floor, rewards.ceiling):
            raise ValueError(f"no return may be below the floor {floor}")
        points, means, *times = guesses
        if not np.all((means >= 0) & (means < 1)):
            raise ValueError("guesses of a probability must be in [0, 1)")
        if not times:
            if means.shape != (rewards.n_steps,):
                raise ValueError("guesses need one probability for each step")
            [score] = step_scores(means[None], scaled_budget, rewards.n_steps, rewards.low, rewards.high)
            return score
        [steps] = times
        if not points.shape == means.shape == steps.shape or not np.all(np.diff(points, prepend=floor) >= 0):
            raise ValueError("guesses need points that ascend from the floor, and a probability and a step for each")
        if not np.isin(steps, rewards.asked).all():
            raise ValueError("guesses are of steps that nothing was asked after")
        return sum_score(points, means, steps, scaled_budget, rewards, floor)
