"""Files that are either whole or absent: written under a temporary name, flushed, then renamed.

Nothing here pickles: arrays go to ``.npz``, facts to JSON, and reading either runs no code.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import InputError

PACKAGES = ("numpy", "scipy", "torch", "gymnasium", "stable-baselines3")  # whose versions shape a result
# What reading a damaged zip raises; the last two are for features that we never write.
DAMAGED = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    zipfile.BadZipFile,
    zlib.error,
    NotImplementedError,
    RuntimeError,
)


def write_whole(path: Path, fill: Callable[[IO[bytes]], None]) -> None:
    """Let ``fill`` write a temporary file beside ``path``, then put it in place in one step."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
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


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8."""
    write_whole(path, lambda file: _write_bytes(file, text.encode()))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON document; NaN and infinities are refused, for they are not JSON."""
    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], *, compress: bool = True) -> None:
    """Write named arrays as an ``.npz``; object arrays would need pickle and are rejected."""
    assert all(array.dtype != object for array in arrays.values())
    save: Any = np.savez_compressed if compress else np.savez
    write_whole(path, lambda file: save(file, **arrays))


def write_npz(
    path: Path, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], *, compress: bool = True
) -> None:
    """Write named arrays and a JSON object about them as one ``.npz``; none of the arrays is called ``header``."""
    assert "header" not in arrays
    text = json.dumps(header, allow_nan=False).encode()
    write_arrays(path, {"header": np.frombuffer(text, dtype=np.uint8), **arrays}, compress=compress)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"no file {path}") from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path} is not a readable JSON file ({error}); it may be truncated") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} must hold a JSON object, got {type(content).__name__}")
    return content


def number(value: Any) -> float:
    """Return a finite number of JSON data as a float, or raise TypeError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError(f"expected a number, got {value!r:.60}")
    return float(value)


def numbers(values: Any) -> list[float]:
    """Return a list of finite numbers of JSON data as floats, or raise TypeError."""
    if not isinstance(values, list):
        raise TypeError(f"expected a list of numbers, got {type(values).__name__}")
    return [number(value) for value in values]


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read named arrays from an ``.npz``, never unpickling."""
    try:
        # Opened here, for numpy leaves a damaged file open.
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise InputError(f"{path} must be an .npz of named arrays, got a single array")
            with archive:
                return {name: archive[name] for name in archive.files}
    except FileNotFoundError as error:
        raise InputError(f"no file {path}") from error
    except InputError:
        raise
    except DAMAGED as error:
        raise InputError(f"{path} is not a readable .npz file ({error}); it may be truncated") from error


def read_npz(path: Path, what: str, *needs: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read the header and the arrays that ``write_npz`` wrote.

    Args:
        path: The file.
        what: What the file should be, for the error message.
        needs: Names of arrays that must be there.

    Raises:
        InputError: If the file is absent or damaged, or its header (with a schema number) or an array is missing.
    """
    arrays = read_arrays(path)
    try:
        header = json.loads(arrays.pop("header").tobytes())
    except (KeyError, ValueError):
        header = None
    if not isinstance(header, dict) or "schema" not in header or not arrays.keys() >= set(needs):
        raise InputError(f"{path} is not a {what}: no readable {' and '.join(('header', *needs))}")
    return header, arrays


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
