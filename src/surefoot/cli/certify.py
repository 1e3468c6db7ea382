"""``surefoot certify``: a task, an environment, or returns in; sentence, table, files out."""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.cli.options import (
    Requirement,
    add_agent,
    add_common,
    numbers,
    parse_budgets,
    parse_requirement,
    parse_sigma,
    plan_of,
    print_json,
    progress_bar,
    refuse,
    with_requirement,
    workers_for,
)
from surefoot.cli.task import agent_for_task, cut_off, is_path, task_of
from surefoot.episodes import Baseline, Noise
from surefoot.errors import InputError
from surefoot.proof.certificate import Certificate
from surefoot.proof.episode_budget import METHODS
from surefoot.proof.query import EPISODE, NORMS, Norm, Query, Threat, default_budgets
from surefoot.proof.shared_budget import SharedBudget
from surefoot.proof.step_budget import StepBudget
from surefoot.proof.stopping import StoppingRule
from surefoot.proof.wording import asked_budgets, describe
from surefoot.report.page import NAME

if TYPE_CHECKING:
    from surefoot.play.task import Task


def add_certify(commands: Any) -> None:
    """Describe the subcommand."""
    parser = commands.add_parser(
        "certify",
        help="run episodes of a smoothed agent and certify its expected return",
        description="Certify an agent on TASK, any agent on a Gymnasium --env, or precomputed --returns.",
    )
    what = parser.add_argument_group("what is certified")
    what.add_argument("task", nargs="?", metavar="TASK", help="such as cartpole-5, pong-1r or freeway")
    what.add_argument("--env", metavar="ID", help="any Gymnasium environment with Box observations, instead of TASK")
    what.add_argument("--returns", type=Path, metavar="FILE", help="precomputed returns (.npy, or episodes.npz)")
    what.add_argument("--floor", type=float, help="lowest return the rules allow, not the lowest observed")
    what.add_argument("--ceiling", type=float, help="highest return the rules allow, not the highest observed")
    what.add_argument("--max-steps", type=int, help="maximum episode length, for an --env that has none")
    what.add_argument("--gamma", type=float, help="certify the discounted return sum gamma^t r_t")
    what.add_argument(
        "--reward-range",
        type=numbers("-1,1, LOW and HIGH", count=2),
        metavar="LOW,HIGH",
        help="range of one reward, for --env with --per-step",
    )
    add_agent(parser)
    smoothing = parser.add_argument_group("episodes")
    smoothing.add_argument(
        "--sigma",
        type=parse_sigma,
        help="noise on every new observation, or one per feature as 0.1,0.2 (default: the task's)",
    )
    smoothing.add_argument("--episodes", type=int, default=10_000, help="number of episodes (default: %(default)s)")
    _add_statement(parser)
    add_common(parser)
    parser.set_defaults(run=run_certify)


def _add_statement(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is stated about the episodes, and when to stop."""
    stated = parser.add_argument_group("bounds")
    stated.add_argument(
        "--budgets",
        type=parse_budgets,
        help="0:1:0.05 or 0,0.2,0.4 (default: the paper's for its tasks, else 0 to 4 sigma)",
    )
    stated.add_argument("--norm", choices=NORMS, default="l2", help="norm of the budgets; others are covered by l2")
    stated.add_argument("--confidence", type=float, default=0.95, help="(default: %(default)s)")
    stated.add_argument(
        "--method", choices=METHODS, help="method of the bounds (default: auto, selected on pilot episodes)"
    )
    stated.add_argument(
        "--threshold-spacing", type=float, default=1.0, help="distance between per-threshold's thresholds (default: 1)"
    )
    stated.add_argument("--per-step", action="store_true", help="each budget is for every single step")
    stated.add_argument(
        "--shared-episodes",
        type=int,
        metavar="M",
        help="each budget is for M episodes together, on average (method binary, else betting)",
    )
    lists = (
        ("--thresholds", "100,150", "P(return >= x) for each of these x"),
        ("--quantiles", "0.05,0.5", "these quantiles of the return"),
    )
    for name, looks, bounded in lists:
        stated.add_argument(name, type=numbers(looks), metavar="LIST", help=f"also bound {bounded}, as {looks}")
    stopping = parser.add_argument_group("requirements and sequential runs (stop early, anytime-valid)")
    stopping.add_argument(
        "--require", type=parse_requirement, metavar="MEAN@BUDGET", help="exit with 0 if this is proved, else with 1"
    )
    stopping.add_argument("--tol", type=float, metavar="D", help="stop when the lower bound can rise by at most D")
    stopping.add_argument("--tol-budget", type=float, metavar="B", help="the budget of --tol (default: sigma)")
    stopping.add_argument("--max-episodes", type=int, metavar="N", help="stop after at most N episodes")


def run_certify(arguments: argparse.Namespace) -> int:
    """Certify a task, an environment, or returns; 1 if what was required is not proved."""
    agent_for_task(arguments)
    sources = [name for name in ("task", "env", "returns") if getattr(arguments, name) is not None]
    if len(sources) != 1 and not (sources == [] and is_path(arguments.agent)):
        got = " and ".join(sources) or "none"
        raise InputError(f"certify needs exactly one of TASK, --env or --returns, got {got}")
    required: Requirement | None = arguments.require
    if arguments.returns is not None:
        certificate, baseline, folder = _certify_returns(arguments), None, arguments.out
    else:
        certificate, baseline, folder = _certify_played(arguments)
    proved = required is None
    if required is not None:
        proved = bool(certificate.lower[asked_budgets(certificate).index(required.budget)] >= required.mean)
    if arguments.json:
        asked = {} if required is None else {"require": {**asdict(required), "proved": proved}}
        print_json({**certificate.to_json(), **asked})
        return 0 if proved else 1
    print(describe(certificate, baseline, None if required is None else required.budget))
    if required is not None:
        print(f"\n{'Proved' if proved else 'NOT proved'}: a mean of {required.mean:g} at budget {required.budget:g}.")
    if arguments.max_steps is not None and (cut := cut_off(arguments.env, arguments.max_steps)):
        print(cut)
    if folder is not None:
        print(f"Report: {folder / NAME}")
    return 0 if proved else 1


def _certify_returns(arguments: argparse.Namespace) -> Certificate:
    from surefoot.files import versions
    from surefoot.runs.finish import finish_run
    from surefoot.runs.returns import read_returns

    running = ("agent", "max_steps", "workers", "reward_range", "gamma", "tol", "tol_budget", "max_episodes")
    refuse(arguments, running, "--returns: no episodes are run")
    if arguments.out is not None and (arguments.out / "setup.json").exists():
        raise InputError(f"{arguments.out} holds a run with its own certificate; choose another --out")
    episodes = read_returns(arguments.returns, arguments.sigma, arguments.floor, arguments.ceiling)
    certificate = _query(arguments, episodes.sigma).answer(episodes)
    if arguments.out is not None:
        episodes.save(arguments.out / "episodes.npz")  # next to its certificate, to check it against
        metadata = {
            "agent_sha256": episodes.facts.get("agent_sha256"),
            "played": False,
            "certified_with": versions(),
            "step": arguments.threshold_spacing,
            "required_budget": None if arguments.require is None else arguments.require.budget,
        }
        finish_run(arguments.out, certificate, metadata=metadata, baseline=None, command=arguments.command_line)
    return certificate


def _certify_played(arguments: argparse.Namespace) -> tuple[Certificate, Baseline | None, Path]:
    from gymnasium import logger

    from surefoot.play.plan import MOST_EPISODES
    from surefoot.runs.certified import certified_run, run_name

    logger.min_level = logger.ERROR  # its advice on versions of environments would appear between our lines
    task, required = task_of(arguments), arguments.require
    sigma = task.paper.sigma if arguments.sigma is None else arguments.sigma
    query = _query(arguments, Noise.of(sigma).sigma, task)
    goal = _goal(arguments, Noise.of(sigma).sigma)
    count = arguments.episodes if goal is None else arguments.max_episodes or MOST_EPISODES
    plan = plan_of(arguments, task, sigma, count, per_step=arguments.per_step)
    query.answer(plan.probe())
    folder = arguments.out or Path("runs") / (run_name(plan) + ("" if goal is None else "-sequential"))
    if goal is not None:
        query = replace(query, budgets=tuple(sorted({*query.budgets, goal.budget})))
    with progress_bar("running", "episodes", arguments) as report:
        certificate = certified_run(
            plan,
            query,
            folder,
            goal=goal,
            required=None if required is None else required.budget,
            workers=workers_for(plan, arguments.workers),
            progress=report,
            command=arguments.command_line,
        )
    return certificate, task.baseline, folder


def _query(arguments: argparse.Namespace, sigma: float, task: Task | None = None) -> Query:
    """Return what is asked of the episodes; a norm other than l2 needs to know what a task's observations are."""
    norm = None
    if arguments.norm != "l2":
        many = None if task is None else task.scoring.max_steps * (arguments.shared_episodes or 1)
        coordinates = None if task is None else math.prod(task.spaces.shape)
        norm = Norm(name=arguments.norm, coordinates=coordinates, observations=1 if arguments.per_step else many)
    return Query(
        budgets=with_requirement(
            arguments.budgets or _default_budgets(arguments, sigma, task, norm), arguments.require
        ),
        confidence=arguments.confidence,
        method=arguments.method,
        threshold_spacing=arguments.threshold_spacing,
        threat=_threat(arguments),
        thresholds=arguments.thresholds or (),
        quantiles=arguments.quantiles or (),
        norm=norm,
    )


def _default_budgets(
    arguments: argparse.Namespace, sigma: float, task: Task | None, norm: Norm | None
) -> tuple[float, ...]:
    """Return the paper's budgets where they mean what is asked, else those that fit sigma, the threat and the norm."""
    if task is not None and task.paper.budgets and norm is None and _threat(arguments) == EPISODE:
        return task.paper.budgets
    steps = task.scoring.max_steps if task is not None and arguments.per_step else 1
    scale = math.sqrt((arguments.shared_episodes or 1) / steps)
    return default_budgets(sigma, scale=scale / (1.0 if norm is None else norm.factor))


def _threat(arguments: argparse.Namespace) -> Threat:
    if arguments.per_step and arguments.shared_episodes is not None:
        raise InputError("--per-step cannot be combined with --shared-episodes: a budget per step is not shared")
    if arguments.per_step:
        return StepBudget()
    return EPISODE if arguments.shared_episodes is None else SharedBudget(arguments.shared_episodes)


def _goal(arguments: argparse.Namespace, sigma: float) -> StoppingRule | None:
    """Return when a sequential run is to stop early; None for a run that is not."""
    required = arguments.require
    if arguments.tol is None and arguments.max_episodes is None:
        if arguments.tol_budget is not None:
            raise InputError("--tol-budget is the budget of --tol; give --tol too, or --require MEAN@BUDGET")
        return None
    if arguments.tol is None and required is None:
        raise InputError("--max-episodes needs a reason to stop: give --tol D or --require MEAN@BUDGET")
    if arguments.method not in (None, "auto", "sequential"):
        raise InputError(f"a sequential run is certified by --method sequential, got {arguments.method}")
    refuse(arguments, ("shared_episodes", "thresholds", "quantiles"), "a sequential run")
    if arguments.per_step or arguments.norm != "l2":
        raise InputError("--per-step and --norm cannot be combined with a sequential run")
    if required is not None and arguments.tol_budget not in (None, required.budget):
        about = f"--tol-budget {arguments.tol_budget:g} and --require {required.mean:g}@{required.budget:g}"
        raise InputError(f"{about} are about different budgets")
    at = arguments.tol_budget if required is None else required.budget
    return StoppingRule(
        budget=sigma if at is None else at,
        tolerance=arguments.tol,
        require=None if required is None else required.mean,
    )
