"""Run directories, read as data and checked: nothing in them is trusted, nothing in them is executed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from surefoot.episodes import MOST_ASKED, Baseline, Episodes
from surefoot.errors import InputError
from surefoot.files import (
    MOST_TEXT,
    is_count,
    number,
    numbers,
    open_regular,
    read_bytes,
    read_json,
    read_npz,
    untrusted,
)
from surefoot.noise import ATTACK_NORMS
from surefoot.play.measured_baselines import BASELINES
from surefoot.proof.certificate import CERTIFICATE_FILES, Certificate
from surefoot.provenance import sha256
from surefoot.report.finished_run import FinishedRun, Tape
from surefoot.report.taped_frames import MOST_TAPED
from surefoot.runs.folder import configuration_name

ATTACK_SCHEMA = 1
_IDENTITY: tuple[str, ...] = ("task", "max_steps", "agent", "agent_sha256", "seed")
_IDENTITY += ("sigma_per_feature", "action_sigma", "stochastic", "scope")


def read_run(folder: Path) -> FinishedRun:
    """Read a run directory, or say why it is not one."""
    if not folder.is_dir():
        raise InputError(f"no directory {folder}; give a run directory of 'surefoot certify' or 'surefoot attack'")
    certificate = None
    attack = None
    certified = [folder / name for name in CERTIFICATE_FILES if (folder / name).exists()]
    if certified:
        certificate = Certificate.load(certified[0])
        content = read_json(certified[0])
        places = [folder]
    elif (folder / "attack.json").exists():
        content = attack = read_json(folder / "attack.json")
        with untrusted(folder / "attack.json", "result of an attack"):
            check_attack(content)
            worst = zip(content["budgets"], content["curve_lambda"], strict=True)
            places = [folder / configuration_name(budget, lambda_) for budget, lambda_ in worst]
    else:
        raise InputError(
            f"{folder} has neither certificate.json nor attack.json; give the run directory of a finished "
            "'surefoot certify' or 'surefoot attack'"
        )
    records = []
    # All of them or none: a page must not show some budgets only.
    if all((place / "episodes.npz").exists() for place in places):
        records = [Episodes.load(place / "episodes.npz") for place in places]
    setup = _read_or_empty(places[0] / "setup.json")
    notes = _read_or_empty(folder / "run.json")
    hashed = [*CERTIFICATE_FILES, "attack.json"]
    if certificate is not None:
        hashed.append("episodes.npz")  # where they were read, and so are undamaged
    return FinishedRun(
        name=folder.resolve().name,
        certificate=certificate,
        attack=attack,
        records=records,
        identity={key: content.get(key) for key in _IDENTITY},
        setup=setup,
        notes=notes,
        tape=read_tape(folder),
        digests={name: _hash_file(folder / name) for name in hashed if (folder / name).exists()},
        baseline=_find_baseline(setup, notes.get("baseline")),
    )


def neighbors(folder: Path, run: FinishedRun) -> list[FinishedRun]:
    """Return the runs next to this one that are about the same agent: attacks on it, or certificates of it."""
    wanted = "attack.json" if run.certificate is not None else "certificate.json"
    here = folder.resolve()
    found = []
    for path in sorted(here.parent.glob(f"*/{wanted}")):
        with suppress(InputError), untrusted(path, "result of a run"):
            # The names first: most neighbors are about other agents, and their episode data may be large.
            content = read_json(path)
            if path.parent != here and run.is_about(content, content.get("sigma")):
                found.append(read_run(path.parent))
    return found


def read_tape(folder: Path) -> Tape | None:
    """Return the episode that a run recorded for its page, if it did."""
    if not (folder / "replay.npz").exists():
        return None
    return read_npz(folder / "replay.npz", "replay", most=MOST_TAPED)


def _hash_file(path: Path) -> str:
    # A JSON file of a stranger is read up to the size that any reader takes, episodes in pieces.
    if path.suffix == ".json":
        return sha256(read_bytes(path, "JSON file", MOST_TEXT))
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _find_baseline(setup: Mapping[str, Any], found: Any) -> Baseline | None:
    """Return the open-loop baseline: the measured one of our own tasks, and only of others what ``run.json`` says."""
    name = setup.get("task")
    if isinstance(name, str) and name in BASELINES and is_count(setup.get("block_size")):
        # It was measured by the plain return, which is no baseline of a discounted one, and without noise on actions.
        if setup.get("gamma") is not None or setup.get("action_sigma") is not None:
            return None
        return BASELINES[name]
    try:
        return Baseline(
            mean=number(found["mean"]),
            sem=number(found["sem"]),
            n_episodes=int(found["n_episodes"]),
            what=str(found["what"]),
            command=str(found["command"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def check_attack(content: Mapping[str, Any]) -> None:
    """Raise what is wrong with the content of ``attack.json``."""
    if content["schema"] != ATTACK_SCHEMA:
        raise ValueError(f"schema {content['schema']}, expected {ATTACK_SCHEMA}")
    length = len(numbers(content["budgets"]))
    if not length or not len(numbers(content["curve"])) == len(numbers(content["curve_sem"])) == length:
        raise ValueError("expected one mean and one standard error per budget")
    if length > MOST_ASKED:
        raise ValueError(f"{length} budgets, expected at most {MOST_ASKED}")
    if len(content["curve_lambda"]) != length or len(content["budget_used_per_step"]) != length:
        raise ValueError("expected one value gap and one list of spending per budget")
    for spending in content["budget_used_per_step"]:
        numbers(spending)
    if content.get("scope") not in (None, *(f"{norm} per step" for norm in ATTACK_NORMS)):
        raise ValueError(f"no budget has the scope {content['scope']!r:.40}")
    number(content["sigma"])
    number(content.get("action_sigma", 0.0))
    int(content["n_episodes"])


def _read_or_empty(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}
