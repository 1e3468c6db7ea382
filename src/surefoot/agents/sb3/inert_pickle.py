"""Pickles read as data: every object in them becomes an inert stand-in, in bounded time, and nothing is called.

``Reader`` reads one; ``array_of`` and ``dtype_of`` say what arrays and types of numbers of numpy would be made.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

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
    """Stands for an object in a pickle: it keeps what the object would have been made from, and does nothing.

    Attributes:
        name: Module and name of what would have been called; the class of an inert object stands for that.
        may_be_called: Whether calling it has a place in the pickle.
        arguments: What it would have been called with.
        state: What the object would have got then.
    """

    name = ""
    may_be_called = True
    arguments: tuple[Any, ...]
    state: Any

    def __new__(cls, *arguments: Any, **_: Any) -> Inert:
        """Keep the arguments; pickles make objects with and without ``__init__``."""
        if not cls.may_be_called:
            raise pickle.UnpicklingError(f"it calls {cls.name:.100}, which has no place in it")
        made = super().__new__(cls)
        made.arguments = arguments
        made.state = None
        return made

    def __setstate__(self, state: Any) -> None:
        if self.state is not None or state is None:
            raise pickle.UnpicklingError("it gives a state to what has one, or can have none")
        self.state = state


class InertDict(dict[str, Any]):
    """Stands for an ordered dictionary, which pickles make empty and then fill."""

    def __init__(self) -> None:
        super().__init__()

    def __setstate__(self, state: Any) -> None:
        """Drop what else is known of it."""


class Reader(pickle._Unpickler):
    """Makes inert objects by calling what ``may_be_called`` accepts by module and name, and rejects every other call.

    The reader written in Python: the one in C sets aside gigabytes where a few bytes of a file ask for it. Keys must be
    text: the hash of a tuple of tuples of tuples takes forever, and cannot be interrupted.
    """

    def __init__(self, file: io.BytesIO, may_be_called: Callable[[str, str], bool]) -> None:
        super().__init__(file)
        self.may_be_called = may_be_called
        self.steps = 0

    def find_class(self, module: str, name: str) -> Any:
        """Return a class of inert objects, never the thing itself."""
        if (module, name) == ("collections", "OrderedDict"):
            return InertDict
        return type("Inert", (Inert,), {"name": f"{module}.{name}", "may_be_called": self.may_be_called(module, name)})

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


# Types of numbers by what pickles call them.
NUMBER_TYPES = {
    "f2": "float16",
    "f4": "float32",
    "f8": "float64",
    "u1": "uint8",
    "i1": "int8",
    "i4": "int32",
    "i8": "int64",
}


def is_name(value: Any) -> TypeGuard[type[Inert]]:
    """Return whether this stands for something that is named and not called, such as a class."""
    return isinstance(value, type) and issubclass(value, Inert)


def array_of(value: Any) -> NDArray[Any]:
    """Return the array or the number of numpy that would be made."""
    if not isinstance(value, Inert):
        raise TypeError(f"an array was expected, got a {type(value).__name__}")
    kind = value.name.rpartition(".")[2]
    if kind == "_reconstruct":
        _, shape, dtype, fortran, content = value.state
    elif kind == "_frombuffer" and value.state is None:
        content, dtype, shape, order = value.arguments
        fortran = order == "F"
    elif kind == "scalar" and value.state is None:
        dtype, content = value.arguments
        shape = ()
        fortran = False
    else:
        raise ValueError(f"an array was expected, got {value.name:.100}")
    if not isinstance(content, bytes | bytearray):
        raise TypeError(f"the bytes of an array were expected, got a {type(content).__name__}")
    flat = np.frombuffer(bytes(content), dtype=dtype_of(dtype))
    return flat.reshape(tuple(map(int, shape)), order="F" if fortran else "C")


def dtype_of(value: Any) -> str:
    """Return the name of a type of numpy that would be made."""
    if not isinstance(value, Inert) or value.name != "numpy.dtype":
        raise TypeError("a type of numbers was expected, got something else")
    kind = value.arguments[0]
    name = NUMBER_TYPES.get(kind) if isinstance(kind, str) else None
    # The state has the version, the order of bytes, and types with parts: this machine's, and none.
    if name is None or value.state is None or value.state[1] not in ("<", "=", "|") or any(value.state[2:5]):
        raise ValueError("numbers of this machine were expected, got others")
    return name
