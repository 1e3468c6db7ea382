"""Numbers made for people: never rounded for us, estimates never drawn as bounds, files read as data."""
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
import json
from surefoot.report.sentences import attack_notes
import math
from surefoot.report.sentences import attack_notes
from fractions import Fraction
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
import numpy as np
from surefoot.report.sentences import attack_notes
import pytest
from surefoot.report.sentences import attack_notes
from hypothesis import example, given, settings
from surefoot.report.sentences import attack_notes
from hypothesis import strategies as st
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
import surefoot
from surefoot.report.sentences import attack_notes
from surefoot.episodes import Baseline
from surefoot.report.sentences import attack_notes
from surefoot.errors import InputError
from surefoot.report.sentences import attack_notes
from surefoot.proof.rounding import exact, format_budget, format_lower, format_upper, percent
from surefoot.report.sentences import attack_notes
from surefoot.proof.wording import baseline_note, bound_rows, describe, digits_for, headline, notes
from surefoot.report.sentences import attack_notes
from surefoot.runs.finish import finish_run
from surefoot.report.sentences import attack_notes
from surefoot.runs.returns import read_returns
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
numbers = st.one_of(
from surefoot.report.sentences import attack_notes
    st.floats(-1e6, 1e6),
from surefoot.report.sentences import attack_notes
    st.floats(allow_nan=False, allow_infinity=False),
from surefoot.report.sentences import attack_notes
    st.builds(lambda n, d: n / 10**d, st.integers(-(10**7), 10**7), st.integers(0, 6)),
from surefoot.report.sentences import attack_notes
)
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
def baseline(mean=40.0):
from surefoot.report.sentences import attack_notes
    return Baseline(mean=mean, sem=0.5, n_episodes=100, what="action 0 at every step", command="surefoot blind")
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
def certificate(returns=None, *, budgets=(0, 0.1, 0.2, 0.4), sigma=0.2, floor=0.0, ceiling=200.0, confidence=0.95, **f):
from surefoot.report.sentences import attack_notes
    returns = np.tile([200.0, 180.0, 150.0], 300) if returns is None else returns
from surefoot.report.sentences import attack_notes
    episodes = surefoot.Episodes.from_returns(returns, sigma=sigma, floor=floor, ceiling=ceiling, **f)
from surefoot.report.sentences import attack_notes
    return surefoot.certify(episodes, budgets, confidence, "band")
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
# --- rounding -------------------------------------------------------------------------------------------------------
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
@given(numbers, st.integers(0, 6))
from surefoot.report.sentences import attack_notes
@example(0.1 + 0.2, 2)
from surefoot.report.sentences import attack_notes
@example(0.29, 2)  # 0.29 * 100 is 28.999999999999996
from surefoot.report.sentences import attack_notes
@example(1.005, 2)
from surefoot.report.sentences import attack_notes
@example(4.35, 2)  # 4.35 * 100 is 434.99999999999994
from surefoot.report.sentences import attack_notes
@example(-0.001, 2)
from surefoot.report.sentences import attack_notes
@example(-0.0, 2)
from surefoot.report.sentences import attack_notes
@example(1e-320, 2)
from surefoot.report.sentences import attack_notes
@example(1.7e308, 6)
from surefoot.report.sentences import attack_notes
@settings(max_examples=400, deadline=None)
from surefoot.report.sentences import attack_notes
def test_bounds_are_rounded_conservatively_and_by_less_than_one_digit(value, digits):
from surefoot.report.sentences import attack_notes
    low, high = format_lower(value, digits), format_upper(value, digits)
from surefoot.report.sentences import attack_notes
    assert float(low) <= value <= float(high)
from surefoot.report.sentences import attack_notes
    shown, unit = Fraction(repr(value)), Fraction(1, 10**digits)
from surefoot.report.sentences import attack_notes
    assert Fraction(low) <= shown <= Fraction(high)
from surefoot.report.sentences import attack_notes
    assert shown - Fraction(low) < unit
from surefoot.report.sentences import attack_notes
    assert Fraction(high) - shown < unit
from surefoot.report.sentences import attack_notes
    assert len(low.partition(".")[2]) == len(high.partition(".")[2]) == digits
from surefoot.report.sentences import attack_notes
    assert not (low.startswith("-") and Fraction(low) == 0)
from surefoot.report.sentences import attack_notes
    assert not (high.startswith("-") and Fraction(high) == 0)
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
@pytest.mark.parametrize(
from surefoot.report.sentences import attack_notes
    ("value", "low", "high"),
from surefoot.report.sentences import attack_notes
    [
from surefoot.report.sentences import attack_notes
        (0.0, "0.00", "0.00"),
from surefoot.report.sentences import attack_notes
        (0.1 + 0.2, "0.30", "0.31"),
from surefoot.report.sentences import attack_notes
        (0.29, "0.29", "0.29"),
from surefoot.report.sentences import attack_notes
        (-0.29, "-0.29", "-0.29"),
from surefoot.report.sentences import attack_notes
        (185.279999, "185.27", "185.28"),
from surefoot.report.sentences import attack_notes
        (-1.001, "-1.01", "-1.00"),
from surefoot.report.sentences import attack_notes
        (200.0, "200.00", "200.00"),
from surefoot.report.sentences import attack_notes
        (-0.001, "-0.01", "0.00"),
from surefoot.report.sentences import attack_notes
    ],
from surefoot.report.sentences import attack_notes
)
from surefoot.report.sentences import attack_notes
def test_rounding_by_hand(value, low, high):
from surefoot.report.sentences import attack_notes
    assert (format_lower(value), format_upper(value)) == (low, high)
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
@given(st.floats(0, 1e9))
from surefoot.report.sentences import attack_notes
@example(0.1234567891)
from surefoot.report.sentences import attack_notes
@example(0.30000000000000004)
from surefoot.report.sentences import attack_notes
def test_what_was_asked_for_keeps_its_digits(value):
from surefoot.report.sentences import attack_notes
    assert float(exact(value)) == value
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
@pytest.mark.parametrize(
from surefoot.report.sentences import attack_notes
    ("value", "text"), [(0.0, "0"), (1.0, "1"), (0.05, "0.05"), (200.0, "200"), (1234567.0, "1234567"), (-21.0, "-21")]
from surefoot.report.sentences import attack_notes
)
from surefoot.report.sentences import attack_notes
def test_plain_numbers_look_plain(value, text):
from surefoot.report.sentences import attack_notes
    assert exact(value) == text
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
@pytest.mark.parametrize(
from surefoot.report.sentences import attack_notes
    ("value", "text"), [(0.95, "95%"), (0.999, "99.9%"), (0.9, "90%"), (1 - 1e-13, "99.99999999999%"), (0.29, "29%")]
from surefoot.report.sentences import attack_notes
)
from surefoot.report.sentences import attack_notes
def test_confidence_is_not_rounded_up(value, text):
from surefoot.report.sentences import attack_notes
    assert percent(value) == text
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
def test_a_budget_is_not_rounded_up_beside_its_bound():
from surefoot.report.sentences import attack_notes
    made = certificate(budgets=(0.12345678,))
from surefoot.report.sentences import attack_notes
    assert bound_rows(made)[0][0] == "0.12345678"
from surefoot.report.sentences import attack_notes
    assert "budget 0.12345678 (total l2" in headline(made)
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
@pytest.mark.parametrize(
from surefoot.report.sentences import attack_notes
    ("value", "text"), [(0.020000000000020002, "0.02"), (0.28284271247490186, "0.282842"), (0.1, "0.1"), (12.5, "12.5")]
from surefoot.report.sentences import attack_notes
)
from surefoot.report.sentences import attack_notes
def test_a_computed_budget_is_rounded_down(value, text):
from surefoot.report.sentences import attack_notes
    assert format_budget(value) == text
from surefoot.report.sentences import attack_notes
    assert float(text) <= value
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
@pytest.mark.parametrize("scale", [1e-310, 1e-12, 1e-3, 1.0, 1e6, 1e100])
from surefoot.report.sentences import attack_notes
def test_tables_say_what_the_certificate_says_at_any_scale(scale):
from surefoot.report.sentences import attack_notes
    made = certificate(np.tile([scale, 0.7 * scale], 500), ceiling=1.5 * scale, floor=-scale / 2)
from surefoot.report.sentences import attack_notes
    for (budget, low, high), limit in zip(bound_rows(made), map(made.at, made.budgets), strict=True):
from surefoot.report.sentences import attack_notes
        assert float(budget) == limit.budget
from surefoot.report.sentences import attack_notes
        assert float(low) <= limit.lower
from surefoot.report.sentences import attack_notes
        assert float(high) >= limit.upper
from surefoot.report.sentences import attack_notes
        assert limit.lower - float(low) <= 2e-3 * scale  # and not uselessly coarse
from surefoot.report.sentences import attack_notes
    assert headline(made)
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
def test_a_range_too_small_to_see_is_still_shown():
from surefoot.report.sentences import attack_notes
    made = certificate(np.full(5, -1e17), floor=-1e17, ceiling=None)
from surefoot.report.sentences import attack_notes
    assert digits_for(made) == 2
from surefoot.report.sentences import attack_notes
    assert "is at least -100000000000000000.00 under any" in headline(made)
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
# --- sentences ------------------------------------------------------------------------------------------------------
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
@pytest.mark.parametrize(
from surefoot.report.sentences import attack_notes
    ("budgets", "mean", "about"),
from surefoot.report.sentences import attack_notes
    [
from surefoot.report.sentences import attack_notes
        ((0, 0.1, 0.2, 0.4, 0.5), None, 0.4),  # 101.79 and 71.68: half of the mean without attack is 88.33
from surefoot.report.sentences import attack_notes
        ((0, 0.1, 0.2, 0.4, 0.5, 0.6), 40.0, 0.6),  # 43.12
from surefoot.report.sentences import attack_notes
        ((0, 0.1, 0.2, 0.4, 0.5, 0.6), 50.0, 0.5),
from surefoot.report.sentences import attack_notes
        ((0.6, 0.5, 0, 0.1), 50.0, 0.5),
from surefoot.report.sentences import attack_notes
        ((0, 0.1, 0.2), 200.0, 0.2),  # none is above the baseline: back to half of the mean
from surefoot.report.sentences import attack_notes
        ((0, 3), None, 0.0),  # vacuous at 3
from surefoot.report.sentences import attack_notes
        ((3, 1), None, 1.0),  # 0.77 is not much, but 3 has nothing
from surefoot.report.sentences import attack_notes
        ((0.5, 0.25), None, 0.25),
from surefoot.report.sentences import attack_notes
        ((0,), None, 0.0),
from surefoot.report.sentences import attack_notes
    ],
from surefoot.report.sentences import attack_notes
)
from surefoot.report.sentences import attack_notes
def test_the_headline_is_the_largest_budget_that_says_something(budgets, mean, about):
from surefoot.report.sentences import attack_notes
    made, known = certificate(budgets=budgets), None if mean is None else baseline(mean)
from surefoot.report.sentences import attack_notes
    sentence = headline(made, baseline=known)
from surefoot.report.sentences import attack_notes
    assert f"budget {exact(about)} (total l2 norm of the perturbations of one episode)." in sentence
from surefoot.report.sentences import attack_notes
    assert f"at least {format_lower(made.at(about).lower)} (maximum 200) under any observation attack" in sentence
from surefoot.report.sentences import attack_notes
    assert sentence.startswith("With 95% confidence")
from surefoot.report.sentences import attack_notes
    assert "\n" not in sentence
from surefoot.report.sentences import attack_notes
    assert describe(made, known).startswith("With 95% confidence")
from surefoot.report.sentences import attack_notes
    assert f"budget {exact(about)} " in " ".join(describe(made, known).split("\n\n")[0].split())
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
def test_the_required_budget_is_the_headline_though_it_is_vacuous():
from surefoot.report.sentences import attack_notes
    assert "is at least 0.00 (maximum 200) under any observation attack with budget 3 " in headline(
from surefoot.report.sentences import attack_notes
        certificate(budgets=(0, 0.1, 3)), 3.0, baseline()
from surefoot.report.sentences import attack_notes
    )
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
def test_half_of_the_mean_is_counted_from_the_floor():
from surefoot.report.sentences import attack_notes
    """Of returns from -200 to 0 with a mean of -23: -112 is half, not -12."""
from surefoot.report.sentences import attack_notes
    made = certificate(np.tile([0.0, -20.0, -50.0], 300), floor=-200.0, ceiling=0.0, budgets=(0, 0.1, 0.2, 0.4, 0.5))
from surefoot.report.sentences import attack_notes
    assert "budget 0.4 (total" in headline(made)
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
def test_without_a_ceiling_nothing_is_said_of_the_top():
from surefoot.report.sentences import attack_notes
    made = certificate(ceiling=None)
from surefoot.report.sentences import attack_notes
    assert f"is at least {format_lower(made.lower[3])} under any" in headline(made)
from surefoot.report.sentences import attack_notes
    assert [row[2] for row in bound_rows(made)] == ["unknown"] * 4
from surefoot.report.sentences import attack_notes
    assert not any("upper" in line for line in notes(made))
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
def test_notes_tell_the_estimate_from_the_bounds():
from surefoot.report.sentences import attack_notes
    first, second, third = notes(certificate())
from surefoot.report.sentences import attack_notes
    assert first == "Mean return without attack: 176.67 ± 0.69 (estimate ± standard error)"
from surefoot.report.sentences import attack_notes
    assert "900 episodes, sigma 0.2, method band" in second
from surefoot.report.sentences import attack_notes
    assert third == "All lower bounds hold simultaneously (95% confidence); so do all upper bounds."
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
def test_one_episode_has_no_standard_error():
from surefoot.report.sentences import attack_notes
    assert "±" not in notes(certificate([100.0]))[0]
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
def test_budgets_below_the_baseline_are_marked_uninformative():
from surefoot.report.sentences import attack_notes
    made = certificate(budgets=(0, 0.1, 0.2, 0.4, 0.8))
from surefoot.report.sentences import attack_notes
    below = [budget for budget, low in zip(made.budgets, made.lower, strict=True) if low < 40.0]
from surefoot.report.sentences import attack_notes
    assert 0 < len(below) < 5
from surefoot.report.sentences import attack_notes
    line = baseline_note(made, baseline())
from surefoot.report.sentences import attack_notes
    assert line.startswith("Open-loop baseline: 40.00 ± 0.50 under any observation attack (action 0 at every step).")
from surefoot.report.sentences import attack_notes
    assert f"At budgets of {below[0]:g} and above the lower bound is below this baseline" in line
from surefoot.report.sentences import attack_notes
    text = describe(made, baseline())
from surefoot.report.sentences import attack_notes
    marked = [row.split()[0] for row in text.splitlines() if row.endswith("  *")]
from surefoot.report.sentences import attack_notes
    assert marked == [f"{budget:g}" for budget in below]
from surefoot.report.sentences import attack_notes
    assert "\n* below the open-loop baseline of 40.00 ± 0.50 (an estimate): uninformative\n" in text
from surefoot.report.sentences import attack_notes
    assert max(map(len, text.splitlines())) <= 78
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
def test_a_certificate_above_the_baseline_is_not_marked():
from surefoot.report.sentences import attack_notes
    made = certificate(budgets=(0,))
from surefoot.report.sentences import attack_notes
    assert "uninformative" not in baseline_note(made, baseline())
from surefoot.report.sentences import attack_notes
    assert "*" not in describe(made, baseline())
from surefoot.report.sentences import attack_notes
    assert "Open-loop baseline: 40.00" in describe(made, baseline())
from surefoot.report.sentences import attack_notes
    assert "At budgets of 0 and above" in baseline_note(certificate(), baseline(199.0))
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
# --- figures --------------------------------------------------------------------------------------------------------
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
def drawn(made, measured=None):
from surefoot.report.sentences import attack_notes
    pytest.importorskip("matplotlib")
from surefoot.report.sentences import attack_notes
    from surefoot.proof.figure import certificate_figure
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
    return certificate_figure(made, measured)
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
def labelled(axes):
from surefoot.report.sentences import attack_notes
    return dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
def test_the_estimate_is_one_mark_and_the_bounds_are_lines():
from surefoot.report.sentences import attack_notes
    made = certificate()
from surefoot.report.sentences import attack_notes
    (axes,) = drawn(made, baseline()).axes
from surefoot.report.sentences import attack_notes
    shown = labelled(axes)
from surefoot.report.sentences import attack_notes
    (estimate,) = [handle for label, handle in shown.items() if "estimate" in label]
from surefoot.report.sentences import attack_notes
    assert next(label for label in shown if "estimate" in label).endswith("(an estimate, not a bound)")
from surefoot.report.sentences import attack_notes
    mark = estimate.lines[0]
from surefoot.report.sentences import attack_notes
    assert (list(mark.get_xdata()), list(mark.get_ydata())) == ([0], [made.estimate])
from surefoot.report.sentences import attack_notes
    assert mark.get_linestyle() == "None"
from surefoot.report.sentences import attack_notes
    lower = shown["certified lower bound"]
from surefoot.report.sentences import attack_notes
    assert len(lower.get_xdata()) > 50
from surefoot.report.sentences import attack_notes
    at_zero = float(lower.get_ydata()[0])
from surefoot.report.sentences import attack_notes
    assert at_zero == made.at(0).lower < made.estimate  # the point at budget 0 is a bound too
from surefoot.report.sentences import attack_notes
    assert shown["certified upper bound"].get_ydata()[0] == made.at(0).upper
from surefoot.report.sentences import attack_notes
    assert set(shown["open-loop baseline"].get_ydata()) == {40.0}
from surefoot.report.sentences import attack_notes
    assert len({handle.get_linestyle() for label, handle in shown.items() if "estimate" not in label}) == 3
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
def test_axes_name_their_units():
from surefoot.report.sentences import attack_notes
    (axes,) = drawn(certificate(agent="somebody")).axes
from surefoot.report.sentences import attack_notes
    assert "budget" in axes.get_xlabel()
from surefoot.report.sentences import attack_notes
    assert "l2" in axes.get_xlabel()
from surefoot.report.sentences import attack_notes
    assert "episode" in axes.get_xlabel()
from surefoot.report.sentences import attack_notes
    assert axes.get_ylabel() == "mean return"
from surefoot.report.sentences import attack_notes
    for part in ("somebody", "sigma 0.2", "900 episodes", "95%", "band"):
from surefoot.report.sentences import attack_notes
        assert part in axes.get_title()
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
@pytest.mark.parametrize("budgets", [(0,), (0.2,), (0.4, 0.1), (1e-12,), (1e12,), (0, 0, 0)])
from surefoot.report.sentences import attack_notes
@pytest.mark.parametrize("ceiling", [200.0, None])
from surefoot.report.sentences import attack_notes
def test_any_budgets_can_be_drawn(tmp_path, budgets, ceiling):
from surefoot.report.sentences import attack_notes
    pytest.importorskip("matplotlib")
from surefoot.report.sentences import attack_notes
    made = certificate(budgets=budgets, ceiling=ceiling)
from surefoot.report.sentences import attack_notes
    (axes,) = drawn(made).axes
from surefoot.report.sentences import attack_notes
    assert ("certified upper bound" in labelled(axes)) == (ceiling is not None)
from surefoot.report.sentences import attack_notes
    assert "open-loop baseline" not in labelled(axes)
from surefoot.report.sentences import attack_notes
    low, high = axes.get_ylim()
from surefoot.report.sentences import attack_notes
    assert low < made.floor < made.estimate < high
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
@pytest.mark.usefixtures("drawn_figures")
from surefoot.report.sentences import attack_notes
@pytest.mark.parametrize("name", [r"$\frac$ of $\mathbf", "模型 {x} %s", "a" * 300, "line\nbreak"])
from surefoot.report.sentences import attack_notes
def test_odd_names_and_negative_floors_are_drawn(tmp_path, name):
from surefoot.report.sentences import attack_notes
    pytest.importorskip("matplotlib")
from surefoot.report.sentences import attack_notes
    made = certificate([-3.0, -1.0], floor=-21, ceiling=21, agent=name)
from surefoot.report.sentences import attack_notes
    finish_run(tmp_path / "new" / "folder", made, metadata={}, baseline=None, command=None)
from surefoot.report.sentences import attack_notes
    assert (tmp_path / "new" / "folder" / "certificate.png").stat().st_size > 10_000
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
def test_equal_returns_are_drawn():
from surefoot.report.sentences import attack_notes
    (axes,) = drawn(certificate(np.zeros(5), ceiling=None)).axes
from surefoot.report.sentences import attack_notes
    assert axes.get_ylim()[0] < 0 < axes.get_ylim()[1]
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
@pytest.mark.usefixtures("drawn_figures")
from surefoot.report.sentences import attack_notes
def test_a_folder_gets_the_certificate_and_a_picture(tmp_path):
from surefoot.report.sentences import attack_notes
    pytest.importorskip("matplotlib")
from surefoot.report.sentences import attack_notes
    made = certificate()
from surefoot.report.sentences import attack_notes
    finish_run(tmp_path, made, metadata={}, baseline=baseline(), command=None)
from surefoot.report.sentences import attack_notes
    written = ["certificate.json", "certificate.png", "report.html", "run.json"]
from surefoot.report.sentences import attack_notes
    assert sorted(path.name for path in tmp_path.iterdir()) == written
from surefoot.report.sentences import attack_notes
    assert json.loads((tmp_path / "run.json").read_text())["figure"] == "certificate.png"
from surefoot.report.sentences import attack_notes
    assert json.loads((tmp_path / "certificate.json").read_text()) == made.to_json()
from surefoot.report.sentences import attack_notes
    assert (tmp_path / "certificate.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
# --- outcomes -------------------------------------------------------------------------------------------------------
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
def test_numbers_are_read_with_what_is_said_about_them(tmp_path):
from surefoot.report.sentences import attack_notes
    np.save(tmp_path / "r.npy", np.array([1, 2, 3]))
from surefoot.report.sentences import attack_notes
    read, _ = read_returns(tmp_path / "r.npy", 0.2, -1.0, 5.0)
from surefoot.report.sentences import attack_notes
    assert read.returns.tolist() == [1.0, 2.0, 3.0]
from surefoot.report.sentences import attack_notes
    assert (read.sigma, read.floor, read.ceiling) == (0.2, -1.0, 5.0)
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
def test_a_record_knows_its_own_facts(tmp_path):
from surefoot.report.sentences import attack_notes
    record = surefoot.Episodes.from_returns([1.0, 2.0], sigma=0.3, floor=0.0, ceiling=None, task="mine")
from surefoot.report.sentences import attack_notes
    record.save(tmp_path / "r.npz")
from surefoot.report.sentences import attack_notes
    read, _ = read_returns(tmp_path / "r.npz", None, 0.0, None)
from surefoot.report.sentences import attack_notes
    assert read.setup == record.setup
from surefoot.report.sentences import attack_notes
    for given_too in [(0.2, None, None), (None, -1.0, None), (None, None, 5.0)]:
from surefoot.report.sentences import attack_notes
        with pytest.raises(InputError, match="was run with"):
from surefoot.report.sentences import attack_notes
            read_returns(tmp_path / "r.npz", *given_too)
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
@pytest.mark.parametrize(
from surefoot.report.sentences import attack_notes
    "values",
from surefoot.report.sentences import attack_notes
    [
from surefoot.report.sentences import attack_notes
        np.array([1 + 2j]),
from surefoot.report.sentences import attack_notes
        np.array(["2020-01-01"], dtype="datetime64[D]"),
from surefoot.report.sentences import attack_notes
        np.array(["1.0"]),
from surefoot.report.sentences import attack_notes
        np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
from surefoot.report.sentences import attack_notes
    ],
from surefoot.report.sentences import attack_notes
)
from surefoot.report.sentences import attack_notes
def test_only_real_numbers_are_returns(tmp_path, values):
from surefoot.report.sentences import attack_notes
    np.save(tmp_path / "r.npy", values)
from surefoot.report.sentences import attack_notes
    with pytest.raises(InputError, match="expected plain numbers, got"):
from surefoot.report.sentences import attack_notes
        read_returns(tmp_path / "r.npy", 0.2, -math.pi, None)
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
def test_nobody_is_advised_to_unpickle(tmp_path):
from surefoot.report.sentences import attack_notes
    np.save(tmp_path / "object.npy", np.array([1, "x", None], dtype=object), allow_pickle=True)
from surefoot.report.sentences import attack_notes
    (tmp_path / "text.npy").write_text("1\n2\n")
from surefoot.report.sentences import attack_notes
    for name in ("object.npy", "text.npy"):
from surefoot.report.sentences import attack_notes
        with pytest.raises(InputError, match=r"is not a readable \.npy file of numbers") as caught:
from surefoot.report.sentences import attack_notes
            read_returns(tmp_path / name, 0.2, 0.0, None)
from surefoot.report.sentences import attack_notes
        assert "allow_pickle" not in str(caught.value)
from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes

from surefoot.report.sentences import attack_notes
@pytest.mark.parametrize(
from surefoot.report.sentences import attack_notes
    ("method", "lambdas", "advice"),
from surefoot.report.sentences import attack_notes
    [
from surefoot.report.sentences import attack_notes
        ("paper", [0.5], "try --method adaptive, lambda 0, or larger --budgets."),
from surefoot.report.sentences import attack_notes
        ("paper", [0.0, 0.5], "try --method adaptive, or larger --budgets."),
from surefoot.report.sentences import attack_notes
        ("adaptive", [0.0], "try larger --budgets."),
from surefoot.report.sentences import attack_notes
        ("random", [None], "try --method adaptive, or larger --budgets."),
from surefoot.report.sentences import attack_notes
    ],
from surefoot.report.sentences import attack_notes
)
from surefoot.report.sentences import attack_notes
def test_an_attack_without_effect_is_shown_what_was_not_tried(method, lambdas, advice):
from surefoot.report.sentences import attack_notes
    row = {"curve": [9.0, 9.0], "curve_sem": [0.1, 0.1], "budgets": [0.1, 0.2], "did_not_attack": [[False], [False]]}
from surefoot.report.sentences import attack_notes
    assert attack_notes({**row, "method": method, "lambdas": lambdas})[0].endswith(advice)
from surefoot.report.sentences import attack_notes
