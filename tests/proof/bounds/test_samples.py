"""Outcomes counted in pieces, in memory or in a mapped file: the same samples, the same bounds."""

import itertools
import math

import numpy as np
import pytest

from surefoot.episodes import Episodes
from surefoot.proof.bounds import samples
from surefoot.proof.bounds.bands import tail_tight
from surefoot.proof.bounds.from_band import mean_lower, mean_upper
from surefoot.proof.bounds.samples import Sample, Seen, coarse_step
from surefoot.proof.planning.strategies import both_sides
from surefoot.proof.query import certify

RADII = [0.0, 1.5]


def returns_of(kind, n=2000, seed=3):
    rng = np.random.default_rng(seed)
    drawn = {
        "whole": np.where(rng.random(n) < 0.9, 200.0, rng.integers(0, 200, n)),
        "few": rng.choice([-2.5, 0.1, 0.3], n),
        "many": 200 * rng.beta(5, 1, n),
    }
    return drawn[kind]


def in_pieces(monkeypatch, size=64):
    monkeypatch.setattr(samples, "PIECE", size)
    monkeypatch.setattr(samples, "_FEW", 10**9)
    monkeypatch.setattr(samples, "_PIECES", 10**9)


@pytest.mark.parametrize("kind", ["whole", "few", "many"])
@pytest.mark.parametrize("mirrored", [False, True])
def test_a_sample_is_the_same_in_pieces(kind, mirrored, monkeypatch):
    x = returns_of(kind, 700)
    in_pieces(monkeypatch)
    seen = Seen(x, mirrored=mirrored)
    for first, last in [(0, 700), (0, 64), (0, 1), (63, 65), (64, 128), (100, 699), (640, 700)]:
        values, counts = np.unique((-x if mirrored else x)[first:last], return_counts=True)
        found = seen.sample(first, last)
        assert np.array_equal(found.values, values)
        assert np.array_equal(found.counts, counts)


def everything(x, floor=-2.5, ceiling=200.0):
    """Return the numbers of all methods that a piece could change."""
    means = both_sides(x, RADII, 0.05, floor, ceiling)
    band = tail_tight(x, 0.05)
    bets = [means.lower.at(RADII), means.mirror.at(RADII)]
    return np.concatenate([*bets, mean_lower(band, floor, RADII), mean_upper(band, ceiling, RADII)])


@pytest.mark.parametrize("kind", ["whole", "many"])
def test_bounds_are_the_same_in_pieces_bit_for_bit(kind, monkeypatch):
    x = returns_of(kind)
    at_once = everything(x)
    in_pieces(monkeypatch)
    assert np.array_equal(everything(x), at_once)


def test_planted_a_piece_left_out(monkeypatch):
    x = returns_of("whole")
    at_once = everything(x)
    in_pieces(monkeypatch)
    joined = Sample.joined
    monkeypatch.setattr(Sample, "joined", lambda parts: joined(parts[:-1]))
    assert not np.array_equal(everything(x), at_once)


def test_a_mapped_file_is_certified_as_if_it_were_in_memory(tmp_path, monkeypatch):
    x = returns_of("whole")
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    in_pieces(monkeypatch)
    for method in ("auto", "band", "per-threshold", "dkw"):
        one, other = (
            certify(Episodes.from_returns(found, sigma=1.0, floor=0.0, ceiling=200.0), RADII, method=method).to_json()
            for found in (x, mapped)
        )
        assert one == other, method


# --- very many outcomes are rounded to a grid -----------------------------------------------------------------------


def coarse(monkeypatch, cells=2**6):
    monkeypatch.setattr(samples, "EXACT", 1000)
    monkeypatch.setattr(samples, "_CELLS", cells)


def test_the_step_is_a_power_of_two_and_the_cells_are_few():
    assert coarse_step(samples.EXACT, 0.0, 200.0) is None
    for low, high in [(0.0, 200.0), (-21.0, 21.0), (-1e-9, 1e-9), (0.0, 1e140)]:
        step = coarse_step(10**8, low, high)
        assert math.frexp(step)[0] == 0.5
        assert (high - low) / step <= samples._CELLS < 2 * (high - low) / step * (1 + 1e-12)


def test_whole_numbers_are_not_rounded(monkeypatch):
    x = returns_of("whole")
    exact = everything(x, 0.0)
    coarse(monkeypatch, cells=2**9)
    assert np.array_equal(everything(x, 0.0), exact)


def test_bounds_of_very_many_are_those_of_returns_rounded_outward(monkeypatch):
    x = returns_of("many")
    with monkeypatch.context() as patch:
        coarse(patch)
        step = coarse_step(x.size, 0.0, 200.0)
        means, band = both_sides(x, RADII, 0.05, 0.0, 200.0), tail_tight(x, 0.05)
    down, up = np.floor(x / step) * step, np.minimum(np.ceil(x / step) * step, 200.0)
    assert np.array_equal(means.lower.at(RADII), both_sides(down, RADII, 0.05, 0.0, 200.0).lower.at(RADII))
    assert np.array_equal(means.mirror.at(RADII), both_sides(up, RADII, 0.05, 0.0, 200.0).mirror.at(RADII))
    exact = tail_tight(x, 0.05)
    assert band.points.size < 2 * 2**6
    for radius in RADII:
        loss = mean_lower(exact, 0.0, radius) - mean_lower(band, 0.0, radius)
        gain = mean_upper(band, 200.0, radius) - mean_upper(exact, 200.0, radius)
        assert -1e-9 <= loss <= 2 * 200 / 2**5
        assert -1e-9 <= gain <= 2 * 200 / 2**5


def test_counts_at_the_points_of_a_grid_are_never_too_large(monkeypatch):
    x = returns_of("many")
    coarse(monkeypatch)
    band, n = tail_tight(x, 0.05), x.size
    monkeypatch.undo()
    exact = tail_tight(x, 0.05)
    for point, reach, stay in zip(band.points, band.reach, band.stay, strict=True):
        beyond, below = int(np.count_nonzero(x >= point)), int(np.count_nonzero(x <= point))
        assert reach <= (exact.reach[n - beyond] if beyond else 0.0)
        assert stay <= (exact.stay[below - 1] if below else 0.0)


def test_planted_rounding_the_wrong_way(monkeypatch):
    """Rounded up, returns that are 1e-9 above a multiple of the step would prove more than their mean."""
    x = np.tile(np.array([100.0, 150.0]) + 1e-9, 3000)
    coarse(monkeypatch)
    lower = both_sides(x, [0.0], 0.05, 0.0, 200.0).lower.at(0.0)
    assert lower <= x.mean()
    monkeypatch.setattr(np, "floor", np.ceil)
    assert both_sides(x, [0.0], 0.05, 0.0, 200.0).lower.at(0.0) > x.mean()


def test_without_a_ceiling_later_returns_do_not_choose_the_step(monkeypatch):
    x = returns_of("many")
    coarse(monkeypatch)
    later = np.where(np.arange(x.size) < x.size - 10, x, 1e6)
    for one in (x, later):
        step = coarse_step(one.size, 0.0, float(one[:89].max()))
        with monkeypatch.context() as patch:
            made = []
            patch.setattr(samples.Seen, "__init__", recording(made))
            both_sides(one, [1.0], 0.05, 0.0, None)
        assert made == [None, step]


def recording(made):
    begin = Seen.__init__

    def init(self, outcomes, **settings):
        made.append(settings.get("step"))
        begin(self, outcomes, **settings)

    return init


def test_pieces_of_pieces_meet_without_gap_or_overlap(monkeypatch):
    in_pieces(monkeypatch, 10)
    seen = Seen(np.arange(95.0))
    for first, last in itertools.product(range(0, 95, 7), (12, 40, 95)):
        if first < last:
            assert np.array_equal(seen.sample(first, last).values, np.arange(first, last))
