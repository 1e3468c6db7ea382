import tracemalloc
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from laws import LAWS, Law, atoms
from surefoot.errors import InputError
from surefoot.proof.bounds import bands as cdf
from surefoot.proof.bounds.bands import Band
from surefoot.proof.bounds.from_band import (
    cvar_lower,
    cvar_upper,
    mean_lower,
    mean_upper,
    probability_lower,
    probability_upper,
    quantile_lower,
    quantile_upper,
)
from surefoot.proof.bounds.gaussian_shift import shift_down, shift_up

VALUES = [-3.0, -1.0, 0.5, 2.0, 6.0]
WEIGHTS = [0.02, 0.08, 0.3, 0.4, 0.2]
RADII = np.array([0.0, 0.5, 1.0, 2.5])


def the_law_itself(values: list[float], weights: list[float]) -> Band:
    """A band without any uncertainty: the limits are the probabilities."""
    p = np.array(weights)
    reach, stay = np.minimum(1, np.cumsum(p[::-1])[::-1]), np.minimum(1, np.cumsum(p))
    return Band(points=np.array(values), survival_lower=reach, cdf_lower=stay, alpha=0.5)


def attacked_mean(radius: float) -> float:
    """Play the one-step game with return F^-1(Phi(eta / sigma)), what is seen pushed by -radius * sigma."""
    edges = stats.norm.ppf(np.cumsum(WEIGHTS)[:-1])

    def gained(z: float) -> float:
        return VALUES[int(np.searchsorted(edges, z - radius))] * float(stats.norm.pdf(z))

    breaks = np.clip(np.concatenate([[-40], edges + radius, [40]]), -40, 40)
    return sum(integrate.quad(gained, a, b, epsabs=1e-12)[0] for a, b in pairwise(breaks))


@pytest.mark.parametrize("radius", RADII)
def test_the_one_step_game_attains_the_bound(radius: float) -> None:
    band = the_law_itself(VALUES, WEIGHTS)
    assert mean_lower(band, -3.0, radius) == pytest.approx(attacked_mean(radius), abs=1e-8)
    assert mean_upper(band, 6.0, radius) == pytest.approx(attacked_mean(-radius), abs=1e-8)


def test_planted_an_integral_from_zero_is_not_attained() -> None:
    """The published code integrates from 0: with negative returns that lies above what the game pays."""
    band = the_law_itself(VALUES, WEIGHTS)
    positive = band.points > 0
    from_zero = (np.diff(band.points[positive], prepend=0.0) * shift_down(band.survival_lower[positive], 1.0)).sum()
    assert from_zero > attacked_mean(1.0) + 0.1


@pytest.mark.parametrize("law", [LAWS[1], LAWS[2], LAWS[4]], ids=lambda law: law.name)
def test_known_laws_agree_with_quadrature(law: Law) -> None:
    values, step = np.unique(law.draw(np.random.default_rng(0), (5000,))), 1e-9
    weights = [law.at_least(v) - law.at_least(v + step) for v in values]
    band = the_law_itself(values.tolist(), weights)
    for c in (0.0, 1.0, 2.0):
        assert mean_lower(band, law.floor, c) == pytest.approx(law.worst_mean(c), abs=1e-7)
        assert mean_upper(band, law.ceiling, c) == pytest.approx(law.best_mean(c), abs=1e-7)


def test_radius_zero_is_the_mean_and_all_radii_at_once() -> None:
    band = the_law_itself(VALUES, WEIGHTS)
    assert mean_lower(band, -3, 0) == pytest.approx(np.dot(VALUES, WEIGHTS))
    assert mean_upper(band, 6, 0) == pytest.approx(np.dot(VALUES, WEIGHTS))
    many = mean_lower(band, -3, RADII)
    assert many.shape == RADII.shape
    assert many.tolist() == [float(mean_lower(band, -3, r)) for r in RADII]


def test_a_floor_below_the_points_counts_against_us() -> None:
    band = the_law_itself(VALUES, WEIGHTS)
    band = replace(band, survival_lower=band.survival_lower * 0.9)
    difference = mean_lower(band, -3, 1.0) - mean_lower(band, -103, 1.0)
    assert difference == pytest.approx(100 * (1 - shift_down(0.9, 1.0)))


def test_limits_that_are_not_monotone_are_used_best() -> None:
    """Limits need not be in order; a later and better one counts for all points before it."""
    jagged = Band(np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.9, 0.2]), np.array([0.7, 0.3, 0.8]), 0.1)
    smooth = Band(np.array([1.0, 2.0, 3.0]), np.array([0.9, 0.9, 0.2]), np.array([0.7, 0.7, 0.8]), 0.1)
    for radius in RADII:
        assert mean_lower(jagged, 0, radius) == mean_lower(smooth, 0, radius)
        assert mean_upper(jagged, 4, radius) == mean_upper(smooth, 4, radius)
        assert probability_lower(jagged, 0.5, radius, 0) == shift_down(0.9, radius)
        assert probability_upper(jagged, 2.5, radius, 0) == shift_up(1 - 0.7, radius)


def test_probabilities_between_and_beyond_the_points() -> None:
    band = the_law_itself(VALUES, WEIGHTS)
    assert probability_lower(band, 0.0, 1.0, -3) == pytest.approx(shift_down(0.9, 1.0))
    assert probability_upper(band, 0.0, 1.0, -3) == pytest.approx(shift_up(0.9, 1.0))
    assert probability_lower(band, 0.5, 0.0, -3) == pytest.approx(0.9)
    assert probability_lower(band, -3.0, RADII, -3).tolist() == [1] * 4
    assert probability_upper(band, -3.0, RADII, -3).tolist() == [1] * 4
    assert probability_lower(band, 6.1, RADII, -3, 6.5).tolist() == [0] * 4
    assert probability_upper(band, 6.6, RADII, -3, 6.5).tolist() == [0] * 4


def test_quantiles_by_hand() -> None:
    """P(Y < 2) = 0.4 and P(Y <= 2) = 0.8 without an adversary."""
    band = the_law_itself(VALUES, WEIGHTS)
    assert quantile_lower(band, 0.5, 0.0, -3) == 2
    assert quantile_upper(band, 0.5, 0.0, -3) == 2
    assert quantile_lower(band, 0.4, 0.0, -3) == 0.5  # P(Y <= 0.5) = 0.4 is enough
    assert quantile_lower(band, 0.5, 8.0, -3) == -3
    assert quantile_upper(band, 0.5, [0.0, 8.0], -3, 7).tolist() == [2, 6]
    unsure = Band(np.array([1.0]), np.array([0.2]), np.array([0.2]), 0.1)
    assert quantile_upper(unsure, 0.5, 0.0, 0) == np.inf
    assert quantile_upper(unsure, 0.5, 0.0, 0, 9) == 9
    assert quantile_lower(unsure, 0.5, 0.0, 0) == 0


@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize("q", [1e-6, 0.05, 0.4, 0.999])
def test_the_one_step_game_attains_the_cvar(radius: float, q: float) -> None:
    """The lowest share q of returns F^-1(Phi(z)) of the game, z pushed down or up by the radius, has this mean."""
    band = the_law_itself(VALUES, WEIGHTS)
    edges = np.concatenate([[-np.inf], stats.norm.ppf(np.cumsum(WEIGHTS)[:-1]), [np.inf]])
    for bound, shift in ((cvar_lower, radius), (cvar_upper, -radius)):
        shares = np.diff(np.minimum(stats.norm.cdf(edges + shift), q))
        assert bound(band, q, radius, -3.0, 6.0) == pytest.approx(VALUES @ shares / q, abs=2e-8)


def test_cvar_lies_between_the_floor_and_the_mean_and_grows_with_q() -> None:
    band = cdf.tail_tight(LAWS[3].draw(np.random.default_rng(4), (500,)), 0.05)
    at = [cvar_lower(band, q, RADII, -21.0, 21.0) for q in (0.001, 0.1, 0.5, 0.9999999)]
    assert np.all(np.diff(at, axis=0) >= 0)
    assert np.all(np.diff(at, axis=1) <= 0)
    assert np.all(at[0] >= -21.0)
    assert at[-1] == pytest.approx(mean_lower(band, -21.0, RADII), abs=1e-4)
    high = [cvar_upper(band, q, RADII, -21.0, 21.0) for q in (0.1, 0.5, 0.9999999)]
    assert np.all(np.diff(high, axis=0) >= 0)
    assert np.all(np.diff(high, axis=1) >= 0)
    assert high[-1] == pytest.approx(mean_upper(band, 21.0, RADII), abs=1e-4)


def test_cvar_without_a_ceiling_is_bounded_where_the_quantile_is() -> None:
    band = the_law_itself(VALUES, WEIGHTS)
    free = replace(band, cdf_lower=band.cdf_lower * 0.5)
    assert cvar_upper(free, 0.3, [0.0, 2.5], -3.0).tolist() == [
        pytest.approx(2.0 - (2.0 * 0.01 + 1.5 * 0.05 + 1.5 * 0.2) / 0.3),
        np.inf,
    ]
    assert cvar_upper(free, 0.3, 2.5, -3.0, 6.0) <= 6.0


def test_planted_cvar_averaged_over_strata_is_no_bound() -> None:
    """Two games, returns 0 and 1, equally likely: one return in ten is the lowest tenth, and it is 0."""
    mixed = the_law_itself([0.0, 1.0], [0.5, 0.5])
    one_game = [cvar_lower(the_law_itself([x], [1.0]), 0.1, 0.0, 0.0) for x in (0.0, 1.0)]
    assert np.mean(one_game) == pytest.approx(0.5)
    assert cvar_lower(mixed, 0.1, 0.0, 0.0) == 0.0


@settings(deadline=None)
@given(
    st.lists(st.floats(-100, 100), min_size=1, max_size=30, unique=True),
    st.floats(0.01, 0.99),
    st.floats(0, 4),
    st.integers(0, 10**6),
)
def test_quantiles_invert_probabilities(points: list[float], q: float, radius: float, seed: int) -> None:
    """Not reaching the lower quantile is rarer than q; staying at the upper one is not."""
    rng = np.random.default_rng(seed)
    size = len(points)
    band = Band(np.sort(points), np.sort(rng.random(size))[::-1].copy(), np.sort(rng.random(size)), 0.1)
    low = float(quantile_lower(band, q, radius, -100))
    assert low == -100 or 1 - probability_lower(band, low, radius, -100) < q
    high = float(quantile_upper(band, q, radius, -100, 100))
    assert high == 100 or 1 - probability_upper(band, np.nextafter(high, 200), radius, -100) >= q
    assert low >= -100
    assert high <= 100


def test_ten_million_distinct_points_fit_into_memory() -> None:
    """The same arithmetic on 10^6 points and 50 radii must stay far below the 400 MB of the full table."""
    n = 1_000_000
    limits = np.linspace(1, 0, n)
    band = Band(np.arange(n, dtype=float), limits, limits[::-1].copy(), 0.1)
    tracemalloc.start()
    try:
        lower = mean_lower(band, 0.0, np.linspace(0, 0.5, 5))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 60e6
    assert lower[0] == pytest.approx(n / 2, rel=1e-5)
    # uniform law: int_0^1 Phi(Phi^-1(p) - c) dp = Phi(-c / sqrt 2)
    assert lower == pytest.approx(n * stats.norm.cdf(-np.linspace(0, 0.5, 5) / np.sqrt(2)), rel=1e-5)


def test_joining_equal_limits_changes_nothing() -> None:
    rng = np.random.default_rng(3)
    points = np.sort(rng.normal(size=50_000))
    limits = np.round(np.linspace(1, 0, points.size), 2)
    band = Band(points, limits, limits[::-1].copy(), 0.1)
    plain = -9 + (np.diff(points, prepend=-9.0) * shift_down(limits, 1.3)).sum()
    assert mean_lower(band, -9.0, 1.3) == pytest.approx(plain, abs=1e-10)


def test_the_quadrature_of_the_laws_is_itself_right() -> None:
    coin = atoms("coin", 0.0, 1.0, [0.0, 1.0], [0.3, 0.7])
    assert coin.worst_mean(1.0) == pytest.approx(stats.norm.cdf(stats.norm.ppf(0.7) - 1))
    assert coin.best_mean(1.0) == pytest.approx(stats.norm.cdf(stats.norm.ppf(0.7) + 1))


def test_errors_say_what_came() -> None:
    band = cdf.dkw([1.0, 2.0], 0.05)
    with pytest.raises(InputError, match=r"point 1 below the floor 1\.5"):
        mean_lower(band, 1.5, 0.0)
    with pytest.raises(InputError, match=r"point 2 above the ceiling 1\.5"):
        mean_upper(band, 1.5, 0.0)
    for q in (0.0, 1.0, np.nan):
        with pytest.raises(InputError, match="q of a quantile or CVaR must be strictly between 0 and 1, got"):
            quantile_lower(band, q, 0.0, 0)
        with pytest.raises(InputError, match="q of a quantile or CVaR must be strictly between 0 and 1, got"):
            cvar_lower(band, q, 0.0, 0)
