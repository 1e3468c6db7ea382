"""T4 as a score of one episode: its mean, its lowest value, its sums; and rewards that are those of the episodes."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from surefoot.errors import InputError
from surefoot.proof.bounds.step_scores import OrderedRewards, RewardRuns, step_scores
from toys import shifted

LOW, HIGH = -1.0, 2.0


def runs_of(paid, low=LOW, high=HIGH, n_steps=None):
    """Return the rewards of episodes that are given step by step, nan after their end."""
    lengths = (~np.isnan(paid)).sum(axis=1)
    values = paid[~np.isnan(paid)]
    return RewardRuns.of(values, np.ones(values.size, dtype=int), lengths, n_steps or paid.shape[1], low, high)


def slow_score(paid, guess, c):
    """Return the score of one episode by its formula, step by step."""
    total, steps = 0.0, guess.size
    for t, (q, reward) in enumerate(zip(guess, np.nan_to_num(paid), strict=True), start=1):
        r = c * math.sqrt(t / steps)
        slope = math.exp(r * shifted_z(q) - r * r / 2)
        total += LOW + (HIGH - LOW) * (shifted(q, r) - q * slope) + slope * (reward - LOW)
    return total


def shifted_z(q):
    return float(norm.ppf(q))


def episodes(rng, n, steps):
    """Return rewards on a grid, so that runs of equal ones come, of episodes of all lengths."""
    paid = rng.integers(-2, 5, (n, steps)) / 2
    paid[np.arange(steps) >= rng.integers(1, steps + 1, n)[:, None]] = np.nan
    return np.clip(paid, LOW, HIGH)


@pytest.mark.parametrize("c", [0.0, 0.3, 2.0])
def test_scores_are_the_sum_over_all_steps(c):
    rng = np.random.default_rng(3)
    paid, guess = episodes(rng, 40, 6), rng.uniform(0.01, 0.999, 6)
    [score] = step_scores(guess[None], c, 6, LOW, HIGH)
    found = score(runs_of(paid))
    if c > 0:
        assert found == pytest.approx([slow_score(row, guess, c) for row in paid], abs=1e-9)
    else:
        assert found == pytest.approx(np.nansum(paid, axis=1), abs=1e-9)
    assert np.all(found >= score.lowest)
    assert score(runs_of(np.full((1, 6), LOW)))[0] == score.lowest
    # runs of equal rewards are the same rewards
    repeated = RewardRuns.of(np.array([1.0, -0.5]), np.array([2, 3]), np.array([5]), 6, LOW, HIGH)
    assert score(repeated) == pytest.approx(score(runs_of(np.array([[1.0, 1.0, -0.5, -0.5, -0.5, np.nan]]))))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=5),
    st.lists(st.floats(0, 0.9999), min_size=5, max_size=5),
    st.floats(0, 5),
)
def test_the_mean_of_a_score_is_at_most_the_worst_case_mean(means, guess, c):
    """Over all sequences of coins at each step, exactly; and equal to it where the guesses are the means."""
    p, steps = np.array(means), len(means)
    outcomes = np.array(np.meshgrid(*[[LOW, HIGH]] * steps)).reshape(steps, -1).T
    chances = np.prod(np.where(outcomes == HIGH, p, 1 - p), axis=1)
    truth = sum(LOW + (HIGH - LOW) * shifted(q, c * math.sqrt((t + 1) / steps)) for t, q in enumerate(p))
    [any_guess, best] = step_scores(np.array([guess[:steps], np.minimum(p, 1 - 1e-9)]), c, steps, LOW, HIGH)
    runs = runs_of(outcomes)
    assert chances @ any_guess(runs) <= truth
    if np.all(p < 1 - 1e-6):
        assert chances @ best(runs) == pytest.approx(truth, abs=1e-6)


def test_planted_guesses_that_know_the_episode():
    """One guess for each episode, made of its own rewards: the mean score is above the worst-case mean."""
    rng = np.random.default_rng(5)
    paid = np.where(rng.random((4_000, 3)) < 0.7, HIGH, LOW)
    truth = sum(LOW + (HIGH - LOW) * shifted(0.7, math.sqrt((t + 1) / 3)) for t in range(3))
    peeking = []
    for row in paid:
        [score] = step_scores(np.where(row == HIGH, 0.99, 0.01)[None], 1.0, 3, LOW, HIGH)
        peeking.append(score(runs_of(row[None]))[0])
    assert np.mean(peeking) > truth + 0.1


STEPS_ASKED = np.array([1, 2, 4])


def slow_sure(paid, step):
    """Return the least return that may follow the first steps of one episode, by the rules of rewards alone."""
    length = int((~np.isnan(paid)).sum())
    known = float(np.nansum(paid[:step]))
    return known if length <= step else known + LOW * (paid.size - step)


def test_what_is_sure_is_the_least_return_that_may_follow():
    paid = episodes(np.random.default_rng(8), 50, 4)
    runs = runs_of(paid).asked_after(STEPS_ASKED)
    expected = [[slow_sure(row, step) for step in STEPS_ASKED] for row in paid]
    assert runs.sure == pytest.approx(np.array(expected), abs=1e-10)
    assert np.all(runs.sure < np.array(expected))
    assert np.all(np.diff(runs.sure, axis=1) >= 0)
    assert np.array_equal(runs.rows(7, 19).sure, runs.sure[7:19])
    assert runs.mirrored().asked.size == 0


@settings(deadline=None, max_examples=25)
@given(
    st.integers(0, 1000),
    st.lists(st.tuples(st.floats(0, 0.9999), st.sampled_from(STEPS_ASKED.tolist())), min_size=6, max_size=6),
    st.floats(0, 5),
)
def test_the_mean_of_a_score_of_sums_is_at_most_the_worst_case_mean(seed, guessed, c):
    """Of episodes that are all equally likely, exactly; and equal to it where the guesses are the chances."""
    paid = episodes(np.random.default_rng(seed), 20, 4)
    runs = runs_of(paid).asked_after(STEPS_ASKED)
    floor, points = -3.5, np.array([-2.5, -1.0, 0.0, 1.5, 4.0, 8.0])
    guess, steps = (np.array(column, dtype=float) for column in zip(*guessed, strict=True))
    # rewards are halves: of each quarter between floor and the last point all is reached or nothing
    cells = np.arange(floor + 0.125, 8.0, 0.25)
    step_of = steps[np.searchsorted(points, cells)]
    sure = {step: np.array([slow_sure(row, step) for row in paid]) for step in STEPS_ASKED.tolist()}
    chances = np.array([(sure[int(step)] >= cell).mean() for cell, step in zip(cells, step_of, strict=True)])
    truth = floor + 0.25 * norm.cdf(norm.ppf(chances) - c * np.sqrt(step_of / 4)).sum()
    ordered = OrderedRewards(runs)
    score = ordered.make_score((points, guess, steps), c, floor)
    found = score(runs)
    assert found.mean() <= truth + 1e-9
    assert np.all(found >= score.lowest)
    # beyond it the tangent at the highest guess below 1 is not the one at 1
    if c <= 1:
        best = ordered.make_score((cells + 0.125, np.minimum(chances, 1 - 1e-9), step_of), c, floor)
        assert best(runs).mean() == pytest.approx(truth, abs=1e-3)


def test_planted_steps_that_know_the_episode():
    """Won at some step: with the step of each episode's own win, the chance of it falls less than by T8."""
    rng = np.random.default_rng(6)
    paid = np.eye(4)[rng.integers(0, 4, 1_000)] * (rng.random((1_000, 1)) < 0.95)
    runs = runs_of(paid, 0.0, 1.0).asked_after(np.arange(1, 5))
    truth = max(shifted(0.95 * step / 4, 2 * math.sqrt(step / 4)) for step in range(1, 5))
    peeking = []
    for index, row in enumerate(paid):
        step = np.array([np.argmax(row) + 1.0])
        score = OrderedRewards(runs).make_score((np.ones(1), np.full(1, 0.95), step), 2.0, 0.0)
        peeking.append(score(runs.rows(index, index + 1))[0])
    assert np.mean(peeking) > truth + 0.1


def test_rows_are_those_episodes_and_the_mirror_is_minus_them():
    paid = episodes(np.random.default_rng(4), 30, 5)
    runs = runs_of(paid)
    [score] = step_scores(np.full((1, 5), 0.6), 1.0, 5, LOW, HIGH)
    assert runs.rows(7, 19).size == 12
    assert np.array_equal(score(runs.rows(7, 19)), score(runs)[7:19])
    assert np.array_equal(OrderedRewards(runs).outcomes, np.nansum(paid, axis=1))
    mirror = runs.mirrored()
    assert (mirror.floor, mirror.ceiling) == (-10.0, 5.0)
    assert np.array_equal(OrderedRewards(mirror).outcomes, -np.nansum(paid, axis=1))


def test_what_has_not_come_is_not_shown():
    runs = runs_of(episodes(np.random.default_rng(4), 30, 5))
    past = OrderedRewards(runs).before(12)
    assert past.size == past.rewards.size == past.outcomes.size == 12
    assert past.rewards.values.size == runs.first[12]
    with pytest.raises(IndexError, match="12 outcomes have come"):
        past.sample(0, 13)


@pytest.mark.parametrize(
    ("guesses", "match"),
    [
        (None, "needs guesses"),
        ((np.arange(5.0), np.full(5, 1.0)), r"one probability for each step, in \[0, 1\)"),
        ((np.arange(4.0), np.full(4, 0.5)), "one probability for each step"),
        ((np.arange(5.0), np.full(5, np.nan)), "one probability for each step"),
        ((np.array([0.0]), np.array([1.0]), np.array([2.0])), r"a probability must be in \[0, 1\)"),
        ((np.array([0.0, -1.0]), np.full(2, 0.5), np.full(2, 2.0)), "points that ascend from the floor"),
        ((np.array([-6.0]), np.full(1, 0.5), np.full(1, 2.0)), "points that ascend from the floor"),
        ((np.array([0.0]), np.full(1, 0.5), np.full(2, 2.0)), "a step for each point"),
        ((np.array([0.0]), np.full(1, 0.5), np.array([3.0])), "after which something was asked"),
    ],
)
def test_guesses_that_make_no_score_are_refused(guesses, match):
    runs = runs_of(episodes(np.random.default_rng(4), 3, 5))
    ordered = OrderedRewards(runs.asked_after(np.array([2, 5])))
    with pytest.raises(ValueError, match=match):
        ordered.make_score(guesses, 1.0, ordered.rewards.floor)


@pytest.mark.parametrize(
    ("values", "repeats", "lengths", "match"),
    [
        ([1.0, 1.0], [2, 2], [3, 1], "do not end where the episodes do"),
        ([1.0], [3], [2], "do not end where the episodes do"),
        ([1.0], [2], [2, 1], "do not end where the episodes do"),
        ([2.5], [1], [1], "every reward must be between -1 and 2"),
        ([np.nan], [1], [1], "every reward must be between -1 and 2"),
        ([1.0, 1.0], [2], [2], "how often each is repeated"),
        ([1.0, 1.0], [2, 0], [2], "how often each is repeated"),
        ([1.0], [7], [7], "episodes of 1 to 5 steps"),
    ],
)
def test_rewards_that_are_not_those_of_the_episodes_are_named(values, repeats, lengths, match):
    with pytest.raises(InputError, match=match):
        RewardRuns.of(np.array(values), np.array(repeats), np.array(lengths), 5, LOW, HIGH)
