"""When planners choose, and what they choose with."""

import numpy as np
import pytest

from surefoot.proof.bounds.samples import Sample
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
    assert pilot_size(10**6) == 2000
    assert growing_edges()[:3] == [100, 150, 225]
