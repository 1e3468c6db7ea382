"""Code of the user, named as ``module:name`` where a command cannot be given an object."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from surefoot.errors import InputError


def imported(module: str) -> Any:
    """Import a module, which may be in the working directory; what is installed goes first."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"cannot import {module!r} ({error}); run the command from the folder that it is in, or install it"
        ) from error
    except Exception as error:
        raise InputError(f"importing {module!r} failed: {type(error).__name__}: {error}") from error


def attribute(module: Any, name: str) -> Any:
    """Return what a module calls by this name, dots included; None if there is no such thing."""
    for part in name.split("."):
        module = getattr(module, part, None)
    return module
