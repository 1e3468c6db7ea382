"""``surefoot.attack`` and ``AttackCurve``: an agent under attack, held against its certificates."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from surefoot.api.certify import check_shareable
from surefoot.api.setup import RUNS, AnyWorkers, ProgressCallback, as_processes, as_task, keep_on_interrupt, plan_run
from surefoot.attacks.registry import default_method
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.play.rollout import play
from surefoot.play.task import Task
from surefoot.proof.certificate import Certificate
from surefoot.proof.inconsistency import Inconsistency, inconsistencies
from surefoot.report.page import REPORT_FILE, write_report
from surefoot.runs.attacked import (
    AttackGrid,
    attacked_records,
    attacked_run,
    attacked_share,
    matching_certificates,
    nest_progress,
    summary,
)
from surefoot.runs.folder import check_reusable, configuration_name
from surefoot.runs.read import read_run
from surefoot.runs.shares import Share


@dataclass(frozen=True)
class Contradiction:
    """A certificate and an attack of which one is wrong."""

    certificate: Path
    inconsistency: Inconsistency


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class AttackCurve:
    """Mean returns of an agent under attack. They are estimates: a better attack may lower them.

    >>> import surefoot
    >>> curve = surefoot.attack("cartpole-1", "cartpole-1-s0", budgets=[0, 0.2], method="random", n_episodes=20)
    >>> curve.budgets, curve.lowest
    (array([0. , 0.2]), array([200., 200.]))

    Attributes:
        budgets: Attack budgets: l2 norms of all perturbations of one episode.
        lambdas: Value gaps or weights that were tried, None for an attack without any.
        mean: Mean return for each budget (rows) and lambda (columns).
        sem: Its standard error.
        lowest: Lowest mean of each row: the attack curve.
        lowest_sem: Its standard error.
        records: The attacked episodes of each configuration, budget by budget, lambda by lambda.
        summary: All of this and more as JSON data, as ``attack.json`` has it.
        directory: The run directory; None if nothing was written.
        compared_with: The certificates of the same agent and setup that were found next to it, or the one named.
        contradictions: Where an attacked mean is below one of their bounds: then one of the two is wrong.
    """

    budgets: NDArray[np.float64]
    lambdas: tuple[float | None, ...]
    mean: NDArray[np.float64]
    sem: NDArray[np.float64]
    lowest: NDArray[np.float64]
    lowest_sem: NDArray[np.float64]
    records: tuple[Episodes, ...]
    summary: dict[str, Any]
    directory: Path | None = None
    compared_with: tuple[Path, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()

    def inconsistencies(self, certificate: Certificate) -> list[Inconsistency]:
        """Return where an attacked mean is below a certified bound of the same agent: then one of the two is wrong."""
        return inconsistencies(certificate, self.records)

    def __repr__(self) -> str:
        about = self.summary
        lines = [
            f"<AttackCurve of {about['agent']} on {about['task']}: sigma {about['sigma']:g}, method {about['method']}, "
            f"{about['n_episodes']:,} episodes each"
        ]
        for budget, mean, sem in zip(self.budgets, self.lowest, self.lowest_sem, strict=True):
            lines.append(f"  budget {budget:g}: {mean:.2f} ± {sem:.2f}")
        return "\n".join(lines) + ">"


def attack(
    task: str | Task,
    agent: object = None,
    *,
    budgets: Sequence[float],
    sigma: float = 0.0,
    method: str | None = None,
    lambdas: Sequence[float] | Literal["paper"] | None = None,
    noise_samples: int = 128,
    n_episodes: int = 1_000,
    seed: int = 0,
    device: str = "cpu",
    workers: AnyWorkers = 1,
    out: str | Path | None = None,
    certificate: str | Path | None = None,
    record: bool = False,
    progress_callback: ProgressCallback | None = None,
) -> AttackCurve:
    """Attack an agent, undefended or smoothed, over a grid of budgets.

    >>> import surefoot
    >>> surefoot.attack("cartpole-1", "cartpole-1-s0", budgets=[0.2], method="random", n_episodes=20)
    <AttackCurve of cartpole-1-s0 on cartpole-1: sigma 0, method random, 20 episodes each
      budget 0.2: 200.00 ± 0.00>

    Args:
        task: A task's name, or a Task.
        agent: What ``surefoot.rollout`` takes; the task's pretrained agent by default.
        budgets: Attack budgets: l2 norms of all perturbations of one episode.
        sigma: The agent's noise; 0 attacks it undefended.
        method: "paper" (Algorithm 1 for discrete actions, 2 for continuous ones), "adaptive", "random",
            "constant-direction", "single-step" or "structured"; by default "paper" where the agent has what it needs,
            else "adaptive".
        lambdas: Value gaps below which Algorithm 1 saves its budget, weights of the norm in Algorithm 2, or, of the
            adaptive attack on continuous actions, the shares of the steps, at the end of an episode, that get no
            budget; "paper" for the paper's. By default 0 and quantiles of the agent's own value gaps, the paper's
            weights, or 0, 0.75 and 0.95.
        noise_samples: Noise samples that attacks on a smoothed agent average over.
        n_episodes: Episodes for each budget and lambda.
        seed: Seed of the run.
        device: "cpu", "cuda" or "auto".
        workers: Processes to run episodes with, None for one per core, or other workers; they do not change the
            results.
        out: Run directory to write everything to, the report included, and to resume from; nothing is written without.
        certificate: Certified run to compare with; by default those next to ``out``.
        record: Whether to record one more episode, without and under attack, for the report in ``out``.
        progress_callback: Called with the numbers of finished and of all episodes.

    Raises:
        InputError: If the agent does not fit the task, or does not have what the attack needs.
    """
    grid = attack_grid(
        task,
        agent,
        budgets=budgets,
        sigma=sigma,
        method=method,
        lambdas=lambdas,
        noise_samples=noise_samples,
        n_episodes=n_episodes,
        seed=seed,
        device=device,
        workers=workers,
    )
    if out is not None:
        return attack_into(
            Path(out), grid, workers=workers, certificate=certificate, progress=progress_callback, record=record
        )
    if certificate is not None:
        raise InputError("certificate= goes with out=, where what is compared is written")
    processes = as_processes(workers, grid.base.gpu_share)
    configurations = grid.configurations()
    records = {}
    for number, one in enumerate(configurations):
        progress = nest_progress(progress_callback, number, len(configurations))
        records[one] = play(grid.plan(*one), workers=processes, progress=progress)
    return _make_curve(summary(grid, records), list(records.values()))


def attack_grid(
    task: str | Task,
    agent: object,
    *,
    budgets: Sequence[float],
    sigma: float,
    method: str | None,
    lambdas: Sequence[float] | Literal["paper"] | None,
    noise_samples: int,
    n_episodes: int,
    seed: int,
    device: str,
    workers: AnyWorkers,
) -> AttackGrid:
    """Return the attacks that the arguments of ``attack`` describe, with a method and lambdas chosen where none are."""
    task = as_task(task)
    base = plan_run(task, agent, sigma=sigma, n_episodes=n_episodes, seed=seed, device=device, workers=workers)
    if method is None:
        method = default_method(task, base.policy)
    # The default lambdas are quantiles of the agent's own value gaps, so they need the grid without lambdas first.
    grid = AttackGrid(base=base, budgets=tuple(budgets), method=method, noise_samples=noise_samples)
    if lambdas is None:
        lambdas = grid.default_lambdas()
    elif lambdas == "paper":
        lambdas = task.paper.lambdas
    return replace(grid, lambdas=tuple(lambdas))


def attack_into(
    folder: Path | None,
    grid: AttackGrid,
    *,
    workers: AnyWorkers = 1,
    certificate: str | Path | None = None,
    progress: ProgressCallback | None = None,
    command: str | None = None,
    record: bool = False,
) -> AttackCurve:
    """Run a grid into a run directory and compare it with certificates of the same agent and setup.

    Args:
        folder: The run directory; ``runs/REPORT_FILE`` if None.
        grid: The attacks.
        workers: As ``attack`` takes them.
        certificate: Certified run to compare with; by default those next to ``folder``.
        progress: Called with the numbers of finished and of all episodes.
        command: What was typed to get this; the report shows it.
        record: Whether to record one more episode for the report.
    """
    if folder is None:
        folder = RUNS / grid.name
    named = None if certificate is None else Path(certificate)
    _check_reusable(grid, folder)
    if named is not None:
        # A wrong one is rejected before hours of attacks, not after.
        matching_certificates(grid, named, folder.parent)
    with keep_on_interrupt(folder):
        processes = as_processes(workers, grid.base.gpu_share)
        result = attacked_run(grid, folder, workers=processes, progress=progress, command=command, record=record)
    # Looked for again: a certificate may have been written next to it while the attack ran.
    certificates = matching_certificates(grid, named, folder.parent)
    records = attacked_records(grid, folder)
    contradictions = []
    paths = []
    for path, stated in certificates:
        paths.append(path)
        for inconsistency in inconsistencies(stated, records):
            contradictions.append(Contradiction(path, inconsistency))
    if named is not None:
        # A lone file has no folder to read; then the page that is there stays.
        with suppress(InputError):
            runs = [read_run(path.parent) for path in paths]
            write_report([*runs, read_run(folder)], folder / REPORT_FILE)
    curve = _make_curve(result, records)
    return replace(curve, directory=folder, compared_with=tuple(paths), contradictions=tuple(contradictions))


def attack_share(
    folder: Path | None,
    grid: AttackGrid,
    share: Share,
    *,
    workers: AnyWorkers = 1,
    progress: ProgressCallback | None = None,
) -> tuple[Path, int]:
    """Run a share of the blocks of every configuration; return its directory and how many episodes it has."""
    check_shareable(grid.base)
    if folder is None:
        folder = RUNS / f"{grid.name}{share.suffix}"
    _check_reusable(grid, folder)
    processes = as_processes(workers, grid.base.gpu_share)
    with keep_on_interrupt(folder):
        return folder, attacked_share(grid, share, folder, workers=processes, progress=progress)


def _check_reusable(grid: AttackGrid, folder: Path) -> None:
    # Each configuration is a run with a setup of its own, and may have been run before the others.
    for budget, lambda_ in grid.configurations():
        check_reusable(grid.base, folder / configuration_name(budget, lambda_))


def _make_curve(result: dict[str, Any], records: Sequence[Episodes]) -> AttackCurve:
    return AttackCurve(
        budgets=np.array(result["budgets"], dtype=np.float64),
        lambdas=tuple(result["lambdas"]),
        mean=np.array(result["mean"], dtype=np.float64),
        sem=np.array(result["sem"], dtype=np.float64),
        lowest=np.array(result["curve"], dtype=np.float64),
        lowest_sem=np.array(result["curve_sem"], dtype=np.float64),
        records=tuple(records),
        summary=result,
    )
