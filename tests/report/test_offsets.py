"""Offsets of a sensor over time: within the budget, in the units that were given, in every text that has a budget."""

import math

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from hypothesis import given
from hypothesis import strategies as st

import surefoot
from surefoot.errors import InputError
from surefoot.play.envs import trial
from surefoot.report.certificate_text import describe, headline
from surefoot.report.offsets import (
    Feature,
    HeldBudget,
    coordinate_names,
    named_features,
    noisy_parts,
    unit_of_budgets,
)
from surefoot.report.page import build_page
from surefoot.runs.read import read_run


@given(st.floats(1e-3, 1e3), st.integers(1, 100_000), st.sampled_from([None, 0.02, 0.1, 0.03, 300.0]))
def test_every_held_offset_is_within_the_budget_and_uses_it_up(budget, max_steps, seconds):
    features = (Feature("pos", "m"), Feature("speed", "m/s", 3.0))
    over_time = HeldBudget(budget, max_steps, features, seconds)
    found = over_time.offsets()
    assert found[0].steps == 1
    assert found[-1].steps == max_steps
    assert len(found) <= 8
    for held in found:
        # A budget counts each feature in units of its own scale.
        for feature, size in zip(features, held.sizes, strict=True):
            assert math.isclose(size / feature.scale * math.sqrt(held.steps), budget)
    shown = [float(cell) for cell in over_time.lines()[-1].split()[-2:]]
    assert all(0.989 * size <= text <= size * (1 + 1e-12) for size, text in zip(found[-1].sizes, shown, strict=True))


def test_table():
    assert HeldBudget(1.6, 500, [Feature("pos", "m")], 0.02).lines() == [
        "held for  pos (m)",
        "  1 step      1.6",
        "   0.1 s    0.715",
        "   0.2 s    0.505",
        "   0.5 s     0.32",
        "     1 s    0.226",
        "     2 s     0.16",
        "     5 s    0.101",
        "    10 s   0.0715",
    ]
    assert [line.split()[-1] for line in HeldBudget(1.0, 4, [Feature("value")]).lines()] == [
        "value",
        "1",
        "0.707",
        "0.5",
    ]


def test_what_a_sentence_names_lasts_for_a_second_at_least():
    """Of steps of 0.03 s these are 34; without seconds it is one step."""
    features = [Feature("pos", "m"), Feature("speed", "m/s", 3.0)]
    assert HeldBudget(1.0, 500, features, 0.03).largest() == "0.171 m of pos for 1.02 s"
    assert HeldBudget(1.0, 500, features, 0.1).largest() == "0.316 m of pos for 1 s"
    assert HeldBudget(1.0, 500, features, 2.0).largest() == "1 m of pos for 1 step"
    assert HeldBudget(1.0, 500, features).largest() == "1 m of pos for 1 step"


@pytest.mark.parametrize(
    "setup",
    [{}, {"features": "pos"}, {"features": [["pos", -1, "m"]]}, {"features": [["pos", True, "m"]]}, {"features": [1]}],
)
def test_files_of_others_may_say_anything(setup):
    assert named_features(setup) == ()
    assert unit_of_budgets(setup) == ""


def test_a_scale_is_that_of_the_least_sigma_of_all_features():
    """Also where that is one of a part without a common offset, which is not listed."""
    setup = {"features": [["pos", 1, "m"], ["angle", 2, "rad"]], "sigma_per_feature": [0.4, 0.1, 0.2]}
    assert named_features(setup) == (Feature("pos", "m", 4.0),)
    assert unit_of_budgets(setup) == ""
    assert unit_of_budgets({**setup, "sigma_per_feature": [0.1, 0.2, 0.4]}) == ""
    assert unit_of_budgets({**setup, "sigma_per_feature": [0.4, 0.0, 0.0]}) == "m"
    assert unit_of_budgets({**setup, "sigma_per_feature": [0.0, 0.1, 0.1]}) == "rad"


def test_budgets_have_the_unit_of_all_parts_also_of_those_that_are_not_shown():
    many = [[f"part {number}", 1, "m"] for number in range(12)]
    assert len(named_features({"features": many})) == 8
    assert unit_of_budgets({"features": many}) == "m"
    many[10][2] = "rad"
    assert unit_of_budgets({"features": many}) == ""


class Slide(gymnasium.Env):
    """Two parts, in meters and in meters per second; 50 steps a second."""

    metadata = {"render_fps": 50}  # noqa: RUF012 - as Gymnasium has it
    observation_space = Dict(pos=Box(-9, 9, (2,), np.float32), speed=Box(-9, 9, (1,), np.float32))
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.seen(), {}

    def step(self, action):
        return self.seen(), 2**-7, False, False, {}

    def seen(self):
        random = self.np_random.random
        return {"pos": random(2, dtype=np.float32), "speed": random(1, dtype=np.float32)}


def slide(**others):
    return surefoot.make_task(Slide, floor=0, ceiling=1, max_steps=100, **others)


def certificate_of(task, sigma):
    agent = surefoot.as_policy(lambda seen: np.zeros(len(seen), int), task.spaces, batched=True)
    return surefoot.certify(surefoot.rollout(task, agent, sigma=sigma, n_episodes=100), [0, 0.1])


@pytest.fixture(autouse=True)
def brief_trial(monkeypatch):
    monkeypatch.setattr(trial, "SECONDS", 0.0)


def test_units_are_in_sentence_and_table():
    task = slide(feature_units={"pos": "m", "speed": "m/s"})
    assert task.features == (("pos", 2, "m"), ("speed", 1, "m/s"))
    assert task.step_seconds == 0.02
    text = " ".join(describe(certificate_of(task, {"pos": 0.2})).split())
    assert "attack on pos (2 of 3 features) with budget 0.1 m (total l2 norm" in text
    assert "; an offset of 0.0141 m of pos for 1 s, for example)" in text
    assert "attack budget (m)" in text
    # 0.1 / sqrt(50) for a second.
    assert "1 s 0.0141" in text
    both = certificate_of(task, {"pos": 0.2, "speed": 0.4})
    assert unit_of_budgets(both.metadata) == ""
    assert named_features(both.metadata) == (Feature("pos", "m", 1.0), Feature("speed", "m/s", 2.0))


def test_parts_without_units_are_named_and_have_no_offsets():
    task = slide()
    assert (task.features, task.step_seconds) == ((("pos", 2, ""), ("speed", 1, "")), None)
    text = " ".join(describe(certificate_of(task, {"pos": 0.2})).split())
    assert "attack on pos (2 of 3 features) with budget 0.1 (total" in text
    assert "sigma 0.2 on pos (speed without noise: taken not to be perturbed)" in text
    assert "offset" not in text
    assert "offset" not in describe(certificate_of(task, 0.2))


@pytest.mark.parametrize(
    ("sigmas", "shown"),
    [
        # Names do not say which half of pos has noise.
        ([0.2, 0.0, 0.1], "on the 2 of 3 features that have noise with"),
        ([0.0, 0.0, 0.1], "on speed (1 of 3 features) with"),
        ([0.1, 0.3, 0.1], "under any observation attack with"),
    ],
)
def test_names_are_given_where_they_say_all(sigmas, shown):
    assert shown in headline(certificate_of(slide(), sigmas))


@pytest.mark.parametrize("names", [["0", "1"], ["a" * 41, "b"], ["a\n**b**", "b"]])
def test_names_that_suit_no_sentence_are_left_out(names):
    spaces = surefoot.Spaces(shape=(2,), n_actions=2, parts=tuple((name, 1) for name in names))
    assert spaces.named_parts() == ()


@pytest.mark.parametrize("features", [[["pos", 2, ""]], [["pos", 4, ""]], [["pos", -1, ""]], [1]])
def test_parts_of_other_sizes_have_no_names(features):
    assert noisy_parts({"features": features, "sigma_per_feature": [0.1, 0.1, 0.0]}) is None


def test_numbers_of_an_observation_have_the_names_of_their_parts_or_none():
    features = [["level", 1, ""], ["arm", 2, "m"]]
    assert coordinate_names({"features": features}, 3) == ["level", "arm 1", "arm 2"]
    # Names that do not cover the observation would be those of other numbers.
    for size in (2, 4):
        assert coordinate_names({"features": features}, size) == []
    for wrong in (None, 3, [["level", 10**12, ""]], [["level"]], [["level", "2", ""]] * 3):
        assert coordinate_names({"features": wrong}, 3) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"feature_units": {"place": "m"}}, "they are pos, speed"),
        ({"feature_units": "m"}, r"must name parts of the observation: pos \(2\), speed \(1\)"),
        ({"feature_units": {}}, "they are pos, speed"),
        ({"feature_units": {"pos": "m\n\n**Verified**"}}, "a unit must be a short text on one line"),
        ({"feature_units": {"pos": "\x1b[2J"}}, "a unit must be a short text on one line"),
        ({"feature_units": {"pos": "m" * 41}}, "a unit must be a short text on one line"),
        ({"step_seconds": 0.0}, "must be a number above 0"),
    ],
)
def test_units_that_fit_nothing(given, message):
    with pytest.raises(InputError, match=message):
        slide(**given)


@pytest.mark.parametrize("unit", ["m", "m<script>m</script>"])
def test_page_draws_them(tmp_path, unit):
    """A file of others may say anything in a unit."""
    made = {"max_steps": 200, "features": [["pos", 4, unit]], "step_seconds": 0.02}
    episodes = surefoot.Episodes.from_returns([200.0] * 400, sigma=0.2, floor=0, ceiling=200, **made)
    episodes.save(tmp_path / "episodes.npz")
    surefoot.certify(episodes, [0, 0.1]).save(tmp_path)
    page = build_page([read_run(tmp_path)])
    assert "<h3>Offsets over time</h3>" in page
    # 0.1 / sqrt(50) for a second, drawn and in the table.
    assert page.count(">0.0141<") == 2
    assert (f"pos ({unit})" in page) == (unit == "m")
    assert "<script>m" not in page


@pytest.mark.parametrize("unit", ["e3 m", "000 m", "<b>m</b>", "m" * 41, "m\nm", 3])
def test_a_unit_of_others_that_would_change_a_number_is_not_shown(unit):
    """With a budget of 0.2 it would read 0.2 e3 m."""
    assert unit_of_budgets({"features": [["pos", 4, "m"]]}) == "m"
    assert unit_of_budgets({"features": [["pos", 4, unit]]}) == ""
    assert named_features({"features": [["pos", 4, unit]]}) == ()
