"""``surefoot reproduce``: the paper's figures and tables; code and numbers are in the repository's ``study/``."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import Any, NoReturn

from surefoot.errors import InputError


def add_reproduce(commands: Any) -> None:
    """Describe the subcommand: the study's own where a checkout is there, else one that says where to find it."""
    from surefoot.files import checkout

    root = checkout()
    if root is not None:
        if str(root) not in sys.path:
            sys.path.append(str(root))
        import_module("study.__main__").add_reproduce(commands)
        return
    parser = commands.add_parser(
        "reproduce", help="draw the paper's figures and tables (from a checkout)", prefix_chars="\0", add_help=False
    )
    parser.add_argument("anything", nargs="*", help=argparse.SUPPRESS)
    parser.set_defaults(run=_refuse)


def _refuse(_: argparse.Namespace) -> NoReturn:
    raise InputError(
        "reproduce needs a checkout of the repository: the study is not part of the installed package; "
        "clone the repository and run 'python -m study' there"
    )
