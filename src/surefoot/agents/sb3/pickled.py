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

from surefoot.agents.sb3.settings import SPACES, Facts, Limits, Parts, UnreadableError
from surefoot.errors import InputError

MOST_OPCODES = 100_000  # of one pickle; those of SB3 have some hundreds
MOST_VALUES = 10_000  # of one setting: a few bytes of a pickle may repeat a list without end
DEEPEST = 20
TYPES = {"f2": "float16", "f4": "float32", "f8": "float64", "u1": "uint8", "i1": "int8", "i4": "int32", "i8": "int64"}
NUMPY = tuple(f"numpy.{core}" for core in ("core", "_core"))  # before and since 2.0
ARRAYS: dict[str, tuple[str, ...]] = {f"{core}.multiarray": ("_reconstruct", "scalar") for core in NUMPY}
ARRAYS |= {f"{core}.numeric": ("_frombuffer",) for core in NUMPY}
# What a pickle of these settings calls. None of it changes anything but what it makes.
CALLED = {
    **ARRAYS,
    "numpy": ("dtype",),
    "torch": ("device",),
    "collections": ("OrderedDict",),
    "gym.utils.seeding": ("RandomNumberGenerator", "RandomNumberGenerator._generator_ctor"),
}
RANDOM = "numpy.random."
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
        return _checked(data, facts)
    except (InputError, UnreadableError):
        raise
    except Exception as error:  # a hostile description may have anything anywhere
        raise UnreadableError("its pickled settings are damaged") from error


def _checked(data: Mapping[str, Any], facts: Facts) -> Facts:
    own = _described(data, "policy_class")
    if not isinstance(own, Reference) or not own.name.endswith("Policy"):
        raise UnreadableError(f"its policy class, of {facts.module}, is not stored by its name")
    _same("policy_class", facts.module, own.module)
    _same("use_sde", facts.state_noise, data.get("use_sde", False))
    _check_observations(_space(data, "observation_space"), facts)
    _check_settings(data, facts)
    return _check_actions(_space(data, "action_space"), facts)


def _same(name: str, printed: Any, pickled: Any) -> None:
    if printed != pickled or type(printed) is not type(pickled):
        raise InputError(
            f"the model's {name} is printed as {str(printed)[:80]} and stored as {str(pickled)[:80]}, which "
            "Stable-Baselines3 would load: the file is two agents; ask its author to save it again"
        )


# --- policy_kwargs --------------------------------------------------------------------------------------------------


def _check_settings(data: Mapping[str, Any], facts: Facts) -> None:
    if ":serialized:" not in data["policy_kwargs"]:
        return  # plain JSON, stored once
    pickled = _described(data, "policy_kwargs")
    if not isinstance(pickled, dict):
        raise UnreadableError("its pickled policy_kwargs are not a dictionary")
    printed = {name: value for name, value in facts.settings.items() if name not in (":type:", ":serialized:")}
    _same("list of policy_kwargs", sorted(printed), sorted(pickled))
    for name in sorted(set(printed) - IGNORED):
        own = pickled[name]
        _same(name, _text(printed[name]), str(own) if isinstance(own, Reference) else _text(_plain(own, name)))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _plain(value: Any, name: str) -> Any:
    """Return what JSON would make of a value, or say that it is not a plain one."""
    left = MOST_VALUES

    def copied(one: Any, depth: int) -> Any:
        nonlocal left
        left -= 1
        if left < 0 or depth > DEEPEST:
            raise UnreadableError(f"its pickled {name} has too many parts")
        if isinstance(one, list | tuple):
            return [copied(part, depth + 1) for part in one]
        if isinstance(one, dict):
            return {key: copied(part, depth + 1) for key, part in one.items()}
        if one is None or isinstance(one, bool | str | float) or (isinstance(one, int) and abs(one) < 2**63):
            return one
        raise UnreadableError(f"its pickled {name} is not made of plain values")

    return copied(value, 0)


# --- spaces ---------------------------------------------------------------------------------------------------------


def _check_observations(space: Made, facts: Facts) -> None:
    kind, state = _kind(space), space.state
    if kind == "Dict":
        _same("observation_space", facts.parts, _parts(state))
        return
    _same("kind of observations", facts.parts, None)
    if kind == "Box":
        _same("shape of observations", facts.shape, _shape(state))
        if _dtype(state.get("dtype")) not in (("uint8",) if facts.pixels else ("float32", "float64")):
            _same("dtype of observations", "uint8" if facts.pixels else "float32", _dtype(state.get("dtype")))
    else:
        _same("number of observations", facts.shape, (_count(space),))


def _check_actions(space: Made, facts: Facts) -> Facts:
    kind, state = _kind(space), space.state
    if kind == "Discrete":
        _same("number of actions", (facts.n_actions, facts.factors), (_count(space), None))
        return facts
    if kind == "MultiBinary":
        _same("parts of actions", (facts.factors, facts.binary), ((2,) * prod(_shape(state)), True))
        return facts
    if kind == "MultiDiscrete":
        counts = tuple(int(count) for count in _array(state["nvec"]).ravel())
        _same("parts of actions", (facts.factors, facts.binary), (counts, False))
        if "start" in state and _array(state["start"]).any():
            raise UnreadableError("the parts of its actions do not all start at 0")
        return facts
    _same("kind of actions", facts.n_actions, None)
    _same("shape of actions", (facts.width,), _shape(state))
    limits = (_array(state["low"]).astype(np.float32), _array(state["high"]).astype(np.float32))
    if any(one.shape != (facts.width,) for one in limits):
        raise UnreadableError("the bounds of its actions do not have their shape")
    for name, printed, pickled in zip(("lowest", "highest"), facts.limits or limits, limits, strict=True):
        _same(f"{name} actions", printed.tolist(), pickled.tolist())
    return replace(facts, limits=_limits(*limits))


def _limits(low: NDArray[np.float32], high: NDArray[np.float32]) -> Limits:
    return low.copy(), high.copy()


def _space(data: Mapping[str, Any], name: str) -> Made:
    found = _described(data, name)
    if not isinstance(found, Made) or _kind(found) is None:
        raise UnreadableError(f"its pickled {name} is not a space of Gymnasium")
    _same(f"kind of {name}", SPACES.get(str(data[name].get(":type:"))), _kind(found))
    return found


def _kind(space: Any) -> str | None:
    """Return what kind of space would be made, None if none: it is made empty and gets all from its state."""
    if not isinstance(space, Made) or space.arguments != () or not isinstance(space.state, dict):
        return None
    return SPACES.get(str(space.by))


def _shape(state: Mapping[str, Any]) -> tuple[int, ...]:
    if "shape" in state and "_shape" in state:
        raise UnreadableError("a pickled space has two shapes")
    sides = state.get("_shape", state.get("shape"))
    if not isinstance(sides, tuple) or not all(type(side) is int and 0 < side < 2**31 for side in sides):
        raise UnreadableError("a pickled space has no plain shape")
    return sides


def _count(space: Made) -> int:
    if _kind(space) != "Discrete":
        raise UnreadableError(f"a pickled space is a {_kind(space)}, expected Discrete")
    if _integer(space.state.get("start", 0)) != 0:
        raise UnreadableError("a pickled space does not start at 0")
    return _integer(space.state.get("n"))


def _parts(state: Mapping[str, Any]) -> Parts:
    """Return name and size of each part of a dictionary of vectors, in the order that it has in the pickle."""
    spaces = state.get("spaces")
    if isinstance(spaces, Made):  # an OrderedDict
        spaces = spaces.items if spaces.by.name == "OrderedDict" else None
    if not isinstance(spaces, dict):
        raise UnreadableError("the parts of its pickled observations are not a dictionary")
    return tuple((name, _size(space)) for name, space in spaces.items())


def _size(space: Any) -> int:
    kind = _kind(space)
    if kind == "Box" and _dtype(space.state.get("dtype")) in ("float32", "float64"):
        return prod(_shape(space.state))
    if kind == "Discrete":
        return _count(space)
    if kind == "MultiBinary":
        return prod(_shape(space.state))
    if kind == "MultiDiscrete":
        return int(_array(space.state["nvec"]).sum())
    raise UnreadableError("a part of its pickled observations is not a vector")


def _integer(value: Any) -> int:
    if type(value) is int:
        return value
    found = _array(value)
    if found.shape != () or not np.issubdtype(found.dtype, np.integer):
        raise UnreadableError("a pickled number is not a whole one")
    return int(found)


def _array(value: Any) -> NDArray[Any]:
    """Return the array or the number of numpy that would be made."""
    if not isinstance(value, Made):
        raise UnreadableError("a pickled array is something else")
    if value.by.name == "_reconstruct":
        _, shape, dtype, fortran, content = value.state
    elif value.by.name == "_frombuffer" and value.state is None:
        content, dtype, shape, order = value.arguments
        fortran = order == "F"
    elif value.by.name == "scalar" and value.state is None:
        (dtype, content), shape, fortran = value.arguments, (), False
    else:
        raise UnreadableError("a pickled array is something else")
    flat = np.frombuffer(bytes(content), dtype=_dtype(dtype))
    return flat.reshape(tuple(int(side) for side in shape), order="F" if fortran else "C")


def _dtype(value: Any) -> str:
    """Return the name of a type of numpy that would be made."""
    if not isinstance(value, Made) or (value.by.module, value.by.name) != ("numpy", "dtype"):
        raise UnreadableError("a pickled type of numbers is something else")
    name = TYPES.get(str(value.arguments[0])[:80])
    # version, order of bytes, and of types with parts: these
    if name is None or value.state is None or value.state[1] not in ("<", "=", "|") or any(value.state[2:5]):
        raise UnreadableError(f"a pickled type of numbers is {str(value.arguments[0])[:80]}")
    return name


# --- pickles --------------------------------------------------------------------------------------------------------


def _described(data: Mapping[str, Any], name: str) -> Any:
    """Return what the pickle of a setting would make."""
    entry = data.get(name)
    if not isinstance(entry, dict) or not isinstance(entry.get(":serialized:"), str):
        raise UnreadableError(f"its {name} is not stored as SB3 does")
    try:
        return _Description().of(base64.b64decode(entry[":serialized:"].encode()))
    except UnreadableError as error:
        raise UnreadableError(f"its pickled {name} {error}") from error
    except Exception as error:  # a hostile stream may raise anything
        raise UnreadableError(f"its pickled {name} is damaged") from error


class _Description:
    """A machine for pickles that calls nothing: calls become descriptions of what they would make."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def of(self, content: bytes) -> Any:
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
            elif name in STEPS:
                STEPS[name](self, argument)
            elif name not in ("PROTO", "FRAME"):
                raise UnreadableError(f"has the opcode {name}, which SB3 does not write")
        raise UnreadableError(f"has more than {MOST_OPCODES} opcodes")

    def since_mark(self) -> list[Any]:
        """Take everything off the stack that came after the last mark."""
        begin = self.marks.pop()
        found = self.stack[begin:]
        del self.stack[begin:]
        return found

    def tuple_of(self, count: int) -> None:
        """Make a tuple of the last values."""
        parts = tuple(self.stack[len(self.stack) - count :])
        del self.stack[len(self.stack) - count :]
        self.stack.append(parts)

    def append(self, values: list[Any]) -> None:
        """Add values to the list before them."""
        target = self.stack[-1]
        if not isinstance(target, list):
            raise UnreadableError("adds values to what is not a list")
        target.extend(values)

    def set_items(self, values: list[Any]) -> None:
        """Add pairs to the dictionary before them; other keys than names could take any time to compare."""
        target = self.stack[-1]
        items = target.items if isinstance(target, Made) and target.by.name == "OrderedDict" else target
        if not isinstance(items, dict) or not all(isinstance(key, str) for key in values[::2]):
            raise UnreadableError("has a dictionary that is not one of names")
        items.update(zip(values[::2], values[1::2], strict=True))

    def refer(self, module: Any, name: Any) -> None:
        """Name something in a module."""
        if not isinstance(module, str) or not isinstance(name, str):
            raise UnreadableError("names something by what is not a name")
        self.stack.append(Reference(module, name))

    def call(self) -> None:
        """Describe a call."""
        arguments, by = self.stack.pop(), self.stack.pop()
        known = isinstance(by, Reference) and (
            str(by) in SPACES
            or by.name in CALLED.get(by.module, ())
            or (by.module.startswith(RANDOM) and by.name.isidentifier())
        )
        if not known or not isinstance(arguments, tuple) or (by.name == "OrderedDict" and arguments):
            what = f"{by.module}.{by.name}"[:80] if isinstance(by, Reference) else "something"
            raise UnreadableError(f"calls {what}, which has no place in it")
        self.stack.append(Made(by, arguments))

    def build(self) -> None:
        """Give the object before it its state."""
        state, target = self.stack.pop(), self.stack[-1]
        if not isinstance(target, Made) or target.state is not None or state is None:
            raise UnreadableError("gives a state to what has one, or can have none")
        target.state = state

    def remember(self, place: int | None) -> None:
        """Keep the last value for later."""
        self.memo[len(self.memo) if place is None else place] = self.stack[-1]


Step = Callable[[_Description, Any], object]
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
VALUES = frozenset(
    (
        *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT"),
        *("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
        *("SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    )
)
STEPS: dict[str, Step] = {
    "MARK": lambda own, _: own.marks.append(len(own.stack)),
    "EMPTY_LIST": lambda own, _: own.stack.append([]),
    "EMPTY_DICT": lambda own, _: own.stack.append({}),
    "APPEND": lambda own, _: own.append([own.stack.pop()]),
    "APPENDS": lambda own, _: own.append(own.since_mark()),
    "SETITEM": lambda own, _: own.set_items([own.stack.pop(-2), own.stack.pop()]),
    "SETITEMS": lambda own, _: own.set_items(own.since_mark()),
    "TUPLE": lambda own, _: own.stack.append(tuple(own.since_mark())),
    **{f"TUPLE{count}": lambda own, _, count=count: own.tuple_of(count) for count in (1, 2, 3)},  # type: ignore[misc]
    "GLOBAL": lambda own, argument: own.refer(*argument.split(" ")),
    "STACK_GLOBAL": lambda own, _: own.refer(own.stack.pop(-2), own.stack.pop()),
    "REDUCE": lambda own, _: own.call(),
    "NEWOBJ": lambda own, _: own.call(),
    "BUILD": lambda own, _: own.build(),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _Description.remember),
    "MEMOIZE": lambda own, _: own.remember(None),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda own, argument: own.stack.append(own.memo[argument])),
}
