"""The choice of auto, repeated on the pilot episodes alone: a certificate with another choice is rejected."""

import copy
from itertools import product

import numpy as np
import pytest

from laws import MORE_LAWS, atoms
from surefoot.proof.planning.auto import choose_method, selection_size
from surefoot.verification import plan_again
from surefoot.verification.plan_again import check_choice
from surefoot.verification.recompute.bands import Claim

# At one budget thresholds are never chosen: what is planned for them can only be tampered with at several. Six budgets,
# so that up to eleven thresholds are; hindsight makes for another choice more rarely then, hence more seeds below.
GRID = [0.0, 0.6, 1.1, 1.6, 2.2, 35.0]
RADII = ([0.0], [2.0], GRID)
TENTHS = atoms("no whole numbers", 0.0, 1.0, [0.0, 0.3, 0.4, 1.0], [0.05, 0.15, 0.3, 0.5])


def chosen(law, n, radii, *, ceiling=True, seed=3):
    """Return returns, the claim of a certificate, and the choice that was made for it."""
    returns, top = law.draw(np.random.default_rng(seed), (n,)), law.ceiling if ceiling else None
    made = choose_method(returns, np.array(radii), 0.05, law.floor, top).to_json()
    return returns, Claim("auto", 0.05, 1.0, law.floor, top, tuple(radii)), made


@pytest.mark.parametrize("law", [*MORE_LAWS, TENTHS], ids=lambda law: law.name)
def test_both_computations_choose_the_same(law):
    for n in (1, 19, 20, 25, 150, 700, 5_000):
        for radii in RADII:
            for ceiling in (True, False):
                assert check_choice(*chosen(law, n, radii, ceiling=ceiling)) == []


def test_budgets_are_counted_in_sigmas():
    """With the same episodes a run with half of the noise selects what its budgets ask for, which are twice as far."""
    for law in (TENTHS, *MORE_LAWS[:3]):
        returns, claim, made = chosen(law, 700, GRID)
        halved = Claim("auto", 0.05, 0.5, law.floor, law.ceiling, tuple(radius / 2 for radius in GRID))
        assert claim.sigma == 1.0
        assert check_choice(returns, halved, made) == []


def test_every_method_was_chosen_above():
    methods = {chosen(law, n, GRID)[2]["method"] for law in MORE_LAWS for n in (19, 20, 150, 700)}
    assert methods == {"band", "binary", "per-threshold", "betting"}


@pytest.mark.parametrize("values", [2, 3, 4, 5, 6, 7])
def test_how_many_different_returns_a_short_pilot_may_have(values):
    """Up to the root of 13 different whole numbers 13 of 700 episodes are enough, for the verifier too."""
    returns = np.resize(np.arange(float(values)), 700)
    made = choose_method(returns, np.array([2.0]), 0.05, 0.0, 10.0).to_json()
    assert made["pilot"] == (13 if values <= 3 else 53)
    assert check_choice(returns, Claim("auto", 0.05, 1.0, 0.0, 10.0, (2.0,)), made) == []


def test_declared_wins_and_losses_are_part_of_the_choice():
    """A pilot of wins alone: what is right for a task that declares them is wrong for another, both ways."""
    returns, claim = np.ones(700), Claim("auto", 0.05, 1.0, 0.0, 1.0, (2.0,))
    for declared, method in ((True, "binary"), (False, "betting")):
        made = choose_method(returns, np.array([2.0]), 0.05, 0.0, 1.0, declared=declared).to_json()
        assert made["method"] == method
        assert check_choice(returns, claim, made, declared=declared) == []
        assert "select the method" in check_choice(returns, claim, made, declared=not declared)[0]


def test_more_possible_values_than_short_pilot_episodes_need_the_longer_one():
    returns = np.resize([0.0, 1.0], 700)
    assert choose_method(returns, np.array([2.0]), 0.05, 0.0, 12.0).pilot == 13
    assert choose_method(returns, np.array([2.0]), 0.05, 0.0, 13.0).pilot == 53


@pytest.mark.parametrize("law", MORE_LAWS[:4], ids=lambda law: law.name)
def test_another_method_or_pilot_is_refused(law):
    returns, claim, made = chosen(law, 700, GRID)
    for method in {"band", "binary", "per-threshold", "betting"} - {made["method"]}:
        assert "select the method" in check_choice(returns, claim, {**made, "method": method})[0]
    other = 13 if made["pilot"] == 53 else 53
    assert "episodes, not on" in check_choice(returns, claim, {**made, "pilot": other})[0]


@pytest.mark.parametrize("side", ["reach", "stay"])
def test_risk_moved_to_where_it_turned_out_to_serve_is_caught(side):
    returns, claim, made = chosen(MORE_LAWS[1], 5_000, GRID)
    moved = copy.deepcopy(made)
    moved[side][1], moved[side][2] = moved[side][2], moved[side][1]
    assert check_choice(returns, claim, moved) == [
        "alpha is not split among the thresholds as the pilot episodes determine"
    ]
    fewer = {**made, **{key: made[key][1:] for key in ("thresholds", "reach", "stay")}}
    assert check_choice(returns, claim, fewer) == ["the thresholds are not those of the pilot episodes"]


def test_planted_a_choice_made_with_hindsight():
    """Letting the last episodes choose is caught, wherever that makes for another choice."""
    found = 0
    for law in MORE_LAWS:
        for seed in range(8):
            returns, claim, made = chosen(law, 1_000, GRID, seed=seed)
            hindsight = choose_method(returns[::-1], np.array(GRID), 0.05, law.floor, law.ceiling).to_json()
            if hindsight != made:
                assert check_choice(returns, claim, hindsight) != []
                found += 1
    assert found > 10


def test_planted_a_planner_that_peeks(monkeypatch):
    """A planner that finds the last returns behind the first ones is given the first ones alone, and is caught."""

    def peeking(first, n, radii, alpha, floor, ceiling, *, declared=False):
        everything = first if first.base is None else first.base
        return honest(everything[::-1][: first.size], n, radii, alpha, floor, ceiling, declared=declared)

    honest = plan_again.select_method
    found = 0
    for law in MORE_LAWS:
        for seed in range(8):
            returns, claim, _ = chosen(law, 1_000, GRID, seed=seed)
            where = (1_000, np.array(GRID), 0.05, law.floor, law.ceiling)
            peeked = peeking(returns[: selection_size(1_000)], *where).to_json()
            monkeypatch.setattr(plan_again, "select_method", peeking)
            if peeked != peeking(returns[: selection_size(1_000)].copy(), *where).to_json():
                assert check_choice(returns, claim, peeked) != []
                found += 1
    assert found > 10


def test_another_planner_version_is_named():
    assert plan_again.other_planner({"method": "auto", "planner": plan_again.PLANNER_VERSION}) is None
    assert plan_again.other_planner({"method": "band", "planner": None}) is None
    for version, method in product((None, 1, plan_again.PLANNER_VERSION + 1), ("auto", "betting", "sequential")):
        assert f"planner version {version!r}" in plan_again.other_planner({"method": method, "planner": version})
