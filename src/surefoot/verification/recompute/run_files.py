"""The files of a run: JSON and arrays of declared types and shapes; hashed by other code than wrote them."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import InputError
from surefoot.files import header_of, is_count, read_arrays, read_json

CERTIFICATE_SCHEMA = 1
CERTIFICATES = ("certificate.json", "shared.json", "per-step.json")
COMPARED = "comparison.json"


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
    processors: tuple[tuple[str, int], ...] = ()

    @property
    def returns(self) -> NDArray[np.float64]:
        """The returns."""
        return self.arrays["returns"]

    def processor_of(self, block: int) -> str | None:
        """Return the kind of processor that a block is said to have been run on."""
        n_before = 0
        for kind, count in self.processors:
            n_before += count
            if block < n_before:
                return kind
        return None

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
    # Of a file that is no certificate nothing is judged, so that these are looked at first.
    certificates = {}
    for path in paths:
        certificate = read_json(path)
        if not same(certificate.get("schema"), CERTIFICATE_SCHEMA):
            raise InputError(
                f"{path} has schema {certificate.get('schema')!r}, this version reads {CERTIFICATE_SCHEMA}"
            )
        certificates[path.name] = certificate
    setup, arrays, processors = _read_record(folder / "episodes.npz")
    written_setup = _read_if_there(folder / "setup.json")
    run = _read_if_there(folder / "run.json")
    found = []
    for name, certificate in certificates.items():
        found.append(Raw(name, certificate, setup, arrays, written_setup, run, processors))
    return found


def read_side(folder: Path, certificate: dict[str, Any]) -> Raw:
    """Read the record of one agent of a comparison; ``certificate`` is what is claimed about it.

    Raises:
        DamagedError: If a file is damaged.
    """
    setup, arrays, processors = _read_record(folder / "episodes.npz")
    return Raw(COMPARED, certificate, setup, arrays, _read_if_there(folder / "setup.json"), None, processors)


def _read_if_there(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    return read_json(path)


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return in words where two dictionaries differ."""
    differing = [key for key in sorted({*one, *other}) if not same(one.get(key), other.get(key))]
    return [f"{key} is {one.get(key)!r:.200} and {other.get(key)!r:.200}" for key in differing]


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal; 1 and 1.0 are, 1 and true are not, wherever they stand."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return type(one == other) is bool and one == other and isinstance(one, bool) == isinstance(other, bool)


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a JSON value is a finite number."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return plain and abs(value) <= sys.float_info.max


def close(value: Any, expected: float, within: float) -> bool:
    """Whether a JSON value is a number near another."""
    return is_number(value) and abs(value - expected) <= within


def _read_record(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]], tuple[tuple[str, int], ...]]:
    if not path.is_file():
        raise DamagedError(f"there is no {path.name} next to the certificate: nothing can be recomputed")
    try:
        arrays = read_arrays(path)
        setup = header_of(path, arrays, "file of episode data")
    except InputError as error:
        raise DamagedError(str(error)) from error
    schema = setup.pop("schema", None)
    processors = setup.pop("processors", [])
    if schema != 1:
        raise InputError(f"{path} has schema {schema!r}, this version reads 1")
    returns = arrays.get("returns")
    if returns is None or returns.dtype != np.float64 or returns.ndim != 1 or returns.size == 0:
        raise DamagedError(f"{path.name} contains no list of returns")
    if not isinstance(processors, list) or not all(_is_processor(one) for one in processors):
        raise DamagedError(f"{path.name} does not say which processors its blocks were run on, but {processors!r:.60}")
    return setup, arrays, tuple(map(tuple, processors))


def _is_processor(found: Any) -> bool:
    """Whether this is a kind of processor and the number of blocks that were run on it."""
    return isinstance(found, list) and len(found) == 2 and isinstance(found[0], str) and is_count(found[1])


def check_sums(raw: Raw) -> list[str]:
    """Return whether rewards of valid runs fail to add up to the returns of their episodes."""
    values = raw.arrays.get("reward_values")
    if values is None:
        return []
    low, high = raw.setup["reward_range"]
    if not (is_number(low) and is_number(high) and low <= 0 <= high):
        return [f"rewards from {low!r:.60} to {high!r:.60} are no range that contains 0"]
    repeats = raw.arrays["reward_repeats"]
    lengths = raw.arrays["lengths"]
    whose = np.searchsorted(np.cumsum(lengths), np.cumsum(repeats))
    total = np.bincount(whose, values * repeats, lengths.size)
    # In units of a reward: what is added up is about as large.
    if not np.all(np.abs(total - raw.returns) <= 1e-9 * (np.abs(raw.returns) + (high - low) * lengths)):
        return ["the rewards of an episode's steps do not add up to its return"]
    return []
