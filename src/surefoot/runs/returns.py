"""Precomputed returns, read from a file as data: one number per episode, and no guessing which ones."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from surefoot.episodes import Episodes
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
from surefoot.noise import Noise

STANDARD_INPUT = Path("-")
SUFFIXES = ".npy, .npz, .csv, .txt or .json"
RETURN_NAMES = ("return", "returns", "episode_return", "episode_returns", "r")  # "reward" may be that of a step
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
    arrays: dict[str, NDArray[np.float64]] = {}
    if path.suffix == ".npz":
        arrays = read_arrays(path)
        # Surefoot's own files have a header, which says sigma, floor and ceiling itself.
        if "header" in arrays:
            return _read_episode_data(path, sigma, floor, ceiling), "the returns of Surefoot's episode data"
    missing = []
    if sigma is None:
        missing.append("sigma=")
    if floor is None:
        missing.append("floor=")
    if sigma is None or floor is None:
        raise InputError(f"{path} also needs {' and '.join(missing)}: a file of numbers does not say")
    if path.suffix == ".npz":
        returns, what = _select_array(path, arrays)
    elif path.suffix == ".npy":
        returns = read_array(path)
        what = "all numbers of the array"
    else:
        returns, what = _read_text(path)
    return Episodes.from_returns(returns, sigma=sigma, floor=floor, ceiling=ceiling), what


def _read_episode_data(
    path: Path, sigma: float | Sequence[float] | None, floor: float | None, ceiling: float | None
) -> Episodes:
    """Return a record, after comparing it with what is said about it."""
    record = Episodes.load(path)
    given = {"floor": floor, "ceiling": ceiling}
    if sigma is not None:
        noise = Noise.of(sigma)
        if record.metadata.get("sigma_per_feature") != noise.setup.get("sigma_per_feature"):
            raise InputError(f"{path} was run with other noise on some features than sigma= says")
        given["sigma"] = noise.sigma
    for name, value in given.items():
        if value is not None and value != getattr(record, name):
            raise InputError(f"{path} was run with {name} {getattr(record, name)}, got {name}={value}")
    return record


def _read_text(path: Path) -> Found:
    """Return the numbers of a text file by its suffix; standard input is recognized by how it begins."""
    what = "file of returns"
    if path != STANDARD_INPUT:
        if path.suffix not in (".csv", ".txt", ".json"):
            raise InputError(f"{path} must end in {SUFFIXES}, or be - for standard input")
        with untrusted(path, what):
            text = read_bytes(path, what, MOST_TEXT).decode("utf-8-sig").strip()
            return _parse_text(path, text, path.suffix)
    with untrusted(path, what):
        content = sys.stdin.buffer.read(MOST_TEXT + 1)
        check_size(path, what, len(content), MOST_TEXT)
        if content.startswith(b"\x93NUMPY"):
            return parsed_array(content), "all numbers of the array"
        text = content.decode("utf-8-sig").strip()
        if text[:1] in ("[", "{"):
            return _parse_text(path, text, ".json")
        if "," in text:
            return _parse_text(path, text, ".csv")
        return _parse_text(path, text, ".txt")


def _parse_text(path: Path, text: str, suffix: str) -> Found:
    if suffix == ".json":
        return _select_list(path, parse_json(text.encode()))
    if suffix == ".csv":
        return _select_column(path, text)
    return _parse_lines(path, text)


def _select_array(path: Path, arrays: dict[str, NDArray[np.float64]]) -> Found:
    """Return the only array, or the results of SB3's ``evaluations.npz`` if it holds a single evaluation."""
    if "timesteps" in arrays and "results" in arrays:
        results = arrays["results"]
        if results.ndim != 2 or len(results) != 1:
            raise InputError(
                f"{path} has evaluations at {len(results)} times of a training, each of another agent; save the "
                "returns of the one to certify, from fresh episodes with noise, with numpy.save"
            )
        return results[0], "'results' of SB3's evaluations.npz, its only evaluation"
    name = _select_name(path, "array", list(arrays))
    return arrays[name], f"the array {name!r}"


def _select_list(path: Path, content: object) -> Found:
    if isinstance(content, dict):
        # Only lists can be returns: a file may also say when and with what they were measured.
        lists = [key for key, value in content.items() if isinstance(value, list)]
        name = _select_name(path, "key", lists)
        return _checked_numbers(path, content[name]), f"the list {name!r}"
    if not isinstance(content, list):
        raise InputError(f"{path} must hold a list of numbers, got {type(content).__name__}")
    return _checked_numbers(path, content), "all numbers of the list"


def _parse_lines(path: Path, text: str) -> Found:
    words: list[str] = []
    n_lines = 0
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            words += line.split()
            n_lines += 1
    # One line of numbers is a list; several such lines may be a table, and nothing says which column is meant.
    if 1 < n_lines < len(words):
        raise InputError(f"{path} has lines of several numbers; give one return per line, or name columns in a .csv")
    return _checked_numbers(path, words), "all numbers of the text"


def _select_column(path: Path, text: str) -> Found:
    """Return the column of returns: the only one, the only one with a name of returns, or SB3 Monitor's ``r``."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    rows = []
    for cells in csv.reader(lines):
        rows.append([cell.strip() for cell in cells])
    if len(set(map(len, rows))) != 1:
        raise InputError(f"{path} must have rows of equal length, at least one")
    first = rows[0]
    if not _is_plain_number(first[0]):
        # The first row has the names of the columns.
        name = _select_name(path, "column", first)
        index = first.index(name)
        what = f"the column {name!r}"
        if text.startswith("#{"):
            what += " of SB3's Monitor"
        return _checked_numbers(path, [row[index] for row in rows[1:]]), what
    if len(rows) == 1 and len(first) > 1:
        return _checked_numbers(path, first), "all numbers of the only row"
    if len(first) > 1:
        raise InputError(f"{path} has {len(first)} columns without names; which one are the returns? Keep that one")
    return _checked_numbers(path, [row[0] for row in rows]), "the only column"


def _select_name(path: Path, kind: str, names: Sequence[str]) -> str:
    """Return the name that must be meant, or say which could be."""
    candidates = names
    if len(names) != 1:
        candidates = [name for name in names if name.lower() in RETURN_NAMES]
    if len(candidates) != 1 or names.count(candidates[0]) > 1:
        listed = ", ".join(names) or "none"
        raise InputError(f"{path} must have one {kind} of returns, or one that is called 'return'; it has: {listed}")
    return candidates[0]


def _checked_numbers(path: Path, values: Sequence[object]) -> NDArray[np.float64]:
    found = []
    for value in values:
        # True and False are numbers for Python, but hardly returns.
        if isinstance(value, bool) or not (isinstance(value, int | float) or _is_plain_number(value)):
            raise InputError(f"{path} must hold one number per episode, got {str(value)!r:.60}")
        found.append(float(str(value)))
    return np.array(found, dtype=np.float64)


def _is_plain_number(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        float(value)
    except ValueError:
        return False
    return True
