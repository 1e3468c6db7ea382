"""Precomputed returns, read from a file as data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from surefoot.episodes import Episodes, Noise
from surefoot.errors import InputError
from surefoot.files import read_array


def read_returns(
    path: Path, sigma: float | Sequence[float] | None, floor: float | None, ceiling: float | None
) -> Episodes:
    """Read returns from ``.npy`` (sigma and floor must be given) or episode data that Surefoot wrote (``.npz``)."""
    if path.suffix == ".npz":
        record = Episodes.load(path)
        noise = None if sigma is None else Noise.of(sigma)
        if noise is not None and record.facts.get("features") != noise.setup.get("features"):
            raise InputError(f"{path} was run with other noise on some features than --sigma says")
        given = {"sigma": None if noise is None else noise.sigma, "floor": floor, "ceiling": ceiling}
        for name, value in given.items():
            if value is not None and value != getattr(record, name):
                raise InputError(f"{path} was run with {name} {getattr(record, name)}, got --{name} {value}")
        return record
    if sigma is None or floor is None:
        raise InputError(f"--returns {path} needs --sigma and --floor: a file of numbers does not contain them")
    returns = read_array(path)
    return Episodes.from_returns(returns, sigma=sigma, floor=floor, ceiling=ceiling)
