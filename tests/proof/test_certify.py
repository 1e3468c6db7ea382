import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.proof import episode_budget
from surefoot.proof.bounds import from_band
from surefoot.proof.bounds.bands import tail_tight
from surefoot.proof.bounds.from_band import mean_lower, mean_upper
from surefoot.proof.certificate import Bounds, Certificate
from surefoot.proof.episode_budget import EpisodeCertificate
from surefoot.proof.planning.strategies import both_sides
from surefoot.proof.query import certify, certify_per_step, certify_shared_budget
from surefoot.proof.rounding import rounded_lower, rounded_upper
from surefoot.report.certificate_text import headline_index

BUDGETS = [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1]
PUBLISHED = Path(__file__).parents[2] / "study" / "data" / "published" / "cartpole-5.json"
GOLDEN = {
    ("per-threshold", 0.2): [197.43, 193.38, 185.28, 171.12, 149.31, 119.88, 85.98, 28.14, 4.36],
    ("per-threshold", 0.4): [143.55, 131.56, 119.19, 106.75, 94.51, 82.68, 71.39, 50.87, 33.61],
    ("dkw", 0.2): [195.20, 186.80, 169.78, 142.03, 105.77, 68.04, 36.88, 6.03, 0.42],
}


def published(sigma: float) -> Episodes:
    counts = json.loads(PUBLISHED.read_text())["counts_by_sigma"][str(sigma)]
    returns = np.repeat([float(value) for value in counts], list(counts.values()))
    return Episodes.from_returns(returns, sigma=sigma, floor=0, ceiling=200)


def record(returns: list[float] | NDArray[np.float64], sigma: float = 1.0, **limits: float) -> Episodes:
    return Episodes.from_returns(returns, sigma=sigma, **({"floor": 0.0, "ceiling": 10.0} | limits))


@pytest.mark.parametrize(("method", "sigma"), GOLDEN)
def test_published_returns_give_the_published_numbers(method: str, sigma: float) -> None:
    lower = certify(published(sigma), BUDGETS, method=method).lower
    assert lower == pytest.approx(GOLDEN[method, sigma], abs=0.01)


@pytest.mark.parametrize("sigma", [0.2, 0.4])
def test_the_band_beats_the_paper_on_the_published_returns(sigma: float) -> None:
    episodes = published(sigma)
    band = certify(episodes, BUDGETS, method="band")
    paper = certify(episodes, BUDGETS, method="per-threshold")
    assert band.method == "band"
    assert all(ours > theirs for ours, theirs in zip(band.lower, paper.lower, strict=True))
    assert band.lower[0] < band.estimate < band.at(0).upper  # type: ignore[operator]


@pytest.mark.parametrize(
    ("n", "expected"), [(10**4, [196.8, 174.8, 111.6, 39.3, 6.4]), (10**6, [199.9, 197.9, 180.9, 124.1, 48.8])]
)
def test_the_ceiling_of_n_episodes(n: int, expected: list[float]) -> None:
    """A perfect agent; a formula with n = 10000 written into it, or with n halved, fails one of the rows."""
    episodes = Episodes.from_returns(np.full(n, 200.0), sigma=2.0, floor=0, ceiling=200)
    assert certify(episodes, [2, 4, 6, 8, 10], method="per-threshold").lower == pytest.approx(expected, abs=0.06)


BANDS = ("band", "per-threshold", "dkw", "binary")


def methods_for(returns: NDArray[np.float64]) -> list[str]:
    """The methods that do not ask for the order of the returns: bets and pilots have planning/test_auto.py."""
    return [method for method in BANDS if method != "binary" or set(returns) <= {0.0, 10.0}]


outcomes = st.one_of(
    st.lists(st.floats(0, 10), min_size=1, max_size=40),
    st.lists(st.sampled_from([0.0, 10.0]), min_size=1, max_size=40),
    st.lists(st.integers(0, 10).map(float), min_size=1, max_size=40),
)


@settings(deadline=None, max_examples=60)
@given(outcomes, st.sampled_from([0.5, 0.8, 0.95, 0.999]))
def test_laws_of_every_certificate(values: list[float], confidence: float) -> None:
    returns = np.array(values)
    episodes = record(returns)
    budgets = np.linspace(0, 4, 9).tolist()
    for method in methods_for(returns):
        one = certify(episodes, budgets, confidence, method)
        lower, upper = np.array(one.lower), np.array(one.upper)
        assert np.all((lower >= 0) & (lower <= upper) & (upper <= 10))
        assert np.all(np.diff(lower) <= 0)
        assert np.all(np.diff(upper) >= 0)
        surer = certify(episodes, budgets, 1 - (1 - confidence) / 2, method)
        assert np.all(np.array(surer.lower) <= lower)
        assert np.all(np.array(surer.upper) >= upper)
        twice = certify(record(np.repeat(returns, 2)), budgets, confidence, method)
        assert np.all(np.array(twice.lower) >= lower - 1e-9)
        assert np.all(np.array(twice.upper) <= upper + 1e-9)
        louder = certify(record(returns, sigma=2.0), budgets, confidence, method)
        assert np.all(np.array(louder.lower) >= lower)


@settings(deadline=None, max_examples=40)
@given(outcomes, st.floats(0.01, 100), st.floats(-1000, 1000))
def test_affine_equivariance(values: list[float], scale: float, move: float) -> None:
    """Returns in other units, from another zero, negative floors too: the same certificate in those units."""
    returns = np.array(values)
    for method in methods_for(returns):
        if method in ("binary", "per-threshold"):
            continue  # these compare returns with thresholds, and scaled floats may land on the other side
        plain = certify(record(returns), [0, 1, 3], method=method)
        ends = {"floor": move, "ceiling": 10 * scale + move}
        moved = certify(
            record(np.clip(returns * scale + move, ends["floor"], ends["ceiling"]), **ends), [0, 1, 3], method=method
        )
        tolerance = 1e-7 * scale + 1e-11 * abs(move)
        assert moved.lower == pytest.approx([x * scale + move for x in plain.lower], abs=tolerance)
        assert moved.upper is not None
        assert plain.upper is not None
        assert moved.upper == pytest.approx([x * scale + move for x in plain.upper], abs=tolerance)


@pytest.mark.parametrize("method", ["per-threshold", "binary"])
def test_affine_equivariance_on_a_grid(method: str) -> None:
    returns = np.array([0.0, 10.0, 10.0, 10.0, 0.0, 10.0])
    plain = certify(record(returns), [0, 1], method=method)
    moved = certify(record(returns * 2 - 7, floor=-7.0, ceiling=13.0), [0, 1], method=method, threshold_spacing=2.0)
    assert moved.lower == pytest.approx([2 * x - 7 for x in plain.lower], abs=1e-7)


def test_rounded_outward_and_inside_floor_and_ceiling() -> None:
    sure = certify(record(np.full(10, 10.0)), [0, 50], method="binary")
    assert sure.lower[0] < 10 * 0.05 ** (1 / 10)
    assert sure.lower[0] == pytest.approx(10 * 0.05 ** (1 / 10), abs=2e-8)
    assert sure.lower[1] == 0
    assert sure.upper.tolist() == [10, 10]


@pytest.mark.parametrize("method", ["band", "betting"])
def test_bounds_are_rounded_outward_by_more_than_rounding_errors(method: str) -> None:
    returns, radii, alpha = np.array([3.0, 4.0, 9.0, 9.0] * 30), np.array([0.0, 0.5, 1.0]), 1 - 0.95
    made = certify(record(returns), radii.tolist(), method=method)
    if method == "band":
        band = tail_tight(returns, alpha)
        lower, upper = mean_lower(band, 0.0, radii), mean_upper(band, 10.0, radii)
    else:
        means = both_sides(returns, radii, alpha, 0.0, 10.0)
        lower, upper = means.lower.at(radii), -means.mirror.at(radii)  # type: ignore[union-attr]
    assert np.all(made.lower > 0.0)
    assert np.all(made.lower <= lower - 0.9e-9 * (9 - 0))  # relative to what was observed: 3 to 9
    assert np.all(upper + 0.9e-9 * (10 - 3) <= made.upper)


@pytest.mark.parametrize("method", ["band", "betting"])
def test_a_ceiling_far_above_the_returns_costs_no_lower_bound_anything(method: str) -> None:
    returns = np.array([3.0, 4.0, 9.0, 9.0] * 300)
    near, far = (certify(record(returns, ceiling=top), [0.0, 0.5], method=method).lower for top in (10.0, 1e13))
    assert far == pytest.approx(near, rel=1e-3 if method == "betting" else 1e-12)
    assert np.all(far > 3)


def test_no_lower_bound_exceeds_the_highest_return() -> None:
    assert rounded_lower([5.0, 12.0], 0.0, (1.0, 9.0)).tolist() == pytest.approx([5.0, 9.0], abs=1e-7)
    assert rounded_upper([5.0, -3.0], 10.0, (1.0, 9.0)).tolist() == pytest.approx([5.0, 1.0], abs=1e-7)


def test_any_budget_afterwards_from_the_same_band() -> None:
    certificate = certify(record([3.0, 4.0, 9.0, 9.0] * 30, sigma=0.4), [0, 0.5, 1], method="band")
    for budget, lower in zip(certificate.budgets, certificate.lower, strict=True):
        assert certificate.at(budget).lower == lower
    between = certificate.at(0.75)
    assert certificate.lower[1] > between.lower > certificate.lower[2]
    assert between.budget == 0.75
    assert certificate.at(1e6).lower == 0


def test_probabilities_and_quantiles_hold_with_the_mean() -> None:
    certificate = certify(record([3.0, 4.0, 9.0, 9.0] * 30), [0], method="band")
    half = certificate.probability(9, 0)
    assert 0.3 < half.lower < 0.5 < half.upper  # type: ignore[operator]
    assert certificate.probability(0, 3) == certificate.probability(-1, 3)
    assert (certificate.probability(0, 3).lower, certificate.probability(10.5, 3).upper) == (1, 0)
    assert certificate.probability(9, 1).lower < half.lower
    quantile = certificate.quantile(0.5, 0)
    assert (quantile.lower, quantile.upper) == (4, 9)
    assert certificate.quantile(0.5, 9).lower == 0
    assert certificate.quantile(0.5, 9).upper == 10


def test_only_the_ratio_of_budget_and_sigma_counts() -> None:
    returns = [3.0, 4.0, 9.0, 9.0] * 30
    one, other = (certify(record(returns, s), [0.7 * s], method="band") for s in (1.0, 0.5))
    assert one.lower.tolist() == other.lower.tolist()
    assert one.at(0.6).lower == other.at(0.3).lower < one.at(0.3).lower
    assert one.probability(4, 0.6).lower == other.probability(4, 0.3).lower < one.probability(4, 0.3).lower
    assert one.quantile(0.4, 0.1).lower == other.quantile(0.4, 0.05).lower < one.quantile(0.4, 0.05).lower


def test_without_a_ceiling_there_is_no_upper_limit() -> None:
    episodes = Episodes.from_returns([3.0, 4.0, 9.0, 9.0] * 30, sigma=1.0, floor=0)
    certificate = certify(episodes, [0, 1], method="band")
    assert certificate.upper is None
    assert certificate.at(1).upper is None
    assert certificate.quantile(0.5, 9).upper is None
    assert certificate.joint_confidence == pytest.approx(0.9)  # probabilities still have upper limits
    closed = certify(record([3.0, 4.0, 9.0, 9.0] * 30), [0, 1], method="band")
    assert certificate.lower == pytest.approx(closed.lower, abs=1e-8)
    assert certificate.to_json()["upper"] is None


def test_the_task_names_the_method_of_the_paper() -> None:
    episodes = Episodes.from_returns([0.0, 1.0], sigma=1.0, floor=0, ceiling=1, binary=True)
    assert certify(episodes, [0]).method == "auto"
    assert certify(episodes, [0], method="paper").method == "binary"
    assert certify(episodes, [0], method="dkw").method == "dkw"
    assert certify(record([0.0, 10.0]), [0], method="paper").method == "dkw"  # section 4.2 for returns in general


def strict_json(certificate: Certificate) -> dict[str, object]:
    content = json.loads(json.dumps(certificate.to_json(), allow_nan=False))
    assert isinstance(content, dict)
    return content


def test_json_is_strict_and_complete() -> None:
    facts: dict[str, Any] = {"task": "cartpole", "agent": "dqn", "agent_sha256": "ab", "seed": 3}
    episodes = Episodes.from_returns([1.0, 2.0, 3.0], sigma=0.2, floor=0, ceiling=3, **facts)
    content = strict_json(certify(episodes, [0, 0.1], method="band"))
    assert content.items() >= facts.items()
    assert content["schema"] == 1
    assert (content["sigma"], content["floor"], content["ceiling"]) == (0.2, 0, 3)
    assert (content["confidence"], content["n_episodes"], content["method"]) == (0.95, 3, "band")
    assert content["joint_confidence"] == pytest.approx(0.9)
    assert content["estimate"] == 2
    assert content["estimate_sem"] == pytest.approx(1 / math.sqrt(3))
    assert content["budgets"] == [0, 0.1]
    assert len(content["lower"]) == len(content["upper"]) == 2  # type: ignore[arg-type]
    bare = strict_json(certify(record([1.0]), [0]))
    assert bare["task"] is bare["agent"] is bare["seed"] is bare["agent_sha256"] is bare["estimate_sem"] is None


def test_thresholds_end_at_the_ceiling() -> None:
    points = certify(record([1.0]), [0], method="per-threshold", threshold_spacing=3.0).source.points
    assert points.tolist() == [0, 3, 6, 9, 10]
    tenths = certify(record([1.0]), [0], method="per-threshold", threshold_spacing=0.1).source.points
    assert tenths.size == 101
    assert tenths[-1] == 10


def test_refuses_attacked_play() -> None:
    attacked = Episodes(returns=np.ones(2), sigma=1.0, floor=0.0, budget_used=np.ones(2))
    with pytest.raises(InputError, match="without attack, got attacked episodes"):
        certify(attacked, [0])
    with pytest.raises(InputError, match="attacked episodes"):
        certify(Episodes.from_returns([1.0], sigma=1.0, floor=0, attacker="square"), [0])


@pytest.mark.parametrize("sigma", [0.0, -0.1, math.nan, math.inf])
def test_refuses_play_without_noise(sigma: float) -> None:
    with pytest.raises(InputError, match="sigma must be > 0, got"):
        certify(Episodes(returns=np.ones(2), sigma=sigma, floor=0.0), [0])


def test_refuses_returns_outside_their_limits() -> None:
    with pytest.raises(InputError, match="below the floor 0, got -1"):
        certify(Episodes(returns=np.array([-1.0, 2.0]), sigma=1.0, floor=0.0), [0])
    with pytest.raises(InputError, match="above the ceiling 1, got 2"):
        certify(Episodes(returns=np.array([2.0]), sigma=1.0, floor=0.0, ceiling=1.0), [0])
    with pytest.raises(InputError, match="non-empty list"):
        certify(Episodes(returns=np.array([]), sigma=1.0, floor=0.0), [0])


@pytest.mark.parametrize("budget", [-0.1, math.nan, math.inf])
def test_refuses_budgets(budget: float) -> None:
    with pytest.raises(InputError, match="a budget must be a finite number >= 0, got"):
        certify(record([1.0]), [0, budget])
    with pytest.raises(InputError, match="a budget must be a finite number >= 0, got"):
        certify(record([1.0]), [0]).at(budget)


def test_refuses_no_budgets() -> None:
    with pytest.raises(InputError, match="at least one budget, got none"):
        certify(record([1.0]), [])
    with pytest.raises(InputError, match=r"budgets must be a list of numbers, got 0\.5"):
        certify(record([1.0]), 0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, 95, math.nan])
def test_refuses_confidence(confidence: float) -> None:
    with pytest.raises(InputError, match="confidence must be strictly between 0 and 1, got"):
        certify(record([1.0]), [0], confidence)


def test_refuses_methods() -> None:
    with pytest.raises(InputError, match=r"method must be one of auto, paper, .*, per-threshold, .*, got 'bootstrap'"):
        certify(record([1.0]), [0], method="bootstrap")
    open_ended = Episodes.from_returns([1.0], sigma=1.0, floor=0)
    for method in ("per-threshold", "binary"):
        with pytest.raises(InputError, match=f"'{method}' needs a known ceiling"):
            certify(open_ended, [0], method=method)
    with pytest.raises(InputError, match="only the returns 0 and 10, got 1"):
        certify(record([1.0]), [0], method="binary")


def test_refuses_steps() -> None:
    with pytest.raises(InputError, match="threshold spacing must be a finite number > 0, got 0"):
        certify(record([1.0]), [0], method="per-threshold", threshold_spacing=0)
    with pytest.raises(InputError, match="makes 100000000 thresholds, expected at most 100000"):
        certify(record([1.0]), [0], method="per-threshold", threshold_spacing=1e-7)


def test_refuses_a_threshold_that_is_no_number() -> None:
    with pytest.raises(InputError, match="threshold must be a finite number, got nan"):
        certify(record([1.0]), [0]).probability(math.nan, 0)


@pytest.mark.parametrize("confidence", [0.99999999999999, 0.9999999999999999, 0.95, 0.123456789012345])
@pytest.mark.parametrize("sigma", [0.2, 0.12345678901234, 1e-7])
def test_the_statement_rounds_nothing(confidence: float, sigma: float) -> None:
    certificate = certify(record([1.0, 2.0, 3.0], sigma), [0], confidence)
    words = [word.rstrip(".,);") for word in certificate.statement.split()]
    numbers = [float(words[place + 1]) for place, word in enumerate(words) if word in ("confidence", "sigma")]
    assert sorted({confidence, sigma, certificate.joint_confidence}) == sorted(set(numbers))
    assert certificate.joint_confidence < confidence < 1


def test_the_joint_confidence_is_twice_the_risk() -> None:
    assert [certify(record([1.0]), [0], c).joint_confidence for c in (0.95, 0.99, 0.999, 0.5, 0.3)] == [
        0.9,
        0.98,
        0.998,
        0,
        0,
    ]


def test_a_printed_certificate_rounds_conservatively() -> None:
    certificate = certify(published(0.2), [0, 0.123456789, 0.2, 1], 0.9999999999, "band")
    sentence, rows, notes = str(certificate).split("\n\n")
    head, *lines = rows.splitlines()
    assert head == "attack budget  lower bound  upper bound"
    assert len({len(line) for line in [head, *lines]}) == 1
    table = [[float(cell) for cell in line.split()] for line in lines]
    assert certificate.upper is not None
    for row, budget, low, high in zip(table, certificate.budgets, certificate.lower, certificate.upper, strict=True):
        assert row[0] == budget
        assert low - 0.1 < row[1] <= low
        assert high <= row[2] < high + 0.1
    assert "With 99.99999999% confidence" in sentence
    assert "(99.99999999% confidence)" in " ".join(notes.split())


@pytest.mark.parametrize("method", ["band", "betting", "auto", "dkw", "per-threshold"])
def test_a_certificate_is_read_as_it_was_written(tmp_path: Path, method: str) -> None:
    facts: dict[str, Any] = {
        "task": "cartpole",
        "agent": "dqn",
        "agent_sha256": "ab",
        "seed": 3,
        "gamma": 0.9,
        "max_steps": 9,
    }
    returns = np.tile([1.0, 2.0, 3.0], 20)
    episodes = Episodes.from_returns(returns, sigma=[0.2, 0.3], floor=0, ceiling=3, **facts)
    made = certify(episodes, [0.4, 0, 0.1], method=method)
    (tmp_path / "odd.json").mkdir()
    assert made.save(tmp_path / "odd.json") == tmp_path / "odd.json" / "certificate.json"
    assert made.save(tmp_path / "plain.json") == tmp_path / "plain.json"
    assert made.save(tmp_path) == tmp_path / "certificate.json"
    for there in (Certificate.load(tmp_path), Certificate.load(tmp_path / "certificate.json")):
        assert isinstance(there, EpisodeCertificate)
        assert there.to_json() == made.to_json()
        assert str(there) == str(made)
        assert not there.recomputable
        assert there.is_about(episodes.metadata, 0.2)
    assert made.recomputable
    assert made.is_about(episodes.metadata, 0.2)
    assert not made.is_about(episodes.metadata, 0.3)
    assert not made.is_about({**episodes.metadata, "agent_sha256": "other"}, 0.2)
    assert not made.is_about({**episodes.metadata, "sigma_per_feature": None}, 0.2)
    assert not made.is_about({**episodes.metadata, "max_steps": 7}, 0.2)
    assert made.is_about({**episodes.metadata, "max_steps": None}, 0.2)  # measured by others, who did not say


def test_a_certificate_from_a_file_knows_the_listed_budgets_alone(tmp_path: Path) -> None:
    made = certify(record([3.0, 4.0, 9.0, 9.0] * 30), [1, 0, 0.5], method="band")
    made.save(tmp_path)
    there = Certificate.load(tmp_path)
    assert there.at(0.3) == Bounds(0.3, made.lower[2], made.upper[2])  # type: ignore[index]
    assert there.at(0.5).lower == made.lower[2]
    # However little more than a budget that is listed is asked for.
    assert there.at(np.nextafter(0.5, 1)).lower == made.lower[0]
    assert there.at(0.3).lower < made.at(0.3).lower
    with pytest.raises(InputError, match=r"lists budgets up to 1, got 1\.5"):
        there.at(1.5)
    with pytest.raises(InputError, match="read from a file"):
        there.probability(5, 0)  # type: ignore[attr-defined]


def test_other_kinds_are_read_too(tmp_path: Path) -> None:
    facts = {"reward_range": [0.0, 1.0], "max_steps": 2, "lengths": np.ones(100)}
    episodes = Episodes.from_returns([0.0, 1.0] * 50, sigma=0.5, floor=0, ceiling=1, **facts)
    shared = certify_shared_budget(episodes, [0, 0.2], 7)
    rewards = {"reward_values": episodes.returns, "reward_repeats": episodes.lengths}
    steps = certify_per_step(replace(episodes, **rewards), [0, 0.1, 0.2])
    for made, name in ((shared, "shared.json"), (steps, "per-step.json")):
        path = made.save(tmp_path)
        there = Certificate.load(path)
        assert path.name == name
        assert type(there) is type(made)
        assert there.to_json() == made.to_json()
        assert str(there) == str(made)
        assert there.at(0.05).lower == made.lower[1] <= made.at(0.05).lower
    with pytest.raises(InputError, match="not a certificate that this version reads: 'odd'"):
        Certificate.from_json({**steps.to_json(), "kind": "odd"})
    with pytest.raises(InputError, match="has no certificate"):
        Certificate.load(tmp_path.parent / tmp_path.name / "..")


def test_the_sentence_is_about_what_was_required() -> None:
    made = certify(published(0.2), BUDGETS, method="band")
    assert BUDGETS[headline_index(made)] == 0.5
    assert BUDGETS[headline_index(made, 0.2)] == 0.2


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("method", BANDS)
def test_a_radius_beyond_all_floats_leaves_what_is_certain(method: str) -> None:
    certificate = certify(record([0.0, 10.0] * 20, 1e-300), [0, 1e300], method=method)
    assert certificate.lower[0] > certificate.lower[1] == 0
    assert certificate.upper is not None
    assert certificate.upper[0] < certificate.upper[1] == 10
    assert certificate.at(1e308).lower == 0
    assert certificate.at(1e308).upper == 10
    chance = certificate.probability(5, 1e300)
    assert (chance.lower, chance.upper) == (0, 1)
    assert certificate.probability(0, 1e300).lower == 1  # the floor is reached for certain
    middle = certificate.quantile(0.5, 1e300)
    assert (middle.lower, middle.upper) == (0, 10)


@pytest.mark.filterwarnings("error")
def test_a_range_beyond_all_floats_is_refused() -> None:
    for floor, ceiling in ((-1e308, 1e308), (0, 1e308), (-1e308, 0)):
        episodes = Episodes(np.zeros(3), 1.0, floor, ceiling)
        with pytest.raises(InputError, match="range of the return is too large"):
            certify(episodes, [0.5])
    assert certify(Episodes.from_returns([0.0, 1e139], sigma=1, floor=-1e140, ceiling=1e140), [0.5]).lower[0] < 0


def test_a_band_does_not_contain_the_pilot_that_selected_it(monkeypatch):
    """It would be selected by the returns that it is about."""
    seen = []
    own = episode_budget.cdf.tail_tight

    def spy(returns, alpha):
        seen.append(returns.tolist())
        return own(returns, alpha)

    choice = SimpleNamespace(method="band", pilot=30, to_json=dict)
    monkeypatch.setattr(episode_budget, "choose_method", lambda *_, **__: choice)
    monkeypatch.setattr(episode_budget.cdf, "tail_tight", spy)
    returns = np.arange(100.0)
    certify(Episodes.from_returns(returns, sigma=1.0, floor=0, ceiling=100), [0.5], method="auto")
    assert seen == [returns[30:].tolist()]


@pytest.mark.parametrize("budget", [0.0, 0.3])
def test_probabilities_are_rounded_outward(budget):
    returns = np.arange(100.0)
    made = certify(Episodes.from_returns(returns, sigma=1.0, floor=0, ceiling=100), [0.5], method="band")
    found = made.probability(40.0, budget)
    where = (made.source, 40.0, budget, 0.0, 100.0)
    assert found.lower < from_band.probability_lower(*where) < found.lower + 1e-6
    assert found.upper - 1e-6 < from_band.probability_upper(*where) < found.upper
