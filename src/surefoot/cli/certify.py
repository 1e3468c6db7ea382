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
    add_record,
    add_share,
    check_shareable,
    keeping,
    numbers,
    parse_budgets,
    parse_requirement,
    parse_sigma,
    plan_of,
    print_json,
    progress_bar,
    refuse,
    say,
    show_share,
    with_requirement,
    workers_of,
)
from surefoot.cli.parser import AGENT, ATTACK, STATISTICS, STOPPING, add_command, section
from surefoot.cli.task import DEFINED, add_task, limits_note, one_of, task_of
from surefoot.episodes import Noise
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
    from surefoot.play.plan import Plan
    from surefoot.play.task import Task


def add_certify(commands: Any) -> None:
    """Describe the subcommand."""
    parser = add_command(
        commands,
        "certify",
        "run episodes of a smoothed agent and certify its expected return",
        usage="TASK | --env ID | --returns FILE [options]",
        details="Exit code 1: what --require asks for is not proved.",
        examples=(
            "surefoot certify cartpole-5",
            "surefoot certify --env CartPole-v1 --agent model.zip --sigma 0.1",
            "surefoot certify cartpole-5 --require 150@0.4 --max-episodes 100000",
        ),
    )
    _add_source(parser)
    _add_attack_model(parser)
    _add_statistics(parser)
    _add_stopping(parser)
    add_common(parser, own_seed=True)
    add_record(parser)
    add_share(parser)
    parser.set_defaults(run=run_certify)


def _add_source(parser: argparse.ArgumentParser) -> None:
    add_task(parser)
    what = section(parser, AGENT)
    what.add_argument(
        "--returns",
        type=Path,
        metavar="FILE",
        help="precomputed returns: .npy, .npz, .csv, .txt or .json, or - for standard input",
    )
    add_agent(parser)
    what.add_argument(
        "--sigma",
        type=parse_sigma,
        metavar="S",
        help="standard deviation of the noise on every observation, in its units, or one per feature as 0.1,0.2, or "
        "per part as camera=0.1 "
        "(default: the task's)",
    )
    what.add_argument(
        "--units",
        choices=("raw", "normalized"),
        default="raw",
        help="what --sigma and budgets are in: the environment's units, or those of the agent's VecNormalize, where "
        "each feature has its own sigma (default: raw)",
    )
    what.add_argument("--gamma", type=float, metavar="G", help="discount factor of the return (default: none)")


def _add_attack_model(parser: argparse.ArgumentParser) -> None:
    model = section(parser, ATTACK)
    model.add_argument(
        "--budgets",
        type=parse_budgets,
        metavar="LIST",
        help="attack budgets, in the units of the observations: 0,0.2,0.4 or FIRST:LAST:STEP (default: the paper's for "
        "its tasks, else 0 to 4 sigma)",
    )
    model.add_argument("--norm", choices=NORMS, default="l2", help="norm that the budgets bound (default: l2)")
    model.add_argument("--per-step", action="store_true", help="budgets bound every single step, not a whole episode")
    model.add_argument(
        "--shared-episodes",
        type=int,
        metavar="M",
        help="budgets bound M episodes together, on average (method binary, else betting)",
    )


def _add_statistics(parser: argparse.ArgumentParser) -> None:
    stated = section(parser, STATISTICS)
    stated.add_argument(
        "--episodes", type=int, default=10_000, metavar="N", help="number of episodes (default: 10,000)"
    )
    stated.add_argument(
        "--confidence",
        type=float,
        default=0.95,
        metavar="C",
        help="probability that all lower bounds hold simultaneously (default: 0.95)",
    )
    stated.add_argument(
        "--method",
        choices=METHODS,
        metavar="NAME",
        help=f"{', '.join(METHODS[1:])}, or auto: selected on pilot episodes (default: auto)",
    )
    stated.add_argument(
        "--threshold-spacing",
        type=float,
        default=1.0,
        metavar="D",
        help="distance between the thresholds of method per-threshold (default: 1)",
    )
    lists = (
        ("--thresholds", "100,150", "P(return >= x) for each of these x"),
        ("--quantiles", "0.05,0.5", "these quantiles of the return"),
    )
    for name, looks, bounded in lists:
        stated.add_argument(name, type=numbers(looks), metavar="LIST", help=f"also bound {bounded}, as {looks}")


def _add_stopping(parser: argparse.ArgumentParser) -> None:
    stopping = section(parser, STOPPING)
    stopping.add_argument(
        "--require", type=parse_requirement, metavar="MEAN@BUDGET", help="exit with 0 if this is proved, else with 1"
    )
    stopping.add_argument(
        "--tol", type=float, metavar="D", help="sequential run: stop when the lower bound can rise by at most D"
    )
    stopping.add_argument("--tol-budget", type=float, metavar="B", help="attack budget of --tol (default: sigma)")
    stopping.add_argument(
        "--max-episodes",
        type=int,
        metavar="N",
        help="sequential run: N episodes at most, fewer once --require or --tol is reached",
    )


def run_certify(arguments: argparse.Namespace) -> int:
    """Certify a task, an environment, or returns; 1 if what was required is not proved."""
    one_of(arguments, "certify", "returns")
    if arguments.blocks is not None and arguments.returns is None:
        return _run_share(arguments)
    taken = None
    if arguments.returns is not None:
        (certificate, taken), task, folder = _certify_returns(arguments), None, arguments.out
    else:
        certificate, task, folder = _certify_played(arguments)
    required: Requirement | None = arguments.require  # in raw units by now
    proved = required is None
    if required is not None:
        proved = bool(certificate.lower[asked_budgets(certificate).index(required.budget)] >= required.mean)
    if arguments.json:
        asked = {} if required is None else {"require": {**asdict(required), "proved": proved}}
        print_json({**certificate.to_json(), **asked})
        return 0 if proved else 1
    baseline = None if task is None else task.baseline
    print(describe(certificate, baseline, None if required is None else required.budget))
    if required is not None:
        print(f"\n{'Proved' if proved else 'NOT proved'}: a mean of {required.mean:g} at budget {required.budget:g}.")
    for line in () if task is None else (*limits_note(arguments, task), *_units_note(arguments, certificate)):
        say(line)
    if arguments.seed is not None and task is not None:
        say(f"Seed {arguments.seed} was given; the default follows from agent and setup, so that no agent can know it.")
    if (certificate.method_selection or {}).get("stopped") == "stopped by hand":
        say("Interrupted: run the same command again to continue.")
    if taken is not None:
        say(f"Returns: {taken} ({'standard input' if arguments.returns == Path('-') else arguments.returns})")
    if folder is not None:
        print(f"Report: {folder / NAME}")
    return 0 if proved else 1


def _certify_returns(arguments: argparse.Namespace) -> tuple[Certificate, str]:
    """Certify precomputed returns; return also what in the file was taken for them."""
    from surefoot.files import versions
    from surefoot.runs.finish import finish_run
    from surefoot.runs.returns import read_returns

    shaping = tuple(name for name in DEFINED if name not in {"floor", "ceiling"})
    running = ("agent", "workers", "ray", "blocks", "seed", *shaping, "gamma", "tol", "tol_budget", "max_episodes")
    refuse(arguments, running, "--returns: no episodes are run")
    if arguments.record:
        raise InputError("--record cannot be combined with --returns: no episodes are run")
    if arguments.units != "raw":
        raise InputError("--units normalized cannot be combined with --returns: there is no agent with statistics")
    if arguments.out is not None and (arguments.out / "setup.json").exists():
        raise InputError(f"{arguments.out} holds a run with its own certificate; choose another --out")
    episodes, taken = read_returns(arguments.returns, arguments.sigma, arguments.floor, arguments.ceiling)
    certificate = _query(arguments, episodes.sigma).answer(episodes)
    if arguments.out is not None:
        episodes.save(arguments.out / "episodes.npz")  # next to its certificate, to check it against
        metadata = {
            "agent_sha256": episodes.metadata.get("agent_sha256"),
            "played": False,
            "returns": taken,
            "certified_with": versions(),
            "step": arguments.threshold_spacing,
            "required_budget": None if arguments.require is None else arguments.require.budget,
        }
        finish_run(arguments.out, certificate, metadata=metadata, baseline=None, command=arguments.command_line)
    return certificate, taken


def _certify_played(arguments: argparse.Namespace) -> tuple[Certificate, Task, Path]:
    from surefoot.runs.certified import certified_run, run_name
    from surefoot.runs.folder import check_reusable

    plan, query, goal = _planned(arguments)
    task, required = plan.task, arguments.require
    folder = arguments.out or Path("runs") / (run_name(plan) + ("" if goal is None else "-sequential"))
    check_reusable(plan, folder)
    if goal is not None:
        query = replace(query, budgets=tuple(sorted({*query.budgets, goal.budget})))
    with (
        keeping(folder),
        workers_of(arguments, plan.gpu_share) as workers,
        progress_bar("running", "episodes", arguments) as report,
    ):
        certificate = certified_run(
            plan,
            query,
            folder,
            goal=goal,
            required=None if required is None else required.budget,
            workers=workers,
            progress=report,
            command=arguments.command_line,
            record=arguments.record,
        )
    return certificate, task, folder


def _run_share(arguments: argparse.Namespace) -> int:
    """Run some of the blocks; nothing is certified of them."""
    from surefoot.runs.certified import run_name
    from surefoot.runs.shares import run_share

    refuse(arguments, ("require", "tol", "tol_budget", "max_episodes"), "--blocks: a share is not certified")
    plan, _, _ = _planned(arguments)
    folder = arguments.out or Path("runs") / (run_name(plan) + arguments.blocks.suffix)
    check_shareable(plan)
    with (
        keeping(folder),
        workers_of(arguments, plan.gpu_share) as workers,
        progress_bar("running", "episodes", arguments) as report,
    ):
        n_episodes = run_share(plan, arguments.blocks, folder, workers=workers, progress=report)
    show_share(arguments, folder, n_episodes)
    return 0


def _planned(arguments: argparse.Namespace) -> tuple[Plan, Query, StoppingRule | None]:
    """Return what to run, what to certify of it, and when to stop; what cannot be certified is rejected."""
    from surefoot.episodes import MOST_EPISODES

    task = task_of(arguments, "agent", "sigma", gamma=arguments.gamma)
    if arguments.units == "normalized":
        _to_raw_units(arguments, task)
    sigma = task.paper.sigma if arguments.sigma is None else task.spaces.sigma_of(arguments.sigma)
    query = _query(arguments, Noise.of(sigma).sigma, task)
    goal = _goal(arguments, Noise.of(sigma).sigma)
    count = arguments.episodes if goal is None else arguments.max_episodes or MOST_EPISODES
    plan = plan_of(arguments, task, sigma, count, per_step=arguments.per_step)
    query.answer(plan.probe())
    return plan, query, goal


def _to_raw_units(arguments: argparse.Namespace, task: Task) -> None:
    """Replace sigma and budgets in units of the agent's statistics by a sigma per feature and what budgets then are."""
    from surefoot.agents.normalization import feature_scales

    given = arguments.sigma
    if arguments.agent is None or not isinstance(given, int | float):
        raise InputError(f"--units normalized needs --agent and one --sigma, in normalized units, got {given}")
    scales = feature_scales(plan_of(arguments, task, given, 1).policy)
    if scales is None:
        raise InputError(
            f"--units normalized needs an agent with statistics of VecNormalize, {arguments.agent} has none; "
            "give --vecnormalize FILE, or a --sigma for each feature"
        )
    if arguments.norm != "l2":
        raise InputError(f"--units normalized is for --norm l2, got {arguments.norm}")
    arguments.sigma = [given * scale for scale in scales]
    arguments.raw_unit = unit = min(scales)
    if arguments.budgets is not None:
        arguments.budgets = tuple(budget * unit for budget in arguments.budgets)
    if arguments.tol_budget is not None:
        arguments.tol_budget *= unit
    if arguments.require is not None:
        arguments.require = replace(arguments.require, budget=arguments.require.budget * unit)


def _units_note(arguments: argparse.Namespace, certificate: Certificate) -> list[str]:
    """Return a line on what budgets are in normalized units, where they were given so."""
    unit = getattr(arguments, "raw_unit", None)
    if unit is None:
        return []
    shown = ", ".join(f"{budget / unit:g}" for budget in asked_budgets(certificate))
    return [
        f"In normalized units: sigma {certificate.sigma / unit:g}, budgets {shown}. Budgets above are {unit:g} times "
        "that: a perturbation counts by the feature with the least sigma (setup.json has all of them)."
    ]


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
