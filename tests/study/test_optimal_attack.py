"""Where the best attack is known: the learned one comes near it, none crosses it, and no bound is above it."""

import numpy as np
import pytest

from study import optimal_attack
from study.optimal_attack import BUDGETS, STEPS, certified, ledge_plan, solve, survival
from surefoot.attacks.learning import AttackerTraining
from surefoot.play.rollout import play


@pytest.fixture(scope="module")
def optimum():
    return solve(max(BUDGETS), 400)


def test_the_walk_without_attack_is_the_one_that_is_solved(optimum):
    """Mean of 20,000 episodes within five standard errors; a budget of 0 is no attack."""
    returns = play(ledge_plan(20_000)).returns
    exact = survival()
    assert abs(returns.mean() - exact.sum()) < 5 * returns.std() / 20_000**0.5
    assert optimum.at(0.0)[1] == pytest.approx(exact.sum(), abs=1e-12)
    counted = [(returns > step).mean() for step in range(STEPS)]
    assert np.allclose(counted, exact, atol=5 * 0.5 / 20_000**0.5)


def test_no_certificate_is_above_the_best_attack(optimum):
    """Planted: half of the noise's protection counted twice would be."""
    for budget in BUDGETS:
        low, high = optimum.at(budget)
        assert certified(budget) <= low <= high
        assert high - low < 0.05 * high
        assert certified(budget / 2) > high


def test_a_finer_grid_is_inside_a_coarse_one(optimum):
    coarse = solve(max(BUDGETS), 100)
    for budget in BUDGETS:
        assert coarse.at(budget)[0] <= optimum.at(budget)[0] <= optimum.at(budget)[1] <= coarse.at(budget)[1]


def test_the_learned_attacker_comes_within_two_percent_and_never_below(optimum):
    """At all four budgets, one attacker; five standard errors for what is never crossed."""
    training = AttackerTraining(iterations=70, n_envs=768, width=24)
    for budget, (mean, sem) in zip(BUDGETS, optimal_attack.learned(training, 16_384), strict=True):
        low, high = optimum.at(budget)
        assert mean > low - 5 * sem
        assert mean < 1.02 * high + 2 * sem
