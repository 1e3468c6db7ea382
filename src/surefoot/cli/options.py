"""What the subcommands share: options, progress, numbers from text."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from surefoot.errors import InputError


def add_common(parser: argparse.ArgumentParser, *, leaves: bool = True) -> None:
    """Add the options that every long run has; one that ``leaves`` nothing behind needs no place for it."""
    parser.add_argument("--seed", type=int, default=0, help="(default: 0)")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"), help="(default: auto)")
    if leaves:
        parser.add_argument("--out", type=Path, metavar="DIR", help="where the results go (default: runs/<name>)")
    parser.add_argument("--json", action="store_true", help="print one JSON document to stdout and nothing else")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def add_agent(parser: argparse.ArgumentParser) -> None:
    """Add the options that say whom to play, and with how many processes."""
    parser.add_argument("--agent", metavar="NAME_OR_PATH", help="shipped name, trained folder, or SB3 .zip")
    parser.add_argument("--trust-pickle", action="store_true", help="let an SB3 zip run its code to be loaded")
    parser.add_argument("--workers", type=int, help="processes to play with (default: one per core)")


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
    """A mean return that is to be proved under every attack of a budget."""

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


def chosen_workers(given: int | None, device: str, *, emulated: bool = False) -> int:
    """Return how many processes to play with: one per core unless told, one for a GPU.

    ``emulated``  whether emulators play the game: on a GPU those of one process then run while another one's agent acts
    """
    from surefoot.play.workers import usable_cores

    if given is not None:
        return given
    return usable_cores() if device == "cpu" else 1 + emulated


def refuse(arguments: argparse.Namespace, names: Sequence[str], whom: str) -> None:
    """Refuse options that make no sense together."""
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(arguments, name) is not None]
    if given:
        raise InputError(f"{', '.join(given)} cannot go with {whom}")
