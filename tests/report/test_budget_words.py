"""What a budget is in the units of the observations: the arithmetic, the names, and that every report says it."""

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import surefoot
from pages import certified
from surefoot.cli.main import main
from surefoot.report.budget_words import FEATURES, explain_budget
from surefoot.report.page import build_page
from surefoot.runs.read import read_run

NUMBER = r"([\d.,]+?)"


def test_cartpole():
    assert explain_budget(0.2, "CartPole-v1", max_steps=500) == [
        "cart position by 0.2 m, cart velocity by 0.2 m/s, pole angle by 0.2 rad (11.5 degrees) or pole angular "
        "velocity by 0.2 rad/s, in one step",
        "all 4 values by 0.1, in one step",
        "pole angle by 0.00894 rad (0.512 degrees), at each of 500 steps",
        "all 4 values by 0.00447, at each of 500 steps",
    ]


def test_pixels():
    assert explain_budget(0.2, shape=(84, 84), max_steps=250) == [
        "one pixel by 51/255, once",
        "1/255 on 2,601 pixels of one frame or of several",
        "all 7,056 pixels by 0.607/255, once",
        "one pixel by 3.22/255, in each of 250 frames",
        "all 7,056 pixels by 0.0383/255, in each of 250 frames",
    ]
    assert explain_budget(3.0, shape=(84, 84, 3))[0] == "9 pixels from black to white, once"
    assert explain_budget(0.2, "PongNoFrameskip-v0")[1] == "1/255 on 2,601 pixels of one frame or of several"


def used(line, n, steps):
    """Return the l2 norm of the perturbation that a line describes."""
    by = float(re.search(rf" by {NUMBER}(?:/255)?[ ,]", line)[1].rstrip(","))
    values = n if line.startswith("all ") else 1
    times = steps if "at each of" in line or "in each of" in line else 1
    return by / (255 if "/255" in line else 1) * math.sqrt(values * times)


@given(st.floats(1e-6, 1e3), st.integers(2, 100), st.integers(1, 100_000))
def test_every_perturbation_is_within_the_budget_and_uses_it_up(budget, n, steps):
    lines = explain_budget(budget, shape=(n,), max_steps=steps)
    assert len(lines) == 4
    for line in lines:
        assert 0.989 * budget <= used(line, n, steps) <= budget * (1 + 1e-9)


@given(st.floats(1e-3, 1.0), st.integers(1, 1_000))
def test_so_is_every_perturbation_of_pixels(budget, steps):
    lines = explain_budget(budget, shape=(8, 8), max_steps=steps)
    faint = [line for line in lines if line.startswith("1/255 on")]
    for line in faint:
        count = int(re.search(r"on ([\d,]+) pixels", line)[1].replace(",", ""))
        assert math.sqrt(count) / 255 <= budget * (1 + 1e-9) < math.sqrt(count + 1) / 255 * (1 + 1e-9)
    for line in set(lines) - set(faint):
        assert 0.989 * budget <= used(line, 64, steps) <= budget * (1 + 1e-9)


@pytest.mark.parametrize("budget", [0.003, 0.5, 1.5, 40.0])
@pytest.mark.parametrize(("norm", "power"), [("l2", 2), ("l1", 1)])
def test_as_many_pixels_as_are_named_are_within_a_budget_of_each_norm_and_one_more_is_not(norm, power, budget):
    lines = explain_budget(budget, shape=(100, 100), norm=norm)
    counted = [re.search(r"([\d,]+) pixels (?:from black|of one frame)", line) for line in lines]
    counts = [int(found[1].replace(",", "")) for found in counted if found]
    # From black to white, and by one level of 255.
    expected = [math.floor((budget * levels) ** power * (1 + 1e-12)) for levels in (1, 255) if budget * levels >= 1]
    assert counts == expected
    assert not any(" pixels from" in line for line in explain_budget(budget, shape=(100, 100), norm="linf"))


def test_planted_a_root_that_is_forgotten_would_be_noticed():
    wrong = "one value by 0.2, at each of 500 steps"
    assert used(wrong, 4, 500) > 0.2 * 1.01


def test_other_norms_threats_and_noise():
    everywhere = explain_budget(0.01, "CartPole-v1", norm="linf", max_steps=500)[-1]
    assert everywhere == "all 4 values by 0.01, at each of 500 steps"
    assert explain_budget(1.0, shape=(4,), norm="l1", max_steps=10)[2:] == [
        "one value by 0.1, at each of 10 steps",
        "all 4 values by 0.025, at each of 10 steps",
    ]
    assert explain_budget(0.1, shape=(4,), per_step=True, max_steps=10) == [
        "one value by 0.1, at every step",
        "all 4 values by 0.05, at every step",
    ]
    scaled = explain_budget(0.1, "CartPole-v1", sigma=[0.1, 0.2, 0.1, 0.3])
    assert "cart velocity by 0.2 m/s" in scaled[0]
    assert "angular velocity by 0.3 rad/s" in scaled[0]
    assert scaled[-1] == "1 times sigma, the standard deviation of the noise on every value"
    assert explain_budget(0.3, sigma=0.2)[-1].startswith("1.5 times sigma")


@pytest.mark.parametrize("name", sorted(FEATURES))
def test_the_features_of_known_environments_are_all_of_them(name):
    gymnasium = pytest.importorskip("gymnasium")
    if name.startswith("Lunar"):
        pytest.importorskip("Box2D")
    version = {"CartPole": 1, "Acrobot": 1, "Pendulum": 1, "LunarLander": 3, "LunarLanderContinuous": 3}.get(name, 0)
    opened = gymnasium.make(f"{name}-v{version}")
    assert opened.observation_space.shape == (len(FEATURES[name]),)
    opened.close()
    assert sum(feature.startswith("*") for feature, _ in FEATURES[name]) == 1


def test_an_environment_with_other_observations_of_a_known_name_is_not_given_their_names():
    assert explain_budget(0.1, "CartPole-v1", shape=(5,))[0] == "one value by 0.1, in one step"


def test_what_makes_no_sense_is_rejected():
    for wrong, said in (
        ({"budget": -1}, "a budget must be"),
        ({"budget": 1, "norm": "l3"}, "norm must be"),
        ({"budget": 1, "max_steps": 0}, "max_steps must be"),
        ({"budget": 1, "shape": (0,)}, "shape must"),
        ({"budget": 1, "sigma": -1}, "sigma must"),
    ):
        with pytest.raises(surefoot.InputError, match=said):
            explain_budget(**wrong)


def test_the_command_says_it_for_tasks_environments_and_shapes(capsys):
    pytest.importorskip("torch")
    assert main(["explain-budget", "0.2", "--env", "CartPole-v1"]) == 0
    assert "- pole angle by 0.00894 rad (0.512 degrees), at each of 500 steps\n" in capsys.readouterr().out
    assert main(["explain-budget", "0.2", "freeway"]) == 0
    assert "- 1/255 on 2,601 pixels of one frame or of several\n" in capsys.readouterr().out
    assert main(["explain-budget", "0.2", "--shape", "84,84", "--json"]) == 0
    assert '"one pixel by 51/255, once"' in capsys.readouterr().out
    assert main(["explain-budget", "0.2", "cartpole-5", "--env", "CartPole-v1"]) == 2
    assert main(["explain-budget", "-0.2"]) == 2
    assert main(["explain-budget", "0.2", "cartpol-5"]) == 2


def test_the_command_says_it_in_units_of_parts(capsys):
    """Of those that have noise, if sigmas are given; a feature with less of it is moved less."""
    pytest.importorskip("torch")
    asked = ["explain-budget", "80", "--env", "cases.pancreas.patient:Patients", "--max-steps", "96"]
    asked += ["--feature-units", "glucose=mg/dL,minutes=min"]
    assert main([*asked, "--sigma", "glucose=40mg/dL", "--step-seconds", "300"]) == 0
    assert "glucose (mg/dL)\n" in (said := capsys.readouterr().out)
    assert "  3600 s               23\n" in said
    assert main([*asked, "--sigma", "glucose=40,minutes=10"]) == 0
    assert "96 steps             32.6           8.16\n" in capsys.readouterr().out
    for more in (["--per-step"], ["--norm", "linf"], ["cartpole-5"], ["--shape", "2"]):
        capsys.readouterr()
        assert main([*asked[:2], *more, *asked[2:]]) == 2
        assert "explain-budget takes " in capsys.readouterr().err
    assert main(["explain-budget", "80", "--feature-units", "m"]) == 2
    assert "explain-budget takes --feature-units, and with them" in capsys.readouterr().err
    assert main([*asked, "--sigma", "glucose=40m"]) == 2
    assert "its unit is mg/dL" in capsys.readouterr().err
    assert main([*asked[:-2], "--sigma", "glucose=40"]) == 2


def test_every_report_says_it_at_the_headline(tmp_path):
    certified(tmp_path)
    run = read_run(tmp_path)
    text = build_page([replace(run, setup={**run.setup, "max_steps": 200})])
    assert "Budget 0.4 is, for example: cart position by 0.4 m, " in text
    assert "or pole angle by 0.0282 rad (1.62 degrees), at each of 200 steps; or" in text


@pytest.mark.parametrize(("options", "spread"), [((), True), (("--per-step",), False), (("--norm", "linf"), False)])
def test_only_an_l2_budget_of_whole_episodes_is_spread_over_time(options, spread, capsys):
    """A budget for every step is not used up by what is held, and sqrt(k) is the l2 norm's."""
    assert main(["explain-budget", "0.2", "--max-steps", "100", "--shape", "4", *options]) == 0
    assert ("uses b sqrt(k)" in capsys.readouterr().out) == spread
