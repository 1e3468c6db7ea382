"""An attack of one's own: a class with one method, run, recorded and compared like the built-in ones."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import surefoot
from cli_commands import refused, surefoot_command
from surefoot.attacks.registry import named_attack
from surefoot.errors import InputError
from surefoot.files import read_json

AGENT = ("cartpole-1", "cartpole-1-s0")


class Tilt(surefoot.Attacker):
    """Half of what is left, on the angle."""

    def __init__(self, share=0.5):
        self.share = share
        self.not_a_setting = object()

    def propose(self, view):
        perturbation = np.zeros(view.target.shape)
        perturbation[:, 2] = -np.sign(view.observation[:, 2].numpy()) * self.share * view.budget_left.numpy()
        return perturbation


class TorchTilt(Tilt):
    def propose(self, view):
        return torch.from_numpy(super().propose(view))


class Greedy(Tilt):
    """A thousand times the budget: the channel keeps it, whoever proposes."""

    def propose(self, view):
        return 1_000 * super().propose(view)


def test_numpy_and_torch_are_the_same_attack_and_harm():
    mine = surefoot.attack(*AGENT, method=Tilt(), budgets=[1], n_episodes=60)
    same = surefoot.attack(*AGENT, method=TorchTilt(), budgets=[1], n_episodes=60)
    assert np.array_equal(mine.records[0].returns, same.records[0].returns)
    assert mine.summary["method"] == "Tilt"
    assert mine.loss[0, 0] > 0
    assert repr(mine).startswith("<AttackCurve of cartpole-1-s0 on cartpole-1: sigma 0, method Tilt, 60 episodes each")


def test_the_channel_keeps_the_budget_of_any_attack():
    curve = surefoot.attack(*AGENT, method=Greedy(), budgets=[0.5], n_episodes=60)
    assert curve.records[0].budget_used.max() <= 0.5
    assert curve.records[0].budget_used.mean() > 0.49


def test_it_says_what_it_is():
    told = Tilt(0.3).describe()
    assert told | {"code_sha256": ""} == {"name": "Tilt", "share": 0.3, "code_sha256": ""}
    assert told["code_sha256"] != Greedy().describe()["code_sha256"]


OWN = "import surefoot, numpy as np\nclass {name}(surefoot.Attacker):\n def propose(self, view):\n  return {what}\n"
NOTHING = "0 * view.observation.numpy()"


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module with an attack into the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(name="Mine", what=NOTHING, file="own_attacks"):
        (tmp_path / f"{file}.py").write_text(OWN.format(name=name, what=what))
        monkeypatch.delitem(sys.modules, file, raising=False)

    return write


def test_the_command_takes_one_by_name(module):
    module()
    call = (
        "attack",
        "cartpole-1",
        "--method",
        "own_attacks:Mine",
        "--budgets",
        "0.5",
        "--episodes",
        20,
        "--workers",
        1,
    )
    surefoot_command(*call, "--sigma", 0.2, "--out", "run", "--quiet")
    assert read_json("run/attack.json")["method"] == "Mine"
    assert read_json("run/B0.5/setup.json")["attacker"]["name"] == "Mine"
    page = Path("run/report.html").read_text(encoding="utf-8")
    assert "Mine" in page


def test_changed_code_is_another_attack(module, capsys):
    """Planted: episodes of the code before would be taken for those of the present one."""
    module(file="first")
    call = ("attack", "cartpole-1", "--budgets", "0.5", "--episodes", 20, "--workers", 1, "--out", "run", "--quiet")
    surefoot_command(*call, "--method", "first:Mine")
    module(file="second", what=f"1 + {NOTHING}")
    refused(capsys, *call, "--method", "second:Mine", match="attacker")


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (lambda view: 0, "must be a subclass of surefoot.Attacker with a method propose"),
        (type("random", (Tilt,), {})(), "random is the name of an attack of Surefoot"),
        (3, "got int"),
    ],
)
def test_what_is_no_attack_is_refused(wrong, match):
    with pytest.raises(InputError, match=match):
        surefoot.attack(*AGENT, method=wrong, budgets=[1], n_episodes=5)


def test_names_of_built_in_attacks_stay_theirs():
    assert named_attack("adaptive") == ("adaptive", None)
    assert named_attack(None) == (None, None)
