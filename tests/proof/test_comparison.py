"""What is proved about two agents: whole tables are true as often as promised, whenever the run stops; gates; words."""

import numpy as np
import pytest

from laws import LAWS, atoms, too_many
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.files import write_json
from surefoot.noise import Noise
from surefoot.proof import comparison, difference
from surefoot.proof.comparison import (
    AttackedRow,
    Comparer,
    Comparison,
    Gate,
    Question,
    check_budgets_count_alike,
)
from surefoot.proof.planning.strategies import Bets
from surefoot.report.comparison_text import (
    NOT_ALGORITHMS,
    describe_changes,
    smallest_difference,
    state_assumption,
    state_result,
)

SIGMA, BUDGET, LOOKS = 0.2, 0.2, (100, 200, 400)
RUNS, CONFIDENCE = 60, 0.8
PLAIN = Question()
BETTER = Question(confidence=CONFIDENCE, budgets=(BUDGET,), gate=Gate(None))
SETUP = {"seed": 5, "purpose": [], "n_envs": 1, "block_size": 1, "device": "cpu", "task": "t"}


def record(returns, law, sigma=SIGMA, **metadata):
    metadata = {**SETUP, **metadata}
    return Episodes.from_returns(returns, sigma=sigma, floor=law.floor, ceiling=law.ceiling, **metadata)


def as_bad(law):
    """Return B's law: its mean is A's worst case at the budget, so that A is not better where that is attained."""
    mean = law.worst_mean(BUDGET / SIGMA)
    share = (mean - law.floor) / (law.ceiling - law.floor)
    return atoms("B", law.floor, law.ceiling, [law.floor, law.ceiling], [1 - share, share])


def comparer(law, question=BETTER, *, anytime=True):
    made_up = record([law.floor, law.ceiling], law)
    return Comparer(question, made_up, made_up, anytime=anytime)


def claims(law, watching, rng):
    """Return whether A is claimed to be better under attack at any of the looks."""
    a, b = law.draw(rng, (LOOKS[-1],)), as_bad(law).draw(rng, (LOOKS[-1],))
    return any(watching.reason_to_stop(a[:n], b[:n]) == "proved" for n in LOOKS)


@pytest.mark.parametrize("law", LAWS[:2], ids=lambda law: law.name)
def test_a_false_claim_is_made_as_rarely_as_promised(law):
    rng = np.random.default_rng(11)
    wrong = sum(claims(law, comparer(law), rng) for _ in range(RUNS))
    assert not too_many(wrong, RUNS, 1 - CONFIDENCE)


@pytest.mark.parametrize("planted", ["no bound for B", "budget forgotten"])
def test_planted_errors_are_noticed_by_that_test(planted, monkeypatch):
    law, rng = LAWS[0], np.random.default_rng(11)
    real = Comparer._attacked_rows

    def careless(self, a, b):
        (row,) = real(self, a, b)
        if planted == "budget forgotten":
            return (type(row)(row.budget, float(a.mean()) - 0.05, row.upper),)
        shift = law.worst_mean(BUDGET / SIGMA) - law.worst_mean(0.0)
        return (type(row)(row.budget, float(a.mean()) + shift, float(b.mean())),)

    monkeypatch.setattr(Comparer, "_attacked_rows", careless)
    wrong = sum(claims(law, comparer(law), rng) for _ in range(RUNS))
    assert too_many(wrong, RUNS, 1 - CONFIDENCE)


def test_an_order_without_attack_is_claimed_as_rarely_as_promised_at_any_time():
    """Two agents of one law, drawn apart: whoever is named better is named falsely."""
    law, rng = LAWS[2], np.random.default_rng(2)
    wrong = 0
    for _ in range(RUNS):
        watching = comparer(law, Question(confidence=CONFIDENCE))
        a, b = law.draw(rng, (2, LOOKS[-1]))
        wrong += any(watching.reason_to_stop(a[:n], b[:n]) == "proved" for n in LOOKS)
    assert not too_many(wrong, RUNS, 1 - CONFIDENCE)


def test_alpha_is_split_half_for_the_interval_and_a_quarter_for_each_side_under_attack():
    rng, law = np.random.default_rng(3), LAWS[0]
    a, b = law.draw(rng, (500,)), as_bad(law).draw(rng, (500,))
    made = comparer(law, Question(confidence=0.9, budgets=(BUDGET, 0.0))).answer(record(a, law), record(b, law))
    span = law.ceiling - law.floor
    (row,) = made.attacked
    bounds = {
        made.interval.low: Bets([0.0], 0.025, -span, span).after(a - b).at(0.0),
        -made.interval.high: Bets([0.0], 0.025, -span, span).after(b - a).at(0.0),
        row.lower: Bets([BUDGET / SIGMA], 0.025, law.floor, law.ceiling).after(a).at(BUDGET / SIGMA),
        -row.upper: Bets([0.0], 0.025, -law.ceiling, -law.floor).after(-b).at(0.0),
    }
    for found, expected in bounds.items():
        assert found == pytest.approx(float(expected), rel=1e-6)
        assert found <= expected
    assert Question(confidence=0.9).alpha_without_attack == pytest.approx(0.1)


def compared(a, b, law=LAWS[2], question=PLAIN, **metadata):
    return comparer(law, question, anytime=False).answer(record(a, law), record(b, law, **metadata))


def test_the_winner_is_named_only_where_it_is_proved():
    rng = np.random.default_rng(5)
    better = 100 - rng.exponential(3, 400).clip(0, 100)
    worse = rng.uniform(0, 90, 400)
    made = compared(better, worse, agent="bad")
    assert made.winner == "A"
    said = "A is better: with 95% confidence the mean return of A (A, sigma 0.2) minus that of B (bad, sigma 0.2) is "
    assert state_result(made).startswith(said)
    assert compared(worse, better).winner == "B"
    same = compared(worse, worse[::-1])
    assert same.winner is None
    assert state_result(same).startswith("Not separated: with 95% confidence")
    assert state_result(same).endswith("is invisible with these episodes.")
    assert f"below {state_result(same).split('below ')[1].split()[0]} " in smallest_difference(same)
    for sentence in (smallest_difference(same), NOT_ALGORITHMS, describe_changes(same)):
        assert sentence in str(same)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(0.0013, 0.4, "0.001 to 0.400"), (0.00263, 0.00459, "0.00263 to 0.00459"), (-0.0005, 0.0016, "-0.0005 to 0.0016")],
)
def test_a_proved_order_reads_as_one_and_rounding_widens_little(low, high, said):
    close = compared([0.0, 100.0] * 40, [0.0, 100.0] * 40)
    thin = type(close)(**{**vars(close), "interval": type(close.interval)(low=low, high=high)})
    assert f"from {said}" in state_result(thin)


@pytest.mark.parametrize(
    ("gate", "low", "passes"),
    [(Gate(None), 0.1, True), (Gate(None), 0.0, False), (Gate(5.0), -5.0, True), (Gate(5.0), -5.1, False)],
)
def test_gates_need_their_bound(gate, low, passes):
    base = compared([0.0, 100.0] * 20, [0.0, 100.0] * 20, question=Question(gate=gate))
    made = type(base)(**{**vars(base), "interval": type(base.interval)(low, 50.0)})
    assert made.passed is passes
    # A row under attack that is too low fails it, however good the interval.
    assert not type(base)(**{**vars(made), "attacked": (AttackedRow(0.2, 1.0, 7.0),)}).passed


def test_a_sequential_run_stops_when_the_gate_is_proved_refuted_or_out_of_reach():
    law, rng = LAWS[2], np.random.default_rng(5)
    good, bad = 100 - rng.exponential(3, 2_000).clip(0, 100), rng.uniform(0, 90, 2_000)
    sizes = range(100, 2_001, 100)

    def reasons(question, a, b):
        watching = comparer(law, question)
        return next(filter(None, (watching.reason_to_stop(a[:n], b[:n]) for n in sizes)), None)

    assert reasons(Question(gate=Gate(None)), good, bad) == "proved"
    assert reasons(Question(gate=Gate(1.0)), bad, good) == "refuted"
    assert reasons(Question(), bad, good) == "proved"  # that B is better
    assert reasons(Question(budgets=(0.2,)), good, good[::-1]) == "out of reach"


def test_a_run_under_attack_stops_by_what_b_has_under_it_and_at_all_budgets():
    """B is nearly as good as A without attack, has nothing under it, and nothing is proved at the larger budget."""
    rng = np.random.default_rng(5)
    good, nearly = (most - rng.exponential(1, 1_000).clip(0, 50) for most in (100, 94))
    nothing = np.zeros(1_000)

    def last_reason(budgets, *returns):
        watching = comparer(LAWS[2], Question(budgets=budgets, gate=Gate(None)))
        return watching.reason_to_stop(*returns)

    assert last_reason((2 * SIGMA,), good, nearly, nothing) == "proved"
    assert last_reason((2 * SIGMA,), good, nearly) != "proved"
    assert last_reason((2 * SIGMA, 20 * SIGMA), good, nearly, nothing) != "proved"


def test_a_comparison_is_the_same_after_it_was_written(tmp_path):
    made = compared([0.0, 100.0] * 30, [0.0, 99.0] * 30, question=Question(budgets=(0.1,), gate=Gate(2.0)))
    write_json(tmp_path / "comparison.json", made.to_json())
    again = Comparison.load(tmp_path)
    assert again.to_json() == made.to_json()
    assert str(again) == str(made)
    assert again.plot().axes[0].get_yticklabels()[1].get_text() == "0.1"


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        (["floor"], "This assumes that no return is below 0 (stated by the user, not proved)."),
        (["ceiling"], "This assumes that no return is above 100 (stated by the user, not proved)."),
        (["floor", "ceiling"], "This assumes that no return is below 0 or above 100 (stated by the user, not proved)."),
        ([], ""),
    ],
)
def test_what_the_user_stated_of_the_limits_is_said_next_to_the_result(stated, said):
    law = LAWS[2]
    a, b = (record([0.0, 100.0] * 20, law, stated_by_user=stated, n_planned=40) for _ in "AB")
    made = Comparer(Question(), a, b).answer(a, b)
    assert state_assumption(made) == said
    assert str(made).splitlines()[1] == said


def test_changed_episodes_are_named():
    a, b = np.full(50, 100.0), np.full(50, 100.0)
    b[17], b[3], a[5] = 0.0, 99.0, 0.0
    changes = compared(a, b).changes
    assert (changes.higher, changes.lower, changes.equal) == (2, 1, 47)
    assert changes.largest == ((5, 0.0, 100.0), (17, 100.0, 0.0), (3, 100.0, 99.0))
    assert compared(a, b, seed=6).changes is None


def attacked_sides(question, law):
    a = record([1.0, 0.5], law, attacker={"name": "random"}, budget=0.1)
    return Comparer(question, a, record([1.0, 0.5], law)).answer(a, record([1.0, 0.5], law))


@pytest.mark.parametrize(("of_a", "of_b", "fits"), [(0.2, 0.4, False), (0.4, 0.2, True)])
def test_an_attack_on_b_may_do_no_more_to_a_feature_than_budgets_of_a_count(of_a, of_b, fits):
    """Where B's second feature has the larger sigma, an attack on B moves it farther; the reverse bounds A for more."""
    law = LAWS[2]
    noise_a, noise_b = ({"sigma": 0.1, "sigma_per_feature": [0.1, second]} for second in (of_a, of_b))
    a, b = record([1.0, 0.5], law, **noise_a), record([1.0, 0.5], law, **noise_b)
    attacked = record([1.0, 0.0], law, **noise_b, attacker={"name": "random"}, budget=0.1)
    watching = Comparer(Question(budgets=(0.1,)), a, b)
    if fits:
        assert watching.answer(a, b, attacked).attacked_by == "random"
        return
    with pytest.raises(InputError, match="may change some features more than budgets of A count"):
        watching.answer(a, b, attacked)


def test_a_gate_is_refuted_by_what_is_certainly_too_little():
    no_worse = Gate(5.0)
    assert [no_worse.is_refuted(at_most) for at_most in (0.0, -5.0, -5.1)] == [False, False, True]
    assert [no_worse.is_met(at_least) for at_least in (0.0, -5.0, -5.1)] == [True, True, False]
    better = Gate(None)
    assert [better.is_refuted(at_most) for at_most in (0.1, 0.0)] == [False, True]


def test_what_cannot_be_asked_is_rejected():
    law = LAWS[0]
    for wrong, said in (
        (lambda: Question(confidence=1.0), "confidence must be"),
        (lambda: Question(budgets=(-1.0,)), "a budget must be"),
        (lambda: Gate(-1.0), "margin must be"),
        (lambda: Gate(float("nan")), "margin must be"),
        (lambda: Comparer(BETTER, record([1.0], law, 0.0), record([1.0], law)), "A must have noise"),
        (
            lambda: Comparer(Question(), record([1.0], law, n_envs=2), record([1.0], law), anytime=True),
            "belong together",
        ),
        (lambda: compared([1.0], [1.0], law, n_planned=2), "1 of 2 planned"),
        (lambda: attacked_sides(Question(budgets=(0.1,)), law), "A's episodes were attacked"),
    ):
        with pytest.raises(InputError, match=said):
            wrong()


@pytest.mark.parametrize("budgets", [(), (BUDGET,), (BUDGET, 2 * BUDGET)])
@pytest.mark.parametrize("pairing", [{}, {"seed": 6}, {"device": "cuda"}], ids=["seeds", "independent", "unknown"])
@pytest.mark.parametrize("only_wins", [False, True])
def test_all_bounds_of_a_table_together_spend_alpha_once(budgets, pairing, only_wins, monkeypatch):
    """Whatever the pairing: each is a bound by itself, and the table holds only where all of them do."""
    spent = []
    places = {"worst_means": (2, comparison, difference), "difference_lower": (3, difference)}
    places["lower_limit"] = (2, difference)
    for name, (place, *modules) in places.items():
        for module in modules:
            own = getattr(module, name)

            def spy(*given, own=own, place=place):
                spent.append(given[place])
                return own(*given)

            monkeypatch.setattr(module, name, spy)
    law = LAWS[2]
    returns = np.tile([law.floor, law.ceiling], 20)
    declared = {"binary": True} if only_wins else {}
    watching = comparer(law, Question(confidence=0.9, budgets=budgets), anytime=False)
    made = watching.answer(record(returns, law, **declared), record(returns, law, **declared, **pairing))
    assert made.pairing == {"seed": "independent", "device": "unknown"}.get(next(iter(pairing), ""), "seeds")
    assert sum(spent) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("of_a", "of_b", "fits"),
    [((1.0, 2.0), (0.1, 0.4), False), ((0.1, 0.2), (1.0, 2.0), True), ((0.1, 0.4), (1.0, 2.0), True)],
)
def test_what_a_budget_buys_is_counted_in_the_least_sigma(of_a, of_b, fits):
    """An attack on B is clipped to B's own sigmas, which may all be smaller than A's and still differ more."""
    noises = [Noise.of(list(sigmas)) for sigmas in (of_a, of_b)]
    if fits:
        check_budgets_count_alike(*noises)
        return
    with pytest.raises(InputError, match="may change some features more than budgets of A count"):
        check_budgets_count_alike(*noises)
