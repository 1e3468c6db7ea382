"""Many certificates against the truth: how often does a limit miss, and does a planted error get caught?

Every test compares a number of misses with Binomial(runs, alpha) at a false-alarm level of 1e-6
(``laws.FALSE_ALARM``), from a fixed seed. Lower and upper limits are counted apart, over all budgets
together: one miss at any budget is a miss.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from laws import LAWS, MORE_LAWS, Law, atoms, cvar_misses, too_many
from surefoot.episodes import Episodes
from surefoot.proof.bounds import bands as cdf
from surefoot.proof.bounds.from_band import mean_lower
from surefoot.proof.query import certify

ALPHA = 0.2
RADII = (0.0, 1.0, 2.0)
SIGMA = 0.5
BUDGETS = [radius * SIGMA for radius in RADII]


def misses(
    law: Law, method: str, *, n: int, runs: int, seed: int, claimed_sigma: float = SIGMA, alpha: float = ALPHA
) -> tuple[int, int]:
    """Return how many certificates had a lower, and how many an upper limit on the wrong side."""
    worst = np.array([law.worst_mean(c) for c in RADII])
    best = np.array([law.best_mean(c) for c in RADII])
    samples = law.draw(np.random.default_rng(seed), (runs, n))
    low = high = 0
    for returns in samples:
        episodes = Episodes.from_returns(returns, sigma=claimed_sigma, floor=law.floor, ceiling=law.ceiling)
        certificate = certify(episodes, BUDGETS, 1 - alpha, method, threshold_spacing=(law.ceiling - law.floor) / 5)
        low += bool(np.any(certificate.lower > worst))
        high += bool(np.any(np.array(certificate.upper) < best))
    return low, high


# Bets are tested in bounds/test_tangent_scores.py and planning/test_auto.py: certificates by the hundred are of these.
BANDS = ("band", "per-threshold", "dkw", "binary")
PAIRS = [(m, law) for m in BANDS for law in LAWS if m != "binary" or law.name == "win or lose"]


@pytest.mark.parametrize(("method", "law"), PAIRS, ids=[f"{m}, {law.name}" for m, law in PAIRS])
def test_limits_miss_no_more_often_than_promised(method: str, law: Law) -> None:
    low, high = misses(law, method, n=60, runs=300, seed=11)
    assert not too_many(low, 300, ALPHA)
    assert not too_many(high, 300, ALPHA)


def nearly_exact_coin() -> tuple[Law, int]:
    """A coin just below a Clopper-Pearson limit: there the limit misses with almost the full alpha."""
    n = 60
    limit = float(stats.beta.ppf(ALPHA, 41, n - 41 + 1))
    p = limit - 1e-6  # further below than certificates are rounded outward
    assert stats.binom.sf(40, n, p) == pytest.approx(ALPHA, rel=1e-4)
    return atoms("coin", 0.0, 1.0, [0.0, 1.0], [1 - p, p]), n


def test_an_exact_case_uses_the_whole_alpha() -> None:
    """Otherwise the tests above would have no power: here the miss rate IS alpha, and is seen to be."""
    law, n = nearly_exact_coin()
    low, _ = misses(law, "binary", n=n, runs=1500, seed=5)
    assert stats.binomtest(low, 1500, ALPHA).pvalue > 1e-6


def test_planted_alpha_doubled() -> None:
    law, n = nearly_exact_coin()
    low, _ = misses(law, "binary", n=n, runs=1500, seed=5, alpha=2 * ALPHA)
    assert too_many(low, 1500, ALPHA)


@pytest.mark.parametrize("method", [*BANDS, "auto"])
def test_planted_sigma_doubled(method: str) -> None:
    """Played with sigma, certified with 2 sigma: every method must be caught, on both sides."""
    low, high = misses(LAWS[-1], method, n=200, runs=60, seed=12, claimed_sigma=2 * SIGMA)
    assert too_many(low, 60, ALPHA)
    assert too_many(high, 60, ALPHA)


def test_planted_the_observed_minimum_for_the_floor() -> None:
    """A catastrophe of 1 % is absent from most samples of 60; the smallest seen return is then 99, not 0."""
    law = LAWS[2]
    truth = law.worst_mean(1.0)
    samples = law.draw(np.random.default_rng(13), (300, 60))
    wrong = sum(bool(mean_lower(cdf.tail_tight(x, ALPHA), float(x.min()), 1.0) > truth) for x in samples)
    right = sum(bool(mean_lower(cdf.tail_tight(x, ALPHA), law.floor, 1.0) > truth) for x in samples)
    assert too_many(wrong, 300, ALPHA)
    assert not too_many(right, 300, ALPHA)


def finished_first(rng: np.random.Generator, n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Play in n slots; return the first n finished episodes of all, and the n that were dealt beforehand, one
    per slot.

    An episode lasts 1..20 steps and pays 20 minus its length: who is quick is good.
    """
    lengths = rng.integers(1, 21, size=(n, 25))
    finished = np.cumsum(lengths, axis=1).ravel()
    first = np.argsort(finished, kind="stable")[:n]
    pay = 20.0 - lengths.astype(np.float64)
    return pay.ravel()[first], pay[:, 0]


def test_planted_short_episodes_first() -> None:
    truth = 20 - 10.5
    rng = np.random.default_rng(14)
    hasty = dealt = 0
    for _ in range(200):
        quick, fair = finished_first(rng, 300)
        bounds = [
            certify(Episodes.from_returns(x, sigma=SIGMA, floor=0, ceiling=20), [0], 1 - ALPHA, "band").lower[0]
            for x in (quick, fair)
        ]
        hasty += bounds[0] > truth
        dealt += bounds[1] > truth
    assert too_many(hasty, 200, ALPHA)
    assert not too_many(dealt, 200, ALPHA)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32 - 1))
def test_probabilities_and_quantiles_hold_wherever_the_band_does(seed: int) -> None:
    """Not statistical: whenever the band is right about the law, everything derived from it is right too."""
    law = LAWS[1]
    values, weights = np.array([0.0, 1.0, 2.0, 4.0]), np.array([0.1, 0.2, 0.3, 0.4])
    returns = law.draw(np.random.default_rng(seed), (80,))
    certificate = certify(Episodes.from_returns(returns, sigma=SIGMA, floor=0, ceiling=4), BUDGETS, 1 - ALPHA, "band")
    band = certificate.source
    assert band is not None
    reach_right = all(r <= law.at_least(x) for x, r in zip(band.points, band.survival_lower, strict=True))
    stay_right = all(s <= weights[values <= x].sum() + 1e-15 for x, s in zip(band.points, band.cdf_lower, strict=True))
    for radius, budget in zip(RADII, BUDGETS, strict=True):
        for threshold in (0.5, 1.0, 3.0, 4.0):
            z = stats.norm.ppf(law.at_least(threshold))
            limits = certificate.probability(threshold, budget)
            assert limits.upper is not None
            assert limits.lower <= stats.norm.cdf(z - radius) or not reach_right
            assert limits.upper >= stats.norm.cdf(z + radius) or not stay_right
        for q in (0.05, 0.35, 0.7):
            limits = certificate.quantile(q, budget)
            assert limits.upper is not None
            # the worst law has CDF Phi(Phi^-1(F) + c), the best one Phi(Phi^-1(F) - c)
            z = stats.norm.ppf(np.minimum(np.cumsum(weights), 1))
            assert limits.lower <= values[np.argmax(stats.norm.cdf(z + radius) >= q)] or not reach_right
            assert limits.upper >= values[np.argmax(stats.norm.cdf(z - radius) >= q)] or not stay_right


@pytest.mark.parametrize("law", MORE_LAWS, ids=lambda law: law.name)
def test_cvar_misses_no_more_often_than_promised(law: Law) -> None:
    low, high = cvar_misses(law, ALPHA, n=60, runs=80, seed=21)
    assert not too_many(low, 80, ALPHA)
    assert not too_many(high, 80, ALPHA)


def test_planted_cvar_with_sigma_doubled() -> None:
    low, high = cvar_misses(LAWS[0], ALPHA, n=400, runs=40, seed=22, claimed_sigma=2.0)
    assert too_many(low, 40, ALPHA)
    assert too_many(high, 40, ALPHA)
