"""Arguments of an environment may name files: these are hashed, and a certificate does not choose which are opened."""

import json
import os
import shutil
from pathlib import Path

import gymnasium
import pytest
import torch

import surefoot
from stand_ins import Reached
from surefoot.cli.main import main
from surefoot.errors import InputError
from surefoot.play.environments import make_task
from surefoot.play.envs.source import Source
from surefoot.verification import play_again
from surefoot.verification.play_again import CannotRerunError, RerunOptions
from surefoot.verification.verdict import FAILED, IMPOSSIBLE

torch.set_num_threads(1)
LIMITS = [
    "--max-steps",
    "20",
    "--sigma",
    "0.1",
    "--floor",
    "0",
    "--ceiling",
    "20",
    "--episodes",
    "20",
    "--workers",
    "1",
]
NETWORKS = """
import torch
from torch import nn
def balance():
    torch.manual_seed(0)
    return nn.Linear(4, 1)
def walk():
    torch.manual_seed(0)
    return nn.Linear(16, 4)
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "kwargs_nets.py").write_text(NETWORKS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def certified(env, kwargs, agent):
    call = ["certify", "--env", env, "--env-kwargs", json.dumps(kwargs), *LIMITS, "--agent", agent, "--out", "run"]
    assert main(call) == 0
    return json.loads(Path("run/setup.json").read_text())


def found(**options):
    return {check.name: (check.result, check.detail) for check in surefoot.verify("run", fresh=8, **options).checks}


def test_a_model_in_a_file_is_hashed_and_must_be_repeated(here, capsys):
    """The attack: gravity is in a file that no hash covers, and that verify opens because the certificate names it."""
    pytest.importorskip("mujoco")
    shipped = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / "inverted_pendulum.xml"
    shutil.copy(shipped, here / "model.xml")
    kwargs = {"xml_file": "./model.xml"}
    setup = certified("InvertedPendulum-v5", kwargs, "kwargs_nets:balance()")
    assert list(setup["env_files"]) == ["./model.xml"]
    agent = "kwargs_nets:balance()"
    result, detail = found(agent=agent)["replay"]
    assert result == IMPOSSIBLE
    assert """--env InvertedPendulum-v5 --env-kwargs '{"xml_file": "./model.xml"}' to allow it""" in detail
    assert found(agent=agent, env_kwargs={"xml_file": "./other.xml"})["replay"][0] == IMPOSSIBLE
    assert surefoot.verify("run", agent=agent, env_kwargs=kwargs, fresh=8).verified
    typed = ["verify", "run", "--agent", agent, "--env-kwargs", json.dumps(kwargs), "--fresh", "8", "--workers", "1"]
    assert main(typed) == 0
    changed = (here / "model.xml").read_text().replace("-9.81", "0")
    assert changed != (here / "model.xml").read_text()
    (here / "model.xml").write_text(changed)
    result, detail = found(agent=agent, env_kwargs=kwargs)["setup and weights"]
    assert result == FAILED
    assert "env_files is {'./model.xml': " in detail
    (here / "model.xml").unlink()
    os.mkfifo(here / "model.xml")
    assert found(agent=agent)["replay"][0] == IMPOSSIBLE  # nothing waits for the pipe
    result, detail = found(agent=agent, env_kwargs=kwargs)["setup and weights"]
    assert result == FAILED
    assert "no regular file" in detail


def test_texts_must_be_repeated_and_numbers_need_not(here, capsys):
    certified("FrozenLake-v1", {"map_name": "4x4", "is_slippery": False}, "kwargs_nets:walk()")
    agent = "kwargs_nets:walk()"
    assert "may name files" in found(agent=agent)["replay"][1]
    kwargs = {"is_slippery": False, "map_name": "4x4"}
    assert surefoot.verify("run", agent=agent, env_kwargs=kwargs, fresh=8).verified
    assert found(agent=agent, env_kwargs={"map_name": "4x4", "is_slippery": 0})["replay"][0] == IMPOSSIBLE
    shutil.rmtree(here / "run")
    setup = certified("FrozenLake-v1", {"is_slippery": False}, agent)
    assert "env_files" not in setup
    assert surefoot.verify("run", agent=agent, fresh=8).verified
    assert surefoot.verify("run", agent=agent, env_kwargs={"is_slippery": False}, fresh=8).verified
    assert found(agent=agent, env_kwargs={"is_slippery": True})["replay"][0] == IMPOSSIBLE


def test_files_are_found_wherever_arguments_name_them(here, monkeypatch):
    (here / "a.xml").write_text("a")
    (here / "b.xml").write_text("b")
    monkeypatch.setenv("HOME", str(here))
    kwargs = {"deep": [{"file": "a.xml"}, "none.xml", 3, None, "x" * 5000, "\0"], "home": "~/b.xml"}
    (here / "c.xml").write_text("c")
    around = ('my:Wrapper={"file": "b.xml"}', "my:Plain", 'my:Other={"deep": [["c.xml"]]}')
    source = Source(maker="CartPole-v1", kwargs=kwargs, wrappers=around)
    assert sorted(source.files) == ["a.xml", "b.xml", "c.xml", "~/b.xml"]
    assert source.files["b.xml"] == source.files["~/b.xml"] != source.files["a.xml"]
    assert source.setup["env_files"] == source.files
    assert "env_files" not in Source(maker="CartPole-v1", kwargs={"name": "none.xml"}).setup
    monkeypatch.setattr("surefoot.play.envs.source.MOST_ARRAYS", 0)
    with pytest.raises(InputError, match=r"a\.xml is too large for a file of an environment"):
        Source(maker="CartPole-v1", kwargs=kwargs)


@pytest.mark.parametrize("kind", ["directory", "pipe", "dangling link"])
def test_what_is_no_regular_file_is_rejected_before_anything_is_opened(here, kind):
    place = here / "model"
    if kind == "directory":
        place.mkdir()
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to("nowhere")
    with pytest.raises(InputError, match=r"'model' in the arguments of the environment is a directory, or no regular"):
        make_task("CartPole-v1", floor=0, env_kwargs={"file": "model"})


@pytest.mark.parametrize("value", ["a", ["a"], {"a": "b"}, [1], {}, None, True, 1, 0.5])
def test_only_plain_numbers_need_not_be_repeated(value, monkeypatch):
    """A text may name a file, and so may one in a list: FrozenLake's map is such a list."""

    def make(**_):
        raise Reached

    monkeypatch.setattr(play_again, "Source", make)
    setup = {"environment": "FrozenLake-v1", "env_kwargs": {"desc": value}, "max_steps": 20}
    with pytest.raises(Reached):
        play_again._environment_task(setup, RerunOptions(env_kwargs={"desc": value}))
    if value is None or isinstance(value, int | float):
        with pytest.raises(Reached):
            play_again._environment_task(setup, RerunOptions())
        return
    with pytest.raises(CannotRerunError, match="the arguments of the environment 'FrozenLake-v1' may name files"):
        play_again._environment_task(setup, RerunOptions())
