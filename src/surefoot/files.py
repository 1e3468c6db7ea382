"""Files that are either whole or absent, and files of strangers read as data.

Writing is under a temporary name, flushed, then renamed. Nothing here pickles: arrays go to ``.npz``, everything else
to JSON. Reading executes no code, looks at sizes before it takes memory, and turns whatever goes wrong into one
``InputError``.
"""

from __future__ import annotations

import io
import json
import math
import os
import stat
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import InputError

PARTIAL = ".part"  # ends the names of files that are being written
MOST_TEXT = 2**24  # bytes of a JSON file: what is read takes up to 25 times as much memory
MOST_ARRAYS = 2**28  # bytes of all arrays of a file, unpacked: ten million episodes, or weights of a large network
MOST_LISTED = 2**22  # bytes of the list of members of a zip file: what is read takes about 15 times as much memory


def write_whole(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Let ``fill`` write a temporary file next to ``path``, then put it in place in one step, whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=PARTIAL, dir=path.parent)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; choose another place") from error
    try:
        with os.fdopen(handle, "wb") as file:
            fill(file)
            file.flush()
            # Else a crash of the machine could leave an empty file under the final name.
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise InputError(f"cannot write {path}: {error.strerror or error}; nothing was left half-written") from error
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def delete_partial_files(folder: Path) -> None:
    """Delete what a killed writer left in a folder; no other process may be writing there."""
    for path in folder.glob(f".*{PARTIAL}"):
        path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8."""
    write_whole(path, lambda file: file.write(text.encode()))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON document; NaN and infinities are refused, for they are not JSON."""
    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write named arrays as an ``.npz``; object arrays would need pickle and are rejected."""
    assert all(array.dtype != object for array in arrays.values())
    save: Any = np.savez_compressed
    write_whole(path, lambda file: save(file, **arrays))


def write_npz(path: Path, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write named arrays and a JSON object about them as one ``.npz``; none of the arrays is called ``header``."""
    assert "header" not in arrays
    text = json.dumps(header, allow_nan=False).encode()
    write_arrays(path, {"header": np.frombuffer(text, dtype=np.uint8), **arrays})


@contextmanager
def untrusted(path: object, what: str) -> Iterator[None]:
    """Turn whatever goes wrong while a file of somebody else is read or interpreted into one InputError.

    ``what`` is what it should be, as in "JSON file".
    """
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"no file {path}") from error
    except (Exception, RecursionError) as error:
        # The first line alone: numpy and torch go on with advice to read the file unsafely.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        reason = lines[0]
        raise InputError(f"{path} is not a readable {what} ({reason[:200]}); it may be truncated") from error


def open_regular(path: Path) -> BufferedReader:
    """Open a file for reading, and nothing else: a pipe would be waited for, and a device has no end.

    Links are followed. What is opened is what is looked at, so that nothing can be exchanged in between.
    """
    return open(path, "rb", opener=_open_if_regular)


def _open_if_regular(path: str, flags: int) -> int:
    # Without O_NONBLOCK opening a pipe would wait for a writer, before anything could be looked at.
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise InputError(f"{path} is not a regular file, but a directory, a pipe or a device; give a file")
    return handle


def read_bytes(path: Path, what: str, most: int) -> bytes:
    """Read a file of somebody else whole, if it has at most so many bytes; ``what`` it should be, as in "JSON file"."""
    with open_regular(path) as file:
        check_size(path, what, os.fstat(file.fileno()).st_size, most)
        # One more than allowed: some files (/proc) do not say how long they are.
        content = file.read(most + 1)
    check_size(path, what, len(content), most)
    return content


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip file of somebody else, after looking at the size of its list of members and for names that repeat."""
    with open_regular(path) as file:
        check_members(path, file)
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            # Readers disagree on which of the two they read, as with keys of JSON.
            if len(set(names)) < len(names):
                raise InputError(f"{path} has two members of one name, so that it may be two files; save it again")
            yield archive


def check_members(path: object, file: IO[bytes]) -> None:
    """Reject a zip file whose list of members would take too much memory."""
    # The field of the end record that zipfile itself reads before it takes memory for the list.
    ending = zipfile._EndRecData(file)  # type: ignore[attr-defined]
    if ending is not None:
        check_size(path, "list of the members of a zip file", ending[5], MOST_LISTED)
    file.seek(0)


def check_size(path: object, what: str, size: int, most: int) -> None:
    """Reject what would take too much memory."""
    if size > most:
        raise InputError(f"{path} is too large for a {what}: {size} bytes, expected at most {most}")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    with untrusted(path, "JSON file"):
        content = parse_json(read_bytes(path, "JSON file", MOST_TEXT))
    if not isinstance(content, dict):
        raise InputError(f"{path} must hold a JSON object, got {type(content).__name__}")
    return content


def parse_json(content: bytes) -> Any:
    """Return JSON data; a key that occurs twice, NaN and infinities raise ValueError."""
    return json.loads(
        content.decode(),
        object_pairs_hook=reject_duplicate_keys,
        parse_constant=_parse_finite,
        parse_float=_parse_finite,
    )


def reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these pairs, as ``json.loads`` asks for it; raise ValueError if a key occurs twice."""
    # Readers disagree on which of the two counts, so a file could say one thing to a reviewer and another to us.
    content: dict[str, Any] = {}
    for name, value in pairs:
        if name in content:
            raise ValueError(f"the key {name!r:.60} occurs twice")
        content[name] = value
    return content


def _parse_finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:60]} is not a finite number")
    return value


def number(value: Any) -> float:
    """Return a finite number of JSON data as a float, or raise TypeError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise TypeError(f"expected a number, got {value!r:.60}")
    return float(value)


def numbers(values: Any) -> list[float]:
    """Return a list of finite numbers of JSON data as floats, or raise TypeError."""
    if not isinstance(values, list):
        raise TypeError(f"expected a list of numbers, got {type(values).__name__}")
    return [number(value) for value in values]


def is_count(value: Any) -> TypeGuard[int]:
    """Return whether a value of JSON data is a whole number of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def read_arrays(path: Path, *, most: int = MOST_ARRAYS) -> dict[str, NDArray[Any]]:
    """Read named arrays of plain numbers from an ``.npz``, never unpickling.

    What they would take is known before any is read, and must not be more than ``most`` bytes.
    """
    with untrusted(path, ".npz file"), open_zip(path) as archive:
        members = archive.infolist()
        check_size(path, ".npz file", sum(member.file_size for member in members), most)
        arrays: dict[str, NDArray[Any]] = {}
        for member in members:
            name = member.filename.removesuffix(".npy")
            if name in arrays:
                raise ValueError("two of its arrays have the same name")
            arrays[name] = parsed_array(archive.read(member))
    return arrays


def read_array(path: Path) -> NDArray[Any]:
    """Read the one array of plain numbers of an ``.npy``."""
    what = ".npy file of numbers"
    with untrusted(path, what):
        return parsed_array(read_bytes(path, what, MOST_ARRAYS))


def parsed_array(content: bytes) -> NDArray[Any]:
    """Return the array of plain numbers that the bytes of an ``.npy`` are, or raise ValueError."""
    file = io.BytesIO(content)
    try:
        array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    except ValueError as error:
        # Numpy names the option that would execute the file: nobody is to be advised to do that.
        if "allow_pickle" in str(error):
            raise ValueError("expected plain numbers, got object") from error
        raise
    if array.dtype.kind not in "biuf":
        raise ValueError(f"expected plain numbers, got {array.dtype}")
    if file.tell() != len(content):
        raise ValueError(f"an array of shape {array.shape} ends after {file.tell()} of {len(content)} bytes")
    return array


def read_npz(
    path: Path, what: str, *needs: str, most: int = MOST_ARRAYS
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read the header and the arrays that ``write_npz`` wrote; ``needs`` names arrays that must be there."""
    arrays = read_arrays(path, most=most)
    header = header_of(path, arrays, what)
    if "schema" not in header or not arrays.keys() >= set(needs):
        raise InputError(f"{path} is not a {what}: no readable {' and '.join(('header', *needs))}")
    return header, arrays


def header_of(path: object, arrays: dict[str, NDArray[Any]], what: str) -> dict[str, Any]:
    """Take the JSON object about the arrays out of them; raise InputError if there is none."""
    with untrusted(path, what):
        text = arrays.pop("header", np.empty(0, dtype=np.uint8))
        if text.dtype != np.uint8:
            raise TypeError("its header is not text")
        check_size(path, f"header of a {what}", text.nbytes, MOST_TEXT)
        header = parse_json(text.tobytes())
        if not isinstance(header, dict):
            raise TypeError("its header is not a JSON object")
    return header


def extremes(array: NDArray[Any]) -> tuple[float, float]:
    """Return the least and the greatest number of an array that is not empty; NaN if any of them is."""
    return float(array.min()), float(array.max())


def safe_name(text: str) -> str:
    """Return ``text`` as a name for a file or folder: letters, digits, dots, dashes and underscores."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in text)
