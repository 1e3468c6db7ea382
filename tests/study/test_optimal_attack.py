"""Where the best attack is known: the learned one comes near it, none crosses it, and no bound is above it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from study import optimal_attack
from study.optimal_attack import BUDGETS, SIGMA, STEPS, certified, ledge_plan, solve, survival
from surefoot.attacks.learning import AttackerTraining
from surefoot.play.rollout import play
from surefoot.play.streams import Purpose, Stream, block_seeds
from surefoot.proof.inconsistency import inconsistencies
from surefoot.proof.query import certify


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


class Oracle:
    """Draws the noise of a seed, and spends just enough to make the agent walk off, if it is the present one."""

    def __init__(self, seed):
        self.stream = Stream(block_seeds(seed, (Purpose.ATTACK,), 0)[1], torch.device("cpu"))

    def propose(self, view):
        place = view.observation
        noise = SIGMA * self.stream.normal((2_000, 1))[view.episode]
        needed = -(place + noise) - 1e-4 * place.sign()
        affordable = needed.abs() <= view.budget_left.unsqueeze(1)
        return torch.where((place != 0) & affordable, needed, 0.0)

    def describe(self):
        return {"name": "oracle"}


def test_an_attacker_that_sees_the_present_noise_raises_the_alarm():
    """With the noise of another seed it guesses, and raises none."""
    certificate = certify(play(ledge_plan(10_000, seed=5)), BUDGETS)
    plan = replace(ledge_plan(2_000), purpose=(Purpose.ATTACK,), budget=1.0, n_envs=2_000)
    seeing = play(replace(plan, attacker=Oracle(0)))
    guessing = play(replace(plan, attacker=Oracle(1)))
    assert len(inconsistencies(certificate, [seeing])) == 1
    assert inconsistencies(certificate, [guessing]) == []
