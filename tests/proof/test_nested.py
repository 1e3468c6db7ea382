"""Nested luck, T6 by groups: bounds against the truth, laws, what decides about bets, and errors planted into all that.

Statistical alarms go off by chance with probability 1e-6 (``laws.FALSE_ALARM``), from fixed seeds.
"""

import numpy as np
import pytest

from laws import too_many
from lucks import ALPHA, FEW_LUCKS, LUCKS, NOISE, misses, with_own_draw
from planned import bets_before
from surefoot import Episodes, certify, certify_per_step, certify_shared_budget
from surefoot.errors import InputError
from surefoot.proof.bounds.seed_groups import OrderedGroups, SeedGroups
from surefoot.proof.difference import pair_up
from surefoot.proof.planning.strategies import bets_as_json, bound_group_means
from surefoot.verification.plan_again import recompute_group_bets
from surefoot.verification.recompute.bands import Claim


@pytest.mark.parametrize("luck", FEW_LUCKS, ids=lambda luck: luck.name)
def test_bounds_miss_no_more_often_than_promised(luck):
    """Few, because bets are slow: ``bench/nested.py`` counts more of them."""
    low, high = misses(luck, runs=9, n_groups=20, n_draws=3, c=1.0)
    assert not too_many(low, 9, ALPHA)
    assert not too_many(high, 9, ALPHA)


def test_planted_the_guess_uses_its_own_draw(monkeypatch):
    monkeypatch.setattr(SeedGroups, "luck", with_own_draw)
    low, _ = misses(NOISE, runs=9, n_groups=140, n_draws=2, c=2.0, ceiling=None)
    assert too_many(low, 9, ALPHA)


def test_planted_the_noise_seed_repeats_within_a_seed():
    """All draws of a seed are one draw, counted again: it seems to be luck, which an attack cannot change."""

    def repeat_first(table):
        return np.repeat(table[:, :1], 4, axis=1)

    low, _ = misses(NOISE, runs=9, n_groups=160, n_draws=4, c=2.0, change=repeat_first, ceiling=None)
    assert too_many(low, 9, ALPHA)


def test_planted_draws_counted_as_episodes():
    """Where luck is everything, K draws of a seed are one number: one by one they look like more than they are."""
    rng = np.random.default_rng(18)
    wrong = 0
    for _ in range(300):
        table = LUCKS[1].draw(rng, 10, 48)
        episodes = Episodes.from_returns(table.ravel(), sigma=1.0, floor=0, ceiling=10)
        wrong += certify(episodes, [0.0], 1 - ALPHA, "band").lower[0] > LUCKS[1].worst(0.0)
    assert too_many(wrong, 300, ALPHA)


@pytest.mark.parametrize("planted", [False, True])
def test_no_group_decides_about_a_bet_on_itself(planted, monkeypatch):
    """Other returns from group 100 on change no bet before; a planner that is shown all groups is noticed."""
    if planted:
        every = OrderedGroups

        def show_all(self, index):
            return every(self.groups, self.outcomes[:index], self.samples)

        monkeypatch.setattr(OrderedGroups, "before", show_all)
    table = LUCKS[2].draw(np.random.default_rng(1), 150, 3)
    other = table.copy()
    other[100:, 1:] = 0.0
    one, another = (
        bets_before(100, lambda rows=rows: bound_group_means(rows, [1.0], 0.05, 0.0, None), monkeypatch)
        for rows in (table, other)
    )
    assert len(one) > 50
    assert (one == another) != planted


def test_bounds_grow_with_groups_and_fall_with_budget_and_confidence():
    table = LUCKS[2].draw(np.random.default_rng(6), 250, 3)
    cs = [0.0, 1.0]

    def lower(rows, alpha):
        return bound_group_means(rows, cs, alpha, 0.0, None).lower.at(cs)

    most = lower(table, 0.05)
    assert np.all(np.diff(most) < 0)
    assert np.all(lower(table[:60], 0.05) < most)
    assert np.all(lower(table, 0.001) < most)


def test_upper_bounds_are_the_mirror_image():
    table = LUCKS[8].draw(np.random.default_rng(7), 120, 3)
    one = bound_group_means(table, [1.0], 0.05, 0.0, 10.0)
    other = bound_group_means(10.0 - table, [1.0], 0.05, 0.0, 10.0)
    assert -float(one.mirror.at(1.0)) == pytest.approx(10.0 - float(other.lower.at(1.0)), abs=0.02)


def test_luck_costs_little_where_it_is_known_and_its_absence_costs_next_to_nothing():
    """Luck 9 and noise 4.5 of 100 in 2,400 episodes, c = 2: a seventh of what independent ones lose is kept.

    Without luck four draws per seed lose hardly more than independent episodes.
    """
    rng = np.random.default_rng(8)

    def bounds(luck, noise):
        table = np.clip(50 + rng.normal(0, luck, (600, 1)) + rng.normal(0, noise, (600, 4)), 0, 100)
        alone = np.clip(50 + rng.normal(0, np.hypot(luck, noise), 2_400), 0, 100)
        plain = Episodes.from_returns(alone, sigma=1.0, floor=0)
        nested = Episodes.from_returns(table.ravel(), sigma=1.0, floor=0, draws_per_seed=4)
        return [50 - certify(each, [2.0]).lower[0] for each in (plain, nested)]

    plain, nested = bounds(9.0, 4.5)
    assert nested < 0.85 * plain
    plain, nested = bounds(0.0, 10.0)
    assert nested < 1.1 * plain


def test_a_partner_that_failed_is_no_reason_to_guess_nothing():
    """Wins and losses without luck, two draws per seed: as good as independent episodes."""
    wins = (np.random.default_rng(5).random(4_000) < 0.95).astype(float)
    plain = certify(Episodes.from_returns(wins, sigma=1.0, floor=0), [0.5], method="betting")
    nested = certify(Episodes.from_returns(wins, sigma=1.0, floor=0, draws_per_seed=2), [0.5])
    assert 0.95 - nested.lower[0] < 1.1 * (0.95 - plain.lower[0])


def test_few_seeds_with_many_draws_are_planned_too():
    table = LUCKS[2].draw(np.random.default_rng(6), 12, 24)
    assert 0 < bound_group_means(table, [1.0], 0.05, 0.0, None).lower.at(1.0) < table.mean()


def grouped(n_draws=2, **more):
    return Episodes.from_returns(np.arange(12.0) / 2, sigma=1.0, floor=0, ceiling=10, draws_per_seed=n_draws, **more)


def test_the_standard_error_counts_seeds():
    episodes = grouped(3)
    means = episodes.returns.reshape(-1, 3).mean(axis=1)
    assert certify(episodes, [0.0]).estimate_sem == pytest.approx(means.std(ddof=1) / 2)


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (lambda: certify(grouped(), [1.0], method="band"), "takes episodes for independent"),
        (lambda: certify(grouped(), [1.0], quantiles=[0.5]), "bounds on means alone"),
        (lambda: certify(grouped(1), [1.0], method="nested"), "needs several draws"),
        (lambda: certify_shared_budget(grouped(), [1.0], 2), "not independent"),
        (lambda: certify_per_step(grouped(), [1.0]), "not independent"),
        (lambda: certify(grouped(5), [1.0]), "12 returns"),
        (lambda: certify(grouped(2.5), [1.0]), "a whole number"),
        (lambda: pair_up(grouped(), grouped()), "independent episodes"),
    ],
)
def test_what_takes_draws_for_independent_episodes_is_refused(ask, what):
    with pytest.raises(InputError, match=what):
        ask()


def test_other_code_computes_the_same():
    table = LUCKS[8].draw(np.random.default_rng(9), 150, 3)
    made = bound_group_means(table, [0.0, 1.0], 0.05, 0.0, 10.0)
    claim = Claim("nested", 0.05, 1.0, 0.0, 10.0, (0.0, 1.0))
    lower, upper, wrong = recompute_group_bets(table.ravel(), 3, claim, bets_as_json(made))
    assert not wrong
    assert np.all(lower.least <= made.lower.at([0.0, 1.0]))
    assert made.lower.at([0.0, 1.0]) == pytest.approx(lower.best, abs=1e-9)
    assert -made.mirror.at([0.0, 1.0]) == pytest.approx(upper.best, abs=1e-9)


def test_planted_other_code_notices_a_guess_of_the_own_draw(monkeypatch):
    table = LUCKS[0].draw(np.random.default_rng(9), 250, 2)
    monkeypatch.setattr(SeedGroups, "luck", with_own_draw)
    made = bound_group_means(table, [1.0], 0.05, 0.0, 10.0)
    claim = Claim("nested", 0.05, 1.0, 0.0, 10.0, (1.0,))
    lower, _, wrong = recompute_group_bets(table.ravel(), 2, claim, bets_as_json(made))
    assert wrong or lower.best[0] < made.lower.at(1.0) - 1e-3
