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
from surefoot.play.streams import Purpose
from toys import balancer

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.fixture
def agent_of_code(monkeypatch):
    """Let every agent be code, which has no hash."""
    nameless = replace(balancer(), sha256="", name="mine")
    monkeypatch.setattr("surefoot.api.setup.as_policy", lambda *_, **__: nameless)


@pytest.mark.usefixtures("agent_of_code")
@pytest.mark.parametrize(
    ("words", "there"),
    [
        ("certify cartpole-1 --agent x --out run", "run"),
        ("attack cartpole-1 --agent x --method random --budgets 0.1,0.2 --out run", "run/B0.2"),
        ("compare A B cartpole-1 --sigma 0.2 --out run", "run/A"),
        ("compare A B cartpole-1 --sigma 0.2 --out run", "run/B"),
    ],
)
def test_a_directory_with_episodes_of_code_is_not_resumed(capsys, monkeypatch, words, there):
    """Nothing says whether they are of the same function; planted: another one of the same name."""
    for door in ("certify.certified_run", "attack.attacked_run", "compared_agents.compared_run"):
        monkeypatch.setattr(f"surefoot.api.{door}", lambda *_, **__: pytest.fail("it was resumed"))
    Path(there).mkdir(parents=True)
    (Path(there) / "setup.json").write_text("{}")
    assert cli.main([*words.split(), "--quiet"]) == 2
    assert "may hold episodes of another mine: agents that are code have no hash" in capsys.readouterr().err


@pytest.mark.usefixtures("agent_of_code")
@pytest.mark.parametrize("words", ["certify cartpole-1 --agent x", "attack cartpole-1 --agent x --method random"])
def test_shares_of_code_are_refused(capsys, words):
    assert cli.main([*words.split(), "--blocks", "1/1", "--quiet"]) == 2
    assert "--blocks needs an agent with a hash, and mine is code" in capsys.readouterr().err


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


def test_returns_are_written_with_what_they_were_certified_by(capsys):
    np.save("r.npy", np.linspace(20, 200, 60))
    call = ["certify", "--returns", "r.npy", "--sigma", "0.2", "--floor", "0", "--ceiling", "200", "--out", "run"]
    spaced = [*call, "--method", "per-threshold", "--threshold-spacing", "5", "--require", "10@0.3", "--quiet"]
    assert cli.main(spaced) == 0
    notes = json.loads(Path("run/run.json").read_text())
    assert (notes["step"], notes["required_budget"], notes["played"]) == (5.0, 0.3, False)
    assert notes["command"].startswith("surefoot certify --returns r.npy")
    made = json.loads(Path("run/certificate.json").read_text())
    assert made["threshold_spacing"] == 5
    Path("run/setup.json").write_text("{}")  # as if episodes had been run there
    before = Path("run/certificate.json").read_bytes()
    capsys.readouterr()
    assert cli.main([*call, "--quiet"]) == 2
    assert "run holds a run of its own; choose another --out" in capsys.readouterr().err
    assert Path("run/certificate.json").read_bytes() == before


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
        modules=("theirs",),
    )
    monkeypatch.setattr(task_options, "is_path", lambda agent: agent is not None)
    monkeypatch.setattr("surefoot.agents.sb3.published.read_published", lambda path: said)
    silent = Namespace(env_kwargs=None, wrapper=None, env_module=None)
    name, known = task_options._choose_environment(silent, Chosen(None, None, "m.zip"))
    assert name == "Pendulum-v1"
    assert known == {"kwargs": {"g": 2.0, "render": 1}, "wrappers": ("theirs:W",), "modules": ("theirs",)}
    mine = Namespace(env_kwargs={"g": 9.0}, wrapper=["mine:V"], env_module=["mine"])
    _, known = task_options._choose_environment(mine, Chosen(None, None, "m.zip"))
    assert known == {"kwargs": {"g": 9.0, "render": 1}, "wrappers": ("mine:V",), "modules": ("theirs", "mine")}
    other, known = task_options._choose_environment(silent, Chosen(None, "CartPole-v1", "m.zip"))
    assert (other, known["kwargs"]) == ("CartPole-v1", {})  # theirs are those of another environment
    name, known = task_options._choose_environment(silent, Chosen(None, "X-v0", None))
    assert (name, known) == ("X-v0", {"kwargs": {}, "wrappers": (), "modules": ()})
