"""The command on Atari tasks: certify, attack, train, baseline; one-line errors where something is missing."""

import json
import sys

import pytest

from surefoot.agents import files as zoo
from surefoot.agents.networks import NATURE, cnn_policy
from surefoot.cli import main as cli
from zoo.training.atari import fresh_arrays, halved

pytest.importorskip("ale_py")


pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    """An untrained agent of the right size."""
    path = tmp_path_factory.mktemp("agents") / "agent"
    zoo.save(cnn_policy(halved(fresh_arrays(4, 6, 0)), NATURE, 4, (84, 84), 6, "untrained"), path, {"task": "pong-1r"})
    return path.parent


def called(capsys, *arguments):
    code = cli.main([str(argument) for argument in arguments])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_a_round_of_pong_is_certified_as_a_win_or_a_loss(capsys, agent):
    call = ("certify", "pong-1r", "--agent", agent, "--sigma", 0.1, "--episodes", 2, "--workers", 1)
    code, out, err = called(capsys, *call, "--method", "paper", "--device", "cpu", "--json", "--quiet")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["task"], found["method"], found["floor"], found["ceiling"]) == ("pong-1r", "binary", 0, 1)
    assert found["budgets"][-1] == 0.4
    assert found["estimate"] in (0, 0.5, 1)


def test_an_attacked_round_of_pong(capsys, agent):
    call = ("attack", "pong-1r", "--agent", agent, "--budgets", 0.01, "--lambda-q", 0, "--episodes", 1, "--workers", 1)
    code, out, _ = called(capsys, *call, "--device", "cpu", "--json", "--quiet")
    assert code == 0
    found = json.loads(out)
    assert found["method"] == "paper"
    assert 0 <= found["largest_budget_used"] <= 0.01


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ("train pong-1r --sigma .1 --time 3m", "--time cannot be combined with the preset paper"),
        ("train freeway --sigma .1 --preset thorough", "has no settings for 'freeway'"),
        ("certify freeway --sigma .123", "there is no pretrained agent for freeway at sigma 0.123"),
        ("certify pong-1r --agent cartpole-5-s0.2 --sigma .1", "the agent has 2 actions"),
    ],
)
def test_wrong_calls(capsys, arguments, match):
    code, out, err = called(capsys, *arguments.split(), "--device", "cpu")
    assert (code, out) == (2, "")
    assert match in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "arguments", ["certify pong-1r", "attack freeway", "train pong-full --sigma .1", "baseline freeway"]
)
def test_without_ale_py_one_line_says_what_to_install(capsys, monkeypatch, arguments):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    code, out, err = called(capsys, *arguments.split())
    assert (code, out) == (2, "")
    assert "pip install '.[atari]'" in err
    assert len(err.strip().splitlines()) == 1
