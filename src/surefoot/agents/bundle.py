"""A bundle: agent and statistics next to the certificate, and the command that verifies them anywhere."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from surefoot.agents.imported import IMPORT_NAME
from surefoot.agents.resolve import locate
from surefoot.errors import InputError
from surefoot.files import read_json, untrusted, write_json
from surefoot.provenance import versions

BUNDLE_FILE = "bundle.json"
BUNDLE_SCHEMA = 1
AGENT_FOLDER = "agent"
MOST_BYTES = 500_000_000  # of a folder that is copied
LONGEST_PATH = 1_000  # letters
ENVIRONMENT_FACTS = ("environment", "env_kwargs", "wrappers", "env_modules", "success", "max_steps")


@dataclass(frozen=True)
class Bundle:
    """What a run directory contains for whoever verifies it."""

    agent: Path  # the agent's file or folder
    vecnormalize: str | None  # the statistics of its observations, "none", or None where they are near the agent
    environment: Mapping[str, Any]  # what it says of the environment, as the run's setup does


def describe_environment(setup: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a bundle says of the environment of a run with this setup."""
    return {key: setup[key] for key in ENVIRONMENT_FACTS if key in setup}


def write_bundle(folder: Path, agent: str | Path, *, vecnormalize: str | None, command: str | None) -> None:
    """Copy an agent and its statistics into a run directory, and say what made the run."""
    check_bundled(agent)
    place = folder / AGENT_FOLDER
    statistics = vecnormalize
    with TemporaryDirectory(dir=folder, prefix=".bundle") as beside:
        new = Path(beside) / AGENT_FOLDER
        new.mkdir()
        copied = _copy_agent(locate(agent), new)
        if vecnormalize not in (None, "none"):
            source = Path(str(vecnormalize))
            shutil.copyfile(source, new / f"statistics{source.suffix}")
            statistics = f"{AGENT_FOLDER}/statistics{source.suffix}"
        # Last: what was copied may be that of the earlier bundle, and its only copy.
        if place.exists():
            shutil.rmtree(place)
        new.rename(place)
    setup = read_json(folder / "setup.json")
    content: dict[str, Any] = {
        "schema": BUNDLE_SCHEMA,
        "agent": f"{AGENT_FOLDER}/{copied}",
        "vecnormalize": statistics,
        "environment": describe_environment(setup),
        "versions": versions(),
        "command": command,
    }
    write_json(folder / BUNDLE_FILE, content)


def check_bundled(agent: str | Path) -> None:
    """Raise InputError if an agent is not a file, which nothing can be copied of."""
    name = str(agent)
    if IMPORT_NAME.fullmatch(name) and not Path(name).exists():
        raise InputError(f"bundle= needs an agent in a file, and {name} is code; export it to ONNX, or save it")


def _copy_agent(source: Path, place: Path) -> str:
    """Copy an agent with what its author's tools put next to it; return the name in the new place."""
    if source.is_dir():
        size = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
        if size > MOST_BYTES:
            raise InputError(f"{source} has {size:,} bytes, a bundle at most {MOST_BYTES:,}; name the model's file")
        shutil.copytree(source, place / source.name)
        return source.name
    if source.suffix == ".json":
        # The model card of an agent of ours has its weights next to it.
        for path in (source, source.with_suffix(".npz")):
            shutil.copyfile(path, place / path.name)
        return source.stem
    shutil.copyfile(source, place / source.name)
    # Weights of an ONNX model, and the folder in which RL Baselines3 Zoo keeps statistics.
    data = source.with_name(f"{source.name}.data")
    if data.exists():
        shutil.copyfile(data, place / data.name)
    beside = source.with_suffix("")
    if source.suffix == ".zip" and beside.is_dir():
        shutil.copytree(beside, place / beside.name)
    return source.name


def read_bundle(folder: Path) -> Bundle | None:
    """Return the agent of a run directory's bundle; None where there is none."""
    path = folder / BUNDLE_FILE
    if not path.is_file():
        return None
    with untrusted(path, "bundle"):
        content = read_json(path)
        if content["schema"] != BUNDLE_SCHEMA:
            raise ValueError(f"schema {content['schema']!r:.20}, this version reads {BUNDLE_SCHEMA}")
        agent = _inside(folder, content["agent"])
        vecnormalize = content["vecnormalize"]
        if vecnormalize not in (None, "none"):
            vecnormalize = str(_inside(folder, vecnormalize))
        environment = content["environment"]
        if not isinstance(environment, dict):
            raise TypeError("environment must be an object")
    return Bundle(agent, vecnormalize, environment)


def _inside(folder: Path, name: object) -> Path:
    """Return the path of a file that a bundle names, which must be one of its own."""
    if not isinstance(name, str) or len(name) > LONGEST_PATH:
        raise TypeError("a short path was expected")
    path = folder / name
    # The folder itself may be a link, too.
    if not path.resolve().is_relative_to(folder.resolve() / AGENT_FOLDER):
        raise ValueError(f"{name:.80} is not in its folder {AGENT_FOLDER}")
    return path
