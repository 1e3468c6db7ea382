from fractions import Fraction
from math import factorial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from laws import FALSE_ALARM
from surefoot.errors import InputError
from surefoot.proof.bounds import bands as cdf
from surefoot.proof.bounds import local_levels as levels
from surefoot.proof.bounds.binomial import lower_limit

Floats = NDArray[np.float64]


def kept_exactly(limits: Floats) -> Fraction:
    """P(V_(k) >= limits[k-1] for all k), integrating polynomials over u_1 < ... < u_n in exact fractions."""
    polynomial = [Fraction(1)]
    for limit in limits:
        integral = [Fraction(0)] + [c / (i + 1) for i, c in enumerate(polynomial)]
        low = Fraction(float(limit))
        integral[0] = -sum((c * low**i for i, c in enumerate(integral)), Fraction(0))
        polynomial = integral
    return factorial(len(limits)) * sum(polynomial, Fraction(0))


@pytest.mark.parametrize("n", [1, 2, 3, 7, 30])
@pytest.mark.parametrize("alpha", [0.5, 0.05, 1e-4, 1e-9])
def test_levels_agree_with_exact_fractions(n: int, alpha: float) -> None:
    ranks, limits = levels.order_limits(n, alpha)
    assert np.array_equal(ranks, np.arange(1, n + 1))
    truth = float(1 - kept_exactly(limits))
    assert (0.99 if alpha >= 1e-4 else 0.3) * alpha <= truth <= alpha  # below 1e-6 it is the union bound
    assert levels.violation(n, ranks, limits, alpha) == pytest.approx(truth, rel=1e-5, abs=1e-10)


def test_planted_a_larger_level_breaks_the_promise_exactly() -> None:
    limits = lower_limit(np.arange(1, 31), 30, 1.01 * levels.local_level(30, 0.05))
    assert 1 - kept_exactly(limits) > Fraction(5, 100)


@pytest.mark.parametrize("alpha", [0.9, 0.05, 1e-6, 1e-12])
def test_the_level_of_one_point_is_alpha(alpha: float) -> None:
    assert levels.local_level(1, alpha) == pytest.approx(alpha, rel=1e-3)


@pytest.mark.parametrize("n", [2000, 20_000])
def test_levels_agree_with_monte_carlo(n: int) -> None:
    """Two-sided, false alarm 1e-6; the step function at ALL ranks, checked or not."""
    alpha, runs = 0.1, 2500
    ranks, limits = levels.order_limits(n, alpha)
    everywhere = limits[np.searchsorted(ranks, np.arange(1, n + 1), side="right") - 1]
    broken = doubled = 0
    wrong = lower_limit(ranks, n, min(0.5, 2 * levels.local_level(n, alpha)))
    rng = np.random.default_rng(20_001 + n)
    for _ in range(runs):
        sums = np.cumsum(rng.standard_exponential(n + 1))
        ordered = sums[:-1] / sums[-1]
        broken += bool(np.any(ordered < everywhere))
        doubled += bool(np.any(ordered[ranks - 1] < wrong))
    assert stats.binomtest(broken, runs, alpha * 0.995).pvalue > FALSE_ALARM
    assert stats.binomtest(doubled, runs, alpha, alternative="greater").pvalue < FALSE_ALARM  # the planted twin


@pytest.mark.parametrize("n", [1, 10, 2000])
@pytest.mark.parametrize("slope", [0.05, 0.5, 0.95])
def test_violation_agrees_with_a_theorem_of_daniels(n: int, slope: float) -> None:
    """P(V_(k) < slope k / n for some k) = slope, for every n (Daniels 1945)."""
    ranks = np.arange(1, n + 1)
    assert levels.violation(n, ranks, slope * ranks / n, 0.05) == pytest.approx(slope, abs=1e-6)
    assert levels.violation(n, ranks, slope * ranks / n, 0.05) >= slope - 1e-10  # never too small


def test_both_ways_to_convolve_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    n, alpha = 5000, 0.05
    ranks, limits = levels.order_limits(n, alpha)
    by_terms = levels.violation(n, ranks, limits, alpha)
    monkeypatch.setattr(levels, "_DIRECT", 0)
    assert levels.violation(n, ranks, limits, alpha) == pytest.approx(by_terms, abs=1e-11)


@pytest.mark.parametrize("n", [1, 2, 3, 50, 101, 12_345, 10**6, 10**7])
def test_checked_ranks_hold_both_ends(n: int) -> None:
    ranks = levels.checked_ranks(n)
    assert ranks[0] == 1
    assert ranks[-1] == n
    assert np.all(np.diff(ranks) > 0)
    near = min(n, 200)
    assert np.array_equal(ranks[:near], np.arange(1, near + 1))
    assert np.array_equal(ranks[-near:], np.arange(n - near + 1, n + 1))


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 300), st.sampled_from([1e-9, 1e-5, 0.01, 0.05, 0.3, 0.9]))
def test_levels_lie_between_the_union_bound_and_alpha_and_are_nested(n: int, alpha: float) -> None:
    level = levels.local_level(n, alpha)
    assert alpha / n * (1 - 1e-9) <= level <= alpha
    assert level < levels.local_level(n, alpha * 1.05)
    assert level > levels.local_level(2 * n, alpha)


def test_the_union_bound_takes_over_where_rounding_would_matter() -> None:
    assert levels.local_level(1000, 1e-12) == 1e-12 / levels.checked_ranks(1000).size
    assert levels.local_level(30_000_000, 0.05) == 0.05 / levels.checked_ranks(30_000_000).size


@pytest.mark.parametrize("n", [30, 300, 3000])
def test_the_level_allows_for_rounding(n: int) -> None:
    """At the smallest alpha that is searched for, where rounding is 1.9% of it."""
    ranks = levels.checked_ranks(n)
    rounding = levels._STEP_ERROR * (ranks.size + 10)
    alpha = rounding / 0.019
    limits = lower_limit(ranks, n, levels.local_level(n, alpha))
    assert 0.9 * alpha < levels.violation(n, ranks, limits, alpha) + rounding <= alpha


RETURNS = np.array([3.0, 1.0, 1.0, 2.0, 3.0, 3.0])


def test_dkw_by_hand() -> None:
    many = np.repeat(RETURNS, 100)
    band = cdf.dkw(many, 0.05)
    width = np.sqrt(np.log(2 / 0.05) / 1200)
    assert band.points.tolist() == [1, 2, 3]
    assert band.survival_lower == pytest.approx(np.array([6, 4, 3]) / 6 - width)
    assert band.cdf_lower == pytest.approx(np.array([2, 3, 6]) / 6 - width)


def test_dkw_with_too_few_episodes_says_nothing() -> None:
    band = cdf.dkw([1.0], 0.05)
    assert band.survival_lower.tolist() == band.cdf_lower.tolist() == [0]


def test_per_threshold_by_hand() -> None:
    band = cdf.per_threshold(RETURNS, [0, 1, 2.5, 3], 0.05, floor=0, ceiling=3)
    assert band.survival_lower[0] == 1
    assert band.survival_lower[1:] == pytest.approx(lower_limit([6, 3, 3], 6, 0.05 / 3))
    assert band.cdf_lower[:3] == pytest.approx(lower_limit([0, 2, 3], 6, 0.05 / 3))
    assert band.cdf_lower[3] == 1
    unknown = cdf.per_threshold(RETURNS, [0, 1, 2.5, 3], 0.05)
    assert unknown.survival_lower == pytest.approx(lower_limit([6, 6, 3, 3], 6, 0.05 / 4))


def test_tail_tight_by_hand() -> None:
    band = cdf.tail_tight(RETURNS, 0.05)
    level = levels.local_level(6, 0.05)
    assert band.survival_lower == pytest.approx(lower_limit([6, 4, 3], 6, level))
    assert band.cdf_lower == pytest.approx(lower_limit([2, 3, 6], 6, level))


def test_binary_by_hand() -> None:
    band = cdf.binary([0, 1, 1, 1], 0, 1, 0.05)
    assert band.survival_lower.tolist() == [1, lower_limit(3, 4, 0.05)[0]]
    assert band.cdf_lower.tolist() == [lower_limit(1, 4, 0.05)[0], 1]


@settings(deadline=None)
@given(st.lists(st.integers(-5, 5), min_size=1, max_size=60), st.sampled_from([0.3, 0.05, 1e-4]))
def test_mirror_image_and_below_the_empirical_law(values: list[int], alpha: float) -> None:
    x = np.array(values, dtype=float)
    for make in (cdf.dkw, cdf.tail_tight):
        band, mirrored = make(x, alpha), make(-x, alpha)
        assert np.array_equal(band.points, -mirrored.points[::-1])
        assert np.array_equal(band.survival_lower, mirrored.cdf_lower[::-1])
        assert np.all(band.survival_lower <= (x[:, None] >= band.points).mean(axis=0) + 1e-12)
        assert np.all(band.survival_lower <= make(x, alpha * 1.1).survival_lower + 1e-12)


@pytest.mark.parametrize("planted", [1.0, 2.0])
def test_tail_tight_keeps_its_whole_promise_and_no_more(planted: float) -> None:
    """For a continuous law 'reach <= S everywhere' has probability 1 - alpha exactly. False alarm 1e-6."""
    alpha, n, runs = 0.2, 25, 2500
    rng = np.random.default_rng(7)
    broken = 0
    for _ in range(runs):
        band = cdf.tail_tight(rng.random(n), alpha * planted)
        broken += bool(np.any(band.survival_lower > 1 - band.points))
    assert (stats.binomtest(broken, runs, alpha).pvalue > FALSE_ALARM) == (planted == 1)


def test_a_band_cannot_be_changed_afterwards() -> None:
    band = cdf.dkw(RETURNS, 0.05)
    with pytest.raises(ValueError, match="read-only"):
        band.survival_lower[0] = 1.0


def test_errors_say_what_came() -> None:
    with pytest.raises(InputError, match="only the returns 0 and 1, got 3"):
        cdf.binary(RETURNS, 0, 1, 0.05)
    with pytest.raises(InputError, match="ceiling must be above the floor"):
        cdf.binary([1.0], 1, 1, 0.05)
    for thresholds in ([], [1, 1], [2, 1], [np.nan]):
        with pytest.raises(InputError, match="ascending list of distinct finite numbers"):
            cdf.per_threshold(RETURNS, thresholds, 0.05)
    with pytest.raises(InputError, match="alpha must be strictly between 0 and 1"):
        cdf.tail_tight(RETURNS, 1.0)
    for returns in ([], [np.nan], [[1.0]]):
        with pytest.raises(InputError, match="non-empty list of finite numbers"):
            cdf.dkw(returns, 0.05)
    with pytest.raises(InputError, match="expected n >= 1"):
        levels.local_level(0, 0.05)
