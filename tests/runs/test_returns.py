"""Returns as people have them: read as meant, named, or refused."""

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from surefoot.cli import main as cli
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.runs.returns import read_returns

RETURNS = [9.0, 200.0, 31.5]
MONITOR = '#{"t_start": 1700000000.0, "env_id": "CartPole-v1"}\nr,l,t\n9.0,9,0.1\n200.0,200,0.5\n31.5,31,0.9\n'
READ = {
    "monitor.csv": (MONITOR, "the column 'r' of SB3's Monitor"),
    "one.csv": ("9\n200\n31.5\n", "the only column"),
    "titled.csv": ("Score\n9\n200\n31.5\n", "the column 'Score'"),
    "row.csv": ("9,200,31.5\n", "all numbers of the only row"),
    "several.csv": (",length,episode_return\n0,9,9\n1,200,200\n2,31,31.5\n", "the column 'episode_return'"),
    "lines.txt": ("# of the agent\n9\n200\n\n31.5\n", "all numbers of the text"),
    "row.txt": ("9 200 31.5", "all numbers of the text"),
    "list.json": ("[9, 200, 31.5]", "all numbers of the list"),
    "named.json": ('{"returns": [9, 200, 31.5], "lengths": [9, 200, 31]}', "the list 'returns'"),
    "only.json": ('{"sigma": 0.2, "scores": [9, 200, 31.5]}', "the list 'scores'"),
}
REFUSED = {
    "rewards.csv": ("reward,cost\n1,2\n", "it has: reward, cost"),
    "two.csv": ("return,r\n1,2\n", "it has: return, r"),
    "twice.csv": ("return,return\n1,2\n", "it has: return, return"),
    "nameless.csv": ("1,2\n3,4\n", "2 columns without names"),
    "ragged.csv": ("return,length\n1,2\n3\n", "rows of equal length"),
    "empty.csv": ("", "rows of equal length"),
    "words.csv": ("return\n1\nx\n", "one number per episode, got 'x'"),
    "table.txt": ("1 2\n3 4\n", "lines of several numbers"),
    "empty.txt": ("", "non-empty list"),
    "true.json": ("[1, true]", "one number per episode, got 'True'"),
    "nested.json": ("[[1, 2], [3, 4]]", "one number per episode"),
    "number.json": ("3", "must hold a list of numbers"),
    "means.json": ('{"ep_rew_mean": [1, 2], "time": [1, 2]}', "it has: ep_rew_mean, time"),
    "low.csv": ("return\n-1\n", "below the floor"),
    "nan.txt": ("1 nan", "must be finite"),
    "data.xls": ("1", "must end in .npy, .npz, .csv, .txt or .json"),
}


def read(path):
    return read_returns(Path(path), 0.2, 0.0, None)


@pytest.mark.parametrize("name", READ)
def test_what_is_clear_is_read_and_named(tmp_path, name):
    text, said = READ[name]
    (tmp_path / name).write_text(text)
    episodes, what = read(tmp_path / name)
    assert (episodes.returns.tolist(), what) == (RETURNS, said)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_ambiguous_or_wrong_is_refused(tmp_path, name):
    text, why = REFUSED[name]
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError) as caught:
        read(tmp_path / name)
    assert why in str(caught.value)


@pytest.mark.parametrize("name", ["many.npy", "many.npz"])
def test_more_returns_than_a_run_may_have_are_refused(tmp_path, monkeypatch, name):
    monkeypatch.setattr("surefoot.episodes.MOST_EPISODES", 100)
    save = np.save if name.endswith(".npy") else np.savez
    save(tmp_path / name, np.zeros(100))
    assert len(read(tmp_path / name)[0]) == 100
    save(tmp_path / name, np.zeros(101))
    with pytest.raises(InputError, match="expected at most 100 returns, got 101"):
        read(tmp_path / name)


def test_evaluations_of_one_agent_are_read_and_those_of_a_training_are_not(tmp_path):
    for count in (1, 3):
        results = np.array([RETURNS] * count)
        np.savez(tmp_path / f"{count}.npz", timesteps=np.arange(count), results=results, ep_lengths=results.astype(int))
    episodes, what = read(tmp_path / "1.npz")
    assert (episodes.returns.tolist(), what) == (RETURNS, "'results' of SB3's evaluations.npz, its only evaluation")
    with pytest.raises(InputError, match="evaluations at 3 times of a training"):
        read(tmp_path / "3.npz")
    np.savez(tmp_path / "named.npz", returns=RETURNS, other=np.zeros(3))
    assert read(tmp_path / "named.npz")[1] == "the array 'returns'"
    np.savez(tmp_path / "two.npz", first=RETURNS, second=np.zeros(3))
    with pytest.raises(InputError, match="it has: first, second"):
        read(tmp_path / "two.npz")


@pytest.mark.parametrize("name", ["monitor.csv", "row.csv", "lines.txt", "list.json", "named.json"])
def test_standard_input_is_recognized_by_how_it_begins(monkeypatch, name):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(READ[name][0].encode())))
    assert read("-")[0].returns.tolist() == RETURNS


def test_an_array_is_read_from_standard_input(monkeypatch):
    file = io.BytesIO()
    np.save(file, np.array(RETURNS))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(file.getvalue())))
    assert read("-")[0].returns.tolist() == RETURNS


def test_the_command_names_what_it_took(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("monitor.csv").write_text(MONITOR)
    asked = ["certify", "--returns", "monitor.csv", "--sigma", "0.2", "--floor", "0", "--out", "run"]
    assert cli.main(asked) == 0
    *_, said, last = capsys.readouterr().out.splitlines()
    assert (said, last) == ("Returns: the column 'r' of SB3's Monitor (monitor.csv)", "Report: run/report.html")
    assert json.loads(Path("run/run.json").read_text())["returns"] == "the column 'r' of SB3's Monitor"


def test_the_command_names_standard_input(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"9 200 31.5")))
    assert cli.main(["certify", "--returns", "-", "--sigma", "0.2", "--floor", "0"]) == 0
    assert "Returns: all numbers of the text (standard input)\n" in capsys.readouterr().out


def test_limits_that_are_given_count_also_where_a_file_has_wins(tmp_path):
    (tmp_path / "won.csv").write_text("success,seed\n1,4\n0,5\n")
    known, _ = read_returns(tmp_path / "won.csv", 0.2, None, None)
    assert (known.floor, known.ceiling, known.metadata["binary"]) == (0.0, 1.0, True)
    given, _ = read_returns(tmp_path / "won.csv", 0.2, -1.0, 2.0)
    assert (given.floor, given.ceiling) == (-1.0, 2.0)


@pytest.mark.parametrize("name", ["sigma", "floor", "ceiling"])
def test_what_is_said_about_a_record_is_what_the_record_says(name, tmp_path):
    known = {"sigma": 0.2, "floor": -1.0, "ceiling": 10.0}
    record = Episodes.from_returns([5.0, 6.0], **known)
    record.save(tmp_path / "episodes.npz")
    for given in ({}, {name: known[name]}, known):
        options = {"sigma": None, "floor": None, "ceiling": None, **given}
        assert read_returns(tmp_path / "episodes.npz", **options)[0].sha256 == record.sha256
    other = {"sigma": None, "floor": None, "ceiling": None, name: known[name] + 0.5}
    with pytest.raises(InputError, match=f"was run with {name} {known[name]}, got {name}={known[name] + 0.5}"):
        read_returns(tmp_path / "episodes.npz", **other)
