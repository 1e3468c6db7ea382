"""Errors that a caller can fix, hints at the word that was meant, and control characters of untrusted text, escaped."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable

_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}  # control, format, surrogate, private, unassigned; line separators


class InputError(ValueError):
    """Bad input: it says what was expected, what came, and what to do. The command exits with code 2.

    >>> from surefoot import Episodes, InputError
    >>> try:
    ...     Episodes.from_returns([-1.0], sigma=0.2, floor=0)
    ... except InputError as error:
    ...     print(error)
    no return may be below the floor 0, got -1; give the true floor
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(message))


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run; the message says what is kept of it, and how to go on."""


class NotAllowedError(InputError):
    """A file would have to execute code, which its reader did not allow."""


class DependentRowsError(InputError):
    """An agent answers an observation differently alone than among other rows, which are other episodes."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out, for Python, numpy or torch: no error of the code that asked for it."""
    # Torch has a class of its own for GPUs, which is not imported for this, and for CPUs a RuntimeError.
    on_gpu = type(error).__name__ == "OutOfMemoryError"
    on_cpu = "DefaultCPUAllocator: can't allocate memory" in str(error)
    return isinstance(error, MemoryError) or on_gpu or on_cpu


def printable(text: str) -> str:
    """Return text that a terminal shows as it is: whatever could move the cursor or reverse letters is spelled out.

    Names in files of strangers may contain escape codes that clear the screen and print "Verified".
    """
    if all(line.isprintable() for line in text.split("\n")):
        return text
    shown = []
    for letter in text:
        if letter in "\n\t" or unicodedata.category(letter) not in _UNSEEN:
            shown.append(letter)
        else:
            shown.append(ascii(letter)[1:-1])
    return "".join(shown)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of an error message that names the known word most like this one; empty if none is."""
    known = list(known)
    close = difflib.get_close_matches(word, known, n=1)
    # The two words have no letters in common.
    if word == "gpu" and "cuda" in known:
        close = ["cuda"]
    if not close:
        return ""
    return f"; did you mean {close[0]}?"
