"""Numbers made for people: never rounded for us, estimates never drawn as bounds, files read as data."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import surefoot
from surefoot.episodes import Baseline
from surefoot.proof.rounding import format_budget, format_exact, format_lower, format_percent, format_upper
from surefoot.report.certificate_text import bounds_table, describe, digits_for, headline, headline_index, in_units
from surefoot.report.sentences import attack_notes, budget_used
from surefoot.runs.finish import finish_run

numbers = st.one_of(
    st.floats(-1e6, 1e6),
    st.floats(allow_nan=False, allow_infinity=False),
    st.builds(lambda n, d: n / 10**d, st.integers(-(10**7), 10**7), st.integers(0, 6)),
)


def baseline(mean=40.0):
    return Baseline(mean=mean, sem=0.5, n_episodes=100, what="action 0 at every step", command="surefoot blind")


def certificate(returns=None, *, budgets=(0, 0.1, 0.2, 0.4), sigma=0.2, floor=0.0, ceiling=200.0, confidence=0.95, **f):
    returns = np.tile([200.0, 180.0, 150.0], 300) if returns is None else returns
    episodes = surefoot.Episodes.from_returns(returns, sigma=sigma, floor=floor, ceiling=ceiling, **f)
    return surefoot.certify(episodes, budgets, confidence, "band")


# --- rounding -------------------------------------------------------------------------------------------------------


@given(numbers, st.integers(0, 6))
@example(0.1 + 0.2, 2)
@example(0.29, 2)  # 0.29 * 100 is 28.999999999999996
@example(1.005, 2)
@example(4.35, 2)  # 4.35 * 100 is 434.99999999999994
@example(-0.001, 2)
@example(-0.0, 2)
@example(1e-320, 2)
@example(1.7e308, 6)
@settings(max_examples=400, deadline=None)
def test_bounds_are_rounded_conservatively_and_by_less_than_one_digit(value, digits):
    low, high = format_lower(value, digits), format_upper(value, digits)
    assert float(low) <= value <= float(high)
    shown, unit = Fraction(repr(value)), Fraction(1, 10**digits)
    assert Fraction(low) <= shown <= Fraction(high)
    assert shown - Fraction(low) < unit
    assert Fraction(high) - shown < unit
    assert len(low.partition(".")[2]) == len(high.partition(".")[2]) == digits
    assert not (low.startswith("-") and Fraction(low) == 0)
    assert not (high.startswith("-") and Fraction(high) == 0)


@given(st.floats(0, 1e9))
@example(0.1234567891)
@example(0.30000000000000004)
def test_what_was_asked_for_keeps_its_digits(value):
    assert float(format_exact(value)) == value


@pytest.mark.parametrize(
    ("value", "text"), [(0.95, "95%"), (0.999, "99.9%"), (0.9, "90%"), (1 - 1e-13, "99.99999999999%"), (0.29, "29%")]
)
def test_confidence_is_not_rounded_up(value, text):
    assert format_percent(value) == text


def test_a_budget_is_not_rounded_up_beside_its_bound():
    made = certificate(budgets=(0.12345678,))
    assert bounds_table(made).rows[0].budget == "0.12345678"
    assert "budget 0.12345678 (total l2" in headline(made)


@pytest.mark.parametrize(
    ("value", "text"), [(0.020000000000020002, "0.02"), (0.28284271247490186, "0.282842"), (0.1, "0.1"), (12.5, "12.5")]
)
def test_a_computed_budget_is_rounded_down(value, text):
    assert format_budget(value) == text
    assert float(text) <= value


@pytest.mark.parametrize("scale", [1e-310, 1e-12, 1e-3, 1.0, 1e6, 1e100])
def test_tables_say_what_the_certificate_says_at_any_scale(scale):
    made = certificate(np.tile([scale, 0.7 * scale], 500), ceiling=1.5 * scale, floor=-scale / 2)
    for row, limit in zip(bounds_table(made).rows, map(made.at, made.budgets), strict=True):
        assert float(row.budget) == limit.budget
        assert float(row.lower) <= limit.lower
        assert float(row.upper) >= limit.upper
        assert limit.lower - float(row.lower) <= 2e-3 * scale  # and not uselessly coarse
    assert headline(made)


def test_a_range_too_small_to_see_is_still_shown():
    made = certificate(np.full(5, -1e17), floor=-1e17, ceiling=None)
    assert digits_for(made) == 2
    assert "is at least -100000000000000000.00 under any" in headline(made)


# --- sentences ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budgets", "mean", "about"),
    [
        ((0, 0.1, 0.2, 0.4, 0.5), None, 0.4),  # 101.79 and 71.68: half of the mean without attack is 88.33
        ((0, 0.1, 0.2, 0.4, 0.5, 0.6), 40.0, 0.6),  # 43.12
        ((0, 0.1, 0.2, 0.4, 0.5, 0.6), 50.0, 0.5),
        ((0.6, 0.5, 0, 0.1), 50.0, 0.5),
        ((0, 0.1, 0.2), 200.0, 0.2),  # none is above the baseline: back to half of the mean
        ((0, 3), None, 0.0),  # vacuous at 3
        ((3, 1), None, 1.0),  # 0.77 is not much, but 3 has nothing
        ((0.5, 0.25), None, 0.25),
        ((0,), None, 0.0),
    ],
)
def test_the_headline_is_the_largest_budget_that_says_something(budgets, mean, about):
    made, known = certificate(budgets=budgets), None if mean is None else baseline(mean)
    assert made.budgets[headline_index(made, baseline=known)] == about
    sentence = headline(made, baseline=known)
    assert f"at least {format_lower(made.at(about).lower)} (maximum 200)" in sentence
    assert f"budget {format_exact(about)} (" in sentence
    assert describe(made, known).split("\n\n")[0].replace("\n", " ") == sentence


def test_a_bound_that_is_shown_as_the_baseline_says_nothing():
    """Acrobot's baseline is its floor, -500: a bound of -499.9999 was the headline, as -500.00."""
    made = certificate(np.tile([-400.0, -450.0], 100), floor=-500.0, ceiling=0.0, budgets=(0, 0.1, 1.2))
    assert -500 < made.lower[-1] < -499.995
    known = baseline(-500.0)
    assert made.budgets[headline_index(made, baseline=known)] == 0.1
    assert [row.uninformative for row in bounds_table(made, known).rows] == [False, False, True]


def test_in_units_of_statistics_noise_and_budgets_are_divided_alike():
    """What is proved stays: at 0.2 of a unit that is 0.5 of the environment's, what is proved at 0.1."""
    own = certificate(budgets=(0, 0.1, 0.3), sigma=0.05, sigma_per_feature=[0.2, 0.05, 0.1])
    shown = in_units(own, 0.5)
    assert (shown.budgets.tolist(), shown.sigma) == ([0.0, 0.2, 0.6], 0.1)
    assert shown.lower.tolist() == own.lower.tolist()
    text = " ".join(str(shown).split())
    assert "attack budget (normalized units)" in text
    assert "900 episodes, sigma 0.1, method" in text
    assert "by feature" not in text


def test_quantiles_without_a_bound_take_one_line():
    episodes = surefoot.Episodes.from_returns(np.tile([200.0, 180.0, 150.0], 300), sigma=0.2, floor=0.0, ceiling=200.0)
    made = surefoot.certify(episodes, [0, 0.1, 3, 4], method="band", quantiles=[0.01])
    lines = [line for line in describe(made).splitlines() if "quantile" in line]
    assert [line.split(":")[0] for line in lines] == ["budget 0", "budget 0.1", "budget 3, 4"]
    assert "nothing is certified about the 0.01-quantile but what the rules" in lines[-1]


def test_the_required_budget_is_the_headline_though_it_is_vacuous():
    assert headline_index(certificate(budgets=(0, 0.1, 3)), 3.0, baseline()) == 2


def test_the_required_budget_is_found_in_whichever_order_budgets_were_asked_for():
    made = certificate(budgets=(0.4, 0.0, 0.1))
    assert [headline_index(made, required) for required in (0.4, 0.0, 0.1)] == [0, 1, 2]
    assert "with budget 0.1 (" in headline(made, 0.1)


def test_half_of_the_mean_is_counted_from_the_floor():
    """Of returns from -200 to 0 with a mean of -23: -112 is half, not -12."""
    made = certificate(np.tile([0.0, -20.0, -50.0], 300), floor=-200.0, ceiling=0.0, budgets=(0, 0.1, 0.2, 0.4, 0.5))
    assert made.budgets[headline_index(made)] == 0.4


def test_budgets_below_the_baseline_are_marked_uninformative():
    made = certificate(budgets=(0.8, 0, 0.1, 0.2, 0.4))
    rows = bounds_table(made, baseline()).rows
    assert [row.l2_budget for row in rows] == [0, 0.1, 0.2, 0.4, 0.8]
    assert [row.uninformative for row in rows] == [made.at(row.l2_budget).lower < 40 for row in rows]
    assert rows[-1].uninformative
    assert not bounds_table(certificate(budgets=(0,)), baseline()).any_uninformative
    assert not bounds_table(made).any_uninformative


# --- figures --------------------------------------------------------------------------------------------------------


def drawn(made, measured=None):
    pytest.importorskip("matplotlib")
    from surefoot.report.certificate_figure import certificate_figure

    return certificate_figure(made, measured)


def labelled(axes):
    return dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))


def test_the_estimate_is_one_mark_and_the_bounds_are_lines():
    made = certificate()
    (axes,) = drawn(made, baseline()).axes
    shown = labelled(axes)
    (estimate,) = [handle for label, handle in shown.items() if "estimate" in label]
    assert next(label for label in shown if "estimate" in label).endswith("(an estimate, not a bound)")
    mark = estimate.lines[0]
    assert (list(mark.get_xdata()), list(mark.get_ydata())) == ([0], [made.estimate])
    assert mark.get_linestyle() == "None"
    lower = shown["certified lower bound"]
    assert len(lower.get_xdata()) > 50
    at_zero = float(lower.get_ydata()[0])
    assert at_zero == made.at(0).lower < made.estimate  # the point at budget 0 is a bound too
    assert shown["certified upper bound"].get_ydata()[0] == made.at(0).upper
    assert set(shown["open-loop baseline"].get_ydata()) == {40.0}
    assert len({handle.get_linestyle() for label, handle in shown.items() if "estimate" not in label}) == 3


@pytest.mark.parametrize("budgets", [(0,), (0.2,), (0.4, 0.1), (1e-12,), (1e12,), (0, 0, 0)])
@pytest.mark.parametrize("ceiling", [200.0, None])
def test_any_budgets_can_be_drawn(tmp_path, budgets, ceiling):
    pytest.importorskip("matplotlib")
    made = certificate(budgets=budgets, ceiling=ceiling)
    (axes,) = drawn(made).axes
    assert ("certified upper bound" in labelled(axes)) == (ceiling is not None)
    assert "open-loop baseline" not in labelled(axes)
    low, high = axes.get_ylim()
    assert low < made.floor < made.estimate < high


@pytest.mark.parametrize("name", [r"$\frac$ of $\mathbf", "模型 {x} %s", "a" * 300, "line\nbreak"])
def test_odd_names_and_negative_floors_are_drawn(tmp_path, name):
    pytest.importorskip("matplotlib")
    made = certificate([-3.0, -1.0], floor=-21, ceiling=21, agent=name)
    finish_run(tmp_path / "new" / "folder", made, metadata={}, baseline=None, command=None)
    assert (tmp_path / "new" / "folder" / "certificate.png").stat().st_size > 10_000


# --- outcomes -------------------------------------------------------------------------------------------------------


def test_the_share_of_a_budget_is_that_of_the_attack_whose_mean_is_shown():
    """Of the lambda that hurt most at each budget; what nobody wrote down counts as used."""
    attack = {"budgets": [0.0, 0.5, 2.0], "lambdas": [0.0, 1.0], "curve_lambda": [0.0, 1.0, 0.0]}
    used = {"mean_budget_used": [[0.0, 0.0], [0.1, 0.4], [1.0, 0.2]]}
    assert budget_used(attack | used) == [1.0, 0.8, 0.5]
    assert budget_used(attack) == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("method", "lambdas", "advice"),
    [
        ("paper", [0.5], "try method='strongest', lambda 0, or larger budgets."),
        ("paper", [0.0, 0.5], "try method='strongest', or larger budgets."),
        ("learned", [None], "try larger budgets."),
        ("random", [None], "try method='strongest', or larger budgets."),
    ],
)
def test_an_attack_without_effect_is_shown_what_was_not_tried(method, lambdas, advice):
    row = {"budgets": [0.1, 0.2], "curve_lambda": lambdas[:1] * 2}
    row |= {name: [[value] * len(lambdas)] * 2 for name, value in (("loss", 0.0), ("loss_sem", 0.1))}
    row["did_not_attack"] = [[False] * len(lambdas)] * 2
    seen, warned = attack_notes(
        {**row, "method": method, "lambdas": lambdas, "n_episodes": 1_000, "invisible_loss": 0.5979}
    )
    assert seen.startswith("With 1,000 episodes a mean loss below 0.6 is invisible")
    assert warned.endswith(advice)


@pytest.mark.parametrize(
    ("at_largest", "warns"), [([0.0, 0.0], True), ([0.0, 0.2], True), ([0.0, 0.21], False), ([5.0, 0.0], True)]
)
def test_a_loss_within_its_error_is_none(at_largest, warns):
    """Two errors are 0.2; it is the loss at the largest budget under the lambda of its lowest mean."""
    row = {"budgets": [0.2, 0.1], "curve_lambda": [1.0, 0.0], "lambdas": [0.0, 1.0]}
    row |= {"loss": [at_largest, [7.0, 7.0]], "loss_sem": [[0.1, 0.1]] * 2}
    row |= {"did_not_attack": [[False] * 2] * 2, "method": "random"}
    said = attack_notes({**row, "n_episodes": 100, "invisible_loss": 0.5})
    assert any(line.startswith("Warning") for line in said) == warns
