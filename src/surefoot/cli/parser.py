"""The parser of the command line: options in sections, examples, suggestions, and errors of one line."""

from __future__ import annotations

import argparse
import re
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any, NoReturn

from surefoot.errors import InputError, did_you_mean

AGENT = "agent and environment"
ATTACK = "attack model"
TRAINING = "training"
STATISTICS = "statistics"
STOPPING = "stopping"
RUN = "run"
ADVANCED = "advanced"
SECTIONS = (AGENT, TRAINING, ATTACK, STATISTICS, STOPPING, RUN, ADVANCED)  # in the order in which --help shows them
HELP_WIDTH = 80


class Layout(argparse.HelpFormatter):
    """Help of at most 80 columns; a text with line breaks of its own keeps them."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=min(HELP_WIDTH, shutil.get_terminal_size().columns) - 2)

    def _split_lines(self, text: str, width: int) -> list[str]:
        # Names such as pong-full stay whole.
        return textwrap.wrap(text, width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return text
        return super()._fill_text(text, width, indent)


# Options that only some commands have, and what to do in the others.
ELSEWHERE = {
    "--units": ": only certify and attack have it; give the sigma of each feature in the environment's units, as "
    "setup.json of such a run lists it"
}


class Parser(argparse.ArgumentParser):
    """Reports a wrong call as bad input, in one line, with the name that was probably meant."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{"allow_abbrev": False, "formatter_class": Layout, **options})
        # argparse takes -1e3 and -1,0 for options, and floors are often negative.
        self._negative_number_matcher = re.compile(r"-(\.?\d|inf|nan)")

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the whole usage."""
        advice = "" if message.endswith("?") else f"; see '{self.prog} --help'"
        raise InputError(message.removeprefix("argument ") + advice)

    # Before anything else is parsed: an unknown option often also makes a required one seem to be missing.
    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse; reject an option that does not exist, and name the one that was probably meant."""
        words: Sequence[str] = args or ()
        # What follows the command is the command's.
        if self._subparsers is not None:
            words = list(takewhile(lambda word: word.startswith("-"), words))
        for word in takewhile(lambda word: word != "--", words):
            name = word.partition("=")[0]
            if name.startswith("--") and name not in self._option_string_actions:
                advice = ELSEWHERE.get(name) or did_you_mean(name, self._option_string_actions)
                self.error(f"unknown option {name}{advice}")
        return super().parse_known_args(args, namespace)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            meant = did_you_mean(str(value), known)
            raise argparse.ArgumentError(action, f"{value!r} is not one of {', '.join(known)}{meant}")


def add_command(
    commands: Any, name: str, summary: str, *, usage: str, examples: Sequence[str], details: str = ""
) -> argparse.ArgumentParser:
    """Add a subcommand with empty sections for its options."""
    return _with_sections(
        commands.add_parser(name, help=summary, **_describe_parser(summary, usage, examples, details))
    )


def lone_command(
    prog: str, summary: str, *, usage: str, examples: Sequence[str], details: str = ""
) -> argparse.ArgumentParser:
    """Return the parser of a program without subcommands; the arguments are those of ``add_command``."""
    return _with_sections(Parser(prog=prog, **_describe_parser(summary, usage, examples, details)))


def _describe_parser(summary: str, usage: str, examples: Sequence[str], details: str) -> dict[str, Any]:
    """Return what a parser is made with."""
    lines = ["examples:", *(f"  {example}" for example in examples)]
    return {
        "description": f"{summary[0].upper()}{summary[1:]}. {details}".strip(),
        "usage": f"%(prog)s {usage}",
        "epilog": "\n".join(lines),
        "add_help": False,
    }


def _with_sections(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Return the parser with all sections, in order, and ``--help`` in that of the run."""
    for title in SECTIONS:
        parser.add_argument_group(title)
    section(parser, RUN).add_argument("-h", "--help", action="help", help="show this help and exit")
    parser.set_defaults(parser=parser)
    return parser


def section(parser: argparse.ArgumentParser, title: str) -> argparse._ArgumentGroup:
    """Return a section of a subcommand's options, one of ``SECTIONS``."""
    return next(group for group in parser._action_groups if group.title == title)


def offer_names(action: argparse.Action, names: Iterable[str]) -> None:
    """Let the shell complete these names where any text is taken."""
    known = list(names)
    # The attribute that argcomplete looks for.
    action.completer = lambda prefix, **_: [name for name in known if name.startswith(prefix)]  # type: ignore[attr-defined]
