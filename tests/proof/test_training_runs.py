"""Algorithms compared by their training runs: the middle half of the scores, and intervals for it."""

import pytest

from surefoot.proof.training_runs import compare_training_runs

SCORES = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 60.0, 700.0]


def test_the_interquartile_mean_is_that_of_the_middle_half():
    """The best run and the worst ones count for nothing, and A minus B is not B minus A."""
    compared = compare_training_runs(SCORES, [score + 10 for score in SCORES])
    assert compared.iqm == (3.5, 13.5)
    assert compared.difference == -10.0
    low, high = compared.interval
    assert low < -10.0 < high
    for (below, above), middle in zip(compared.intervals, compared.iqm, strict=True):
        assert below < middle < above


def test_an_interval_is_wider_with_more_confidence_and_the_same_each_time():
    widths = []
    for confidence in (0.5, 0.9):
        low, high = compare_training_runs(SCORES, SCORES, confidence).interval
        assert (low, high) == compare_training_runs(SCORES, SCORES, confidence).interval
        widths.append(high - low)
    assert 0 < widths[0] < widths[1]


def test_equal_runs_have_no_interval_to_speak_of():
    compared = compare_training_runs([5.0] * 4, [3.0] * 4)
    assert compared.interval == pytest.approx((2.0, 2.0))
    assert "Not separated" not in str(compared)
