"""``surefoot attack``: an agent under attack over a grid of budgets, held against its certificate."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from surefoot.cli.options import (
    add_agent,
    add_common,
    add_share,
    check_shareable,
    estimate,
    keeping,
    numbers,
    parse_budgets,
    plain_console,
    plan_of,
    print_json,
    progress_bar,
    say,
    show_share,
    workers_of,
)
from surefoot.cli.parser import AGENT, ATTACK, STATISTICS, add_command, offer, section
from surefoot.cli.task import add_task, one_of, task_of
from surefoot.errors import InputError, printable
from surefoot.report.sentences import attack_notes

if TYPE_CHECKING:
    from surefoot.runs.attacked import AttackGrid

INCONSISTENT = 3
# The names of ``attacks.registry``, which needs torch.
METHODS = ("paper", "adaptive", "random", "constant-direction", "single-step", "structured")


def add_attack(commands: Any) -> None:
    """Describe the subcommand."""
    parser = add_command(
        commands,
        "attack",
        "attack an agent, undefended or smoothed, and compare with its certificate",
        usage="TASK | --env ID [options]",
        details="Exit code 3: an attacked mean is below a certified bound, so one of the two is wrong.",
        examples=(
            "surefoot attack cartpole-5",
            "surefoot attack cartpole-5 --sigma 0.2 --budgets 0.2,0.4 --method adaptive",
            "surefoot attack mountain-car --sigma 0.2 --certificate runs/mountain-car",
        ),
    )
    add_task(parser)
    add_agent(parser)
    section(parser, AGENT).add_argument(
        "--sigma",
        type=float,
        default=0.0,
        metavar="S",
        help="standard deviation of the agent's noise; 0 attacks it undefended (default: 0)",
    )
    _add_method(parser)
    section(parser, STATISTICS).add_argument(
        "--episodes", type=int, default=1_000, metavar="N", help="episodes per budget and lambda (default: 1,000)"
    )
    section(parser, STATISTICS).add_argument(
        "--certificate", type=Path, metavar="DIR", help="certified run to compare with (default: those next to --out)"
    )
    add_common(parser)
    add_share(parser)
    parser.set_defaults(run=run_attack)


def _add_method(parser: argparse.ArgumentParser) -> None:
    model = section(parser, ATTACK)
    method = model.add_argument(
        "--method",
        metavar="NAME",
        help=f"{', '.join(METHODS)}; all but paper work without gradients (default: paper where the agent allows it, "
        "else adaptive)",
    )
    offer(method, METHODS)
    model.add_argument(
        "--budgets",
        type=parse_budgets,
        default="0.2,0.4,0.6,0.8,1",
        metavar="LIST",
        help="attack budgets: 0.2,0.4 or FIRST:LAST:STEP (default: %(default)s)",
    )
    model.add_argument(
        "--lambda-q",
        type=lambda text: text if text == "paper" else numbers("0,0.2,0.4")(text),
        metavar="LIST",
        help="thresholds on the gap between action values, below which Algorithm 1 does not attack (discrete actions), "
        "or 'paper' (default: 0 and quantiles of the agent's own gaps)",
    )
    model.add_argument(
        "--lambda",
        dest="weights",
        type=numbers("0.001,0.0001"),
        metavar="LIST",
        help="continuous actions: weights of the perturbation's norm in Algorithm 2 (default: the paper's); of "
        "adaptive, shares of the steps, at the end of an episode, without budget (default: 0,0.75,0.95)",
    )
    model.add_argument(
        "--noise-samples",
        type=int,
        default=128,
        metavar="M",
        help="noise samples that the attacker averages over (default: 128)",
    )


def run_attack(arguments: argparse.Namespace) -> int:
    """Attack, compare, report."""
    from surefoot.attacks.registry import default_method
    from surefoot.proof.inconsistency import inconsistencies
    from surefoot.report.page import NAME, write_report
    from surefoot.runs.attacked import AttackGrid, attacked_records, attacked_run, attacked_share, matching_certificates
    from surefoot.runs.folder import check_reusable, configuration_name
    from surefoot.runs.read import read_run

    one_of(arguments, "attack")
    base = plan_of(arguments, task_of(arguments, "agent"), arguments.sigma, arguments.episodes)
    grid = AttackGrid(
        base=base,
        budgets=arguments.budgets,
        method=default_method(base.task, base.policy) if arguments.method is None else arguments.method,
        noise_samples=arguments.noise_samples,
    )
    grid = replace(grid, lambdas=_lambdas(arguments, grid))
    folder: Path = arguments.out or Path("runs") / grid.name
    for budget, lambda_ in grid.configurations():
        check_reusable(grid.base, folder / configuration_name(budget, lambda_))
    if arguments.certificate is not None:
        matching_certificates(grid, arguments.certificate, folder.parent)  # a wrong one is rejected before the attack
    if arguments.blocks is not None:
        check_shareable(base)
        folder = arguments.out or folder.with_name(folder.name + arguments.blocks.suffix)
    with (
        keeping(folder),
        workers_of(arguments, base.gpu_share) as workers,
        progress_bar("attacking", "episodes", arguments) as report,
    ):
        if arguments.blocks is not None:
            n_episodes = attacked_share(grid, arguments.blocks, folder, workers=workers, progress=report)
            show_share(arguments, folder, n_episodes)
            return 0
        result = attacked_run(grid, folder, workers=workers, progress=report, command=arguments.command_line)
    certificates = matching_certificates(grid, arguments.certificate, folder.parent)
    found = [
        (path, inconsistency)
        for path, certificate in certificates
        for inconsistency in inconsistencies(certificate, attacked_records(grid, folder))
    ]
    if arguments.certificate is not None:
        with suppress(InputError):  # a lone file has no folder to read; then the page that is there stays
            write_report([*(read_run(path.parent) for path, _ in certificates), read_run(folder)], folder / NAME)
    if arguments.json:
        compared = [str(path) for path, _ in certificates]
        what = [{"certificate": str(path), "what": str(inconsistency)} for path, inconsistency in found]
        print_json({**result, "compared_with": compared, "contradictions": what})
    else:
        show_attack(result, [str(path) for path, _ in certificates])
        print(f"Report: {folder / NAME}")
    for path, inconsistency in found:
        clash = printable(f"INCONSISTENCY with {path}: {inconsistency}; one of them is wrong")
        print(f"surefoot: {clash}", file=sys.stderr)
    return INCONSISTENT if found else 0


def _lambdas(arguments: argparse.Namespace, grid: AttackGrid) -> tuple[float, ...]:
    """Return the lambdas of the algorithm that fits the task's actions: those given, else the default ones."""
    task, discrete = grid.base.task, grid.base.task.spaces.n_actions is not None
    given, other = (arguments.lambda_q, arguments.weights)[:: 1 if discrete else -1]
    name, wrong = ("--lambda-q", "--lambda")[:: 1 if discrete else -1]
    if other is not None:
        kind = "discrete" if discrete else "continuous"
        raise InputError(f"{wrong} cannot be used with {task.name}, which has {kind} actions; use {name}")
    if isinstance(given, tuple):
        return given
    return task.paper.lambdas if given == "paper" else grid.default_lambdas()


def show_attack(result: dict[str, Any], compared: list[str]) -> None:
    """Print the means per budget and lambda, and the curve."""
    console = plain_console()
    agent = (
        f"{result['agent']}, {'smoothed, sigma ' + format(result['sigma'], 'g') if result['sigma'] else 'undefended'}"
    )
    say(
        f"Mean return of {agent}, on {result['task']} under attack ({result['method']}, {result['episodes']:,} "
        "episodes per budget and lambda); the lowest one of each budget ± standard error"
    )
    print()
    table = Table(box=None, pad_edge=False)
    table.add_column("budget", justify="right")
    for margin in result["lambdas"]:
        table.add_column("mean" if margin is None else f"lambda\n{margin:g}", justify="right", no_wrap=True)
    table.add_column("lowest", justify="right", no_wrap=True)
    for row, budget in enumerate(result["budgets"]):
        cells = [
            f"{estimate(mean, sem).partition(' ')[0]}{' *' if idle else ''}"
            for mean, sem, idle in zip(*(result[key][row] for key in ("mean", "sem", "did_not_attack")), strict=True)
        ]
        table.add_row(f"{budget:g}", *cells, estimate(result["curve"][row], result["curve_sem"][row]))
    console.print(table, soft_wrap=True)
    for line in attack_notes(result):
        say(line)
    print()
    for path in compared or ["no certificate of this setup found"]:
        print(f"Compared with: {path}")
