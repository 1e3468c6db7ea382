"""What the subcommands share: options and their values, workers, progress, and how results are printed."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

from surefoot.api.query import Requirement, units_of_agent
from surefoot.cli.parser import ADVANCED, AGENT, RUN, STATISTICS, section
from surefoot.errors import InputError
from surefoot.proof.query import Units
from surefoot.report.certificate_text import TEXT_WIDTH

if TYPE_CHECKING:
    from surefoot.agents.policies import Policy
    from surefoot.play.task import Task
    from surefoot.play.workers import Workers
    from surefoot.runs.shares import Share

# What ``add_declared`` adds: what an agent's file does not say.
DECLARED = ("n_stack", "stochastic", "pixel_max", "allow_pickle", "vecnormalize")


def add_common(parser: argparse.ArgumentParser, *, writes: bool = True, own_seed: bool = False) -> None:
    """Add the options that every long run has.

    Args:
        own_seed: Whether the seed follows from agent and setup where none is given.
    """
    add_seed(parser, own=own_seed)
    section(parser, ADVANCED).add_argument(
        "--device", default="auto", choices=("auto", "cpu", "cuda"), help="where networks run (default: auto)"
    )
    if writes:
        section(parser, RUN).add_argument("--out", type=Path, metavar="DIR", help="run directory (default: runs/NAME)")
    add_output(parser)


def add_seed(parser: argparse.ArgumentParser, *, own: bool = False) -> None:
    """Add the seed; ``own`` as in ``add_common``."""
    default: int | None = 0
    described = "0"
    # An agent that knew the random numbers of its certificate could be good on those alone.
    if own:
        default = None
        described = "derived from agent and setup, so that no agent can know it"
    section(parser, ADVANCED).add_argument(
        "--seed",
        type=int,
        default=default,
        metavar="K",
        help=f"seed of all random numbers (default: {described})",
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is printed."""
    add_json(parser)
    section(parser, ADVANCED).add_argument("--quiet", action="store_true", help="show no progress")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option that prints JSON."""
    section(parser, RUN).add_argument(
        "--json", action="store_true", help="print one JSON document to stdout and nothing else"
    )


def add_agent(parser: argparse.ArgumentParser, *, recorded: bool = False, workers: bool = True) -> None:
    """Add the options that say which agent to run, and with how many processes.

    Args:
        recorded: Whether a record says what else is declared about the agent.
    """
    section(parser, AGENT).add_argument(
        "--agent",
        metavar="AGENT",
        help="pretrained agent, training directory, SB3 .zip or folder of one, .onnx, TorchScript .pt, or module:name "
        "of a torch module or function (default: the task's pretrained agent)",
    )
    add_declared(parser, recorded=recorded)
    if workers:
        add_workers(parser)


def add_declared(parser: argparse.ArgumentParser, *, recorded: bool = False) -> None:
    """Add the options that declare what an agent's file does not say; ``recorded`` as in ``add_agent``."""
    declared = section(parser, ADVANCED)
    if not recorded:
        declared.add_argument(
            "--n-stack",
            type=int,
            metavar="K",
            help="observations that the agent stacks, where its file does not say (default: the task's)",
        )
        declared.add_argument(
            "--pixel-max",
            type=float,
            metavar="X",
            help="brightest pixel as an .onnx, .pt or torch module takes it: 255 if it divides by 255 itself, else 1",
        )
        declared.add_argument(
            "--stochastic", action="store_true", help="the agent draws random actions of its own, which are part of it"
        )
    declared.add_argument(
        "--vecnormalize",
        metavar="FILE",
        help="statistics an SB3 agent's observations are normalized with, or 'none'; noise and budgets stay in the "
        "units of the environment (default: where RL Baselines3 Zoo and the Hub keep them)",
    )
    declared.add_argument(
        "--allow-pickle",
        action="store_true",
        help="let the agent's file execute code: pickles in an SB3 .zip, TorchScript",
    )


def add_workers(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what runs the episodes."""
    section(parser, RUN).add_argument(
        "--workers", type=int, metavar="N", help="number of processes (default: one per core)"
    )
    section(parser, ADVANCED).add_argument(
        "--ray",
        metavar="ADDRESS",
        help="run episodes on a Ray cluster: HOST:PORT, or auto for that of RAY_ADDRESS or of this machine",
    )


def add_confidence(parser: argparse.ArgumentParser) -> None:
    """Add the confidence of all bounds together."""
    section(parser, STATISTICS).add_argument(
        "--confidence",
        type=float,
        default=0.95,
        metavar="C",
        help="probability that all lower bounds hold simultaneously (default: 0.95)",
    )


def add_record(parser: argparse.ArgumentParser, which: str) -> None:
    """Add the option that records an episode for the report; ``which`` says which one."""
    section(parser, RUN).add_argument("--record", action="store_true", help=f"record {which}, for the report")


def add_share(parser: argparse.ArgumentParser) -> None:
    """Add the option that runs a part of the episodes."""
    section(parser, ADVANCED).add_argument(
        "--blocks",
        type=parse_share,
        metavar="I/N",
        help="run share I of N into a directory of its own and certify nothing; 'surefoot merge' makes one run of all",
    )


def add_action_sigma(parser: argparse.ArgumentParser) -> None:
    """Add the noise on actions."""
    section(parser, AGENT).add_argument(
        "--action-sigma",
        type=float,
        default=0.0,
        metavar="S",
        help="standard deviation of the noise on every continuous action, added behind the attacker (default: 0)",
    )


def add_units(parser: argparse.ArgumentParser) -> None:
    """Add the units in which sigma and budgets are given."""
    section(parser, ADVANCED).add_argument(
        "--units",
        choices=("raw", "normalized"),
        default="raw",
        help="what --sigma and budgets are in: the environment's units, or those of the agent's VecNormalize, where "
        "each feature has its own sigma (default: raw)",
    )


def units_of(arguments: argparse.Namespace, agent: Policy | None) -> Units:
    """Return the units in which sigma and budgets are given; runs and their files are in those of the environment."""
    if arguments.units == "raw":
        return Units()
    if agent is None:
        raise InputError("--units normalized needs --agent, one with statistics of VecNormalize")
    return units_of_agent(agent, norm=arguments.norm)


def agent_of(arguments: argparse.Namespace, agent: str | None, task: Task) -> Policy | None:
    """Return the agent that the options name, with what they declare about it; None for the task's pretrained one."""
    # Loads torch, which the help of a command must not wait for.
    from surefoot.api.setup import resolve_agent

    if agent is None:
        refuse(arguments, DECLARED, "an agent that is not named: they say what its file does not")
        return None
    return resolve_agent(agent, task, **pick(arguments, *DECLARED))


def pick(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return the options that are called as the arguments they are for."""
    return {name: getattr(arguments, name) for name in names}


@contextmanager
def workers_of(arguments: argparse.Namespace) -> Iterator[int | Workers | None]:
    """Connect to the Ray cluster that is named, else give the number of processes; None for as many as fit."""
    if arguments.ray is None:
        yield arguments.workers
        return
    # Before Ray is loaded, which is slow and an extra.
    refuse(arguments, ("workers",), "--ray: the cluster's nodes run as many blocks as they have CPUs")
    from surefoot.play.ray_cluster import ray_cluster

    with ray_cluster(arguments.ray) as cluster:
        yield cluster


@contextmanager
def progress_bar(what: str, unit: str, arguments: argparse.Namespace) -> Iterator[Callable[..., None] | None]:
    """Show progress with rate and time left on a terminal; nothing with --quiet or elsewhere.

    Episodes are counted while their blocks are being run, so that the bar moves and the time left is known early.
    """
    console = Console(stderr=True)
    if arguments.quiet or not console.is_terminal:
        yield None
        return
    # Room for the ^C that a terminal echoes: in a full line it would begin another, and this one would stay.
    console.width = max(20, console.width - 4)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f}{task.fields[unit]}"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(compact=True, table_column=Column(min_width=5)),
        TextColumn("{task.fields[note]}"),
    )
    over = threading.Event()
    with Progress(*columns, console=console, transient=True) as progress:
        job = progress.add_task(what, total=1, unit=f" {unit}", rate="", note="")
        counted = 0

        def show_progress(done: float, **fields: Any) -> None:
            speed = progress.tasks[0].speed
            rate = ""
            if speed is not None:
                digits = 0 if speed >= 10 else 1
                rate = f"{speed:,.{digits}f}/s"
            progress.update(job, completed=done, rate=rate, **fields)

        def report_done(done: int, of: int, note: str = "") -> None:
            nonlocal counted
            counted = done
            # A note needs the room of the unit.
            show_progress(done, total=of, note=note, unit="" if note else f" {unit}")

        def watch_meter() -> None:
            from surefoot.play.meter import episodes_under_way

            while not over.wait(0.2):
                show_progress(max(progress.tasks[0].completed, counted + episodes_under_way()))

        # Only episodes have a meter; training and searching report their steps themselves.
        if unit == "episodes":
            threading.Thread(target=watch_meter, daemon=True).start()
        try:
            yield report_done
        finally:
            over.set()


def show_share(arguments: argparse.Namespace, folder: Path, n_episodes: int) -> None:
    """Print what ``--blocks`` has run."""
    name = f"{arguments.blocks.part}/{arguments.blocks.of}"
    if arguments.json:
        print_json({"schema": 1, "share": name, "folder": str(folder), "n_episodes": n_episodes})
        return
    print(f"Share {name}: {n_episodes:,} episodes in {folder}.")
    print("When all shares are done: surefoot merge DIR..., then this command without --blocks.")


class OutputClosedError(BrokenPipeError):
    """The reader of our output has stopped reading; broken pipes of other code are none of ours."""


class PlainConsole(Console):
    """Where tables are printed: text alone, so that a name cannot pass for a color or a link."""

    def __init__(self) -> None:
        super().__init__(color_system=None, markup=False, emoji=False, highlight=False, width=80)

    def on_broken_pipe(self) -> None:
        """Let ``main`` end the command; rich would exit."""
        raise OutputClosedError


def print_table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, n_left: int = 0) -> None:
    """Print a table, its first ``n_left`` columns aligned to the left and the others to the right."""
    table = Table(box=None, pad_edge=False)
    for number, head in enumerate(heads):
        table.add_column(head, justify="left" if number < n_left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    PlainConsole().print(table, soft_wrap=True)


def say(text: str, indent: str = "") -> None:
    """Print a paragraph in lines of at most 78 columns, those after the first one indented."""
    print(textwrap.fill(text, TEXT_WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))


def print_json(content: Mapping[str, Any]) -> None:
    """Print one JSON document; NaN and infinities, which are not JSON, are errors."""
    print(json.dumps(content, indent=1, allow_nan=False), file=getattr(sys.stdout, "document", sys.stdout))


def estimate(mean: float, sem: float) -> str:
    """Format an estimate with its standard error, to the two leading digits of the latter."""
    digits = 2
    if sem > 0:
        digits = min(6, max(1, 1 - math.floor(math.log10(sem))))
    return f"{mean:.{digits}f} ± {sem:.{digits}f}"


def refuse(arguments: argparse.Namespace, names: Sequence[str], what: str) -> None:
    """Reject options that make no sense together."""
    given = []
    for name in names:
        if getattr(arguments, name) != arguments.parser.get_default(name):
            given.append("TASK" if name == "task" else f"--{name.replace('_', '-')}")
    if given:
        raise InputError(f"{', '.join(given)} cannot be combined with {what}")


def numbers_type(looks: str, count: int | None = None) -> Callable[[str], tuple[float, ...]]:
    """Return what reads an option's value that looks like this, ``0,0.2,0.4``; ``count`` is how many there must be."""
    return lambda text: _split_numbers(text, ",", looks, count)


LEADING_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)


class SigmaOfParts(dict[str, float]):
    """A sigma for each named part; ``units`` are those that were written next to numbers."""

    def __init__(self, sigmas: Mapping[str, float], units: Mapping[str, str]) -> None:
        super().__init__(sigmas)
        self.units = units


def parse_sigma(text: str) -> float | list[float] | SigmaOfParts:
    """Read one sigma, or one per feature, or ``camera=0.1,arm=0.2``, or with a unit, ``pos=0.3m``."""
    if "=" in text:
        sigmas: dict[str, float] = {}
        units: dict[str, str] = {}
        for part in text.split(","):
            # The last sign counts: the name of a part may contain others, a number does not.
            name, _, value = part.rpartition("=")
            number = LEADING_NUMBER.match(value.strip())
            unit = value.strip()[number.end() :].strip() if number else ""
            (sigmas[name],) = _split_numbers(value.strip().removesuffix(unit), ",", "camera=0.1,pos=0.3m", count=1)
            if unit:
                units[name] = unit
        return SigmaOfParts(sigmas, units)
    found = _split_numbers(text, ",", "0.2 or 0.1,0.2,0.1,0.2")
    return found[0] if len(found) == 1 else list(found)


def parse_sigmas(text: str) -> list[float | list[float] | SigmaOfParts]:
    """Read several sigmas: ``0.1,0.2,0.4``, or each as ``parse_sigma`` reads it, separated by semicolons."""
    if ";" not in text and "=" not in text:
        return list(_split_numbers(text, ",", "0.1,0.2,0.4"))
    return [parse_sigma(one.strip()) for one in text.split(";") if one.strip()]


def parse_minutes(text: str) -> float:
    """Read ``90s``, ``10m`` or ``1h`` as minutes; a number alone is minutes."""
    units = {"s": 1 / 60, "m": 1.0, "h": 60.0}
    unit = units.get(text[-1:], 1.0)
    (count,) = _split_numbers(text.rstrip("smh"), ",", "10m, 90s or 1h", count=1)
    if not 0 < count * unit < math.inf:
        raise argparse.ArgumentTypeError(f"must be longer than 0, got {text!r}")
    return count * unit


def parse_budgets(text: str) -> tuple[float, ...]:
    """Read ``0:1:0.05`` (both ends included) or ``0,0.2,0.4``."""
    looks = "0:1:0.05 or 0,0.2,0.4"
    if ":" not in text:
        return _split_numbers(text, ",", looks)
    first, last, step = _split_numbers(text, ":", looks, count=3)
    if not (step > 0 and last >= first and (last - first) / step < 10_000):
        raise argparse.ArgumentTypeError(
            f"FIRST:LAST:STEP needs LAST >= FIRST, STEP > 0 and under 10,000 values, got {text!r}"
        )
    count = int((last - first) / step + 1e-9) + 1
    # Rounded, so that 0:1:0.1 contains 0.3 and not 0.30000000000000004, which would be another budget in files.
    return tuple(float(f"{first + step * index:.12g}") for index in range(count))


def parse_mixed(text: str) -> tuple[float, float]:
    """Read ``obs=0.2,act=0.1``: a budget for observations and one for actions; what is not named is 0."""
    budgets = {"obs": 0.0, "act": 0.0}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name not in budgets:
            raise argparse.ArgumentTypeError(f"must look like obs=0.2,act=0.1, got {text!r}")
        (budgets[name],) = _split_numbers(value, ",", "obs=0.2,act=0.1", count=1)
    return budgets["obs"], budgets["act"]


def parse_share(text: str) -> Share:
    """Read ``3/8``: the third of eight shares."""
    from surefoot.runs.shares import Share

    part, _, of = text.partition("/")
    # int() would take signs, spaces and digits of other scripts.
    if not (part.isascii() and part.isdecimal() and of.isascii() and of.isdecimal() and len(text) < 20):
        raise argparse.ArgumentTypeError(f"must look like 3/8, the third of eight shares, got {text!r:.60}")
    # argparse prints errors of this type alone as they are.
    try:
        return Share(int(part), int(of))
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def parse_requirement(text: str) -> Requirement:
    """Read ``150@0.4``: a mean of 150 at budget 0.4."""
    mean, budget = _split_numbers(text, "@", "150@0.4, a mean and a budget", count=2)
    if not (math.isfinite(mean) and math.isfinite(budget) and budget >= 0):
        raise argparse.ArgumentTypeError(f"needs a finite mean and a budget >= 0, got {text!r}")
    return Requirement(mean, budget)


def _split_numbers(text: str, sign: str, looks: str, count: int | None = None) -> tuple[float, ...]:
    """Read numbers with a sign between them, or say what an option's value should look like."""
    try:
        found = tuple(float(part) for part in text.split(sign))
    except ValueError:
        found = ()
    if not found or count not in (None, len(found)):
        raise argparse.ArgumentTypeError(f"must look like {looks}, got {text!r}")
    return found
