"""When planners choose, and what they choose with."""

import numpy as np
import pytest

from surefoot.proof.bounds.samples import Sample
from surefoot.proof.planning.alpha_shares import split
from surefoot.proof.planning.bettors import doubling_edges, edges_for, growing_edges, pilot_size
from surefoot.proof.planning.proposals import group_values


def test_samples_may_be_grouped_without_losing_the_smallest():
    x = np.random.default_rng(2).random(10_000)
    rough = group_values(Sample.of(x))
    assert rough.values.size <= 256
    assert rough.counts.sum() == 10_000
    assert rough.values[:80] == pytest.approx(np.sort(x)[:80])
    assert rough.values @ rough.counts == pytest.approx(x.sum())


def test_edges_begin_with_the_pilot_and_end_with_all():
    assert doubling_edges(10_000) == [300, 600, 1200, 2400, 4800, 10_000]
    grown = [30, 33, 37, 41, 46, 51, 57, 64, 72, 81, 91, 102, 114, 128, 144, 162, 182, 204, 229, 257]
    assert edges_for(300) == [*grown, 300]
    assert edges_for(1) == [1, 1]
    assert edges_for(20, first=3) == [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20]
    assert pilot_size(10**6) == 2000
    assert growing_edges()[:3] == [100, 150, 225]


def test_the_fewer_returns_were_inspected_the_more_budgets_get_that_they_promise_nothing_for():
    """All returns were the ceiling or close to it: what a bet at four sigma would bring cannot be predicted."""
    budgets = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    beyond = []
    for n in (10, 63, 200, 632):
        past = Sample.of(np.tile([9.0, 10.0], n // 2 + 1)[:n])
        shares = split(past, budgets, 0.05, 0.0, 10.0, n * n / 4)
        assert shares.sum() <= 0.05
        last = np.flatnonzero(np.diff(shares, append=-1.0) != 0)[-2]
        beyond.append(float(shares[last + 1 :].sum()) / 0.05)
    assert beyond == pytest.approx([0.5, 20 / 63, 0.1, 0.1], abs=1e-6)
