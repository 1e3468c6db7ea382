"""T7: sums of episodes that share a certain budget; the numbers of the theory page, from the probability alone."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from laws import MORE_LAWS, Law, atoms, too_many
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.proof.bounds import bands, sums
from surefoot.proof.bounds.bands import Band
from surefoot.proof.bounds.from_band import mean_lower, mean_upper
from surefoot.proof.bounds.relative_entropy import least_chance
from surefoot.proof.bounds.sums import sum_mean_lower, sum_mean_upper
from surefoot.proof.query import certify_shared_budget
from surefoot.verification.recompute.bands import Claim
from surefoot.verification.recompute.sums import recompute_sums

ALPHA = 0.2
BUDGETS = [0.0, 1.0, 2.0]


def coin(p, top=1.0):
    return the_law_itself([0.0, top], [1 - p, p])


def the_law_itself(values, weights):
    p = np.array(weights)
    reach, stay = np.minimum(1, np.cumsum(p[::-1])[::-1]), np.minimum(1, np.cumsum(p))
    return Band(points=np.array(values), survival_lower=reach, cdf_lower=stay, alpha=0.5)


@pytest.mark.parametrize("n", [2, 3, 7])
def test_cells_that_become_one_are_the_lower_one(n):
    """Planted by hand: one certain return in each of many places of a lattice too fine to be kept."""
    for place in (*range(1_990, 2_010), 4_094, 4_095, 4_096):
        masses = np.zeros(place + 1)
        masses[place] = 1.0
        total, halved = sums._convolved(masses, n)
        assert total[-1] == 1.0
        assert (total.size - 1) * 2**halved <= n * place
        assert total.size * 2 ** (halved + 1) > n * place


@pytest.mark.parametrize("n", [10, 10**6, 10**9, 10**12])
@pytest.mark.parametrize("masses", [[0.7, 0.3], [1 / 3, 1 / 3, 1 / 3]], ids=["two", "three"])
def test_what_a_convolution_loses_is_less_than_what_is_added(masses, n):
    """A billion sums of numbers that nearly add up to 1 lose a ten-millionth of all probability."""
    total, _ = sums._convolved(np.array(masses), n)
    lost = abs(1 - float(total.sum()))
    assert 0 < lost < sums.rounding_of(n) / 10
    if n >= 10**9:
        assert lost > 1e-9


def exact(values, weights, n, c):
    """Return the worst-case mean per episode of the sum of n, over all outcomes."""
    law = {0.0: 1.0}
    for _ in range(n):
        after = {}
        for total, chance in law.items():
            for value, weight in zip(values, weights, strict=True):
                key = round(total + value, 9)
                after[key] = after.get(key, 0.0) + chance * weight
        law = after
    points = sorted(law)
    missed = np.minimum(np.cumsum([law[x] for x in points])[:-1], 1.0)
    moved = stats.norm.cdf(-stats.norm.ppf(missed) - c)
    return (points[0] + float(np.diff(points) @ moved)) / n


@pytest.mark.parametrize(
    ("n", "t5", "t7"), [(1, None, 0.4029), (2, 0.4815, 0.5552), (5, 0.694, 0.7176), (21, 0.85, 0.8542)]
)
def test_wins_that_share_a_budget(n, t5, t7):
    """p = .9603 and c = 2: from p alone, and from the binomial distribution."""
    p = 0.9603
    found = float(sum_mean_lower(coin(p), 0.0, n, 2.0))
    assert found == pytest.approx(t7, abs=1e-4)
    reached = stats.binom.sf(np.arange(n), n, p)
    assert found == pytest.approx(stats.norm.cdf(stats.norm.ppf(reached) - 2).sum() / n, abs=1e-7)
    if t5 is not None:
        assert least_chance(p, 2.0 / n) == pytest.approx(t5, abs=1e-3)
        assert found > least_chance(p, 2.0 / n)


TABLES = {
    "few atoms": ([0.0, 1.0, 2.0, 4.0], [0.1, 0.2, 0.3, 0.4]),
    "rare catastrophe": ([0.0, 99.0, 100.0], [0.01, 0.49, 0.5]),
    "a long low tail": ([-5.0, -3.0, 0.0, 4.0, 5.0], [0.002, 0.01, 0.05, 0.238, 0.7]),
    "win or lose": ([0.0, 1.0], [0.2, 0.8]),
    "nearly always won": ([0.0, 1.0], [0.005, 0.995]),
    "perfect": ([200.0], [1.0]),
    "halves": ([0.0, 0.5, 1.5], [0.05, 0.35, 0.6]),
    "costs": ([-3.0, -1.0, 0.0], [0.1, 0.2, 0.7]),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("n", [1, 3, 4])
def test_sums_are_those_of_all_outcomes(name, n):
    values, weights = TABLES[name]
    band = the_law_itself(values, weights)
    floor, ceiling = values[0] - 1.0, values[-1] + 2.0
    for c in (0.0, 0.7, 2.0):
        low = float(sum_mean_lower(band, floor, n, c))
        truth = exact([floor, *values], [0.0, *weights], n, c)
        # halves above a floor of whole numbers are rounded down to 4096 cells
        assert truth - 1e-3 * (ceiling - floor) < low <= truth + 1e-12
        high = float(sum_mean_upper(band, ceiling, n, c))
        mirror = -exact([-ceiling, *(-x for x in values[::-1])], [0.0, *weights[::-1]], n, c)
        assert mirror - 1e-12 <= high < mirror + 1e-3 * (ceiling - floor)


@pytest.mark.parametrize("law", MORE_LAWS, ids=lambda law: law.name)
def test_a_sum_is_at_least_what_each_episode_has_and_grows_with_their_number(law):
    band = bands.tail_tight(law.draw(np.random.default_rng(1), (400,)), 0.05)
    width = law.ceiling - law.floor
    alone = mean_lower(band, law.floor, BUDGETS)
    per_episode = [sum_mean_lower(band, law.floor, n, BUDGETS) for n in (1, 2, 8, 300)]
    assert per_episode[0] == pytest.approx(alone, abs=5e-4 * width)
    for fewer, more in pairwise(per_episode):
        assert np.all(more >= fewer - 2e-3 * width)
    assert np.all(np.diff(per_episode, axis=1) <= 1e-12)
    upper = sum_mean_upper(band, law.ceiling, 8, BUDGETS)
    assert np.all(upper <= mean_upper(band, law.ceiling, BUDGETS) + 2e-3 * width)


def test_planted_a_sum_of_one_more_or_one_less():
    """M wrong by one is seen in the third digit."""
    right = float(sum_mean_lower(coin(0.9603), 0.0, 5, 2.0))
    for n in (4, 6):
        assert abs(float(sum_mean_lower(coin(0.9603), 0.0, n, 2.0)) - right) > 0.01


def test_tiny_probabilities_are_not_taken_for_none():
    """All of 300 lost has a probability below all floats, and a large enough budget finds it."""
    assert float(sum_mean_lower(coin(0.999), 0.0, 300, 45.0)) < 1e-6
    assert float(sum_mean_lower(coin(0.999), 0.0, 300, 10.0)) > 0.9


def test_rounding_to_a_lattice_and_halving_it_only_lowers(monkeypatch):
    x = np.sort(np.random.default_rng(3).beta(4, 1.5, 300))
    band = the_law_itself(x.tolist(), [1 / 300] * 300)
    fine = [sum_mean_lower(band, 0.0, n, BUDGETS) for n in (2, 7)]
    monkeypatch.setattr(sums, "_CELLS", 64)
    coarse = [sum_mean_lower(band, 0.0, n, BUDGETS) for n in (2, 7)]
    assert np.all(np.array(coarse) < np.array(fine))
    assert np.array(coarse) == pytest.approx(np.array(fine), abs=0.05)


def test_bad_input_is_named():
    with pytest.raises(InputError, match=r"no point below the floor 0\.5"):
        sum_mean_lower(coin(0.5), 0.5, 2, 1.0)
    with pytest.raises(InputError, match="at least one episode"):
        sum_mean_lower(coin(0.5), 0.0, 0, 1.0)


def misses(law: Law, values, weights, *, runs: int, claimed: int = 3) -> tuple[int, int]:
    """Return how often a certificate for 3 episodes, claimed to be for others, is wrong about these 3."""
    worst = np.array([exact(values, weights, 3, c) for c in BUDGETS])
    best = np.array([-exact([-x for x in values], weights, 3, c) for c in BUDGETS])
    low = high = 0
    for returns in law.draw(np.random.default_rng(7), (runs, 60)):
        episodes = Episodes.from_returns(returns, sigma=1.0, floor=law.floor, ceiling=law.ceiling)
        made = certify_shared_budget(episodes, BUDGETS, claimed, 1 - ALPHA, certain=True)
        low += bool(np.any(made.lower > worst + 1e-9))
        high += bool(np.any(made.upper < best - 1e-9))
    return low, high


@pytest.mark.parametrize("name", TABLES)
def test_limits_miss_no_more_often_than_promised(name):
    values, weights = TABLES[name]
    law = atoms(name, values[0] - (len(values) == 1), values[-1], values, weights)
    low, high = misses(law, values, weights, runs=150)
    assert not too_many(low, 150, ALPHA)
    assert not too_many(high, 150, ALPHA)


def test_planted_more_episodes_than_share_the_budget():
    values, weights = TABLES["win or lose"]
    low, high = misses(atoms("coin", 0.0, 1.0, values, weights), values, weights, runs=100, claimed=30)
    assert too_many(low, 100, ALPHA)
    assert too_many(high, 100, ALPHA)


@pytest.mark.parametrize("law", MORE_LAWS, ids=lambda law: law.name)
@pytest.mark.parametrize("n", [1, 2, 21])
def test_the_second_computation_agrees(law, n):
    returns = law.draw(np.random.default_rng(9), (150,))
    for ceiling in (law.ceiling, None):
        episodes = Episodes.from_returns(returns, sigma=0.5, floor=law.floor, ceiling=ceiling)
        made = certify_shared_budget(episodes, [0.0, 0.3, 1.1], n, 0.9, certain=True)
        claim = Claim("band", 1 - 0.9, 0.5, law.floor, ceiling, (0.0, 0.3, 1.1))
        lower, upper = recompute_sums(returns, claim, n)
        width = law.ceiling - law.floor
        assert np.all(made.lower <= lower.best + 1e-15 * width)
        assert np.all(made.lower >= lower.least - 1e-7 * width)
        assert (upper is None) == (made.upper is None)
        if upper is not None:
            assert np.all(made.upper >= upper.best - 1e-15 * width)
            assert np.all(made.upper <= upper.least + 1e-7 * width)
