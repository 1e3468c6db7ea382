"""The pickled settings of an SB3 model file, read as data: what they would make is described, and nothing is made.

SB3 stores a setting that is not JSON twice: printed, which ``settings`` reads, and as a pickle, which SB3 loads. A file
in which they differ would be two agents under one hash, so both are read, and must agree.
"""

from __future__ import annotations

import base64
import json
import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.agents.sb3.settings import SPACES, Facts, PartSizes, UnreadableError
from surefoot.errors import InputError

# Opcodes of one pickle; those of SB3 have some hundreds.
MOST_OPCODES = 100_000
# Values of one setting: a few bytes of a pickle may repeat a list without end.
MOST_VALUES = 10_000
DEEPEST_SETTING = 20
NUMBER_TYPES = {
    "f2": "float16",
    "f4": "float32",
    "f8": "float64",
    "u1": "uint8",
    "i1": "int8",
    "i4": "int32",
    "i8": "int64",
}
# What a pickle of these settings calls. None of it changes anything but what it makes.
CALLED = {
    # Before numpy 2.0, and since.
    "numpy.core.multiarray": ("_reconstruct", "scalar"),
    "numpy.core.numeric": ("_frombuffer",),
    "numpy._core.multiarray": ("_reconstruct", "scalar"),
    "numpy._core.numeric": ("_frombuffer",),
    "numpy": ("dtype",),
    "torch": ("device",),
    "collections": ("OrderedDict",),
    "gym.utils.seeding": ("RandomNumberGenerator", "RandomNumberGenerator._generator_ctor"),
}
RANDOM_MODULE = "numpy.random."
# Settings that do not change the deterministic action, whatever they are.
IGNORED = frozenset(
    ("optimizer_class", "optimizer_kwargs", "log_std_init", "ortho_init", "full_std", "use_expln", "n_critics")
) | {"device"}


@dataclass(frozen=True)
class Reference:
    """A name in a module."""

    module: str
    name: str

    def __str__(self) -> str:
        """Return what Python prints for a class of this name."""
        return f"<class '{self.module}.{self.name}'>"


@dataclass(eq=False)
class Made:
    """What a call would make: by what, from what, the state it would get, and what would be put into it."""

    by: Reference
    arguments: Any
    state: Any = None
    items: dict[str, Any] = field(default_factory=dict)


def check_pickled(data: Mapping[str, Any], facts: Facts) -> Facts:
    """Check that the pickled settings are those that were printed.

    Args:
        data: The settings of a model file.
        facts: What they print.

    Returns:
        The facts, with the bounds of actions where they were printed too coarsely.

    Raises:
        InputError: If the two differ.
        UnreadableError: If a pickle cannot be read as data.
    """
    try:
        return _check_all(data, facts)
    except (InputError, UnreadableError):
        raise
    except Exception as error:
        # A hostile description may have anything anywhere.
        raise UnreadableError("its pickled settings are damaged") from error


def _check_all(data: Mapping[str, Any], facts: Facts) -> Facts:
    own = _describe_setting(data, "policy_class")
    if not isinstance(own, Reference) or not own.name.endswith("Policy"):
        raise UnreadableError(f"its policy class, of {facts.module}, is not stored by its name")
    _check_same("policy_class", facts.module, own.module)
    _check_same("use_sde", facts.state_noise, data.get("use_sde", False))
    _check_observations(_pickled_space(data, "observation_space"), facts)
    _check_policy_kwargs(data, facts)
    return _check_actions(_pickled_space(data, "action_space"), facts)


def _check_same(name: str, printed: Any, pickled: Any) -> None:
    if printed != pickled or type(printed) is not type(pickled):
        raise InputError(
            f"the model's {name} is printed as {str(printed)[:80]} and stored as {str(pickled)[:80]}, which "
            "Stable-Baselines3 would load: the file is two agents; ask its author to save it again"
        )


# --- policy_kwargs --------------------------------------------------------------------------------------------------


def _check_policy_kwargs(data: Mapping[str, Any], facts: Facts) -> None:
    if ":serialized:" not in data["policy_kwargs"]:
        # Plain JSON is stored once: there is nothing to compare.
        return
    pickled = _describe_setting(data, "policy_kwargs")
    if not isinstance(pickled, dict):
        raise UnreadableError("its pickled policy_kwargs are not a dictionary")
    printed = {name: value for name, value in facts.settings.items() if name not in (":type:", ":serialized:")}
    _check_same("list of policy_kwargs", sorted(printed), sorted(pickled))
    for name in sorted(set(printed) - IGNORED):
        own = pickled[name]
        if isinstance(own, Reference):
            stored = str(own)
        else:
            stored = _as_text(_copy_plain(own, name))
        _check_same(name, _as_text(printed[name]), stored)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


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
        if isinstance(one, dict):
            return {key: copy_part(part, depth + 1) for key, part in one.items()}
        if one is None or isinstance(one, bool | str | float) or (isinstance(one, int) and abs(one) < 2**63):
            return one
        raise UnreadableError(f"its pickled {name} is not made of plain values")

    return copy_part(value, 0)


# --- spaces ---------------------------------------------------------------------------------------------------------


def _check_observations(space: Made, facts: Facts) -> None:
    kind = _pickled_kind(space)
    if kind == "Dict":
        _check_same("observation_space", facts.parts, _pickled_parts(space.state))
        return
    _check_same("kind of observations", facts.parts, None)
    if kind != "Box":
        _check_same("number of observations", facts.shape, (_pickled_count(space),))
        return
    _check_same("shape of observations", facts.shape, _pickled_shape(space.state))
    dtype = _pickled_dtype(space.state.get("dtype"))
    if facts.pixels:
        _check_same("dtype of observations", "uint8", dtype)
    elif dtype not in ("float32", "float64"):
        _check_same("dtype of observations", "float32", dtype)


def _check_actions(space: Made, facts: Facts) -> Facts:
    kind = _pickled_kind(space)
    state = space.state
    if kind == "Discrete":
        _check_same("number of actions", (facts.n_actions, facts.factors), (_pickled_count(space), None))
        return facts
    if kind == "MultiBinary":
        _check_same("parts of actions", (facts.factors, facts.binary), ((2,) * prod(_pickled_shape(state)), True))
        return facts
    if kind == "MultiDiscrete":
        counts = tuple(map(int, _pickled_array(state["nvec"]).ravel()))
        _check_same("parts of actions", (facts.factors, facts.binary), (counts, False))
        if "start" in state and _pickled_array(state["start"]).any():
            raise UnreadableError("the parts of its actions do not all start at 0")
        return facts
    _check_same("kind of actions", facts.n_actions, None)
    _check_same("shape of actions", (facts.width,), _pickled_shape(state))
    low = _pickled_array(state["low"]).astype(np.float32)
    high = _pickled_array(state["high"]).astype(np.float32)
    if low.shape != (facts.width,) or high.shape != (facts.width,):
        raise UnreadableError("the bounds of its actions do not have their shape")
    if facts.limits is not None:
        printed_low, printed_high = facts.limits
        _check_same("lowest actions", printed_low.tolist(), low.tolist())
        _check_same("highest actions", printed_high.tolist(), high.tolist())
    return replace(facts, limits=(low.copy(), high.copy()))


def _pickled_space(data: Mapping[str, Any], name: str) -> Made:
    found = _describe_setting(data, name)
    if not isinstance(found, Made) or _pickled_kind(found) is None:
        raise UnreadableError(f"its pickled {name} is not a space of Gymnasium")
    _check_same(f"kind of {name}", SPACES.get(str(data[name].get(":type:"))), _pickled_kind(found))
    return found


def _pickled_kind(space: Any) -> str | None:
    """Return what kind of space would be made, None if none: it is made empty and gets all from its state."""
    if not isinstance(space, Made) or space.arguments != () or not isinstance(space.state, dict):
        return None
    return SPACES.get(str(space.by))


def _pickled_shape(state: Mapping[str, Any]) -> tuple[int, ...]:
    if "shape" in state and "_shape" in state:
        raise UnreadableError("a pickled space has two shapes")
    sides = state.get("_shape", state.get("shape"))
    if not isinstance(sides, tuple) or not all(type(side) is int and 0 < side < 2**31 for side in sides):
        raise UnreadableError("a pickled space has no plain shape")
    return sides


def _pickled_count(space: Made) -> int:
    if _pickled_kind(space) != "Discrete":
        raise UnreadableError(f"a pickled space is a {_pickled_kind(space)}, expected Discrete")
    if _pickled_integer(space.state.get("start", 0)) != 0:
        raise UnreadableError("a pickled space does not start at 0")
    return _pickled_integer(space.state.get("n"))


def _pickled_parts(state: Mapping[str, Any]) -> PartSizes:
    """Return name and size of each part of a dictionary of vectors, in the order that it has in the pickle."""
    spaces = state.get("spaces")
    if isinstance(spaces, Made) and spaces.by.name == "OrderedDict":
        spaces = spaces.items
    if not isinstance(spaces, dict):
        raise UnreadableError("the parts of its pickled observations are not a dictionary")
    return tuple((name, _pickled_size(space)) for name, space in spaces.items())


def _pickled_size(space: Any) -> int:
    kind = _pickled_kind(space)
    if kind == "Box" and _pickled_dtype(space.state.get("dtype")) in ("float32", "float64"):
        return prod(_pickled_shape(space.state))
    if kind == "Discrete":
        return _pickled_count(space)
    if kind == "MultiBinary":
        return prod(_pickled_shape(space.state))
    if kind == "MultiDiscrete":
        return int(_pickled_array(space.state["nvec"]).sum())
    raise UnreadableError("a part of its pickled observations is not a vector")


def _pickled_integer(value: Any) -> int:
    if type(value) is int:
        return value
    found = _pickled_array(value)
    if found.shape != () or not np.issubdtype(found.dtype, np.integer):
        raise UnreadableError("a pickled number is not a whole one")
    return int(found)


def _pickled_array(value: Any) -> NDArray[Any]:
    """Return the array or the number of numpy that would be made."""
    if not isinstance(value, Made):
        raise UnreadableError("a pickled array is something else")
    if value.by.name == "_reconstruct":
        _, shape, dtype, fortran, content = value.state
    elif value.by.name == "_frombuffer" and value.state is None:
        content, dtype, shape, order = value.arguments
        fortran = order == "F"
    elif value.by.name == "scalar" and value.state is None:
        dtype, content = value.arguments
        shape = ()
        fortran = False
    else:
        raise UnreadableError("a pickled array is something else")
    flat = np.frombuffer(bytes(content), dtype=_pickled_dtype(dtype))
    return flat.reshape(tuple(map(int, shape)), order="F" if fortran else "C")


def _pickled_dtype(value: Any) -> str:
    """Return the name of a type of numpy that would be made."""
    if not isinstance(value, Made) or (value.by.module, value.by.name) != ("numpy", "dtype"):
        raise UnreadableError("a pickled type of numbers is something else")
    name = NUMBER_TYPES.get(str(value.arguments[0])[:80])
    # version, order of bytes, and of types with parts: these
    if name is None or value.state is None or value.state[1] not in ("<", "=", "|") or any(value.state[2:5]):
        raise UnreadableError(f"a pickled type of numbers is {str(value.arguments[0])[:80]}")
    return name


# --- pickles --------------------------------------------------------------------------------------------------------


def _describe_setting(data: Mapping[str, Any], name: str) -> Any:
    """Return what the pickle of a setting would make."""
    entry = data.get(name)
    if not isinstance(entry, dict) or not isinstance(entry.get(":serialized:"), str):
        raise UnreadableError(f"its {name} is not stored as SB3 does")
    try:
        return _Description().describe_pickle(base64.b64decode(entry[":serialized:"].encode()))
    except UnreadableError as error:
        raise UnreadableError(f"its pickled {name} {error}") from error
    except Exception as error:
        # A hostile stream may raise anything.
        raise UnreadableError(f"its pickled {name} is damaged") from error


class _Description:
    """A machine for pickles that calls nothing: calls become descriptions of what they would make."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def describe_pickle(self, content: bytes) -> Any:
        """Return the description of what a pickle makes."""
        for opcode, argument, _ in islice(pickletools.genops(content), MOST_OPCODES):
            name = opcode.name
            if name == "STOP":
                (made,) = self.stack
                return made
            if name in CONSTANTS:
                self.stack.append(CONSTANTS[name])
            elif name in VALUES:
                self.stack.append(argument)
            elif name in PICKLE_STEPS:
                PICKLE_STEPS[name](self, argument)
            elif name not in ("PROTO", "FRAME"):
                raise UnreadableError(f"has the opcode {name}, which SB3 does not write")
        raise UnreadableError(f"has more than {MOST_OPCODES} opcodes")

    def take_since_mark(self) -> list[Any]:
        """Take everything off the stack that came after the last mark."""
        begin = self.marks.pop()
        found = self.stack[begin:]
        del self.stack[begin:]
        return found

    def make_tuple(self, count: int) -> None:
        """Make a tuple of the last values."""
        parts = tuple(self.stack[len(self.stack) - count :])
        del self.stack[len(self.stack) - count :]
        self.stack.append(parts)

    def append_values(self, values: list[Any]) -> None:
        """Add values to the list before them."""
        target = self.stack[-1]
        if not isinstance(target, list):
            raise UnreadableError("adds values to what is not a list")
        target.extend(values)

    def set_items(self, values: list[Any]) -> None:
        """Add pairs to the dictionary before them; other keys than names could take any time to compare."""
        items = self.stack[-1]
        if isinstance(items, Made) and items.by.name == "OrderedDict":
            items = items.items
        if not isinstance(items, dict) or not all(isinstance(key, str) for key in values[::2]):
            raise UnreadableError("has a dictionary that is not one of names")
        items.update(zip(values[::2], values[1::2], strict=True))

    def add_reference(self, module: Any, name: Any) -> None:
        """Name something in a module."""
        if not isinstance(module, str) or not isinstance(name, str):
            raise UnreadableError("names something by what is not a name")
        self.stack.append(Reference(module, name))

    def describe_call(self) -> None:
        """Describe a call."""
        arguments = self.stack.pop()
        by = self.stack.pop()
        if not isinstance(by, Reference):
            raise UnreadableError("calls something, which has no place in it")
        known = (
            str(by) in SPACES
            or by.name in CALLED.get(by.module, ())
            or (by.module.startswith(RANDOM_MODULE) and by.name.isidentifier())
        )
        if not known or not isinstance(arguments, tuple) or (by.name == "OrderedDict" and arguments):
            called = f"{by.module}.{by.name}"[:80]
            raise UnreadableError(f"calls {called}, which has no place in it")
        self.stack.append(Made(by, arguments))

    def set_state(self) -> None:
        """Give the object before it its state."""
        state = self.stack.pop()
        target = self.stack[-1]
        if not isinstance(target, Made) or target.state is not None or state is None:
            raise UnreadableError("gives a state to what has one, or can have none")
        target.state = state

    def keep_in_memo(self, place: int | None) -> None:
        """Keep the last value for later."""
        if place is None:
            place = len(self.memo)
        self.memo[place] = self.stack[-1]


PickleStep = Callable[[_Description, Any], object]
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
VALUES = frozenset(
    (
        *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT"),
        *("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
        *("SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    )
)
PICKLE_STEPS: dict[str, PickleStep] = {
    "MARK": lambda own, _: own.marks.append(len(own.stack)),
    "EMPTY_LIST": lambda own, _: own.stack.append([]),
    "EMPTY_DICT": lambda own, _: own.stack.append({}),
    "APPEND": lambda own, _: own.append_values([own.stack.pop()]),
    "APPENDS": lambda own, _: own.append_values(own.take_since_mark()),
    "SETITEM": lambda own, _: own.set_items([own.stack.pop(-2), own.stack.pop()]),
    "SETITEMS": lambda own, _: own.set_items(own.take_since_mark()),
    "TUPLE": lambda own, _: own.stack.append(tuple(own.take_since_mark())),
    **{f"TUPLE{count}": lambda own, _, count=count: own.make_tuple(count) for count in (1, 2, 3)},  # type: ignore[misc]
    "GLOBAL": lambda own, argument: own.add_reference(*argument.split(" ")),
    "STACK_GLOBAL": lambda own, _: own.add_reference(own.stack.pop(-2), own.stack.pop()),
    "REDUCE": lambda own, _: own.describe_call(),
    "NEWOBJ": lambda own, _: own.describe_call(),
    "BUILD": lambda own, _: own.set_state(),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _Description.keep_in_memo),
    "MEMOIZE": lambda own, _: own.keep_in_memo(None),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda own, argument: own.stack.append(own.memo[argument])),
}
