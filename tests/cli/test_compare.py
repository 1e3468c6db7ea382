"""``surefoot compare``: the claim, its exit code, what is written, and a run that resumes."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from surefoot.cli.main import main
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.proof.comparison import ComparisonMonitor
from surefoot.runs.compared import compared_run
from toys import constant, geometric, pay_steps, toy_task

GOOD, BAD = "cartpole-1-ppo-s0.2", "cartpole-1-s0.8"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def compare(*words):
    return main(["compare", *map(str, words), "--workers", "1", "--out", "run"])


def test_a_better_agent_is_proved_better_and_the_other_way_round_is_not(capsys):
    assert compare(GOOD, BAD, "--budget", 0.2) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith(f"With 95% confidence, A ({GOOD}, sigma 0.2) is better than B ({BAD}, sigma 0.8) under the")
    made = json.loads(Path("run/comparison.json").read_text())
    a, b = (Episodes.load(f"run/{side}/episodes.npz") for side in "AB")
    assert made["proved"] is True
    assert made["n_episodes"] == [len(a), len(b)] == [500, 500]
    monitor = ComparisonMonitor(budget=0.2, sigma=0.2, confidence=0.95, limits=(0.0, 200.0))
    again = monitor.result(a.returns, b.returns, "proved")
    assert (made["lower"], made["upper"]) == (again.lower, again.upper)
    assert a.returns.mean() > made["lower"] > made["upper"] > b.returns.mean()
    assert compare(BAD, GOOD, "--budget", 0.2, "--json") == 2
    assert "another setup" in capsys.readouterr().err
    assert main(["compare", BAD, GOOD, "--budget", "0.2", "--workers", "1", "--episodes", "500", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["proved"] is False


def test_an_undefended_agent_under_attack_is_an_agent_to_compare_with(capsys):
    attacked = ("--sigma-b", 0, "--attack", "random", "--budget", 0.1, "--episodes", 500)
    assert (
        compare(GOOD, BAD, *attacked) == 1
    )  # this one is perfect without noise, and random perturbations change nothing
    assert "that of B is at most 200.00 under the attack tried, and so" in " ".join(capsys.readouterr().out.split())
    record = Episodes.load("run/B/episodes.npz")
    assert record.attacked
    assert record.sigma == 0
    assert record.budget_used.max() <= 0.1


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ((GOOD, BAD), "--budget"),
        ((GOOD, "no-such-agent", "--budget", 0.2), "unknown agent"),
        ((GOOD, BAD, "--budget", 0.2, "--sigma", 0), "A must have noise"),
        ((GOOD, BAD, "--budget", -1), "a budget must be"),
        ((GOOD, BAD, "--budget", 0.2, "--attack", "rndom"), "did you mean random"),
        (("mountain-car-s0.2", GOOD, "--budget", 0.2), "the agent"),
    ],
)
def test_wrong_calls_are_one_line(words, match, capsys):
    assert compare(*words) == 2
    said = capsys.readouterr().err
    assert match in said
    assert said.count("\n") == 1


def test_episodes_of_an_agent_without_a_hash_are_not_taken_for_those_of_another(tmp_path, monkeypatch, capsys):
    """Planted: between two calls the function becomes another one."""
    monkeypatch.syspath_prepend(str(tmp_path))
    call = (GOOD, "compared_agents:act", "cartpole-1", "--budget", 0.2, "--episodes", 40)
    (tmp_path / "compared_agents.py").write_text("def act(seen):\n    return 0\n")
    assert compare(*call) == 1
    monkeypatch.delitem(sys.modules, "compared_agents")
    (tmp_path / "compared_agents.py").write_text("def act(seen):\n    return int(seen[2] > 0)\n")
    capsys.readouterr()
    assert compare(*call) == 2
    assert "run/B may hold episodes of another act: agents that are code have no hash" in capsys.readouterr().err


def plan(chance, n_episodes=20_000):
    task = toy_task(geometric(chance, 10), pay_steps, floor=0.0, ceiling=10.0, n_envs=100, episodes_per_env=1)
    return Plan(task=task, policy=constant(), noise=Noise.of(0.5), n_episodes=n_episodes)


def contest():
    return ComparisonMonitor(budget=0.25, sigma=0.5, confidence=0.9, limits=(0.0, 10.0))


def test_workers_and_interruptions_change_nothing():
    whole = compared_run(plan(0.1), plan(0.3), contest(), Path("whole"))
    assert whole.stopped == "proved"
    assert whole.proved

    def stop(done, of, note):
        if done >= 400:
            raise KeyboardInterrupt

    first = compared_run(plan(0.1), plan(0.3), contest(), Path("pieces"), progress=stop)
    assert (first.stopped, first.n_episodes) == ("stopped by hand", (200, 200))
    assert compared_run(plan(0.1), plan(0.3), contest(), Path("pieces"), workers=2) == whole
    returns = [Episodes.load(f"{name}/A/episodes.npz").returns for name in ("whole", "pieces")]
    assert np.array_equal(*returns)


def test_another_claim_is_not_made_about_returns_that_were_seen():
    """Budget and confidence are fixed before the first episode; chosen later, they would be chosen by the returns."""
    few = [plan(chance, n_episodes=200) for chance in (0.1, 0.3)]
    compared_run(*few, contest(), Path("claimed"))
    for changed in ({"budget": 0.2}, {"confidence": 0.8}):
        other = ComparisonMonitor(**{"budget": 0.25, "sigma": 0.5, "confidence": 0.9, "limits": (0.0, 10.0), **changed})
        with pytest.raises(InputError, match="another setup"):
            compared_run(*few, other, Path("claimed"))
