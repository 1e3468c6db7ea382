from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.errors import InputError
from surefoot.proof.bounds.gaussian_shift import shift_down, shift_up

mp = pytest.importorskip("mpmath")

PROBABILITIES = np.array([0, 5e-324, 1e-300, 1e-100, 1e-16, 1e-9, 0.01, 0.5, 0.9, 1 - 1e-9, 1 - 1e-15, 1 - 1e-16, 1])
RADII = np.array([0, 1e-18, 1e-12, 1e-3, 0.1, 0.5, 1, 2, 3, 5, 8, 12, 20, 30, 40])

probability = st.floats(0, 1)
radius = st.floats(0, 40)


def exact_shift(p: float, by: float) -> Any:
    """Phi(Phi^-1(p) + by) to 60 digits, by bisection on the complementary error function."""
    with mp.workdps(60):
        low, high = mp.mpf(-45), mp.mpf(45)
        for _ in range(230):
            middle = (low + high) / 2
            low, high = (middle, high) if mp.ncdf(middle) < mp.mpf(p) else (low, middle)
        return mp.ncdf(low + mp.mpf(by))


@pytest.mark.parametrize("p", [1e-200, 1e-12, 0.003, 0.2, 0.5, 0.77, 0.999, 1 - 2.0**-40])
@pytest.mark.parametrize("r", [0.3, 1.0, 4.0])
def test_agrees_with_sixty_digits(p: float, r: float) -> None:
    with mp.workdps(60):
        for ours, by in ((shift_down(p, r), -r), (shift_up(p, r), r)):
            truth = exact_shift(p, by)
            assert abs(mp.mpf(float(ours)) - truth) <= 1e-11 * truth


def test_no_warning_no_nan_on_the_whole_grid() -> None:
    with np.errstate(all="raise"):
        down = shift_down(PROBABILITIES[:, None], RADII)
        up = shift_up(PROBABILITIES[:, None], RADII)
    for moved in (down, up):
        assert moved.shape == (PROBABILITIES.size, RADII.size)
        assert np.all((moved >= 0) & (moved <= 1))


def test_monotone_in_probability_and_radius() -> None:
    down = shift_down(PROBABILITIES[:, None], RADII)
    up = shift_up(PROBABILITIES[:, None], RADII)
    assert np.all(np.diff(down, axis=0) >= 0)
    assert np.all(np.diff(up, axis=0) >= 0)
    assert np.all(np.diff(down, axis=1) <= 0)
    assert np.all(np.diff(up, axis=1) >= 0)


def test_ends_stay_and_radius_zero_changes_nothing() -> None:
    for shift in (shift_down, shift_up):
        assert np.array_equal(shift(PROBABILITIES, 0), PROBABILITIES)
        assert np.array_equal(shift([0.0, 1.0], [[40.0], [np.inf]]), [[0, 1], [0, 1]])
    assert shift_down(0.5, np.inf) == 0
    assert shift_up(0.5, np.inf) == 1


@settings(deadline=None)
@given(probability, radius)
def test_up_is_the_mirror_image_of_down(p: float, r: float) -> None:
    assert shift_down(p, r) == pytest.approx(1 - shift_up(1 - p, r), abs=1e-12)


@settings(deadline=None)
@given(probability, radius)
def test_down_is_never_up(p: float, r: float) -> None:
    assert shift_down(p, r) <= p <= shift_up(p, r)


@settings(deadline=None)
@given(st.floats(1e-12, 1 - 1e-9), st.floats(0, 3), st.floats(0, 3))
def test_radii_add(p: float, r: float, s: float) -> None:
    assert shift_down(shift_down(p, r), s) == pytest.approx(shift_down(p, r + s), rel=1e-6, abs=1e-12)


def test_tiny_complements_keep_their_digits() -> None:
    """1 - shift_down(1 - 1e-30) cannot be distinguished from 0 in floats, but shift_up(1e-30) can."""
    assert float(shift_up(1e-30, 2.0)) == pytest.approx(float(exact_shift(1e-30, 2.0)), rel=1e-11)


@pytest.mark.parametrize("p", [-1e-9, 1 + 1e-9, np.nan])
def test_refuses_what_is_no_probability(p: float) -> None:
    with pytest.raises(InputError, match=r"probabilities must be in \[0, 1\], got"):
        shift_down([0.5, p], 1.0)


@pytest.mark.parametrize("r", [-0.1, np.nan])
def test_refuses_what_is_no_radius(r: float) -> None:
    with pytest.raises(InputError, match="scaled budget must be >= 0, got"):
        shift_up(0.5, [1.0, r])
