"""Attack an agent over a grid of budgets and thresholds, and hold the outcome against its certificate."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.agents.policies import Policy
from surefoot.attacks.registry import METHODS, Configuration
from surefoot.attacks.victim import Smoothing
from surefoot.episodes import Episodes, Noise
from surefoot.errors import InputError
from surefoot.files import safe_name, versions
from surefoot.play.plan import Plan
from surefoot.play.rollout import Progress, play
from surefoot.play.streams import Purpose
from surefoot.play.tasks import Task
from surefoot.proof.certificate import Certificate
from surefoot.proof.episode_budget import EpisodeCertificate
from surefoot.runs.finish import finish_run
from surefoot.runs.folder import RunFolder
from surefoot.runs.taped_episode import record_replay

SCHEMA = 1


@dataclass(frozen=True)
class Attack:
    """What is to be attacked and how, settled before anything is played."""

    task: Task
    policy: Policy
    sigma: float
    budgets: Sequence[float]
    margins: Sequence[float] = (0.0,)
    method: str = "paper"
    draws: int = 128
    episodes: int = 1_000
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise InputError(f"method must be one of {', '.join(METHODS)}, got {self.method!r}")
        if not self.budgets or not all(np.isfinite(budget) and budget >= 0 for budget in self.budgets):
            raise InputError(f"budgets must be finite numbers >= 0, at least one, got {list(self.budgets)}")
        if METHODS[self.method].has_lambda and not self.margins:
            raise InputError(f"the method {self.method} needs at least one lambda")
        METHODS[self.method].check(self.task, self.policy)
        for budget, margin in self.cells():
            self.plan(budget, margin)

    @property
    def name(self) -> str:
        """The name of the run's folder: all that usually differs between attacks."""
        name = f"attack-{self.method}-{self.policy.name}-sigma{self.sigma:g}-seed{self.seed}-n{self.episodes}"
        return safe_name(name)

    @property
    def columns(self) -> list[float | None]:
        """The thresholds; a method without any has one column."""
        return list(self.margins) if METHODS[self.method].has_lambda else [None]

    def cells(self) -> list[tuple[float, float | None]]:
        """Return every pair of budget and threshold."""
        return [(budget, margin) for budget in self.budgets for margin in self.columns]

    def plan(self, budget: float, margin: float | None) -> Plan:
        """Return the run of one cell."""
        smoothing = Smoothing(self.sigma, self.draws)
        chosen = Configuration(task=self.task, budget=budget, smoothing=smoothing, lambda_q=margin or 0.0)
        return Plan(
            task=self.task,
            policy=self.policy,
            noise=Noise.of(self.sigma),
            n_episodes=self.episodes,
            seed=self.seed,
            device=self.device,
            attacker=METHODS[self.method].build(chosen),
            budget=budget,
            purpose=(Purpose.ATTACK,),
        )


def attacked_run(
    attack: Attack,
    folder: Path,
    *,
    workers: int = 1,
    progress: Progress | None = None,
    command: str | None = None,
) -> dict[str, Any]:
    """Play what is not yet played, leave records, ``attack.json`` and the page in ``folder``, return the result."""
    began = time.monotonic()
    cells = attack.cells()
    records: dict[tuple[float, float | None], Episodes] = {}
    for number, (budget, margin) in enumerate(cells):
        inner = None if progress is None else _within(progress, number, len(cells))
        records[budget, margin] = attacked_cell(attack, budget, margin, folder, workers, inner)
    result = summary(attack, records)
    metadata = {
        "versions": versions(),
        "wall_seconds": round(time.monotonic() - began, 3),
        "workers": workers,
        "replay": _replay(attack, result, folder),
    }
    finish_run(folder, result, metadata=metadata, baseline=attack.task.baseline, command=command)
    return result


def _replay(attack: Attack, result: dict[str, Any], folder: Path) -> str | None:
    """Record one episode at the largest budget, with the value gap that hurt most; return why not, if not."""
    most = int(np.argmax(attack.budgets))
    under = attack.plan(attack.budgets[most], result["curve_lambda"][most])
    return record_replay(replace(under, attacker=None, budget=0.0), under, folder)


def attacked_records(attack: Attack, folder: Path) -> list[Episodes]:
    """Return the records of every cell that ``attacked_run`` left in ``folder``."""
    return [Episodes.load(folder / cell_name(budget, margin) / "episodes.npz") for budget, margin in attack.cells()]


def matching_certificates(attack: Attack, given: Path | None, beside: Path) -> list[tuple[Path, Certificate]]:
    """Return the certificates of this setup: the one that was named, or those next to the attack."""
    if given is not None:
        path = given / EpisodeCertificate.file if given.is_dir() else given
        certificate = Certificate.load(path)
        if not _fits(certificate, attack):
            raise InputError(f"{path} is about another task, agent or sigma than this attack; name one that fits")
        return [(path, certificate)]
    found = []
    for path in sorted(beside.glob(f"*/{EpisodeCertificate.file}")):
        with suppress(InputError):
            certificate = Certificate.load(path)
            if _fits(certificate, attack):
                found.append((path, certificate))
    return found


def _fits(certificate: Certificate, attack: Attack) -> bool:
    # The budgets of another threat are not those of one episode. Attacks are measured by the plain return, which a
    # certificate of the discounted one says nothing about.
    metadata = {"task": attack.task.name, "agent": attack.policy.name, "agent_sha256": attack.policy.sha256 or None}
    plain = certificate.kind is None and certificate.metadata.get("discount") is None
    return plain and certificate.is_about(metadata, attack.sigma)


def summary(attack: Attack, records: dict[tuple[float, float | None], Episodes]) -> dict[str, Any]:
    """Return means and standard errors per budget and threshold, and the pointwise minimum: the attack curve."""
    margins = attack.columns
    grid = [[records[budget, margin] for margin in margins] for budget in attack.budgets]
    mean = [[float(cell.returns.mean()) for cell in row] for row in grid]
    sem = [[_sem(cell) for cell in row] for row in grid]
    worst = [int(np.argmin(row)) for row in mean]
    return {
        "schema": SCHEMA,
        "task": attack.task.name,
        "agent": attack.policy.name,
        "agent_sha256": attack.policy.sha256 or None,
        "sigma": attack.sigma,
        "method": attack.method,
        "draws": attack.draws if attack.sigma > 0 else None,
        "seed": attack.seed,
        "episodes": attack.episodes,
        "budgets": list(attack.budgets),
        "lambdas": margins,
        "mean": mean,
        "sem": sem,
        "curve": [row[best] for row, best in zip(mean, worst, strict=True)],
        "curve_sem": [row[best] for row, best in zip(sem, worst, strict=True)],
        "curve_lambda": [margins[best] for best in worst],
        "largest_spent": max(float(cell.spent.max()) for row in grid for cell in row if cell.spent is not None),
        "mean_spent": [[float(cell.spent.mean()) for cell in row if cell.spent is not None] for row in grid],
        "spending": [_spending(row[best]) for row, best in zip(grid, worst, strict=True)],
    }


def attacked_cell(
    attack: Attack,
    budget: float,
    margin: float | None,
    folder: Path,
    workers: int = 1,
    progress: Progress | None = None,
) -> Episodes:
    """Play one cell, or read it if it lies in ``folder``; several processes may each play other cells."""
    plan = attack.plan(budget, margin)
    with RunFolder(folder / cell_name(budget, margin), plan.setup()).opened() as store:
        return store.recorded(
            lambda done, save: play(plan, workers=workers, done=done, on_block=save, progress=progress)
        )


def cell_name(budget: float, margin: float | None) -> str:
    """Return the name of a cell's folder."""
    return f"B{budget:g}" + ("" if margin is None else f"-lambda{margin:g}")


def _within(progress: Progress, number: int, cells: int) -> Progress:
    return lambda done, of: progress(number * of + done, cells * of)


def _sem(episodes: Episodes) -> float:
    return float(episodes.returns.std(ddof=1)) / len(episodes) ** 0.5 if len(episodes) > 1 else 0.0


def _spending(episodes: Episodes) -> list[float]:
    """Return the mean squared offset at each step up to the last one; they sum to the mean squared spending."""
    assert episodes.spending is not None
    # An attack spends everything within a hundred steps of a game that may take 27,000.
    last = max(episodes.spending.nonzero()[0], default=0)
    return [float(value) for value in episodes.spending[: last + 1] / len(episodes)]
