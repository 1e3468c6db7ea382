"""What anybody can import and call without reading our code."""

import ast
import inspect
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest

import surefoot
from surefoot import __main__ as command
from surefoot.cli import main as cli


def public(name):
    """Return a public name; those that need torch or gymnasium are skipped where it is not installed."""
    try:
        return getattr(surefoot, name)
    except ModuleNotFoundError as error:
        return pytest.skip(str(error))


def test_type_checkers_are_told_the_same_names():
    tree = ast.parse(Path(surefoot.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    told = {alias.asname: f"{node.module}.{alias.name}" for node in block.body for alias in node.names}
    assert told == surefoot._PUBLIC


@pytest.mark.parametrize("name", surefoot.__all__)
def test_public_names_resolve_and_are_documented(name):
    thing = public(name)
    text = inspect.getdoc(thing)
    assert text
    assert text[0].isupper()
    assert name in dir(surefoot)
    first = text.split("\n\n")[0].strip()
    assert first.endswith((".", ":")), first


def test_the_version_is_one():
    assert version("surefoot") == surefoot.__version__


def test_the_command_is_installed():
    (entry,) = [entry for entry in entry_points(group="console_scripts") if entry.name == "surefoot"]
    assert entry.load() is command.main


def test_the_command_hands_on_its_exit_code_and_survives_ctrl_c_while_loading(monkeypatch):
    monkeypatch.setattr(cli, "main", lambda: 3)
    assert command.main() == 3

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "main", interrupted)
    assert command.main() == 130
