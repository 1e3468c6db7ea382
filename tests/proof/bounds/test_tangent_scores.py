"""T3: scores never promise more than the worst-case mean, limits hold, and planted errors are caught."""

import math
from itertools import product, takewhile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from laws import LAWS, MORE_LAWS, atoms, too_many
from surefoot.errors import InputError
from surefoot.proof.bounds.betting import BetRound, Capital
from surefoot.proof.bounds.samples import OrderedOutcomes, Sample
from surefoot.proof.bounds.settle import Bettor, CapitalAccount, joint_bound
from surefoot.proof.bounds.tangent_scores import implied, tangent_scores
from surefoot.proof.planning.alpha_shares import split
from surefoot.proof.planning.bettors import SteadyPlanner
from surefoot.proof.planning.proposals import guess_survival, plug_in_means, propose_scores
from surefoot.proof.planning.stakes import Aim, choose_proposal
from surefoot.proof.planning.strategies import Bets, both_sides, worst_means

ALPHA = 0.2
RADII = (0.0, 1.0, 2.0, 3.0, 4.0)

# Values a thousandth apart at least: what they are compared with is integrated numerically.
laws_of_atoms = st.lists(
    st.tuples(st.integers(0, 10_000).map(lambda k: k / 1_000), st.floats(0.01, 1)),
    min_size=1,
    max_size=6,
    unique_by=lambda x: x[0],
)


def law_of(pairs):
    total = sum(weight for _, weight in pairs)
    weights = [weight / total for _, weight in pairs[:-1]]
    return atoms("drawn", 0.0, 10.0, [value for value, _ in pairs], [*weights, 1 - sum(weights)])


@settings(deadline=None, max_examples=30)
@given(laws_of_atoms, st.integers(0, 2**32 - 1), st.floats(0, 5))
def test_a_score_never_promises_more_than_the_worst_case_mean(pairs, seed, radius):
    """Whatever is guessed, however badly, and whatever the law."""
    law, rng = law_of(pairs), np.random.default_rng(seed)
    points = np.sort(rng.uniform(0.01, 10, 7))
    [score] = tangent_scores(points, rng.uniform(0, 1 - 1e-6, (1, 7)), radius, 0.0)
    values = np.array([value for value, _ in pairs])
    weights = np.array([weight for _, weight in pairs]) / sum(weight for _, weight in pairs)
    assert weights @ score(values) <= law.worst_mean(radius) + 1e-9
    assert np.all(score(np.concatenate([[0.0, 10.0, 1e6], values])) >= score.lowest)


@pytest.mark.parametrize("radius", [0.0, 0.5, 2.0, 4.0])
def test_the_right_guess_promises_all_of_it(radius):
    law = LAWS[1]
    points = np.array([1.0, 2.0, 4.0])
    [score] = tangent_scores(points, np.array([[law.at_least(x) for x in points]]), radius, 0.0)
    mean = np.array([0.1, 0.2, 0.3, 0.4]) @ score(np.array([0.0, 1.0, 2.0, 4.0]))
    assert mean == pytest.approx(law.worst_mean(radius), abs=1e-9)
    assert mean <= law.worst_mean(radius) + 1e-12


def test_guesses_keep_off_certainty():
    past = Sample.of([3.0] * 50 + [9.0] * 50)
    points, (reach, bold) = guess_survival(past, [0.002, 0.1], 0.0)
    assert points.tolist() == [3.0, 9.0]
    share = 0.1 / 100.2  # of outcomes below 3: none was seen, which does not mean none
    assert reach == pytest.approx([1 - (share + np.sqrt(2 * share * 0.002) + 0.002), 0.5])
    assert bold[0] < 0.9
    assert guess_survival(Sample.of([0.0, 9.0]), [0.1], 0.0)[0].tolist() == [9.0]  # the floor is certain


@settings(deadline=None, max_examples=20)
@given(laws_of_atoms, st.floats(0, 4), st.floats(0, 4))
def test_what_is_known_at_one_radius_says_something_about_another(pairs, known, wanted):
    law = law_of(pairs)
    said = implied(np.array([known]), np.array([law.worst_mean(known)]), np.array([wanted]), 0.0, 10.0)[0, 0]
    assert said <= law.worst_mean(wanted) + 1e-7
    if wanted <= known:
        assert said == pytest.approx(law.worst_mean(known))


def test_wins_and_losses_are_carried_exactly():
    """A law on floor and ceiling attains what one radius says about a larger one."""
    law = atoms("coin", 0.0, 10.0, [0.0, 10.0], [0.1, 0.9])
    said = implied(np.array([1.0]), np.array([law.worst_mean(1.0)]), np.array([2.5]), 0.0, 10.0)[0, 0]
    assert said == pytest.approx(law.worst_mean(2.5), abs=1e-8)
    assert implied(np.array([1.0]), np.array([5.0]), np.array([2.5]), 0.0, None)[0, 0] == 0.0


P, RADIUS, COINS = 0.85, 1.5, 8
WORST = stats.norm.cdf(stats.norm.ppf(P) - RADIUS)


def coins():
    for wins in product((0.0, 1.0), repeat=COINS):
        yield np.array(wins), P ** sum(wins) * (1 - P) ** (COINS - sum(wins))


def scores_of(past):
    return propose_scores(past, COINS, scaled_budget=RADIUS, floor=0.0)


def test_the_capital_against_the_truth_gains_nothing_exactly():
    """Over all sequences of eight coins, scores and stakes settled by the past."""
    total = risk = 0.0
    for x, chance in coins():
        account = CapitalAccount(RADIUS, ALPHA, 0.0, first=2)
        Bettor(SteadyPlanner([2, 4, 8], COINS), account).advance_to(OrderedOutcomes(x))
        rounds = list(takewhile(lambda played: played.highest_claim >= WORST, account.capital.rounds))
        total += chance * math.exp(Capital(rounds).log_capital(WORST)[0])
        risk += chance * (joint_bound([account]) > WORST)
    assert total <= 1 + 1e-9
    assert risk <= ALPHA


def test_planted_thresholds_from_the_whole_sample():
    """The same with guesses and stake settled by the outcomes that they are used on: more than 1 on average."""
    total = 0.0
    for x, chance in coins():
        whole = Sample.of(x)
        proposal, choice = choose_proposal(scores_of(whole), whole, Aim(ALPHA, COINS, WORST))
        if proposal is None:
            total += chance
            continue
        score = proposal.score
        played = BetRound(Sample(score(whole.values), whole.counts), choice.stake, score.lowest)
        total += chance * math.exp(Capital([played]).log_capital(min(WORST, played.highest_claim))[0])
    assert total > 1.05


@pytest.mark.parametrize("law", MORE_LAWS, ids=lambda law: law.name)
def test_limits_hold_from_below_and_above(law):
    """Misses of either side against Binomial(10, alpha), at radii 0 to 4 in turn."""
    samples = law.draw(np.random.default_rng(31), (10, 100))
    low = high = 0
    for index, x in enumerate(samples):
        radius = RADII[index % 5]
        means = both_sides(x, [radius], ALPHA, law.floor, law.ceiling)
        low += means.lower.limits[0] > law.worst_mean(radius) + 1e-9
        high += -means.mirror.limits[0] < law.best_mean(radius) - 1e-9
    assert not too_many(low, 10, ALPHA)
    assert not too_many(high, 10, ALPHA)


def test_limits_hold_whenever_somebody_stops():
    """Looked at again and again, with a claim just below the truth, by somebody who waits for a miss."""
    rng, misses, runs = np.random.default_rng(32), 0, 0
    for index, (law, radius) in enumerate(product(MORE_LAWS, RADII)):
        x, truth = law.draw(rng, (400,)), law.worst_mean(radius)
        game = Bets([radius], ALPHA, law.floor, law.ceiling, claim=(radius, truth - 0.01 * (truth - law.floor)))
        misses += max(float(game.after(x[:n]).at(radius)) for n in (150, 250, 400)) > truth + 1e-9
        runs = index + 1
    assert runs == 55
    assert not too_many(misses, runs, ALPHA)


def test_planted_the_smallest_return_seen_for_the_floor():
    law = LAWS[2]
    truth = law.worst_mean(2.0)
    samples = law.draw(np.random.default_rng(13), (100, 60))
    assert too_many(sum(worst_means(x, [2.0], ALPHA, x.min()).limits[0] > truth for x in samples), 100, ALPHA)
    assert not too_many(sum(worst_means(x, [2.0], ALPHA, 0.0).limits[0] > truth for x in samples[:40]), 40, ALPHA)


def test_limits_are_close_to_the_truth_and_fall_with_the_radius():
    law = LAWS[0]
    x = law.draw(np.random.default_rng(6), (20_000,))
    radii = np.linspace(0, 3, 7)
    limits = worst_means(x, radii, 0.05, law.floor, law.ceiling).at(radii)
    truth = np.array([law.worst_mean(radius) for radius in radii])
    assert np.all(np.diff(limits) < 0)
    assert np.all(limits < truth)
    assert np.all(limits[:5] > truth[:5] - 0.25)
    assert np.all(limits <= plug_in_means(Sample.of(x), radii, 0.0))
    fewer = worst_means(x[:2000], radii, 0.05, law.floor, law.ceiling).at(radii)
    surer = worst_means(x, radii, 0.001, law.floor, law.ceiling).at(radii)
    assert np.all(fewer < limits)
    assert np.all(surer < limits)


def test_no_ceiling_is_needed_from_below():
    x = LAWS[0].draw(np.random.default_rng(6), (3000,))
    bounded, open_ended = (worst_means(x, [1.0], 0.05, 0.0, top).limits[0] for top in (10.0, None))
    assert bounded == open_ended
    assert both_sides(x, [1.0], 0.05, 0.0, None).mirror is None


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 2**32 - 1), st.floats(0.01, 100), st.floats(-1000, 1000))
def test_returns_in_other_units_give_the_same_limits(seed, scale, move):
    x = np.random.default_rng(seed).beta(6, 1, 400)
    plain = worst_means(x, [1.0], 0.05, 0.0, 1.0).limits[0]
    moved = worst_means(np.maximum(x * scale + move, move), [1.0], 0.05, move).limits[0]
    assert moved == pytest.approx(plain * scale + move, abs=1e-6 * scale + 1e-9 * abs(move))


def test_the_risk_is_divided_and_none_is_spent_twice():
    past = Sample.of(LAWS[0].draw(np.random.default_rng(1), (300,)))
    radii = np.linspace(0, 4, 9)
    shares = split(past, radii, 0.05, 0.0, 10.0, 9700)
    assert 0 < shares.sum() <= 0.05
    assert np.all(shares >= 0)
    assert split(past, np.array([1.0]), 0.05, 0.0, 10.0, 9700).tolist() == [0.05]
    assert split(past, np.array([1.0, 1e300]), 0.05, 0.0, 10.0, 9700).tolist() == [0.05, 0.0]
    x = LAWS[0].draw(np.random.default_rng(2), (3000,))
    assert worst_means(x, radii, 0.05, 0.0, 10.0).shares.sum() <= 0.05
    assert worst_means(x, radii, 0.05, 0.0, 10.0, anytime=True).shares.sum() <= 0.05
    game = Bets([1.0], 0.05, 0.0, 10.0, claim=(1.0, 5.0))
    assert game.after(x).shares.sum() <= 0.05 * (1 + 1e-12)


def test_a_claim_is_proved_and_the_returns_may_come_in_any_pieces():
    law = LAWS[0]
    x = law.draw(np.random.default_rng(2), (3000,))
    target = law.worst_mean(1.0) - 0.4
    at_once = Bets([1.0], 0.05, 0.0, 10.0, claim=(1.0, target))
    in_pieces = Bets([1.0], 0.05, 0.0, 10.0, claim=(1.0, target))
    limits = [float(in_pieces.after(x[:n]).at(1.0)) for n in (50, 120, 900, 1700, 3000)]
    assert limits[0] == 0.0
    assert limits[-1] == float(at_once.after(x).at(1.0)) > target


def test_radii_beyond_all_floats_leave_the_floor():
    x = LAWS[0].draw(np.random.default_rng(2), (300,))
    means = worst_means(x, [0.0, math.inf], 0.05, 0.0, 10.0)
    assert means.at([0.0, 1e300, math.inf])[1:].tolist() == [0.0, 0.0]
    assert worst_means(x, [1e300], 0.05, 0.0, 10.0).at(1e300) == 0.0


def test_refuses_what_it_cannot_use():
    with pytest.raises(InputError, match="no outcome may be above 1, got 2"):
        worst_means([2.0], [1.0], 0.05, 0.0, 1.0)
    with pytest.raises(InputError, match="at least one scaled budget, and none below 0"):
        worst_means([2.0], [-1.0], 0.05, 0.0)
    with pytest.raises(InputError, match="alpha must be strictly between 0 and 1"):
        worst_means([2.0], [1.0], 1.0, 0.0)
