"""``surefoot certify``: a task, an environment, or returns in; sentence, table, files out."""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from surefoot.cli.options import (
    Requirement,
    add_agent,
    add_common,
    chosen_workers,
    parse_budgets,
    parse_numbers,
    parse_requirement,
    parse_sigma,
    progress_bar,
    refuse,
    with_requirement,
)
from surefoot.episodes import Noise
from surefoot.errors import InputError
from surefoot.proof.episode_budget import METHODS
from surefoot.proof.norms import NORMS, Norm
from surefoot.proof.query import Answer, answer
from surefoot.proof.step_budget import check_rewards
from surefoot.proof.stopping import StoppingRule
from surefoot.report.sentences import Floor, headline, law_lines, notes, rows

MOST_EPISODES = 10_000_000


def add_certify(commands: Any) -> None:
    """Describe the subcommand."""
    parser = commands.add_parser(
        "certify",
        help="play many episodes of a smoothed agent and certify its mean return",
        description="Certify a shipped or trained agent on TASK, any agent on a Gymnasium --env, or --returns alone.",
        allow_abbrev=False,
    )
    parser.add_argument("task", nargs="?", metavar="TASK", help="such as cartpole-5, pong-1r or freeway")
    parser.add_argument("--env", metavar="ID", help="any Gymnasium environment with Box observations, instead of TASK")
    parser.add_argument(
        "--returns", type=Path, metavar="FILE", help="returns played elsewhere (.npy, or a saved record)"
    )
    add_agent(parser)
    parser.add_argument(
        "--sigma", help="noise on every new observation, or one per feature as 0.1,0.2 (default: the task's)"
    )
    parser.add_argument("--episodes", type=int, default=10_000, help="episodes to play (default: %(default)s)")
    parser.add_argument("--budgets", help="0:1:0.05 or 0,0.2,0.4 (default: the task's, else 0 to 1 by 0.1)")
    parser.add_argument("--confidence", type=float, default=0.95, help="(default: %(default)s)")
    parser.add_argument("--method", choices=METHODS, help="confidence statement (default: auto, chosen on a pilot)")
    parser.add_argument("--step", type=float, default=1.0, help="distance of per-threshold's thresholds (default: 1)")
    parser.add_argument(
        "--shared-by", type=int, metavar="M", help="one budget for M episodes together, kept on average (method binary)"
    )
    parser.add_argument("--per-step", action="store_true", help="each budget is for every single step")
    parser.add_argument("--rewards", metavar="LOW,HIGH", help="limits of a step's reward, with --env and --per-step")
    parser.add_argument("--at-least", metavar="LIST", help="certify the probabilities of returns of at least these")
    parser.add_argument("--quantiles", metavar="LIST", help="certify these quantiles of the return, as 0.05,0.5")
    parser.add_argument("--discount", type=float, metavar="G", help="certify the discounted return sum G^t r_t")
    parser.add_argument("--norm", choices=NORMS, default="l2", help="norm of the budgets; others are covered by l2")
    parser.add_argument("--floor", type=float, help="a return that cannot be undercut, with --env and --returns")
    parser.add_argument("--ceiling", type=float, help="a return that cannot be exceeded, with --env and --returns")
    parser.add_argument("--require", metavar="MEAN@BUDGET", help="exit with 0 if this is proved, else with 1")
    parser.add_argument("--until", type=float, metavar="D", help="play on until the certificate can grow by D at most")
    parser.add_argument("--at", type=float, metavar="BUDGET", help="the budget that --until is about (default: sigma)")
    parser.add_argument("--max-episodes", type=int, metavar="N", help="play block after block, N at most, until then")
    parser.add_argument("--max-steps", type=int, help="step limit for an --env that has none")
    add_common(parser)
    parser.set_defaults(run=run_certify)


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
        certificate, blind, folder = _certify_returns(arguments, required), None, arguments.out
    else:
        certificate, blind, folder = _certify_played(arguments, required)
    proved = required is None or _lower_at(certificate, required.budget) >= required.mean
    if arguments.json:
        asked = {} if required is None else {"require": {**asdict(required), "proved": proved}}
        print(json.dumps({**certificate.to_json(), **asked}, indent=1, allow_nan=False))
        return 0 if proved else 1
    show_certificate(certificate, blind)
    if required is not None:
        print(f"\n{'Proved' if proved else 'NOT proved'}: a mean of {required.mean:g} at budget {required.budget:g}.")
    if folder is not None:
        print(f"\nWritten to {folder}: {', '.join(sorted(path.name for path in folder.iterdir() if path.is_file()))}")
    return 0 if proved else 1


def _lower_at(certificate: Answer, budget: float) -> float:
    """Return the lower limit at one of the budgets that were asked for, in the norm that it was asked in."""
    norm = certificate.asked.get("norm")
    asked = certificate.budgets.tolist() if norm is None else norm["budgets"]
    return float(certificate.lower[asked.index(budget)])


def _certify_returns(arguments: argparse.Namespace, required: Requirement | None) -> Answer:
    from surefoot.files import versions
    from surefoot.runs.finish import finish_run
    from surefoot.runs.returns import read_outcomes

    playing = ("agent", "max_steps", "workers", "rewards", "discount", "until", "at", "max_episodes")
    refuse(arguments, playing, "--returns: nothing is played")
    if arguments.out is not None and (arguments.out / "setup.json").exists():
        raise InputError(f"{arguments.out} holds a run with its own certificate; choose another --out")
    episodes = read_outcomes(arguments.returns, arguments.sigma, arguments.floor, arguments.ceiling)
    budgets = with_requirement(arguments.budgets or parse_budgets("0:1:0.1"), required)
    certificate = answer(episodes, budgets, *_asked(arguments, _norm(arguments, None, None)))
    if arguments.out is not None:
        episodes.save(arguments.out / "episodes.npz")  # next to its certificate, to check it against
        metadata = {
            "agent_sha256": episodes.facts.get("agent_sha256"),
            "played": False,
            "certified_with": versions(),
            "step": arguments.step,
        }
        finish_run(arguments.out, certificate, metadata=metadata, baseline=None, command=arguments.command_line)
    return certificate


def _certify_played(arguments: argparse.Namespace, required: Requirement | None) -> tuple[Answer, Floor | None, Path]:
    from gymnasium import logger

    from surefoot.agents.files import default_agent
    from surefoot.agents.resolve import resolve
    from surefoot.play.plan import Plan, resolve_device
    from surefoot.play.tasks import discounted, find_task, task_of_environment
    from surefoot.runs.certified import Questions, certified_run, run_name

    logger.min_level = logger.ERROR  # its advice on versions of environments would stand between our lines
    if arguments.task is not None:
        refuse(arguments, ("floor", "ceiling", "max_steps", "rewards"), "a task, which knows them")
        task = find_task(arguments.task)
    else:
        for name in ("floor", "agent", "sigma"):
            if getattr(arguments, name) is None:
                raise InputError(f"--env needs --{name}")
        task = task_of_environment(
            arguments.env, floor=arguments.floor, ceiling=arguments.ceiling, limit=arguments.max_steps
        )
        if arguments.rewards is not None:
            task = replace(task, rewards=_reward_limits(arguments.rewards))
    if arguments.discount is not None:
        given = None if arguments.task is not None else (arguments.floor, arguments.ceiling)
        task = discounted(task, arguments.discount, limits=given)
    noise = Noise.of(task.sigma if arguments.sigma is None else arguments.sigma)
    norm = _norm(arguments, math.prod(task.shape), task.limit)
    budgets = with_requirement(arguments.budgets or task.budgets, required)
    questions = Questions(budgets, *_asked(arguments, norm))
    if noise.features is not None and arguments.agent is None:
        raise InputError("there is no pretrained agent for a sigma per feature; name one with --agent")
    agent = default_agent(task.name, noise.sigma) if arguments.agent is None else arguments.agent
    policy = resolve(agent, task.spaces, trust_pickle=arguments.trust_pickle)
    device, watched = resolve_device(arguments.device), _watched(arguments)
    count = (arguments.max_episodes or MOST_EPISODES) if watched else arguments.episodes
    plan = Plan(
        task=task,
        policy=policy,
        noise=noise,
        n_episodes=count,
        seed=arguments.seed,
        device=device,
        per_step=arguments.per_step,
    )
    questions.answer(plan.probe())
    folder = arguments.out or Path("runs") / (run_name(plan) + ("-sequential" if watched else ""))
    workers = chosen_workers(arguments.workers, plan.device, emulated=plan.task.emulated)
    goal = _goal(arguments, noise.sigma, required) if watched else None
    if goal is not None:
        questions = replace(questions, budgets=tuple(sorted({*budgets, goal.budget})))
    with progress_bar("playing", "episodes", arguments) as report:
        certificate = certified_run(
            plan, questions, folder, goal=goal, workers=workers, progress=report, command=arguments.command_line
        )
    return certificate, task.blind, folder


def _asked(arguments: argparse.Namespace, norm: Norm | None) -> tuple[Any, ...]:
    """Return all that is asked of the episodes beside the budgets, in the order of ``answer``."""
    names = ("confidence", "method", "step", "shared_by", "per_step")
    at_least = () if arguments.at_least is None else parse_numbers(arguments.at_least, "--at-least", "100,150")
    quantiles = () if arguments.quantiles is None else parse_numbers(arguments.quantiles, "--quantiles", "0.05,0.5")
    return (*(getattr(arguments, name) for name in names), at_least, quantiles, norm)


def _norm(arguments: argparse.Namespace, coordinates: int | None, limit: int | None) -> Norm | None:
    """Return the norm of the budgets, or None for l2; ``limit`` is how many observations an episode has at most."""
    if arguments.norm == "l2":
        return None
    many = None if limit is None else limit * (arguments.shared_by or 1)
    return Norm(arguments.norm, coordinates, 1 if arguments.per_step else many)


def _reward_limits(text: str) -> tuple[float, float]:
    limits = parse_numbers(text, "rewards", "-1,1")
    if len(limits) != 2:
        raise InputError(f"--rewards must be two numbers LOW,HIGH, got {text!r}")
    return check_rewards(*limits)


def _watched(arguments: argparse.Namespace) -> bool:
    """Tell whether the run is to stop by itself."""
    if arguments.until is None and arguments.max_episodes is None:
        if arguments.at is not None:
            raise InputError("--at says which budget --until is about; give --until too, or --require MEAN@BUDGET")
        return False
    if arguments.until is None and arguments.require is None:
        raise InputError("--max-episodes needs something to stop for: give --until D or --require MEAN@BUDGET")
    if arguments.method not in (None, "auto", "sequential"):
        raise InputError(f"a run that stops by itself is certified by --method sequential, got {arguments.method}")
    refuse(arguments, ("shared_by", "at_least", "quantiles"), "a run that stops by itself")
    if arguments.per_step or arguments.norm != "l2":
        raise InputError("--per-step and --norm cannot go with a run that stops by itself")
    return True


def _goal(arguments: argparse.Namespace, sigma: float, required: Requirement | None) -> StoppingRule:
    """Return when a sequential run is to stop."""
    if required is not None and arguments.at not in (None, required.budget):
        raise InputError(f"--at {arguments.at:g} and --require {arguments.require} are about different budgets")
    at = arguments.at if required is None else required.budget
    return StoppingRule(
        budget=sigma if at is None else at,
        tolerance=arguments.until,
        require=None if required is None else required.mean,
    )


def show_certificate(certificate: Answer, blind: Floor | None) -> None:
    """Print the sentence, the table and the notes."""
    console = Console(highlight=False)
    whole = not console.is_terminal  # a log or a pipe gets sentences in one piece
    console.print(f"[bold]{headline(certificate)}[/bold]\n", soft_wrap=whole)
    table = Table(box=None, pad_edge=False)
    shown = rows(certificate)
    titles = ("budget", "certified lower bound", "certified upper bound")
    for title, *cells in zip(titles, *shown, strict=True):
        table.add_column(title, justify="right", min_width=max(map(len, cells)))
    for row in shown:
        table.add_row(*row)
    console.print(table, soft_wrap=True)
    console.print()
    for line in [*law_lines(certificate), *notes(certificate, blind)]:
        console.print(line, soft_wrap=whole)
