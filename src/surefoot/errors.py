"""What a caller can fix: bad input, and arguments by their old names."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")


class InputError(ValueError):
    """Bad input: it says what was expected, what came, and what to do. The command exits with code 2."""


def old_arguments(**names: str) -> Callable[[Callable[Given, Result]], Callable[Given, Result]]:
    """Accept keyword arguments by their old names, ``old="new"``, with a warning, for one more version."""

    def accepting(function: Callable[Given, Result]) -> Callable[Given, Result]:
        @functools.wraps(function)
        def called(*given: Given.args, **named: Given.kwargs) -> Result:
            renewed: dict[str, Any] = dict(named)
            for old in names.keys() & named.keys():
                if names[old] in named:
                    raise InputError(f"{old} is the old name of {names[old]}; give {names[old]} alone")
                message = f"{old} is now called {names[old]}; the old name will be removed"
                warnings.warn(message, DeprecationWarning, stacklevel=2)
                renewed[names[old]] = renewed.pop(old)
            return function(*given, **renewed)

        return called

    return accepting
