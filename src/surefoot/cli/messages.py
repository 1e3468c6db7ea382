"""Error messages in the words of the command line: the rest of the package names arguments, ``out=``, not options."""

from __future__ import annotations

import argparse
import re
import shlex

# Arguments whose options are called otherwise; all others differ in their dashes alone.
OPTION_OF_ARGUMENT = {
    "env_modules": "--env-module",
    "environment": "--env",
    "n_episodes": "--episodes",
    "n_shared_episodes": "--shared-episodes",
    "certain": "--certain",
    "wrappers": "--wrapper",
}
# True, text in quotes, (LOW, HIGH), ["text"], a number or a word that stands for one.
VALUE_PATTERN = r"""True\b|"[^"]*"|'[^']*'|\([^()]*\)|\[[^\[\]]*\]|[\w+-]+(?:[.:/][\w+-]+)*"""


def in_options(message: str, parser: argparse.ArgumentParser) -> str:
    """Return a message with options in place of arguments: ``method="adaptive"`` is ``--method adaptive``."""
    options = {}
    for option in parser._option_string_actions:
        options[option.removeprefix("--").replace("-", "_")] = option
    options |= {name: option for name, option in OPTION_OF_ARGUMENT.items() if option in parser._option_string_actions}
    names = "|".join(map(re.escape, options))
    pattern = re.compile(rf"(?<![\w.-])({names})=({VALUE_PATTERN})?")
    return pattern.sub(lambda found: f"{options[found[1]]}{_format_value(found[2] or '')}", message)


def _format_value(text: str) -> str:
    """Return a value as it is typed after its option; a switch has none."""
    if text in ("", "True"):
        return ""
    if text[0] in "([":
        text = ",".join(part.strip() for part in text[1:-1].split(", "))
    if text[0] in "\"'":
        text = shlex.quote(text[1:-1])
    return f" {text}"
