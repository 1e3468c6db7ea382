"""What a verifier must allow: code that an environment imports, and the command that says so."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def imports_code(environment: str, wrappers: Sequence[str], modules: Sequence[str], success: str | None) -> bool:
    """Return whether making an environment imports a module; the key of an info imports nothing."""
    return ":" in environment or bool(wrappers or modules) or ":" in (success or "")


def needed_options(
    environment: str,
    wrappers: Sequence[str],
    modules: Sequence[str],
    success: str | None,
    kwargs: Mapping[str, Any],
) -> list[str]:
    """Return the options of the command that allow an environment."""
    needed = ["--env", environment]
    for wrapper in wrappers:
        needed += ["--wrapper", wrapper]
    for module in modules:
        needed += ["--env-module", module]
    if success is not None:
        needed += ["--success", success]
    if kwargs:
        needed += ["--env-kwargs", json.dumps(kwargs)]
    return needed


def verify_command(folder: Path, setup: Mapping[str, Any], typed: str | None, *, has_bundle: bool) -> str:
    """Return the whole command that verifies a run, quoted as a shell needs it.

    Args:
        typed: The command that made it, which named the agent.
    """
    words = ["surefoot", "verify", str(folder)]
    if typed is not None:
        words += _agent_options(shlex.split(typed), has_bundle=has_bundle)
    environment = setup.get("environment")
    if environment is not None:
        wrappers = tuple(setup.get("wrappers", ()))
        modules = tuple(setup.get("env_modules", ()))
        kwargs = dict(setup.get("env_kwargs", {}))
        success = setup.get("success")
        harmless = all(value is None or isinstance(value, bool | int | float) for value in kwargs.values())
        if imports_code(environment, wrappers, modules, success) or not harmless:
            words += needed_options(environment, wrappers, modules, success, kwargs)
    if ":" in str(setup.get("luck", "")):
        words += ["--luck", str(setup["luck"])]
    return shlex.join(words)


def _agent_options(words: Sequence[str], *, has_bundle: bool) -> list[str]:
    """Return the options of a typed command that say which agent it is and what its file may do."""
    options = []
    if not has_bundle and len(words) > 2 and ("/" in words[2] or words[2].endswith(".zip")):
        # The path of an agent in place of a task.
        options += ["--agent", words[2]]
    names = () if has_bundle else ("--agent", "--vecnormalize")
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in names and equals:
            options += [name, value]
        elif name in names and place + 1 < len(words):
            options += [name, words[place + 1]]
        elif word == "--allow-pickle":
            options.append(word)
    return options
