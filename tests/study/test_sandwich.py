"""The sandwich: runs of one attacker count as one measurement, and selection decides between attackers."""

import math

import pytest

from study import sandwich
from surefoot.attacks.flips import FlipRule, PixelAttacker


@pytest.fixture
def attacked(tmp_path):
    """Return a maker of finished attacks, each with the file of its attacker."""

    def make(name, price, selection, mean, n_episodes):
        card = {"budgets": [0.5], "selection": [selection]}
        PixelAttacker((FlipRule(budget=0.5, price=price),), card).save(tmp_path / f"{name}.npz")
        measured = {"curve": [mean], "curve_sem": [0.1], "n_episodes": n_episodes, "method": "learned"}
        return {"budgets": [0.5], "path": tmp_path / f"{name}.json", **measured}

    return make


def test_runs_of_one_attacker_are_one_measurement(attacked):
    """Planted: the lowest of them."""
    runs = [attacked("a", 1.0, 3.0, 2.0, 100), attacked("b", 1.0, 3.0, 4.0, 300)]
    (found,) = sandwich.selected(runs, 0.5)
    assert found["curve"] == [3.5]
    assert found["n_episodes"] == 400
    assert found["curve_sem"] == [pytest.approx(0.1 * math.hypot(100, 300) / 400)]
    assert sandwich.lowest([found], 0.5)[0] == 3.5


def test_selection_decides_between_attackers_not_what_was_measured(attacked):
    """Planted: the lowest measured mean."""
    runs = [attacked("a", 1.0, 2.0, 5.0, 100), attacked("b", 2.0, 3.0, 1.0, 100)]
    (found,) = sandwich.selected(runs, 0.5)
    assert found["curve"] == [5.0]
    assert sandwich.selected(runs, 0.6) == []
