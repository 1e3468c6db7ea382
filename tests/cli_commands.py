"""Calling the command in tests: what it must print, what it must leave, what it must refuse."""

import json
from pathlib import Path

import numpy as np
import pytest

from surefoot.cli import main as cli
from surefoot.episodes import Episodes


def surefoot_command(*arguments, code=0):
    assert cli.main([str(argument) for argument in arguments]) == code


def refused(capsys, *arguments, match=""):
    """Expect exit code 2, one line on stderr, nothing on stdout and no new file anywhere below."""
    before = {path: path.stat().st_mtime_ns for path in Path().rglob("*") if path.is_file()}
    folders = {path for path in Path().rglob("*") if path.is_dir()}
    capsys.readouterr()
    surefoot_command(*arguments, code=2)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("surefoot: ")
    assert shown.err.count("\n") == 1
    assert shown.err.endswith("\n")
    assert "Traceback" not in shown.err
    assert match in shown.err
    assert {path: path.stat().st_mtime_ns for path in Path().rglob("*") if path.is_file()} == before
    assert {path for path in Path().rglob("*") if path.is_dir()} == folders


def returns_of(folder):
    return Episodes.load(Path(folder) / "episodes.npz").returns


def strict(text):
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


KEYS = {"schema", "task", "agent", "sigma", "confidence", "n_episodes", "method", "seed", "floor", "ceiling"}
KEYS |= {"budgets", "lower", "upper", "estimate"}


LEFT = ["certificate.json", "certificate.png", "episodes.npz", "report.html", "run.json", "setup.json"]


LEFT_OF_RETURNS = ["certificate.json", "certificate.png", "episodes.npz", "report.html", "run.json"]


QUICK = ("certify", "cartpole-5", "--episodes", 120, "--workers", 1)


RETURNS = np.linspace(20, 200, 300)


def given(*more, sigma=".2", floor="0", saved=True):
    if saved:
        np.save("r.npy", RETURNS)
    return ("certify", "--returns", "r.npy", "--sigma", sigma, "--floor", floor, *more)
