"""Folders of published agents, as RL Baselines3 Zoo and the Hugging Face Hub lay them out; nothing in them is run.

``algo/Env_1/Env.zip`` with ``Env/args.yml``, ``Env/config.yml``, ``Env/vecnormalize.pkl``, perhaps ``best_model.zip``;
on the Hub all in one folder, with ``vec_normalize.pkl`` and ``env_kwargs.yml``.
"""

from __future__ import annotations

import ast
import json
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surefoot.errors import InputError
from surefoot.files import open_zip, read_bytes
from surefoot.provenance import install_command

# Bytes of a YAML file: the zoo's have some 1,000, and reading them is slow.
MOST_SETTINGS = 2**16
# Values of a YAML file, those that are repeated by name counted again.
MOST_YAML_VALUES = 10_000
# Letters of a dictionary that is written as text.
MOST_DICTIONARY_LETTERS = 10_000
STATISTICS_NAME = re.compile(r"norm.*\.(pkl|pickle)$", re.IGNORECASE)
SETTINGS_FILES = ("config.yml", "args.yml")
TIME_FEATURE = "TimeFeatureWrapper"
ATARI_MODULE = "stable_baselines3.common.atari_wrappers"
# SB3's own begins a new episode with each life and goes on with the game: its episodes are not independent, and it
# shows their score only where rewards are not clipped.
WHOLE_GAME = {"terminal_on_life_loss": False, "clip_reward": False}
# Wrappers of a vector of environments that the agent's own shape already shows, or that change nothing it sees.
HARMLESS_WRAPPERS = ("Monitor", "VecMonitor", "VecFrameStack", "VecTransposeImage")
# What earlier versions did without being asked, and today's does when it is.
OLD_DEFAULTS = {("Ant-v2", "Ant-v4"): {"use_contact_forces": True}, ("Ant-v3", "Ant-v4"): {"use_contact_forces": True}}
HUB_NAME = re.compile(r"^(?:[a-z0-9]+-)?(?P<env>.+-v\d+)(?:_\d+)?$")


@dataclass(frozen=True, kw_only=True)
class Published:
    """A model file and what the files around it say about it."""

    model: Path  # the zip file
    name: str  # what to call the agent: the zoo's files are named like their environments, whatever the algorithm
    environment: str | None = None  # the Gymnasium ID it was trained on, None if nothing says so
    env_kwargs: dict[str, Any] = field(default_factory=dict)  # what the environment was made with
    statistics: Path | None = None  # the file of VecNormalize's statistics, None if there is none
    normalizes: bool | None = None  # whether observations were normalized, None if nothing says so
    # Whether the time left is appended to each observation (sb3-contrib's TimeFeatureWrapper).
    time_feature: bool = False
    wrappers: tuple[str, ...] = ()  # what the environment is wrapped in, as ``make_task`` takes it
    modules: tuple[str, ...] = ()  # what has to be imported for it
    refusal: str = ""  # why its environment cannot be made here as it was in training; empty if it can

    def arguments_for(self, environment: str) -> Mapping[str, Any]:
        """Return what an environment is made with to be that of the training; nothing if it is another one."""
        own = str(self.environment)
        if own.rpartition("-v")[0] != environment.rpartition("-v")[0]:
            return {}
        return OLD_DEFAULTS.get((own, environment), {}) | self.env_kwargs


def read_published(path: Path) -> Published:
    """Read what lies around an SB3 model file; the path is the file, or a folder that holds one agent."""
    model = _model_in(path) if path.is_dir() else path
    folder = _settings_of(model)
    if folder is None:
        own = _statistics_in(model.parent / model.stem)
        statistics = own[0] if len(own) == 1 else None
        return Published(model=model, name=model.stem, statistics=statistics, environment=_environment_in_name(model))
    arguments = _read_yaml(folder / "args.yml")
    settings = _read_yaml(folder / "config.yml")
    kwargs = _read_yaml(folder / "env_kwargs.yml") or arguments.get("env_kwargs") or settings.get("env_kwargs") or {}
    normalizes = None
    if "normalize" in settings or _statistics_in(folder):
        normalizes = _normalizes(settings, folder)
    environment = _environment_in_name(model)
    if arguments.get("env"):
        environment = str(arguments["env"])
    # The zoo names files like their environments: the algorithm tells agents apart.
    name = model.stem
    algorithm = str(arguments.get("algo", ""))
    if algorithm not in name and name == environment and algorithm.isidentifier():
        name = f"{algorithm}-{name}"
    wrappers = _list_wrappers(settings.get("env_wrapper"))
    vector_wrappers = _list_wrappers(settings.get("vec_env_wrapper"))
    return Published(
        model=model,
        name=name,
        environment=environment,
        env_kwargs={key: value for key, value in _as_mapping(kwargs).items() if not key.startswith("render")},
        statistics=_only_statistics(folder, model) if normalizes else None,
        normalizes=normalizes,
        **_facts_of_wrappers(model, wrappers, vector_wrappers),
    )


def _model_in(folder: Path) -> Path:
    """Return the model file of a folder: the zoo's own choice is not the best on its evaluations, but the last."""
    models = sorted(filter(_is_model, folder.glob("*.zip")))
    if not models:
        hint = "give the .zip file of an SB3 model"
        below = [*folder.glob("*/*.zip"), *folder.glob("*/*/*.zip")]
        if below:
            first = min(str(path.parent) for path in below)
            hint = f"give one of the folders in it, such as {first}"
        raise InputError(f"{folder} holds no SB3 model file; {hint}")
    finished = [path for path in models if path.stem != "best_model" and not re.search(r"_\d+_steps$", path.stem)]
    candidates = finished or models
    if len(candidates) > 1:
        # Which of them is meant is not guessed.
        names = ", ".join(path.name for path in models)
        raise InputError(f"{folder} holds several SB3 model files ({names}); give one of them, such as {models[0]}")
    return candidates[0]


def _is_model(path: Path) -> bool:
    try:
        with open_zip(path) as archive:
            return {"data", "policy.pth"} <= set(archive.namelist())
    except (OSError, InputError, ValueError, zipfile.BadZipFile):
        return False


def _settings_of(model: Path) -> Path | None:
    """Return the folder that says how a model was trained: named like it, the one it lies in, or named like that."""
    near = model.parent
    for folder in (near / model.stem, near, near / re.sub(r"_\d+$", "", near.resolve().name)):
        if any((folder / name).is_file() for name in SETTINGS_FILES):
            return folder
    return None


def statistics_near(model: Path) -> list[Path]:
    """Return files that may hold the statistics of a model: next to it, or in the folder named like it."""
    return _statistics_in(model.parent) + _statistics_in(model.parent / model.stem)


def _statistics_in(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_file() and STATISTICS_NAME.search(path.name))


def _only_statistics(folder: Path, model: Path) -> Path:
    found = _statistics_in(folder)
    if len(found) != 1:
        there = ", ".join(path.name for path in found) or "none"
        raise InputError(
            f"{model} was trained with normalized observations, and its statistics are needed; {folder} holds {there}: "
            "give the file as vecnormalize="
        )
    return found[0]


def _normalizes(settings: Mapping[str, Any], folder: Path) -> bool:
    """Return whether observations were normalized, as the settings say or, where they do not, the files."""
    said = settings.get("normalize")
    if said is None:
        return bool(_statistics_in(folder))
    if not said:
        return False
    options = _as_mapping(said) | _as_mapping(settings.get("normalize_kwargs"))
    return options.get("norm_obs", True) is not False


Wrapper = tuple[str, dict[str, Any]]


def _list_wrappers(wrappers: Any) -> list[Wrapper]:
    """Return names and arguments of wrappers, which the settings name alone or in a list."""
    if wrappers is None:
        return []
    if not isinstance(wrappers, list):
        wrappers = [wrappers]
    found = []
    for one in wrappers:
        name = one
        options = None
        if isinstance(one, dict) and one:
            name, options = next(iter(one.items()))
        found.append((str(name), _as_mapping(options)))
    return found


def _facts_of_wrappers(model: Path, wrappers: list[Wrapper], of_vectors: list[Wrapper]) -> dict[str, Any]:
    """Return what the wrappers of training are here: the time left, those of Atari, or why there is no counterpart."""
    found: dict[str, Any] = {}
    others = [one for one in of_vectors if one[0].rpartition(".")[2] not in HARMLESS_WRAPPERS]
    for name, options in wrappers:
        kind = name.rpartition(".")[2]
        if kind == TIME_FEATURE and not options:
            found["time_feature"] = True
        elif name == f"{ATARI_MODULE}.AtariWrapper":
            made = json.dumps(options | WHOLE_GAME)
            found["wrappers"] = (f"{ATARI_MODULE}:{kind}={made}", "surefoot.play.envs.whole_game:WholeGame")
            found["modules"] = ("ale_py",)
        elif kind not in HARMLESS_WRAPPERS:
            others.append((name, options))
    if others:
        shown, options = others[0]
        if options:
            shown = f"{shown} with {options}"
        found["refusal"] = (
            f"{model} was trained behind the wrapper {shown}, which is not applied by itself; give it and all others "
            "with wrappers=, innermost first"
        )
    return found


def _environment_in_name(model: Path) -> str | None:
    """Return the environment that the name of the model, or of its folder, says."""
    found = HUB_NAME.match(model.stem) or HUB_NAME.match(model.parent.name)
    return found["env"] if found else None


def _as_mapping(value: Any) -> dict[str, Any]:
    """Return a dictionary, which the zoo also writes as the text ``dict(a=1)``; other things are empty."""
    if isinstance(value, dict):
        return {str(name): entry for name, entry in value.items()}
    if not isinstance(value, str):
        return {}
    try:
        if len(value) > MOST_DICTIONARY_LETTERS:
            raise ValueError(f"it has {len(value):,} letters, expected at most {MOST_DICTIONARY_LETTERS:,}")
        tree = ast.parse(value.strip(), mode="eval").body
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == "dict" and not tree.args:
            return {str(one.arg): ast.literal_eval(one.value) for one in tree.keywords}
        return _as_mapping(ast.literal_eval(tree))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        # Nesting that is too deep for the parser raises the last two.
        raise InputError(f"{value!r:.200} in the settings of the agent is not a dictionary of plain values") from error


def _read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file of plain values; the two Python types that the zoo writes become a dictionary and a list."""
    if not path.exists():
        return {}
    content = read_bytes(path, "YAML file of settings", MOST_SETTINGS)
    try:
        import yaml
    except ImportError as error:
        raise InputError(f"{path} needs PyYAML; install it with: {install_command('play')}") from error

    def read_ordered(loader: Any, node: Any) -> dict[str, Any]:
        pairs = loader.construct_sequence(node, deep=True)
        return dict(pairs[0]) if pairs else {}

    # The safe loader and two more tags.
    loader: Any = type("Loader", (yaml.SafeLoader,), {})
    loader.add_constructor("tag:yaml.org,2002:python/object/apply:collections.OrderedDict", read_ordered)
    loader.add_constructor("tag:yaml.org,2002:python/tuple", lambda own, node: own.construct_sequence(node, deep=True))
    try:
        if _count_values(yaml.compose(content, Loader=loader), {}) > MOST_YAML_VALUES:
            raise ValueError(f"it has more than {MOST_YAML_VALUES:,} values")
        found = yaml.load(content, Loader=loader)
    except (yaml.YAMLError, TypeError, ValueError, RecursionError, AttributeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{path} is not YAML of plain values: {reason}; give env= and the .zip file as agent="
        ) from error
    if found is not None and not isinstance(found, dict):
        raise InputError(f"{path} must hold named settings, got {type(found).__name__}; give env= and the .zip file")
    return {str(name): value for name, value in (found or {}).items()}


def _count_values(node: Any, known: dict[int, int]) -> int:
    """Return how many values a node of YAML stands for, those under an alias as often as the alias occurs.

    A few lines of aliases of aliases stand for billions of values, which do no harm until they are written out.
    """
    if id(node) in known:
        if known[id(node)] == 0:
            raise ValueError("a value contains itself")
        return known[id(node)]
    known[id(node)] = 0
    inside = getattr(node, "value", None)
    count = 1
    for entry in inside if isinstance(inside, list) else []:
        # A mapping has pairs of nodes, a sequence has nodes.
        for one in entry if isinstance(entry, tuple) else (entry,):
            count += _count_values(one, known)
    known[id(node)] = count
    return count
