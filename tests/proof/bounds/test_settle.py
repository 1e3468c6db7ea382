"""Betting on means: the capital is a supermartingale, limits hold at every moment, planted errors are caught."""

import math
from itertools import product, takewhile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from laws import LAWS, Law, too_many
from surefoot.errors import InputError
from surefoot.proof.bounds.betting import BetRound, Capital, joint_limit, sums_of_logs
from surefoot.proof.bounds.binomial import check_alpha, checked_outcomes, lower_limit
from surefoot.proof.bounds.samples import OrderedOutcomes, Sample
from surefoot.proof.bounds.settle import Bet, Bettor, CapitalAccount, joint_bound
from surefoot.proof.planning.bettors import SteadyPlanner, anytime_bettors, edges_for, pilot_size
from surefoot.proof.planning.hedged_bets import HedgedPlanner
from surefoot.proof.planning.proposals import propose_scores
from surefoot.proof.planning.stakes import Aim, choose_proposal

ALPHA = 0.2


def steady(edges, **more):
    return SteadyPlanner(edges, float(edges[-1]), **more)


def settled(planner, outcomes, *, floor=0.0, alpha=ALPHA):
    """Return the account of a planner that bets on the mean of the outcomes themselves."""
    account = CapitalAccount(0.0, alpha, floor, first=planner.first)
    Bettor(planner, account).advance_to(OrderedOutcomes(outcomes))
    return account


def mean_lower(outcomes, floor, alpha, *, anytime=False):
    """Return a bound on the mean of the outcomes themselves."""
    x = checked_outcomes(outcomes, floor)
    check_alpha(alpha)
    if not anytime:
        return max(floor, joint_bound([settled(steady(edges_for(x.size)), x, floor=floor, alpha=alpha)]))
    family = anytime_bettors(0.0, alpha)
    return max(floor, joint_bound([settled(one.planner, x, floor=floor, alpha=one.alpha) for one in family]))


def mean_upper(outcomes, ceiling, alpha, *, anytime=False):
    return -mean_lower(-outcomes, -ceiling, alpha, anytime=anytime)


def sequences(p, n):
    """All sequences of n coins with their probabilities."""
    for wins in product((0.0, 1.0), repeat=n):
        k = sum(wins)
        yield np.array(wins), p**k * (1 - p) ** (n - k)


def wealth(planner, x, claim):
    """What is owned against a claim by somebody who stops for good where a stake would be too bold for it."""
    rounds = settled(planner, x).capital.rounds
    fair = list(takewhile(lambda played: claim <= played.highest_claim, rounds))
    return math.exp(Capital(fair).log_capital(claim)[0])


@pytest.mark.parametrize("p", [0.3, 0.8, 0.95])
def test_the_capital_against_the_truth_has_mean_one(p):
    """Over all sequences of eight coins: no bettor gains on average by betting against what is true."""
    owned = [(wealth(steady([2, 4, 8]), x, p), chance) for x, chance in sequences(p, 8)]
    assert sum(w * chance for w, chance in owned) == pytest.approx(1, abs=1e-9)
    assert sum(chance for w, chance in owned if w >= 1 / ALPHA) <= ALPHA
    assert max(w for w, _ in owned) > 1.05  # bets were made


@pytest.mark.parametrize("p", [0.3, 0.8])
def test_planted_stakes_from_the_outcomes_they_are_set_on(p):
    """The same bettor with stakes settled by the whole sample owns more than 1 on average: caught."""

    def peeking(x):
        whole = Sample.of(x)
        _, choice = choose_proposal(propose_scores(whole, 8, scaled_budget=0.0, floor=0.0), whole, Aim(ALPHA, 8, p))
        stake = min(choice.stake, 0.99 / p)
        return math.exp(Capital([BetRound(whole, stake, 0.0)]).log_capital(p)[0])

    assert sum(peeking(x) * chance for x, chance in sequences(p, 8)) > 1.02


@pytest.mark.parametrize("p", [0.5, 0.8, 0.95])
def test_hedged_limits_miss_no_more_often_than_promised_exactly(p):
    """Over all sequences of nine coins; and some do miss, for the limits are not empty."""
    risk = reached = 0.0
    for x, chance in sequences(p, 9):
        limit = joint_bound([settled(HedgedPlanner([2, 4, 9]), x)])
        risk += chance * (limit > p)
        reached += chance * (limit > 0)
    assert risk <= ALPHA
    assert reached > 0.5


def account_with(claims, log_capital, above=0.0, refuted=None):
    account = CapitalAccount(0.0, ALPHA, 0.0, first=0)
    account.claims = np.array(claims)
    account.log_capital = np.array(log_capital)
    account.log_capital_above = above
    account.refuted = np.zeros(account.claims.size, dtype=bool) if refuted is None else np.array(refuted, dtype=bool)
    return account


@pytest.mark.parametrize(
    ("refuted", "expected"),
    [([1, 0, 1], 0.1), ([0, 1, 1], -math.inf), ([1, 1, 0], 0.2), ([1, 1, 1], 0.3), ([0, 0, 0], -math.inf)],
)
def test_a_hedged_limit_ends_at_the_first_gap(refuted, expected):
    """A value beyond one that was not reached proves nothing: the proof needs all below the limit."""
    assert joint_bound([account_with([0.1, 0.2, 0.3], [0.0, 0.0, 0.0], refuted=refuted)]) == expected


def test_new_claims_start_with_the_least_of_those_that_they_meet():
    """A value between two old claims may be on either side of a new one: both capitals count, and what is above all."""
    account = account_with([0.1, 0.2, 0.3], [1.0, -2.0, 3.0], -0.5, [True, False, True])
    owned, above, refuted = account.carried_to(np.array([0.05, 0.15, 0.25, 0.28, 0.35]))
    assert owned.tolist() == [1.0, -2.0, -2.0, 3.0, -0.5]
    assert refuted.tolist() == [True, False, False, True, False]
    account = account_with([0.05, 0.15, 0.25, 0.28, 0.35], owned, above, refuted)
    owned, above, _ = account.carried_to(np.array([0.1]))
    assert (owned.tolist(), above) == ([-2.0], -2.0)


# --- what the kernel refuses, whoever planned it ---------------------------------------------------------------------

HALF = {"first": 10, "last": 20, "block": (10, 20)}
CLAIMS = np.array([0.1, 0.2])
GUESSED = (np.array([0.5, 1.0]), np.array([0.9, 0.8]))
UNFAIR = {
    "returns that were bet on": {**HALF, "first": 9, "stake": 0.5, "guesses": GUESSED},
    "no returns": {**HALF, "last": 10, "stake": 0.5, "guesses": GUESSED},
    "the return itself under attack": {**HALF, "stake": 0.5},
    "a guess of 1": {**HALF, "stake": 0.5, "guesses": (np.array([0.5]), np.array([1.0]))},
    "a guess below 0": {**HALF, "stake": 0.5, "guesses": (np.array([0.5]), np.array([-0.1]))},
    "points in no order": {**HALF, "stake": 0.5, "guesses": (np.array([1.0, 0.5]), np.array([0.9, 0.8]))},
    "points below the floor": {**HALF, "stake": 0.5, "guesses": (np.array([-1.0]), np.array([0.9]))},
    "a stake below 0": {**HALF, "hedge": (CLAIMS, np.array([0.5, -0.1])), "guesses": GUESSED},
    "all that is owned and more": {**HALF, "hedge": (CLAIMS, np.array([0.5, 50.0])), "guesses": GUESSED},
    "claims in no order": {**HALF, "hedge": (CLAIMS[::-1], np.array([0.5, 0.5])), "guesses": GUESSED},
}


@pytest.mark.parametrize("bet", UNFAIR.values(), ids=UNFAIR)
def test_what_is_no_fair_bet_is_not_settled(bet):
    account = CapitalAccount(1.0, ALPHA, 0.0, first=10)
    with pytest.raises(ValueError, match=r"bet|score|guesses"):
        account.settle_bet(Bet(**bet), OrderedOutcomes(np.ones(20)))
    assert joint_bound([account]) == -math.inf


def test_a_planner_is_handed_the_returns_before_its_bets_and_nothing_else():
    """One that asks for more is refused, though others have taken samples of all that has come."""
    seen = []

    class Greedy(SteadyPlanner):
        def next_bet(self, past, account):
            seen.append((past.size, past.outcomes.size))
            if past.size == 4:
                past.sample(0, 5)
            return super().next_bet(past, account)

    outcomes = OrderedOutcomes(np.ones(8))
    outcomes.sample(0, 5)
    account = CapitalAccount(0.0, ALPHA, 0.0, first=2)
    with pytest.raises(IndexError, match="4 outcomes have come, those from 0 to 5 were asked for"):
        Bettor(Greedy([2, 4, 8], 8.0), account).advance_to(outcomes)
    assert seen == [(2, 2), (4, 4)]


def test_capital_is_the_product_of_its_factors():
    rng = np.random.default_rng(1)
    x, y = rng.random(40), rng.random(25) + 1
    capital = Capital([BetRound(Sample.of(x), 0.7, 0.0), BetRound(Sample.of(y), 0.4, 1.0)])
    product_ = np.prod(1 + 0.7 * (x - 0.6)) * np.prod(1 + 0.4 * (y - 0.6))
    value, slope = capital.log_capital(0.6)
    assert value <= math.log(product_)
    assert value == pytest.approx(math.log(product_), abs=1e-10)
    near = capital.log_capital(0.6 + 1e-6)[0]
    assert slope == pytest.approx((near - value) / 1e-6, rel=1e-4)
    assert capital.highest_claim == pytest.approx(min(1 / 0.7, 1 + 1 / 0.4))


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.5, 0.05, 1e-6]), st.floats(0.05, 0.9))
def test_the_limit_is_the_last_claim_that_was_refuted(seed, alpha, stake):
    x = np.random.default_rng(seed).beta(5, 1, 300)
    capital = Capital([BetRound(Sample.of(x), stake, 0.0)])
    limit = joint_limit([capital], [alpha])
    assert capital.log_capital(limit)[0] >= math.log(1 / alpha)
    assert capital.log_capital(limit + 1e-6)[0] < math.log(1 / alpha)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.lists(st.floats(0.05, 2.0), min_size=2, max_size=4))
def test_bettors_prove_more_together_and_no_more_than_their_capitals_sum_to(seed, stakes):
    """Also beyond the claims that the bet sizes of some of them are valid for, where those own nothing."""
    x = np.random.default_rng(seed).beta(8, 1, 200)
    capitals = [Capital([BetRound(Sample.of(x), stake, 0.0)]) for stake in stakes]
    shares = [0.1 / (k + 1) for k in range(len(stakes))]
    limit = joint_limit(capitals, shares)
    for capital, share in zip(capitals, shares, strict=True):
        assert limit >= joint_limit([capital], [share]) - 1e-12

    def owned(claim):
        total = 0.0
        for capital, share in zip(capitals, shares, strict=True):
            (played,) = capital.rounds
            if claim <= played.highest_claim:
                total += share * float(np.prod(1 + played.stake * (x - claim)))
        return total

    assert owned(limit) >= 1
    assert owned(limit + 1e-6) < 1


def test_planted_capitals_added_up_without_their_shares_miss_too_often():
    """Two bettors stake all they have on two coins each; by enumeration."""
    alpha, chance_of_one = 0.25, 0.4999
    right = wrong = 0.0
    for x, chance in sequences(chance_of_one, 4):
        capitals = [Capital([BetRound(Sample.of(coins), 2.0, 0.0)]) for coins in (x[:2], x[2:])]
        right += chance * (joint_limit(capitals, [alpha / 2, alpha / 2]) > chance_of_one)
        wrong += chance * (joint_limit(capitals, [alpha, alpha]) > chance_of_one)
    assert 0 < right <= alpha < wrong


def test_without_bets_there_is_no_limit():
    assert joint_limit([Capital()], [0.05]) == -math.inf
    assert mean_lower([3.0], 1.0, 0.05) == 1.0


def test_few_losses_cost_hardly_more_than_in_an_exact_test():
    """The same bets against all claims need 30% (of ten losses) to 70% more of them than Clopper and Pearson do."""
    n, seeds = 1000, range(8)
    for lost in (1, 4, 10):
        found = []
        for seed in seeds:
            x = np.random.default_rng(seed).permutation(np.repeat([0.0, 1.0], [lost, n - lost]))
            limit = joint_bound([settled(HedgedPlanner(edges_for(n)), x)])
            found.append((1 - limit) / (1 - lower_limit(n - lost, n, ALPHA)[0]))
        assert np.mean(found) < 1.1


def test_all_won_is_nearly_clopper_pearson():
    n = 1000
    exact = ALPHA ** (1 / (n - pilot_size(n)))
    assert exact - 2e-3 < mean_lower(np.ones(n), 0.0, ALPHA) <= exact


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(200, 3000), st.floats(1e-5, 2e-3))
def test_power_sums_stay_below_the_logarithms(seed, n, stake):
    batch = np.random.default_rng(seed).normal(3.0, 2.0, n)
    claims = np.array([2.0, 3.1, 4.5])
    exact = np.log1p(stake * (batch - claims[:, None])).sum(axis=1)
    rough = sums_of_logs(Sample.of(batch), np.full(3, stake), claims)
    assert np.all(rough <= exact)
    assert rough == pytest.approx(exact, abs=n * (stake * 12) ** 5 + 1e-9)


def misses(law: Law, lower, runs, n, seed):
    truth, best = law.worst_mean(0.0), law.best_mean(0.0)
    samples = law.draw(np.random.default_rng(seed), (runs, n))
    low = sum(lower(x, law.floor) > truth for x in samples)
    high = sum(-lower(-x, -law.ceiling) < best for x in samples)
    return low, high


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_limits_of_a_mean_hold(law):
    low, high = misses(law, lambda x, floor: mean_lower(x, floor, ALPHA), 25, 200, seed=21)
    assert not too_many(low, 25, ALPHA)
    assert not too_many(high, 25, ALPHA)


def test_limits_of_a_mean_are_close_to_it():
    x = LAWS[0].draw(np.random.default_rng(3), (5000,))
    error = x.std() / math.sqrt(5000)
    assert x.mean() - 3 * error < mean_lower(x, 0.0, 0.05) < x.mean() < mean_upper(x, 10.0, 0.05) < x.mean() + 3 * error
    late = mean_lower(x, 0.0, 0.05, anytime=True)
    assert x.mean() - 5 * error < late < mean_lower(x, 0.0, 0.05)
    assert mean_upper(x, 10.0, 0.05, anytime=True) > mean_upper(x, 10.0, 0.05)


def family(x, alpha):
    """Yield anytime limits after every hundredth outcome."""
    bettors = []
    for share in anytime_bettors(0.0, alpha):
        account = CapitalAccount(0.0, share.alpha, 0.0, first=share.planner.first)
        bettors.append(Bettor(share.planner, account))
    for n in range(100, x.size + 1, 100):
        seen = OrderedOutcomes(x[:n])
        for bettor in bettors:
            bettor.advance_to(seen)
        yield max(0.0, joint_bound([bettor.account for bettor in bettors]))


def test_an_anytime_limit_survives_stopping_at_any_time():
    samples = LAWS[4].draw(np.random.default_rng(8), (30, 1500))
    wrong = sum(any(limit > 0.8 for limit in family(x, ALPHA)) for x in samples)
    assert not too_many(wrong, 30, ALPHA)


def test_planted_stopping_on_a_limit_for_fixed_n():
    """Clopper-Pearson after every hundredth episode, stopping when it exceeds the truth: misses far too often."""
    samples = LAWS[4].draw(np.random.default_rng(8), (200, 3000))

    def clopper_pearson(x):
        return stats.beta.ppf(ALPHA, x.sum(), x.size - x.sum() + 1)

    wrong = sum(any(clopper_pearson(x[:n]) > 0.8 for n in range(100, 3001, 100)) for x in samples)
    assert too_many(wrong, 200, ALPHA)


def test_asked_again_or_at_once_the_limits_are_the_same():
    x = LAWS[0].draw(np.random.default_rng(4), (1000,))
    assert list(family(x, 0.05))[-1] == mean_lower(x, 0.0, 0.05, anytime=True)


def test_refuses_what_is_no_sample():
    with pytest.raises(InputError, match="non-empty list of finite numbers"):
        mean_lower([], 0.0, 0.05)
    with pytest.raises(InputError, match="no outcome may be below 0, got -1"):
        mean_lower([-1.0, 1.0], 0.0, 0.05)
    with pytest.raises(InputError, match="alpha must be strictly between 0 and 1, got 0"):
        mean_lower([1.0], 0.0, 0.0)
