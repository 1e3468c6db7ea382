"""``surefoot plan`` and ``surefoot tune``: what to expect before certifying, and which sigma to certify."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from surefoot.cli.options import (
    add_agent,
    add_common,
    keeping,
    numbers,
    parse_requirement,
    plain_console,
    plan_of,
    print_json,
    progress_bar,
    say,
    workers_of,
)
from surefoot.cli.parser import AGENT, ATTACK, RUN, STATISTICS, STOPPING, add_command, section
from surefoot.cli.task import add_task, one_of, task_of
from surefoot.errors import InputError
from surefoot.proof.query import check_confidence

if TYPE_CHECKING:
    from surefoot.play.plan import Plan
    from surefoot.play.workers import Workers
    from surefoot.proof.forecast import Forecast


def add_plan(commands: Any) -> None:
    """Describe ``plan``."""
    parser = add_command(
        commands,
        "plan",
        "predict how many episodes a requirement needs, and which sigma certifies the most",
        usage="TASK | --env ID --require MEAN@BUDGET [options]",
        details="Pilot episodes are run for it; what it prints are estimates, not bounds.",
        examples=(
            "surefoot plan cartpole-5 --require 150@0.4",
            "surefoot plan cartpole-5 --require 150@0.4 --sigmas 0.2,0.4 --cores 256",
            "surefoot plan cartpole-1 --require 100@0.2 --agent model.zip --sigmas 0.1,0.2",
        ),
    )
    section(parser, STOPPING).add_argument(
        "--require",
        type=parse_requirement,
        required=True,
        metavar="MEAN@BUDGET",
        help="what is to be proved, as 150@0.4",
    )
    _add_shared(parser, writes=False)
    section(parser, RUN).add_argument(
        "--cores", type=int, metavar="N", help="cores of the machines to plan for (default: those of this machine)"
    )
    parser.set_defaults(run=run_plan, command="plan")


def add_tune(commands: Any) -> None:
    """Describe ``tune``."""
    parser = add_command(
        commands,
        "tune",
        "select sigma on some episodes and certify it on others",
        usage="TASK | --env ID --budget B [options]",
        examples=(
            "surefoot tune cartpole-5 --budget 0.4",
            "surefoot tune cartpole-5 --budget 0.4 --sigmas 0.2,0.4 --episodes 100000",
            "surefoot tune cartpole-5 --budget 0.4 --all-sigmas",
        ),
    )
    section(parser, ATTACK).add_argument(
        "--budget", type=float, required=True, metavar="B", help="attack budget at which the bound is to be largest"
    )
    _add_shared(parser, writes=True)
    section(parser, STATISTICS).add_argument(
        "--all-sigmas", action="store_true", help="certify every sigma, alpha split among them, and select none"
    )
    parser.set_defaults(run=run_tune, command="tune")


def _add_shared(parser: argparse.ArgumentParser, *, writes: bool) -> None:
    add_task(parser)
    add_agent(parser)
    section(parser, AGENT).add_argument(
        "--sigmas",
        type=numbers("0.1,0.2,0.4"),
        metavar="LIST",
        help="standard deviations of the noise to compare, as 0.1,0.2,0.4 (default: those with a pretrained agent)",
    )
    statistics = section(parser, STATISTICS)
    statistics.add_argument(
        "--pilot-episodes", type=int, default=1000, metavar="N", help="pilot episodes per sigma (default: 1,000)"
    )
    statistics.add_argument(
        "--episodes", type=int, default=10_000, metavar="N", help="episodes to certify with (default: 10,000)"
    )
    statistics.add_argument(
        "--confidence",
        type=float,
        default=0.95,
        metavar="C",
        help="probability that all lower bounds hold simultaneously (default: 0.95)",
    )
    add_common(parser, writes=writes, own_seed=True)


def run_plan(arguments: argparse.Namespace) -> None:
    """Print what each sigma is predicted to certify."""
    from surefoot.compute import usable_cores
    from surefoot.proof.forecast import best, best_achievable

    required, plans = arguments.require, _plans(arguments)
    if arguments.cores is not None and arguments.cores < 1:
        raise InputError(f"--cores must be at least 1, got {arguments.cores}")
    with workers_of(arguments, plans[0].gpu_share) as workers:
        cores = arguments.cores or (usable_cores() if arguments.ray is None else workers.at_a_time(0.0))
        found, costs = _forecasts(arguments, plans, workers, required.budget, required.mean)
    chosen, task, alpha = best(found), plans[0].task, 1 - arguments.confidence
    most = best_achievable(
        arguments.episodes, required.budget / chosen.sigma, alpha, task.scoring.floor, task.scoring.ceiling
    )
    if arguments.json:
        content = {
            "forecasts": [
                {**one.to_json(), "cost": cost.to_json(one.fixed, cores)}
                for one, cost in zip(found, costs, strict=True)
            ],
            "best": chosen.to_json(),
            "most": most,
        }
        print_json({"schema": 1, "task": task.name, "confidence": arguments.confidence, **content})
        return
    _show(found)
    print()
    say(
        f"Estimates from {arguments.pilot_episodes:,} episodes each, at budget {required.budget:g}; "
        "nothing here is a bound."
    )
    say(
        f"Sigma {chosen.sigma:g} is predicted to certify the most. The best achievable bound with "
        f"{arguments.episodes:,} episodes at that sigma, for an agent that never fails, is {most:.2f}."
    )
    for one, cost in zip(found, costs, strict=True):
        if one.fixed is not None:
            say(f"Sigma {one.sigma:g}: {cost.describe(one.fixed, cores)}.", "  ")
    if plans[0].device == "cuda" and arguments.pilot_episodes < plans[0].block_size:
        say(f"So few episodes do not fill a GPU; for its true speed use --pilot-episodes {plans[0].block_size}.")


def run_tune(arguments: argparse.Namespace) -> None:
    """Choose a sigma and certify it on other episodes, or certify all of them."""
    plans = _plans(arguments)
    with workers_of(arguments, plans[0].gpu_share) as workers:
        _tune(arguments, plans, workers)


def _tune(arguments: argparse.Namespace, plans: list[Plan], workers: Workers) -> None:
    from surefoot.play.plan import seeded_plan
    from surefoot.proof.forecast import best
    from surefoot.proof.query import Query
    from surefoot.report.page import NAME
    from surefoot.runs.certified import certified_run, run_name

    found = [] if arguments.all_sigmas else _forecasts(arguments, plans, workers, arguments.budget, None)[0]
    kept = plans if arguments.all_sigmas else [plans[found.index(best(found))]]
    confidence = 1 - (1 - arguments.confidence) / len(kept)
    query = Query(budgets=(arguments.budget,), confidence=confidence)
    made, written = [], []
    for plan in kept:
        whole = seeded_plan(replace(plan, n_episodes=arguments.episodes), arguments.seed)
        folder = (arguments.out or Path("runs")) / run_name(whole)
        what = f"sigma {plan.noise.sigma:g}"
        with keeping(arguments.out or folder), progress_bar(what, "episodes", arguments) as report:
            made.append(certified_run(whole, query, folder, workers=workers, progress=report))
        written.append(folder / NAME)
    how = (
        f"All {len(kept)} sigmas are certified, alpha split among them: their bounds hold simultaneously with "
        f"confidence {arguments.confidence:g}, and any of them may be selected."
        if arguments.all_sigmas
        else f"Sigma was selected on {arguments.pilot_episodes:,} other episodes per sigma, at no cost in confidence."
    )
    if arguments.json:
        content = {"forecasts": [one.to_json() for one in found], "certificates": [one.to_json() for one in made]}
        print_json({"schema": 1, "task": plans[0].task.name, "how": how, **content})
        return
    if found:
        _show(found)
        print()
    for plan, certificate in zip(kept, made, strict=True):
        print(f"Sigma {plan.noise.sigma:g}, agent {plan.policy.name}:\n{certificate}\n")
    say(how)
    for path in written:
        print(f"Report: {path}")


def _plans(arguments: argparse.Namespace) -> list[Plan]:
    """Return one plan per sigma, of ``--pilot-episodes`` episodes."""
    from surefoot.agents.files import list_agents, load_card

    check_confidence(arguments.confidence)
    one_of(arguments, arguments.command)
    task = task_of(arguments, "agent", "sigmas")
    cards = [load_card(name) for name in list_agents()]
    known = [card["sigma"] for card in cards if card["name"] == f"{task.name}-s{card['sigma']:g}"]
    sigmas = arguments.sigmas or [sigma for sigma in known if sigma > 0]
    if min(sigmas) <= 0:
        raise InputError(f"sigmas must be > 0, got {min(sigmas):g}: without noise nothing is certified")
    return [plan_of(arguments, task, sigma, arguments.pilot_episodes) for sigma in sigmas]


def _forecasts(
    arguments: argparse.Namespace, plans: list[Plan], workers: Workers, budget: float, require: float | None
) -> tuple[list[Forecast], list[Cost]]:
    """Run the pilot episodes of each plan; return what they predict, and what an episode costs here."""
    from surefoot.play.rollout import play
    from surefoot.play.streams import Purpose
    from surefoot.proof.forecast import forecast

    found, costs = [], []
    for plan in plans:
        began = time.perf_counter()
        with progress_bar(f"pilot, sigma {plan.noise.sigma:g}", "episodes", arguments) as report:
            pilot = play(replace(plan, purpose=(Purpose.PILOT,)), workers=workers, progress=report)
        each = (time.perf_counter() - began) / len(pilot)
        busy = min(workers.at_a_time(plan.gpu_share), plan.n_blocks)
        costs.append(Cost(busy * each, each if plan.device == "cuda" else None, plan.block_size))
        alpha, n_episodes = 1 - arguments.confidence, arguments.episodes
        found.append(forecast(pilot, budget=budget, alpha=alpha, n_episodes=n_episodes, require=require))
    return found, costs


@dataclass(frozen=True)
class Cost:
    """What an episode of a pilot took on this machine: an estimate for larger runs.

    Attributes:
        core_seconds: Seconds of one core.
        gpu_seconds: Seconds of the GPU; None where none was used.
        block: Number of episodes that one core runs together.
    """

    core_seconds: float
    gpu_seconds: float | None
    block: int

    def seconds(self, n_episodes: int, cores: int) -> float:
        """Return how long so many episodes take: their blocks dealt to the cores, or on one GPU."""
        if self.gpu_seconds is not None:
            return n_episodes * self.gpu_seconds
        blocks_in_turn = -(-n_episodes // self.block // cores)
        return min(n_episodes, blocks_in_turn * self.block) * self.core_seconds

    def to_json(self, n_episodes: int | None, cores: int) -> dict[str, float | int | None]:
        """Return the cost as JSON data; of episodes that never suffice, only that of one."""
        n, known = n_episodes or 0, n_episodes is not None
        gpu = None if self.gpu_seconds is None else n * self.gpu_seconds / 60
        return {
            "core_seconds_per_episode": self.core_seconds,
            "gpu_seconds_per_episode": self.gpu_seconds,
            "cores": cores,
            "core_hours": n * self.core_seconds / 3600 if known else None,
            "gpu_minutes": gpu if known else None,
            "seconds": self.seconds(n, cores) if known else None,
        }

    def describe(self, n_episodes: int, cores: int) -> str:
        """Return what so many episodes cost, in words."""
        took, hours = self.seconds(n_episodes, cores), n_episodes * self.core_seconds / 3600
        last = f"{took:.2g} s" if took < 100 else f"{took / 60:.0f} min" if took < 6000 else f"{took / 3600:.0f} h"
        if self.gpu_seconds is not None:
            return f"~{n_episodes:,} episodes are {n_episodes * self.gpu_seconds / 60:.2g} GPU minutes ({last})"
        return f"~{n_episodes:,} episodes are {hours:.2g} core hours, {last} on {cores} core{'s' * (cores > 1)}"


def _show(found: list[Forecast]) -> None:
    table = Table(box=None, pad_edge=False)
    required = found[0].require is not None
    titles = ["sigma", "mean", "worst-case\nmean", f"expected bound\n(n = {found[0].episodes:,})"]
    counts = ["episodes\n(fixed n)", "episodes\n(sequential)", "at least"]
    for title in [*titles, *(counts if required else [])]:
        table.add_column(title, justify="right", no_wrap=True)
    for one in found:
        numbers = [f"{one.sigma:g}", f"{one.estimate:.2f}", f"{one.worst:.2f}", f"{one.limit:.2f}"]
        counts = [_count(one.fixed), _count(one.sequential), _count(one.least)] if required else []
        table.add_row(*numbers, *counts)
    plain_console().print(table, soft_wrap=True)


def _count(episodes: int | None) -> str:
    return "never" if episodes is None else f"~{episodes:,}"
