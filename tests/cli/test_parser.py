"""Help, suggestions and the doctor: what someone sees who does not know the command yet."""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from surefoot.attacks.names import NAMES
from surefoot.attacks.registry import METHODS
from surefoot.cli import doctor
from surefoot.cli import main as cli
from surefoot.cli.task import TASK_NAMES
from surefoot.play import tasks

ROOT = Path(__file__).parents[2]


def commands():
    (found,) = (a for a in cli.build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    return found.choices


def helped(capsys, *words):
    with pytest.raises(SystemExit) as caught:
        cli.main([*words, "--help"])
    assert caught.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", commands())
def test_help_ends_with_three_examples_that_can_be_typed(capsys, command):
    examples = [line.strip() for line in helped(capsys, command).partition("examples:\n")[2].splitlines()]
    assert len(examples) == 3
    for example in examples:
        name, *words = shlex.split(example.partition(" > ")[0])
        assert name == "surefoot"
        cli.build_parser().parse_args(words)


def test_the_names_in_the_help_are_those_of_the_tables():
    assert list(TASK_NAMES) == list(tasks.TASKS)
    assert list(NAMES) == list(METHODS)


def test_the_command_alone_prints_its_help(capsys):
    alone = helped(capsys)
    with pytest.raises(SystemExit) as caught:
        cli.main([])
    asked = capsys.readouterr().out
    assert caught.value.code == 0
    assert asked == alone
    assert all(name in alone for name in commands())


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("certify cartpole-5 --episode 5", "unknown option --episode; did you mean --episodes?"),
        ("attack --budgts=0.1", "unknown option --budgts; did you mean --budgets?"),
        ("compare a b --units normalized", "unknown option --units: only certify and attack have it; give the sigma"),
        ("certfy cartpole-5", "did you mean certify?"),
        ("--versoin", "did you mean --version?"),
        ("certify cartpole5", "did you mean cartpole-5?"),
        ("certify cartpole-5 --agent cartpole-5-s0,2", "did you mean cartpole-5-s0.2?"),
        ("certify cartpole-5 --method beting", "did you mean betting?"),
        ("certify cartpole-5 --confidence 95", "got 95; did you mean 0.95?"),
        ("plan cartpole-5 --require 1@1 --confidence 99", "got 99; did you mean 0.99?"),
        ("attack cartpole-5 --method adaptiv", "did you mean adaptive?"),
        ("certify cartpole-5 --device gpu", "did you mean cuda?"),
        ("train cartpole-5 --sigma 0.2 --preset thorogh", "did you mean thorough?"),
    ],
)
def test_what_was_probably_meant_is_named(capsys, words, meant):
    assert cli.main(words.split()) == 2
    shown = capsys.readouterr()
    assert meant in shown.err
    assert (shown.out, shown.err.count("\n")) == ("", 1)


@pytest.mark.parametrize("words", ["certify cartpole-5 --zzz", "qqq", "certify cartpole-5 --confidence 1"])
def test_nothing_is_suggested_where_nothing_is_alike(capsys, words):
    assert cli.main(words.split()) == 2
    assert "did you mean" not in capsys.readouterr().err


def test_the_doctor_names_versions_and_extras(capsys):
    assert cli.main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    offered = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(found["extras"]) == set(offered) - {"all", "docs", "dev"}
    assert found["python"] == sys.version.split()[0]
    assert cli.main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in found["extras"])


def test_the_doctor_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "_find_version", lambda package: None if package == "ale-py" else "1.0")
    assert cli.main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "MISSING  atari      ale-py (missing)\n" in shown
    assert "pip install '.[atari]'" in shown
    assert shown.count("MISSING") == 1


@pytest.mark.parametrize(("typed", "wanted"), [("surefoot certify cartpole-5 --confi", ["--confidence "])])
def test_the_shell_is_offered_what_can_be_typed(tmp_path, typed, wanted):
    pytest.importorskip("argcomplete")
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "offered"),
        "COMP_LINE": typed,
        "COMP_POINT": str(len(typed)),
    }
    code = "import sys; from surefoot.cli.main import main; sys.exit(main())"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, **asked}, check=True)
    assert (tmp_path / "offered").read_text().split("\x0b") == wanted


def test_names_of_tasks_and_attacks_are_offered():
    commands = next(one for one in cli.build_parser()._actions if isinstance(one, argparse._SubParsersAction))
    actions = commands.choices["attack"]._actions
    offers = {action.dest: action.completer for action in actions if hasattr(action, "completer")}
    assert sorted(offers["task"](prefix="")) == sorted(tasks.TASKS)
    assert offers["task"](prefix="cart", parser=None) == ["cartpole-5", "cartpole-1"]
    assert offers["method"](prefix="") == list(METHODS)
    assert offers["method"](prefix="s") == ["single-step", "structured", "strongest"]
