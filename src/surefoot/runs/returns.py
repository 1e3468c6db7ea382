"""Precomputed returns, read from a file as data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from surefoot.episodes import Episodes, Noise
from surefoot.errors import InputError


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
    try:
        # Opened here, for numpy leaves a damaged file open.
        with path.open("rb") as file:
            returns = np.load(file, allow_pickle=False)
    except FileNotFoundError as error:
        raise InputError(f"no file {path}") from error
    except (OSError, ValueError, EOFError) as error:
        # numpy takes whatever it does not know for a pickle, and advises to load it unsafely.
        reason = "no array of plain numbers" if "pickle" in str(error) else str(error).splitlines()[0]
        raise InputError(f"{path} is not a readable .npy file of numbers ({reason}); it may be truncated") from error
    if not isinstance(returns, np.ndarray):
        raise InputError(f"{path} must hold one array of returns, saved with numpy.save")
    if returns.dtype.kind not in "biuf":
        raise InputError(f"{path} must hold real numbers, got {returns.dtype}")
    return Episodes.of(returns, sigma=sigma, floor=floor, ceiling=ceiling)
