from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from scipy.special import betainc

from surefoot.errors import InputError
from surefoot.proof.bounds.binomial import lower_limit

mp = pytest.importorskip("mpmath")


def coverage_of_lower(limits: NDArray[np.float64], n: int, p: float) -> float:
    """P(limit(K) <= p) for K ~ Bin(n, p), summed exactly over the pmf."""
    return float(stats.binom.pmf(np.arange(n + 1), n, p)[limits <= p].sum())


@pytest.mark.parametrize("n", [1, 2, 7, 30, 200])
@pytest.mark.parametrize("alpha", [0.3, 0.05, 1e-6])
def test_coverage_is_exact(n: int, alpha: float) -> None:
    limits = lower_limit(np.arange(n + 1), n, alpha)
    # the worst p lie just below a limit, where missing begins
    for p in np.concatenate([np.linspace(0.001, 0.999, 333), np.nextafter(limits[1:], 0), limits]):
        assert coverage_of_lower(limits, n, float(p)) >= 1 - alpha - 1e-12


def test_planted_a_doubled_alpha_is_seen() -> None:
    limits = lower_limit(np.arange(31), 30, 0.1)
    p = float(np.nextafter(limits[20], 0))
    assert coverage_of_lower(limits, 30, p) < 1 - 0.05


@pytest.mark.parametrize(("n", "k"), [(1, 1), (5, 3), (40, 1), (40, 39), (40, 40)])
@pytest.mark.parametrize("alpha", [0.05, 1e-12])
def test_the_inequality_holds_in_exact_arithmetic(n: int, k: int, alpha: float) -> None:
    p = Fraction(float(lower_limit(k, n, alpha)[0]))
    tail = sum((comb(n, j) * p**j * (1 - p) ** (n - j) for j in range(k, n + 1)), Fraction(0))
    assert tail <= Fraction(alpha)
    assert tail >= Fraction(alpha) * Fraction(999_999, 1_000_000)


@pytest.mark.parametrize("n", [10**4, 10**6, 10**7])
@pytest.mark.parametrize("alpha", [0.4, 0.05 / 200, 1e-12])
def test_never_above_alpha_and_hardly_below_for_large_n(n: int, alpha: float) -> None:
    k = np.unique(np.linspace(1, n, 997).astype(int))
    spent = betainc(k, n - k + 1, lower_limit(k, n, alpha))
    assert np.all(spent <= alpha)
    assert np.all(spent >= alpha * (1 - 1e-5))


@pytest.mark.parametrize(("n", "k"), [(10**7, 3), (10**7, 5_000_000), (10**7, 9_999_000), (10**5, 90_000)])
def test_the_tail_is_at_most_alpha_in_fifty_digits(n: int, k: int) -> None:
    with mp.workdps(50):
        p = mp.mpf(float(lower_limit(k, n, 1e-6)[0]))
        binomial = mp.loggamma(n + 1) - mp.loggamma(k + 1) - mp.loggamma(n - k + 1)
        term = mp.exp(binomial + k * mp.log(p) + (n - k) * mp.log1p(-p))
        tail, j = term, k
        while j < n and term > tail * mp.mpf(10) ** -20:
            term *= mp.mpf(n - j) / (j + 1) * p / (1 - p)
            tail, j = tail + term, j + 1
        assert mp.mpf("0.9999e-6") <= tail <= mp.mpf(1e-6)


@pytest.mark.parametrize("n", [1, 10, 10**4, 10**7])
def test_none_and_all(n: int) -> None:
    assert lower_limit(0, n, 0.05)[0] == 0
    assert lower_limit(n, n, 0.05)[0] == pytest.approx(0.05 ** (1 / n), rel=1e-9)


@settings(deadline=None)
@given(st.integers(1, 400), st.data())
def test_ordered_and_nested(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    strict, loose = lower_limit(k, n, 1e-4)[0], lower_limit(k, n, 0.1)[0]
    assert 0 <= strict <= loose <= k / n
    assert loose <= lower_limit(2 * k, 2 * n, 0.1)[0]  # more episodes, same proportion
    assert np.all(np.diff(lower_limit(np.arange(n + 1), n, 0.1)) > 0)


def test_broadcasts() -> None:
    assert lower_limit([[1], [2]], [3, 4, 5], 0.05).shape == (2, 3)
    assert lower_limit([1, 2], 5, 0.05)[1] == lower_limit(2, 5, 0.05)[0]


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, np.nan])
def test_refuses_alpha(alpha: float) -> None:
    with pytest.raises(InputError, match="alpha must be strictly between 0 and 1, got"):
        lower_limit(1, 2, alpha)


@pytest.mark.parametrize(("k", "n", "message"), [(3, 2, "successes"), (-1, 2, "successes"), (0.5, 2, "successes")])
def test_refuses_counts(k: float, n: int, message: str) -> None:
    with pytest.raises(InputError, match=f"{message} must be whole numbers"):
        lower_limit(k, n, 0.05)


@pytest.mark.parametrize("n", [0, 1.5, np.nan])
def test_refuses_trials(n: float) -> None:
    with pytest.raises(InputError, match="trials must be whole numbers >= 1"):
        lower_limit(0, n, 0.05)
