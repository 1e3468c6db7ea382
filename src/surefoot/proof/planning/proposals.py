"""Guesses of survival probabilities that scores are made of (``tangent_scores``), and the plug-in estimate.

A score is best if its guesses are not estimates of S(y) = P(X >= y) but what will be proved of it: with a bound r of S
the tangent at q says g(q) + g'(q) (r - q), most of all at q = r. So guesses stay below what the past shows by a margin,
as upper bounds of a count of missing outcomes do. That also keeps the slope g' below w(u0) = exp(-c Phi^-1(u0) - c^2 /
2), where u0 is the margin, the cut-off, for outcomes that never missed, and with it the range of the score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from surefoot.proof.bounds.bands import Counts
from surefoot.proof.bounds.gaussian_shift import shift_down
from surefoot.proof.bounds.reset_luck import LuckyReturns, OrderedLuck, luck_score
from surefoot.proof.bounds.samples import OrderedOutcomes, Sample
from surefoot.proof.bounds.seed_groups import GroupScore, OrderedGroups, SeedGroups
from surefoot.proof.bounds.step_scores import OrderedRewards, RewardRuns, step_scores
from surefoot.proof.bounds.tangent_scores import Guesses, PlainScore, Score, tangent_scores
from surefoot.proof.planning.luck_fit import fit_luck

Floats = NDArray[np.float64]
# what a plan is made of: returns in no order, the rewards of episodes, the returns of seeds, or returns with their luck
Past = Sample | RewardRuns | SeedGroups | LuckyReturns

MOST_GROUPS = 256  # groups of outcomes that a plan distinguishes
LARGEST_SCALED_BUDGET = 30.0  # beyond, no guess below 1 gives anything that a float can distinguish from 0
_POINTS = 600  # at most, that guesses are made for
_MOST_SUMS = 64  # the same for what the return surely is after some steps
_EVEN_STEPS = 9  # of them evenly, and as many where rewards change
_LATE_STEPS = 8  # and so many after nearly all changes
_WORTH_ASKING = 0.01  # of what is left of the pilot at most: T8 must leave so much more than T4
_SMOOTHING = 0.1  # outcomes added to those below each threshold: unseen is not impossible
_CUTOFFS = np.geomspace(0.1, 10.0, 7)  # in outcomes of all that will be run
_FEWEST_DRAWS = 25  # of the past, for guesses of their own
_FEWEST_SEEDS = 8  # of the past, to try on one half what the other half teaches
_MOST_LEVELS = 32  # of luck that are distinguished
_FEWEST_LOW = 12  # in the lowest levels
_BORROWED = 20.0  # draws that all other levels count for
_LEVELS_OF_LUCK = ((0.0, 1), (0.0, 4), (1.0, 16))  # by how much luck moves returns, and how many levels it has
_STRETCH = 1.6  # more than that, as high levels are rare
_USUAL = 0.95  # of seeds, whose draws differ by no more than the reach
_BELOW = (0, 5, 17)  # draws of the past that may be below the only level


@dataclass(frozen=True, eq=False)
class Proposal:
    """A score to bet on, the guesses that it is made of, and the cut-off that they were made with.

    ``tried``  what the past scores by guesses in which the scored had no part; None: what the score says of it
    """

    score: Score
    guesses: Guesses | None = None
    cutoff: float | None = None
    tried: Floats | None = None


def known_of(past: OrderedOutcomes) -> Past:
    """Return what a plan may be made of."""
    if isinstance(past, OrderedRewards):
        return past.rewards
    if isinstance(past, OrderedGroups):
        return past.groups
    if isinstance(past, OrderedLuck):
        return past.episodes
    return past.sample()


def propose_scores(past: Past, expected: float | None, *, scaled_budget: float, floor: float) -> list[Proposal]:
    """Return one score per cut-off, around one outcome in all ``expected``; None expects as many as there were."""
    if scaled_budget > LARGEST_SCALED_BUDGET:
        return []
    if scaled_budget == 0 and isinstance(past, Sample | LuckyReturns):
        return [Proposal(PlainScore(floor))]
    if scaled_budget == 0 and isinstance(past, SeedGroups):
        return [Proposal(GroupScore(np.empty(0), 0.0, [PlainScore(floor)], past.n_draws))]
    # the fewer outcomes there will be, the less can be proved of thresholds that are rarely missed
    total = 2 * past.size if expected is None else expected
    if isinstance(past, SeedGroups):
        total *= past.n_draws
    cutoffs = [min(0.5, float(many) / total) for many in _CUTOFFS]
    if isinstance(past, SeedGroups):
        return _propose_group_scores(past, cutoffs, scaled_budget, floor)
    if isinstance(past, LuckyReturns):
        return _propose_luck_scores(past, cutoffs, scaled_budget, floor)
    proposals = []
    scores: list[Score]
    if isinstance(past, RewardRuns):
        if scaled_budget == 0:
            # the score of all guesses is the return
            cutoffs = cutoffs[:1]
        points = np.arange(1.0, past.n_steps + 1)
        survival = guess_step_means(past, cutoffs)
        scores = [*step_scores(survival, scaled_budget, past.n_steps, past.low, past.high)]
        proposals += _propose_sum_scores(past, cutoffs, scaled_budget, floor)
    else:
        points, survival = guess_survival(past, cutoffs, floor)
        scores = [*tangent_scores(points, survival, scaled_budget, floor)]
    for score, guess, cutoff in zip(scores, survival, cutoffs, strict=True):
        proposals.append(Proposal(score, (points, guess), cutoff))
    return proposals


@dataclass(frozen=True)
class _Way:
    """A way to tell by the other draws of a seed how lucky it is.

    ``n_levels``   how many levels of luck are distinguished
    ``by_lowest``  by the lowest of the other draws alone, else by about their mean
    ``n_below``    how many draws of the past are below all levels
    """

    n_levels: int
    by_lowest: bool = False
    n_below: int = 0


def _propose_group_scores(
    past: SeedGroups, cutoffs: Sequence[float], scaled_budget: float, floor: float
) -> list[Proposal]:
    """Return scores that tell luck in all ways for which the past has enough draws."""
    ways = [_Way(n_levels) for n_levels in level_counts(past)]
    if len(ways) == 1 or past.size < _FEWEST_SEEDS:
        return _propose_way(past, _Way(1), cutoffs, scaled_budget, floor)
    # where there is no luck one level is best, and the lowest of the others says how low a whole group can be
    ways += [_Way(1, by_lowest=True, n_below=n_below) for n_below in _BELOW]
    halves = (SeedGroups(past.returns[::2]), SeedGroups(past.returns[1::2]))
    proposals = []
    for way in ways:
        # many levels fit the groups that they were made of, luck or not: each half is scored by guesses of the other
        by_second, by_first = (_propose_way(half, way, cutoffs, scaled_budget, floor) for half in halves[::-1])
        proposed = _propose_way(past, way, cutoffs, scaled_budget, floor)
        for proposal, of_second, of_first in zip(proposed, by_second, by_first, strict=True):
            tried = np.empty(past.size)
            tried[::2] = of_second.score(halves[0])
            tried[1::2] = of_first.score(halves[1])
            # what half of the past teaches to bet on may fall lower
            proposals.append(replace(proposal, tried=np.maximum(tried, proposal.score.lowest)))
    return proposals


def _propose_way(
    past: SeedGroups, way: _Way, cutoffs: Sequence[float], scaled_budget: float, floor: float
) -> list[Proposal]:
    """Return scores that tell luck in one way, one per cut-off."""
    points = group_values(Sample.of(past.returns.ravel()), _POINTS).values
    points = points[points > floor]
    reach = 0.0 if way.by_lowest else typical_reach(past)
    luck = past.luck(reach)
    cuts = level_cuts(luck, way.n_levels)
    # for each cut-off the guesses of every level
    levels = [_guess_below(*known, cutoffs) for known in _missed_by_level(past.returns, luck, cuts, points)]
    # below all luck that was seen nothing is guessed, so that the score cannot fall far there
    lost = np.zeros((len(cutoffs), 1, points.size))
    lowest = np.nextafter(luck.min(), -np.inf)
    if way.n_below > 0:
        lowest = np.sort(luck, axis=None)[way.n_below - 1]
    ends = np.concatenate([[lowest], cuts])
    proposals = []
    for survival, cutoff in zip(np.concatenate([lost, np.stack(levels, axis=1)], axis=1), cutoffs, strict=True):
        score = GroupScore(ends, reach, tangent_scores(points, survival, scaled_budget, floor), past.n_draws)
        proposals.append(Proposal(score, (points, survival, ends, np.array([reach])), cutoff))
    return proposals


def _propose_luck_scores(
    past: LuckyReturns, cutoffs: Sequence[float], scaled_budget: float, floor: float
) -> list[Proposal]:
    """Return scores with some levels of luck, of the returns and of what luck leaves of them."""
    weights = fit_luck(past)
    luck = past.luck(weights)
    proposals = []
    for move, most in _LEVELS_OF_LUCK:
        # where luck moves returns, all levels have the same guesses, but for the cut-off
        n_levels = most if move > 0 else min(most, max(1, past.size // _FEWEST_DRAWS))
        ends = np.array([luck.min(), luck.max(), move])
        cuts = level_cuts(luck, n_levels)
        left = past.returns - move * luck
        # what is left is never lower, at each level
        begins = floor - move * np.append(cuts, ends[1])
        points = np.union1d(group_values(Sample.of(left), _POINTS).values, begins)
        points = points[points > begins[-1]]
        if move > 0:
            # after any luck the same
            missed = np.searchsorted(np.sort(left), points).astype(np.float64)
            known = [(missed, float(past.size))] * begins.size
        else:
            known = _missed_by_level(left, luck, cuts, points)
        stretches = _stretch_by_level(left, np.searchsorted(cuts, luck), begins) / scaled_budget
        guesses_of = []
        for counts, stretch, begin in zip(known, stretches.tolist(), begins.tolist(), strict=True):
            survival = _guess_below(*counts, ndtr(ndtri(np.minimum(cutoffs, 0.3)) + stretch).tolist())
            # nothing is below, and a guess there would only lower the lowest score
            survival[:, points <= begin] = 0.0
            guesses_of.append(survival)
        for survival, cutoff in zip(np.stack(guesses_of, axis=1), cutoffs, strict=True):
            guesses = (points, survival, cuts, weights, ends)
            scores = tangent_scores(points, survival, scaled_budget, float(begins[-1]))
            proposals.append(Proposal(luck_score(scores, guesses, scaled_budget, floor), guesses, cutoff))
    return proposals


def _stretch_by_level(left: Floats, level: NDArray[np.intp], begins: Floats) -> Floats:
    """Return how much more there is to lose at each level of luck than usually, as a logarithm.

    Bets are limited by the lowest score of all. It is about the same at every level if the slope of its score is as
    much less as there is more to lose.
    """
    depths = np.array([np.median(left[level == index]) - begin for index, begin in enumerate(begins.tolist())])
    usual = max(float(np.median(depths)), 1e-300)
    stretches: Floats = _STRETCH * np.clip(np.log(np.maximum(depths / usual, 1e-300)), -1.0, 1.0)
    return stretches


def typical_reach(past: SeedGroups) -> float:
    """Return by how much the draws of a seed usually differ at most."""
    return float(np.quantile(np.ptp(past.returns, axis=1), _USUAL))


def level_counts(past: SeedGroups) -> list[int]:
    """Return which numbers of levels of luck the past has enough draws for."""
    most = min(_MOST_LEVELS, past.returns.size // _FEWEST_DRAWS)
    return [2**k for k in range(max(1, most).bit_length())]


def level_cuts(luck: Floats, n_levels: int) -> Floats:
    """Return where levels of luck end: about equally many draws in each, and fewer and fewer in the lowest ones."""
    shares = list(np.arange(1, n_levels) / n_levels)
    share = 1 / n_levels / 2
    while n_levels > 1 and share * luck.size >= _FEWEST_LOW:
        shares.insert(0, share)
        share /= 2
    if not shares:
        return np.empty(0)
    # values that came, and none above all others: no level is empty
    cuts = np.unique(np.quantile(luck, shares, method="lower"))
    below: Floats = cuts[cuts < luck.max()]
    return below


def _missed_by_level(returns: Floats, luck: Floats, cuts: Floats, points: Floats) -> list[tuple[Floats, float]]:
    """Return for each level how many draws missed each point, as if all draws of the past had been of that level.

    A level has few draws, and where none of them missed a point the others say how likely that is: their distances from
    the mean of their own level, in standard deviations, count like a few more draws of this one.
    """
    level = np.searchsorted(cuts, luck)
    of_level = [returns[level == index] for index in range(cuts.size + 1)]
    means = [float(draws.mean()) for draws in of_level]
    widths = [max(float(draws.std()), 1e-300) for draws in of_level]
    distances = [(draws - mean) / width for draws, mean, width in zip(of_level, means, widths, strict=True)]
    everywhere = np.sort(np.concatenate(distances))
    found = []
    for draws, mean, width in zip(of_level, means, widths, strict=True):
        elsewhere = np.searchsorted(everywhere, (points - mean) / width) / everywhere.size
        missed = np.searchsorted(np.sort(draws), points)
        share = (missed + _BORROWED * elsewhere) / (draws.size + _BORROWED)
        found.append((share * everywhere.size, float(everywhere.size)))
    return found


def guess_survival(past: Sample, cutoffs: Sequence[float], floor: float) -> tuple[Floats, Floats]:
    """Return thresholds above the floor and, for each cut-off, guesses of what will be proved of P(X >= threshold)."""
    rough = group_values(past, _POINTS)
    n = float(rough.counts.sum())
    missed = np.cumsum(rough.counts) - rough.counts
    above = rough.values > floor
    return rough.values[above], _guess_below(missed[above], n, cutoffs)


def guess_step_means(past: RewardRuns, cutoffs: Sequence[float]) -> Floats:
    """Return, for each cut-off, guesses of what will be proved of the mean share of the reward at each step."""
    return _guess_below(past.size * (1 - mean_shares(past)), past.size, cutoffs)


def steps_to_ask(pilot: RewardRuns, scaled_budgets: Floats, floor: float) -> Counts:
    """Return the steps after which it is asked what the return surely is: none where that is worth nothing.

    It is where the pilot itself has a higher worst-case mean by T8, with the best step for each return, than by T4.
    """
    # runs of rewards end where something changes, and the last ones decide most
    near_end = 1 - np.geomspace(0.05, 0.002, _LATE_STEPS)
    places = np.concatenate([np.linspace(0, 1, _EVEN_STEPS), near_end])
    often = np.quantile(pilot.ends, places, method="inverted_cdf")
    even = np.ceil(np.linspace(0, 1, _EVEN_STEPS)[1:] * pilot.n_steps)
    steps = np.unique(np.concatenate([often, even]).astype(np.int64))
    asked = pilot.asked_after(steps)
    by_sums = _plug_in_by_sums(asked, scaled_budgets, floor)
    by_steps = _plug_in_by_steps(pilot, scaled_budgets)
    if np.any(by_sums > by_steps + _WORTH_ASKING * (by_sums.max() - floor)):
        return steps
    return steps[:0]


def _propose_sum_scores(
    past: RewardRuns, cutoffs: Sequence[float], scaled_budget: float, floor: float
) -> list[Proposal]:
    """Return scores of what the return surely is: for each point by the step at which most is left of the guess."""
    if past.asked.size == 0:
        return []
    points, missed = _missed_sums(past, floor)
    shifts = scaled_budget * np.sqrt(past.asked / past.n_steps)
    ordered = OrderedRewards(past, past.sure[:, -1])
    proposals = []
    for cutoff in cutoffs:
        [flat] = _guess_below(missed.ravel(), past.size, [cutoff])
        guesses = flat.reshape(missed.shape)
        best = shift_down(guesses, shifts[:, None]).argmax(axis=0)
        guess = guesses[best, np.arange(points.size)]
        steps = past.asked[best].astype(np.float64)
        all_guesses = (points, guess, steps)
        proposals.append(Proposal(ordered.make_score(all_guesses, scaled_budget, floor), all_guesses, cutoff))
    return proposals


def _missed_sums(past: RewardRuns, floor: float) -> tuple[Floats, Floats]:
    """Return points above the floor, and how many episodes are not sure to reach each after each step asked."""
    # after the last step that is asked all episodes are over: what is sure is the return
    points = group_values(Sample.of(past.sure[:, -1]), _MOST_SUMS).values
    points = points[points > floor]
    missed = [np.searchsorted(np.sort(sure), points) for sure in past.sure.T]
    return points, np.array(missed, dtype=np.float64)


def mean_shares(past: RewardRuns) -> Floats:
    """Return the mean of (r_t - low) / (high - low) at each step t."""
    # what a run pays from its first step to its last, by what begins and ends at each
    size = past.n_steps + 1
    change = np.bincount(past.begins, past.values, size) - np.bincount(past.ends, past.values, size)
    means = (np.cumsum(change[:-1]) / max(1, past.size) - past.low) / (past.high - past.low)
    return np.clip(means, 0.0, 1.0)


def _guess_below(missed: Floats, n: float, cutoffs: Sequence[float]) -> Floats:
    """Return probabilities, a row per cut-off: a share u that missed is u + sqrt(2 u cutoff) + cutoff at most, roughly.

    That is Chernoff's inequality.
    """
    short = (missed + _SMOOTHING) / (n + 2 * _SMOOTHING)
    margin = np.array(cutoffs)[:, None]
    likely: Floats = 1 - np.minimum(short + np.sqrt(2 * short * margin) + margin, np.maximum(short, 0.5))
    return likely


_grouped: WeakKeyDictionary[Sample, dict[int, Sample]] = WeakKeyDictionary()


def group_values(sample: Sample, most: int = MOST_GROUPS) -> Sample:
    """Return about the same sample with fewer values, every one of the smallest kept: for plans, not for bounds."""
    if sample.values.size <= most:
        return sample
    known = _grouped.setdefault(sample, {})
    if most not in known:  # planners at all scaled budgets read the same
        known[most] = _merge_values(sample, most)
    return known[most]


def _merge_values(sample: Sample, most: int) -> Sample:
    starts = group_starts(sample.counts, most)
    counts = np.add.reduceat(sample.counts, starts)
    return Sample(np.add.reduceat(sample.values * sample.counts, starts) / counts, counts)


def group_starts(counts: Floats, most: int = MOST_GROUPS) -> NDArray[np.intp]:
    """Return where groups of values begin that are in ascending order and came so often."""
    below = np.cumsum(counts) - counts
    place = np.maximum(below / below[-1], 0)
    # a third of the groups for the smallest values one by one, a third on a log scale, a third evenly
    third = most // 3
    marks = np.concatenate([place[:third], np.geomspace(place[third], 1, third), np.linspace(0, 1, third)])
    return np.unique(np.searchsorted(place, marks))


def plug_in_means(sample: Past, scaled_budgets: Floats, floor: float) -> Floats:
    """Return the worst-case mean of the sample itself: an estimate, too high on average, never a bound."""
    if isinstance(sample, RewardRuns):
        of_steps = _plug_in_by_steps(sample, scaled_budgets)
        if sample.asked.size == 0:
            return of_steps
        return np.maximum(of_steps, _plug_in_by_sums(sample, scaled_budgets, floor))
    if isinstance(sample, SeedGroups):
        luck = sample.luck(typical_reach(sample))
        level = np.searchsorted(level_cuts(luck, level_counts(sample)[-1]), luck)
        total = np.zeros(scaled_budgets.size)
        for index in np.unique(level):
            returns = Sample.of(sample.returns[level == index])
            total += plug_in_means(returns, scaled_budgets, floor) * returns.size / level.size
        return total
    if isinstance(sample, LuckyReturns):
        luck = sample.luck(fit_luck(sample))
        level = np.searchsorted(level_cuts(luck, max(1, min(16, sample.size // _FEWEST_DRAWS))), luck)
        total = np.zeros(scaled_budgets.size)
        for index in np.unique(level):
            here = luck[level == index]
            left = Sample.of(sample.returns[level == index] - here)
            of_level = plug_in_means(left, scaled_budgets, floor - float(here.max())) + here.mean()
            total += np.maximum(of_level, floor) * here.size / luck.size
        return total
    n = sample.counts.sum()
    survival = (n - np.cumsum(sample.counts) + sample.counts) / n
    gaps = np.diff(sample.values, prepend=floor)
    return np.array([floor + float(gaps @ shift_down(survival, scaled)) for scaled in scaled_budgets])


def _plug_in_by_steps(rewards: RewardRuns, scaled_budgets: Floats) -> Floats:
    """Return T4 of the episodes themselves."""
    roots = np.sqrt(np.arange(1, rewards.n_steps + 1) / rewards.n_steps)
    left = shift_down(mean_shares(rewards), scaled_budgets[:, None] * roots).sum(axis=1)
    worst: Floats = rewards.floor + (rewards.high - rewards.low) * left
    return worst


def _plug_in_by_sums(rewards: RewardRuns, scaled_budgets: Floats, floor: float) -> Floats:
    """Return T8 in one segment of the episodes themselves, with the best step that is asked for each point."""
    points, missed = _missed_sums(rewards, floor)
    roots = np.sqrt(rewards.asked / rewards.n_steps)[:, None]
    known = 1 - missed / rewards.size
    gaps = np.diff(points, prepend=floor)
    return np.array([floor + float(gaps @ shift_down(known, scaled * roots).max(axis=0)) for scaled in scaled_budgets])
