"""``surefoot certify``: a task, an environment, or returns in; sentence, table, files out."""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.cli.options import (
    Requirement,
    add_agent,
    add_common,
    add_old_names,
    chosen_workers,
    parse_budgets,
    parse_numbers,
    parse_requirement,
    parse_sigma,
    progress_bar,
    refuse,
    with_requirement,
)
from surefoot.episodes import Baseline, Noise
from surefoot.errors import InputError
from surefoot.proof.certificate import Certificate
from surefoot.proof.episode_budget import METHODS
from surefoot.proof.query import EPISODE, NORMS, Norm, Query, Threat
from surefoot.proof.shared_budget import SharedBudget
from surefoot.proof.step_budget import StepBudget, check_rewards
from surefoot.proof.stopping import StoppingRule
from surefoot.proof.wording import asked_budgets, describe
from surefoot.report.page import NAME

if TYPE_CHECKING:
    from surefoot.play.tasks import Task

MOST_EPISODES = 10_000_000
OLD_NAMES = {
    "--at-least": "--thresholds",
    "--step": "--threshold-spacing",
    "--until": "--tol",
    "--at": "--tol-budget",
    "--shared-by": "--shared-episodes",
    "--rewards": "--reward-range",
    "--discount": "--gamma",
}


def add_certify(commands: Any) -> None:
    """Describe the subcommand."""
    parser = commands.add_parser(
        "certify",
        help="run episodes of a smoothed agent and certify its expected return",
        description="Certify an agent on TASK, any agent on a Gymnasium --env, or precomputed --returns.",
        allow_abbrev=False,
    )
    what = parser.add_argument_group("what is certified")
    what.add_argument("task", nargs="?", metavar="TASK", help="such as cartpole-5, pong-1r or freeway")
    what.add_argument("--env", metavar="ID", help="any Gymnasium environment with Box observations, instead of TASK")
    what.add_argument("--returns", type=Path, metavar="FILE", help="precomputed returns (.npy, or episodes.npz)")
    what.add_argument("--floor", type=float, help="lowest return the rules allow, not the lowest observed")
    what.add_argument("--ceiling", type=float, help="highest return the rules allow, not the highest observed")
    what.add_argument("--max-steps", type=int, help="maximum episode length, for an --env that has none")
    what.add_argument("--gamma", type=float, help="certify the discounted return sum gamma^t r_t")
    what.add_argument("--reward-range", metavar="LOW,HIGH", help="range of one reward, for --env with --per-step")
    add_agent(parser)
    smoothing = parser.add_argument_group("episodes")
    smoothing.add_argument(
        "--sigma", help="noise on every new observation, or one per feature as 0.1,0.2 (default: the task's)"
    )
    smoothing.add_argument("--episodes", type=int, default=10_000, help="number of episodes (default: %(default)s)")
    _add_statement(parser)
    add_common(parser)
    add_old_names(parser, OLD_NAMES)
    parser.set_defaults(run=run_certify)


def _add_statement(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is stated about the episodes, and when to stop."""
    stated = parser.add_argument_group("bounds")
    stated.add_argument("--budgets", help="0:1:0.05 or 0,0.2,0.4 (default: the task's, else 0 to 1 by 0.1)")
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
    stated.add_argument("--thresholds", metavar="LIST", help="also bound P(return >= x) for each of these x")
    stated.add_argument("--quantiles", metavar="LIST", help="also bound these quantiles of the return, as 0.05,0.5")
    stopping = parser.add_argument_group("requirements and sequential runs (stop early, anytime-valid)")
    stopping.add_argument("--require", metavar="MEAN@BUDGET", help="exit with 0 if this is proved, else with 1")
    stopping.add_argument("--tol", type=float, metavar="D", help="stop when the lower bound can rise by at most D")
    stopping.add_argument("--tol-budget", type=float, metavar="B", help="the budget of --tol (default: sigma)")
    stopping.add_argument("--max-episodes", type=int, metavar="N", help="stop after at most N episodes")


def run_certify(arguments: argparse.Namespace) -> int:
    """Certify a task, an environment, or returns; 1 if what was required is not proved."""
    sources = [name for name in ("task", "env", "returns") if getattr(arguments, name) is not None]
    if len(sources) != 1:
        got = " and ".join(sources) or "none"
        raise InputError(f"certify needs exactly one of TASK, --env or --returns, got {got}")
    if arguments.budgets is not None:
        arguments.budgets = parse_budgets(arguments.budgets)
    if arguments.sigma is not None:
        arguments.sigma = parse_sigma(arguments.sigma)
    required = None if arguments.require is None else parse_requirement(arguments.require)
    if arguments.returns is not None:
        certificate, baseline, folder = _certify_returns(arguments, required), None, arguments.out
    else:
        certificate, baseline, folder = _certify_played(arguments, required)
    proved = required is None or _lower_at(certificate, required.budget) >= required.mean
    if arguments.json:
        asked = {} if required is None else {"require": {**asdict(required), "proved": proved}}
        print(json.dumps({**certificate.to_json(), **asked}, indent=1, allow_nan=False))
        return 0 if proved else 1
    print(describe(certificate, baseline, None if required is None else required.budget))
    if required is not None:
        print(f"\n{'Proved' if proved else 'NOT proved'}: a mean of {required.mean:g} at budget {required.budget:g}.")
    if folder is not None:
        print(f"Report: {folder / NAME}")
    return 0 if proved else 1


def _lower_at(certificate: Certificate, budget: float) -> float:
    """Return the lower bound at one of the budgets that were asked for, in the norm that it was asked in."""
    return float(certificate.lower[asked_budgets(certificate).index(budget)])


def _certify_returns(arguments: argparse.Namespace, required: Requirement | None) -> Certificate:
    from surefoot.files import versions
    from surefoot.runs.finish import finish_run
    from surefoot.runs.returns import read_returns

    running = ("agent", "max_steps", "workers", "reward_range", "gamma", "tol", "tol_budget", "max_episodes")
    refuse(arguments, running, "--returns: no episodes are run")
    if arguments.out is not None and (arguments.out / "setup.json").exists():
        raise InputError(f"{arguments.out} holds a run with its own certificate; choose another --out")
    episodes = read_returns(arguments.returns, arguments.sigma, arguments.floor, arguments.ceiling)
    budgets = with_requirement(arguments.budgets or parse_budgets("0:1:0.1"), required)
    certificate = _query(arguments, budgets, _norm(arguments, None, None)).answer(episodes)
    if arguments.out is not None:
        episodes.save(arguments.out / "episodes.npz")  # next to its certificate, to check it against
        metadata = {
            "agent_sha256": episodes.facts.get("agent_sha256"),
            "played": False,
            "certified_with": versions(),
            "step": arguments.threshold_spacing,
            "required_budget": None if required is None else required.budget,
        }
        finish_run(arguments.out, certificate, metadata=metadata, baseline=None, command=arguments.command_line)
    return certificate


def _certify_played(
    arguments: argparse.Namespace, required: Requirement | None
) -> tuple[Certificate, Baseline | None, Path]:
    from gymnasium import logger

    from surefoot.agents.files import default_agent
    from surefoot.agents.resolve import resolve
    from surefoot.play.plan import Plan, resolve_device
    from surefoot.play.tasks import discounted, get_task, make_task
    from surefoot.runs.certified import certified_run, run_name

    logger.min_level = logger.ERROR  # its advice on versions of environments would appear between our lines
    if arguments.task is not None:
        task = get_task(arguments.task)
        refuse(arguments, ("floor", "ceiling", "max_steps", "reward_range"), _defined_by(task))
    else:
        for name in ("floor", "agent", "sigma"):
            if getattr(arguments, name) is None:
                raise InputError(f"--env needs --{name}")
        task = make_task(arguments.env, floor=arguments.floor, ceiling=arguments.ceiling, max_steps=arguments.max_steps)
        if arguments.reward_range is not None:
            rewards = _reward_limits(arguments.reward_range)
            task = replace(task, scoring=replace(task.scoring, reward_range=rewards))
    if arguments.gamma is not None:
        given = None if arguments.task is not None else (arguments.floor, arguments.ceiling)
        task = discounted(task, arguments.gamma, limits=given)
    noise = Noise.of(task.paper.sigma if arguments.sigma is None else arguments.sigma)
    norm = _norm(arguments, math.prod(task.spaces.shape), task.scoring.max_steps)
    budgets = with_requirement(arguments.budgets or task.paper.budgets, required)
    query = _query(arguments, budgets, norm)
    if noise.features is not None and arguments.agent is None:
        raise InputError("there is no pretrained agent for a sigma per feature; name one with --agent")
    agent = default_agent(task.name, noise.sigma) if arguments.agent is None else arguments.agent
    policy = resolve(agent, task.spaces, trust_pickle=arguments.allow_pickle)
    device, sequential = resolve_device(arguments.device), _sequential(arguments)
    count = (arguments.max_episodes or MOST_EPISODES) if sequential else arguments.episodes
    plan = Plan(
        task=task,
        policy=policy,
        noise=noise,
        n_episodes=count,
        seed=arguments.seed,
        device=device,
        per_step=arguments.per_step,
    )
    query.answer(plan.probe())
    folder = arguments.out or Path("runs") / (run_name(plan) + ("-sequential" if sequential else ""))
    workers = chosen_workers(arguments.workers, plan.device, emulated=plan.task.cartridge is not None)
    goal = _goal(arguments, noise.sigma, required) if sequential else None
    if goal is not None:
        query = replace(query, budgets=tuple(sorted({*budgets, goal.budget})))
    with progress_bar("running", "episodes", arguments) as report:
        certificate = certified_run(
            plan,
            query,
            folder,
            goal=goal,
            required=None if required is None else required.budget,
            workers=workers,
            progress=report,
            command=arguments.command_line,
        )
    return certificate, task.baseline, folder


def _defined_by(task: Task) -> str:
    floor, ceiling = task.scoring.floor, task.scoring.ceiling
    top = "none" if ceiling is None else f"{ceiling:g}"
    return (
        f"a task: {task.name} defines its own floor ({floor:g}), ceiling ({top}), episode length and rewards; "
        "use --env ID to set them yourself"
    )


def _query(arguments: argparse.Namespace, budgets: tuple[float, ...], norm: Norm | None) -> Query:
    """Return what is asked of the episodes."""
    thresholds = () if arguments.thresholds is None else parse_numbers(arguments.thresholds, "--thresholds", "100,150")
    quantiles = () if arguments.quantiles is None else parse_numbers(arguments.quantiles, "--quantiles", "0.05,0.5")
    return Query(
        budgets=budgets,
        confidence=arguments.confidence,
        method=arguments.method,
        threshold_spacing=arguments.threshold_spacing,
        threat=_threat(arguments),
        thresholds=thresholds,
        quantiles=quantiles,
        norm=norm,
    )


def _threat(arguments: argparse.Namespace) -> Threat:
    if arguments.per_step and arguments.shared_episodes is not None:
        raise InputError("--per-step cannot be combined with --shared-episodes: a budget per step is not shared")
    if arguments.per_step:
        return StepBudget()
    return EPISODE if arguments.shared_episodes is None else SharedBudget(arguments.shared_episodes)


def _norm(arguments: argparse.Namespace, coordinates: int | None, limit: int | None) -> Norm | None:
    """Return the norm of the budgets, or None for l2; ``limit`` is how many observations an episode has at most."""
    if arguments.norm == "l2":
        return None
    many = None if limit is None else limit * (arguments.shared_episodes or 1)
    return Norm(name=arguments.norm, coordinates=coordinates, observations=1 if arguments.per_step else many)


def _reward_limits(text: str) -> tuple[float, float]:
    limits = parse_numbers(text, "--reward-range", "-1,1")
    if len(limits) != 2:
        raise InputError(f"--reward-range must be two numbers LOW,HIGH, got {text!r}")
    return check_rewards(*limits)


def _sequential(arguments: argparse.Namespace) -> bool:
    """Return whether the run is sequential, that is, may stop early."""
    if arguments.tol is None and arguments.max_episodes is None:
        if arguments.tol_budget is not None:
            raise InputError("--tol-budget is the budget of --tol; give --tol too, or --require MEAN@BUDGET")
        return False
    if arguments.tol is None and arguments.require is None:
        raise InputError("--max-episodes needs a reason to stop: give --tol D or --require MEAN@BUDGET")
    if arguments.method not in (None, "auto", "sequential"):
        raise InputError(f"a sequential run is certified by --method sequential, got {arguments.method}")
    refuse(arguments, ("shared_episodes", "thresholds", "quantiles"), "a sequential run")
    if arguments.per_step or arguments.norm != "l2":
        raise InputError("--per-step and --norm cannot be combined with a sequential run")
    return True


def _goal(arguments: argparse.Namespace, sigma: float, required: Requirement | None) -> StoppingRule:
    """Return when a sequential run is to stop."""
    if required is not None and arguments.tol_budget not in (None, required.budget):
        raise InputError(
            f"--tol-budget {arguments.tol_budget:g} and --require {arguments.require} are about different budgets"
        )
    at = arguments.tol_budget if required is None else required.budget
    return StoppingRule(
        budget=sigma if at is None else at,
        tolerance=arguments.tol,
        require=None if required is None else required.mean,
    )
