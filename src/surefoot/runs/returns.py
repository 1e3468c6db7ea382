"""Precomputed returns, read from a file as data: one number per episode, and no guessing which ones."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.episodes import LARGEST, Episodes
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
RETURN_SUFFIXES = (".npy", ".npz", ".csv", ".txt", ".json")
SUFFIXES = ".npy, .npz, .csv, .txt or .json"
SUCCESS_NAMES = ("success", "successes", "is_success")
# "reward" may be that of a step
RETURN_NAMES = ("return", "returns", "episode_return", "episode_returns", "r", *SUCCESS_NAMES)
SEED_NAMES = ("seed", "seeds", "episode_seed", "env_seed")
TRUTHS = {"true": 1.0, "false": 0.0}


@dataclass(frozen=True, eq=False)
class Found:
    """The returns of a file, what was taken for them, and the seeds of the episodes where it says them."""

    returns: NDArray[np.float64]
    what: str
    seeds: tuple[int, ...] | None = None
    only_wins: bool = False  # whether an episode is won or lost: then its return is 0 or 1


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
    """
    arrays: dict[str, NDArray[np.float64]] = {}
    if path.suffix == ".npz":
        arrays = read_arrays(path)
        # Surefoot's own files have a header, which says sigma, floor and ceiling itself.
        if "header" in arrays:
            return _read_episode_data(path, sigma, floor, ceiling), "the returns of Surefoot's episode data"
    if path.suffix == ".npz":
        found = _select_array(path, arrays)
    elif path.suffix == ".npy":
        found = Found(read_array(path), "all numbers of the array")
    else:
        found = _read_text(path)
    if found.only_wins:
        floor = 0.0 if floor is None else floor
        ceiling = 1.0 if ceiling is None else ceiling
    missing = []
    if sigma is None:
        missing.append("sigma=")
    if floor is None:
        missing.append("floor=")
    if sigma is None or floor is None:
        raise InputError(f"{path} also needs {' and '.join(missing)}: a file of numbers does not say")
    metadata: dict[str, Any] = {}
    if found.only_wins:
        metadata["binary"] = True
    if found.seeds is not None:
        _check_seeds(path, found.seeds)
        metadata["episode_seeds"] = list(found.seeds)
    return Episodes.from_returns(found.returns, sigma=sigma, floor=floor, ceiling=ceiling, **metadata), found.what


def _check_seeds(path: Path, seeds: Sequence[int]) -> None:
    """Refuse a seed that comes twice: two episodes of one seed are not independent."""
    once: set[int] = set()
    for seed in seeds:
        if seed in once:
            raise InputError(
                f"{path} has two episodes of the seed {seed}: they are not independent; keep one episode of each seed"
            )
        once.add(seed)


def read_record(
    source: object,
    *,
    floor: float | None = None,
    ceiling: float | None = None,
    only_wins: bool = False,
    unlimited: bool = False,
) -> Episodes | None:
    """Return the episodes that something names, or None if it names an agent.

    Args:
        source: Episodes, a run directory with a finished record, or a file of returns.
        floor: Lowest return that is possible, for a file that does not say it.
        ceiling: Highest return that is possible.
        only_wins: Whether only floor and ceiling can be returns.
        unlimited: Whether the limits of a file of returns may be unknown, because nothing is proved with it.
    """
    if isinstance(source, Episodes):
        return source
    if not isinstance(source, str | Path):
        return None
    path = Path(source)
    if path.is_dir():
        if (path / "episodes.npz").exists():
            return Episodes.load(path / "episodes.npz")
        if (path / "setup.json").exists():
            raise InputError(f"{path} is a run that was not finished: it has no episodes.npz; run it to its end")
        return None
    if not path.name.endswith(tuple(RETURN_SUFFIXES)):
        return None
    has_header = path.suffix == ".npz" and "header" in read_arrays(path)
    if unlimited and floor is None and not has_header:
        floor = -LARGEST
    # Without attack nothing is asked of the noise, so that a file of numbers need not say it.
    record, _ = read_returns(path, None if has_header else 0.0, floor, ceiling)
    if not only_wins:
        return record
    return replace(record, metadata={**record.metadata, "binary": True})


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
            return Found(parsed_array(content), "all numbers of the array")
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
        return Found(results[0], "'results' of SB3's evaluations.npz, its only evaluation")
    name = _select_name(path, "array", list(arrays))
    return Found(arrays[name], f"the array {name!r}")


def _select_list(path: Path, content: object) -> Found:
    if isinstance(content, dict) and ("per_episode" in content or "per_task" in content):
        return _read_lerobot(path, content)
    if isinstance(content, dict):
        # Only lists can be returns: a file may also say when and with what they were measured.
        lists = [key for key, value in content.items() if isinstance(value, list)]
        name = _select_name(path, "key", lists)
        return Found(_checked_numbers(path, content[name]), f"the list {name!r}")
    if not isinstance(content, list):
        raise InputError(f"{path} must hold a list of numbers, got {type(content).__name__}")
    return Found(_checked_numbers(path, content), "all numbers of the list")


def _read_lerobot(path: Path, content: dict[str, Any]) -> Found:
    """Return the successes of LeRobot's ``eval_info.json``: with a seed for each episode, or a list for each task."""
    what = "the successes of LeRobot's eval_info.json"
    episodes = content.get("per_episode")
    if isinstance(episodes, list):
        wins = [float(bool(episode["success"])) for episode in episodes]
        seeds = [episode.get("seed") for episode in episodes]
        known = all(isinstance(seed, int) for seed in seeds)
        return Found(np.array(wins), what, tuple(seeds) if known else None, only_wins=True)
    tasks = content["per_task"]
    if len(tasks) != 1:
        # Each task has a mean of its own: its episodes are not draws from one distribution.
        raise InputError(f"{path} has episodes of {len(tasks)} tasks, expected one; evaluate each task by itself")
    wins = [float(bool(won)) for won in tasks[0]["metrics"]["successes"]]
    return Found(np.array(wins), what, only_wins=True)


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
    return Found(_checked_numbers(path, words), "all numbers of the text")


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
        cells = [row[index] for row in rows[1:]]
        only_wins = name.lower() in SUCCESS_NAMES
        if only_wins:
            cells = [str(TRUTHS.get(cell.lower(), cell)) for cell in cells]
        return Found(_checked_numbers(path, cells), what, _select_seeds(path, rows), only_wins)
    if len(rows) == 1 and len(first) > 1:
        return Found(_checked_numbers(path, first), "all numbers of the only row")
    if len(first) > 1:
        raise InputError(f"{path} has {len(first)} columns without names; which one are the returns? Keep that one")
    return Found(_checked_numbers(path, [row[0] for row in rows]), "the only column")


def _select_seeds(path: Path, rows: list[list[str]]) -> tuple[int, ...] | None:
    """Return the column of seeds, if there is one."""
    columns = [index for index, name in enumerate(rows[0]) if name.lower() in SEED_NAMES]
    if len(columns) != 1:
        return None
    seeds = []
    for row in rows[1:]:
        cell = row[columns[0]]
        if not (cell.isascii() and cell.isdecimal()):
            raise InputError(f"{path} must have a whole number as the seed of each episode, got {cell!r:.60}")
        seeds.append(int(cell))
    return tuple(seeds)


def _select_name(path: Path, kind: str, names: Sequence[str]) -> str:
    """Return the name that must be meant, or say which could be."""
    candidates = names
    if len(names) != 1:
        candidates = [name for name in names if name.lower() in RETURN_NAMES]
    if len(candidates) != 1:
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
