"""The page about a run: the numbers of the file and no others, untrusted text as text, one file, whole or absent."""

import base64
import hashlib
import json
import re
import zlib
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import surefoot
from pages import HOSTILE, SIGMA, about, attacked, certified, replayed, returns_of
from surefoot.episodes import Episodes
from surefoot.errors import InputError, printable
from surefoot.files import read_json, write_json
from surefoot.proof.rounding import format_lower, format_upper
from surefoot.report import page
from surefoot.report.charts import chart_data, find_inconsistencies, group_runs
from surefoot.report.curves import grid_of, own_curve, perfect_curve
from surefoot.report.histograms import (
    MOST_BARS,
    MOST_STEP_BARS,
    _shown_range,
    bin_edges,
    histogram_data,
    spending_data,
)
from surefoot.report.html import bounds_tables
from surefoot.report.page import build_page, write_report
from surefoot.report.sentences import (
    attack_rows,
    attack_sentence,
    budget_examples,
    excluded_threat,
    lead_number,
    opening_sentences,
)
from surefoot.report.taped_frames import encode_png, picture_sheet, replay_data
from surefoot.runs.finish import write_run_report
from surefoot.runs.read import neighbors, read_run


@pytest.fixture
def tmp_path(tmp_path):
    """Give every test a folder whose neighbors are not those of other tests."""
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


def data_of(text):
    """Return the data that a page carries."""
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, flags=re.DOTALL)
    return json.loads(found)


def series(chart, role):
    return [entry for entry in chart["series"] if entry["role"] == role]


def chart_of(*folders):
    (group,) = group_runs([read_run(folder) for folder in folders])
    return chart_data(group)


# --- numbers --------------------------------------------------------------------------------------------------------


def test_every_number_of_the_certificate_is_on_the_page_rounded_against_us(tmp_path):
    stated = certified(tmp_path)
    chart = chart_of(tmp_path)
    (lower,), (upper,) = series(chart, "lower"), series(chart, "upper")
    for budget, low, high in zip(stated["budgets"], stated["lower"], stated["upper"], strict=True):
        at = chart["budgets"].index(budget)
        assert lower["text"][at] == format_lower(low, 2)
        assert upper["text"][at] == format_upper(high, 2)
        assert lower["y"][at] == pytest.approx(low, rel=1e-5)
        assert at in lower["marks"]


@pytest.mark.parametrize(
    ("noise", "perturbed", "units", "excluded"),
    [
        (
            {"sigma": 0.2},
            "observations before noise is added and the agent receives them.",
            "the units of the observations",
            "actions, rewards",
        ),
        (
            {"sigma": 0.0, "action_sigma": 0.2},
            "actions before noise is added to them at the actuator.",
            "the units of the actions",
            "observations, rewards",
        ),
        (
            {"sigma": 0.2, "action_sigma": 0.2},
            "observations before noise is added and the agent receives them, and actions before noise is added",
            "standard deviations of the noise",
            "rewards",
        ),
    ],
    ids=["observations", "actions", "both"],
)
def test_a_page_says_what_may_be_attacked_and_what_its_budgets_count(tmp_path, noise, perturbed, units, excluded):
    record = surefoot.Episodes.from_returns(returns_of(), floor=0, ceiling=200, **noise, **about("agent-a"))
    record.save(tmp_path / "episodes.npz")
    surefoot.certify(record, [0.1]).save(tmp_path)
    write_json(tmp_path / "setup.json", {"schema": 1, **record.setup})
    write_json(tmp_path / "run.json", {"schema": 1, "versions": {}, "command": "", "baseline": None, "replay": None})
    text = " ".join(build_page([read_run(tmp_path)]).split())
    assert f"An attacker perturbs {perturbed}" in text
    assert f", in {units}." in text
    assert f"<li>Attacks on {excluded}, the environment" in text


def test_between_the_budgets_stands_what_the_certificate_says_there(tmp_path):
    certified(tmp_path)
    run = read_run(tmp_path)
    record = surefoot.Episodes.load(tmp_path / "episodes.npz")
    made = surefoot.certify(record, [0.0], 0.95, "per-threshold")
    grid = grid_of([run])
    curve = own_curve(run, grid)
    assert curve.fine
    assert len(grid) > 50
    assert curve.lower == pytest.approx([made.at(budget).lower for budget in grid], abs=1e-12)
    assert curve.upper == pytest.approx([made.at(budget).upper for budget in grid], abs=1e-12)
    assert curve.lower == sorted(curve.lower, reverse=True)


@pytest.mark.parametrize("spoil", ["no record", "another record", "other numbers", "another step"])
def test_where_the_file_cannot_be_reproduced_the_next_larger_budget_counts(tmp_path, spoil):
    stated = certified(tmp_path)
    if spoil == "no record":
        (tmp_path / "episodes.npz").unlink()
    elif spoil == "another record":
        surefoot.Episodes.from_returns(returns_of()[:100], sigma=SIGMA, floor=0, ceiling=200).save(
            tmp_path / "episodes.npz"
        )
    elif spoil == "other numbers":
        stated["lower"] = [value - 5 for value in stated["lower"]]
        write_json(tmp_path / "certificate.json", stated)
    else:
        write_json(tmp_path / "certificate.json", {**stated, "threshold_spacing": 7.0})
    run = read_run(tmp_path)
    grid = grid_of([run])
    curve = own_curve(run, grid)
    assert not curve.fine
    for budget, low, high in zip(grid, curve.lower, curve.upper, strict=True):
        at = min(k for k, listed in enumerate(stated["budgets"]) if listed >= budget)
        assert (low, high) == (stated["lower"][at], stated["upper"][at])


def test_a_certificate_at_hand_gives_the_page_that_its_file_gives(tmp_path):
    certified(tmp_path)
    record = surefoot.Episodes.load(tmp_path / "episodes.npz")
    made = surefoot.certify(record, (0, 0.1, 0.2, 0.4, 1.0), 0.95, "per-threshold")
    other = surefoot.certify(record, (0, 0.1, 0.2, 0.4, 1.0), 0.95, "band")
    of_file = write_run_report(tmp_path).read_bytes()
    assert write_run_report(tmp_path, made).read_bytes() == of_file
    assert write_run_report(tmp_path, other).read_bytes() == of_file


def test_another_attacker_speaks_for_itself_on_axes_of_its_own(tmp_path):
    stated = {**certified(tmp_path / "a"), "kind": "per-step", "n_steps": 200, "reward_range": [0, 1]}
    certified(tmp_path / "b")
    (tmp_path / "a" / "certificate.json").unlink()
    write_json(tmp_path / "a" / "per-step.json", stated)
    text = build_page([read_run(tmp_path / "a")])
    lower, scope = format_lower(stated["lower"][3], 2), "l2 norm of the perturbation of each single observation"
    said = f"at least {lower} (maximum 200) under any observation attack with budget 0.4 ({scope}), assuming that no "
    assert f"{said}return is below 0 or above 200 (stated by the user, not proved)." in text
    assert f"The <b>budget</b> bounds the\n{scope}, in" in text
    assert "perturbations of one episode" not in text
    assert "budget for each single step" not in text
    assert "budget for each single step" in build_page([read_run(tmp_path / "b")])
    (chart,) = data_of(text)["charts"]
    assert chart["budget"] == scope
    assert {entry["role"] for entry in chart["series"]} == {"lower", "upper", "estimate", "baseline"}
    assert not series(chart, "lower")[0]["fine"]  # what certify makes of the episodes is about another attacker
    both = group_runs([read_run(tmp_path / "a"), read_run(tmp_path / "b")])
    assert [group.title for group in both] == ["cartpole-5 (per-step)", "cartpole-5"]


def test_a_discounted_return_has_axes_of_its_own_and_contradicts_nothing_else(tmp_path):
    certified(tmp_path / "a")
    stated = certified(tmp_path / "b")
    write_json(tmp_path / "b" / "certificate.json", {**stated, "gamma": 0.95})
    groups = group_runs([read_run(tmp_path / "a"), read_run(tmp_path / "b")])
    assert [group.title for group in groups] == ["cartpole-5", "cartpole-5 (discount 0.95)"]
    assert "the expected discounted return (gamma 0.95) of the smoothed agent" in build_page([read_run(tmp_path / "b")])


def test_no_agent_certifies_more_than_a_perfect_one_from_as_many_episodes(tmp_path):
    certified(tmp_path)
    run = read_run(tmp_path)
    grid = grid_of([run])
    perfect = perfect_curve(run, grid).lower
    assert all(most >= own for most, own in zip(perfect, own_curve(run, grid).lower, strict=True))
    ideal = surefoot.Episodes.from_returns(np.full(400, 200.0), sigma=SIGMA, floor=0, ceiling=200)
    assert perfect == pytest.approx([surefoot.certify(ideal, grid, 0.95, "per-threshold").at(b).lower for b in grid])


def test_without_a_ceiling_there_is_no_upper_bound_and_no_perfect_agent(tmp_path):
    certified(tmp_path, ceiling=None, method="band")
    chart = chart_of(tmp_path)
    assert {entry["role"] for entry in chart["series"]} == {"lower", "estimate", "baseline"}
    assert "unknown" in build_page([read_run(tmp_path)])


def test_estimates_are_marks_and_stand_at_budget_zero_alone(tmp_path):
    stated = certified(tmp_path)
    (estimate,) = series(chart_of(tmp_path), "estimate")
    assert estimate["y"][0] == stated["estimate"]
    assert set(estimate["y"][1:]) == {None}
    assert "estimate" in estimate["suffix"]
    assert estimate["error"][0] == pytest.approx(1.96 * stated["estimate_sem"])


def test_attacks_are_marks_with_error_bars_at_their_budgets(tmp_path):
    certified(tmp_path / "a")
    attacked(tmp_path / "b")
    chart = chart_of(tmp_path / "a", tmp_path / "b")
    (attack,) = series(chart, "attack")
    shown = {
        b: (y, e, t) for b, y, e, t in zip(chart["budgets"], attack["y"], attack["error"], attack["text"], strict=True)
    }
    assert {budget for budget, (value, _, _) in shown.items() if value is not None} == {0.4, 1.0}
    assert shown[0.4] == (170.0, pytest.approx(2.94), "170.00 ± 1.50")
    assert attack["colour"] == series(chart, "lower")[0]["colour"]


@pytest.mark.parametrize("largest", [1e-9, 0.3, 1.0, 7.0, 123.0, 1e6])
def test_the_budgets_of_a_chart_are_round_and_hold_all_that_were_asked_for(tmp_path, largest):
    certified(tmp_path, budgets=(0, largest / 3, largest), sigma=largest)
    grid = grid_of([read_run(tmp_path)])
    assert {0, largest / 3, largest} <= set(grid)
    assert 50 <= len(grid) <= 130
    assert grid == sorted(set(grid))
    assert max(grid) == largest


# --- returns and spending -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "returns",
    [[200.0], [0.0, 1.0], [-21.0, 21.0, 3.0], np.arange(500.0), [1e9, 2e9], [0.123] * 3, [-1e-9, 1e-9], [-3.7, 12.9]],
)
def test_every_return_falls_into_one_of_few_bins(returns):
    edges = bin_edges(min(returns), max(returns), all(one == round(one) for one in returns))
    counts, _ = np.histogram(returns, edges)
    assert counts.sum() == len(returns)
    assert len(counts) <= MOST_BARS + 1
    assert (np.diff(edges) > 0).all()


def test_histograms_count_every_episode(tmp_path):
    certified(tmp_path / "a")
    attacked(tmp_path / "b")
    (group,) = group_runs([read_run(tmp_path / "a"), read_run(tmp_path / "b")])
    found = histogram_data(group)
    assert [(item["total"], sum(item["counts"])) for item in found["items"]] == [(400, 400), (100, 100), (100, 100)]
    assert [item["meanText"] for item in found["items"]] == ["181.70", "170.00", "60.00"]
    assert found["edges"][0] <= 0
    assert found["edges"][-1] >= 200


@pytest.mark.parametrize(("ceiling", "last"), [(None, -2), (0.0, 0), (3.0, 3)])
def test_floor_and_ceiling_are_in_a_histogram_where_they_are_known(ceiling, last):
    """A ceiling of 0, as of Pendulum, is known too."""
    record = Episodes.from_returns([-7.0, -2.0] * 20, sigma=0.1, floor=-10, ceiling=ceiling)
    run = SimpleNamespace(records=[record])
    edges = bin_edges(*_shown_range(SimpleNamespace(runs=[run]), record.returns))
    assert (edges[0] <= -10) == (ceiling is not None)
    assert edges[-1] - 1 <= last <= edges[-1]


def test_spending_is_what_the_attack_wrote(tmp_path):
    made = attacked(tmp_path)
    (group,) = group_runs([read_run(tmp_path)])
    first, second = spending_data(group)
    assert first["values"] == made["budget_used_per_step"][0]
    assert first["says"].startswith("On average 56% of the squared budget was used")
    assert (
        second["says"] == "On average 70% of the squared budget was used, half of that by step 1, all of it by step 3."
    )


def test_long_episodes_have_their_steps_added_up(tmp_path):
    made = attacked(tmp_path)
    made["budget_used_per_step"] = [[1e-6] * 27_001] * 2
    write_json(tmp_path / "attack.json", made)
    (group,) = group_runs([read_run(tmp_path)])
    values = spending_data(group)[0]["values"]
    assert len(values) <= MOST_STEP_BARS
    assert sum(values) == pytest.approx(27_001e-6, rel=1e-4)


# --- replays --------------------------------------------------------------------------------------------------------


def unpacked(data):
    """Return the pixels of a grey PNG."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = (int.from_bytes(data[k : k + 4], "big") for k in (16, 20))
    at, body = 8, b""
    while at < len(data):
        length, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        content = data[at + 8 : at + 8 + length]
        assert zlib.crc32(kind + content) == int.from_bytes(data[at + 8 + length : at + 12 + length], "big")
        body += content if kind == b"IDAT" else b""
        at += 12 + length
    rows = np.frombuffer(zlib.decompress(body), dtype=np.uint8).reshape(height, width + 1)
    assert not rows[:, 0].any()
    return rows[:, 1:]


def test_a_picture_survives_its_png():
    image = np.random.default_rng(0).integers(0, 256, (7, 5), dtype=np.uint8)
    assert np.array_equal(unpacked(encode_png(image)), image)


@pytest.mark.parametrize("shape", [(23, 4, 6), (23, 4, 6, 3), (23, 1, 4, 6)])
def test_pictures_lie_on_a_sheet_in_their_order(shape):
    pictures = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    made = picture_sheet(pictures)
    laid = unpacked(base64.b64decode(made["source"].partition(",")[2]))
    grey = pictures if len(shape) == 3 else pictures.mean(axis=3 if shape[3] == 3 else 1)
    for step in range(23):
        top, left = step // made["columns"] * 4, step % made["columns"] * 6
        assert np.abs(laid[top : top + 4, left : left + 6] - grey[step]).max() <= 0.5


def test_a_replay_shows_clean_noisy_and_attacked_side_by_side(tmp_path):
    certified(tmp_path)
    replayed(tmp_path)
    found = replay_data(read_run(tmp_path), "a")
    assert [panel["role"] for panel in found["panels"]] == ["clean", "quiet", "attacked"]
    assert found["kind"] == "numbers"
    assert [panel["steps"] for panel in found["panels"]] == [12, 12, 6]
    assert found["panels"][1]["truth"] == found["panels"][0]["seen"]
    # Its numbers have the names that the setup of the run knows.
    parts = [["position", 1, "m"], ["others", 3, ""]]
    write_json(tmp_path / "setup.json", {**read_json(tmp_path / "setup.json"), "features": parts})
    assert replay_data(read_run(tmp_path), "a")["names"] == ["position", "others 1", "others 2", "others 3"]


def test_images_are_shown_as_pictures(tmp_path):
    certified(tmp_path)
    replayed(tmp_path, shape=(84, 84), environment="Pong", steps=150)
    assert replay_data(read_run(tmp_path), "a")["kind"] == "picture"
    assert write_run_report(tmp_path).stat().st_size < 8_000_000


def test_a_run_without_a_replay_says_so(tmp_path):
    certified(tmp_path)
    text = build_page([read_run(tmp_path)])
    assert "No episode is shown here" in text
    assert 'id="replays"' not in text
    write_json(tmp_path / "run.json", {**read_json(tmp_path / "run.json"), "replay": "RuntimeError: <it> broke"})
    assert "No episode could be shown: RuntimeError: &lt;it&gt; broke." in build_page([read_run(tmp_path)])


def test_a_damaged_replay_is_one_line(tmp_path):
    certified(tmp_path)
    replayed(tmp_path)
    with np.load(tmp_path / "replay.npz") as archive:
        arrays = {name: archive[name] for name in archive.files if name != "quiet_seen"}
    np.savez(tmp_path / "replay.npz", **arrays)
    with pytest.raises(InputError, match=r"replay.npz is not a replay that this version reads: 'quiet_seen'"):
        write_run_report(tmp_path)


# --- several runs ---------------------------------------------------------------------------------------------------


def test_runs_of_one_task_share_a_chart_and_others_get_their_own(tmp_path):
    certified(tmp_path / "a")
    certified(tmp_path / "b", agent="agent-b", sigma=0.4)
    certified(tmp_path / "c", agent=None, ceiling=None, method="band")
    runs = [read_run(tmp_path / name) for name in "abc"]
    assert [(group.title, len(group.runs)) for group in group_runs(runs)] == [("cartpole-5", 2), ("returns given", 1)]
    text = build_page(runs)
    assert len(data_of(text)["charts"]) == text.count('<article class="chart"') == 2
    assert "their error probabilities add up" in text
    # At the largest budget of a headline; the larger sigma has the higher bound there.
    lower = [format_lower(read_run(tmp_path / name).proved.at(0.4).lower, 2) for name in "ba"]
    said = f"Certified at budget 0.4: agent-b at least {lower[0]}, agent-a at least {lower[1]}."
    assert said in text
    # Whichever of the runs has that headline.
    certified(tmp_path / "short", agent="agent-s", budgets=(0, 0.1, 0.4), returns=np.tile([200.0, 40.0], 200))
    short = read_run(tmp_path / "short")
    assert short.proved.budgets[short.headline_index] < 0.4
    for pair in ((short, runs[0]), (runs[0], short)):
        assert "Certified at budget 0.4: agent-a at least" in build_page(pair)


def test_the_attacks_beside_a_certificate_are_on_its_page_and_strangers_are_not(tmp_path):
    certified(tmp_path / "a")
    attacked(tmp_path / "b")
    attacked(tmp_path / "c", agent="agent-b")
    attacked(tmp_path / "d", sigma=0.4)
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "attack.json").write_text("{")  # a stranger's damage is not ours
    assert [run.name for run in neighbors(tmp_path / "a", read_run(tmp_path / "a"))] == ["b"]
    assert [run.name for run in neighbors(tmp_path / "b", read_run(tmp_path / "b"))] == ["a"]
    for name in "ab":
        chart = data_of(write_run_report(tmp_path / name).read_text())["charts"][0]
        assert [entry["role"] for entry in chart["series"] if entry["role"] in {"lower", "attack"}] == [
            "lower",
            "attack",
        ]


def test_a_table_of_bounds_has_the_means_of_attacks_on_the_same_agent_alone(tmp_path):
    for name, facts in (("a", {}), ("other", {"agent": "agent-b"}), ("noisier", {"sigma": 0.4})):
        certified(tmp_path / f"certified-{name}", **facts)
        attacked(tmp_path / f"attacked-{name}", **facts)
    (group,) = group_runs([read_run(folder) for folder in sorted(tmp_path.iterdir())])
    tables = re.findall(r"<caption>([^<]*)</caption><thead>(.*?)</thead>", bounds_tables(group))
    bounds = {caption: heads.count("(measured)") for caption, heads in tables if "measured" not in caption}
    assert list(bounds.values()) == [1, 1, 1]


def test_a_page_says_between_which_numbers_the_worst_attack_is(tmp_path):
    """At the largest budget that both have; an attack on another agent, or with another sigma, says nothing of it."""
    certified(tmp_path / "a")
    attacked(tmp_path / "b", means=(190.0, 185.0))
    bound = read_run(tmp_path / "a").proved
    budget = max({*bound.budgets} & {*read_run(tmp_path / "b").measured["budgets"]})
    text = write_run_report(tmp_path / "a").read_text()
    between = f"Under the worst attack with budget {budget:g} the expected return is between"
    assert between in text
    assert "and 185.00 ± 2.25 (the strongest attack tried)" in text
    attacked(tmp_path / "b", agent="agent-b", means=(10.0, 9.0))
    assert between not in write_run_report(tmp_path / "a").read_text()


@pytest.mark.parametrize(("noted", "required"), [(0.1, 0.1), (1.0, 1.0), (0, 0.0), (None, None), ("0.1", None)])
def test_a_page_is_about_the_budget_that_was_required(tmp_path, noted, required):
    """Also where that is not the largest that says something."""
    certified(tmp_path / "a")
    plain = read_run(tmp_path / "a")
    write_json(tmp_path / "a" / "run.json", {**plain.notes, "required_budget": noted})
    run = read_run(tmp_path / "a")
    assert run.required == required
    about = plain.headline_index if required is None else run.proved.budgets.tolist().index(required)
    assert run.headline_index == about
    assert f"with budget {run.proved.budgets[about]:g} (" in opening_sentences(group_runs([run]))[0]


def test_the_one_number_of_a_page_is_that_of_its_sentence(tmp_path):
    """Not the largest bound, which is that without attack."""
    certified(tmp_path / "a")
    run = read_run(tmp_path / "a")
    assert run.headline_index > 0
    number, what = lead_number(group_runs([run]))
    assert number == f"≥ {format_lower(run.proved.lower[run.headline_index], run.digits)}"
    assert what == "of 200, certified"
    assert number.removeprefix("≥ ") in opening_sentences(group_runs([run]))[0]


def test_an_attack_that_used_hardly_any_of_its_budget_did_not_attack(tmp_path):
    """Less than a hundredth, of the lambda whose mean is shown."""
    made = attacked(tmp_path / "b")
    for used, said in ((0.0039, "did not attack"), (0.0041, "1%"), (0.4, "100%")):
        made["mean_budget_used"] = [[used, 0.3], [0.3, 0.8]]
        write_json(tmp_path / "b" / "attack.json", made)
        assert [row[3] for row in attack_rows(read_run(tmp_path / "b"))] == [said, "80%"]


@pytest.mark.parametrize(("scope", "spread"), [(None, True), ("l2 per step", False), ("linf per step", False)])
def test_examples_of_a_budget_for_every_step_are_not_spread_over_the_episode(tmp_path, scope, spread):
    made = attacked(tmp_path / "b")
    write_json(tmp_path / "b" / "attack.json", {**made, "scope": scope})
    run = read_run(tmp_path / "b")
    run = replace(run, setup={**run.setup, "max_steps": 200})
    examples = budget_examples(group_runs([run]))
    assert ("at each of 200 steps" in examples) == spread
    assert ("at every step" in examples) != spread


@pytest.mark.parametrize(("kind", "excluded"), [(None, True), ("shared", True), ("per-step", False)])
def test_a_budget_for_each_step_is_excluded_by_all_pages_but_those_about_it(kind, excluded):
    entry = SimpleNamespace(run=SimpleNamespace(proved=SimpleNamespace(kind=kind)))
    words = excluded_threat([SimpleNamespace(certified=[entry])])
    assert ("a budget for each single step" in words) == excluded


@pytest.mark.parametrize(
    ("noise", "said"),
    [
        ({"sigma": 0.0}, "undefended (sigma = 0)"),
        ({"sigma": 0.2}, "smoothed with sigma 0.2"),
        ({"sigma": 0.0, "action_sigma": 0.1}, "smoothed with sigma 0.1 on actions"),
    ],
)
def test_an_agent_with_noise_on_actions_alone_is_not_called_undefended(tmp_path, noise, said):
    made = attacked(tmp_path / "b")
    write_json(tmp_path / "b" / "attack.json", {**made, **noise})
    assert f", {said}, had a mean return" in attack_sentence(read_run(tmp_path / "b"))


def test_what_is_on_disk_is_shown_and_not_another_certificate_in_memory(tmp_path):
    """Planted: that of other episodes, which a run directory held before."""
    certified(tmp_path / "a")
    certified(tmp_path / "b", returns=np.full(400, 200.0))
    shown = write_run_report(tmp_path / "a", surefoot.Certificate.load(tmp_path / "b")).read_text()
    assert shown == write_run_report(tmp_path / "a").read_text()


def test_of_several_attacks_the_strongest_counts_at_a_budget_that_is_certified(tmp_path):
    """A weaker one is above what is known, and one with a larger budget says nothing of the bound."""
    certified(tmp_path / "a")
    attacked(tmp_path / "b", means=(190.0, 185.0))
    attacked(tmp_path / "c", means=(188.0, 150.0))
    sentence = "Under the worst attack with budget {} the expected return is between"
    text = write_run_report(tmp_path / "a").read_text()
    assert sentence.format(1) in text
    assert "and 150.00 ± 2.25 (the strongest attack tried)" in text
    certified(tmp_path / "a", budgets=(0, 0.2, 0.4))
    text = write_run_report(tmp_path / "a").read_text()
    assert sentence.format(0.4) in text
    assert "and 188.00 ± 1.50 (the strongest attack tried)" in text


def test_a_neighbour_that_cannot_be_shown_does_not_spoil_the_page(tmp_path):
    certified(tmp_path / "a")
    attacked(tmp_path / "b")
    (tmp_path / "b" / "replay.npz").write_bytes((tmp_path / "a" / "episodes.npz").read_bytes())
    chart = data_of(write_run_report(tmp_path / "a").read_text())["charts"][0]
    assert not series(chart, "attack")


def test_an_attack_below_the_bound_raises_the_alarm_and_one_above_does_not(tmp_path):
    certified(tmp_path / "a", returns=np.full(5_000, 200.0))
    attacked(tmp_path / "b", means=(20.0, 20.0))
    attacked(tmp_path / "c", means=(190.0, 150.0))
    (bad,) = group_runs([read_run(tmp_path / "a"), read_run(tmp_path / "b")])
    (good,) = group_runs([read_run(tmp_path / "a"), read_run(tmp_path / "c")])
    assert len(find_inconsistencies(bad)) == 1
    assert find_inconsistencies(good) == []
    assert 'role="alert"' in build_page(bad.runs)
    # Also where runs of another task follow, of which none is inconsistent.
    certified(tmp_path / "d", agent=None)
    assert 'role="alert"' in build_page([*bad.runs, read_run(tmp_path / "d")])
    assert 'role="alert"' not in build_page(good.runs)


# --- the file -------------------------------------------------------------------------------------------------------


def test_foreign_names_stay_text(tmp_path):
    certified(tmp_path / "a", agent=HOSTILE)
    attacked(tmp_path / "b", agent=HOSTILE)
    replayed(tmp_path / "a", environment=HOSTILE)
    facts = read_json(tmp_path / "a" / "run.json")
    blind = {**facts["baseline"], "what": HOSTILE}
    write_json(
        tmp_path / "a" / "run.json", {**facts, "command": HOSTILE, "baseline": blind, "versions": {HOSTILE: HOSTILE}}
    )
    text = write_run_report(tmp_path / "a").read_text(encoding="utf-8")
    assert text.count("<script") == text.count("</script>") == 2
    assert "<img" not in text
    assert "\u2028" not in re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1]
    assert any(printable(HOSTILE) in entry["label"] for entry in data_of(text)["charts"][0]["series"])


def test_names_cannot_hide_or_reverse_what_stands_beside_them(tmp_path):
    """An agent called RIGHT-TO-LEFT OVERRIDE could show 59.1 as 1.95 in the title, in labels and in the setup."""
    name = "agent\u202e59.1\u2066\u200b\x1b[2J"
    certified(tmp_path / "a", agent=name)
    attacked(tmp_path / "b", agent=name)
    text = write_run_report(tmp_path / "a").read_text(encoding="utf-8")
    hidden = re.compile("[\u202a-\u202e\u2066-\u2069\u200b\x1b]")
    assert not hidden.search(text)
    assert not hidden.search(json.dumps(data_of(text), ensure_ascii=False))
    assert "agent\\u202e59.1\\u2066\\u200b\\x1b[2J certified" in text


def test_a_replay_opens_at_the_largest_perturbation_and_shows_it(tmp_path):
    certified(tmp_path)
    replayed(tmp_path)
    with np.load(tmp_path / "replay.npz") as archive:
        arrays = {name: archive[name] for name in archive.files}
    arrays["attacked_budget_used"] = np.sqrt(np.cumsum([0.0, 0.01, 0.04, 0.0, 0.02, 0.0]))
    np.savez(tmp_path / "replay.npz", **arrays)
    found = replay_data(read_run(tmp_path), "a")
    assert found["start"] == 2
    clean, noisy = arrays["quiet_clean"][2], arrays["quiet_seen"][2]
    added = arrays["attacked_seen"][2] - arrays["attacked_clean"][2] - (noisy - clean)
    assert found["panels"][2]["perturbation"][2] == pytest.approx(added.tolist(), rel=1e-4, abs=1e-6)
    assert found["panels"][1].get("perturbation") is None


def test_nothing_is_loaded_and_only_our_own_code_may_run(tmp_path):
    certified(tmp_path)
    text = write_run_report(tmp_path).read_text(encoding="utf-8")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
    assert policy.startswith("default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; ")
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, flags=re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    outside = text.replace("http://www.w3.org/2000/svg", "")  # a name, not an address
    assert not re.search(r"https?://|@import|url\(|src=[\"']?(?!data:)\w|innerHTML|eval\(", outside)


def test_a_page_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    certified(tmp_path)
    before = write_run_report(tmp_path).read_text()
    monkeypatch.setattr(page, "LARGEST_PAGE", 1_000)
    with pytest.raises(InputError, match=r"the page about 1 runs would have [\d,]+ bytes, more than 1,000; name fewer"):
        write_run_report(tmp_path)
    assert (tmp_path / "report.html").read_text() == before
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_replays_that_a_page_cannot_carry_are_left_out(tmp_path, monkeypatch):
    for name in "abc":
        certified(tmp_path / name, agent=f"agent-{name}")
        replayed(tmp_path / name, shape=(20, 20))
    one = len(json.dumps(replay_data(read_run(tmp_path / "a"), "agent-a")))
    monkeypatch.setattr(page, "MOST_OF_REPLAYS", 2 * one + 10)
    assert len(data_of(build_page([read_run(tmp_path / name) for name in "abc"]))["replays"]) == 2


def test_the_same_folders_give_the_same_page(tmp_path):
    certified(tmp_path)
    assert write_run_report(tmp_path).read_bytes() == write_run_report(tmp_path).read_bytes()


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ({}, "not a certificate that this version reads: 'schema'"),
        ({"schema": 3}, "schema 3, expected 1"),
        ({"lower": [1.0]}, "one lower and one upper bound per budget"),
        ({"lower": ["x"] * 5}, "expected a number, got 'x'"),
        ({"lower": 3}, "expected a list of numbers, got int"),
        ({"estimate": True}, "expected a number, got True"),
    ],
)
def test_certificates_that_are_none(tmp_path, content, match):
    stated = certified(tmp_path)
    write_json(tmp_path / "certificate.json", {**stated, **content} if content else {})
    with pytest.raises(InputError, match=match):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ({"schema": 2}, "schema 2, expected 1"),
        ({"budget_used_per_step": [["x"], []]}, "expected a number, got 'x'"),
    ],
)
def test_attacks_that_are_none(tmp_path, content, match):
    made = attacked(tmp_path)
    write_json(tmp_path / "attack.json", {**made, **content})
    with pytest.raises(InputError, match=match):
        read_run(tmp_path)


def test_folders_that_are_none(tmp_path):
    with pytest.raises(InputError, match=r"no directory .*gone; give a run directory of 'surefoot certify'"):
        read_run(tmp_path / "gone")
    with pytest.raises(InputError, match=r"has neither certificate.json nor attack.json"):
        read_run(tmp_path)
    with pytest.raises(InputError, match=r"a report needs at least one run directory, got none"):
        write_report([], tmp_path / "report.html")


# --- colours --------------------------------------------------------------------------------------------------------
