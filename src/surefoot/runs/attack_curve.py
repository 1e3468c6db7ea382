"""``surefoot.attack``: what ``surefoot attack`` does, from Python, with or without a run directory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.agents.resolve import resolve
from surefoot.attacks.registry import default_method
from surefoot.episodes import Episodes, Noise
from surefoot.play.plan import Plan, resolve_device
from surefoot.play.rollout import Progress, play
from surefoot.play.task import Task
from surefoot.play.tasks import get_task
from surefoot.play.workers import Workers
from surefoot.proof.certificate import Certificate
from surefoot.proof.inconsistency import Inconsistency, inconsistencies
from surefoot.runs.attacked import AttackGrid, attacked_records, attacked_run, summary, within
from surefoot.runs.folder import check_reusable, configuration_name


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class AttackCurve:
    """Mean returns of an agent under attack. They are estimates: a better attack may lower them.

    >>> import surefoot
    >>> curve = surefoot.attack("cartpole-1", lambda seen: 0, budgets=[0, 0.1], method="random", n_episodes=2)
    >>> bool(curve.lowest[0] == curve.mean[0].min())
    True

    Attributes:
        budgets: Attack budgets: l2 norms of all perturbations of one episode.
        lambdas: Value gaps or weights that were tried, None for an attack without any.
        mean: Mean return for each budget (rows) and lambda (columns).
        sem: Its standard error.
        lowest: Lowest mean of each row: the attack curve.
        lowest_sem: Its standard error.
        records: The attacked episodes of each configuration, budget by budget, lambda by lambda.
        summary: All of this and more as JSON data, as ``attack.json`` has it.
    """

    budgets: NDArray[np.float64]
    lambdas: tuple[float | None, ...]
    mean: NDArray[np.float64]
    sem: NDArray[np.float64]
    lowest: NDArray[np.float64]
    lowest_sem: NDArray[np.float64]
    records: tuple[Episodes, ...]
    summary: dict[str, Any]

    def inconsistencies(self, certificate: Certificate) -> list[Inconsistency]:
        """Return where an attacked mean is below a certified bound of the same agent: then one of the two is wrong."""
        return inconsistencies(certificate, self.records)

    def __repr__(self) -> str:
        about = self.summary
        rows = "".join(
            f"\n  budget {budget:g}: {mean:.2f} ± {sem:.2f}"
            for budget, mean, sem in zip(self.budgets, self.lowest, self.lowest_sem, strict=True)
        )
        return (
            f"<AttackCurve of {about['agent']} on {about['task']}: sigma {about['sigma']:g}, method {about['method']}, "
            f"{about['episodes']:,} episodes each{rows}>"
        )


def attack(
    task: str | Task,
    agent: object,
    *,
    budgets: Sequence[float],
    sigma: float = 0.0,
    method: str | None = None,
    lambdas: Sequence[float] | None = None,
    noise_samples: int = 128,
    n_episodes: int = 1_000,
    seed: int = 0,
    device: str = "cpu",
    workers: int | Workers = 1,
    out: str | Path | None = None,
    n_stack: int | None = None,
    batched: bool | None = None,
    stochastic: bool = False,
    pixel_max: float | None = None,
    allow_pickle: bool = False,
    vecnormalize: object = None,
    progress_callback: Progress | None = None,
) -> AttackCurve:
    """Attack an agent, undefended or smoothed, over a grid of budgets.

    >>> import surefoot
    >>> curve = surefoot.attack("cartpole-1", lambda seen: 0, budgets=[0.1], method="random", n_episodes=2)
    >>> curve.mean.shape, curve.lambdas
    ((1, 1), (None,))

    Args:
        task: A task's name, or a Task.
        agent: What ``surefoot.rollout`` takes.
        budgets: Attack budgets: l2 norms of all perturbations of one episode.
        sigma: The agent's noise; 0 attacks it undefended.
        method: "paper" (Algorithm 1 for discrete actions, 2 for continuous ones), "adaptive", "random",
            "constant-direction", "single-step" or "structured"; by default "paper" where the agent has what it needs,
            else "adaptive".
        lambdas: Value gaps below which Algorithm 1 saves its budget, weights of the norm in Algorithm 2, or, of the
            adaptive attack on continuous actions, the shares of the steps, at the end of an episode, that get no
            budget. By default 0 and quantiles of the agent's own value gaps, the paper's weights, or 0, 0.75 and 0.95.
        noise_samples: Noise samples that attacks on a smoothed agent average over.
        n_episodes: Episodes for each budget and lambda.
        seed: Seed of the run.
        device: "cpu", "cuda" or "auto".
        workers: Processes to run episodes with, or other workers; they do not change the results.
        out: Run directory to write everything to, the report included, and to resume from; nothing is written without.
        n_stack: See ``surefoot.rollout``, as for the others.
        batched: Whether a function takes rows of observations.
        stochastic: Whether the agent draws random actions of its own.
        pixel_max: What the agent takes for the brightest pixel.
        allow_pickle: Let the agent's file execute code.
        vecnormalize: Statistics that the agent's observations are normalized with.
        progress_callback: Called with the numbers of finished and of all episodes.

    Raises:
        InputError: If the agent does not fit the task, or does not have what the attack needs.
    """
    task = get_task(task) if isinstance(task, str) else task
    policy = resolve(
        agent,
        task.spaces,
        n_stack=n_stack,
        batched=batched,
        stochastic=stochastic,
        pixel_max=pixel_max,
        allow_pickle=allow_pickle,
        vecnormalize=vecnormalize,
    )
    base = Plan(
        task=task,
        policy=policy,
        noise=Noise.of(sigma),
        n_episodes=n_episodes,
        seed=seed,
        device=resolve_device(device),
    )
    chosen = default_method(task, policy) if method is None else method
    grid = AttackGrid(base=base, budgets=tuple(budgets), method=chosen, noise_samples=noise_samples)
    grid = replace(grid, lambdas=grid.default_lambdas() if lambdas is None else tuple(lambdas))
    if out is not None:
        for one in grid.configurations():
            check_reusable(base, Path(out) / configuration_name(*one))
        result = attacked_run(grid, Path(out), workers=workers, progress=progress_callback)
        return _curve(result, attacked_records(grid, Path(out)))
    configurations = grid.configurations()
    records = {
        one: play(grid.plan(*one), workers=workers, progress=within(progress_callback, number, len(configurations)))
        for number, one in enumerate(configurations)
    }
    return _curve(summary(grid, records), list(records.values()))


def _curve(result: dict[str, Any], records: Sequence[Episodes]) -> AttackCurve:
    budgets, mean, sem, lowest, lowest_sem = (
        np.array(result[key], dtype=np.float64) for key in ("budgets", "mean", "sem", "curve", "curve_sem")
    )
    return AttackCurve(
        budgets=budgets,
        lambdas=tuple(result["lambdas"]),
        mean=mean,
        sem=sem,
        lowest=lowest,
        lowest_sem=lowest_sem,
        records=tuple(records),
        summary=result,
    )
