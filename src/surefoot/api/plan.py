"""``surefoot.plan`` and ``surefoot.tune``: what to expect before certifying, and which sigma to certify."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.agents.files import list_agents, load_card
from surefoot.agents.policies import Sigma
from surefoot.api.returns import CertifiedRun
from surefoot.api.setup import RUNS, AnyWorkers, ProgressCallback, as_processes, as_task, keep_on_interrupt, plan_run
from surefoot.compute import usable_cores
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.plan import Plan, seeded_plan
from surefoot.play.rollout import play
from surefoot.play.streams import Purpose
from surefoot.play.task import Task
from surefoot.play.workers import Processes, Workers
from surefoot.proof.forecast import Forecast, best_achievable, best_forecast, forecast
from surefoot.proof.query import Query, check_confidence
from surefoot.runs.certified import certified_run, run_name


@dataclass(frozen=True)
class Cost:
    """What an episode of a pilot took on this machine: an estimate for larger runs."""

    core_seconds: float  # seconds of one core
    gpu_seconds: float | None  # seconds of the GPU; None where none was used
    block: int  # number of episodes that one core runs together
    cores: int  # number of cores to plan for

    def seconds(self, n_episodes: int) -> float:
        """Return how long so many episodes take: their blocks dealt to the cores, or on one GPU."""
        if self.gpu_seconds is not None:
            return n_episodes * self.gpu_seconds
        # A core runs whole blocks, so a few more episodes may take twice as long.
        blocks_in_turn = -(-n_episodes // self.block // self.cores)
        return min(n_episodes, blocks_in_turn * self.block) * self.core_seconds

    def to_json(self, n_episodes: int | None) -> dict[str, float | int | None]:
        """Return the cost as JSON data; of episodes that never suffice, only that of one."""
        content: dict[str, float | int | None] = {
            "core_seconds_per_episode": self.core_seconds,
            "gpu_seconds_per_episode": self.gpu_seconds,
            "cores": self.cores,
            "core_hours": None,
            "gpu_minutes": None,
            "seconds": None,
        }
        if n_episodes is not None:
            content["core_hours"] = n_episodes * self.core_seconds / 3600
            content["seconds"] = self.seconds(n_episodes)
            if self.gpu_seconds is not None:
                content["gpu_minutes"] = n_episodes * self.gpu_seconds / 60
        return content

    def describe(self, n_episodes: int) -> str:
        """Return what so many episodes cost, in words."""
        seconds = self.seconds(n_episodes)
        if seconds < 100:
            duration = f"{seconds:.2g} s"
        elif seconds < 6000:
            duration = f"{seconds / 60:.0f} min"
        else:
            duration = f"{seconds / 3600:.0f} h"
        if self.gpu_seconds is not None:
            return f"~{n_episodes:,} episodes are {n_episodes * self.gpu_seconds / 60:.2g} GPU minutes ({duration})"
        hours = n_episodes * self.core_seconds / 3600
        cores = "1 core"
        if self.cores != 1:
            cores = f"{self.cores} cores"
        return f"~{n_episodes:,} episodes are {hours:.2g} core hours, {duration} on {cores}"


@dataclass(frozen=True)
class CostedForecast(Forecast):
    """A forecast, and what the episodes cost."""

    achievable: float  # the best bound that so many episodes can certify, of an agent that never fails
    cost: Cost  # what an episode costs
    fills_gpu: bool  # whether the pilot filled a GPU, without which the cost is too high; True where there is none

    def to_json(self) -> dict[str, Any]:
        """Return the forecast as JSON data, with the cost of the episodes that it predicts."""
        content = super().to_json()
        # The command says these two next to the table, of the sigma that is best.
        del content["achievable"], content["fills_gpu"]
        return {**content, "cost": self.cost.to_json(self.fixed)}


@dataclass(frozen=True, kw_only=True)
class TunedRuns:
    """Certificates of sigmas that were selected, or of all.

    >>> import surefoot
    >>> tuned = surefoot.tune("cartpole-1", budget=0.2, sigmas=[0.2], pilot_episodes=100, n_episodes=200, out="tuned")
    >>> tuned.runs[0].certificate.sigma
    0.2

    Attributes:
        task: What was run.
        forecasts: What pilot episodes predict for each sigma; none where all are certified.
        runs: The run of the sigma that was selected, or of every sigma.
        explanation: Why their confidence holds in spite of the selection.
    """

    task: Task
    forecasts: tuple[CostedForecast, ...]
    runs: tuple[CertifiedRun, ...]
    explanation: str


def plan(
    task: str | Task,
    agent: object = None,
    *,
    require: tuple[float, float],
    sigmas: Sequence[Sigma] | None = None,
    n_episodes: int = 10_000,
    pilot_episodes: int = 1_000,
    confidence: float = 0.95,
    seed: int | None = None,
    device: str = "cpu",
    workers: AnyWorkers = 1,
    cores: int | None = None,
    progress_callback: ProgressCallback | None = None,
) -> list[CostedForecast]:
    """Predict how many episodes a requirement needs, and which sigma certifies the most: estimates, not bounds.

    >>> import surefoot
    >>> (forecast,) = surefoot.plan("cartpole-1", require=(150, 0.2), sigmas=[0.4], pilot_episodes=200)
    >>> forecast.agent, forecast.sigma
    ('cartpole-1-s0.4', 0.4)

    Args:
        task: A task's name, or a Task.
        agent: What ``surefoot.rollout`` takes; by default the task's pretrained agent of each sigma.
        require: The mean return that is to be proved, and the attack budget.
        sigmas: Standard deviations of the noise to compare, each one number, one per feature, or one per part; by
            default those with a pretrained agent, else a third, half and all of the budget.
        n_episodes: Number of episodes that the expected bound is for.
        pilot_episodes: Pilot episodes per sigma, which no certificate uses.
        confidence: Probability with which the bounds are to hold.
        seed: Seed of the pilot episodes; by default it follows from agent and setup.
        device: "cpu", "cuda" or "auto".
        workers: Processes to run episodes with, None for one per core, or other workers.
        cores: Cores of the machines to plan for; by default those of this machine, or of the workers.
        progress_callback: Called with the numbers of finished and of all pilot episodes, and the sigma in words.

    Returns:
        A forecast for each sigma.

    Raises:
        InputError: If there is no sigma to compare, or a number makes no sense.
    """
    mean, budget = require
    if cores is not None and cores < 1:
        raise InputError(f"cores= must be at least 1, got {cores}")
    pilots = _pilot_plans(as_task(task), agent, sigmas, budget, pilot_episodes, confidence, seed, device, workers)
    processes = as_processes(workers, pilots[0].gpu_share)
    if cores is None and isinstance(processes, Processes):
        # The processes of a pilot may be fewer than the machine has cores.
        cores = usable_cores()
    elif cores is None:
        cores = processes.n_parallel(0.0)
    progress = _TotalProgress(progress_callback, len(pilots) * pilot_episodes)
    return [
        _forecast_pilot(pilot, processes, progress, budget, mean, n_episodes, confidence, cores) for pilot in pilots
    ]


def tune(
    task: str | Task,
    agent: object = None,
    *,
    budget: float,
    sigmas: Sequence[Sigma] | None = None,
    all_sigmas: bool = False,
    n_episodes: int = 10_000,
    pilot_episodes: int = 1_000,
    confidence: float = 0.95,
    seed: int | None = None,
    device: str = "cpu",
    workers: AnyWorkers = 1,
    out: str | Path | None = None,
    progress_callback: ProgressCallback | None = None,
) -> TunedRuns:
    """Select the sigma that certifies the most at a budget on pilot episodes, and certify it on others.

    >>> import os, tempfile
    >>> import surefoot
    >>> os.chdir(tempfile.mkdtemp())
    >>> tuned = surefoot.tune("cartpole-1", budget=0.2, sigmas=[0.2, 0.4], pilot_episodes=200, n_episodes=500)
    >>> len(tuned.forecasts), len(tuned.runs)
    (2, 1)

    Args:
        task: A task's name, or a Task.
        agent: What ``surefoot.rollout`` takes; by default the task's pretrained agent of each sigma.
        budget: Attack budget at which the bound is to be largest.
        sigmas: Standard deviations of the noise to compare, each one number, one per feature, or one per part; by
            default those with a pretrained agent, else a third, half and all of the budget.
        all_sigmas: Certify every sigma, alpha split among them, and select none.
        n_episodes: Number of episodes to certify with.
        pilot_episodes: Pilot episodes per sigma, which no certificate uses.
        confidence: Probability that all lower bounds hold simultaneously.
        seed: Seed of the run; by default it follows from agent and setup.
        device: "cpu", "cuda" or "auto".
        workers: Processes to run episodes with, None for one per core, or other workers.
        out: Directory of the run directories; ``runs`` by default.
        progress_callback: Called with the numbers of finished and of all episodes, and the sigma in words.

    Raises:
        InputError: If there is no sigma to compare, or a number makes no sense.
    """
    task = as_task(task)
    pilots = _pilot_plans(task, agent, sigmas, budget, pilot_episodes, confidence, seed, device, workers)
    processes = as_processes(workers, pilots[0].gpu_share)
    if all_sigmas:
        progress = _TotalProgress(progress_callback, len(pilots) * n_episodes)
        forecasts = []
        kept = pilots
        explanation = (
            f"All {len(kept)} sigmas are certified, alpha split among them: their bounds hold simultaneously with "
            f"confidence {confidence:g}, and any of them may be selected."
        )
    else:
        progress = _TotalProgress(progress_callback, len(pilots) * pilot_episodes + n_episodes)
        forecasts = [
            _forecast_pilot(pilot, processes, progress, budget, None, n_episodes, confidence, usable_cores())
            for pilot in pilots
        ]
        kept = [pilots[forecasts.index(best_forecast(forecasts))]]
        explanation = f"Sigma was selected on {pilot_episodes:,} other episodes per sigma, at no cost in confidence."
    # One of several certificates has its share of alpha; a sigma that was selected on other episodes has all of it.
    query = Query(budgets=(budget,), confidence=1 - (1 - confidence) / len(kept))
    parent = RUNS if out is None else Path(out)
    runs = []
    for pilot in kept:
        # A seed that follows from the setup is another one for another number of episodes.
        whole = seeded_plan(replace(pilot, n_episodes=n_episodes), seed)
        folder = parent / run_name(whole)
        # In a directory of the user's own all runs are of this command; among others only this one is.
        with keep_on_interrupt(folder if out is None else parent):
            shown = progress.next_part(n_episodes, f"sigma {pilot.noise.sigma:g}")
            certificate = certified_run(whole, query, folder, workers=processes, progress=shown)
        runs.append(CertifiedRun(certificate=certificate, directory=folder, task=task))
    return TunedRuns(task=task, forecasts=tuple(forecasts), runs=tuple(runs), explanation=explanation)


class _TotalProgress:
    """Progress of several runs in turn, as that of one."""

    def __init__(self, callback: ProgressCallback | None, n_episodes: int) -> None:
        self._callback = callback
        self._n_episodes = n_episodes
        self._before = 0

    def next_part(self, n_episodes: int, note: str) -> ProgressCallback | None:
        """Return what reports the progress of the next run, of so many episodes."""
        if self._callback is None:
            return None
        callback = self._callback
        # Kept for this run: by the time it reports, the next one may have been added.
        before = self._before
        self._before += n_episodes
        return lambda done, _: callback(before + done, self._n_episodes, note)


def _pilot_plans(
    task: Task,
    agent: object,
    sigmas: Sequence[Sigma] | None,
    budget: float,
    pilot_episodes: int,
    confidence: float,
    seed: int | None,
    device: str,
    workers: AnyWorkers,
) -> list[Plan]:
    """Return one plan per sigma, of the certificate's own episodes: the purpose of pilots is given where they run."""
    check_confidence(confidence)
    if not sigmas:
        sigmas = _find_sigmas(task) or _sigmas_for(budget)
    noises = [Noise.of(task.spaces.sigma_of(sigma)) for sigma in sigmas]
    if not all(noise.sigma > 0 for noise in noises):
        raise InputError(f"sigmas must be > 0, got {list(sigmas)}: without noise nothing is certified")
    _check_comparable(noises)
    return [
        plan_run(task, agent, sigma=sigma, n_episodes=pilot_episodes, seed=seed, device=device, workers=workers)
        for sigma in sigmas
    ]


def _check_comparable(noises: Sequence[Noise]) -> None:
    """Raise if one budget would mean something else for each noise: it counts a feature by its share of the least."""
    shares = []
    for noise in noises:
        features = np.array(noise.features or (noise.sigma,))
        shares.append(features / noise.sigma)
    first = shares[0]
    for share in shares[1:]:
        if share.shape != first.shape or not np.allclose(share, first):
            raise InputError(
                "sigmas= must be multiples of one another: a budget counts the perturbation of a feature by its sigma, "
                "so that it would be another one for each of them"
            )


def _find_sigmas(task: Task) -> list[Sigma]:
    """Return the sigmas of the task's pretrained agents, those without noise left out."""
    sigmas: list[Sigma] = []
    for agent in list_agents():
        card = load_card(agent)
        sigma = card["sigma"]
        # Other trainings of the same sigma have longer names: each sigma counts once.
        if sigma > 0 and card["name"] == f"{task.name}-s{sigma:g}":
            sigmas.append(sigma)
    return sigmas


def _sigmas_for(budget: float) -> list[Sigma]:
    """Return a third, half and all of the budget: at three sigmas two thirds of a range can be certified."""
    if not budget > 0:
        raise InputError(f"give sigmas=, for a budget of {budget:g} says nothing about the noise")
    return [float(f"{share * budget:.3g}") for share in (1 / 3, 1 / 2, 1)]


def _forecast_pilot(
    pilot: Plan,
    workers: Workers,
    progress: _TotalProgress,
    budget: float,
    require: float | None,
    n_episodes: int,
    confidence: float,
    cores: int,
) -> CostedForecast:
    """Run pilot episodes, whose random numbers no certificate uses, and return what they predict and cost."""
    began = time.perf_counter()
    shown = progress.next_part(pilot.n_episodes, f"pilot, sigma {pilot.noise.sigma:g}")
    # Whatever is selected on a pilot is certified on other episodes: its purpose is another stream of seeds.
    episodes = play(replace(pilot, purpose=(Purpose.PILOT,)), workers=workers, progress=shown)
    seconds_each = (time.perf_counter() - began) / len(episodes)
    # Processes that had no block cost nothing.
    n_busy = min(workers.n_parallel(pilot.gpu_share), pilot.n_blocks)
    on_gpu = pilot.device == "cuda"
    gpu_seconds = seconds_each if on_gpu else None
    cost = Cost(n_busy * seconds_each, gpu_seconds, pilot.block_size, cores)
    alpha = 1 - confidence
    predicted = forecast(episodes, budget=budget, alpha=alpha, n_episodes=n_episodes, require=require)
    scoring = pilot.task.scoring
    return CostedForecast(
        **asdict(predicted),
        achievable=best_achievable(n_episodes, budget / pilot.noise.sigma, alpha, scoring.floor, scoring.ceiling),
        cost=cost,
        fills_gpu=not on_gpu or pilot.n_episodes >= pilot.block_size,
    )
