"""The statistics that SB3's VecNormalize saves, read as data: no code of the file or of what it names is run."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.agents.normalization import Statistics
from surefoot.agents.sb3.inert_pickle import Inert, Reader
from surefoot.errors import InputError
from surefoot.files import read_bytes

MOST_BYTES = 2**24
PACKAGES = ("stable_baselines3", "gym", "gymnasium", "numpy")
FLOATS = ("f8", "f4")


def read_statistics(path: Path) -> Statistics | None:
    """Read the file that VecNormalize saves; None if it says that observations were not normalized.

    Raises:
        InputError: If the file is something else.
    """
    try:
        content = read_bytes(path, "file of statistics of observations", MOST_BYTES)
    except FileNotFoundError as error:
        raise InputError(f"no file {path}") from error
    try:
        saved = Reader(io.BytesIO(content), _is_known).load()
    except Exception as error:  # a hostile stream may raise anything
        raise InputError(
            f"{path} is rejected, it holds more than statistics of VecNormalize ({str(error)[:200]}); save it again "
            "with VecNormalize.save"
        ) from error
    try:
        if saved.name != "stable_baselines3.common.vec_env.vec_normalize.VecNormalize":
            raise ValueError(f"it is of {saved.name:.200}")
        return _statistics(saved.state, lambda record: record.state)
    except InputError:
        raise
    except Exception as error:  # and what it describes may be anything
        raise InputError(f"{path} does not hold the statistics of a VecNormalize: {str(error)[:200]}") from error


def _is_known(module: str, _: str) -> bool:
    return module.partition(".")[0] in PACKAGES


def live_statistics(wrapper: Any) -> Statistics | None:
    """Return the statistics of a live VecNormalize as they are now; None if it does not normalize observations."""
    return _statistics(vars(wrapper), vars)


def _statistics(settings: Mapping[str, Any], parts: Callable[[Any], Mapping[str, Any]]) -> Statistics | None:
    if not settings["norm_obs"]:
        return None
    saved = settings["obs_rms"]
    named = {str(name): parts(one) for name, one in saved.items()} if isinstance(saved, dict) else {"": parts(saved)}
    mean, var = ({name: _array(one[key]) for name, one in named.items()} for key in ("mean", "var"))
    if any(own.ndim > 2 for own in mean.values()):
        raise InputError("statistics of images are not supported; scale the images inside the environment instead")
    epsilon, clip = _number(settings["epsilon"]), _number(settings["clip_obs"])
    if not isinstance(saved, dict):
        return Statistics(mean=mean[""], var=var[""], epsilon=epsilon, clip=clip)
    sizes = tuple((name, own.size) for name, own in mean.items())
    flat = (np.concatenate([own.ravel() for own in kind.values()]) for kind in (mean, var))
    return Statistics(**dict(zip(("mean", "var"), flat, strict=True)), epsilon=epsilon, clip=clip, parts=sizes)


def _number(value: Any) -> float:
    return float(_array(value))


def _array(value: Any) -> NDArray[np.float64]:
    """Return an array of floats, live or as a pickle describes it."""
    if isinstance(value, int | float | np.number | np.ndarray):
        return np.array(value, dtype=np.float64)
    if not isinstance(value, Inert):  # a list or tuple of a file may have any number of ends
        raise TypeError(f"an array was expected, got a {type(value).__name__}")
    kind = value.name.rpartition(".")[2]
    if kind == "_reconstruct":  # version, shape, dtype, order, bytes
        _, shape, dtype, fortran, content = value.state
    elif kind == "scalar":
        (dtype, content), shape, fortran = value.arguments, (), False
    elif kind == "_frombuffer":
        content, dtype, shape, order = value.arguments
        fortran = order == "F"
    else:
        raise ValueError(f"an array was expected, got {value.name}")
    kind = dtype.arguments[0]
    if not isinstance(kind, str) or kind not in FLOATS:
        raise ValueError(f"floats were expected, got {kind if isinstance(kind, str) else type(kind).__name__:.40}")
    if dtype.state is not None and dtype.state[1] not in ("<", "="):
        raise ValueError("floats of this machine were expected, got others")
    if not isinstance(content, bytes | bytearray):
        raise TypeError(f"the bytes of an array were expected, got a {type(content).__name__}")
    sides = tuple(int(side) for side in shape)
    flat = np.frombuffer(bytes(content), dtype=f"<{kind}")
    return np.reshape(flat, sides, order="F" if fortran else "C").astype(np.float64)
