"""What lies in the folders of runs, read as data and checked: nothing in it is trusted, nothing in it is run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.files import read_arrays, read_json
from surefoot.proof.contradiction import same_setup
from surefoot.proof.episode_budget import Certificate

SCHEMA = 1


@dataclass(frozen=True)
class Published:
    """A certificate as its file states it.

    ``kind``    the attacker it is about, where that is another one than the attacker of a whole episode
    ``step``    distance of the thresholds, where the file says it
    ``choice``  how the method was chosen, where the file says it
    ``facts``   the whole content of the file
    """

    budgets: tuple[float, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...] | None
    estimate: float
    estimate_sem: float | None
    confidence: float
    method: str
    episodes: int
    sigma: float
    floor: float
    ceiling: float | None
    statement: str
    kind: str | None = None
    step: float | None = None
    choice: Mapping[str, Any] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class KnownFloor:
    """What a policy reaches that sees nothing but the clock, as ``run.json`` has it."""

    mean: float
    what: str


@dataclass(frozen=True, eq=False)
class Run:
    """One folder that ``certify`` or ``attack`` left.

    ``certificate``  what it certifies, None for an attack
    ``attack``       the content of ``attack.json``, None for a certificate
    ``records``      the outcomes: one record for a certificate, one per budget (the worst cell) for an attack
    ``whom``         task, agent, hash and seed, as the files name them
    ``made``         the certificate itself where it is at hand, which saves computing it again
    """

    folder: Path
    certificate: Published | None
    attack: Mapping[str, Any] | None
    records: Sequence[Episodes]
    whom: Mapping[str, Any]
    setup: Mapping[str, Any]
    facts: Mapping[str, Any]
    replay: Mapping[str, Any] | None
    made: Certificate | None = None

    @property
    def sigma(self) -> float:
        """The noise that was played with."""
        return self.certificate.sigma if self.certificate is not None else float((self.attack or {})["sigma"])

    @property
    def blind(self) -> KnownFloor | None:
        """The blind floor, where the run knew one."""
        found = self.facts.get("blind")
        if not isinstance(found, Mapping) or not _number(found.get("mean")):
            return None
        return KnownFloor(float(found["mean"]), str(found.get("what", "")))


def read_run(folder: Path) -> Run:
    """Read a run's folder, or say why it is none."""
    if not folder.is_dir():
        raise InputError(f"no folder {folder}; give a folder that 'surefoot certify' or 'surefoot attack' has left")
    if (folder / "certificate.json").exists():
        return _certified(folder / "certificate.json", read_json(folder / "certificate.json"))
    if (folder / "attack.json").exists():
        return _attacked(folder, read_json(folder / "attack.json"))
    for path in sorted(folder.glob("*.json")):
        content = read_json(path)
        if content.get("kind") == path.stem:  # against another attacker, in a file that is named after it
            return _certified(path, content)
    raise InputError(
        f"{folder} holds neither certificate.json nor attack.json; give a folder that a finished 'surefoot certify' "
        "or 'surefoot attack' has left"
    )


def neighbours(run: Run) -> list[Run]:
    """Return the runs beside this one that are about the same agent: attacks on it, or certificates of it."""
    wanted = "attack.json" if run.certificate is not None else "certificate.json"
    here = run.folder.resolve()
    found = []
    for path in sorted(here.parent.glob(f"*/{wanted}")):
        with suppress(InputError):
            # The names first: most neighbours are strangers, and their records may be large.
            content = read_json(path)
            if path.parent != here and _same(run, content, content.get("sigma")):
                found.append(read_run(path.parent))
    return found


def about_the_same(one: Run, other: Run) -> bool:
    """Tell whether two runs are about the same agent in the same task behind the same noise."""
    return _same(one, other.whom, other.sigma)


def published(content: Mapping[str, Any], origin: Path) -> Published:
    """Check a certificate's JSON and return what it states."""
    try:
        return _checked(content)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{origin} is not a certificate that this version reads: {error}") from error


def _checked(content: Mapping[str, Any]) -> Published:
    if content["schema"] != SCHEMA:
        raise ValueError(f"schema {content['schema']}, expected {SCHEMA}")
    budgets, lower = _numbers(content["budgets"]), _numbers(content["lower"])
    upper = None if content["upper"] is None else _numbers(content["upper"])
    if not budgets or len(budgets) != len(lower) or (upper is not None and len(upper) != len(budgets)):
        raise ValueError("expected one lower and one upper limit per budget")
    order = sorted(range(len(budgets)), key=budgets.__getitem__)
    return Published(
        budgets=tuple(budgets[i] for i in order),
        lower=tuple(lower[i] for i in order),
        upper=None if upper is None else tuple(upper[i] for i in order),
        estimate=_needed(content["estimate"]),
        estimate_sem=None if content["estimate_sem"] is None else _needed(content["estimate_sem"]),
        confidence=_needed(content["confidence"]),
        method=str(content["method"]),
        episodes=int(content["episodes"]),
        sigma=_needed(content["sigma"]),
        floor=_needed(content["floor"]),
        ceiling=None if content["ceiling"] is None else _needed(content["ceiling"]),
        statement=str(content.get("statement", "")),
        kind=None if content.get("kind") is None else str(content["kind"]),
        step=float(content["step"]) if _number(content.get("step")) else None,
        choice=content["choice"] if isinstance(content.get("choice"), Mapping) else None,
        facts=content,
    )


def _same(run: Run, whom: Mapping[str, Any], sigma: Any) -> bool:
    return run.whom.get("agent") is not None and same_setup({**run.whom, "sigma": run.sigma}, whom, sigma)


def _certified(path: Path, content: Mapping[str, Any]) -> Run:
    folder = path.parent
    record = folder / "episodes.npz"
    return Run(
        folder=folder,
        certificate=published(content, path),
        attack=None,
        records=[Episodes.load(record)] if record.exists() else [],
        whom={key: content.get(key) for key in ("task", "agent", "agent_sha256", "seed", "features")},
        setup=_optional(folder / "setup.json"),
        facts=_optional(folder / "run.json"),
        replay=_replay(folder),
    )


def _attacked(folder: Path, content: Mapping[str, Any]) -> Run:
    try:
        _check_attack(content)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{folder / 'attack.json'} is not a result that this version reads: {error}") from error
    cells = [folder / _cell(b, m) for b, m in zip(content["budgets"], content["curve_lambda"], strict=True)]
    records = [Episodes.load(cell / "episodes.npz") for cell in cells if (cell / "episodes.npz").exists()]
    return Run(
        folder=folder,
        certificate=None,
        attack=content,
        records=records if len(records) == len(cells) else [],
        whom={key: content.get(key) for key in ("task", "agent", "agent_sha256", "seed", "features")},
        setup=_optional(cells[0] / "setup.json"),
        facts=_optional(folder / "run.json"),
        replay=_replay(folder),
    )


def _check_attack(content: Mapping[str, Any]) -> None:
    if content["schema"] != SCHEMA:
        raise ValueError(f"schema {content['schema']}, expected {SCHEMA}")
    length = len(_numbers(content["budgets"]))
    if not length or any(len(_numbers(content[key])) != length for key in ("curve", "curve_sem")):
        raise ValueError("expected one mean and one standard error per budget")
    if len(content["curve_lambda"]) != length or len(content["spending"]) != length:
        raise ValueError("expected one value gap and one list of spending per budget")
    for spending in content["spending"]:
        _numbers(spending)
    _needed(content["sigma"])
    int(content["episodes"])


def _cell(budget: float, margin: float | None) -> str:
    # As attacked.cell_name has it, which cannot be imported without torch.
    return f"B{budget:g}" + ("" if margin is None else f"-lambda{margin:g}")


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}


def _replay(folder: Path) -> Mapping[str, Any] | None:
    path = folder / "replay.npz"
    return read_arrays(path) if path.exists() else None


def _numbers(values: Any) -> list[float]:
    if not isinstance(values, list):
        raise TypeError(f"expected a list of numbers, got {type(values).__name__}")
    return [_needed(value) for value in values]


def _needed(value: Any) -> float:
    if not _number(value):
        raise TypeError(f"expected a number, got {value!r:.60}")
    return float(value)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
