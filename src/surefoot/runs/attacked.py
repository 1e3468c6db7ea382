"""Attack an agent over a grid of budgets and lambdas, and find the certificates to compare the outcome with."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.attacks.actions import Push, find_push
from surefoot.attacks.flips import PixelAttacker
from surefoot.attacks.learned import LearnedAttacker
from surefoot.attacks.registry import METHODS, Configuration, Method
from surefoot.attacks.value_gaps import default_lambdas
from surefoot.attacks.victim import Smoothing, smoothing_of
from surefoot.episodes import Episodes
from surefoot.errors import InputError, did_you_mean
from surefoot.files import safe_name
from surefoot.play.channel import Attacker, unit_of_budget
from surefoot.play.plan import Plan
from surefoot.play.rollout import Progress, play
from surefoot.play.streams import Purpose
from surefoot.play.workers import Workers, as_workers
from surefoot.proof.certificate import Certificate
from surefoot.proof.episode_budget import EpisodeCertificate
from surefoot.provenance import versions
from surefoot.report.sentences import IDLE_SHARE
from surefoot.runs.finish import finish_run
from surefoot.runs.folder import RunFolder, configuration_name, noise_name
from surefoot.runs.read import ATTACK_SCHEMA
from surefoot.runs.shares import Share, run_share
from surefoot.runs.taped_episode import record_replay

UNATTACKED = "unattacked"  # the directory of the twins


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The mean return under one attack on selection episodes."""

    budget: float
    method: str
    lambda_: float | None
    mean: float


@dataclass(frozen=True, kw_only=True)
class AttackGrid:
    """A run, and the attacks on its agent: one configuration for every budget and lambda."""

    base: Plan  # the run of one configuration but for the attack; sigma is 0 for an undefended agent
    budgets: Sequence[float]  # attack budgets: l2 norms of all perturbations of one episode
    # Value gaps lambda_q of Algorithm 1, weights lambda of Algorithm 2, or, of the adaptive attack on continuous
    # actions, shares of the steps that get no budget, where the method has one.
    lambdas: Sequence[float] = (0.0,)
    method: str = "paper"  # name of the attack
    own: Attacker | None = None  # the attack itself, where it is none of ours
    noise_samples: int = 128  # noise samples that attacks on a smoothed agent average over
    attacker: LearnedAttacker | PixelAttacker | None = None  # the learned attacker; None until it is trained or read
    # Of the method "strongest": what was tried on selection episodes, to choose the lowest at each budget.
    trials: tuple[Trial, ...] = ()
    push: Push | None = None  # what an adaptive attack on actions has found to harm most

    def __post_init__(self) -> None:
        if self.own is None and self.method not in METHODS:
            meant = did_you_mean(self.method, METHODS)
            raise InputError(
                f"method must be one of {', '.join(METHODS)}, or module:name of one of your own, got {self.method!r}"
                f"{meant}"
            )
        if not self.budgets or not all(np.isfinite(budget) and budget >= 0 for budget in self.budgets):
            raise InputError(f"budgets must be finite numbers >= 0, at least one, got {list(self.budgets)}")
        method = self.kind
        if method.has_lambda and not self.lambdas:
            raise InputError(f"the method {self.method} needs at least one lambda")
        method.check(self.base.task, self.base.policy)
        if method.is_learned and len(self.base.channels) > 1:
            raise InputError(
                f"the method {self.method} perturbs observations or actions; choose one with channel=, or use "
                "method='strongest'"
            )
        if (method.is_learned and self.attacker is None) or (method.is_battery and not self.trials):
            return
        # A configuration that cannot be run is rejected before the first episode of the others.
        for budget, lambda_ in self.configurations():
            self.plan(budget, lambda_)

    @property
    def kind(self) -> Method:
        """What the method needs, and how its attackers are built; one of the user's own is built already."""
        own = self.own
        if own is None:
            return METHODS[self.method]
        return Method(build=lambda _: own)

    @property
    def name(self) -> str:
        """The name of the run's folder: all that usually differs between attacks."""
        base = self.base
        agent = f"{base.policy.name}-sigma{noise_name(base.noise)}"
        if "actions" in base.channels:
            agent += f"-on-{'-'.join(base.channels)}"
        if base.scope.name is not None:
            agent += f"-{base.scope.name.replace(' ', '-')}"
        return safe_name(f"attack-{self.method}-{agent}-seed{base.seed}-n{base.n_episodes}")

    @property
    def columns(self) -> list[float | None]:
        """The lambdas; a method without any has one column."""
        return list(self.lambdas) if self.kind.has_lambda else [None]

    def default_lambdas(self) -> tuple[float, ...]:
        """Return 0 and quantiles of the agent's own value gaps; the attack's or the paper's for continuous actions.

        For an attack without a lambda, and for a budget per step, just 0.
        """
        method = self.kind
        # With a budget for each step nothing is saved for later.
        if not method.has_lambda or self.base.scope.per_step:
            return (0.0,)
        if self.base.task.spaces.n_actions is None:
            return method.lambdas or self.base.task.paper.lambdas
        # An agent without action values is rejected before its value gaps are measured.
        method.check(self.base.task, self.base.policy)
        return default_lambdas(self.plan(max(self.budgets), 0.0), self.smoothing)

    @property
    def smoothing(self) -> Smoothing:
        """The noise that attacks average over."""
        return smoothing_of(self.base.noise, self.noise_samples)

    def with_push(self) -> AttackGrid:
        """Return the grid with the push of actions that harms most at its largest budget, where its method uses one."""
        if self.method not in ("adaptive", "strongest") or "actions" not in self.base.channels:
            return self
        largest = max(self.budgets)
        unit = unit_of_budget(self.base.noise.action_sigma, self.base.noise)
        adaptive = replace(self, method="adaptive")
        return replace(self, push=find_push(adaptive.plan(largest, 0.0), largest * unit))

    def configurations(self) -> list[tuple[float, float | None]]:
        """Return every pair of budget and lambda."""
        return list(product(self.budgets, self.columns))

    def plan(self, budget: float, lambda_: float | None) -> Plan:
        """Return the run of one configuration."""
        method = self.kind
        if method.is_battery and self.trials:
            best = self.strongest_at(budget)
            method = METHODS[best.method]
            lambda_ = best.lambda_
        chosen = Configuration(
            task=self.base.task,
            policy=self.base.policy,
            budget=budget,
            smoothing=self.smoothing,
            noise=self.base.noise,
            channels=self.base.channels,
            per_step=self.base.scope.per_step,
            push=self.push,
            lambda_q=lambda_ or 0.0,
            attacker=self.attacker,
        )
        attacker = method.attacker(chosen)
        return replace(self.twin, attacker=attacker, budget=budget)

    def plans(self) -> list[tuple[str, Plan]]:
        """Return the runs of all configurations, and last that of the twins, each with the name of its directory."""
        attacked = [(configuration_name(*one), self.plan(*one)) for one in self.configurations()]
        return [*attacked, (UNATTACKED, self.twin)]

    def strongest_at(self, budget: float) -> Trial:
        """Return the trial with the lowest mean at a budget."""
        return min((trial for trial in self.trials if trial.budget == budget), key=lambda trial: trial.mean)

    @property
    def twin(self) -> Plan:
        """The same episodes without attack: episode by episode the same start and, step by step, the same noise."""
        # One episode per environment: a second one would begin with other noise where the first took longer.
        return replace(self.base, purpose=(Purpose.ATTACK,), episodes_per_env=1)


def attacked_run(
    grid: AttackGrid,
    folder: Path,
    *,
    workers: int | Workers = 1,
    progress: Progress | None = None,
    command: str | None = None,
    record: bool = False,
) -> tuple[dict[str, Any], list[Episodes]]:
    """Run the configurations that are missing and write everything to ``folder``; a run that was killed resumes there.

    Returns:
        The content of ``attack.json``, and the episodes of every configuration.
    """
    began = time.monotonic()
    result, records = run_grid(grid, folder, workers=workers, progress=progress)
    metadata = {
        "versions": versions(),
        "wall_seconds": round(time.monotonic() - began, 3),
        "workers": as_workers(workers).describe(),
        "replay": None,
    }
    if record:
        metadata["replay"] = _record_most_changed(grid, result, records, folder)
    finish_run(folder, result, metadata=metadata, baseline=grid.base.task.baseline, command=command)
    return result, records


def run_grid(
    grid: AttackGrid, folder: Path | None, *, workers: int | Workers = 1, progress: Progress | None = None
) -> tuple[dict[str, Any], list[Episodes]]:
    """Run every configuration, and its twins without attack, into directories of ``folder``, or in memory without one.

    Returns:
        What was measured, and the episodes of every configuration.
    """
    plans = grid.plans()
    records = []
    for number, (name, plan) in enumerate(plans):
        inner = nest_progress(progress, number, len(plans))
        if folder is None:
            records.append(play(plan, workers=workers, progress=inner))
        else:
            records.append(_run_into(plan, folder / name, workers, inner))
    *attacked, unattacked = records
    by_configuration = dict(zip(grid.configurations(), attacked, strict=True))
    return summary(grid, by_configuration) | matched(grid, by_configuration, unattacked), attacked


def _record_most_changed(
    grid: AttackGrid,
    result: dict[str, Any],
    records: Sequence[Episodes],
    folder: Path,
) -> str | None:
    """Record the episode that lost most at the largest budget, under the lambda that hurt most, and its twin.

    Returns:
        None, or why nothing was recorded.
    """
    most = int(np.argmax(grid.budgets))
    worst = (grid.budgets[most], result["curve_lambda"][most])
    attacked = records[grid.configurations().index(worst)].returns
    unattacked = Episodes.load(folder / UNATTACKED / "episodes.npz").returns
    episode = int(np.argmax(unattacked - attacked))
    tracks = {"quiet": grid.twin, "attacked": grid.plan(*worst)}
    return record_replay(tracks, folder, episode=episode, returns=(unattacked[episode], attacked[episode]))


def matching_certificates(grid: AttackGrid, given: Path | None, nearby: Path) -> list[tuple[Path, Certificate]]:
    """Return the certificates of this setup: the one that was named, or those next to the attack."""
    if given is not None:
        path = given / EpisodeCertificate.file if given.is_dir() else given
        certificate = Certificate.load(path)
        if not grid.base.policy.sha256:
            raise InputError(
                f"{path} cannot be compared with this attack: {grid.base.policy.name} is code without a hash, so "
                "nothing says that both are about the same agent; leave certificate= out"
            )
        if not _is_comparable(certificate, grid):
            raise InputError(
                f"{path} is about another task, step limit, agent or sigma than this attack; name one that fits"
            )
        return [(path, certificate)]
    found = []
    for path in sorted(nearby.glob(f"*/{EpisodeCertificate.file}")):
        # Nobody named these: one that is damaged is no reason to fail.
        with suppress(InputError):
            certificate = Certificate.load(path)
            if _is_comparable(certificate, grid):
                found.append((path, certificate))
    return found


def _is_comparable(certificate: Certificate, grid: AttackGrid) -> bool:
    # The budgets of another threat are not those of one episode. Attacks are measured by the plain return, which a
    # certificate of the discounted one says nothing about.
    plain = certificate.kind is None and certificate.metadata.get("gamma") is None and not grid.base.scope.per_step
    return plain and certificate.is_about(grid.base.facts(), grid.base.noise.sigma)


def summary(grid: AttackGrid, records: dict[tuple[float, float | None], Episodes]) -> dict[str, Any]:
    """Return means and standard errors per budget and lambda, and the pointwise minimum: the attack curve."""
    lambdas = grid.columns
    setup = grid.base.setup()
    result: dict[str, Any] = {
        "schema": ATTACK_SCHEMA,
        "task": setup["task"],
        "max_steps": setup["max_steps"],
        "agent": setup["agent"],
        "agent_sha256": setup["agent_sha256"],
        "sigma": setup["sigma"],
        "method": grid.method,
        # An undefended agent has no noise to average over.
        "noise_samples": grid.noise_samples if setup["sigma"] > 0 else None,
        **{key: setup[key] for key in ("action_sigma", "sigma_per_feature", "stochastic") if key in setup},
        **({"channels": list(grid.base.channels)} if "actions" in grid.base.channels else {}),
        **({"scope": grid.base.scope.name} if grid.base.scope.per_step else {}),
        "seed": grid.base.seed,
        "n_episodes": grid.base.n_episodes,
        "budgets": list(grid.budgets),
        "lambdas": lambdas,
        "mean": [],
        "sem": [],
        "curve": [],
        "curve_sem": [],
        "curve_lambda": [],
        "largest_budget_used": 0.0,
        "mean_budget_used": [],
        "did_not_attack": [],
        "budget_used_per_step": [],
    }
    if grid.trials:
        result["trials"] = [asdict(trial) for trial in grid.trials]
        result["chosen"] = [asdict(grid.strongest_at(budget)) for budget in grid.budgets]
    for budget in grid.budgets:
        row = [records[budget, lambda_] for lambda_ in lambdas]
        means = [float(one.returns.mean()) for one in row]
        errors = [_standard_error(one.returns) for one in row]
        used = [np.asarray(one.budget_used) for one in row]
        means_used = [float(one.mean()) for one in used]
        # An attacker may choose another lambda for every budget, so the curve is the minimum of each row.
        worst = int(np.argmin(means))
        result["mean"].append(means)
        result["sem"].append(errors)
        result["curve"].append(means[worst])
        result["curve_sem"].append(errors[worst])
        result["curve_lambda"].append(lambdas[worst])
        result["largest_budget_used"] = max(result["largest_budget_used"], *(float(one.max()) for one in used))
        result["mean_budget_used"].append(means_used)
        result["did_not_attack"].append([budget > 0 and mean < IDLE_SHARE * budget for mean in means_used])
        result["budget_used_per_step"].append(_mean_spending(row[worst]))
    return result


def matched(
    grid: AttackGrid, records: dict[tuple[float, float | None], Episodes], unattacked: Episodes
) -> dict[str, Any]:
    """Return what the attacks took from the same episodes without attack, per budget and lambda.

    Differences are taken episode by episode: what start and noise did to both is not in their standard error.
    """
    result: dict[str, Any] = {
        "unattacked": {"mean": float(unattacked.returns.mean()), "sem": _standard_error(unattacked.returns)},
        "loss": [],
        "loss_sem": [],
        "n_changed": [],
        "invisible_loss": invisible_loss(unattacked),
    }
    for budget in grid.budgets:
        losses = [unattacked.returns - records[budget, lambda_].returns for lambda_ in grid.columns]
        result["loss"].append([float(loss.mean()) for loss in losses])
        result["loss_sem"].append([_standard_error(loss) for loss in losses])
        result["n_changed"].append([int(np.count_nonzero(loss)) for loss in losses])
    return result


def run_configuration(
    grid: AttackGrid,
    budget: float,
    lambda_: float | None,
    folder: Path,
    workers: int | Workers = 1,
    progress: Progress | None = None,
) -> Episodes:
    """Run one configuration, or read it if ``folder`` has it; several processes may each run others."""
    return _run_into(grid.plan(budget, lambda_), folder / configuration_name(budget, lambda_), workers, progress)


def _run_into(plan: Plan, folder: Path, workers: int | Workers, progress: Progress | None) -> Episodes:
    with RunFolder(folder, plan.setup()).opened() as store:
        return store.recorded(plan, workers=workers, progress=progress)


def attacked_share(
    grid: AttackGrid, share: Share, folder: Path, *, workers: int | Workers = 1, progress: Progress | None = None
) -> int:
    """Run the same share of the blocks of every configuration; return how many episodes these are."""
    plans = grid.plans()
    count = 0
    for number, (name, plan) in enumerate(plans):
        inner = nest_progress(progress, number, len(plans))
        count += run_share(plan, share, folder / name, workers=workers, progress=inner)
    return count


def nest_progress(progress: Progress | None, number: int, configurations: int) -> Progress | None:
    """Return what reports the progress of one configuration as a share of all."""
    if progress is None:
        return None
    return lambda done, of: progress(number * of + done, configurations * of)


def _standard_error(values: NDArray[np.float64]) -> float:
    # One episode has no sample variance; attack.json must not hold the NaN that numpy would return.
    if values.size <= 1:
        return 0.0
    error: float = float(values.std(ddof=1)) / values.size**0.5
    return error


def invisible_loss(unattacked: Episodes) -> float:
    """Return the mean loss that so many episodes may not show: up to it, none of them shows it with probability 5%.

    It is the loss of an attack that takes all of the return, down to the floor, in a share p of the episodes, where
    (1 - p)^n = 0.05.
    """
    share: float = 1 - 0.05 ** (1 / len(unattacked))
    return share * (float(unattacked.returns.mean()) - unattacked.floor)


def _mean_spending(episodes: Episodes) -> list[float]:
    """Return the mean squared offset at each step up to the last one; they sum to the mean squared spending."""
    assert episodes.budget_used_per_step is not None
    # An attack spends everything within a hundred steps of a game that may take 27,000.
    last = max(episodes.budget_used_per_step.nonzero()[0], default=0)
    spending: list[float] = (episodes.budget_used_per_step[: last + 1] / len(episodes)).tolist()
    return spending
