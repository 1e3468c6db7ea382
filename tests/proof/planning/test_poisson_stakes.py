"""Bets on the number of rare drops: all or nothing where none is affordable, Gaussian where there are many."""

import numpy as np
import pytest
from scipy.special import gammaincc, ndtr, ndtri

from surefoot.proof.planning.poisson_stakes import exact_stakes, interpolated_stakes


@pytest.mark.parametrize("share", [0.01, 0.5, 1.0])
def test_everything_is_bet_where_one_drop_is_the_end(share):
    means = np.array([0.5, 1.0, 3.0, 6.0])
    for found in (interpolated_stakes, exact_stakes):
        assert found(np.exp(-means) * share, means) == pytest.approx(np.ones(4), abs=1e-9)


@pytest.mark.parametrize("k", [1.0, 2.0, 5.0, 20.0])
@pytest.mark.parametrize("mean", [0.7, 3.0, 12.0])
def test_one_drop_leaves_the_chance_of_one_drop_less(k, mean):
    chance, left = gammaincc(k + 1, mean), gammaincc(k, mean)
    if 1e-6 < chance < 1 - 1e-6:
        assert 1 - exact_stakes(np.array([chance]), np.array([mean]))[0] == pytest.approx(left / chance, abs=1e-9)


def test_the_table_costs_a_thousandth_of_what_bets_gain():
    """Plans read a table between whose points they interpolate.

    What a bet gains is quadratic around the best bet size: one that is off by a share d of it loses d^2 of the gain. So
    3% cost a thousandth.
    """
    rng = np.random.default_rng(3)
    means, chances = np.exp(rng.uniform(np.log(0.05), np.log(1e4), 20_000)), ndtr(rng.uniform(-4.5, 4.5, 20_000))
    exact = exact_stakes(chances, means)
    assert np.max(np.abs(interpolated_stakes(chances, means) / exact - 1)) < 0.0325


def test_many_small_drops_are_gaussian():
    chances, mean = np.array([0.02, 0.3, 0.8]), 1e4
    gaussian = np.exp(-(ndtri(chances) ** 2) / 2) / np.sqrt(2 * np.pi * mean) / chances
    assert interpolated_stakes(chances, np.full(3, mean)) == pytest.approx(gaussian, rel=0.03)


def test_outside_of_the_table_bets_are_those_of_its_edge():
    assert np.all(np.isfinite(interpolated_stakes(np.array([1e-12, 1 - 1e-12, 0.5]), np.array([1e-9, 1e9, 1e9]))))
