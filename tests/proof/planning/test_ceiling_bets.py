"""Agents that are perfect so far: one bet for all budgets, alpha split only when something else has come."""

import itertools

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from laws import atoms, too_many
from surefoot.proof.bounds.binomial import lower_limit
from surefoot.proof.bounds.samples import OrderedOutcomes
from surefoot.proof.bounds.settle import Bettor, CapitalAccount
from surefoot.proof.planning.auto import select_method
from surefoot.proof.planning.bettors import pilot_size
from surefoot.proof.planning.ceiling_bets import CeilingPlanner, n_opening
from surefoot.proof.planning.hedged_bets import HedgedPlanner
from surefoot.proof.planning.strategies import FixedNumberStrategy, worst_means

RADII = np.array([0.0, 1.0, 2.0, 3.0])
RARE = atoms("rarely less", 0.0, 200.0, [10.0, 120.0, 190.0, 200.0], [0.01, 0.01, 0.01, 0.97])


def lower(returns, radii=RADII, alpha=0.05):
    return worst_means(returns, radii, alpha, 0.0, 200.0).at(radii)


@pytest.mark.parametrize("n", [100, 1_000, 30_000])
def test_a_perfect_agent_has_the_exact_binomial_bound_at_all_budgets(n):
    """Four budgets at once: 5% more failures are allowed than by Clopper and Pearson after the first episodes."""
    exact = 1 - lower_limit(n, n, 0.05)[0]
    failures = 1 - ndtr(ndtri(lower(np.full(n, 200.0)) / 200) + RADII)
    assert np.all(failures >= exact)
    assert np.all(failures <= exact * n / (n - n_opening(n)) * 1.05)


def test_bounds_grow_with_episodes_and_alpha_and_fall_with_the_budget():
    found = np.array([lower(np.full(n, 200.0)) for n in (50, 200, 1_000)])
    assert np.all(np.diff(found, axis=0) > 0)
    assert np.all(np.diff(found, axis=1) < 0)
    assert np.all(lower(np.full(200, 200.0), alpha=0.01) < lower(np.full(200, 200.0), alpha=0.1))


def opening(first, n, ceiling=200.0):
    return FixedNumberStrategy(RADII, 0.05, 0.0, ceiling, n).opening_planner(OrderedOutcomes(first))


def test_the_first_returns_decide_and_no_later_one():
    for n in (100, 1_000):
        returns = np.full(n, 200.0)
        returns[n_opening(n)] = 150.0
        assert opening(returns[: n_opening(n)], n) is not None
        assert opening(returns[1 : n_opening(n) + 1], n) is None
        assert opening(returns[: n_opening(n)], n, ceiling=None) is None


def test_nothing_is_bet_on_a_return_that_decided_how_to_bet():
    """At every size, small ones too: neither for the perfect start nor, where it selects the method, by auto."""
    for n in (*range(2, 400), 10_000, 10**6):
        first = np.full(n_opening(n), 200.0)
        bets = opening(first, n)
        assert bets is not None
        assert bets.first >= first.size
        start = np.full(pilot_size(n), 200.0)
        assert select_method(start, n, RADII, 0.05, 0.0, 200.0).pilot <= bets.first


def test_failures_at_the_floor_leave_alpha_whole_and_others_do_not():
    """Ten of 2,000 episodes fail: entirely, so that the mean says all, or by half, so that scores say more."""
    for height, split in ((0.0, False), (100.0, True)):
        returns = np.full(2_000, 200.0)
        returns[300:2_000:170] = height
        made = worst_means(returns, RADII, 0.05, 0.0, 200.0)
        assert any("unsplit" in row for row in made.bets)
        assert any("unsplit" not in row for row in made.bets) == split
        assert made.shares.sum() <= 0.05
        assert made.scaled_budgets.tolist() == [0.0] or split


def failures_allowed(n, at, radius):
    """Return the failures that are allowed at one budget after one at the floor, by those of Clopper and Pearson."""
    returns = np.full(n, 200.0)
    returns[at] = 0.0
    limit = lower(returns, np.array([radius]))[0]
    exact = (1 - lower_limit(n - 1, n, 0.05)[0]) * n / (n - n_opening(n))
    return (1 - ndtr(ndtri(limit / 200) + radius)) / exact


@pytest.mark.parametrize(("n", "radius"), [(200, 3.0), (1_000, 1.0), (5_000, 3.0)])
def test_one_failure_costs_what_it_costs_in_an_exact_test_whenever_it_comes(n, radius):
    """At a single budget: 3% more failures are allowed at most than by Clopper and Pearson after the first episodes.

    A late failure costs a little less than in that test, which does not know when it came: what was refuted before it
    stays refuted. On average over its places nobody can be better than an exact test.
    """
    allowed = [failures_allowed(n, int(share * n), radius) for share in (0.05, 0.1, 0.3, 0.6, 0.95)]
    assert max(allowed) <= 1.03
    assert min(allowed) > 0.97
    assert 1 <= np.mean(allowed) < 1.015


def test_planted_other_scores_after_a_single_failure(monkeypatch):
    """One failure shows too little of the heights at which an agent fails: an early one costs twice as much."""
    monkeypatch.setattr(CeilingPlanner, "_should_split", lambda self, past, _: past.values[0] < self.ceiling)
    assert failures_allowed(5_000, 250, 3.0) > 2


FEW_FAILURES = (
    {300: 192.0},
    {900: 100.0},
    {1_500: 0.0},
    {300: 192.0, 900: 150.0},
    {700: 10.0, 1_200: 20.0},
    {1_000: 190.0, 1_001: 190.0},
    {400: 150.0, 800: 120.0, 1_500: 180.0},
)


def gained(failures, monkeypatch):
    """Return what bets after a perfect start prove at one budget, by what bets prove that begin after the pilot."""
    returns, alone = np.full(2_000, 200.0), RADII[3:]
    returns[list(failures)] = list(failures.values())
    early = lower(returns, alone)[0]
    with monkeypatch.context() as without:
        without.setattr(FixedNumberStrategy, "opening_planner", lambda *_: None)
        return early / lower(returns, alone)[0]


@pytest.mark.parametrize("failures", FEW_FAILURES, ids=str)
def test_few_failures_after_a_perfect_start_cost_no_more_than_without_it(failures, monkeypatch):
    assert gained(failures, monkeypatch) >= 1


@pytest.mark.parametrize("failures", FEW_FAILURES[3:], ids=str)
def test_planted_scores_for_a_bound_from_what_is_left(failures, monkeypatch):
    """The planted error: no score of theirs can prove what is owned already."""
    begin = HedgedPlanner.__init__
    monkeypatch.setattr(HedgedPlanner, "__init__", lambda self, edges, begun=None: begin(self, edges))
    assert gained(failures, monkeypatch) < 0.995


def sequences():
    """All orders of five returns of three values, with their probabilities, from floor to ceiling."""
    chances = {0.0: 0.1, 170.0: 0.25, 200.0: 0.65}
    for values in itertools.product(chances, repeat=5):
        yield np.array(values), float(np.prod([chances[value] for value in values]))


def test_no_bound_is_wrong_more_often_than_promised_exactly():
    """Over all orders; some perfect starts go on, others are split. Alpha is large, so that there is much to miss."""
    alpha, radii = 0.4, np.array([0.0, 1.0])
    law = atoms("three", 0.0, 200.0, [0.0, 170.0, 200.0], [0.1, 0.25, 0.65])
    truth = np.array([law.worst_mean(radius) for radius in radii])
    wrong = reached = 0.0
    for returns, chance in sequences():
        found = lower(returns, radii, alpha)
        wrong += chance * bool(np.any(found > truth + 1e-9))
        reached += chance * bool(np.any(found > 0))
    assert wrong <= alpha
    assert reached > 0.3


def test_bounds_hold_where_alpha_is_split_late():
    """40 certificates at two radii: misses of any of them against Binomial(40, alpha)."""
    radii = RADII[[0, 2]]
    truth = np.array([RARE.worst_mean(radius) for radius in radii])
    samples = RARE.draw(np.random.default_rng(8), (40, 60))
    found = np.array([lower(returns, radii, 0.2) for returns in samples])
    assert np.mean(samples[:, : n_opening(60)].min(axis=1) == 200.0) > 0.5
    assert not too_many(int(np.any(found > truth + 1e-9, axis=1).sum()), 40, 0.2)


def of_the_mean(account, mean):
    """Return the capital against a mean: that of the first claim that is not below it."""
    at = np.searchsorted(account.claims, mean)
    return account.log_capital[at] if at < account.claims.size else account.log_capital_above


def started(before, radius):
    heir = CapitalAccount(radius, 0.01, 0.0, first=0)
    heir.inherit_from(before, 200.0)
    return heir


def excess(heir_of):
    """Return by how much a claim's capital after the split exceeds that against the mean, at most in many cases."""
    rng, most = np.random.default_rng(4), -np.inf
    for _ in range(5):
        returns = np.full(200, 200.0)
        returns[rng.integers(7, 200, 5)] = 200 * rng.random(5)
        planner = CeilingPlanner(RADII, 0.05, 200, 0.0, 200.0)
        before = CapitalAccount(0.0, 0.05, 0.0, first=planner.first)
        Bettor(planner, before).advance_to(OrderedOutcomes(returns))
        for radius in RADII:
            heir = heir_of(before, radius)
            for low, rare in zip(200 * rng.random(20), rng.random(20) ** 4, strict=True):
                worst = low + (200 - low) * ndtr(ndtri(1 - rare) - radius) - 1e-9
                most = max(most, of_the_mean(heir, worst) - of_the_mean(before, low + (200 - low) * (1 - rare)))
    return most


def test_no_claim_starts_with_more_than_is_owned_against_the_mean():
    """Whatever the distribution: the step of the proof at which alpha is split."""
    assert excess(started) <= 1e-12


def unbounded(before, radius):
    """The planted error: above all claims nothing was lost."""
    heir = started(before, radius)
    heir.log_capital_above = 0.0
    return heir


def not_the_least(before, radius):
    """The planted error: the capital of the very claim about the mean."""
    heir = started(before, radius)
    heir.log_capital = before.log_capital
    return heir


@pytest.mark.parametrize("error", [unbounded, not_the_least])
def test_planted_a_claim_that_starts_with_too_much(error):
    assert excess(error) > 1e-3
