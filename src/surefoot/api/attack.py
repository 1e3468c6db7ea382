"""``surefoot.attack`` and ``AttackCurve``: an agent under attack, held against its certificates."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from surefoot.agents.policies import Sigma
from surefoot.api.certify import check_shareable
from surefoot.api.setup import RUNS, AnyWorkers, ProgressCallback, as_processes, as_task, keep_on_interrupt, plan_run
from surefoot.attacks.flips import PixelAttacker
from surefoot.attacks.learned import LearnedAttacker, load_attacker, observes_pixels
from surefoot.attacks.learning import AttackerTraining, LearningProgress, train_attacker
from surefoot.attacks.learning_flips import check_flips, train_rules
from surefoot.attacks.registry import METHODS, default_method, named_attack
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.files import number, read_json, untrusted, write_json
from surefoot.play.channel import Attacker, Scope
from surefoot.play.plan import Plan, attacked_channels
from surefoot.play.task import Task
from surefoot.proof.certificate import Certificate
from surefoot.proof.inconsistency import Inconsistency, inconsistencies
from surefoot.report.page import REPORT_FILE, write_report
from surefoot.runs.attacked import (
    UNATTACKED,
    AttackGrid,
    Trial,
    attacked_run,
    attacked_share,
    matching_certificates,
    run_grid,
)
from surefoot.runs.folder import check_no_run, check_reusable, configuration_name
from surefoot.runs.read import read_run
from surefoot.runs.shares import Share
from surefoot.runs.strongest import choose_strongest

ATTACKER_FILE = "attacker.npz"  # in a run directory: the learned attacker that was used
TRIALS_FILE = "trials.json"  # and what the strongest attack was chosen from


@dataclass(frozen=True)
class Effort:
    """How much is run where nothing else is asked for."""

    n_episodes: int
    noise_samples: int


PAPER_EFFORT = Effort(n_episodes=1_000, noise_samples=128)
# Environments of one's own may take a millisecond for a step, and with more samples attacks are hardly stronger.
EFFORT = Effort(n_episodes=100, noise_samples=16)


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
        loss: What the attack took, episode by episode: the mean of the same episodes without attack (same start, same
            noise) less that under attack, shaped like ``mean``.
        loss_sem: Its standard error.
        n_changed: How many episodes the attack changed.
        records: The attacked episodes of each configuration, budget by budget, lambda by lambda.
        summary: All of this and more as JSON data, as ``attack.json`` has it.
        directory: The run directory; None if nothing was written.
        compared_with: The certificates of the same agent and setup that were found next to it, or the one named.
        contradictions: Where an attacked mean is below one of their bounds: then one of the two is wrong.
        attacker: The attacker that was learned, with ``save(path)``; None for other methods.
    """

    budgets: NDArray[np.float64]
    lambdas: tuple[float | None, ...]
    mean: NDArray[np.float64]
    sem: NDArray[np.float64]
    lowest: NDArray[np.float64]
    lowest_sem: NDArray[np.float64]
    loss: NDArray[np.float64]
    loss_sem: NDArray[np.float64]
    n_changed: NDArray[np.int64]
    records: tuple[Episodes, ...]
    summary: dict[str, Any]
    directory: Path | None = None
    compared_with: tuple[Path, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()
    attacker: LearnedAttacker | PixelAttacker | None = None

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
    sigma: Sigma = 0.0,
    action_sigma: float = 0.0,
    channel: str | None = None,
    per_step: bool = False,
    norm: str = "l2",
    method: str | Attacker | None = None,
    lambdas: Sequence[float] | Literal["paper"] | None = None,
    noise_samples: int | None = None,
    minutes: float = 5.0,
    attacker: str | Path | LearnedAttacker | PixelAttacker | None = None,
    n_episodes: int | None = None,
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
        budgets: Attack budgets: l2 norms of all perturbations of one episode, in the units of what is perturbed. With
            noise on observations and on actions they count standard deviations.
        sigma: The agent's noise, as ``surefoot.rollout`` takes it; 0 attacks it undefended.
        action_sigma: The noise on its actions, behind the attacker.
        channel: What is perturbed, "observations", "actions" or "both"; by default what has noise, else observations.
        per_step: Whether a budget bounds the perturbation of each single observation instead of all of an episode.
        norm: Norm of a budget per step: "l2", or "linf", by which every number is perturbed by at most the budget.
        method: "paper" (Algorithm 1 for discrete actions, 2 for continuous ones), "flips" (each the shortest
            perturbation that makes the agent choose a harmful discrete action), "adaptive", "random",
            "constant-direction", "uniform" (all numbers by the same amount), "single-step", "structured", "learned"
            (trained on this agent first; on pixels it needs discrete actions and gradients), or "strongest" (all of
            them on selection episodes, the lowest at each budget on fresh ones). By default "paper" on the paper's
            tasks, elsewhere "flips" for discrete actions of an agent with gradients, else "adaptive". On actions
            "paper" goes down the gradient of the agent's critic, and "adaptive" pushes where differences of the mean
            return say that it harms most. Or an attack of your own, a ``surefoot.Attacker``.
        lambdas: Value gaps below which Algorithm 1 saves its budget, weights of the norm in Algorithm 2, or, of the
            adaptive attack on continuous actions, the shares of the steps, at the end of an episode, that get no
            budget; "paper" for the paper's. By default 0 and quantiles of the agent's own value gaps, the paper's
            weights, or 0, 0.75 and 0.95.
        noise_samples: Noise samples that attacks on a smoothed agent average over; by default 16, and
            128 on the paper's tasks.
        minutes: How long a learned attacker is trained; of "strongest", how long training and choosing take.
        attacker: A learned attacker, or the file of one, instead of training: for other budgets, seeds and agents.
        n_episodes: Episodes for each budget and lambda, and as many without attack to compare them with; by default
            100, and 1,000 on the paper's tasks.
        seed: Seed of the run.
        device: "cpu", "cuda" or "auto".
        workers: Processes to run episodes with, None for one per core, or other workers; they do not change the
            results.
        out: Run directory to write everything to, the report included, and to resume from; nothing is written without.
        certificate: Certified run to compare with; by default those next to ``out``.
        record: Whether to record the episode that the attack changed most, for the report in ``out``.
        progress_callback: Called with the numbers of finished and of all episodes.

    Raises:
        InputError: If the agent does not fit the task, or does not have what the attack needs.
    """
    # Before an attacker learns for minutes.
    if out is None and certificate is not None:
        raise InputError("certificate= goes with out=, where what is compared is written")
    if out is None and record:
        raise InputError("record= goes with out=, where the episode is written")
    grid = attack_grid(
        task,
        agent,
        budgets=budgets,
        sigma=sigma,
        action_sigma=action_sigma,
        channel=channel,
        per_step=per_step,
        norm=norm,
        method=method,
        lambdas=lambdas,
        noise_samples=noise_samples,
        n_episodes=n_episodes,
        seed=seed,
        device=device,
        workers=workers,
        attacker=attacker,
    )
    folder = None if out is None else Path(out)
    grid = prepare_attacker(grid, minutes, folder, workers=workers)
    if folder is not None:
        return attack_into(
            folder, grid, workers=workers, certificate=certificate, progress=progress_callback, record=record
        )
    processes = as_processes(workers, grid.base.gpu_share)
    result, records = run_grid(grid, None, workers=processes, progress=progress_callback)
    return _make_curve(result, records, grid.attacker)


def attack_grid(
    task: str | Task,
    agent: object,
    *,
    budgets: Sequence[float],
    channel: str | None = None,
    per_step: bool = False,
    norm: str = "l2",
    method: str | Attacker | None,
    lambdas: Sequence[float] | Literal["paper"] | None,
    noise_samples: int | None,
    n_episodes: int | None,
    attacker: str | Path | LearnedAttacker | PixelAttacker | None = None,
    **run: Any,
) -> AttackGrid:
    """Return the attacks that the arguments of ``attack`` describe, with a method and lambdas chosen where none are.

    ``run`` is what ``plan_run`` takes. An attacker that is to be learned is still missing: ``prepare_attacker`` puts
    it in.
    """
    task = as_task(task)
    if attacker is not None:
        if method not in (None, "learned", "strongest"):
            raise InputError(f"attacker= is a learned attacker and goes with method='learned', got method={method!r}")
        method = method or "learned"
    if isinstance(attacker, str | Path):
        attacker = load_attacker(attacker)
    name, own = named_attack(method)
    effort = PAPER_EFFORT if task.paper.budgets else EFFORT
    base = plan_run(task, agent, n_episodes=effort.n_episodes if n_episodes is None else n_episodes, **run)
    base = replace(base, channels=attacked_channels(base.noise, channel), scope=Scope(per_step, norm))
    if name is None:
        name = default_method(task, base.policy, per_step=per_step)
    # The default lambdas are quantiles of the agent's own value gaps, so they need the grid without lambdas first.
    grid = AttackGrid(
        base=base,
        budgets=tuple(budgets),
        method=name,
        own=own,
        noise_samples=effort.noise_samples if noise_samples is None else noise_samples,
    )
    if lambdas is None:
        lambdas = grid.default_lambdas()
    elif lambdas == "paper":
        lambdas = task.paper.lambdas
    return replace(grid, lambdas=tuple(lambdas), attacker=attacker).with_push()


def prepare_attacker(
    grid: AttackGrid,
    minutes: float,
    folder: Path | None,
    *,
    workers: AnyWorkers = 1,
    progress: LearningProgress | None = None,
) -> AttackGrid:
    """Return the grid with what its method needs first: a learned attacker, the choice of the strongest attack.

    Both are kept in the run directory ``folder``, where there is one.
    """
    if folder is not None:
        # Before an attacker learns for minutes.
        _check_reusable(grid, folder)
    method = grid.kind
    if method.is_learned:
        return _with_attacker(grid, minutes, folder, progress)
    if not method.is_battery:
        return grid
    path = None if folder is None else folder / TRIALS_FILE
    # Half of the time for learning, where that is possible.
    began = time.monotonic()
    if _can_learn(grid.base):
        grid = _with_attacker(grid, minutes / 2, folder, progress)
    if path is not None and path.exists():
        return replace(grid, trials=_read_trials(path, grid))
    left = 60 * minutes - (time.monotonic() - began)
    grid = choose_strongest(grid, seconds=left, workers=as_processes(workers, grid.base.gpu_share))
    if path is not None:
        write_json(path, {"schema": 1, "trials": [asdict(trial) for trial in grid.trials]})
    return grid


def _can_learn(plan: Plan) -> bool:
    """Return whether an attacker can be learned against the plan's agent."""
    if len(plan.channels) > 1:
        return False
    if not observes_pixels(plan.task, plan.policy):
        return True
    try:
        check_flips(plan)
    except InputError:
        return False
    return True


def _with_attacker(
    grid: AttackGrid, minutes: float, folder: Path | None, progress: LearningProgress | None
) -> AttackGrid:
    """Return the grid with a learned attacker: the given one, that of the run directory, or a new one."""
    path = None if folder is None else folder / ATTACKER_FILE
    kept = None
    if path is not None and path.exists():
        kept = load_attacker(path)
    # A run that was killed after its training goes on with the same attacker.
    attacker: LearnedAttacker | PixelAttacker | None = kept if grid.attacker is None else grid.attacker
    # Another one that is there may have taken minutes to learn.
    if attacker is not None and kept is not None and attacker.sha256 != kept.sha256:
        raise InputError(f"{path} is another attacker than attacker=; leave that out, or choose another out=")
    if attacker is None:
        training = AttackerTraining(minutes=minutes, noise_samples=grid.noise_samples)
        train = train_rules if observes_pixels(grid.base.task, grid.base.policy) else train_attacker
        attacker = train(grid.base, grid.budgets, training, progress)
    # A given one is kept too, so that the run can be repeated from its directory.
    if path is not None and kept is None:
        attacker.save(path)
    return replace(grid, attacker=attacker)


def _read_trials(path: Path, grid: AttackGrid) -> tuple[Trial, ...]:
    with untrusted(path, "list of trials"):
        trials = tuple(_checked_trial(**one) for one in read_json(path)["trials"])
        if not {trial.budget for trial in trials} >= set(grid.budgets):
            raise ValueError("it has no trial of some budgets; choose another out=")
    return trials


def _checked_trial(*, budget: Any, method: Any, lambda_: Any, mean: Any) -> Trial:
    """Return a trial that a file lists, or raise what is wrong with it."""
    if method not in METHODS or METHODS[method].is_battery:
        raise ValueError(f"{method!r:.60} is no method that was tried")
    if lambda_ is not None:
        lambda_ = number(lambda_)
    return Trial(budget=number(budget), method=method, lambda_=lambda_, mean=number(mean))


def attack_into(
    folder: Path,
    grid: AttackGrid,
    *,
    workers: AnyWorkers = 1,
    certificate: str | Path | None = None,
    progress: ProgressCallback | None = None,
    command: str | None = None,
    record: bool = False,
) -> AttackCurve:
    """Run a grid into a run directory and compare it with certificates of the same agent and setup.

    The arguments are those of ``attack``.
    """
    named = None if certificate is None else Path(certificate)
    _check_reusable(grid, folder)
    if named is not None:
        # A wrong one is rejected before hours of attacks, not after.
        matching_certificates(grid, named, folder.parent)
    with keep_on_interrupt(folder):
        processes = as_processes(workers, grid.base.gpu_share)
        result, records = attacked_run(
            grid, folder, workers=processes, progress=progress, command=command, record=record
        )
    # Looked for again: a certificate may have been written next to it while the attack ran.
    certificates = matching_certificates(grid, named, folder.parent)
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
    curve = _make_curve(result, records, grid.attacker)
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
    method = grid.kind
    if method.is_battery or (method.is_learned and grid.attacker is None):
        raise InputError(
            "shares of one run need one attacker: train it without blocks=, then give attacker= to each share"
        )
    if folder is None:
        folder = RUNS / f"{grid.name}{share.suffix}"
    check_no_run(folder)
    processes = as_processes(workers, grid.base.gpu_share)
    with keep_on_interrupt(folder):
        return folder, attacked_share(grid, share, folder, workers=processes, progress=progress)


def _check_reusable(grid: AttackGrid, folder: Path) -> None:
    check_no_run(folder)
    # Each configuration is a run with a setup of its own, and may have been run before the others; so are the twins.
    names = [configuration_name(*one) for one in grid.configurations()]
    for name in (*names, UNATTACKED):
        check_reusable(grid.base, folder / name)


def _make_curve(
    result: dict[str, Any], records: Sequence[Episodes], attacker: LearnedAttacker | PixelAttacker | None = None
) -> AttackCurve:
    return AttackCurve(
        budgets=np.array(result["budgets"], dtype=np.float64),
        lambdas=tuple(result["lambdas"]),
        mean=np.array(result["mean"], dtype=np.float64),
        sem=np.array(result["sem"], dtype=np.float64),
        lowest=np.array(result["curve"], dtype=np.float64),
        lowest_sem=np.array(result["curve_sem"], dtype=np.float64),
        loss=np.array(result["loss"], dtype=np.float64),
        loss_sem=np.array(result["loss_sem"], dtype=np.float64),
        n_changed=np.array(result["n_changed"], dtype=np.int64),
        records=tuple(records),
        summary=result,
        attacker=attacker,
    )
