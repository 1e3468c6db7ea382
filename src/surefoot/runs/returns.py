"""Precomputed returns, read from a file as data: one number per episode, and no guessing which ones."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from surefoot.episodes import Episodes, Noise
from surefoot.errors import InputError
from surefoot.files import (
    MOST_TEXT,
    check_size,
    parse_json,
    parsed_array,
    read_array,
    read_arrays,
    read_bytes,
    untrusted,
)

STANDARD_INPUT = Path("-")
KINDS = ".npy, .npz, .csv, .txt or .json"
NAMES = ("return", "returns", "episode_return", "episode_returns", "r")  # "reward" may be that of a step
Found = tuple[NDArray[np.float64], str]  # the returns, and what was taken for them


def read_returns(
    path: Path, sigma: float | Sequence[float] | None, floor: float | None, ceiling: float | None
) -> tuple[Episodes, str]:
    """Read returns from a file of numbers (sigma and floor must be given) or episode data that Surefoot wrote.

    Args:
        path: ``.npy``, ``.npz``, ``.csv``, ``.txt`` or ``.json``; ``-`` for standard input.
        sigma: Standard deviation of the noise; None to take that of the episode data.
        floor: Lowest return that the rules allow; None to take that of the episode data.
        ceiling: Highest return that the rules allow, if there is one.

    Returns:
        The episodes, and in words what in the file was taken for their returns.

    Raises:
        InputError: If there are no returns, or more than one thing could be meant by them.
    """
    if path.suffix == ".npz":
        arrays = read_arrays(path)
        if "header" in arrays:
            return _recorded(path, sigma, floor, ceiling), "the returns of Surefoot's episode data"
    if sigma is None or floor is None:
        missing = [name for name, value in (("--sigma", sigma), ("--floor", floor)) if value is None]
        raise InputError(f"--returns {path} also needs {' and '.join(missing)}: a file of numbers does not say")
    returns, what = _archived(path, arrays) if path.suffix == ".npz" else _numbers(path)
    return Episodes.from_returns(returns, sigma=sigma, floor=floor, ceiling=ceiling), what


def _recorded(
    path: Path, sigma: float | Sequence[float] | None, floor: float | None, ceiling: float | None
) -> Episodes:
    record = Episodes.load(path)
    noise = None if sigma is None else Noise.of(sigma)
    if noise is not None and record.metadata.get("features") != noise.setup.get("features"):
        raise InputError(f"{path} was run with other noise on some features than --sigma says")
    given = {"sigma": None if noise is None else noise.sigma, "floor": floor, "ceiling": ceiling}
    for name, value in given.items():
        if value is not None and value != getattr(record, name):
            raise InputError(f"{path} was run with {name} {getattr(record, name)}, got --{name} {value}")
    return record


def _numbers(path: Path) -> Found:
    """Return the numbers of a file by its suffix; standard input is recognized by how it begins."""
    if path.suffix == ".npy":
        return read_array(path), "all numbers of the array"
    if path != STANDARD_INPUT and path.suffix not in (".csv", ".txt", ".json"):
        raise InputError(f"--returns {path} must end in {KINDS}, or be - for standard input")
    with untrusted(path, "file of returns"):
        what = "file of returns"
        standard = path == STANDARD_INPUT
        content = sys.stdin.buffer.read(MOST_TEXT + 1) if standard else read_bytes(path, what, MOST_TEXT)
        check_size(path, what, len(content), MOST_TEXT)
        if content.startswith(b"\x93NUMPY"):
            return parsed_array(content), "all numbers of the array"
        text = content.decode("utf-8-sig").strip()
        if path.suffix == ".json" or (path == STANDARD_INPUT and text[:1] in ("[", "{")):
            return _of_json(path, parse_json(text.encode()))
        table = path.suffix == ".csv" or (path == STANDARD_INPUT and "," in text)
        return _of_csv(path, text) if table else _of_text(path, text)


def _archived(path: Path, arrays: dict[str, NDArray[np.float64]]) -> Found:
    """Return the only array, or the results of SB3's ``evaluations.npz`` if it holds a single evaluation."""
    if "timesteps" in arrays and "results" in arrays:
        results = arrays["results"]
        if results.ndim != 2 or len(results) != 1:
            raise InputError(
                f"{path} has evaluations at {len(results)} times of a training, each of another agent; save the "
                "returns of the one to certify, from fresh episodes with noise, with numpy.save"
            )
        return results[0], "'results' of SB3's evaluations.npz, its only evaluation"
    name = _only(path, "array", list(arrays))
    return arrays[name], f"the array {name!r}"


def _of_json(path: Path, content: object) -> Found:
    if isinstance(content, dict):
        name = _only(path, "key", [key for key, value in content.items() if isinstance(value, list)])
        return _column(path, content[name]), f"the list {name!r}"
    if not isinstance(content, list):
        raise InputError(f"{path} must hold a list of numbers, got {type(content).__name__}")
    return _column(path, content), "all numbers of the list"


def _of_text(path: Path, text: str) -> Found:
    rows = [line.split() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if len(rows) > 1 and max(map(len, rows)) > 1:
        raise InputError(f"{path} has lines of several numbers; give one return per line, or name columns in a .csv")
    return _column(path, [number for row in rows for number in row]), "all numbers of the text"


def _of_csv(path: Path, text: str) -> Found:
    """Return the column of returns: the only one, the only one with a name of returns, or SB3 Monitor's ``r``."""
    monitor = text.startswith("#{")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    rows = [[cell.strip() for cell in row] for row in csv.reader(lines)]
    if len({len(row) for row in rows}) != 1:
        raise InputError(f"{path} must have rows of equal length, at least one")
    if len(rows) == 1 and len(rows[0]) > 1 and _is_number(rows[0][0]):
        return _column(path, rows[0]), "all numbers of the only row"
    titles = None if _is_number(rows[0][0]) else rows.pop(0)
    if titles is None and len(rows[0]) > 1:
        raise InputError(f"{path} has {len(rows[0])} columns without names; which one are the returns? Keep that one")
    name = "the only column" if titles is None else _only(path, "column", titles)
    index = 0 if titles is None else titles.index(name)
    what = "the only column" if titles is None else f"the column {name!r}" + (" of SB3's Monitor" if monitor else "")
    return _column(path, [row[index] for row in rows]), what


def _only(path: Path, kind: str, names: Sequence[str]) -> str:
    """Return the name that must be meant, or say which could be."""
    candidates = names if len(names) == 1 else [name for name in names if name.lower() in NAMES]
    if len(candidates) != 1 or names.count(candidates[0]) > 1:
        listed = ", ".join(names) or "none"
        raise InputError(f"{path} must have one {kind} of returns, or one that is called 'return'; it has: {listed}")
    return candidates[0]


def _column(path: Path, values: Sequence[object]) -> NDArray[np.float64]:
    for value in values:
        if isinstance(value, bool) or not (isinstance(value, int | float) or _is_number(value)):
            raise InputError(f"{path} must hold one number per episode, got {str(value)!r:.60}")
    return np.array([float(str(value)) for value in values], dtype=np.float64)


def _is_number(value: object) -> bool:
    try:
        return isinstance(value, str) and float(value) is not None
    except ValueError:
        return False
