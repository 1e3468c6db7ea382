"""What the settings of an SB3 model file say: read from the pickles that SB3 itself would load, without a call.

SB3 prints every setting next to its pickle. The print is for people: what SB3 makes of a file, and what is certified,
follows from the pickles alone.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from surefoot.agents.sb3.inert_pickle import Inert, Reader, array_of, dtype_of, is_name
from surefoot.agents.sb3.settings import (
    MOST_IN_SPACE,
    Facts,
    PartSizes,
    UnreadableError,
    facts_of_action_parts,
)
from surefoot.errors import InputError

# Values of one setting: a few bytes of a pickle may repeat a list without end.
MOST_VALUES = 10_000
DEEPEST_SETTING = 20
# What a pickle of these settings calls, besides spaces. None of it changes anything but what it makes.
CALLED = {
    # Before numpy 2.0, and since.
    "numpy.core.multiarray": ("_reconstruct", "scalar"),
    "numpy.core.numeric": ("_frombuffer",),
    "numpy._core.multiarray": ("_reconstruct", "scalar"),
    "numpy._core.numeric": ("_frombuffer",),
    "numpy": ("dtype",),
    "torch": ("device",),
    "gym.utils.seeding": ("RandomNumberGenerator", "RandomNumberGenerator._generator_ctor"),
}
SPACES = {
    "spaces.box.Box": "Box",
    "spaces.discrete.Discrete": "Discrete",
    "spaces.dict.Dict": "Dict",
    "spaces.multi_discrete.MultiDiscrete": "MultiDiscrete",
    "spaces.multi_binary.MultiBinary": "MultiBinary",
}
CALLED_PACKAGES = ("numpy.random.", "gymnasium.spaces.", "gym.spaces.")
# Settings that do not change the deterministic action, whatever they are.
IGNORED = frozenset(
    ("optimizer_class", "optimizer_kwargs", "log_std_init", "ortho_init", "full_std", "use_expln", "n_critics")
) | {"device"}


def facts_of_file(data: Mapping[str, Any]) -> Facts:
    """Return what the settings of a model file say.

    Raises:
        InputError: If the model has other spaces than can be read here.
        UnreadableError: If a pickle cannot be read as data.
    """
    try:
        return _facts_of_pickles(data)
    except (InputError, UnreadableError):
        raise
    except Exception as error:
        # A hostile description may have anything anywhere.
        raise UnreadableError("its pickled settings are damaged") from error


def _facts_of_pickles(data: Mapping[str, Any]) -> Facts:
    policy = _read_setting(data, "policy_class")
    if not is_name(policy) or not policy.name.endswith("Policy"):
        raise UnreadableError("its policy class is not stored by its name")
    state_noise = data.get("use_sde", False)
    if not isinstance(state_noise, bool):
        raise UnreadableError("its use_sde is not stored as a plain value")
    return Facts(
        module=policy.name.rpartition(".")[0],
        settings=_read_policy_kwargs(data),
        state_noise=state_noise,
        **_read_observations(_read_setting(data, "observation_space")),
        **_read_actions(_read_setting(data, "action_space")),
    )


def _read_policy_kwargs(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the policy as JSON would have them, classes as Python prints them."""
    entry = data.get("policy_kwargs")
    if isinstance(entry, dict) and ":serialized:" not in entry:
        # Plain JSON is stored once.
        return entry
    pickled = _read_setting(data, "policy_kwargs")
    if not isinstance(pickled, dict):
        raise UnreadableError("its pickled policy_kwargs are not a dictionary")
    settings: dict[str, Any] = {}
    for name, value in pickled.items():
        if name in IGNORED:
            settings[name] = None
        elif is_name(value):
            settings[name] = f"<class '{value.name}'>"
        else:
            settings[name] = _copy_plain(value, name)
    return settings


def _copy_plain(value: Any, name: str) -> Any:
    """Return what JSON would make of a value, or say that it is not a plain one."""
    left = MOST_VALUES

    def copy_part(one: Any, depth: int) -> Any:
        nonlocal left
        left -= 1
        if left < 0 or depth > DEEPEST_SETTING:
            raise UnreadableError(f"its pickled {name} has too many parts")
        if isinstance(one, list | tuple):
            return [copy_part(part, depth + 1) for part in one]
        if type(one) is dict:
            return {key: copy_part(part, depth + 1) for key, part in one.items()}
        if one is None or isinstance(one, bool | str | float) or (isinstance(one, int) and abs(one) < 2**63):
            return one
        raise UnreadableError(f"its pickled {name} is not made of plain values")

    return copy_part(value, 0)


def _read_observations(space: Any) -> dict[str, Any]:
    """Return what ``Facts`` says of observations."""
    kind = _kind_of(space)
    if kind == "Dict":
        parts = _read_parts(space.state)
        return {"shape": (sum(size for _, size in parts),), "parts": parts}
    if kind == "Discrete":
        return {"shape": (_read_count(space),)}
    if kind != "Box":
        raise InputError(f"the model's observations are {_describe(space)}, expected a Box or a Dict")
    dtype = dtype_of(space.state.get("dtype"))
    if dtype not in ("uint8", "float32", "float64"):
        raise UnreadableError(f"its observations are {dtype} (an image?), expected floats")
    return {"shape": _read_shape(space.state), "pixels": dtype == "uint8"}


def _read_actions(space: Any) -> dict[str, Any]:
    """Return what ``Facts`` says of actions."""
    kind = _kind_of(space)
    if kind == "Discrete":
        n_actions = _read_count(space)
        return {"n_actions": n_actions, "width": n_actions, "limits": None}
    if kind == "MultiBinary":
        return facts_of_action_parts([2] * prod(_read_shape(space.state)), binary=True)
    if kind == "MultiDiscrete":
        counts = array_of(space.state["nvec"]).ravel().tolist()
        if not counts or min(counts) < 1 or ("start" in space.state and array_of(space.state["start"]).any()):
            raise UnreadableError("the parts of its actions do not all start at 0")
        return facts_of_action_parts(counts, binary=False)
    if kind != "Box" or len(_read_shape(space.state)) != 1:
        raise InputError(f"the model's actions are {_describe(space)}, expected Discrete or a one-dimensional Box")
    (width,) = _read_shape(space.state)
    low = array_of(space.state["low"]).astype(np.float32)
    high = array_of(space.state["high"]).astype(np.float32)
    if low.shape != (width,) or high.shape != (width,):
        raise UnreadableError("the bounds of its actions do not have their shape")
    return {"n_actions": None, "width": width, "limits": (low, high)}


def _kind_of(space: Any) -> str | None:
    """Return what kind of space would be made, None if none: it is made empty and gets all from its state."""
    if not isinstance(space, Inert) or space.arguments != () or not isinstance(space.state, dict):
        return None
    library, _, name = space.name.partition(".")
    # Models of before 2023 name the spaces of gym.
    return SPACES.get(name) if library in ("gymnasium", "gym") else None


def _describe(space: Any) -> str:
    if isinstance(space, Inert):
        return f"{space.name:.80}"
    return f"a {type(space).__name__}"


def _read_shape(state: Mapping[str, Any]) -> tuple[int, ...]:
    if "shape" in state and "_shape" in state:
        raise UnreadableError("a space has two shapes")
    sides = state.get("_shape", state.get("shape"))
    if not isinstance(sides, tuple) or not all(type(side) is int and side > 0 for side in sides):
        raise UnreadableError("a space has no plain shape")
    if prod(sides) > MOST_IN_SPACE:
        raise UnreadableError(f"its observations or actions have more than {MOST_IN_SPACE:,} numbers")
    return sides


def _read_count(space: Inert) -> int:
    count = _read_integer(space.state.get("n"))
    start = _read_integer(space.state.get("start", 0))
    if count < 1 or start != 0:
        raise UnreadableError(f"its {count} actions start at {start}, expected 0")
    return count


def _read_parts(state: Mapping[str, Any]) -> PartSizes:
    """Return name and size of each part of a dictionary of vectors, in the order that it has in the pickle."""
    spaces = state.get("spaces")
    if not isinstance(spaces, dict) or not spaces:
        raise UnreadableError("the parts of its observations are not a dictionary")
    return tuple((name, _read_size(space)) for name, space in spaces.items())


def _read_size(space: Any) -> int:
    """Return how many numbers a part has in the vector."""
    kind = _kind_of(space)
    if kind == "Box" and dtype_of(space.state.get("dtype")) in ("float32", "float64"):
        return prod(_read_shape(space.state))
    if kind == "Discrete":
        return _read_count(space)
    if kind == "MultiBinary":
        return prod(_read_shape(space.state))
    if kind == "MultiDiscrete":
        return int(array_of(space.state["nvec"]).sum())
    raise UnreadableError("a part of its observations is not a vector")


def _read_integer(value: Any) -> int:
    if type(value) is int:
        return value
    found = array_of(value)
    if found.shape != () or not np.issubdtype(found.dtype, np.integer):
        raise UnreadableError("a number is not a whole one")
    return int(found)


def _read_setting(data: Mapping[str, Any], name: str) -> Any:
    """Return what the pickle of a setting would make, as inert objects."""
    entry = data.get(name)
    if not isinstance(entry, dict) or not isinstance(entry.get(":serialized:"), str):
        raise UnreadableError(f"its {name} is not stored as SB3 does")
    try:
        return Reader(io.BytesIO(base64.b64decode(entry[":serialized:"].encode())), _may_be_called).load()
    except Exception as error:
        # A hostile stream may raise anything.
        raise UnreadableError(f"its pickled {name} is rejected: {str(error)[:200] or 'it is damaged'}") from error


def _may_be_called(module: str, name: str) -> bool:
    return name in CALLED.get(module, ()) or (module.startswith(CALLED_PACKAGES) and name.isidentifier())
