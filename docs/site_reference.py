"""The references on the site: the options of commands, and the examples in docstrings.

Where the page of the command line has ``<!-- options: NAME -->``, it gets the options of that command. They are taken
from the parser itself, so the page cannot differ from ``surefoot NAME --help``.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor

ROOT = Path(__file__).resolve().parents[1]
PAGE = "command-line.md"
SESSION = re.compile(r"^>>> .*(?:\n.+)*", flags=re.MULTILINE)
MARK = re.compile(r"^<!-- options: ([\w-]+) -->$", flags=re.MULTILINE)


class SessionsAsCode(Preprocessor):
    """Puts ``>>> lines`` with what they print into a block of code: to Markdown they are quotes in quotes."""

    def run(self, lines: list[str]) -> list[str]:
        """Return the lines, with fences around sessions."""
        text = "\n".join(lines)
        return SESSION.sub(lambda found: f"```pycon\n{found[0]}\n```\n", text).split("\n")


class Sessions(Extension):
    """Lets Markdown know sessions."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - as the library names it
        """Register what finds them, before fences are looked for."""
        md.preprocessors.register(SessionsAsCode(md), "sessions", 27)


def on_config(config: Any) -> None:
    """Let all pages have sessions; docstrings are written with them."""
    config.markdown_extensions.append(Sessions())


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put every command's options into the page."""
    if page.file.src_uri != PAGE:
        return markdown
    commands = every_command()
    return MARK.sub(lambda found: described(commands[found[1]]), markdown)


def every_command() -> dict[str, argparse.ArgumentParser]:
    """Return all subcommands by name, and the parser of the study."""
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    from study.__main__ import build_parser as build_study_parser
    from surefoot.cli.main import build_parser

    return {**subcommands(build_parser()), "study": build_study_parser()}


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the subcommands of a parser by name."""
    return {
        name: command
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for name, command in action.choices.items()
    }


def described(parser: argparse.ArgumentParser) -> str:
    """Return a command's description, its examples, and one table of options per group."""
    parts = [parser.description or ""]
    formatter = parser._get_formatter()
    for group in sorted(parser._action_groups, key=lambda group: group.title == "options"):  # those of all runs last
        shown = [action for action in group._group_actions if action.help != argparse.SUPPRESS]
        rows = [f"| {named(action)} | {meaning(action, formatter)} |" for action in shown if action.dest != "help"]
        if rows:
            parts.append("\n".join((f"| {group.title} | |", "|---|---|", *rows)))
    if parser.epilog:
        lines = textwrap.dedent(parser.epilog.removeprefix("examples:\n")).strip()
        parts.insert(1, f"```sh\n{lines}\n```")
    return "\n\n".join(part for part in parts if part)


def named(action: argparse.Action) -> str:
    """Return an option with the name of its value, as code."""
    value = "" if action.nargs == 0 or listed(action) else str(action.metavar or action.dest.upper())
    return f"`{' '.join((', '.join(action.option_strings), value)).strip()}`"


def meaning(action: argparse.Action, formatter: argparse.HelpFormatter) -> str:
    """Return an option's help in one table cell, with the values it can take."""
    text = formatter._expand_help(action) if action.help else ""
    if listed(action):
        text = f"{', '.join(f'`{choice}`' for choice in action.choices or ())}: {text}"
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def listed(action: argparse.Action) -> bool:
    """Return whether the values of an option are what its help begins with."""
    return action.choices is not None and action.metavar is None
