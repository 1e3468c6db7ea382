"""Exact bounds of a difference of success probabilities: coverage by enumeration, laws, planted errors."""

import numpy as np
import pytest
from scipy import stats

from surefoot.errors import InputError
from surefoot.proof import paired_wins
from surefoot.proof.bounds.binomial import lower_limit
from surefoot.proof.paired_wins import difference_lower

N, ALPHA = 9, 0.1
GRID = [(a / 40, b / 40) for a in range(41) for b in range(41 - a)]
OUTCOMES = [(i, j) for i in range(N + 1) for j in range(N + 1 - i)]


def worst_error(bounds):
    """Return the largest probability over a grid of (a, b) that the bound exceeds a - b: exact, by enumeration."""
    counts = np.array([(i, j, N - i - j) for i, j in OUTCOMES])
    worst = 0.0
    for a, b in GRID:
        chances = stats.multinomial.pmf(counts, N, [a, b, max(0.0, 1 - a - b)])
        worst = max(worst, float(chances[np.array(bounds) > a - b + 1e-12].sum()))
    return worst


def all_bounds(alpha):
    return [difference_lower(N, i, j, alpha) for i, j in OUTCOMES]


def test_the_bound_is_wrong_with_probability_alpha_at_most_and_nearly_so():
    assert 0.7 * ALPHA < worst_error(all_bounds(ALPHA)) <= ALPHA


@pytest.mark.parametrize(
    "planted", ["half of the confidence", "only one b", "a set that is not closed", "b as observed"]
)
def test_planted_errors_are_noticed_by_that_test(planted, monkeypatch):
    alpha = ALPHA
    if planted == "half of the confidence":
        alpha = 2 * ALPHA
    elif planted == "only one b":
        monkeypatch.setattr(paired_wins, "_is_refuted", refuted_at_one_point)
    elif planted == "b as observed":
        monkeypatch.setattr(paired_wins, "_likely_share", lambda n, wins, gamma: (wins / n, wins / n))
    else:
        real = paired_wins._fewest_wins

        def too_few(n, a_alone, b_alone, alpha):
            needed = real(n, a_alone, b_alone, alpha)
            needed[:b_alone] = n + 1
            return needed

        monkeypatch.setattr(paired_wins, "_fewest_wins", too_few)
    assert worst_error(all_bounds(alpha)) > ALPHA


def test_the_set_is_closed_whatever_ranks_the_outcomes(monkeypatch):
    """With a rank that jumps up and down with the wins of B, fewer wins of B never need more wins of A."""
    monkeypatch.setattr(paired_wins, "_rank", lambda n, a, b, alpha: a - b + 3 * np.sin(5 * b))
    fewest = paired_wins._fewest_wins(20, 9, 4, ALPHA)
    assert np.all(np.diff(fewest) >= 0)
    assert fewest[4] <= 9


def refuted_at_one_point(difference, n, fewest, likely_b, alpha):
    """The nuisance taken as known: the smallest b that is possible."""
    b = np.array([max(0.0, -difference)])
    return bool(paired_wins._probabilities(b + difference, b, n, fewest)[0] <= alpha)


def test_the_bound_grows_with_wins_confidence_and_pairs():
    few = difference_lower(30, 6, 2, 0.05)
    assert difference_lower(30, 7, 2, 0.05) > few > difference_lower(30, 6, 3, 0.05)
    assert difference_lower(30, 6, 2, 0.1) > few > difference_lower(30, 6, 2, 0.01)
    assert difference_lower(60, 12, 4, 0.05) > few > -1


@pytest.mark.parametrize("n", [20, 200])
def test_without_a_pair_won_alone_it_is_what_one_proportion_allows(n):
    """If no pair was won by B alone, b is at most the Clopper-Pearson bound: a - b is at least minus that."""
    most = 1 - float(lower_limit(n, n, 0.025)[0])
    assert difference_lower(n, 0, 0, 0.025) == pytest.approx(-most, rel=0.01)
    assert difference_lower(n, 0, 0, 0.025) <= -most


def test_what_are_no_counts_is_rejected():
    for wrong in ((0, 0, 0), (10, 8, 3), (10, -1, 0), (paired_wins.MOST_PAIRS + 1, 0, 0)):
        with pytest.raises(InputError, match="wins alone"):
            difference_lower(*wrong, 0.05)


def test_a_cell_is_bounded_by_its_worst_corner():
    """No difference counts as refuted that one b of a fine grid does not refute."""
    n, alpha = 40, 0.05
    left = 0.98 * alpha
    for i, j in ((9, 2), (3, 8), (20, 5)):
        bound = difference_lower(n, i, j, alpha)
        fewest = paired_wins._fewest_wins(n, i, j, alpha)
        low, high = paired_wins._likely_share(n, j, 0.02 * alpha)
        b = np.linspace(max(low, -bound), min(high, (1 - bound) / 2), 4001)
        assert paired_wins._probabilities(b + bound, b, n, fewest).max() <= left
        # And it is nearly the best one: a little higher, some b is not refuted.
        b = np.linspace(max(low, -bound - 0.01), min(high, (1 - bound - 0.01) / 2), 4001)
        assert paired_wins._probabilities(b + bound + 0.01, b, n, fewest).max() > left


@pytest.mark.parametrize(("n", "runs"), [(300, 300), (2_000, 200)])
def test_many_pairs_are_bounded_wrongly_as_often_as_stated(n, runs):
    """Refuted truths among simulated counts; an honest method fails this with probability 10^-4."""
    alpha, a, b = 0.1, 0.06, 0.04
    counts = np.random.default_rng(1).multinomial(n, [a, b, 1 - a - b], size=runs)
    misses = sum(is_refuted(n, int(i), int(j), a - b, alpha) for i, j, _ in counts)
    assert stats.binom.sf(misses - 1, runs, alpha) > 1e-4
    # With three times the error it would fail, so that the test can.
    planted = sum(is_refuted(n, int(i), int(j), a - b, 3 * alpha) for i, j, _ in counts)
    assert stats.binom.sf(planted - 1, runs, alpha) < 1e-4


def is_refuted(n, i, j, difference, alpha):
    """Return whether the bound would be above this difference."""
    gamma = 0.02 * alpha
    fewest = paired_wins._fewest_wins(n, i, j, alpha)
    return paired_wins._is_refuted(difference, n, fewest, paired_wins._likely_share(n, j, gamma), alpha - gamma)


@pytest.mark.parametrize(("n", "a_alone", "b_alone"), [(200, 30, 12), (10_000, 200, 150)])
def test_the_bound_is_about_as_far_from_the_estimate_as_normal_counts_would_have_it(n, a_alone, b_alone):
    estimate = (a_alone - b_alone) / n
    spread = np.sqrt(((a_alone + b_alone) / n - estimate**2) / n)
    distance = estimate - difference_lower(n, a_alone, b_alone, 0.025)
    assert 1 < distance / (stats.norm.isf(0.025) * spread) < 1.1


def test_every_difference_is_refuted_at_what_the_interval_for_b_has_left_of_alpha(monkeypatch):
    """Planted: the lowest of them, which may be the answer, at all of alpha."""
    levels = []

    def noted(difference, n, fewest, likely_b, alpha):
        levels.append(alpha)
        return refuted(difference, n, fewest, likely_b, alpha)

    refuted = paired_wins._is_refuted
    monkeypatch.setattr(paired_wins, "_is_refuted", noted)
    difference_lower(40, 20, 5, 0.05)
    assert len(levels) > 2
    assert set(levels) == {0.05 - paired_wins._NUISANCE_SHARE * 0.05}
