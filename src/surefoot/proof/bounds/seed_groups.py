"""T6 by groups: several draws of the noise for each seed of the environment, and scores that know how lucky a seed is.

(a) Let Z be all randomness of the environment, drawn before the noise and independent of it. Given Z the episode is a
game of its own, with the survival function S_Z of the return, and T2 holds for it. So under every attack

    E[Y] >= E L_c(Z),      L_c(Z) = floor + int g_c(S_Z(y)) dy,

which is never below L_c of all episodes together, as g_c is convex.

(b) Each seed is run K times, with independent noise: X_1, ..., X_K. Given Z and the other draws of its group, X_k has
the survival function S_Z still. So for ANY guesses q made of the other K - 1 draws and of earlier groups, the tangent
score of X_k (``tangent_scores``) has a mean of at most L_c(Z) given Z, the other draws and the past.

(c) The score of a group is the mean of the K scores. Given the past its mean is at most E L_c(Z), because the groups
are independent. The group is what is bet on once; its draws depend on each other and are never counted one by one.

(d) Which score a draw is given depends on one number, v_k, made of the others: the mean of min(X_j, low_k + w) over
j != k, where low_k is the least of them. Of several scores, all made before the group, the one is used in whose range
v_k is. Let X_1 be the least draw of a group. For any other one low_k = X_1 <= X_k, so v_k <= X_1 + w <= X_k + w: it is
at least v_k - w, and scores at least what its score gives to the lower end of its range minus w. One draw of K alone
can score less than that, and none less than the lowest value of its score. So bets know what they can lose.

(e) What ``tangent_scores`` says of L_c at several scaled budgets is true of E L_c(Z). It falls with c; and for c >= r,
(E L_c(Z) - floor) / range >= E g_(c-r)((L_r(Z) - floor) / range) >= g_(c-r)((E L_r(Z) - floor) / range), by Jensen's
inequality. Without attack E L_0(Z) = E X.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
from numpy.typing import NDArray

from surefoot.proof.bounds.samples import OrderedOutcomes, Sample, Samples
from surefoot.proof.bounds.tangent_scores import Guesses, Score, checked_score

Floats = NDArray[np.float64]

_ROUNDING = 1e-12  # relative: more than the error of the means and ends of ranges


@dataclass(frozen=True, eq=False)
class SeedGroups:
    """Returns of seeds, a row each, with a column for each draw of the noise."""

    returns: Floats

    @property
    def size(self) -> int:
        """The number of groups."""
        return len(self.returns)

    @property
    def n_draws(self) -> int:
        """The number of draws of each."""
        return int(self.returns.shape[1])

    @property
    def means(self) -> Floats:
        """The mean return of each group."""
        return _row_means(self.returns)

    def rows(self, first: int, last: int) -> SeedGroups:
        """Return the groups from one index up to another."""
        return SeedGroups(self.returns[first:last])

    def luck(self, reach: float) -> Floats:
        """Return for each draw the number v made of the others of its seed, with w = ``reach`` (d)."""
        found = np.zeros(self.returns.shape)
        # not (sum - own) / (K - 1): rounding would let a draw have a say in its own guess
        for draw in range(self.n_draws):
            others = [self.returns[:, other] for other in range(self.n_draws) if other != draw]
            highest = np.minimum.reduce(others) + reach
            for other in others:
                found[:, draw] += np.minimum(other, highest)
        return found / (self.n_draws - 1)


def _row_means(table: Floats) -> Floats:
    # rounded, a mean of equal numbers may be another one, which no return is
    # Column by column, because a reduction of many short rows is slow.
    columns = list(table.T)
    means: Floats = np.clip(table.mean(axis=1), reduce(np.minimum, columns), reduce(np.maximum, columns))
    return means


@dataclass(frozen=True, eq=False)
class GroupScore:
    """The mean over the draws of a group of the score of each."""

    cuts: Floats  # between the ranges of v in which each score is used, ascending
    reach: float  # the w of v
    scores: Sequence[Score]  # one more than cuts
    n_draws: int  # how many draws a group has

    @cached_property
    def lowest(self) -> float:
        """The least that a group can score (d)."""
        lowest = min(score.lowest for score in self.scores)
        others = self.scores[0].lowest
        for cut, score in zip(self.cuts.tolist(), self.scores[1:], strict=True):
            # v and v - w are rounded: below by more than that
            end = cut - self.reach - _ROUNDING * (abs(cut) + self.reach)
            others = min(others, float(score(np.array([end]))[0]))
        least = (lowest + (self.n_draws - 1) * others) / self.n_draws
        return least - _ROUNDING * (abs(lowest) + abs(others))

    def __call__(self, groups: SeedGroups) -> Floats:
        """Score groups."""
        # (b) the draw itself has no say in which score it is given
        used = np.searchsorted(self.cuts, groups.luck(self.reach))
        scored = np.empty(groups.returns.shape)
        for index in np.unique(used):
            draws = used == index
            scored[draws] = self.scores[index](groups.returns[draws])
        return _row_means(scored)


class OrderedGroups(OrderedOutcomes):
    """The groups that have come, in their order; ``outcomes`` are their mean returns."""

    def __init__(self, groups: SeedGroups, means: Floats | None = None, samples: Samples | None = None) -> None:
        super().__init__(groups.means if means is None else means, samples)
        self.groups = groups

    def before(self, index: int) -> OrderedGroups:
        """Return the groups before an index and nothing else: what may decide about those from the index on."""
        return OrderedGroups(self.groups.rows(0, index), self.outcomes[:index], self.samples)

    def scored(self, score: Score, first: int, last: int) -> Sample:
        """Return the scores of the groups from one index up to another (c)."""
        return Sample.of(score(self.groups.rows(first, last)))

    def make_score(self, guesses: Guesses | None, scaled_budget: float, floor: float) -> Score:
        """Return the score that guesses make: points, a row of survival probabilities for each score, cuts, w.

        Raises:
            ValueError: If the mean of the score could exceed the worst-case mean.
        """
        n_draws = self.groups.n_draws
        if n_draws < 2:
            raise ValueError(f"a seed needs at least 2 draws of the noise, got {n_draws}")
        if self.groups.returns.min(initial=np.inf) < floor:
            raise ValueError(f"no return may be below the floor {floor}")
        if guesses is None:
            return GroupScore(np.empty(0), 0.0, [checked_score(None, scaled_budget, floor)], n_draws)
        points, survival, cuts, reach = guesses
        if survival.ndim != 2 or len(survival) != cuts.size + 1 or not np.all(np.diff(cuts) >= 0):
            raise ValueError("guesses need a row of probabilities for each range of what the other draws show")
        if reach.shape != (1,) or not 0 <= reach[0] < np.inf:
            raise ValueError("guesses need one finite reach of at least 0")
        scores = [checked_score((points, row), scaled_budget, floor) for row in survival]
        return GroupScore(cuts, float(reach[0]), scores, n_draws)
