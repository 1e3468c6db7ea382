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
from surefoot.play.measured_baselines import BASELINES
from surefoot.proof.certificate import FILES, Certificate
from surefoot.provenance import sha256
from surefoot.report.finished_run import FinishedRun
from surefoot.report.taped_frames import MOST_TAPED
from surefoot.runs.folder import configuration_name

SCHEMA = 1
_IDENTITY = ("task", "agent", "agent_sha256", "seed", "features")


def read_run(folder: Path) -> FinishedRun:
    """Read a run directory, or say why it is not one."""
    if not folder.is_dir():
        raise InputError(f"no directory {folder}; give a run directory of 'surefoot certify' or 'surefoot attack'")
    for name in FILES:
        if (folder / name).exists():
            return _certified(folder / name)
    if (folder / "attack.json").exists():
        return _attacked(folder, read_json(folder / "attack.json"))
    raise InputError(
        f"{folder} has neither certificate.json nor attack.json; give the run directory of a finished "
        "'surefoot certify' or 'surefoot attack'"
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


def _certified(path: Path) -> FinishedRun:
    folder, certificate = path.parent, Certificate.load(path)
    record = folder / "episodes.npz"
    records = [Episodes.load(record)] if record.exists() else []
    return _run(folder, read_json(path), certificate=certificate, records=records, setup=folder / "setup.json")


def _attacked(folder: Path, content: Mapping[str, Any]) -> FinishedRun:
    with untrusted(folder / "attack.json", "result of an attack"):
        _check_attack(content)
        cells = [
            folder / configuration_name(b, m) for b, m in zip(content["budgets"], content["curve_lambda"], strict=True)
        ]
    records = [Episodes.load(cell / "episodes.npz") for cell in cells if (cell / "episodes.npz").exists()]
    whole = records if len(records) == len(cells) else []
    return _run(folder, content, attack=content, records=whole, setup=cells[0] / "setup.json")


def _run(
    folder: Path,
    content: Mapping[str, Any],
    *,
    certificate: Certificate | None = None,
    attack: Mapping[str, Any] | None = None,
    records: list[Episodes],
    setup: Path,
) -> FinishedRun:
    notes, tape, written = _optional(folder / "run.json"), folder / "replay.npz", _optional(setup)
    return FinishedRun(
        name=folder.resolve().name,
        certificate=certificate,
        attack=attack,
        records=records,
        identity={key: content.get(key) for key in _IDENTITY},
        setup=written,
        notes=notes,
        tape=read_npz(tape, "replay", most=MOST_TAPED) if tape.exists() else None,
        digests={name: _digest(folder / name) for name in _hashed(certificate) if (folder / name).exists()},
        baseline=_baseline(written, notes.get("blind")),
    )


def _hashed(certificate: Certificate | None) -> tuple[str, ...]:
    """Return the files whose hashes a report states; episode data only where they were read, and so are undamaged."""
    return (*FILES, "attack.json", *(() if certificate is None else ("episodes.npz",)))


def _digest(path: Path) -> str:
    if path.suffix == ".json":
        return sha256(read_bytes(path, "JSON file", MOST_TEXT))
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _baseline(setup: Mapping[str, Any], found: Any) -> Baseline | None:
    """Return the open-loop baseline: the measured one of our own tasks, and only of others what ``run.json`` says."""
    name = setup.get("task")
    if isinstance(name, str) and name in BASELINES and is_count(setup.get("block")):
        return BASELINES[name] if setup.get("discount") is None else None
    try:
        return Baseline(
            mean=number(found["mean"]),
            sem=number(found["sem"]),
            n_episodes=int(found["episodes"]),
            what=str(found["what"]),
            command=str(found["command"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _check_attack(content: Mapping[str, Any]) -> None:
    if content["schema"] != SCHEMA:
        raise ValueError(f"schema {content['schema']}, expected {SCHEMA}")
    length = len(numbers(content["budgets"]))
    if not length or any(len(numbers(content[key])) != length for key in ("curve", "curve_sem")):
        raise ValueError("expected one mean and one standard error per budget")
    if length > MOST_ASKED:
        raise ValueError(f"{length} budgets, expected at most {MOST_ASKED}")
    if len(content["curve_lambda"]) != length or len(content["spending"]) != length:
        raise ValueError("expected one value gap and one list of spending per budget")
    for spending in content["spending"]:
        numbers(spending)
    number(content["sigma"])
    int(content["episodes"])


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}
