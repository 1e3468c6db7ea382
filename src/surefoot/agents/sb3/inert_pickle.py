"""Pickles read as data: every object in them becomes an inert stand-in, in bounded time, and nothing is called."""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable
from typing import Any

# Instructions of a pickle: saved statistics have some 500, a large network some 50,000.
MOST_PICKLE_STEPS = 200_000
# Instructions that nothing needs here: sets and frozen sets hash what is put into them, the text forms of the first
# protocol take any number as the name of a memory cell, and the others ask for code or objects from elsewhere.
REFUSED = (
    *(pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET, pickle.PUT, pickle.GET, pickle.INT, pickle.LONG),
    *(pickle.STRING, pickle.UNICODE, pickle.FLOAT, pickle.INST, pickle.OBJ, pickle.PERSID),
    *(pickle.EXT1, pickle.EXT2, pickle.EXT4, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER),
)


class Inert:
    """Stands for an object in a pickle: it keeps what the object would have been made from, and does nothing."""

    name = ""

    def __init__(self, *arguments: Any, **_: Any) -> None:
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class InertDict(dict[str, Any]):
    """Stands for an ordered dictionary, which pickles make empty and then fill."""

    def __init__(self) -> None:
        super().__init__()

    def __setstate__(self, state: Any) -> None:
        """Drop what else is known of it."""


class Reader(pickle._Unpickler):
    """Makes inert objects of what ``is_known`` accepts by module and name, and rejects every other name.

    The reader written in Python: the one in C sets aside gigabytes where a few bytes of a file ask for it. Keys must be
    text: the hash of a tuple of tuples of tuples takes forever, and cannot be interrupted.
    """

    def __init__(self, file: io.BytesIO, is_known: Callable[[str, str], bool]) -> None:
        super().__init__(file)
        self.is_known = is_known
        self.steps = 0

    def find_class(self, module: str, name: str) -> Any:
        """Return an inert stand-in, never the thing itself."""
        if (module, name) == ("collections", "OrderedDict"):
            return InertDict
        if not self.is_known(module, name):
            raise pickle.UnpicklingError(f"{module:.100}.{name:.100} has no place in it")
        return type("Inert", (Inert,), {"name": f"{module}.{name}"})

    def persistent_load(self, pid: Any) -> Any:
        """Return what stands for the bytes of a tensor."""
        return Inert(pid)

    def count_step(self) -> None:
        """Count one more instruction."""
        self.steps += 1
        if self.steps > MOST_PICKLE_STEPS:
            raise pickle.UnpicklingError(f"it has more than {MOST_PICKLE_STEPS:,} instructions")


def _with_checks(code: int, load: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return an instruction that is counted, refused if nothing needs it, and whose keys are looked at."""

    def checked(reader: Any) -> None:
        reader.count_step()
        if bytes([code]) in REFUSED:
            raise pickle.UnpicklingError(f"the instruction {code} has no place in it")
        if code in KEYS:
            KEYS[code](reader)
        load(reader)

    return checked


def _check_pair(reader: Any) -> None:
    _check_keys(reader.stack[-2:-1])


def _check_pairs(reader: Any) -> None:
    _check_keys(reader.stack[::2])


def _check_keys(keys: list[Any]) -> None:
    if not all(type(key) is str for key in keys):
        raise pickle.UnpicklingError("a key is not text")


def _load_bytearray(reader: Any) -> None:
    """Read the bytes before memory is set aside for them."""
    (size,) = struct.unpack("<Q", reader.read(8))
    reader.append(bytearray(reader.read(size)))


KEYS = {pickle.SETITEM[0]: _check_pair, pickle.SETITEMS[0]: _check_pairs, pickle.DICT[0]: _check_pairs}
# A table of its own: the class of Python keeps the instructions it has.
Reader.dispatch = {code: _with_checks(code, load) for code, load in pickle._Unpickler.dispatch.items()}
Reader.dispatch[pickle.BYTEARRAY8[0]] = _with_checks(pickle.BYTEARRAY8[0], _load_bytearray)
