"""What the subcommands share: options, progress, numbers from text."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from surefoot.errors import InputError


def add_common(parser: argparse.ArgumentParser, *, writes: bool = True) -> None:
    """Add the options that every long run has; one that ``writes`` no files needs no directory for them."""
    parser.add_argument("--seed", type=int, default=0, help="(default: 0)")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"), help="(default: auto)")
    if writes:
        parser.add_argument("--out", type=Path, metavar="DIR", help="run directory (default: runs/<name>)")
    parser.add_argument("--json", action="store_true", help="print one JSON document to stdout and nothing else")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def add_agent(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which agent to run, and with how many processes."""
    parser.add_argument("--agent", metavar="NAME_OR_PATH", help="pretrained agent, training directory, or SB3 .zip")
    parser.add_argument(
        "--allow-pickle", action="store_true", help="let an SB3 zip execute its code while it is loaded"
    )
    parser.add_argument("--workers", type=int, help="number of processes (default: one per core)")
    add_old_names(parser, {"--trust-pickle": "--allow-pickle"})


class Renamed(argparse.Action):
    """An option's old name: it still works, says what the new name is, and is not in the help text."""

    def __init__(self, *, now: argparse.Action, **settings: Any) -> None:
        super().__init__(**settings)
        self.now = now

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        """Warn, then do what the new name does."""
        new = self.now.option_strings[0]
        print(f"surefoot: {option_string} is now {new}; the old name will be removed", file=sys.stderr)
        self.now(parser, namespace, values, new)


def add_old_names(parser: argparse.ArgumentParser, names: Mapping[str, str]) -> None:
    """Accept the old names of options, each mapped to its new one, for one more version."""
    actions = {name: action for action in parser._actions for name in action.option_strings}
    for old, new in names.items():
        now = actions[new]
        settings: dict[str, Any] = {
            "dest": now.dest,
            "nargs": now.nargs,
            "type": now.type,
            "default": argparse.SUPPRESS,
        }
        parser.add_argument(old, action=Renamed, now=now, help=argparse.SUPPRESS, **settings)


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
    if ":" not in text:
        return parse_numbers(text, "budgets", "0:1:0.05 or 0,0.2,0.4")
    try:
        first, last, step = (float(part) for part in text.split(":"))
    except ValueError as error:
        raise InputError(f"budgets must look like 0:1:0.05 or 0,0.2,0.4, got {text!r}") from error
    if not (step > 0 and last >= first and (last - first) / step < 10_000):
        raise InputError(f"budgets FIRST:LAST:STEP need LAST >= FIRST, STEP > 0 and under 10,000 values, got {text!r}")
    count = int((last - first) / step + 1e-9) + 1
    return tuple(float(f"{first + step * index:.12g}") for index in range(count))


@dataclass(frozen=True)
class Requirement:
    """A mean return that is to be proved under every attack within a budget."""

    mean: float
    budget: float


def parse_sigma(text: str) -> float | list[float]:
    """Read one sigma, or one per feature."""
    numbers = parse_numbers(text, "--sigma", "0.2 or 0.1,0.2,0.1,0.2")
    return numbers[0] if len(numbers) == 1 else list(numbers)


def parse_requirement(text: str) -> Requirement:
    """Read ``150@0.4``: a mean of 150 at budget 0.4."""
    try:
        mean, budget = (float(part) for part in text.split("@"))
    except ValueError as error:
        raise InputError(f"a requirement must look like 150@0.4, a mean and a budget, got {text!r}") from error
    if not (math.isfinite(mean) and math.isfinite(budget) and budget >= 0):
        raise InputError(f"a requirement needs a finite mean and a budget >= 0, got {text!r}")
    return Requirement(mean, budget)


def with_requirement(budgets: Sequence[float], required: Requirement | None) -> tuple[float, ...]:
    """Return the budgets to certify; what is required is among them."""
    if required is None or required.budget in budgets:
        return tuple(budgets)
    return tuple(sorted({*budgets, required.budget}))


def parse_numbers(text: str, what: str, looks: str = "0,0.2,0.4") -> tuple[float, ...]:
    """Read ``0,0.2,0.4``."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"{what} must look like {looks}, got {text!r}") from error


def estimate(mean: float, sem: float) -> str:
    """Format an estimate with its standard error, to the two leading digits of the latter."""
    digits = 2 if sem <= 0 else min(6, max(1, 1 - math.floor(math.log10(sem))))
    return f"{mean:.{digits}f} ± {sem:.{digits}f}"


def chosen_workers(given: int | None, device: str, *, emulated: bool = False) -> int:
    """Return the number of processes: the one given, else one per core, or one for a GPU.

    Args:
        given: What the user asked for.
        device: "cpu" or "cuda".
        emulated: Whether emulators run the game; on a GPU those of one process then run while another's agent acts.
    """
    from surefoot.play.workers import usable_cores

    if given is not None:
        return given
    return usable_cores() if device == "cpu" else 1 + emulated


def refuse(arguments: argparse.Namespace, names: Sequence[str], what: str) -> None:
    """Reject options that make no sense together."""
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(arguments, name) is not None]
    if given:
        raise InputError(f"{', '.join(given)} cannot be combined with {what}")
