"""``surefoot reproduce``: the paper's figures and tables; code and numbers are in the repository's ``study/``."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import Any

from surefoot import files
from surefoot.cli.parser import Parser
from surefoot.errors import InputError


def add_reproduce(commands: Any) -> None:
    """Describe the subcommand; its options are the study's, which is loaded only to run it."""
    parser = commands.add_parser(
        "reproduce", help="draw the paper's figures and tables (from a checkout)", prefix_chars="\0", add_help=False
    )
    parser.add_argument("options", nargs="*", help=argparse.SUPPRESS)
    parser.set_defaults(run=run_reproduce)


def run_reproduce(arguments: argparse.Namespace) -> None:
    """Hand the options to the study of the checkout, or say where it is to be found."""
    root = files.checkout()
    if root is None:
        raise InputError(
            "reproduce needs a checkout of the repository: the study is not part of the installed package; "
            "clone the repository and run 'python -m study' there"
        )
    if str(root) not in sys.path:
        sys.path.append(str(root))
    parser = Parser(prog="surefoot")
    import_module("study.__main__").add_reproduce(parser.add_subparsers(parser_class=Parser))
    parsed = parser.parse_args(["reproduce", *arguments.options])
    parsed.run(parsed)
