"""Intervals for a difference of mean returns: coverage for many pairs of laws and kinds of dependence, laws, pairing.

Misses are counted with fixed seeds and compared with Binomial(runs, alpha) at a false-alarm level of 1e-6
(``laws.FALSE_ALARM``); lower and upper ends together, as the interval promises.
"""

import numpy as np
import pytest
from scipy import stats

from laws import DEPENDENCES, LAWS_OF_PAIRS, QUANTILES, draw_pairs, too_many
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.proof.difference import Pairs, difference_interval, pair_up
from surefoot.proof.planning.strategies import worst_means

ALPHA, N, RUNS = 0.2, 30, 10  # of each cell; bench/compare.py --coverage has 120 of each


def misses(laws, dependence, interval, runs=RUNS, seed=7):
    rng = np.random.default_rng(seed)
    truth = QUANTILES[laws[0]][1] - QUANTILES[laws[1]][1]
    wrong = 0
    for _ in range(runs):
        low, high = interval(*draw_pairs(laws, dependence, rng, N))
        wrong += not low <= truth <= high
    return wrong


def ends(pairing, alpha=ALPHA):
    def interval(x, y):
        found = difference_interval(Pairs(pairing, x, y, 0.0, 1.0), alpha)
        return found.low, found.high

    return interval


@pytest.mark.parametrize("dependence", DEPENDENCES)
def test_the_difference_is_missed_no_more_often_than_promised(dependence):
    wrong = sum(misses(laws, dependence, ends("seeds")) for laws in LAWS_OF_PAIRS)
    assert not too_many(wrong, RUNS * len(LAWS_OF_PAIRS), ALPHA)


@pytest.mark.parametrize("dependence", DEPENDENCES)
def test_without_knowing_how_episodes_belong_together_any_dependence_is_covered(dependence):
    assert not too_many(misses(("uniform", "bowl"), dependence, ends("unknown")), RUNS, ALPHA)


def test_without_pairs_each_of_four_bounds_has_a_quarter_of_alpha():
    """Two ends, each the difference of two bounds: at half of alpha each, the interval would be wrong too often."""
    rng = np.random.default_rng(2)
    x, y = draw_pairs(("high", "uniform"), "same randomness", rng, 50)
    found = difference_interval(Pairs("unknown", x, y, 0.0, 1.0), 0.2)
    quarter = 0.05
    low_x, low_y = (worst_means(one, [0.0], quarter, 0.0, 1.0).at(0.0) for one in (x, y))
    high_x, high_y = (-worst_means(-one, [0.0], quarter, -1.0, 0.0).at(0.0) for one in (x, y))
    assert (found.low, found.high) == pytest.approx((low_x - high_y, high_x - low_y), abs=1e-8)


def one_sided_error(x, y):
    """A planted error: the interval of a normal mean, each side of which has all of alpha."""
    d = x - y
    reach = stats.norm.isf(ALPHA) * d.std() / np.sqrt(d.size)
    return d.mean() - reach, d.mean() + reach


def repeated_rows(x, y):
    """A planted error: rows shifted by one, which are no pairs, and repeated as if there were more of them."""
    return ends("seeds")(np.tile(x, 6), np.tile(np.roll(y, 1), 6))


@pytest.mark.parametrize(
    ("planted", "laws", "runs"),
    [(one_sided_error, ("rare failure", "constant"), 400), (repeated_rows, ("uniform", "uniform"), 45)],
    ids=["alpha not halved for two sides", "rows that are not independent"],
)
def test_planted_errors_are_noticed_by_that_test(planted, laws, runs):
    assert too_many(misses(laws, "opposite", planted, runs), runs, ALPHA)


def test_intervals_shrink_with_episodes_and_grow_with_confidence():
    rng = np.random.default_rng(1)
    x, y = draw_pairs(("high", "uniform"), "same randomness", rng, 800)
    whole = difference_interval(Pairs("seeds", x, y, 0.0, 1.0), 0.05)
    part = difference_interval(Pairs("seeds", x[:200], y[:200], 0.0, 1.0), 0.05)
    surer = difference_interval(Pairs("seeds", x, y, 0.0, 1.0), 0.01)
    assert part.resolution > whole.resolution
    assert surer.low < whole.low < x.mean() - y.mean() < whole.high < surer.high


def test_limits_move_and_scale_with_the_returns():
    rng = np.random.default_rng(1)
    x, y = draw_pairs(("high", "bowl"), "same randomness", rng, 300)
    plain = difference_interval(Pairs("seeds", x, y, 0.0, 1.0), 0.05)
    moved = difference_interval(Pairs("seeds", 20 * x - 5, 20 * y - 5, -5.0, 15.0), 0.05)
    swapped = difference_interval(Pairs("seeds", y, x, 0.0, 1.0), 0.05)
    assert (moved.low / 20, moved.high / 20) == pytest.approx((plain.low, plain.high), rel=1e-6)
    assert (-swapped.high, -swapped.low) == pytest.approx((plain.low, plain.high), rel=1e-9)


def record(returns, **metadata):
    return Episodes.from_returns(returns, sigma=0.1, floor=0.0, ceiling=1.0, **metadata)


RUN = {"seed": 5, "purpose": [], "n_envs": 4, "block_size": 4, "device": "cpu", "task": "t"}


@pytest.mark.parametrize(
    ("a", "b", "pairing"),
    [
        (RUN, RUN, "seeds"),
        (RUN, {**RUN, "agent": "other", "attacker": {}}, "seeds"),
        (RUN, {**RUN, "seed": 6}, "independent"),
        (RUN, {**RUN, "purpose": [5]}, "independent"),
        (RUN, {**RUN, "n_envs": 2, "block_size": 2}, "unknown"),
        # An environment that runs several episodes, agents that draw, another device: draws are shared otherwise.
        ({**RUN, "n_envs": 2}, {**RUN, "n_envs": 2}, "unknown"),
        (RUN, {**RUN, "n_envs": 2}, "unknown"),
        ({**RUN, "n_envs": 2}, RUN, "unknown"),
        (RUN, {**RUN, "stochastic": True}, "unknown"),
        ({**RUN, "budget": 0.1}, {**RUN, "budget": 0.2}, "unknown"),
        ({**RUN, "budget": 0.0}, {**RUN, "budget": 0.2}, "seeds"),
        (RUN, {**RUN, "device": "cuda"}, "unknown"),
        ({}, {}, "unknown"),
        (RUN, {"task": "t"}, "unknown"),
        ({"episode_seeds": [3, 1, 2, 9]}, {"episode_seeds": [1, 2, 3, 4]}, "seeds"),
        ({"episode_seeds": [3, 1, 2, 9]}, {}, "unknown"),
    ],
)
def test_episodes_are_paired_by_what_they_were_run_with(a, b, pairing):
    assert pair_up(record([0.1, 0.2, 0.3, 0.4], **a), record([0.4, 0.3, 0.2, 0.1], **b)).pairing == pairing


def test_files_are_put_together_by_seed_and_not_by_row():
    a = record([0.3, 0.1, 0.2, 0.9], episode_seeds=[3, 1, 2, 9])
    b = record([0.1, 0.2, 0.3, 0.4], episode_seeds=[1, 2, 3, 4])
    pairs = pair_up(a, b)
    assert pairs.names == (3, 1, 2)
    assert not pairs.differences.any()


def test_independent_runs_of_different_lengths_are_used_whole():
    pairs = pair_up(record([0.0, 1.0, 0.2, 0.4, 1.0], **RUN), record([0.1, 0.2], **{**RUN, "seed": 9}))
    assert pairs.a.tolist() == pytest.approx([0.5, 0.3])


@pytest.mark.parametrize(("n_b", "only_wins"), [(4, True), (3, True), (2, False)])
def test_a_mean_of_two_episodes_is_neither_won_nor_lost(n_b, only_wins):
    a = record([1.0, 0.0, 1.0, 1.0], **RUN, binary=True)
    b = record([0.0, 1.0, 0.0, 0.0][:n_b], **{**RUN, "seed": 9}, binary=True)
    assert pair_up(a, b).only_wins == only_wins


def test_what_cannot_be_compared_is_refused():
    fine = record([0.1, 0.2], **RUN)
    for other, said in (
        (record([0.1], **{**RUN, "task": "u"}), "one task"),
        (Episodes.from_returns([0.1], sigma=0.1, floor=0.0, ceiling=2.0, **RUN), "ceiling 1.0 and 2.0"),
    ):
        with pytest.raises(InputError, match=said):
            pair_up(fine, other)
    open_end = Episodes.from_returns([0.1], sigma=0.1, floor=0.0)
    with pytest.raises(InputError, match="needs a ceiling"):
        pair_up(open_end, open_end)
    with pytest.raises(InputError, match="no seed in common"):
        pair_up(record([0.1], episode_seeds=[1]), record([0.1], episode_seeds=[2]))
    for seeds in ([1, 2], [1, 2, 3, 4], [1, 2, 2]):
        with pytest.raises(InputError, match="one seed for each episode, and none twice"):
            pair_up(record([0.1, 0.2, 0.3], episode_seeds=[1, 2, 3]), record([0.1] * 3, episode_seeds=seeds))
    with pytest.raises(InputError, match="won or lost"):
        pair_up(record([0.5], binary=True), record([1.0], binary=True))


@pytest.mark.parametrize("size", [6, 7, 11])
def test_means_of_equal_returns_stay_within_floor_and_ceiling(size):
    """In floats the mean of six returns of 0.7 is above 0.7, and the difference to the floor beyond the range."""
    assert np.full(size, 0.7).mean() > 0.7
    facts = {"floor": 0.0, "ceiling": 0.7, "sigma": 0.0, "block_size": 8}
    lost = Episodes.from_returns(np.zeros(30), seed=1, **facts)
    won = Episodes.from_returns(np.full(30 * size, 0.7), seed=2, **facts)
    pairs = pair_up(lost, won)
    assert pairs.pairing == "independent"
    assert np.all(pairs.differences == -0.7)
    assert difference_interval(pairs, 0.05).high < 0
