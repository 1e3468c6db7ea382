"""The statistics that SB3's VecNormalize saves, read as data: no code of the file or of what it names is run."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.agents.normalization import Statistics
from surefoot.errors import InputError

LARGEST_FILE = 2**28  # bytes
PACKAGES = ("stable_baselines3", "gym", "gymnasium", "numpy")
FLOATS = ("f8", "f4")


class Inert:
    """Stands for an object in a pickle: it keeps what the object would have been made from, and does nothing."""

    name = ""

    def __init__(self, *arguments: Any, **_: Any) -> None:
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Reader(pickle._Unpickler):
    """Makes inert objects of everything that a saved VecNormalize consists of, and rejects every other name.

    The reader written in Python: the one in C sets aside gigabytes where a few bytes of a file ask for it.
    """

    def find_class(self, module: str, name: str) -> Any:
        """Return an inert stand-in, never the thing itself."""
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        if module.partition(".")[0] not in PACKAGES:
            raise pickle.UnpicklingError(f"{module}.{name} has no place in saved statistics")
        return type("Inert", (Inert,), {"name": f"{module}.{name}"})


def read_statistics(path: Path) -> Statistics | None:
    """Read the file that VecNormalize saves; None if it says that observations were not normalized.

    Raises:
        InputError: If the file is something else.
    """
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise InputError(f"{path} is too large to hold statistics of observations")
        saved = _Reader(io.BytesIO(path.read_bytes())).load()
    except FileNotFoundError as error:
        raise InputError(f"no file {path}") from error
    except (OSError, InputError):
        raise
    except Exception as error:  # a hostile stream may raise anything
        raise InputError(
            f"{path} is rejected, it holds more than statistics of VecNormalize ({error}); save it again with "
            "VecNormalize.save"
        ) from error
    try:
        if saved.name != "stable_baselines3.common.vec_env.vec_normalize.VecNormalize":
            raise ValueError(f"it is of {saved.name}")
        return _statistics(saved.state, lambda record: record.state)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} does not hold the statistics of a VecNormalize: {error}") from error


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
    return float(_array(value)) if isinstance(value, Inert) else float(value)


def _array(value: Any) -> NDArray[np.float64]:
    """Return an array of floats, live or as a pickle describes it."""
    if not isinstance(value, Inert):
        return np.array(value, dtype=np.float64)
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
    if str(dtype.arguments[0]) not in FLOATS or (dtype.state is not None and dtype.state[1] not in ("<", "=")):
        raise ValueError(f"floats were expected, got {dtype.arguments[0]}")
    sides = tuple(int(side) for side in shape)
    flat = np.frombuffer(bytes(content), dtype=f"<{dtype.arguments[0]}")
    return np.reshape(flat, sides, order="F" if fortran else "C").astype(np.float64)
