"""What the subcommands share: options and their values, the plan that they describe, progress."""

from __future__ import annotations

import argparse
import json
import math
import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from surefoot.cli.parser import AGENT, RUN, section
from surefoot.episodes import Noise
from surefoot.errors import InputError
from surefoot.report.certificate_text import COLUMNS

if TYPE_CHECKING:
    from surefoot.agents.policies import Policy
    from surefoot.play.plan import Plan
    from surefoot.play.task import Task
    from surefoot.play.workers import Workers
    from surefoot.runs.shares import Share


def add_common(parser: argparse.ArgumentParser, *, writes: bool = True, own_seed: bool = False) -> None:
    """Add the options that every long run has.

    Args:
        parser: Of the command.
        writes: Whether it writes files, and needs a directory for them.
        own_seed: Whether the seed follows from agent and setup where none is given.
    """
    run = section(parser, RUN)
    add_seed(parser, own=own_seed)
    run.add_argument(
        "--device", default="auto", choices=("auto", "cpu", "cuda"), help="where networks run (default: auto)"
    )
    if writes:
        run.add_argument("--out", type=Path, metavar="DIR", help="run directory (default: runs/NAME)")
    add_output(parser)


def add_seed(parser: argparse.ArgumentParser, *, own: bool = False) -> None:
    """Add the seed; ``own`` as in ``add_common``."""
    default = "derived from agent and setup, so that no agent can know it" if own else "0"
    section(parser, RUN).add_argument(
        "--seed",
        type=int,
        default=None if own else 0,
        metavar="K",
        help=f"seed of all random numbers (default: {default})",
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is printed."""
    add_json(parser)
    section(parser, RUN).add_argument("--quiet", action="store_true", help="show no progress")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option that prints JSON."""
    section(parser, RUN).add_argument(
        "--json", action="store_true", help="print one JSON document to stdout and nothing else"
    )


def add_agent(parser: argparse.ArgumentParser, *, recorded: bool = False) -> None:
    """Add the options that say which agent to run, and with how many processes.

    ``recorded``  whether a record says what else is declared about the agent
    """
    agent = section(parser, AGENT)
    agent.add_argument(
        "--agent",
        metavar="AGENT",
        help="pretrained agent, training directory, SB3 .zip or folder of one, .onnx, TorchScript .pt, or module:name "
        "of a torch module or function (default: the task's pretrained agent)",
    )
    if not recorded:
        agent.add_argument(
            "--n-stack",
            type=int,
            metavar="K",
            help="observations that the agent stacks, where its file does not say (default: the task's)",
        )
        agent.add_argument(
            "--pixel-max",
            type=float,
            metavar="X",
            help="brightest pixel as an .onnx, .pt or torch module takes it: 255 if it divides by 255 itself, else 1",
        )
        agent.add_argument(
            "--stochastic", action="store_true", help="the agent draws random actions of its own, which are part of it"
        )
    agent.add_argument(
        "--vecnormalize",
        metavar="FILE",
        help="statistics an SB3 agent's observations are normalized with, or 'none'; noise and budgets stay in the "
        "units of the environment (default: where RL Baselines3 Zoo and the Hub keep them)",
    )
    agent.add_argument(
        "--allow-pickle",
        action="store_true",
        help="let the agent's file execute code: pickles in an SB3 .zip, TorchScript",
    )
    add_workers(parser)


def add_workers(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what runs the episodes."""
    run = section(parser, RUN)
    run.add_argument("--workers", type=int, metavar="N", help="number of processes (default: one per core)")
    run.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="run episodes on a Ray cluster: HOST:PORT, or auto for that of RAY_ADDRESS or of this machine",
    )


def add_record(parser: argparse.ArgumentParser) -> None:
    """Add the option that records an episode for the report."""
    section(parser, RUN).add_argument(
        "--record", action="store_true", help="record one more episode, without and under attack, for the report"
    )


def add_share(parser: argparse.ArgumentParser) -> None:
    """Add the option that runs a part of the episodes."""
    section(parser, RUN).add_argument(
        "--blocks",
        type=parse_share,
        metavar="I/N",
        help="run share I of N into a directory of its own and certify nothing; 'surefoot merge' makes one run of all",
    )


def plan_of(
    arguments: argparse.Namespace,
    task: Task,
    sigma: float | Sequence[float],
    n_episodes: int,
    *,
    per_step: bool = False,
) -> Plan:
    """Return the run that the options describe: of the agent they name, else of the task's pretrained one."""
    from surefoot.agents.files import default_agent
    from surefoot.play.plan import Plan, resolve_device, seeded_plan

    noise = Noise.of(sigma)
    if noise.features is not None and arguments.agent is None:
        raise InputError("there is no pretrained agent for a sigma per feature; name one with --agent")
    agent = default_agent(task.name, noise.sigma) if arguments.agent is None else arguments.agent
    plan = Plan(
        task=task,
        policy=resolve_agent(
            agent,
            task,
            n_stack=arguments.n_stack,
            stochastic=arguments.stochastic,
            pixel_max=arguments.pixel_max,
            allow_pickle=arguments.allow_pickle,
            vecnormalize=arguments.vecnormalize,
        ),
        noise=noise,
        n_episodes=n_episodes,
        device=resolve_device(arguments.device, remote=arguments.ray is not None),
        per_step=per_step,
    )
    return seeded_plan(plan, arguments.seed)


def resolve_agent(agent: str, task: Task, **options: Any) -> Policy:
    """Return the agent that is named; one that is code is first tried in a process that it may end."""
    from surefoot.agents.imported import NAMED
    from surefoot.agents.resolve import as_policy
    from surefoot.play.workers import run_apart

    make = partial(as_policy, agent, task.spaces, **options)
    if NAMED.fullmatch(agent):
        run_apart(f"trying the agent {agent}", _try, make)
    return make()


def _try(make: Callable[[], object], _: int) -> None:
    make()


def check_shareable(plan: Plan) -> None:
    """Reject shares of an agent without a hash: nothing would say whether all are of the same agent."""
    if not plan.policy.sha256:
        raise InputError(f"--blocks needs an agent with a hash, and {plan.policy.name} is code; use --ray or --workers")


@contextmanager
def workers_of(arguments: argparse.Namespace, gpu: float = 0.0) -> Iterator[Workers]:
    """Connect to the Ray cluster that is named, else give the processes: as many as named, else one per core.

    Args:
        arguments: What was typed.
        gpu: Share of a GPU that a block fills; as many processes share one by default.
    """
    from surefoot.compute import usable_cores
    from surefoot.play.workers import Processes, can_fork

    if arguments.ray is None:
        most = round(1 / gpu) if gpu else usable_cores()
        n = most if arguments.workers is None else arguments.workers
        yield Processes(n, isolated=can_fork() and not gpu)
        return
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

        def show(done: float, **fields: Any) -> None:
            speed = progress.tasks[0].speed
            rate = "" if speed is None else f"{speed:,.{0 if speed >= 10 else 1}f}/s"
            progress.update(job, completed=done, rate=rate, **fields)

        def report(done: int, of: int, note: str = "") -> None:
            nonlocal counted
            counted = done
            show(done, total=of, note=note, unit="" if note else f" {unit}")  # a note needs the room

        def look() -> None:
            from surefoot.play.meter import episodes_under_way

            while not over.wait(0.2):
                show(max(progress.tasks[0].completed, counted + episodes_under_way()))

        if unit == "episodes":
            threading.Thread(target=look, daemon=True).start()
        try:
            yield report
        finally:
            over.set()


@contextmanager
def keeping(folder: Path) -> Iterator[None]:
    """Let Ctrl-C say what is kept of a run in its directory."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        from surefoot.runs.folder import kept_episodes

        if count := kept_episodes(folder):
            stopped.add_note(f"{count:,} episodes are kept in {folder}. Run the same command again to resume.")
        raise


def show_share(arguments: argparse.Namespace, folder: Path, n_episodes: int) -> None:
    """Print what ``--blocks`` has run."""
    name = f"{arguments.blocks.part}/{arguments.blocks.of}"
    if arguments.json:
        print_json({"schema": 1, "share": name, "folder": str(folder), "episodes": n_episodes})
        return
    print(f"Share {name}: {n_episodes:,} episodes in {folder}.")
    print("When all shares are done: surefoot merge DIR..., then this command without --blocks.")


def plain_console() -> Console:
    """Return where tables are printed: text alone, so that a name cannot pass for a color or a link."""
    return Console(color_system=None, markup=False, emoji=False, highlight=False, width=80)


def say(text: str, indent: str = "") -> None:
    """Print a paragraph in lines of at most 78 columns, those after the first one indented."""
    print(textwrap.fill(text, COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))


def print_json(content: Mapping[str, Any]) -> None:
    """Print one JSON document; NaN and infinities, which are not JSON, are errors."""
    print(json.dumps(content, indent=1, allow_nan=False))


def estimate(mean: float, sem: float) -> str:
    """Format an estimate with its standard error, to the two leading digits of the latter."""
    digits = 2 if sem <= 0 else min(6, max(1, 1 - math.floor(math.log10(sem))))
    return f"{mean:.{digits}f} ± {sem:.{digits}f}"


def refuse(arguments: argparse.Namespace, names: Sequence[str], what: str) -> None:
    """Reject options that make no sense together."""
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(arguments, name) is not None]
    if given:
        raise InputError(f"{', '.join(given)} cannot be combined with {what}")


@dataclass(frozen=True)
class Requirement:
    """A mean return that is to be proved under every attack within a budget."""

    mean: float
    budget: float


def with_requirement(budgets: Sequence[float], required: Requirement | None) -> tuple[float, ...]:
    """Return the budgets to certify; what is required is among them."""
    if required is None or required.budget in budgets:
        return tuple(budgets)
    return tuple(sorted({*budgets, required.budget}))


def numbers(looks: str, count: int | None = None) -> Callable[[str], tuple[float, ...]]:
    """Return what reads an option's value that looks like this, ``0,0.2,0.4``; ``count`` is how many there must be."""
    return lambda text: _split(text, ",", looks, count)


def parse_sigma(text: str) -> float | list[float] | dict[str, float]:
    """Read one sigma, or one per feature, or ``camera=0.1,arm=0.2``."""
    if "=" in text:
        named = [part.rpartition("=") for part in text.split(",")]
        values = _split(",".join(value for _, _, value in named), ",", "camera=0.1,arm=0.2", len(named))
        return {name: value for (name, _, _), value in zip(named, values, strict=True)}
    found = _split(text, ",", "0.2 or 0.1,0.2,0.1,0.2")
    return found[0] if len(found) == 1 else list(found)


def parse_budgets(text: str) -> tuple[float, ...]:
    """Read ``0:1:0.05`` (both ends included) or ``0,0.2,0.4``."""
    looks = "0:1:0.05 or 0,0.2,0.4"
    if ":" not in text:
        return _split(text, ",", looks)
    first, last, step = _split(text, ":", looks, count=3)
    if not (step > 0 and last >= first and (last - first) / step < 10_000):
        raise argparse.ArgumentTypeError(
            f"FIRST:LAST:STEP needs LAST >= FIRST, STEP > 0 and under 10,000 values, got {text!r}"
        )
    count = int((last - first) / step + 1e-9) + 1
    return tuple(float(f"{first + step * index:.12g}") for index in range(count))


def parse_share(text: str) -> Share:
    """Read ``3/8``: the third of eight shares."""
    from surefoot.runs.shares import Share

    part, _, of = text.partition("/")
    if not (part.isascii() and part.isdecimal() and of.isascii() and of.isdecimal() and len(text) < 20):
        raise argparse.ArgumentTypeError(f"must look like 3/8, the third of eight shares, got {text!r:.60}")
    try:
        return Share(int(part), int(of))
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def parse_requirement(text: str) -> Requirement:
    """Read ``150@0.4``: a mean of 150 at budget 0.4."""
    mean, budget = _split(text, "@", "150@0.4, a mean and a budget", count=2)
    if not (math.isfinite(mean) and math.isfinite(budget) and budget >= 0):
        raise argparse.ArgumentTypeError(f"needs a finite mean and a budget >= 0, got {text!r}")
    return Requirement(mean, budget)


def _split(text: str, sign: str, looks: str, count: int | None = None) -> tuple[float, ...]:
    """Read numbers with a sign between them, or say what an option's value should look like."""
    try:
        found = tuple(float(part) for part in text.split(sign))
    except ValueError:
        found = ()
    if not found or count not in (None, len(found)):
        raise argparse.ArgumentTypeError(f"must look like {looks}, got {text!r}")
    return found
