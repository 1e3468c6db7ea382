"""Code of the user, named as ``module:name`` where a command cannot be given an object."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from surefoot.errors import InputError

IMPORT_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*(\(\))?")


def search_here() -> None:
    """Let modules be in the working directory; what is installed goes first."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)


def imported(module: str) -> Any:
    """Import a module, which may be in the working directory."""
    search_here()
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"cannot import {module!r} ({error}); run the command from the folder that it is in, or install it"
        ) from error
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        # A module may also call sys.exit while it is imported.
        raise InputError(f"importing {module!r} failed: {type(error).__name__}: {error}") from error


def named_object(text: str) -> Any | None:
    """Return the object that ``module:name`` means, None where the text does not look like that.

    A class is made without arguments, and ``module:name()`` calls what it names.
    """
    if not IMPORT_NAME.fullmatch(text) or Path(text).exists():
        return None
    module, _, name = text.partition(":")
    found = attribute(imported(module), name.removesuffix("()"))
    if found is None:
        raise InputError(f"there is no {name.removesuffix('()')!r} in {module}")
    if name.endswith("()") or isinstance(found, type):
        return called(text, found)
    return found


def called(name: str, function: Callable[..., Any], *arguments: Any, **kwargs: Any) -> Any:
    """Call a function of the user, and report its failure as what it is: no error of ours."""
    try:
        return function(*arguments, **kwargs)
    except (InputError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        # The code of its author may call sys.exit.
        raise InputError(f"{name} failed: {type(error).__name__}: {error}") from error


def attribute(module: Any, name: str) -> Any:
    """Return what a module calls by this name, dots included; None if there is no such thing."""
    for part in name.split("."):
        module = getattr(module, part, None)
    return module
