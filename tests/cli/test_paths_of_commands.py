"""What a command does besides handing options on: which directory it refuses, which files it compares, what wins."""

import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stand_ins import Reached
from surefoot.agents.sb3.published import Published
from surefoot.cli import main as cli
from surefoot.cli import task as task_options
from surefoot.cli.task import Chosen
from surefoot.errors import InputError
from surefoot.play.streams import Purpose

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.mark.parametrize(
    ("words", "given", "times"),
    [
        ("--out deep/run --certificate other", Path("other"), 2),  # before the attack, and with its results
        ("--out deep/run", None, 1),
    ],
)
def test_an_attack_is_compared_with_the_certificate_that_is_named_else_with_those_next_to_it(
    monkeypatch, words, given, times
):
    asked = []

    def matching(grid, certificate, nearby):
        asked.append((certificate, nearby))
        if len(asked) == times:
            raise Reached
        return []

    monkeypatch.setattr("surefoot.api.attack.matching_certificates", matching)
    monkeypatch.setattr("surefoot.api.attack.attacked_run", lambda *_, **__: ({}, []))
    call = ["attack", "cartpole-1", "--method", "random", "--workers", "1", *words.split(), "--quiet"]
    assert cli.main(call) == 2
    assert asked == [(given, Path("deep"))] * times


def test_returns_are_written_with_what_they_were_certified_by():
    np.save("r.npy", np.linspace(20, 200, 60))
    call = ["certify", "--returns", "r.npy", "--sigma", "0.2", "--floor", "0", "--ceiling", "200", "--out", "run"]
    call += ["--method", "per-threshold", "--threshold-spacing", "5", "--require", "10@0.3", "--quiet"]
    assert cli.main(call) == 0
    notes = json.loads(Path("run/run.json").read_text())
    assert (notes["step"], notes["required_budget"], notes["played"]) == (5.0, 0.3, False)
    assert notes["command"].startswith("surefoot certify --returns r.npy")
    made = json.loads(Path("run/certificate.json").read_text())
    assert made["threshold_spacing"] == 5


def test_tuning_certifies_the_sigma_that_is_predicted_best_and_no_other(monkeypatch):
    """With as many episodes as asked for, at the whole confidence, on the certificate's own random numbers."""
    asked = []

    def certified(plan, query, folder, **options):
        asked.append((plan, query, folder, options))
        raise Reached

    monkeypatch.setattr(
        "surefoot.api.plan._forecast_pilot",
        lambda pilot, *_: {0.2: "worse", 0.4: "best", 0.8: "bad"}[pilot.noise.sigma],
    )
    monkeypatch.setattr("surefoot.api.plan.best_forecast", lambda found: found[1])
    monkeypatch.setattr("surefoot.api.plan.certified_run", certified)
    call = "tune cartpole-1 --budget 0.3 --sigmas 0.2,0.4,0.8 --episodes 70 --pilot-episodes 7 --confidence 0.9"
    assert cli.main([*call.split(), "--seed", "5", "--workers", "1", "--out", "there", "--quiet"]) == 2
    ((plan, query, folder, _),) = asked
    assert (plan.noise.sigma, plan.n_episodes, plan.seed, plan.purpose) == (0.4, 70, 5, ())
    assert (query.budgets, query.confidence) == ((0.3,), pytest.approx(0.9, abs=1e-15))
    assert folder.parent == Path("there")
    assert "sigma0.4" in folder.name


def test_pilot_episodes_are_never_those_of_the_certificate(monkeypatch):
    plans = []

    def play(plan, **_):
        plans.append(plan)
        raise Reached

    monkeypatch.setattr("surefoot.api.plan.play", play)
    for command in ("tune --budget 0.3", "plan --require 100@0.3"):
        assert cli.main([*command.split(), "cartpole-1", "--sigmas", "0.2", "--workers", "1", "--quiet"]) == 2
    assert [plan.purpose for plan in plans] == [(Purpose.PILOT,)] * 2


def test_what_is_given_wins_over_what_a_published_agent_says(monkeypatch):
    """Arguments one by one, wrappers all together, modules in addition."""
    said = Published(
        model=Path("m.zip"),
        name="m",
        environment="Pendulum-v1",
        env_kwargs={"g": 2.0, "render": 1},
        wrappers=("theirs:W",),
        modules=("theirs", "both"),
    )
    monkeypatch.setattr(task_options, "is_path", lambda agent: agent is not None)
    monkeypatch.setattr("surefoot.agents.sb3.published.read_published", lambda path: said)
    silent = Namespace(env_kwargs=None, wrapper=None, env_module=None)
    name, known = task_options._choose_environment(silent, Chosen(None, None, "m.zip"))
    assert name == "Pendulum-v1"
    assert known == {"kwargs": {"g": 2.0, "render": 1}, "wrappers": ("theirs:W",), "modules": ("theirs", "both")}
    mine = Namespace(env_kwargs={"g": 9.0}, wrapper=["mine:V"], env_module=["both", "mine"])
    _, known = task_options._choose_environment(mine, Chosen(None, None, "m.zip"))
    assert known == {"kwargs": {"g": 9.0, "render": 1}, "wrappers": ("mine:V",), "modules": ("theirs", "both", "mine")}
    other, known = task_options._choose_environment(silent, Chosen(None, "CartPole-v1", "m.zip"))
    assert (other, known["kwargs"]) == ("CartPole-v1", {})  # theirs are those of another environment
    name, known = task_options._choose_environment(silent, Chosen(None, "X-v0", None))
    assert (name, known) == ("X-v0", {"kwargs": {}, "wrappers": (), "modules": ()})
    # What stands in the way does not where something else is given.
    said = replace(said, refusal="its wrapper cannot be made")
    with pytest.raises(InputError, match="its wrapper cannot be made"):
        task_options._choose_environment(silent, Chosen(None, None, "m.zip"))
    assert task_options._choose_environment(mine, Chosen(None, None, "m.zip"))[1]["wrappers"] == ("mine:V",)
    said = replace(said, refusal="", environment=None)
    with pytest.raises(InputError, match="says what it was trained on; give --env ID"):
        task_options._choose_environment(silent, Chosen(None, None, "m.zip"))
