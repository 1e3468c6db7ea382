"""T9: the mean of a score that knows the luck of the start is at most the mean worst case given it, exactly summed."""

import numpy as np
import pytest
from scipy import stats

from surefoot.proof.bounds.reset_luck import LuckyReturns, OrderedLuck
from surefoot.proof.bounds.samples import OrderedOutcomes

FLOOR = -1.0
VALUES = np.array([-1.0, 0.0, 2.0, 3.0])
KINDS = 3


def worst_given(weights, c):
    """Return floor + int Phi(Phi^-1(S(y)) - c) dy for probabilities of ``VALUES``."""
    survival = np.cumsum(weights[::-1])[::-1]
    moved = stats.norm.cdf(stats.norm.ppf(np.minimum(survival, 1.0)) - c)
    return FLOOR + float(np.diff(VALUES, prepend=FLOOR) @ moved)


def random_game(rng):
    """Return probabilities of kinds of starts, of values given each, and two features of each kind."""
    return rng.dirichlet(np.ones(KINDS)), rng.dirichlet(0.3 * np.ones(VALUES.size), KINDS), rng.normal(0, 1, (KINDS, 2))


def random_guesses(rng, move):
    """Return guesses good and bad, near 1 among them, that do not all fall."""
    cuts = np.sort(rng.normal(0, 1, int(rng.integers(0, 4))))
    low, high = np.sort(rng.normal(0, 1.5, 2))
    begin = FLOOR - move * high
    points = np.sort(begin + rng.uniform(0.0, 6.0, 5))
    survival = np.minimum(rng.beta(0.7, 0.3, (cuts.size + 1, 5)), 1 - 1e-6)
    if rng.random() < 0.5:
        # a planner's: more where luck is better, and less further up
        survival = np.sort(np.sort(survival, axis=0), axis=1)[:, ::-1]
    return points, survival, cuts, rng.normal(0, 0.7, (3, 2)), np.array([low, high, move])


def mean_score(game, guesses, c, known=LuckyReturns):
    """Return the exact mean of the score of an episode."""
    chances, given, features = game
    kind, value = (axis.ravel() for axis in np.indices(given.shape))
    episodes = known(VALUES[value], features[kind])
    score = OrderedLuck(episodes).make_score(guesses, c, FLOOR)
    return float(score(episodes) @ (chances[kind] * given[kind, value]))


class LuckOfTheReturn(LuckyReturns):
    """The planted error: luck is read when the noise has had its say."""

    def luck(self, weights):
        return 2 * self.returns - 2.0


@pytest.mark.parametrize("planted", [False, True])
@pytest.mark.parametrize("move", [0.0, 1.0, 2.5])
@pytest.mark.parametrize("c", [0.7, 2.0])
def test_no_guess_scores_more_than_the_mean_worst_case_given_luck(c, move, planted):
    rng = np.random.default_rng(3)
    above = 0
    for _ in range(150):
        game = random_game(rng)
        truth = float(game[0] @ [worst_given(weights, c) for weights in game[1]])
        found = mean_score(game, random_guesses(rng, move), c, LuckOfTheReturn if planted else LuckyReturns)
        above += found > truth + 1e-9
    assert (above > 0) == planted


@pytest.mark.parametrize("error", ["returns moved by one more", "moved luck not added", "surplus from the begin"])
def test_planted_a_move_that_is_not_undone(error, monkeypatch):
    from surefoot.proof.bounds import reset_luck

    made = reset_luck.LuckScore.__call__

    def wrong(self, episodes):
        scores = made(self, episodes)
        if error == "returns moved by one more":
            return made(self, LuckyReturns(np.minimum(episodes.returns + 1.0, 3.0), episodes.features))
        if error == "moved luck not added":
            return scores - self.move * np.clip(episodes.luck(self.weights), *self.ends)
        return scores + self.surplus[0][-1] * 0.1

    monkeypatch.setattr(reset_luck.LuckScore, "__call__", wrong)
    rng = np.random.default_rng(3)
    above = 0
    for _ in range(150):
        game = random_game(rng)
        truth = float(game[0] @ [worst_given(weights, 0.7) for weights in game[1]])
        above += mean_score(game, random_guesses(rng, 1.0), 0.7) > truth + 1e-9
    assert above > 0


def test_guesses_that_know_luck_attain_it():
    """Noise of 0 or 1 and luck that adds 0 or 2: moved by it, returns of both kinds have one survival function."""
    given = np.array([[0.2, 0.8, 0.0, 0.0], [0.0, 0.0, 0.2, 0.8]])
    game = (np.array([0.5, 0.5]), given, np.array([[0.0], [3.0]]))
    almost = 1 - 1e-12
    weights = np.array([[0.0], [1.0], [0.0]])
    guesses = (np.array([-1.0, 0.0]), np.array([[almost, 0.8]]), np.empty(0), weights, np.array([0.0, 3.0, 1.0]))
    truth = np.mean([worst_given(row, 1.0) for row in given])
    assert mean_score(game, guesses, 1.0) == pytest.approx(truth, abs=1e-6)
    assert truth > worst_given(given.mean(axis=0), 1.0) + 0.2


def test_no_episode_scores_less_than_the_lowest_score():
    """Whatever its luck: bets are sized by it."""
    rng = np.random.default_rng(4)
    for _ in range(200):
        guesses = random_guesses(rng, float(rng.choice([0.0, 1.0, 7.0])))
        features = rng.choice([-1e9, -1.0, 0.0, 0.3, 1e9], (300, 2))
        episodes = LuckyReturns(rng.choice([FLOOR, FLOOR + 1e-9, 2.9, 40.0], 300), features)
        score = OrderedLuck(episodes).make_score(guesses, 2.0, FLOOR)
        assert score(episodes).min() >= score.lowest


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({1: np.array([[1.0, 0.5]])}, "in \\[0, 1\\)"),
        ({1: np.array([[0.5, 0.2], [0.5, 0.2]])}, "a row of probabilities"),
        ({2: np.array([2.0, 1.0]), 1: np.full((3, 2), 0.5)}, "a row of probabilities"),
        ({3: np.zeros((3, 2))}, "three finite weights"),
        ({3: np.array([[0.0], [np.nan], [0.0]])}, "three finite weights"),
        ({4: np.array([1.0, 0.0, 1.0])}, "finite ends"),
        ({4: np.array([0.0, np.inf, 1.0])}, "finite ends"),
        ({4: np.array([0.0, 1.0, -1.0])}, "a move"),
        ({0: np.array([-3.0, 2.0])}, "ascend from the floor"),
    ],
)
def test_guesses_that_are_none_are_refused(change, what):
    good = [np.array([1.0, 2.0]), np.array([[0.5, 0.2]]), np.empty(0), np.zeros((3, 1)), np.array([0.0, 1.0, 1.0])]
    for place, value in change.items():
        good[place] = value
    with pytest.raises(ValueError, match=what):
        OrderedLuck(LuckyReturns(np.ones(2), np.ones((2, 1)))).make_score(tuple(good), 1.0, FLOOR)


def test_a_return_below_the_floor_is_refused():
    with pytest.raises(ValueError, match="below the floor"):
        OrderedLuck(LuckyReturns(np.full(2, -1.1), np.ones((2, 1)))).make_score(None, 0.0, FLOOR)


def test_episodes_are_handed_out_by_prefix():
    ordered = OrderedLuck(LuckyReturns(np.arange(4.0), np.arange(8.0).reshape(4, 2)))
    assert ordered.before(2).episodes.features.tolist() == [[0, 1], [2, 3]]
    assert isinstance(ordered.before(2), OrderedOutcomes)
    assert ordered.before(2).outcomes.tolist() == [0, 1]


def test_before_an_episode_there_is_nothing_of_it():
    """Neither its return nor its luck: what is planned of them would be a bet on itself."""
    episodes = LuckyReturns(np.arange(5.0), np.arange(10.0).reshape(5, 2))
    past = OrderedLuck(episodes).before(3)
    assert past.size == 3
    assert past.outcomes.tolist() == past.episodes.returns.tolist() == [0.0, 1.0, 2.0]
    assert past.episodes.features.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
