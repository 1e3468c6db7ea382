"""An environment of one's own through the whole command line: certified, verified, attacked, its baseline measured."""

import json
import shutil
from pathlib import Path

import pytest

from surefoot.cli import main as cli

FACTORY = """
import gymnasium

def make(length=0.5):
    env = gymnasium.make("CartPole-v1", max_episode_steps=20)
    env.unwrapped.length = length
    return env
"""
ENV = ("--env", "pole_of_mine:make", "--env-kwargs", '{"length": 0.6}', "--wrapper", 'ClipReward={"max_reward": 1.0}')
GIVEN = (*ENV, "--reward-range", "0,1")
TITLE = 'pole_of_mine:make with length=0.6, ClipReward={"max_reward": 1.0}'
AGENT = ("--agent", "cartpole-1-s0.2")


@pytest.fixture(autouse=True)
def _factory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("pole_of_mine.py").write_text(FACTORY)


def run(capsys, *arguments, code=0):
    assert cli.main([str(argument) for argument in arguments]) == code
    return capsys.readouterr()


def test_a_factory_is_certified_verified_and_attacked(capsys):
    out = run(capsys, "certify", *GIVEN, *AGENT, "--sigma", 0.2, "--episodes", 40, "--out", "run", "--workers", 1).out
    assert "Floor 0 and ceiling 20 follow from --reward-range, which you state" in out
    assert "no return is below 0 or above 20 (stated by the user, not proved)." in " ".join(out.split())
    setup = json.loads(Path("run/setup.json").read_text())
    assert setup["environment"] == "pole_of_mine:make"
    assert (setup["env_kwargs"], setup["wrappers"]) == ({"length": 0.6}, ['ClipReward={"max_reward": 1.0}'])
    # A certificate must not choose what is imported or called.
    for allowed in ((), ENV[:2]):
        shown = run(capsys, "verify", "run", *allowed, "--fresh", 8, "--workers", 1, code=4).out
        assert "UNKNOWN" in shown
        assert "--wrapper" in shown
    assert "Verified" in run(capsys, "verify", "run", *ENV[:2], *ENV[4:], "--fresh", 8, "--workers", 1).out
    shutil.copytree("run", "forged")
    Path("forged/setup.json").write_text(json.dumps({**setup, "env_kwargs": {"length": 0.5}}))
    assert "FAILED" in run(capsys, "verify", "forged", *ENV[:2], *ENV[4:], "--fresh", 8, "--workers", 1, code=1).out
    few = ("--episodes", 2, "--budgets", 0.2, "--workers", 1)
    shown = run(capsys, "attack", *GIVEN, *AGENT, *few, "--method", "random", "--json").out
    assert json.loads(shown)["task"] == TITLE


def test_its_baseline_is_measured_and_episodes_are_planned(capsys):
    found = json.loads(run(capsys, "baseline", *GIVEN, "--episodes", 4, "--json").out)
    assert found["task"] == TITLE
    assert 0 < found["mean"] <= 20
    assert "--env pole_of_mine:make" in found["command"]
    few = ("--pilot-episodes", 10, "--workers", 1, "--json")
    planned = json.loads(run(capsys, "plan", *GIVEN, *AGENT, "--sigmas", 0.2, "--require", "10@0.1", *few).out)
    assert planned["task"] == TITLE


def test_a_range_of_ones_own_on_a_known_environment_is_verified_step_by_step(capsys):
    """Also a discount: floor and ceiling follow from the rules."""
    few = ("--episodes", 20, "--workers", 1, "--max-steps", 10, "--sigma", 0.2)
    given = ("certify", "--env", "CartPole-v1", *AGENT, *few)
    run(capsys, *given, "--per-step", "--budgets", 0.1, "--reward-range", "-1,2", "--out", "steps")
    assert "Verified" in run(capsys, "verify", "steps", "--fresh", 8, "--workers", 1).out
    made = json.loads(run(capsys, *given, "--gamma", 0.9, "--budgets", 0.1, "--json", "--out", "discounted").out)
    assert made["floor"] == 0
    assert made["ceiling"] == pytest.approx((1 - 0.9**10) / 0.1, abs=1e-5)
    assert "Verified" in run(capsys, "verify", "discounted", "--fresh", 8, "--workers", 1).out
