"""The statistics that SB3's VecNormalize saves, read as data: no code of the file or of what it names is run."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.agents.normalization import Statistics
from surefoot.agents.sb3.inert_pickle import Reader, array_of
from surefoot.errors import InputError
from surefoot.files import read_bytes

MOST_STATISTICS = 2**24
PICKLED_PACKAGES = ("stable_baselines3", "gym", "gymnasium", "numpy")


def read_statistics(path: Path) -> Statistics | None:
    """Read the file that VecNormalize saves; None if it says that observations were not normalized."""
    try:
        content = read_bytes(path, "file of statistics of observations", MOST_STATISTICS)
    except FileNotFoundError as error:
        raise InputError(f"no file {path}") from error
    try:
        saved = Reader(io.BytesIO(content), lambda module, _: module.partition(".")[0] in PICKLED_PACKAGES).load()
    except Exception as error:
        # A hostile stream may raise anything.
        raise InputError(
            f"{path} is rejected, it holds more than statistics of VecNormalize ({str(error)[:200]}); save it again "
            "with VecNormalize.save"
        ) from error
    try:
        if saved.name != "stable_baselines3.common.vec_env.vec_normalize.VecNormalize":
            raise ValueError(f"it is of {saved.name:.200}")
        return _read_wrapper(saved.state, lambda record: record.state)
    except InputError:
        raise
    except Exception as error:
        # What a stream describes may be anything too.
        raise InputError(f"{path} does not hold the statistics of a VecNormalize: {str(error)[:200]}") from error


def live_statistics(wrapper: Any) -> Statistics | None:
    """Return the statistics of a live VecNormalize as they are now; None if it does not normalize observations."""
    return _read_wrapper(vars(wrapper), vars)


def _read_wrapper(settings: Mapping[str, Any], parts: Callable[[Any], Mapping[str, Any]]) -> Statistics | None:
    if not settings["norm_obs"]:
        return None
    saved = settings["obs_rms"]
    epsilon = float(_read_floats(settings["epsilon"]))
    clip = float(_read_floats(settings["clip_obs"]))
    if not isinstance(saved, dict):
        mean, var = _read_moments(parts(saved))
        return Statistics(mean=mean, var=var, epsilon=epsilon, clip=clip)
    # Observations in parts: one vector, the parts in the order of the dictionary.
    sizes = []
    means = []
    variances = []
    for name, record in saved.items():
        mean, var = _read_moments(parts(record))
        sizes.append((str(name), mean.size))
        means.append(mean.ravel())
        variances.append(var.ravel())
    return Statistics(
        mean=np.concatenate(means), var=np.concatenate(variances), epsilon=epsilon, clip=clip, parts=tuple(sizes)
    )


def _read_moments(record: Mapping[str, Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    mean = _read_floats(record["mean"])
    if mean.ndim > 2:
        raise InputError("statistics of images are not supported; scale the images inside the environment instead")
    return mean, _read_floats(record["var"])


def _read_floats(value: Any) -> NDArray[np.float64]:
    """Return an array of floats, live or as a pickle describes it."""
    if isinstance(value, int | float | np.number | np.ndarray):
        return np.array(value, dtype=np.float64)
    found = array_of(value)
    if found.dtype.kind != "f":
        raise ValueError(f"floats were expected, got {found.dtype}")
    return found.astype(np.float64)
