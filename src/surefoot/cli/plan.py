"""``surefoot plan`` and ``surefoot tune``: what to expect before certifying, and which sigma to certify."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from surefoot.cli.options import (
    add_agent,
    add_common,
    add_confidence,
    agent_of,
    parse_requirement,
    parse_sigmas,
    pick,
    print_json,
    print_table,
    progress_bar,
    say,
    workers_of,
)
from surefoot.cli.parser import AGENT, ATTACK, RUN, STATISTICS, STOPPING, add_command, section
from surefoot.cli.task import add_task, one_of, task_of
from surefoot.report.page import REPORT_FILE

if TYPE_CHECKING:
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
    parser.set_defaults(run=run_plan)


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
            "surefoot tune --env CartPole-v1 --agent model.zip --budget 0.2",
        ),
    )
    section(parser, ATTACK).add_argument(
        "--budget", type=float, required=True, metavar="B", help="attack budget at which the bound is to be largest"
    )
    _add_shared(parser, writes=True)
    section(parser, STATISTICS).add_argument(
        "--all-sigmas", action="store_true", help="certify every sigma, alpha split among them, and select none"
    )
    parser.set_defaults(run=run_tune)


def _add_shared(parser: argparse.ArgumentParser, *, writes: bool) -> None:
    add_task(parser)
    add_agent(parser)
    section(parser, AGENT).add_argument(
        "--sigmas",
        type=parse_sigmas,
        metavar="LIST",
        help="standard deviations of the noise to compare, as 0.1,0.2,0.4; with one per feature or part separated by "
        'semicolons, as "camera=0.1,arm=0.2; camera=0.2,arm=0.4" (default: those with a pretrained agent, else a '
        "third, half and all of the budget)",
    )
    statistics = section(parser, STATISTICS)
    statistics.add_argument(
        "--pilot-episodes", type=int, default=1000, metavar="N", help="pilot episodes per sigma (default: 1,000)"
    )
    statistics.add_argument(
        "--episodes", type=int, default=10_000, metavar="N", help="episodes to certify with (default: 10,000)"
    )
    add_confidence(parser)
    add_common(parser, writes=writes, own_seed=True)


def run_plan(arguments: argparse.Namespace) -> None:
    """Print what each sigma is predicted to certify."""
    from surefoot.api.plan import plan
    from surefoot.proof.forecast import best_forecast

    options = _collect_options(arguments, "plan")
    with workers_of(arguments) as workers, progress_bar("pilot", "episodes", arguments) as report:
        forecasts = plan(
            **options,
            **pick(arguments, "require", "cores"),
            workers=workers,
            progress_callback=report,
        )
    chosen = best_forecast(forecasts)
    if arguments.json:
        content = {
            "task": options["task"].name,
            "confidence": arguments.confidence,
            "forecasts": [one.to_json() for one in forecasts],
            "best": chosen.to_json(),
            "most": chosen.achievable,
        }
        print_json({"schema": 1, **content})
        return
    _show_forecasts(forecasts)
    print()
    say(
        f"Estimates from {arguments.pilot_episodes:,} episodes each, at budget {arguments.require.budget:g}; "
        "nothing here is a bound."
    )
    say(
        f"Sigma {chosen.sigma:g} is predicted to certify the most. The best achievable bound with "
        f"{arguments.episodes:,} episodes at that sigma, for an agent that never fails, is {chosen.achievable:.2f}."
    )
    # A requirement that no number of episodes proves has no cost.
    for one in forecasts:
        if one.fixed is not None:
            say(f"Sigma {one.sigma:g}: {one.cost.describe(one.fixed)}.", "  ")
    if not chosen.fills_gpu:
        say(f"So few episodes do not fill a GPU; for its true speed use --pilot-episodes {chosen.cost.block}.")


def run_tune(arguments: argparse.Namespace) -> None:
    """Choose a sigma and certify it on other episodes, or certify all of them."""
    from surefoot.api.plan import tune

    options = _collect_options(arguments, "tune")
    with workers_of(arguments) as workers, progress_bar("tuning", "episodes", arguments) as report:
        tuned = tune(
            **options,
            **pick(arguments, "budget", "all_sigmas", "out"),
            workers=workers,
            progress_callback=report,
        )
    if arguments.json:
        content = {
            "task": tuned.task.name,
            "how": tuned.explanation,
            "forecasts": [one.to_json() for one in tuned.forecasts],
            "certificates": [run.certificate.to_json() for run in tuned.runs],
        }
        print_json({"schema": 1, **content})
        return
    # Without a selection there were no pilot episodes.
    if tuned.forecasts:
        _show_forecasts(tuned.forecasts)
        print()
    for run in tuned.runs:
        certificate = run.certificate
        print(f"Sigma {certificate.sigma:g}, agent {certificate.metadata['agent']}:\n{certificate}\n")
    say(tuned.explanation)
    for run in tuned.runs:
        if run.directory is not None:
            print(f"Report: {run.directory / REPORT_FILE}")


def _collect_options(arguments: argparse.Namespace, command: str) -> dict[str, Any]:
    """Return what both functions take: the agent, and episodes to predict with and for."""
    chosen = one_of(arguments, command)
    task = task_of(arguments, "agent", chosen=chosen)
    return {
        "task": task,
        "agent": agent_of(arguments, chosen.agent, task),
        "n_episodes": arguments.episodes,
        **pick(arguments, "sigmas", "pilot_episodes", "confidence", "seed", "device"),
    }


def _show_forecasts(forecasts: Sequence[Forecast]) -> None:
    """Print what each sigma is predicted to certify."""
    # tune asks for the best bound and requires none, so it has no numbers of episodes to show.
    has_requirement = forecasts[0].require is not None
    titles = ["sigma", "mean", "worst-case\nmean", f"expected bound\n(n = {forecasts[0].episodes:,})"]
    if has_requirement:
        titles += ["episodes\n(fixed n)", "episodes\n(sequential)", "at least"]
    rows = []
    for one in forecasts:
        cells = [f"{one.sigma:g}", f"{one.estimate:.2f}", f"{one.worst:.2f}", f"{one.limit:.2f}"]
        if has_requirement:
            cells += [_format_count(one.fixed), _format_count(one.sequential), _format_count(one.least)]
        rows.append(cells)
    print_table(titles, rows)


def _format_count(episodes: int | None) -> str:
    return "never" if episodes is None else f"~{episodes:,}"
