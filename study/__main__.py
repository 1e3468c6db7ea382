"""``python -m study``: the paper's figures and tables, from committed numbers or measured from scratch."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from surefoot.api.setup import keep_on_interrupt
from surefoot.cli.main import run_program
from surefoot.cli.options import add_output, print_json, progress_bar
from surefoot.cli.parser import RUN, lone_command, section

OUT = {
    "committed": Path("runs/reproduce"),
    "quick": Path("runs/reproduce-quick"),
    "full": Path("runs/reproduce-full"),
}
WORDS = {
    "committed": "from the committed numbers",
    "quick": "from small runs, made for this page; do not compare them with the paper",
    "full": "from runs of full size, made for this page",
}


def build_parser() -> argparse.ArgumentParser:
    """Describe the options."""
    parser = lone_command(
        "python -m study",
        "draw the paper's figures and tables from our agents",
        usage="[WHAT] [options]",
        details="The numbers are the committed ones, or measured from scratch.",
        examples=("python -m study", "python -m study certificates", "python -m study cartpole-5 --quick"),
    )
    run = section(parser, RUN)
    run.add_argument(
        "what", nargs="?", default="all", metavar="WHAT", help="a figure, a table, a task, or all (default: all)"
    )
    size = run.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="measure with small runs, in minutes")
    size.add_argument("--full", action="store_true", help="measure from scratch at full size, in hours or days")
    run.add_argument("--data", type=Path, metavar="DIR", help="committed numbers (default: study/data)")
    run.add_argument(
        "--device", default="auto", choices=("auto", "cpu", "cuda"), help="where networks run (default: auto)"
    )
    run.add_argument("--workers", type=int, metavar="N", help="number of processes (default: one per core)")
    run.add_argument("--out", type=Path, metavar="DIR", help="results directory (default: runs/reproduce...)")
    add_output(parser)
    parser.set_defaults(run=run_study)
    return parser


def run_study(arguments: argparse.Namespace) -> None:
    """Measure if requested, draw, and say what was written where."""
    from study.draw import chosen, draw, write_index
    from study.numbers import open_study

    mode = "quick" if arguments.quick else "full" if arguments.full else "committed"
    targets, tasks = chosen(arguments.what)
    out = arguments.out or OUT[mode]
    study = open_study(arguments.data) if mode == "committed" else _measured(arguments, mode, targets, tasks, out)
    drawn = []
    with progress_bar("drawing", "figures and tables", arguments) as report:
        for number, target in enumerate(targets):
            drawn.append(draw(study, target, tasks, out))
            if report is not None:
                report(number + 1, len(targets), target.name)
    write_index(study, drawn, out, WORDS[mode])
    _tell(arguments, mode, drawn, study.stale(), out)


def _measured(arguments: argparse.Namespace, mode: str, targets: Any, tasks: Any, out: Path) -> Any:
    from study.measure import Place, measure
    from study.numbers import open_study, shipped_agents
    from study.sizes import full, quick
    from surefoot.compute import usable_cores
    from surefoot.errors import InputError
    from surefoot.play.plan import resolve_device

    if arguments.data is not None:
        raise InputError(f"--data names committed numbers; --{mode} measures its own")
    device = resolve_device(arguments.device)
    default = usable_cores() if device == "cpu" else 1
    workers = default if arguments.workers is None else arguments.workers
    if workers < 1:
        raise InputError(f"workers must be at least 1, got {workers}")
    needs = sorted({need for target in targets for need in target.needs})
    about = [task for task in tasks if any(task in target.tasks and target.needs for target in targets)]
    place = Place(out / "data", out / "work", device, workers)
    with keep_on_interrupt(out), progress_bar("measuring", "parts", arguments) as report:
        measure(shipped_agents(), about, needs, quick if mode == "quick" else full, place, report)
    return open_study(place.data, trained="training" in needs)


def _tell(arguments: argparse.Namespace, mode: str, drawn: Any, stale: list[str], out: Path) -> None:
    if stale:
        print(f"surefoot: measured on other weights than those in the zoo: {', '.join(stale)}", file=sys.stderr)
    if arguments.json:
        made = {
            one.target.name: {"files": [str(path) for path in one.files], "seconds": round(one.seconds, 3)}
            for one in drawn
        }
        print_json({"schema": 1, "mode": mode, "out": str(out), "stale": stale, "made": made})
        return
    for one in drawn:
        origin = f" ({one.target.paper})" if one.target.paper else ""
        print(f"{one.target.name:18} {one.target.title}{origin}")
    print(f"\nWritten to {out}, {WORDS[mode]}; open {out / 'index.html'}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw, and return the exit code."""
    return run_program(build_parser(), sys.argv[1:] if arguments is None else arguments)


if __name__ == "__main__":
    sys.exit(main())
