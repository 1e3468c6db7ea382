"""Outcomes counted: the same samples however they are counted, and nothing beyond what has come."""

import numpy as np
import pytest

from surefoot.proof.bounds.samples import OrderedOutcomes, Sample


def outcomes_of(kind, n):
    rng = np.random.default_rng(3)
    drawn = {
        "whole": np.where(rng.random(n) < 0.9, 200.0, rng.integers(0, 200, n)),
        "few": rng.choice([-2.5, 0.1, 0.3], n),
        "many": 200 * rng.beta(5, 1, n),
        "large": 2.0**60 + 256 * rng.integers(0, 5, n),
        "negative": -rng.integers(0, 9, n).astype(float),
    }
    return drawn[kind]


@pytest.mark.parametrize("kind", ["whole", "few", "many", "large", "negative"])
@pytest.mark.parametrize("n", [1, 2, 700, 5_000])
def test_a_sample_counts_every_outcome_once(kind, n):
    """From 4,097 on whole numbers are counted in a table."""
    x = outcomes_of(kind, n)
    values, counts = np.unique(x, return_counts=True)
    found = Sample.of(x)
    assert np.array_equal(found.values, values)
    assert np.array_equal(found.counts, counts)
    assert found.size == n


def test_a_sample_is_taken_of_outcomes_that_have_come():
    outcomes = OrderedOutcomes(np.arange(10.0))
    assert outcomes.sample(3, 5).values.tolist() == [3.0, 4.0]
    assert outcomes.sample().size == 10
    past = outcomes.before(4)
    assert past.sample().values.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert past.outcomes.tolist() == [0.0, 1.0, 2.0, 3.0]
    for first, last in ((0, 5), (3, 5), (-1, 2), (3, 2)):
        with pytest.raises(IndexError, match="4 outcomes have come"):
            past.sample(first, last)


def test_what_one_has_counted_is_not_counted_again():
    outcomes = OrderedOutcomes(np.arange(10.0))
    assert outcomes.before(7).sample(0, 5) is outcomes.before(6).sample(0, 5)
