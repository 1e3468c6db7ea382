"""The files of a run, read by other code than wrote them: JSON and arrays, and nothing is unpickled."""

from __future__ import annotations

import hashlib
import json
import math
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import InputError

CERTIFICATES = ("certificate.json", "shared.json", "per-step.json")


class DamagedError(Exception):
    """A file of the run cannot be read as what it should be."""


@dataclass(frozen=True, eq=False)
class Raw:
    """The files of a run directory: a certificate, the episode data with their setup, setup.json and run.json."""

    name: str
    certificate: dict[str, Any]
    setup: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    written_setup: dict[str, Any] | None
    run: dict[str, Any] | None

    @property
    def returns(self) -> NDArray[np.float64]:
        """The returns."""
        return self.arrays["returns"]

    def sha256(self) -> str:
        """Hash the episode data: setup as sorted JSON, then name, shape, type and bytes of every array by name."""
        digest = hashlib.sha256(json.dumps(self.setup, sort_keys=True).encode())
        for name in sorted(self.arrays):
            array = self.arrays[name]
            digest.update(f"{name}{array.shape}{array.dtype.str}".encode())
            digest.update(array.tobytes())
        return digest.hexdigest()


def read_run(folder: Path) -> list[Raw]:
    """Read a run, once for each of its certificates.

    Raises:
        InputError: If the directory does not contain a run.
        DamagedError: If it does, but a file is damaged.
    """
    if not folder.is_dir():
        raise InputError(f"no directory {folder}; give the directory of a certified run")
    paths = [folder / name for name in CERTIFICATES if (folder / name).is_file()]
    if not paths:
        raise InputError(f"{folder} contains no {' or '.join(CERTIFICATES)}; give the directory of a certified run")
    certificates = {path.name: _object(path) for path in paths}
    for name, certificate in certificates.items():
        if certificate.get("schema") != 1:
            raise InputError(f"{folder / name} has schema {certificate.get('schema')!r}, this version reads 1")
    setup, arrays = _record(folder / "episodes.npz")
    notes = [_object(place) if place.is_file() else None for place in (folder / "setup.json", folder / "run.json")]
    return [Raw(name, certificate, setup, arrays, *notes) for name, certificate in certificates.items()]


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return in words where two dictionaries differ."""
    keys = sorted(key for key in {*one, *other} if not same(one.get(key), other.get(key)))
    return [f"{key} is {one.get(key)!r} and {other.get(key)!r}" for key in keys]


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal; 1 and 1.0 are, 1 and true are not."""
    return type(one == other) is bool and one == other and isinstance(one, bool) == isinstance(other, bool)


def is_number(value: Any) -> bool:
    """Whether a JSON value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def close(value: Any, expected: float, within: float) -> bool:
    """Whether a JSON value is a number near another."""
    return is_number(value) and abs(value - expected) <= within


def _object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a readable JSON file ({error})") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} must contain a JSON object, got {type(content).__name__}")
    return content


def _record(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    if not path.is_file():
        raise DamagedError(f"there is no {path.name} next to the certificate: nothing can be recomputed")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: np.ascontiguousarray(archive[name]) for name in archive.files}
        setup = json.loads(arrays.pop("header").tobytes())
        schema = setup.pop("schema")
    except (OSError, ValueError, EOFError, KeyError, AttributeError, TypeError, RuntimeError) as error:
        raise DamagedError(f"{path.name} is not a readable file of episode data ({error})") from error
    except (zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise DamagedError(f"{path.name} is not a readable file of episode data ({error})") from error
    if schema != 1:
        raise InputError(f"{path} has schema {schema!r}, this version reads 1")
    returns = arrays.get("returns")
    if returns is None or returns.dtype != np.float64 or returns.ndim != 1 or returns.size == 0:
        raise DamagedError(f"{path.name} contains no list of returns")
    return setup, arrays
