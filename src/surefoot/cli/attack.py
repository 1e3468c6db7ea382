"""``surefoot attack``: an agent under attack over a grid of budgets, held against its certificate."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.attacks.names import NAMES
from surefoot.cli.messages import in_options
from surefoot.cli.options import (
    add_action_sigma,
    add_agent,
    add_common,
    add_record,
    add_share,
    add_units,
    agent_of,
    estimate,
    numbers_type,
    parse_budgets,
    parse_sigma,
    pick,
    print_json,
    print_table,
    progress_bar,
    refuse,
    say,
    show_share,
    units_of,
    workers_of,
)
from surefoot.cli.parser import ADVANCED, AGENT, ATTACK, STATISTICS, add_command, offer_names, section
from surefoot.cli.task import add_task, one_of, task_of
from surefoot.errors import InputError, printable
from surefoot.proof.rounding import format_noise
from surefoot.report.page import REPORT_FILE
from surefoot.report.sentences import attack_notes

if TYPE_CHECKING:
    from surefoot.api.attack import AttackCurve
    from surefoot.play.task import Task
    from surefoot.proof.query import Units

INCONSISTENT = 3


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
            "surefoot attack cartpole-5 --sigma 0.4 --budgets 1 --method learned --minutes 5",
            "surefoot attack mountain-car --sigma 0.2 --certificate runs/mountain-car",
        ),
    )
    add_task(parser)
    add_agent(parser)
    section(parser, AGENT).add_argument(
        "--sigma",
        type=parse_sigma,
        default=0.0,
        metavar="S",
        help="standard deviation of the agent's noise, or one per feature as 0.1,0.2, or per part as camera=0.1; 0 "
        "attacks it undefended (default: 0)",
    )
    add_action_sigma(parser)
    _add_method(parser)
    section(parser, STATISTICS).add_argument(
        "--episodes",
        type=int,
        metavar="N",
        help="episodes per budget and lambda (default: 100; on the paper's tasks 1,000)",
    )
    section(parser, STATISTICS).add_argument(
        "--certificate", type=Path, metavar="DIR", help="certified run to compare with (default: those next to --out)"
    )
    add_common(parser)
    add_record(parser, "the episode that the attack changed most")
    add_share(parser)
    parser.set_defaults(run=run_attack)


def _add_method(parser: argparse.ArgumentParser) -> None:
    model = section(parser, ATTACK)
    method = model.add_argument(
        "--method",
        metavar="NAME",
        help=f"{', '.join(NAMES)}, or module:name of one of your own; all but paper and flips work without gradients "
        "(default: paper on the paper's tasks, else flips for discrete actions, where the agent has gradients, else "
        "adaptive)",
    )
    offer_names(method, NAMES)
    model.add_argument(
        "--minutes",
        type=float,
        default=5.0,
        metavar="M",
        help="how long a learned attacker is trained on the agent, or the strongest attack is looked for (default: 5)",
    )
    model.add_argument(
        "--attacker",
        type=Path,
        metavar="FILE",
        help="a learned attacker to use instead of training one: attacker.npz of another run",
    )
    model.add_argument(
        "--channel",
        choices=("observations", "actions", "both"),
        help="what the attacker perturbs (default: what has noise, else observations)",
    )
    model.add_argument(
        "--per-step",
        action="store_true",
        help="budgets bound the perturbation of each single observation, not all of an episode",
    )
    model.add_argument(
        "--norm",
        choices=("l2", "linf"),
        default="l2",
        help="norm of a budget per step; linf bounds each number (default: l2)",
    )
    model.add_argument(
        "--budgets",
        type=parse_budgets,
        default="0.2,0.4,0.6,0.8,1",
        metavar="LIST",
        help="attack budgets: 0.2,0.4 or FIRST:LAST:STEP (default: %(default)s)",
    )
    more = section(parser, ADVANCED)
    more.add_argument(
        "--lambda-q",
        type=_parse_lambdas,
        metavar="LIST",
        help="thresholds on the gap between action values, below which an agent with discrete actions is not attacked, "
        "or 'paper' (default: 0 and quantiles of the agent's own gaps)",
    )
    more.add_argument(
        "--lambda",
        dest="weights",
        type=numbers_type("0.001,0.0001"),
        metavar="LIST",
        help="continuous actions: weights of the perturbation's norm in Algorithm 2 (default: the paper's); of "
        "adaptive, shares of the steps, at the end of an episode, without budget (default: 0,0.75,0.95)",
    )
    more.add_argument(
        "--noise-samples",
        type=int,
        metavar="M",
        help="noise samples that the attacker averages over (default: 16; on the paper's tasks 128)",
    )
    add_units(parser)


def _parse_lambdas(text: str) -> str | tuple[float, ...]:
    if text == "paper":
        return text
    return numbers_type("0,0.2,0.4")(text)


def run_attack(arguments: argparse.Namespace) -> int:
    """Attack, compare, report; 3 if one of the certificates and the attack contradict each other."""
    if arguments.blocks is not None:
        of_whole_run = ("minutes", "certificate", "record")
        refuse(arguments, of_whole_run, "--blocks: a share has no curve; use them when all shares are merged")
    # Loads torch, which the help of a command must not wait for; so in the other commands.
    from surefoot.api.attack import attack_grid, attack_into, attack_share, prepare_attacker
    from surefoot.api.setup import RUNS, noise_of

    chosen = one_of(arguments, "attack")
    task = task_of(arguments, "agent", chosen=chosen)
    agent = agent_of(arguments, chosen.agent, task)
    units = units_of(arguments, agent)
    noise = units.to_raw_noise(noise_of(task, arguments.sigma, arguments.action_sigma))
    budgets = units.to_raw_budgets(arguments.budgets)
    with workers_of(arguments) as workers:
        grid = attack_grid(
            task,
            agent,
            lambdas=_select_lambdas(arguments, task),
            n_episodes=arguments.episodes,
            workers=workers,
            budgets=budgets,
            sigma=noise.features or noise.sigma,
            **pick(arguments, "action_sigma", "channel", "method", "attacker"),
            **pick(arguments, "noise_samples", "seed", "device", "per_step", "norm"),
        )
        # The curve needs every episode of a configuration, so a share has none.
        if arguments.blocks is not None:
            with progress_bar("attacking", "episodes", arguments) as report:
                share = attack_share(arguments.out, grid, arguments.blocks, workers=workers, progress=report)
            show_share(arguments, *share)
            return 0
        folder = arguments.out or RUNS / grid.name
        with progress_bar("learning", "%", arguments) as report:
            noted = _note_learning(report, max(budgets))
            grid = prepare_attacker(grid, arguments.minutes, folder, workers=workers, progress=noted)
        with progress_bar("attacking", "episodes", arguments) as report:
            curve = attack_into(
                folder,
                grid,
                workers=workers,
                progress=report,
                command=arguments.command_line,
                **pick(arguments, "certificate", "record"),
            )
    contradictions = []
    for one in curve.contradictions:
        contradictions.append({"certificate": str(one.certificate), "what": str(one.inconsistency)})
    if arguments.json:
        compared = [str(path) for path in curve.compared_with]
        print_json({**curve.summary, "compared_with": compared, "contradictions": contradictions})
    else:
        _show_curve(curve, arguments.parser, units, discrete=task.spaces.n_actions is not None)
    # On stderr also with --json: nobody is to read the means and overlook that one of the two is wrong.
    for found in contradictions:
        message = f"surefoot: INCONSISTENCY with {found['certificate']}: {found['what']}; one of them is wrong"
        print(printable(message), file=sys.stderr)
    return INCONSISTENT if contradictions else 0


def _note_learning(report: Callable[..., None] | None, budget: float) -> Callable[[float, float | None], None] | None:
    """Return what shows how much of the training is over, and the mean return at the largest budget, once known."""
    if report is None:
        return None

    def show_learning(fraction: float, mean: float | None) -> None:
        note = "" if mean is None else f"mean {mean:.4g} at budget {budget:g}"
        report(round(100 * fraction, 1), 100, note)

    return show_learning


def _select_lambdas(arguments: argparse.Namespace, task: Task) -> Any:
    """Return the lambdas of the algorithm that fits the task's actions, which has an option of its own."""
    if task.spaces.n_actions is None:
        if arguments.lambda_q is not None:
            raise InputError(f"--lambda-q cannot be used with {task.name}, which has continuous actions; use --lambda")
        return arguments.weights
    if arguments.weights is not None:
        raise InputError(f"--lambda cannot be used with {task.name}, which has discrete actions; use --lambda-q")
    return arguments.lambda_q


def _show_curve(curve: AttackCurve, parser: argparse.ArgumentParser, units: Units, *, discrete: bool) -> None:
    """Print the lowest mean of each budget, in the units that were given, what it took and by which lambda."""
    about = curve.summary
    defense = "undefended"
    on_actions = about.get("action_sigma", 0.0)
    if about["sigma"] or on_actions:
        # Divided by the statistics of an agent, a sigma has 17 digits.
        sigma = float(f"{about['sigma']:.6g}")
        defense = f"smoothed, {format_noise(sigma, on_actions)}"
        if "sigma_per_feature" in about:
            defense += " (the least of the features)"
    say(
        f"Mean return of {about['agent']}, {defense}, on {about['task']} under attack ({about['method']}, "
        f"{about['n_episodes']:,} episodes per budget and lambda); the lowest one of each budget ± standard error. "
        f"Loss: what it took from the same episodes without attack, whose mean is {about['unattacked']['mean']:.4g}. "
        "Changed: how many of them it changed"
    )
    print()
    option = "lambda-q" if discrete else "lambda"
    has_lambda = len(curve.lambdas) > 1
    rows = []
    budget_head = "budget" if units.scales is None else "normalized budget"
    shown_budgets = [f"{budget / units.raw_unit:.12g}" for budget in curve.budgets]
    for row, budget in enumerate(shown_budgets):
        # The means of all lambdas are in attack.json: a row of them would not fit a terminal.
        worst = int(curve.mean[row].argmin())
        lowest = estimate(curve.lowest[row], curve.lowest_sem[row])
        if about["did_not_attack"][row][worst]:
            lowest += " *"
        at_lambda = [f"{curve.lambdas[worst]:g}"] if has_lambda else []
        loss = estimate(curve.loss[row, worst], curve.loss_sem[row, worst])
        rows.append([budget, lowest, *at_lambda, loss, f"{curve.n_changed[row, worst]:,}"])
    print_table([budget_head, "lowest mean", *([option] if has_lambda else []), "loss", "changed"], rows)
    if has_lambda:
        tried = ", ".join(f"{lambda_:g}" for lambda_ in curve.lambdas)
        say(f"Tried with {option} {tried}.")
    for budget, chosen in zip(shown_budgets, about.get("chosen", ()), strict=False):
        what = chosen["method"]
        if chosen["lambda_"] is not None:
            what += f", lambda {chosen['lambda_']:g}"
        say(f"Strongest at budget {budget} on selection episodes: {what}.")
    for line in attack_notes(about):
        say(in_options(line, parser))
    print()
    # Said also if there is none: an attack that was compared with nothing contradicts nothing.
    for path in curve.compared_with or ("no certificate of this setup found",):
        print(f"Compared with: {path}")
    if curve.directory is not None:
        print(f"Report: {curve.directory / REPORT_FILE}")
