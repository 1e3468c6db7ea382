"""T6 by groups: the mean of a group's score is at most the mean worst case given the seed, exactly enumerated."""

import itertools

import numpy as np
import pytest
from scipy import stats

from surefoot.proof.bounds.samples import OrderedOutcomes
from surefoot.proof.bounds.seed_groups import OrderedGroups, SeedGroups

FLOOR = 0.0
VALUES = np.array([0.0, 1.0, 3.0, 4.0])
SEEDS = 3


def worst_given_seed(weights, c):
    """Return floor + int Phi(Phi^-1(S(y)) - c) dy for probabilities of ``VALUES``."""
    survival = np.cumsum(weights[::-1])[::-1]
    moved = stats.norm.cdf(stats.norm.ppf(np.minimum(survival, 1.0)) - c)
    return float(np.diff(VALUES, prepend=FLOOR) @ moved)


def random_game(rng):
    """Return probabilities of seeds, and of values given each seed."""
    return rng.dirichlet(np.ones(SEEDS)), rng.dirichlet(0.3 * np.ones(VALUES.size), SEEDS)


def random_guesses(rng):
    """Return guesses good and bad, near 1 among them, with cuts at values and between."""
    points = np.sort(rng.choice([0.5, 1.0, 2.0, 3.0, 3.5, 4.0], 4, replace=False))
    cuts = np.sort(rng.choice([0.0, 0.5, 1.0, 2.0, 3.0], int(rng.integers(0, 4)), replace=False))
    survival = np.sort(rng.beta(0.7, 0.3, (cuts.size + 1, points.size)), axis=1)[:, ::-1]
    # more is guessed where the other draws are higher
    survival = np.sort(survival, axis=0)
    return points, np.minimum(survival, 1 - 1e-6), cuts, np.array([rng.choice([0.0, 1.0, 10.0])])


def mean_score(game, guesses, c, n_draws, luck=None):
    """Return the exact mean of a group's score."""
    chances, given = game
    tuples = np.array(list(itertools.product(range(VALUES.size), repeat=n_draws)))
    groups = SeedGroups(VALUES[tuples])
    if luck is not None:
        groups = luck(VALUES[tuples])
    scores = OrderedGroups(SeedGroups(VALUES[tuples])).make_score(guesses, c, FLOOR)(groups)
    of_tuples = sum(chance * np.prod(weights[tuples], axis=1) for chance, weights in zip(chances, given, strict=True))
    return float(scores @ of_tuples)


class OwnDrawCounts(SeedGroups):
    """The planted error: the draw itself is among those that decide which score it is given."""

    def luck(self, reach):
        return np.repeat(self.returns.mean(axis=1)[:, None], self.n_draws, axis=1)


@pytest.mark.parametrize("planted", [False, True])
@pytest.mark.parametrize("c", [0.0, 0.7, 2.0])
def test_no_guess_scores_more_than_the_mean_worst_case_given_the_seed(c, planted):
    rng = np.random.default_rng(3)
    above = 0
    for _ in range(150):
        game = random_game(rng)
        truth = float(game[0] @ [worst_given_seed(weights, c) for weights in game[1]])
        for n_draws in (2, 3):
            found = mean_score(game, random_guesses(rng), c, n_draws, OwnDrawCounts if planted else None)
            above += found > truth + 1e-9
    # without a budget all scores with the same last point agree, and nothing can go wrong
    assert (above > 0) == (planted and c > 0)


def test_guesses_that_know_the_seed_attain_it():
    """Two seeds whose returns do not overlap: the other draw says which it is, and the score loses nothing."""
    given = np.array([[0.2, 0.8, 0.0, 0.0], [0.0, 0.0, 0.4, 0.6]])
    points = np.array([1.0, 3.0, 4.0])
    almost = 1 - 1e-12
    guesses = (points, np.array([[0.8, 0.0, 0.0], [almost, almost, 0.6]]), np.array([2.0]), np.array([10.0]))
    truth = np.mean([worst_given_seed(weights, 1.0) for weights in given])
    assert mean_score((np.array([0.5, 0.5]), given), guesses, 1.0, 2) == pytest.approx(truth, abs=1e-6)
    assert truth > worst_given_seed(given.mean(axis=0), 1.0) + 0.1


class PlainMeans(SeedGroups):
    """The planted error: many low draws may go with a mean of the others that is high."""

    def luck(self, reach):
        n_draws = self.n_draws
        return np.stack([np.delete(self.returns, draw, 1).mean(axis=1) for draw in range(n_draws)], axis=1)


@pytest.mark.parametrize("planted", [False, True])
def test_no_group_scores_less_than_the_lowest_score(planted):
    """Whatever the draws are: bets are sized by it."""
    rng = np.random.default_rng(4)
    lower = 0
    for _ in range(300):
        points, survival, cuts, reach = random_guesses(rng)
        n_draws = int(rng.integers(2, 6))
        table = rng.choice([0.0, 0.01, 1.0, 2.0, 3.9, 4.0, 40.0], (200, n_draws))
        groups = OrderedGroups(SeedGroups(table))
        score = groups.make_score((points, survival, cuts, reach), 2.0, FLOOR)
        lower += score((PlainMeans if planted else SeedGroups)(table)).min() < score.lowest
    assert (lower > 0) == planted


def test_a_draw_has_no_part_in_its_own_guess_not_even_by_rounding():
    rng = np.random.default_rng(5)
    table = rng.normal(0, 1, (500, 4)) * 10.0 ** rng.integers(-8, 8, (500, 4))
    other = table.copy()
    other[:, 2] = rng.normal(0, 1e9, 500)
    one, another = SeedGroups(table).luck(0.5), SeedGroups(other).luck(0.5)
    assert np.array_equal(one[:, 2], another[:, 2])
    assert not np.array_equal(one[:, 1], another[:, 1])


def test_a_mean_of_equal_returns_is_that_return():
    assert np.all(SeedGroups(np.full((3, 3), 0.1)).means == 0.1)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"survival": np.array([[1.0, 0.5]])}, "in \\[0, 1\\)"),
        ({"survival": np.array([[0.5, 0.2], [0.5, 0.2]])}, "a row of probabilities"),
        ({"cuts": np.array([2.0, 1.0]), "survival": np.full((3, 2), 0.5)}, "a row of probabilities"),
        ({"reach": np.array([-1.0])}, "reach"),
        ({"reach": np.array([np.inf])}, "reach"),
    ],
)
def test_guesses_that_are_none_are_refused(change, what):
    good = {"survival": np.array([[0.5, 0.2]]), "cuts": np.empty(0), "reach": np.array([1.0]), **change}
    groups = OrderedGroups(SeedGroups(np.ones((2, 2))))
    with pytest.raises(ValueError, match=what):
        groups.make_score((np.array([1.0, 2.0]), good["survival"], good["cuts"], good["reach"]), 1.0, FLOOR)


def test_one_draw_is_no_group():
    with pytest.raises(ValueError, match="at least 2 draws"):
        OrderedGroups(SeedGroups(np.ones((2, 1)))).make_score(None, 0.0, FLOOR)


def test_a_return_below_the_floor_is_refused():
    with pytest.raises(ValueError, match="below the floor"):
        OrderedGroups(SeedGroups(np.full((2, 2), -0.1))).make_score(None, 0.0, FLOOR)


def test_groups_are_handed_out_by_prefix():
    groups = OrderedGroups(SeedGroups(np.arange(12.0).reshape(4, 3)))
    assert groups.before(2).groups.returns.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert isinstance(groups.before(2), OrderedOutcomes)
    assert groups.outcomes.tolist() == [1, 4, 7, 10]
