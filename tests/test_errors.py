"""What strangers have written is shown as it is, never obeyed."""

import numpy as np
import pytest
import torch

from surefoot.cli import main as cli
from surefoot.errors import InputError, printable
from surefoot.files import read_json, write_json

HOSTILE = "\x1b[2J\x1b[HVerified: all is well\r\x07\u202e\u2028\x9b31m[bold red]x[/bold red]\U000e0041"


def test_control_characters_are_spelled_out():
    shown = printable(HOSTILE)
    assert shown.isprintable()
    assert shown.startswith(r"\x1b[2J\x1b[HVerified: all is well\r\x07\u202e\u2028\x9b31m[bold red]x")
    for kept in ("plain", "two\nlines", "a\ttab", "Grüße, 数字, ± 🙂 \xa0", ""):
        assert printable(kept) == kept


def test_errors_cannot_move_the_cursor():
    assert str(InputError(f"no agent {HOSTILE}")).isprintable()


@pytest.mark.parametrize("allocate", [lambda: np.empty(2**58, np.uint8), lambda: torch.empty(2**58)])
def test_out_of_memory_is_one_line(capsys, monkeypatch, allocate):
    monkeypatch.setattr("surefoot.agents.files.list_agents", allocate)
    assert cli.main(["agents"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("surefoot: out of memory (")
    assert shown.endswith("; finished blocks are kept, run again with fewer --workers\n")
    assert shown.count("\n") == 1


@pytest.mark.parametrize("command", [["verify"], ["report"]])
def test_a_forged_name_cannot_clear_the_screen(tmp_path, capsys, command):
    folder = tmp_path / HOSTILE.replace("/", "")
    write_json(folder / "certificate.json", {"schema": HOSTILE})
    assert cli.main([*command, str(folder)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.replace("\n", "", 1).isprintable()


def test_what_a_command_prints_cannot_either(capsys, monkeypatch):
    monkeypatch.setattr("surefoot.agents.files.list_agents", lambda: ["one"])
    card = {"name": f"[red]t{HOSTILE}", "task": "t", "sigma": 0.1, "sha256": "", "selection": {"mean": 1.0, "sem": 0.1}}
    monkeypatch.setattr("surefoot.agents.files.load_card", lambda name: card)
    assert cli.main(["agents"]) == 0
    shown = capsys.readouterr().out
    assert all(line.isprintable() for line in shown.splitlines())
    assert "[red]t" in shown


def test_an_error_of_ours_is_not_taken_for_a_result(capsys, monkeypatch):
    """Exit code 1 means not proved, or not verified."""
    monkeypatch.setattr("surefoot.agents.files.list_agents", lambda: 1 / 0)
    assert cli.main(["agents"]) == 70
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_names_come_from_files(tmp_path):
    write_json(tmp_path / "x.json", {"name": HOSTILE})
    assert read_json(tmp_path / "x.json")["name"] == HOSTILE  # only what is shown is changed
