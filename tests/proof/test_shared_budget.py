"""The certificate of a shared budget as an object: what it says, what it refuses, how it is written."""

import json

import numpy as np
import pytest
from scipy import stats

from surefoot import Certificate, Episodes, certify, certify_shared_budget
from surefoot.errors import InputError
from surefoot.proof.bounds.relative_entropy import least_chance

COINS = (np.random.default_rng(1).random(2_000) < 0.95).astype(float)
PLAY = np.random.default_rng(2).beta(6, 2, 2_000) * 42 - 21


def coins(**more):
    return Episodes.from_returns(COINS, sigma=0.5, floor=0, ceiling=1, **more)


def play(ceiling=21.0):
    return Episodes.from_returns(PLAY, sigma=0.5, floor=-21, ceiling=ceiling)


def test_twenty_one_rounds_share_a_budget():
    """What the theorem is for: T1 charges the whole budget to every round, T5 divides it among them."""
    made = certify_shared_budget(coins(), [2.0], 21, method="binary")
    assert made.lower[0] == pytest.approx(least_chance(0.938, 16 / 2 / 21), abs=0.02)
    assert made.lower[0] > 0.6
    assert certify(coins(), [2.0], method="binary").lower[0] < 0.02


def test_an_average_budget_costs_more_than_a_certain_one():
    """M = 1 holds against more attackers than T1, so it can promise no more."""
    for budget in (0.2, 0.5, 1.0):
        assert (
            certify_shared_budget(coins(), [budget], 1, method="binary").lower[0]
            <= (certify(coins(), [budget], method="binary").lower[0])
        )


@pytest.mark.parametrize("n_shared", [1, 2, 5])
def test_a_certain_budget_is_spent_on_the_sum_of_the_episodes(n_shared):
    """T7 for coins: the number of wins of M episodes is binomial, and the whole budget may go against each number."""
    made = certify_shared_budget(coins(), [0.0, 0.4, 1.0], n_shared, certain=True, method="binary")
    share = made.lower[0]
    at_least = stats.binom.sf(np.arange(n_shared), n_shared, share)
    for budget, lower in zip(made.budgets, made.lower, strict=True):
        wins = stats.norm.cdf(stats.norm.ppf(at_least) - budget / 0.5).sum()
        assert lower == pytest.approx(wins / n_shared, abs=1e-6)


@pytest.mark.parametrize("method", ["betting", "binary"])
def test_limits_fall_with_the_budget_and_rise_with_those_who_share_it(method):
    made = certify_shared_budget(coins(), [0.0, 0.5, 1.0, 2.0], 5, method=method)
    assert list(made.lower) == sorted(made.lower, reverse=True)
    assert list(made.upper) == sorted(made.upper)
    assert np.all(made.lower <= made.estimate)
    assert np.all(made.estimate <= made.upper)
    many = [made.at(1.0, shared_by).lower for shared_by in (1, 2, 10, 100)]
    assert many == sorted(many)
    assert made.at(1.0).lower == made.lower[2]


def test_only_the_share_counts():
    """2 B for 4 M episodes is B for M."""
    one = certify_shared_budget(play(), [0.4], 3)
    other = certify_shared_budget(play(), [0.8], 12)
    assert one.lower[0] == pytest.approx(other.lower[0], rel=1e-12)


def test_both_sides_are_mirror_images():
    made = certify_shared_budget(play(), [0.3], 2)
    mirror = certify_shared_budget(Episodes.from_returns(-PLAY, sigma=0.5, floor=-21, ceiling=21), [0.3], 2)
    assert made.lower[0] == pytest.approx(-mirror.upper[0], rel=1e-12)
    assert made.upper[0] == pytest.approx(-mirror.lower[0], rel=1e-12)


def test_no_ceiling_no_upper_limit():
    made = certify_shared_budget(play(ceiling=None), [0.3], 2)
    assert made.upper is None
    assert made.at(0.3).upper is None
    assert made.lower[0] > -21


def test_its_file_is_strict_json_and_its_bounds_are_read_only():
    made = certify_shared_budget(play(), [0.0, 0.3], 7, 0.9)
    content = json.loads(json.dumps(made.to_json(), allow_nan=False))
    assert (content["kind"], content["n_shared_episodes"], content["n_pilot_episodes"], content["schema"]) == (
        "shared",
        7,
        200,
        1,
    )
    assert content["lower"] == made.lower.tolist()
    with pytest.raises(ValueError, match="read-only"):
        made.lower[0] = 1.0


def test_the_method_comes_from_the_record_unless_given():
    assert certify_shared_budget(coins(binary=True), [0.1], 2).method == "binary"
    assert certify_shared_budget(coins(), [0.1], 2).method == "betting"
    assert certify_shared_budget(coins(), [0.1], 2, method="binary").method == "binary"


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: certify_shared_budget(coins(), [0.1], 0), "at least 1, got 0"),
        (lambda: certify_shared_budget(coins(), [0.1], 2.5), "whole number of episodes, at least 1, got 2.5"),
        (lambda: certify_shared_budget(coins(), [-0.1], 2), "budget must be a finite number >= 0"),
        (lambda: certify_shared_budget(coins(), [], 2), "at least one budget"),
        (lambda: certify_shared_budget(coins(), 0.5, 2), "budgets must be a list"),
        (lambda: certify_shared_budget(coins(), [0.1], 2, 1.0), "confidence must be strictly between 0 and 1"),
        (lambda: certify_shared_budget(coins(), [0.1], 2, method="dkw"), "one of betting, binary, got 'dkw'"),
        (lambda: certify_shared_budget(play(), [0.1], 2, method="binary"), "expects only the returns -21 and 21"),
        (lambda: certify_shared_budget(play(None), [0.1], 2, method="binary"), "needs a known ceiling"),
        (lambda: certify_shared_budget(play(None), [0.1], 2, method="binary", certain=True), "needs a known ceiling"),
        (lambda: certify_shared_budget(play(), [0.1], 2, method="betting", certain=True), "one of band, binary, got"),
        (lambda: certify_shared_budget(Episodes.from_returns([1.0], sigma=0, floor=0), [0.1], 2), "sigma must be > 0"),
        (lambda: certify_shared_budget(coins(attacker={"name": "x"}), [0.1], 2), "got attacked episodes"),
        (lambda: certify_shared_budget(coins(), [0.1], 2).at(0.1, 0), "at least 1, got 0"),
    ],
)
def test_bad_input_is_named(call, match):
    with pytest.raises(InputError, match=match):
        call()


def test_a_certain_budget_is_certified_by_sums(tmp_path):
    """From the same coins: more than a budget on average, and its file says so."""
    for method in (None, "binary"):
        certain = certify_shared_budget(coins(), [0.0, 0.5, 1.0], 5, method=method, certain=True)
        average = certify_shared_budget(coins(), [0.0, 0.5, 1.0], 5, method="binary")
        assert np.all(certain.lower[1:] > average.lower[1:])
        assert np.all(certain.upper[1:] < average.upper[1:])
    there = Certificate.load(certain.save(tmp_path))
    assert (there.certain, there.method, there.pilot) == (True, "binary", 0)
    assert there.to_json() == certain.to_json()
    assert "in expectation" in average.statement
    assert "in expectation" not in certain.statement
    assert "root mean square" not in str(certain)
    assert "method binary (sums of the episodes)" in str(certain)
    assert certain.at(0.5, n_shared_episodes=50).lower > certain.at(0.5).lower
    assert certify_shared_budget(play(), [0.1], 2, certain=True).method == "band"
