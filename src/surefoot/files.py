"""Files that are either whole or absent, and files of strangers read as data.

Writing: under a temporary name, flushed, then renamed. Nothing here pickles: arrays go to ``.npz``, facts to JSON.
Reading executes no code, looks at sizes before it takes memory, and turns whatever goes wrong into one ``InputError``.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import platform
import stat
import struct
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import InputError

PACKAGES = ("numpy", "scipy", "torch", "gymnasium", "stable-baselines3")  # whose versions shape a result
PART = ".part"  # ends the names of files that are being written
PIECE = 2**24  # numbers of an array that are read at once: 128 MiB
MOST_TEXT = 2**24  # bytes of a JSON file: what is read takes up to 25 times as much memory
MOST_ARRAYS = 2**28  # bytes of all arrays of a file, unpacked: ten million episodes, or weights of a large network
MOST_LISTED = 2**22  # bytes of the list of members of a zip file: what is read takes about 15 times as much memory


def write_whole(path: Path, fill: Callable[[IO[bytes]], None]) -> None:
    """Let ``fill`` write a temporary file next to ``path``, then put it in place in one step."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=PART, dir=path.parent)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; choose another place") from error
    try:
        with os.fdopen(handle, "wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise InputError(f"cannot write {path}: {error.strerror or error}; nothing was left half-written") from error
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def sweep(folder: Path) -> None:
    """Delete what a killed writer left in a folder; no other process may be writing there."""
    for path in folder.glob(f".*{PART}"):
        path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8."""
    write_whole(path, lambda file: _write_bytes(file, text.encode()))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON document; NaN and infinities are refused, for they are not JSON."""
    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], *, compress: bool = True) -> None:
    """Write named arrays as an ``.npz``; object arrays would need pickle and are rejected.

    More than ``MOST_ARRAYS`` bytes are stored as they are, piece by piece, so that they can be mapped when read.
    """
    assert all(array.dtype != object for array in arrays.values())
    if sum(array.nbytes for array in arrays.values()) > MOST_ARRAYS:
        write_whole(path, lambda file: _store(file, arrays))
        return
    save: Any = np.savez_compressed if compress else np.savez
    write_whole(path, lambda file: save(file, **arrays))


def _store(file: IO[bytes], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write named arrays as an ``.npz`` without compression, so that they can be mapped."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                about = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
                np.lib.format.write_array_header_1_0(member, about)
                for piece in pieces(array):
                    member.write(bytes_of(piece))


def write_npz(
    path: Path, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], *, compress: bool = True
) -> None:
    """Write named arrays and a JSON object about them as one ``.npz``; none of the arrays is called ``header``."""
    assert "header" not in arrays
    text = json.dumps(header, allow_nan=False).encode()
    write_arrays(path, {"header": np.frombuffer(text, dtype=np.uint8), **arrays}, compress=compress)


@contextmanager
def untrusted(path: object, what: str) -> Iterator[None]:
    """Turn whatever goes wrong while a file of somebody else is read or interpreted into one InputError.

    Args:
        path: The file, for the message.
        what: What it should be, as in "JSON file".
    """
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"no file {path}") from error
    except (Exception, RecursionError) as error:
        # The first line alone: numpy and torch go on with advice to read the file unsafely.
        reason = (str(error).strip().splitlines() or [""])[0] or type(error).__name__
        raise InputError(f"{path} is not a readable {what} ({reason[:200]}); it may be truncated") from error


def open_regular(path: Path) -> BufferedReader:
    """Open a file for reading, and nothing else: a pipe would be waited for, and a device has no end.

    Links are followed. What is opened is what is looked at, so that nothing can be exchanged in between.
    """
    return open(path, "rb", opener=_opened_regular)


def _opened_regular(path: str, flags: int) -> int:
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise InputError(f"{path} is not a regular file, but a directory, a pipe or a device; give a file")
    return handle


def read_bytes(path: Path, what: str, most: int) -> bytes:
    """Read a file of somebody else whole, if it has at most so many bytes.

    Args:
        path: The file.
        what: What it should be, as in "JSON file".
        most: Number of bytes that it may have.
    """
    with open_regular(path) as file:
        check_size(path, what, os.fstat(file.fileno()).st_size, most)
        content = file.read(most + 1)  # some files (/proc) do not say how long they are
    check_size(path, what, len(content), most)
    return content


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip file of somebody else, after looking at the size of its list of members."""
    with open_regular(path) as file:
        check_members(path, file)
        with zipfile.ZipFile(file) as archive:
            yield archive


def check_members(path: object, file: IO[bytes]) -> None:
    """Reject a zip file whose list of members would take too much memory."""
    ending = zipfile._EndRecData(file)  # type: ignore[attr-defined]
    if ending is not None:
        check_size(path, "list of the members of a zip file", ending[5], MOST_LISTED)
    file.seek(0)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    with untrusted(path, "JSON file"):
        content = parse_json(read_bytes(path, "JSON file", MOST_TEXT))
    if not isinstance(content, dict):
        raise InputError(f"{path} must hold a JSON object, got {type(content).__name__}")
    return content


def parse_json(content: bytes) -> Any:
    """Return JSON data; a key that occurs twice, NaN and infinities raise ValueError."""
    return json.loads(content.decode(), object_pairs_hook=_no_twins, parse_constant=_finite, parse_float=_finite)


def check_size(path: object, what: str, size: int, most: int) -> None:
    """Reject what would take too much memory."""
    if size > most:
        raise InputError(f"{path} is too large for a {what}: {size} bytes, expected at most {most}")


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r:.60} occurs twice")
    return content


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:60]} is not a finite number")
    return value


def number(value: Any) -> float:
    """Return a finite number of JSON data as a float, or raise TypeError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise TypeError(f"expected a number, got {value!r:.60}")
    return float(value)


def is_count(value: Any) -> TypeGuard[int]:
    """Return whether a value of JSON data is a whole number of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def numbers(values: Any) -> list[float]:
    """Return a list of finite numbers of JSON data as floats, or raise TypeError."""
    if not isinstance(values, list):
        raise TypeError(f"expected a list of numbers, got {type(values).__name__}")
    return [number(value) for value in values]


def read_arrays(path: Path, *, most: int = MOST_ARRAYS, mapped: bool = False) -> dict[str, NDArray[Any]]:
    """Read named arrays of plain numbers from an ``.npz``, never unpickling.

    Args:
        path: The file.
        most: How many bytes all arrays may have; what they would take is known before any is read.
        mapped: Whether a file with more bytes is mapped instead, if its arrays are stored without compression.
    """
    with untrusted(path, ".npz file"), open_zip(path) as archive:
        members = archive.infolist()
        size = sum(member.file_size for member in members)
        mapped = mapped and size > most and all(one.compress_type == zipfile.ZIP_STORED for one in members)
        check_size(path, ".npz file", 0 if mapped else size, most)
        names = [member.filename.removesuffix(".npy") for member in members]
        if len(set(names)) < len(names):
            raise ValueError("two of its arrays have the same name")
        read = _mapped_member if mapped else _array
        return {name: read(archive, member) for name, member in zip(names, members, strict=True)}


def read_array(path: Path) -> NDArray[Any]:
    """Read the one array of plain numbers of an ``.npy``; one of more than ``MOST_ARRAYS`` bytes is mapped."""
    with untrusted(path, ".npy file of numbers"), open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        return parsed_array(file, size) if size <= MOST_ARRAYS else _mapped(file, size)


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(member) as file:
        return parsed_array(file, member.file_size)


def parsed_array(file: IO[bytes], size: int) -> NDArray[Any]:
    """Return the array of an ``.npy`` of so many bytes."""
    shape, fortran, dtype, there = _described(file, size)
    content = file.read(size - there)
    if len(content) != size - there:
        raise ValueError(f"an array of shape {shape} needs {size - there} bytes, got {len(content)}")
    # A copy: an array over bytes could not be written to.
    return np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C").copy()


def _mapped_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """Return an array that is stored in an ``.npz`` as a read-only map, after checking that it is undamaged."""
    archive.open(member).close()  # which compares the member's own header with the archive's list
    with open_regular(Path(str(archive.filename))) as file:
        file.seek(member.header_offset + 26)
        names = sum(struct.unpack("<HH", file.read(4)))  # bytes of its name and of what else stands before the array
        begin = member.header_offset + 30 + names
        content, found = np.memmap(file, np.uint8, "r", begin, (member.file_size,)), 0
        for piece in pieces(content):
            found = zlib.crc32(bytes_of(piece), found)
        if found != member.CRC:
            raise ValueError(f"the checksum of {member.filename} is wrong")
        file.seek(begin)
        return _mapped(file, begin + member.file_size)


def _mapped(file: IO[bytes], end: int) -> NDArray[Any]:
    """Return the array of an ``.npy`` that begins here and ends there as a read-only map of the file."""
    shape, fortran, dtype, there = _described(file, end)
    return np.memmap(file, dtype, "r", there, shape, "F" if fortran else "C")


def _described(file: IO[bytes], end: int) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return shape, order, type and place of an array that ends at ``end``; its header may claim anything."""
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {version} of the format is not known")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if dtype.kind not in "biuf":
        raise ValueError(f"expected plain numbers, got {dtype}")
    there, claimed = end - file.tell(), math.prod(shape) * dtype.itemsize
    if there != claimed:
        raise ValueError(f"an array of shape {shape} needs {claimed} bytes, got {there}")
    return shape, fortran, dtype, file.tell()


def read_npz(
    path: Path, what: str, *needs: str, most: int = MOST_ARRAYS, mapped: bool = False
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read the header and the arrays that ``write_npz`` wrote.

    Args:
        path: The file.
        what: What the file should be, for the error message.
        needs: Names of arrays that must be there.
        most: How many bytes all arrays may have.
        mapped: Whether a file with more bytes is mapped instead, if its arrays are stored without compression.

    Raises:
        InputError: If the file is absent or damaged, or its header (with a schema number) or an array is missing.
    """
    arrays = read_arrays(path, most=most, mapped=mapped)
    header = header_of(path, arrays, what)
    if "schema" not in header or not arrays.keys() >= set(needs):
        raise InputError(f"{path} is not a {what}: no readable {' and '.join(('header', *needs))}")
    return header, arrays


def header_of(path: object, arrays: dict[str, NDArray[Any]], what: str) -> dict[str, Any]:
    """Take the JSON object about the arrays out of them; raise InputError if there is none."""
    with untrusted(path, what):
        text = arrays.pop("header", np.empty(0, dtype=np.uint8))
        check_size(path, f"header of a {what}", text.nbytes, MOST_TEXT)
        header = parse_json(text.tobytes())
        if not isinstance(header, dict):
            raise TypeError("its header is not a JSON object")
    return header


def pieces(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield the rows of an array in order, as many at a time as have ``PIECE`` numbers; at least one piece."""
    rows = max(1, PIECE // max(1, array.size // max(1, len(array))))
    for first in range(0, max(1, len(array)), rows):
        yield array[first : first + rows]
        release(array)


def extremes(array: NDArray[Any]) -> tuple[float, float]:
    """Return the least and the greatest number of an array that is not empty; NaN if any of them is."""
    found = [(piece.min(), piece.max()) for piece in pieces(array)]
    return float(np.min(found)), float(np.max(found))


def release(array: NDArray[Any]) -> None:
    """Let go of the memory that holds what was read of a mapped file; what is read again is read from the file.

    A map with changes that the file does not have (mode "c") would lose them, and is kept.
    """
    base: Any = array
    shared = False
    while isinstance(base, np.ndarray):
        shared = shared or (isinstance(base, np.memmap) and base.mode != "c")
        base = base.base
    if shared and isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)


def bytes_of(array: NDArray[Any]) -> memoryview:
    """Return the bytes of an array, row after row."""
    return np.ascontiguousarray(array).data.cast("B")


def checkout() -> Path | None:
    """Return the root of the checkout that the package is run from, or None where it was installed as a wheel."""
    root = Path(str(files("surefoot"))).resolve().parents[1]
    return root if (root / "zoo").is_dir() and (root / "study").is_dir() else None


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that shape a result, as far as they are installed."""
    own = sys.modules["surefoot"].__version__  # loaded before any of its modules, so it need not be imported
    found = {"surefoot": own, "python": platform.python_version()}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def source_hash() -> str:
    """Return the SHA-256 of the package's own sources, by their names: checkouts of one version differ."""
    root = Path(str(files("surefoot")))
    paths = sorted(root.rglob("*.py"))
    return sha256(*(chunk for path in paths for chunk in (str(path.relative_to(root)).encode(), path.read_bytes())))


def safe_name(text: str) -> str:
    """Return ``text`` as a name for a file or folder: letters, digits, dots, dashes and underscores."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in text)


def sha256(*chunks: bytes) -> str:
    """Return the hexadecimal SHA-256 of the chunks laid end to end."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def _write_bytes(file: IO[bytes], content: bytes) -> None:
    file.write(content)
