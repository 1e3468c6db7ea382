"""A claim about two agents: as often false as its confidence allows, at most, whenever the run stops."""

import numpy as np
import pytest

from laws import LAWS, atoms, too_many
from surefoot.errors import InputError
from surefoot.proof.comparison import Comparison, ComparisonMonitor
from surefoot.proof.planning.strategies import Bets

SIGMA, BUDGET, LOOKS = 0.2, 0.2, (100, 200, 400)
RUNS, CONFIDENCE = 60, 0.8


def contest(law, confidence=CONFIDENCE, **given):
    limits = (law.floor, law.ceiling)
    return ComparisonMonitor(**{"budget": BUDGET, "sigma": SIGMA, "confidence": confidence, "limits": limits, **given})


def as_bad(law):
    """Return B's law: its mean is A's worst case at the budget, so that A is not better where that is attained."""
    mean = law.worst_mean(BUDGET / SIGMA)
    share = (mean - law.floor) / (law.ceiling - law.floor)
    return atoms("B", law.floor, law.ceiling, [law.floor, law.ceiling], [1 - share, share])


def claims(law, made, rng):
    """Return whether the claim is made at any of the looks."""
    a, b = law.draw(rng, (LOOKS[-1],)), as_bad(law).draw(rng, (LOOKS[-1],))
    return any(made.reason_to_stop(a[:n], b[:n]) == "proved" for n in LOOKS)


@pytest.mark.parametrize("law", LAWS[:2], ids=lambda law: law.name)
def test_a_false_claim_is_made_as_rarely_as_promised(law):
    rng = np.random.default_rng(11)
    wrong = sum(claims(law, contest(law), rng) for _ in range(RUNS))
    assert not too_many(wrong, RUNS, 1 - CONFIDENCE)


@pytest.mark.parametrize("planted", ["no bound for B", "budget forgotten"])
def test_planted_errors_are_noticed_by_that_test(planted, monkeypatch):
    law, rng = LAWS[0], np.random.default_rng(11)
    given = {"budget": 0.0} if planted == "budget forgotten" else {}
    if planted == "no bound for B":
        real = ComparisonMonitor.result

        def careless(self, a, b, stopped):
            made = real(self, a, b, stopped)
            object.__setattr__(made, "upper", float(b.mean()))
            object.__setattr__(made, "lower", float(a.mean()) - law.worst_mean(0.0) + law.worst_mean(BUDGET / SIGMA))
            return made

        monkeypatch.setattr(ComparisonMonitor, "result", careless)
    wrong = sum(claims(law, contest(law, **given), rng) for _ in range(RUNS))
    assert too_many(wrong, RUNS, 1 - CONFIDENCE)


def test_each_bound_has_half_of_alpha_and_is_the_one_of_a_sequential_certificate():
    rng, law = np.random.default_rng(3), LAWS[0]
    a, b = law.draw(rng, (700,)), as_bad(law).draw(rng, (700,))
    made = contest(law, 0.9).result(a, b, "all played")
    lower = Bets([BUDGET / SIGMA], 0.05, law.floor, law.ceiling).after(a).at(BUDGET / SIGMA)
    upper = -Bets([0.0], 0.05, -law.ceiling, -law.floor).after(-b).at(0.0)
    assert made.lower == pytest.approx(float(lower), rel=1e-6)
    assert made.upper == pytest.approx(float(upper), rel=1e-6)
    assert made.lower <= lower
    assert made.upper >= upper


def test_bounds_move_with_the_returns():
    """Floors that are not 0: the ends of B's mirrored returns are the right ones."""
    rng, law = np.random.default_rng(3), LAWS[0]
    a, b = law.draw(rng, (700,)), as_bad(law).draw(rng, (700,))
    made, moved = (
        ComparisonMonitor(budget=BUDGET, sigma=SIGMA, confidence=0.9, limits=(law.floor + by, law.ceiling + by)).result(
            a + by, b + by, "all played"
        )
        for by in (0.0, -50.0)
    )
    assert (moved.lower + 50, moved.upper + 50) == pytest.approx((made.lower, made.upper), rel=1e-6)


def test_a_better_agent_is_found_out_and_the_sentence_has_its_bounds():
    rng = np.random.default_rng(5)
    better, worse = 100 - rng.exponential(3, 4_000).clip(0, 100), rng.uniform(0, 90, 4_000)
    judge = contest(LAWS[2], 0.95)
    sizes = range(100, 4_001, 100)
    n = next(n for n in sizes if judge.reason_to_stop(better[:n], worse[:n]) == "proved")
    assert n < 2_000
    made = judge.result(better[:n], worse[:n], "proved")
    assert made.proved
    assert made.to_json()["proved"] is True
    said = made.sentence("good, sigma 0.2", "bad")
    assert said.startswith("With 95% confidence, A (good, sigma 0.2) is better than B (bad) under the worst attack: ")
    assert "under any observation attack with budget 0.2 the expected return of A is at least " in said
    assert said.endswith(" without attack, and so under the worst one.")
    other = contest(LAWS[2], 0.95)
    assert other.reason_to_stop(worse, better) == "out of reach"
    said = other.result(worse, better, "out of reach").sentence("bad", "good", attacked=True)
    assert said.startswith("Not proved: A (bad) is better than B (good) under the worst attack. With 95% confidence, ")
    assert " under the attack tried, " in said


def test_a_proved_claim_reads_as_one():
    """With two decimals A would have at least 0.51 and B at most 0.52."""
    bounds = {"budget": 0.1, "confidence": 0.95, "estimates": (0.6, 0.5), "n_episodes": (900, 900), "stopped": "proved"}
    close = Comparison(lower=0.5163, upper=0.5152, **bounds).sentence("a", "b")
    assert "of A is at least 0.5163; that of B is at most 0.5152 " in close
    far = Comparison(lower=0.5163, upper=0.4152, **bounds).sentence("a", "b")
    assert "of A is at least 0.51; that of B is at most 0.42 " in far
    open_ = Comparison(lower=0.51, upper=0.5163, **bounds).sentence("a", "b")
    assert "of A is at least 0.51; that of B is at most 0.52 " in open_


def test_what_cannot_be_compared_is_rejected():
    law = LAWS[0]
    for wrong, said in (
        ({"limits": (0.0, None)}, "needs a ceiling"),
        ({"sigma": 0.0}, "A must have noise"),
        ({"confidence": 1.0}, "confidence must be"),
        ({"budget": -1.0}, "a budget must be"),
    ):
        with pytest.raises(InputError, match=said):
            contest(law, **wrong)
