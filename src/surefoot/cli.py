"""The command: parses, shows progress, prints, exits. Bad input is one line on stderr and exit code 2."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from surefoot import __version__
from surefoot.certify import METHODS, Certificate, certify
from surefoot.errors import InputError
from surefoot.report.text import Floor, headline, notes, rows

INTERRUPTED = 130


class Parser(argparse.ArgumentParser):
    """Reports a wrong call as bad input, in one line."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # argparse takes -1e3 and -1,0 for options, and floors are often negative.
        self._negative_number_matcher = re.compile(r"-(\.?\d|inf|nan)")

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the whole usage."""
        raise InputError(f"{message}; see '{self.prog} --help'")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a sign the terminal cannot show is no reason to fail
    try:
        parsed = build_parser().parse_args(given)
        parsed.command_line = shlex.join(["surefoot", *given])
        parsed.run(parsed)
        sys.stdout.flush()
    except InputError as error:
        return _fail(str(error))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in {
            "torch",
            "gymnasium",
            "stable_baselines3",
            "matplotlib",
        }:
            raise
        return _fail(f"this needs the package {error.name}; install it with: pip install 'surefoot[all]'")
    except KeyboardInterrupt:
        print("surefoot: stopped; finished blocks are kept, the same command goes on from there", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has had enough.
        _drop_output()
    except OSError as error:
        if error.filename is None:  # it was the output that could not be written
            _drop_output()
        where = "" if error.filename is None else f" ({error.filename})"
        return _fail(f"{error.strerror or error}{where}")
    return 0


def _drop_output() -> None:
    """Leave nothing for the interpreter to flush to where it cannot go."""
    with suppress(OSError, ValueError):
        output = sys.stdout.fileno()
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)


def _fail(message: str) -> int:
    print("surefoot: " + " ".join(message.split()), file=sys.stderr)
    return 2


def build_parser() -> Parser:
    """Describe the command line."""
    parser = Parser(prog="surefoot", description="Certified robustness for reinforcement-learning agents.")
    parser.add_argument("--version", action="version", version=f"surefoot {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    _add_certify(commands)
    _add_train(commands)
    _add_blind(commands)
    _add_export(commands)
    listing = commands.add_parser("agents", help="list the shipped agents", allow_abbrev=False)
    listing.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    listing.set_defaults(run=list_agents)
    return parser


def _add_certify(commands: Any) -> None:
    parser = commands.add_parser(
        "certify",
        help="play many episodes of a smoothed agent and certify its mean return",
        description="Certify a shipped or trained agent on TASK, any agent on a Gymnasium --env, or --returns alone.",
        allow_abbrev=False,
    )
    parser.add_argument("task", nargs="?", metavar="TASK", help="cartpole-5 or cartpole-1")
    parser.add_argument("--env", metavar="ID", help="any Gymnasium environment with Box observations, instead of TASK")
    parser.add_argument(
        "--returns", type=Path, metavar="FILE", help="returns played elsewhere (.npy, or a saved record)"
    )
    parser.add_argument("--agent", metavar="NAME_OR_PATH", help="shipped name, trained folder, or SB3 .zip")
    parser.add_argument("--sigma", type=float, help="noise on every new observation (default: the task's)")
    parser.add_argument("--episodes", type=int, default=10_000, help="episodes to play (default: %(default)s)")
    parser.add_argument("--budgets", help="0:1:0.05 or 0,0.2,0.4 (default: 0 to 1 by 0.1)")
    parser.add_argument("--confidence", type=float, default=0.95, help="(default: %(default)s)")
    parser.add_argument("--method", choices=METHODS, help="confidence statement (default: the task's, else band)")
    parser.add_argument("--step", type=float, default=1.0, help="distance of per-threshold's thresholds (default: 1)")
    parser.add_argument("--floor", type=float, help="a return that cannot be undercut, with --env and --returns")
    parser.add_argument("--ceiling", type=float, help="a return that cannot be exceeded, with --env and --returns")
    parser.add_argument("--max-steps", type=int, help="step limit for an --env that has none")
    parser.add_argument("--trust-pickle", action="store_true", help="let an SB3 zip run its code to be loaded")
    parser.add_argument("--workers", type=int, help="processes to play with (default: one per core)")
    _add_common(parser)
    parser.set_defaults(run=run_certify)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=0, help="(default: 0)")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"), help="(default: auto)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the results go (default: runs/<name>)")
    parser.add_argument("--json", action="store_true", help="print one JSON document to stdout and nothing else")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def run_certify(arguments: argparse.Namespace) -> None:
    """Certify a task, an environment, or returns."""
    sources = [name for name in ("task", "env", "returns") if getattr(arguments, name) is not None]
    if len(sources) != 1:
        got = " and ".join(sources) or "none"
        raise InputError(f"certify needs exactly one of TASK, --env or --returns, got {got}")
    if arguments.budgets is not None:
        arguments.budgets = parse_budgets(arguments.budgets)
    if arguments.returns is not None:
        certificate, blind, folder = _certify_returns(arguments), None, arguments.out
    else:
        certificate, blind, folder = _certify_played(arguments)
    if arguments.json:
        print(json.dumps(certificate.to_json(), indent=1, allow_nan=False))
        return
    show_certificate(certificate, blind)
    if folder is not None:
        print(f"\nWritten to {folder}: {', '.join(sorted(path.name for path in folder.iterdir() if path.is_file()))}")


def _certify_returns(arguments: argparse.Namespace) -> Certificate:
    from surefoot.report.leave import leave_certificate
    from surefoot.report.outcomes import read_outcomes

    unused = [f"--{name}" for name in ("agent", "max_steps", "workers") if getattr(arguments, name) is not None]
    if unused:
        raise InputError(f"{', '.join(unused).replace('_', '-')} cannot go with --returns: nothing is played")
    if arguments.out is not None and (arguments.out / "setup.json").exists():
        raise InputError(f"{arguments.out} holds a run with its own certificate; choose another --out")
    episodes = read_outcomes(arguments.returns, arguments.sigma, arguments.floor, arguments.ceiling)
    budgets = arguments.budgets or parse_budgets("0:1:0.1")
    certificate = certify(episodes, budgets, arguments.confidence, arguments.method, arguments.step)
    if arguments.out is not None:
        leave_certificate(certificate, arguments.out, None)
    return certificate


def _certify_played(arguments: argparse.Namespace) -> tuple[Certificate, Floor | None, Path]:
    from gymnasium import logger

    from surefoot.play import Plan
    from surefoot.runs import Questions, certified_run, find_agent, find_device, run_name
    from surefoot.tasks import find_task, task_of_environment
    from surefoot.workers import usable_cores

    logger.min_level = logger.ERROR  # its advice on versions of environments would stand between our lines
    if arguments.task is not None:
        _refuse(arguments, ("floor", "ceiling", "max_steps"), "a task, which knows them")
        task = find_task(arguments.task)
    else:
        for name in ("floor", "agent", "sigma"):
            if getattr(arguments, name) is None:
                raise InputError(f"--env needs --{name}")
        task = task_of_environment(
            arguments.env, floor=arguments.floor, ceiling=arguments.ceiling, limit=arguments.max_steps
        )
    sigma = task.sigma if arguments.sigma is None else arguments.sigma
    questions = Questions(arguments.budgets or task.budgets, arguments.confidence, arguments.method, arguments.step)
    questions.check(task, sigma)
    agent = f"{task.name}-s{sigma:g}" if arguments.agent is None else arguments.agent
    policy = find_agent(agent, task, trust_pickle=arguments.trust_pickle)
    plan = Plan(task, policy, sigma, arguments.episodes, arguments.seed, find_device(arguments.device))
    workers = arguments.workers if arguments.workers is not None else usable_cores() if plan.device == "cpu" else 1
    folder = arguments.out or Path("runs") / run_name(plan)
    with progress_bar("playing", "episodes", arguments) as report:
        certificate = certified_run(plan, questions, folder, workers=workers, progress=report)
    return certificate, task.blind, folder


def _add_train(commands: Any) -> None:
    parser = commands.add_parser("train", help="train an agent with noise on its observations", allow_abbrev=False)
    parser.add_argument("task", metavar="TASK")
    parser.add_argument("--sigma", type=float, required=True, help="noise on every new observation")
    parser.add_argument("--preset", default="paper", help="paper or thorough (default: paper)")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in the folder")
    _add_common(parser)
    parser.set_defaults(run=run_train)


def run_train(arguments: argparse.Namespace) -> None:
    """Train one agent."""
    from surefoot.runs import find_device
    from surefoot.tasks import find_task
    from surefoot.train.dqn import train
    from surefoot.train.settings import find_settings
    from surefoot.zoo import card_of

    task = find_task(arguments.task)
    settings = find_settings(arguments.preset, task.name)
    name = f"train-{task.name}-s{arguments.sigma:g}-{arguments.preset}-seed{arguments.seed}"
    folder: Path = arguments.out or Path("runs") / name
    with progress_bar("training", "steps", arguments) as report:
        train(
            task,
            arguments.sigma,
            settings,
            folder,
            seed=arguments.seed,
            device=find_device(arguments.device),
            resume=arguments.resume,
            command=arguments.command_line,
            preset=arguments.preset,
            progress=None if report is None else lambda done, of, best: report(done, of, f"best validation {best:.1f}"),
        )
    card = card_of(str(folder))
    if arguments.json:
        print(json.dumps(card, indent=1, allow_nan=False))
        return
    training = card["training"]
    print(
        f"Best validation {training['best_validation']:.1f} at step {training['best_step']:,} "
        f"of {training['steps']:,}.\n"
        f"Written to {folder}; certify it with: surefoot certify {task.name} --agent {folder} --sigma {card['sigma']:g}"
    )


def _add_blind(commands: Any) -> None:
    parser = commands.add_parser(
        "blind", help="measure what a policy reaches that sees nothing but the clock", allow_abbrev=False
    )
    parser.add_argument("task", metavar="TASK")
    parser.add_argument("--episodes", type=int, default=100_000, help="episodes to measure on (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(default: 0)")
    parser.add_argument("--json", action="store_true", help="print one JSON document to stdout and nothing else")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.set_defaults(run=run_blind)


def run_blind(arguments: argparse.Namespace) -> None:
    """Search for the best blind policy and measure it."""
    from dataclasses import asdict

    from surefoot.blind import find_blind
    from surefoot.tasks import find_task

    with progress_bar("searching", "policies", arguments) as report:
        found = find_blind(find_task(arguments.task), seed=arguments.seed, measure=arguments.episodes, progress=report)
    if arguments.json:
        print(json.dumps({"schema": 1, "task": arguments.task, **asdict(found)}, indent=1))
        return
    print(f"Best blind policy: {found.what}. Mean {found.mean:.3f} ± {found.sem:.3f} over {found.episodes:,} episodes.")


def _add_export(commands: Any) -> None:
    parser = commands.add_parser("export", help="write an agent as a zip that plain SB3 loads", allow_abbrev=False)
    parser.add_argument("agent", metavar="NAME_OR_PATH")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.zip")
    parser.set_defaults(run=run_export)


def run_export(arguments: argparse.Namespace) -> None:
    """Export an agent for Stable-Baselines3."""
    from surefoot.sb3 import write_zip
    from surefoot.zoo import load

    if arguments.out.suffix != ".zip":
        raise InputError(f"--out must end in .zip, got {arguments.out}")
    write_zip(load(arguments.agent), arguments.out)
    print(f"Written to {arguments.out}; load it with stable_baselines3.DQN.load({str(arguments.out)!r})")


def list_agents(arguments: argparse.Namespace) -> None:
    """Print the shipped agents with what they were trained on."""
    from surefoot.zoo import card_of, shipped

    cards = [card_of(name) for name in shipped()]
    keys = ("name", "task", "sigma", "sha256", "selection")
    if arguments.json:
        print(json.dumps({"schema": 1, "agents": [{key: card[key] for key in keys} for card in cards]}, indent=1))
        return
    table = Table("agent", "task", "sigma", "mean on selection episodes", box=None)
    for card in cards:
        table.add_row(card["name"], card["task"], f"{card['sigma']:g}", f"{card['selection']['mean']:.1f}")
    Console().print(table)


def show_certificate(certificate: Certificate, blind: Floor | None) -> None:
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
    for line in notes(certificate, blind):
        console.print(line, soft_wrap=whole)


@contextmanager
def progress_bar(what: str, unit: str, arguments: argparse.Namespace) -> Iterator[Callable[..., None] | None]:
    """Show progress with rate and time left on a terminal; nothing with --quiet or elsewhere."""
    console = Console(stderr=True)
    if arguments.quiet or not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} {task.fields[unit]}"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        job = progress.add_task(what, total=1, unit=unit, rate="", note="")

        def report(done: int, of: int, note: str = "") -> None:
            speed = progress.tasks[0].speed
            rate = "" if speed is None else f"{speed:,.0f} {unit}/s"
            progress.update(job, completed=done, total=of, rate=rate, note=note)

        yield report


def parse_budgets(text: str) -> tuple[float, ...]:
    """Read ``0:1:0.05`` (both ends included) or ``0,0.2,0.4``."""
    try:
        if ":" not in text:
            return tuple(float(part) for part in text.split(","))
        first, last, step = (float(part) for part in text.split(":"))
    except ValueError as error:
        raise InputError(f"budgets must look like 0:1:0.05 or 0,0.2,0.4, got {text!r}") from error
    if not (step > 0 and last >= first and (last - first) / step < 10_000):
        raise InputError(f"budgets FIRST:LAST:STEP need LAST >= FIRST, STEP > 0 and under 10,000 values, got {text!r}")
    count = int((last - first) / step + 1e-9) + 1
    return tuple(float(f"{first + step * index:.12g}") for index in range(count))


def _refuse(arguments: argparse.Namespace, names: Sequence[str], whom: str) -> None:
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(arguments, name) is not None]
    if given:
        raise InputError(f"{', '.join(given)} cannot go with {whom}")


if __name__ == "__main__":
    sys.exit(main())
