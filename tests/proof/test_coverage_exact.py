"""Coverage without simulation where it can be computed, and planted errors that must show.

For coins (floor or ceiling) and for a law on three values a certificate that does not look at the order of the episodes
depends on counts alone, so the probability of a miss is a finite sum: no seed, no false alarms, and the worst coin can
be searched for. Where order counts (bets) certificates are drawn, with a false-alarm level that each test states.
"""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from laws import FALSE_ALARM, MORE_LAWS, atoms
from surefoot.episodes import Episodes
from surefoot.proof.bounds.betting import BetRound, Capital
from surefoot.proof.bounds.samples import Sample
from surefoot.proof.planning.proposals import propose_scores
from surefoot.proof.planning.stakes import Aim, choose_proposal
from surefoot.proof.planning.strategies import Bets
from surefoot.proof.query import certify

ALPHA = 0.2
RADII = np.arange(5.0)  # c = 0 to 4
BANDS = ("band", "per-threshold", "dkw", "binary")


def lower_limits(counts, values, method, alpha=ALPHA, claimed=1):
    """Return the limits at all radii of returns that came so often; ``claimed``: how often too much n is claimed."""
    returns = np.repeat(np.array(values, dtype=float), np.array(counts) * claimed)
    episodes = Episodes.from_returns(returns, sigma=1.0, floor=0.0, ceiling=max(values))
    return np.array(certify(episodes, RADII.tolist(), 1 - alpha, method).lower)


def coin_limits(n, method, **planted):
    """Return one row of limits for each number of wins."""
    return np.array([lower_limits((n - wins, wins), (0.0, 1.0), method, **planted) for wins in range(n + 1)])


def coin_risks(limits, chances):
    """Return P(any limit exceeds the worst case) for each chance to win, exactly."""
    n = len(limits) - 1
    worst = stats.norm.cdf(stats.norm.ppf(chances)[:, None] - RADII)
    missed = (limits[None] > worst[:, None]).any(axis=2)
    return (stats.binom.pmf(np.arange(n + 1), n, chances[:, None]) * missed).sum(axis=1)


def worst_chances(limits):
    """Return chances just below those at which one more number of wins misses: there the risk has its peaks."""
    steps = limits[(limits[:, 0] > 1e-6) & (limits[:, 0] < 1), 0]
    return np.unique(np.concatenate([steps * (1 - 1e-6), np.linspace(0.01, 0.99, 99)]))


@pytest.mark.parametrize("method", BANDS)
@pytest.mark.parametrize("n", [7, 40])
def test_no_coin_is_certified_wrongly_too_often(method, n):
    limits = coin_limits(n, method)
    assert coin_risks(limits, worst_chances(limits)).max() <= ALPHA


def test_the_exact_methods_leave_nothing_over():
    """Clopper-Pearson comes within a thousandth of alpha for some coin, so any error in it would show."""
    for method in ("binary", "per-threshold"):
        limits = coin_limits(40, method)
        assert coin_risks(limits, worst_chances(limits)).max() > 0.999 * ALPHA


PLANTED = {"a tenth more risk": {"alpha": 1.1 * ALPHA}, "every episode twice": {"claimed": 2}}


@pytest.mark.parametrize("planted", PLANTED)
def test_planted_errors_of_a_coin_are_found(planted):
    limits = coin_limits(40, "binary", **PLANTED[planted])
    assert coin_risks(limits, worst_chances(limits)).max() > 1.02 * ALPHA


THREE = (0.0, 1.0, 4.0)
N = 12
COUNTS = [counts for counts in product(range(N + 1), repeat=3) if sum(counts) == N]


@pytest.mark.parametrize("method", [method for method in BANDS if method != "binary"])
def test_no_law_on_three_values_is_certified_wrongly_too_often(method):
    """All laws on a grid, all samples of 12, all c at once: the risk is a sum over the samples."""
    limits = np.array([lower_limits(counts, THREE, method) for counts in COUNTS])
    worst_risk = 0.0
    for low, middle in product(np.linspace(0.02, 0.9, 12), repeat=2):
        if low + middle >= 0.99:
            continue
        weights = (low, middle, 1 - low - middle)
        reach = stats.norm.ppf([1 - low, weights[2]])[:, None]  # of 1 and of 4, from where steps of 1 and 3 lead
        worst = np.array([1.0, 3.0]) @ stats.norm.cdf(reach - RADII)
        missed = (limits > worst + 1e-9).any(axis=1)
        worst_risk = max(worst_risk, float(stats.multinomial.pmf(COUNTS, N, weights) @ missed))
    assert worst_risk <= ALPHA
    if method != "dkw":
        assert worst_risk > ALPHA / 20  # the grid has laws that are not easy


# --- stopping when one likes what one sees ---------------------------------------------------------------------------

LOOKS = (10, 20, 40, 80, 160, 320)


def risk_of_stopping(method, p, radius):
    """Return P(the limit for settled n is wrong at any look), exactly: carry the law of the number of wins along."""
    worst = stats.norm.cdf(stats.norm.ppf(p) - radius)
    mass, before = np.ones(1), 0
    for n in LOOKS:
        mass = np.convolve(mass, stats.binom.pmf(np.arange(n - before + 1), n - before, p))
        near = np.flatnonzero(mass > 1e-9)
        right = [lower_limits((n - k, k), (0.0, 1.0), method)[int(radius)] <= worst + 1e-9 for k in near]
        kept = np.zeros(mass.size)
        kept[near] = mass[near] * right
        mass, before = kept, n
    return 1 - mass.sum()


@pytest.mark.parametrize(("method", "radius"), [("binary", 0.0), ("binary", 4.0), ("per-threshold", 2.0)])
def test_planted_stopping_on_a_limit_for_settled_n(method, radius):
    assert risk_of_stopping(method, 0.83, radius) > 1.8 * ALPHA


LATER = (100, 120, 150, 190, 240, 300)


def test_bets_for_any_time_hold_at_the_worst_look():
    """Misses at any look against Binomial(60, alpha) at a false-alarm level of 10^-6.

    The planted twin, stopping on bets for settled n, misses in about two of five runs: to tell that from alpha for
    certain takes more runs than a test should have, so it is in ``bench/coverage.py``.
    """
    law, missed = MORE_LAWS[9], 0
    for x in law.draw(np.random.default_rng(5), (60, LATER[-1])):
        game = Bets([0.0], ALPHA, law.floor, law.ceiling)
        missed += any(float(game.after(x[:n]).at(0.0)) > law.worst_mean(0.0) + 1e-9 for n in LATER)
    assert missed <= stats.binom.isf(FALSE_ALARM, 60, ALPHA)


# --- what was seen, taken for what can be ----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["band", "dkw", "sequential", "auto"])
def test_planted_the_smallest_return_seen_for_the_floor(method):
    """With the true floor no more misses than alpha allows, at a false-alarm level of 10^-6; with that one, more."""
    law = atoms("a very rare catastrophe", 0.0, 100.0, [0.0, 99.0, 100.0], [0.002, 0.498, 0.5])
    n, runs = 150 if method == "sequential" else 60, 60
    samples = law.draw(np.random.default_rng(14), (runs, n))
    most, truth = stats.binom.isf(FALSE_ALARM, runs, ALPHA), law.worst_mean(3.0)
    missed = [
        sum(
            certify(Episodes.from_returns(x, sigma=1.0, floor=floor(x), ceiling=100.0), [3.0], 1 - ALPHA, method).lower[
                0
            ]
            > truth
            for x in samples
        )
        for floor in (np.min, lambda x: law.floor)
    ]
    assert missed[0] > most >= missed[1]


# --- scores that were chosen by what they are used on ----------------------------------------------------------------

COINS = 6


@pytest.mark.parametrize("radius", [0.5, 1.0, 2.0, 3.0, 4.0])
def test_planted_scores_from_the_whole_sample_gain_against_the_truth(radius):
    """The mean capital against the truth, over all sequences of six coins: above 1; from the past it is at most 1."""
    p = 0.85
    worst = float(stats.norm.cdf(stats.norm.ppf(p) - radius))
    total = 0.0
    for wins in range(COINS + 1):
        x = Sample.of([0.0] * (COINS - wins) + [1.0] * wins)
        proposals = propose_scores(x, COINS, scaled_budget=radius, floor=0.0)
        proposal, choice = choose_proposal(proposals, x, Aim(ALPHA, COINS, worst))
        capital = 0.0
        if proposal is not None:
            score = proposal.score
            played = BetRound(Sample(score(x.values), x.counts), choice.stake, score.lowest)
            capital = Capital([played]).log_capital(min(worst, played.highest_claim))[0]
        total += stats.binom.pmf(wins, COINS, p) * np.exp(capital)
    assert total > 1.02
