"""Where environments come from: a Gymnasium ID, a factory, a class, a spec; with arguments, wrappers and modules.

Copies of one environment are made by every process that runs episodes, so what is kept here is how to make one.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import gymnasium
import gymnasium.wrappers.vector
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv, VectorWrapper

from surefoot.agents.imported import attribute, called, imported
from surefoot.episodes import MOST_STEPS
from surefoot.errors import InputError, did_you_mean
from surefoot.files import MOST_ARRAYS, check_size
from surefoot.play.envs.flat import flatten_env
from surefoot.play.envs.success import Condition, SuccessReturn
from surefoot.play.envs.vector import OneRow, Simulator, autoreset_mode

# What registers the environments that published agents are trained on, besides Gymnasium.
PACKAGES = {
    r"NoFrameskip-v|^ALE/": "ale_py",
    r"BulletEnv-v": "pybullet_envs_gymnasium",
    r"^Panda": "panda_gym",
    r"^MiniGrid-|^BabyAI-": "minigrid",
    r"^(Fetch|HandReach|HandManipulate|AntMaze|PointMaze|AdroitHand)": "gymnasium_robotics",
    r"^(highway|merge|roundabout|parking|intersection|racetrack)-": "highway_env",
    r"NoVel-v": "rl_zoo3.import_envs",
}
Environment = gymnasium.Env[Any, Any]
Maker = str | EnvSpec | Callable[..., Any]
WRAPPERS = "gymnasium.wrappers"
MOST_KWARGS = 2**14  # letters: a map of FrozenLake with 100 x 100 fields, whose table takes a second to make
LEARNERS = (
    gymnasium.wrappers.NormalizeObservation,
    gymnasium.wrappers.NormalizeReward,
    gymnasium.wrappers.vector.NormalizeObservation,
    gymnasium.wrappers.vector.NormalizeReward,
)


@dataclass(frozen=True, kw_only=True)
class Source:
    """How to make an environment."""

    # A Gymnasium ID, ``module:name`` of a class or function that returns an environment, a spec, or such a class or
    # function itself.
    maker: Maker
    kwargs: Mapping[str, Any] = field(default_factory=dict)  # what it is called with
    # Applied to it in this order: functions of an environment, or ``module:Class={"argument": 1}``, where a class
    # without a module is one of ``gymnasium.wrappers``, or of ``gymnasium.wrappers.vector``.
    wrappers: tuple[str | Callable[[Any], Any], ...] = ()
    modules: tuple[str, ...] = ()  # imported before; they may register IDs
    max_steps: int | None = None  # after how many steps episodes are cut off, if not after the environment's own number
    # What an episode must meet for a return of 1 in place of its rewards; None keeps these.
    success: str | Callable[..., Any] | None = None
    # The files that its arguments and those of its wrappers name, and their hashes.
    files: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        if self.max_steps is not None and not 1 <= self.max_steps <= MOST_STEPS:
            raise InputError(f"max_steps= must be from 1 to {MOST_STEPS:,}, got {self.max_steps}")
        try:
            size = len(json.dumps(dict(self.kwargs)))
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"env_kwargs must be plain values, which are written into the record ({error}); "
                "give a function that makes the environment instead"
            ) from error
        if size > MOST_KWARGS:
            raise InputError(
                f"env_kwargs take {size:,} letters, expected at most {MOST_KWARGS:,}; give a function that makes the "
                "environment instead"
            )
        inside = [parse_wrapper(one)[1] for one in self._wrapper_names]
        # Before anything is opened: a pipe would be waited for.
        object.__setattr__(self, "files", _hashed_files([self._all_kwargs, *inside]))

    @classmethod
    def of(cls, environment: object, **others: Any) -> Source:
        """Return the source of what names or is an environment; of an object, its spec."""
        if isinstance(environment, VectorWrapper):
            raise InputError("a wrapped vector environment cannot be made again by its spec; give wrappers= instead")
        if isinstance(environment, gymnasium.Env | VectorEnv):
            if environment.spec is None:
                raise InputError(
                    f"{type(environment.unwrapped).__name__} has no spec, and copies of an environment object are made "
                    "by its spec: give its class, or a function that makes it"
                )
            spec = copy.copy(environment.spec)
            # Every block chooses its own number of rows.
            spec.kwargs = {key: value for key, value in spec.kwargs.items() if key != "num_envs"}
            return cls(maker=spec, **others)
        if not (isinstance(environment, str | EnvSpec) or callable(environment)):
            raise InputError(
                "an environment is a Gymnasium ID, module:factory, an environment, its class or a function that makes "
                f"it, got {type(environment).__name__}"
            )
        return cls(maker=environment, **others)

    @property
    def name(self) -> str:
        """What it is called in records."""
        if isinstance(self.maker, EnvSpec):
            return self.maker.id
        return _maker_name(self.maker)

    @property
    def title(self) -> str:
        """The name with what was changed about it: arguments and wrappers make it another environment."""
        made = self.setup
        changes = []
        for key, value in made.get("env_kwargs", {}).items():
            changes.append(f"{key}={json.dumps(value, default=repr)}")
        changes += made.get("wrappers", [])
        if self.condition is not None:
            changes.append(f"success {self.condition.name}")
        if not changes:
            return self.name
        return f"{self.name} with {', '.join(changes)}"

    @property
    def setup(self) -> dict[str, Any]:
        """What a record says of it besides its name, as JSON data; nothing of what is not used."""
        layers: Iterable[Any] = ()
        if isinstance(self.maker, EnvSpec):
            layers = self.maker.additional_wrappers
        # Those of a spec are inside of those that are given.
        wrappers = [f"{layer.entry_point}={json.dumps(layer.kwargs, default=repr)}" for layer in layers]
        wrappers += map(_maker_name, self.wrappers)
        found = {
            "env_kwargs": self._all_kwargs,
            "env_files": self.files,
            "env_modules": list(self.modules),
            "wrappers": wrappers,
        }
        if self.condition is not None:
            found["success"] = self.condition.name
        return {key: value for key, value in found.items() if value}

    @property
    def condition(self) -> Condition | None:
        """What makes an episode a success, where that is its return."""
        if self.success is None:
            return None
        return Condition(self.success)

    def load(self) -> None:
        """Import what makes the environment and make none: forked processes then need not import it again."""
        for module in self.modules:
            imported(module)
        for wrapper in self.wrappers:
            if isinstance(wrapper, str):
                imported(parse_wrapper(wrapper)[0].partition(":")[0])
        if self.condition is not None and self.condition.module is not None:
            imported(self.condition.module)
        maker = self._load_maker()
        spec = None
        if isinstance(maker, str | EnvSpec):
            spec = find_spec(maker)
        if spec is not None:
            for entry_point in (spec.entry_point, spec.vector_entry_point):
                if isinstance(entry_point, str):
                    imported(entry_point.partition(":")[0])

    def _load_maker(self) -> Any:
        """Return the class or function that makes it, or the ID or spec that Gymnasium does."""
        if isinstance(self.maker, str):
            return _load_factory(self.maker)
        return self.maker

    @property
    def _all_kwargs(self) -> dict[str, Any]:
        if isinstance(self.maker, EnvSpec):
            # What is given comes last, as in ``gymnasium.make``.
            return {**self.maker.kwargs, **self.kwargs}
        return dict(self.kwargs)

    @property
    def _wrapper_names(self) -> list[str]:
        return [one for one in self.wrappers if isinstance(one, str)]

    def open(self) -> Environment:
        """Make one environment, with vectors for structured observations and numbers for structured actions."""
        environment = self._make_wrapped(1)
        steps = self.max_steps
        shown_rows = None
        if isinstance(environment, VectorEnv):
            spec = environment.unwrapped.spec
            if steps is None and spec is not None:
                steps = spec.max_episode_steps
            row = OneRow(environment)
            environment = row
            shown_rows = partial(getattr, row, "shown")
        if steps is not None and isinstance(environment, gymnasium.Env) and not _is_cut(environment, steps):
            # Outside of everything: a wrapper may let an episode go on that a limit inside has ended.
            environment = gymnasium.wrappers.TimeLimit(environment, steps)
        if self.condition is not None:
            environment = SuccessReturn(environment, self.condition, shown_rows)
        return flatten_env(self.name, environment)

    def open_rows(self, n_envs: int) -> Simulator:
        """Make a vector simulator with so many rows."""
        return cast(Simulator, self._make_wrapped(n_envs))

    def _make_wrapped(self, n_envs: int) -> Any:
        """Make the environment inside of its wrappers; of a vector environment, with so many rows."""
        for module in self.modules:
            imported(module)
        environment = self._make_env(n_envs)
        if not isinstance(environment, gymnasium.Env | VectorEnv):
            raise InputError(
                f"{self.name} made a {type(environment).__name__}, expected a gymnasium.Env or a "
                "gymnasium.vector.VectorEnv"
            )
        if isinstance(environment, VectorEnv) and environment.num_envs != n_envs:
            raise InputError(
                f"{self.name} made a vector environment with {environment.num_envs} rows, expected {n_envs}; it must "
                "take num_envs=N and make so many"
            )
        for wrapper in self.wrappers:
            environment = called(_maker_name(wrapper), _load_wrapper(wrapper, environment), environment)
        _refuse_learners(environment)
        if self.condition is not None and isinstance(environment, VectorEnv):
            self.condition.check_autoreset(self.name, autoreset_mode(environment))
        return environment

    def _make_env(self, n_envs: int) -> Any:
        factory = self._load_maker()
        if callable(factory):
            rows = {}
            if _takes_rows(factory):
                rows = {"num_envs": n_envs}
            return called(self.name, factory, **rows, **self.kwargs)
        assert isinstance(factory, str | EnvSpec)
        _quiet_mujoco(factory)
        try:
            if self._is_vector(factory):
                return self._make_vector(factory, n_envs)
            return gymnasium.make(factory, max_episode_steps=self.max_steps, **self.kwargs)
        except (gymnasium.error.Error, ImportError, TypeError, ValueError, AttributeError) as error:
            reason = str(error).strip().splitlines()[0].rstrip(".")
            today = find_successor(self.name)
            way = _installation_hint(self.name)
            if today is not None:
                way = f"its successor is {today}: give env='{today}'"
            raise InputError(f"Gymnasium cannot make the environment {self.name!r}: {reason}; {way}") from error
        except (KeyboardInterrupt, GeneratorExit):
            # Who asked for the environment stops it: no fault of its author.
            raise
        except BaseException as error:  # code of its author, which may call sys.exit
            raise InputError(f"{self.name} failed: {type(error).__name__}: {error}") from error

    def _is_vector(self, environment: str | EnvSpec) -> bool:
        """Return whether an ID is made as a vector environment: it can only be that, or its arguments say so."""
        if "vectorization_mode" in self._all_kwargs:
            return True
        spec = find_spec(environment)
        return spec is not None and spec.entry_point is None and spec.vector_entry_point is not None

    def _make_vector(self, environment: str | EnvSpec, n_envs: int) -> Simulator:
        kwargs = dict(self.kwargs)
        spec = find_spec(environment)
        # Only where its author has one: not every vector environment takes a step limit.
        if self.max_steps is not None and spec is not None and spec.max_episode_steps is not None:
            kwargs["max_episode_steps"] = self.max_steps
        return gymnasium.make_vec(environment, num_envs=n_envs, **kwargs)


def _hashed_files(arguments: Any) -> dict[str, str]:
    """Return the hashes of the files that texts in the arguments of an environment name."""
    found = {}
    for text in _yield_texts(arguments):
        place = os.path.expanduser(text)  # noqa: PTH111 - a text may be no path at all
        if not os.path.lexists(place):
            continue
        path = Path(place)
        if not path.is_file():
            raise InputError(
                f"{text!r} in the arguments of the environment is a directory, or no regular file, whose content no "
                "hash can cover; give files one by one, or run the command from another directory if no file is meant"
            )
        check_size(path, "file of an environment", path.stat().st_size, MOST_ARRAYS)
        try:
            with path.open("rb") as file:
                found[text] = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}") from error
    return found


def _yield_texts(value: Any) -> Iterator[str]:
    """Yield all texts in nested arguments."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _yield_texts(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _yield_texts(part)


def _quiet_mujoco(environment: str | EnvSpec) -> None:
    """Let MuJoCo not tell every copy of an environment, and a file in the working directory, that its model is old.

    Its other warnings (an unstable simulation) are printed as they would be.
    """
    spec = find_spec(environment)
    if spec is None or "mujoco" not in str(spec.entry_point):
        return
    with suppress(ImportError, AttributeError):  # Gymnasium says what is missing, and older releases have no such thing
        mujoco = import_module("mujoco")
        if mujoco.get_mju_user_warning() is None:
            mujoco.set_mju_user_warning(_mujoco_warning)


def _mujoco_warning(text: str) -> None:
    if "is deprecated" not in text:
        print(f"WARNING: {text}", file=sys.stderr, flush=True)


def find_spec(environment: str | EnvSpec) -> EnvSpec | None:
    """Return what Gymnasium has registered for an ID, in front of which there may be a module."""
    if isinstance(environment, EnvSpec):
        return environment
    return gymnasium.registry.get(environment.rpartition(":")[2])


def _takes_rows(factory: Callable[..., Any]) -> bool:
    """Return whether a class or function that makes environments can be told how many rows to make."""
    try:
        return "num_envs" in inspect.signature(factory).parameters
    except (TypeError, ValueError):  # what is written in C has none
        return False


def _refuse_learners(environment: Environment | Simulator) -> None:
    """Raise InputError if a layer takes something from one episode to the next."""
    layer: Any = environment
    while isinstance(layer, gymnasium.Wrapper | VectorWrapper):
        if isinstance(layer, LEARNERS):
            raise InputError(
                f"{type(layer).__name__} learns from earlier episodes, so that episodes depend on each other; "
                "normalize with numbers that are fixed, in the environment, or in the agent (vecnormalize=)"
            )
        layer = layer.env


def _is_cut(environment: Environment, max_steps: int) -> bool:
    """Return whether the outermost layer ends episodes after so many steps."""
    return isinstance(environment, gymnasium.wrappers.TimeLimit) and environment._max_episode_steps == max_steps


def step_limit(environment: Environment) -> int | None:
    """Return after how many steps the episodes of an environment are cut off, None if they are not."""
    layer = environment
    found = []
    # There may be several, of which the shortest cuts.
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, gymnasium.wrappers.TimeLimit):
            found.append(int(layer._max_episode_steps))
        layer = layer.env
    return min(found, default=None)


def registered_steps(name: str) -> int | None:
    """Return after how many steps an environment's episodes are usually cut off; None if never, or unknown."""
    spec = gymnasium.registry.get(name)
    if spec is None:
        return None
    return spec.max_episode_steps


def parse_wrapper(text: str) -> tuple[str, dict[str, Any]]:
    """Return name and arguments of ``module:Class={"argument": 1}``."""
    name, equals, arguments = text.partition("=")
    try:
        kwargs = {}
        if equals:
            kwargs = json.loads(arguments)
    except json.JSONDecodeError as error:
        raise InputError(f'a wrapper looks like module:Class={{"argument": 1}}, got {text!r} ({error})') from error
    if not isinstance(kwargs, dict):
        raise InputError(f'a wrapper looks like module:Class={{"argument": 1}}, got {text!r}')
    if ":" not in name:
        name = f"{WRAPPERS}:{name}"
    return name, kwargs


def _load_wrapper(given: str | Callable[[Any], Any], environment: Environment | Simulator) -> Callable[[Any], Any]:
    if not isinstance(given, str):
        return given
    name, kwargs = parse_wrapper(given)
    module, _, inside = name.partition(":")
    if module == WRAPPERS and isinstance(environment, VectorEnv):
        module = f"{WRAPPERS}.vector"
    found = attribute(imported(module), inside)
    if not callable(found):
        raise InputError(f"there is no wrapper {inside!r} in {module}; give wrappers=['module:Class']")
    return partial(found, **kwargs)


def _load_factory(text: str) -> Any:
    """Return the class or function that ``module:name`` means; the text itself where it is an ID, or names none."""
    module, colon, name = text.partition(":")
    if not colon:
        return text
    if module.endswith(".py") or "/" in module:
        # From the folder that the file is in, its name without the ending is that of the module.
        stem = Path(module).stem
        right = f"env='{stem}:{name or 'make'}'"
        raise InputError(f"{text!r} is not module:name; from the folder of {stem}.py it is {right}")
    if not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        with_id = all(part.isidentifier() for part in module.split("."))
        if with_id:
            imported(module)  # which registers the ID
        return text
    loaded = imported(module)
    found = attribute(loaded, name)
    if callable(found):
        return found
    # Importing the module may have registered an ID of this name.
    if find_spec(text) is None:
        raise InputError(f"there is no {name!r} in the module {module}{did_you_mean(name, vars(loaded))}")
    return text


def _installation_hint(name: str) -> str:
    """Return how to make an environment that Gymnasium does not have itself."""
    for pattern, module in PACKAGES.items():
        if re.search(pattern, name):
            package = module.partition(".")[0]
            install = f"it is one of {package}: install that and give env_modules=['{module}']"
            return f"{install}, or give env='module:factory'"
    return "if a package registers it, import that with env_modules=, or give env='module:factory'"


def _maker_name(maker: object) -> str:
    if isinstance(maker, str):
        return maker
    if isinstance(maker, partial):
        return f"{_maker_name(maker.func)}{maker.args}{maker.keywords}"
    module = getattr(maker, "__module__", type(maker).__module__)
    return f"{module}:{getattr(maker, '__qualname__', type(maker).__qualname__)}"


def find_successor(name: str) -> str | None:
    """Return the next version of an environment that can be made, if there is one."""
    base, _, version = name.rpartition("-v")
    if not version.isdecimal():
        return None
    versions = []
    for spec in gymnasium.registry.values():
        same = spec.namespace is None and spec.name == base
        if same and spec.version is not None and spec.version > int(version):
            versions.append(spec.version)
    # The next one: it differs least from the one that an agent was trained with.
    for later in sorted(versions):
        with suppress(gymnasium.error.Error, ImportError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there are still later ones
            gymnasium.make(f"{base}-v{later}").close()
            return f"{base}-v{later}"
    return None
