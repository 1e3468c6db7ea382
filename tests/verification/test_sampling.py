"""How many blocks are rerun: every forgery that raises a bound by more than 1% is noticed with probability 0.99."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from surefoot.verification.recompute.sampling import enough_blocks, least_forgery, miss_probability


@pytest.mark.parametrize(("n_blocks", "n_forged"), [(1, 1), (4, 1), (20, 1), (200, 1), (200, 3), (2_000, 20), (50, 50)])
def test_enough_blocks_are_rerun_and_not_one_more(n_blocks, n_forged):
    """By counting all ways to draw a sample."""
    count = enough_blocks(n_blocks, n_forged)
    miss = [Fraction(math.comb(n_blocks - n_forged, k), math.comb(n_blocks, k)) for k in (count - 1, count)]
    assert miss[1] <= Fraction(1, 100) < miss[0]
    assert miss_probability(n_blocks, n_forged, count) == pytest.approx(float(miss[1]))
    assert miss_probability(n_blocks, n_forged, n_blocks) == 0
    assert miss_probability(n_blocks, n_forged, 0) == 1


def test_one_forged_block_of_2000_is_noticed_where_rare_failures_decide():
    """A million nearly perfect episodes at B = 5 sigma: one block of failures decides the bound."""
    returns = np.full(1_000_000, 200.0)
    returns[:7] = 40.0
    assert least_forgery(returns, 500, [0.0, 1.0, 5.0], 0.0) == 1
    assert enough_blocks(2_000, 1) == 1_980
    assert miss_probability(2_000, 1, 410) == pytest.approx(0.795)


def test_means_without_attack_hang_on_one_episode_in_a_hundred():
    """At budget 0 a forgery of one block of a thousand moves the mean by at most 0.1%; more than ten are needed."""
    returns = np.full(100_000, 200.0)
    assert least_forgery(returns, 100, [0.0], 0.0) == 11


def test_the_least_forgery_is_the_least():
    """Against the worst-case mean computed by its definition, for every number of blocks."""
    rng = np.random.default_rng(0)
    returns = np.round(rng.beta(8, 2, 2_000) * 200)
    radii = [0.0, 1.0, 2.0]

    def worst(values, radius):
        points = np.unique(values)
        survival = np.array([(values >= point).mean() for point in points])
        return float(np.sum(np.diff(points, prepend=0.0) * ndtr(ndtri(survival) - radius)))

    changes = []
    for n_forged in range(1, 21):
        true = np.sort(returns)[: returns.size - n_forged * 20]
        true = np.concatenate([np.zeros(n_forged * 20), true])
        changes.append(any(worst(true, r) < 0.99 * worst(returns, r) for r in radii))
    assert least_forgery(returns, 20, radii, 0.0) == 1 + changes.index(True)
    assert least_forgery(returns + 50, 20, radii, 50.0) == 1 + changes.index(True)
