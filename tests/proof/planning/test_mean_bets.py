"""Bets on the mean without attack begin at once: what that gains, and that no return decides about a bet on itself."""

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "bench"))

import star_bets

from laws import LAWS
from surefoot.episodes import Episodes
from surefoot.proof.bounds.settle import Settlement
from surefoot.proof.planning import mean_bets, strategies
from surefoot.proof.planning.auto import selection_size
from surefoot.proof.planning.strategies import FixedNumberStrategy, worst_means
from surefoot.proof.query import certify

FEW_ATOMS = LAWS[1]


def lower(returns, alpha=0.05, floor=0.0, ceiling=4.0):
    return float(worst_means(returns, [0.0], alpha, floor, ceiling).at(0.0))


def exact_misses(bound, p, n=6, alpha=0.3):
    """Return the probability that the bound of n coins is above p, over all orders."""
    wrong = 0.0
    for coins in itertools.product([0.0, 1.0], repeat=n):
        won = sum(coins)
        wrong += p**won * (1 - p) ** (n - won) * (bound(np.array(coins), alpha) > p + 1e-9)
    return wrong


def test_no_bound_of_coins_is_wrong_more_often_than_promised_exactly():
    """Over all 64 orders; with a capital that begins at 3 the same sum is above alpha."""
    bounds = {}

    def bound(coins, alpha):
        key = (coins.tobytes(), alpha)
        if key not in bounds:
            bounds[key] = lower(coins, alpha, 0.0, 1.0)
        return bounds[key]

    found = [exact_misses(bound, p) for p in (0.2, 0.5, 0.8, 0.93)]
    assert max(found) <= 0.3
    assert max(found) > 0.1

    def planted(coins, alpha):
        return bound(coins, 3 * alpha)

    assert max(exact_misses(planted, p) for p in (0.2, 0.5, 0.8, 0.93)) > 0.3


@pytest.mark.parametrize("first", [0, 5, 40])
def test_later_returns_decide_about_no_bet(first):
    """Bets on the returns up to one of them are the same whatever comes after it."""
    x = FEW_ATOMS.draw(np.random.default_rng(1), (120,))
    other = np.where(np.arange(120) < 60, x, 4.0 - x)
    capitals = []
    for returns in (x, other):
        settlement = Settlement(FixedNumberStrategy([0.0], 0.05, 0.0, 4.0, 120, first), 0.05, 0.0, 4.0)
        settlement.after(returns[:60])
        [bettor] = settlement.bettors
        capitals.append((bettor.account.n_settled, bettor.account.claims, bettor.account.log_capital))
    assert capitals[0][0] == capitals[1][0] > first
    assert np.array_equal(capitals[0][1], capitals[1][1])
    assert np.array_equal(capitals[0][2], capitals[1][2])


def test_returns_that_selected_the_method_are_not_bet_on():
    x = FEW_ATOMS.draw(np.random.default_rng(2), (200,))
    certificate = certify(Episodes.from_returns(x, sigma=1.0, floor=0.0, ceiling=4.0), [0.0])
    assert certificate.method_selection["pilot"] == selection_size(200) == 7
    for side in ("lower", "upper"):
        assert min(row["first"] for row in certificate.betting[side]) == 7
    # without a selection the first return is bet on
    assert min(row["first"] for row in worst_means(x, [0.0], 0.05, 0.0, 4.0).bets) == 0


def test_bounds_grow_with_alpha_and_returns_and_do_not_know_the_unit():
    x = FEW_ATOMS.draw(np.random.default_rng(3), (150,))
    assert lower(x, 0.01) < lower(x, 0.05) < lower(x, 0.2) < x.mean()
    assert lower(x) <= lower(np.maximum(x, 1.0)) + 1e-9
    percent = float(worst_means(25 * x, [0.0], 0.05, 0.0, 100.0).at(0.0))
    assert percent / 25 == pytest.approx(lower(x), rel=1e-9)


def test_a_perfect_agent_has_nearly_the_exact_binomial_bound():
    for n in (60, 300):
        found = lower(np.full(n, 200.0), 0.05, 0.0, 200.0)
        assert 200 * 0.05 ** (1 / n) - 200 * 0.3 / n < found <= 200 * 0.05 ** (1 / n)


@pytest.mark.parametrize("law", [LAWS[0], FEW_ATOMS], ids=lambda law: law.name)
def test_a_hundred_returns_lose_hardly_more_than_to_star_bets(law, monkeypatch):
    """A pilot of a tenth, and claims around what it shows, lose a twentieth of a normal loss more."""
    found = star_bets.losses(law, 100, 12)
    assert found["ours"] < found["star"] + 0.06
    monkeypatch.setattr(strategies, "needs_pilot", lambda *_: True)
    assert star_bets.losses(law, 100, 12)["ours"] > found["ours"] + 0.04


def test_more_than_a_mean_needs_a_pilot():
    budgets = np.array([0.0, 1.0])
    assert mean_bets.needs_pilot(budgets, 100, 0.0, 1.0)
    assert mean_bets.needs_pilot(budgets[:1], 100, 0.0, None)
    assert mean_bets.needs_pilot(budgets[:1], 10_000, 0.0, 1.0)
    assert not mean_bets.needs_pilot(budgets[:1], 100, 0.0, 1.0)


@pytest.mark.parametrize("ceiling", [40.0, 4e4, 1e99, 1e300])
def test_a_ceiling_far_above_all_returns_costs_no_more_than_with_a_pilot(ceiling, monkeypatch):
    x = FEW_ATOMS.draw(np.random.default_rng(4), (400,))
    found = lower(x, ceiling=ceiling)
    monkeypatch.setattr(strategies, "needs_pilot", lambda *_: True)
    assert x.mean() - found < 1.05 * (x.mean() - lower(x, ceiling=ceiling))


def test_any_returns_have_a_bound():
    """All at one end, all alike, two values, and one other return, first or last: of one return and of more."""
    for n in (1, 2, 3, 9, 20, 65):
        for value in (0.0, 1e-9, 0.7, 1.0):
            for other in (0.0, 0.3, 1.0):
                for place in (0, n - 1):
                    x = np.full(n, value)
                    x[place] = other
                    assert 0.0 <= lower(x, ceiling=1.0) <= x.mean() + 1e-12
