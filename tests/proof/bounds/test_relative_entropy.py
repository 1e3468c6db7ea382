"""T5 in closed form, its laws, and its coverage: a shared budget's limits against truths computed by quadrature.

Misses are compared with Binomial(runs, alpha) at a false-alarm level of 1e-6 (``laws.FALSE_ALARM``), from fixed seeds;
one miss at any budget is a miss.
"""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize, stats

from laws import LAWS, Law, atoms, too_many
from surefoot.errors import InputError
from surefoot.proof.bounds import relative_entropy
from surefoot.proof.bounds.binomial import lower_limit
from surefoot.proof.bounds.relative_entropy import BernoulliBound, TiltedBound, bound_wins, least_chance, mean_at_most
from surefoot.proof.planning import thetas
from surefoot.proof.planning.thetas import plan_and_bound_tilts, theta_pilot_size

ALPHA = 0.2
COSTS = (0.0, 0.1, 0.5, 2.0)


def tilted(law: Law, theta: float) -> float:
    """Return E exp(-theta (X - floor)) = 1 - theta int exp(-theta h) P(X >= floor + h) dh, by quadrature."""
    total = 0.0
    for left, right in pairwise(law.cuts):
        value, _ = integrate.quad(
            lambda x: theta * math.exp(-theta * (x - law.floor)) * law.at_least(x), left, right, epsabs=1e-12, limit=200
        )
        total += value
    return 1 - total


def truth(law: Law, cost: float) -> float:
    """Return the least mean of a law within relative entropy ``cost`` (duality), using nothing of surefoot."""
    width = law.ceiling - law.floor

    def bound(log_theta: float) -> float:
        theta = math.exp(log_theta) / width
        return (math.log(tilted(law, theta)) + cost) / theta

    found = optimize.minimize_scalar(bound, bounds=(math.log(1e-3), math.log(1e3)), method="bounded")
    return law.floor + max(0.0, -float(found.fun))


TRUTHS = {law.name: np.array([truth(law, cost) for cost in COSTS]) for law in LAWS}


# --- closed forms ---------------------------------------------------------------------------------------------------


def entropy(q: float, p: float) -> float:
    return float(stats.entropy([q, 1 - q], [p, 1 - p]))


@pytest.mark.parametrize("p", [1e-6, 0.3, 0.95, 1 - 1e-9])
@pytest.mark.parametrize("cost", [1e-6, 0.1, 1.0, 8.0])
def test_the_least_chance_inverts_the_relative_entropy(p, cost):
    q = least_chance(p, cost)
    assert 0 <= q < p
    if q > 1e-300:
        assert entropy(q, p) == pytest.approx(cost, rel=1e-6)
    else:
        assert entropy(0, p) <= cost * (1 + 1e-8)


def test_the_example_of_the_theory():
    """21 rounds won with 0.95, B / sigma = 4 for all of them: 0.67 per round, where T1 for each round leaves 0.009."""
    assert least_chance(0.95, 16 / 2 / 21) == pytest.approx(0.6735, abs=1e-4)
    assert stats.norm.cdf(stats.norm.ppf(0.95) - 4) == pytest.approx(0.0093, abs=1e-4)


def test_certain_things_stay():
    assert least_chance(1.0, 5.0) == 1.0
    assert least_chance(0.0, 5.0) == 0.0
    assert least_chance(0.4, 0.0) == 0.4


def test_tilts_and_coins_agree_where_both_are_exact():
    """For 0/1 returns the supremum over theta is the inverse of the binary entropy."""
    p, cost = 0.9, 0.3
    thetas = np.geomspace(0.01, 100, 4000)
    dual = TiltedBound(thetas, thetas, 1 - p + p * np.exp(-thetas), 0).at(cost)
    assert dual == pytest.approx(BernoulliBound(p, 1.0).at(cost), abs=1e-5)
    assert dual <= BernoulliBound(p, 1.0).at(cost) + 1e-9


def test_the_truths_are_those_of_the_coin():
    for cost, value in zip(COSTS[1:], TRUTHS["win or lose"][1:], strict=True):
        assert value == pytest.approx(least_chance(0.8, cost), abs=1e-6)


def test_the_limit_of_a_mean_in_closed_form():
    """All n values equal z: the capital is (1 + stake (m - z))^n."""
    n, z, stake, alpha = 50, 0.3, 0.8, 0.05
    expected = z + (alpha ** (-1 / n) - 1) / stake
    assert mean_at_most(np.full(n, z), stake, alpha) == pytest.approx(expected, rel=1e-8)
    assert mean_at_most(np.full(n, z), stake, alpha) >= expected
    assert mean_at_most(np.full(2, 0.9), 1e-3, alpha) == 1.0


def test_the_betting_limit_covers_exactly():
    """n coins with a fixed stake: the probability of a limit below the mean, summed over all outcomes."""
    n, stake, alpha = 40, 1.2, 0.1
    for p in np.linspace(0.05, 0.95, 19):
        wrong = [
            stats.binom.pmf(k, n, p)
            for k in range(n + 1)
            if mean_at_most(np.repeat([1.0, 0.0], [k, n - k]), stake, alpha) < p
        ]
        assert sum(wrong) <= alpha


# --- laws -----------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_limits_fall_with_cost_and_rise_with_alpha(seed):
    returns = LAWS[seed % len(LAWS)].draw(np.random.default_rng(seed), (120,))
    law = LAWS[seed % len(LAWS)]
    made = plan_and_bound_tilts(returns, law.floor, law.ceiling, 0.1, [0.3])
    values = [made.at(cost) for cost in (0.0, 0.1, 0.3, 1.0, 10.0)]
    assert values == sorted(values, reverse=True)
    assert all(0 <= value <= law.ceiling - law.floor for value in values)
    wins = [bound_wins(returns, law.floor, law.ceiling, alpha).at(0.3) for alpha in (0.01, 0.1, 0.4)]
    assert wins == sorted(wins)


def test_more_episodes_give_better_limits():
    law = LAWS[0]
    draws = law.draw(np.random.default_rng(3), (200_000,))
    sizes = (200, 2_000, 20_000, 200_000)
    gaps = [TRUTHS[law.name][2] - plan_and_bound_tilts(draws[:n], 0.0, 10.0, 0.05, [0.5]).at(0.5) for n in sizes]
    assert gaps == sorted(gaps, reverse=True)
    assert 0 < gaps[-1] < 0.02
    assert gaps[0] > 0.2


def test_the_pilot_alone_settles_thetas_and_stakes():
    law = LAWS[0]
    draws = law.draw(np.random.default_rng(4), (400,))
    size = theta_pilot_size(400)
    assert size == 40
    one = plan_and_bound_tilts(draws, 0.0, 10.0, 0.05, COSTS)
    other = plan_and_bound_tilts(np.concatenate([draws[:size], draws[size:] / 2]), 0.0, 10.0, 0.05, COSTS)
    assert np.array_equal(one.thetas, other.thetas)
    assert np.array_equal(one.stakes, other.stakes)
    assert not np.array_equal(one.uppers, other.uppers)
    assert one.thetas.size <= thetas._MOST_THETAS
    assert (
        plan_and_bound_tilts(draws, 0.0, 10.0, 0.05, np.linspace(0, 5, 40).tolist()).thetas.size <= thetas._MOST_THETAS
    )


def test_every_tilt_is_bounded_on_the_other_returns_at_its_share_of_alpha():
    """Without the pilot, which settled theta and stake, and all of them together at alpha."""
    draws = LAWS[0].draw(np.random.default_rng(4), (400,))
    made, rest = plan_and_bound_tilts(draws, 0.0, 10.0, 0.05, COSTS), draws[theta_pilot_size(400) :]
    assert made.thetas.size > 1
    assert made.uppers.tolist() == [
        mean_at_most(np.exp(-theta * rest), stake, 0.05 / made.thetas.size)
        for theta, stake in zip(made.thetas, made.stakes, strict=True)
    ]


def test_only_the_ceiling_counts_as_won():
    assert bound_wins([0.0, 0.5, 1.0, 1.0], 0.0, 1.0, 0.05).chance == lower_limit(2, 4, 0.05)[0]


def test_too_few_returns_prove_nothing_but_the_floor():
    assert plan_and_bound_tilts([3.0], 0.0, 10.0, 0.05, [0.1]).at(0.0) == 0.0


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: plan_and_bound_tilts([], 0.0, 1.0, 0.05, [0.1]), "non-empty list"),
        (lambda: plan_and_bound_tilts([-1.0], 0.0, 1.0, 0.05, [0.1]), "no outcome may be below 0"),
        (lambda: bound_wins([0.0], 0.0, 1.0, 1.5), "alpha must be strictly between 0 and 1, got 1.5"),
        (lambda: least_chance(1.2, 0.1), "expected a probability"),
        (lambda: least_chance(0.2, -0.1), "a cost >= 0"),
        (lambda: mean_at_most(np.ones(2), 0.0, 0.1), "stake must be > 0"),
    ],
)
def test_bad_input_is_named(call, match):
    with pytest.raises(InputError, match=match):
        call()


# --- coverage -------------------------------------------------------------------------------------------------------


def misses(law: Law, *, n: int, runs: int, seed: int, method: str = "betting", alpha: float = ALPHA, of: float = 1.0):
    """Count certificates with a lower limit above the truth; ``of`` is the share of the true cost that is charged."""
    count = 0
    for returns in law.draw(np.random.default_rng(seed), (runs, n)):
        if method == "binary":
            made = bound_wins(returns, law.floor, law.ceiling, alpha)
        else:
            made = plan_and_bound_tilts(returns, law.floor, law.ceiling, alpha, [of * cost for cost in COSTS])
        limits = np.array([law.floor + made.at(of * cost) for cost in COSTS])
        count += bool(np.any(limits > TRUTHS[law.name] + 1e-9 * (law.ceiling - law.floor)))
    return count


@pytest.mark.parametrize("law", LAWS, ids=[law.name for law in LAWS])
@pytest.mark.parametrize("n", [12, 80])
def test_betting_misses_no_more_often_than_promised(law, n):
    assert not too_many(misses(law, n=n, runs=400, seed=21), 400, ALPHA)


def exact_coin() -> tuple[Law, int]:
    """A coin just below a Clopper-Pearson limit, where the limit misses with almost the full alpha."""
    n = 60
    p = float(stats.beta.ppf(ALPHA, 41, n - 41 + 1)) - 1e-6
    law = atoms("exact coin", 0.0, 1.0, [0.0, 1.0], [1 - p, p])
    TRUTHS[law.name] = np.array([least_chance(p, cost) for cost in COSTS])
    return law, n


def test_wins_and_losses_use_the_whole_alpha_and_no_more():
    law, n = exact_coin()
    low = misses(law, n=n, runs=1500, seed=5, method="binary")
    assert stats.binomtest(low, 1500, ALPHA).pvalue > 1e-6


def test_planted_alpha_doubled():
    law, n = exact_coin()
    assert too_many(misses(law, n=n, runs=1500, seed=5, method="binary", alpha=2 * ALPHA), 1500, ALPHA)


@pytest.mark.parametrize("method", ["betting", "binary"])
def test_planted_half_the_cost(method):
    """sigma too large by the root of two, or M doubled: half the entropy is charged."""
    assert too_many(misses(LAWS[-1], n=400, runs=100, seed=22, method=method, of=0.5), 100, ALPHA)
    assert not too_many(misses(LAWS[-1], n=400, runs=100, seed=22, method=method), 100, ALPHA)


def test_planted_the_mean_for_its_limit(monkeypatch):
    """Without betting, exp(-theta X) is simply averaged: not a bound."""
    monkeypatch.setattr(relative_entropy, "mean_at_most", lambda values, stake, alpha: float(values.mean()))
    assert too_many(misses(LAWS[0], n=80, runs=200, seed=23), 200, ALPHA)


def test_planted_the_observed_minimum_for_the_floor():
    """A catastrophe of 1 % is absent from most samples of 60; the smallest seen return is then 99, not 0."""
    law = LAWS[2]
    samples = law.draw(np.random.default_rng(24), (200, 60))
    wrong = sum(
        x.min() + plan_and_bound_tilts(x, x.min(), 100.0, ALPHA, [0.5]).at(0.5) > TRUTHS[law.name][2] for x in samples
    )
    right = sum(plan_and_bound_tilts(x, 0.0, 100.0, ALPHA, [0.5]).at(0.5) > TRUTHS[law.name][2] for x in samples)
    assert too_many(int(wrong), 200, ALPHA)
    assert not too_many(int(right), 200, ALPHA)
