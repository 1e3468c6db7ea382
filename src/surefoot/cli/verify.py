"""``surefoot verify``: a run directory in; what was checked, what was not, and an exit code out."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from surefoot.cli.options import add_agent, add_output, pick, print_json, progress_bar, say, workers_of
from surefoot.cli.parser import ADVANCED, AGENT, RUN, STATISTICS, add_command, section
from surefoot.cli.task import add_code
from surefoot.errors import InputError

if TYPE_CHECKING:
    from surefoot.play.workers import Workers
    from surefoot.verification.verdict import Verdict

SHOWN = 2  # lines about what was not checked, at least: those that are special to a run, and come first, are all shown
LONG_HASH = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")
EXIT_CODES = {"verified": 0, "failed": 1, "unchecked": 4}
HEADINGS = {"verified": "Verified", "failed": "FAILED", "unchecked": "COULD NOT BE CHECKED"}
MARKS = {"passed": "ok", "failed": "FAILED", "impossible": "UNKNOWN", "skipped": "skipped"}


def add_verify(commands: Any) -> None:
    """Describe the subcommand."""
    parser = add_command(
        commands,
        "verify",
        "check a certificate: recompute its bounds, rerun its episodes, run fresh ones",
        usage="RUN_DIR [options]",
        details="Exit code 0: verified. 1: a check failed, do not rely on the certificate. 4: nothing failed, but not "
        "everything could be checked.",
        examples=(
            "surefoot verify runs/cartpole-5-s0.2-sigma0.2-n10000",
            "surefoot verify RUN_DIR --blocks all",
            "surefoot verify RUN_DIR --agent model.zip --json",
        ),
    )
    what = section(parser, AGENT)
    what.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="run directory of surefoot certify or compare")
    add_agent(parser, recorded=True)
    what.add_argument("--agent-b", metavar="AGENT", help="the second agent of a comparison, as --agent is the first")
    what.add_argument("--env", metavar="ID", help="the run's environment, if its name would import a module")
    add_code(parser)
    section(parser, ADVANCED).add_argument(
        "--luck", metavar="FUNCTION", help="module:function that read how lucky each episode began, if there is one"
    )
    checked = section(parser, STATISTICS)
    checked.add_argument(
        "--blocks",
        type=_parse_blocks,
        default="enough",
        metavar="N",
        help="blocks of episodes to rerun: a number, or all (default: enough to notice with probability 0.99 a forgery "
        "that raises a bound by more than 1%%)",
    )
    checked.add_argument(
        "--fresh",
        type=int,
        metavar="N",
        help="fresh episodes to run under a seed drawn now, which must not contradict the record (default: as many as "
        "the run has, at most 10,000 and at least 64, for fewer than 16 up to 512)",
    )
    checked.add_argument(
        "--seed", type=int, metavar="K", help="seed that chooses the blocks to rerun (default: unpredictable)"
    )
    section(parser, RUN).add_argument(
        "--verbose", action="store_true", help="print whole hashes and all that is not checked"
    )
    add_output(parser)
    parser.set_defaults(run=run_verify)


def run_verify(arguments: argparse.Namespace) -> int:
    """Check a run; return the exit code."""
    from surefoot.verification.verify import verify

    if arguments.seed is not None and arguments.seed < 0:
        raise InputError(f"seed must be at least 0, got {arguments.seed}")
    with workers_of(arguments) as workers, progress_bar("rerunning", "blocks", arguments) as report:
        verdict = verify(
            arguments.run_dir,
            environment=arguments.env,
            wrappers=arguments.wrapper or (),
            env_modules=arguments.env_module or (),
            **pick(arguments, "agent", "agent_b", "blocks", "fresh", "seed"),
            **pick(arguments, "success", "luck", "env_kwargs", "allow_pickle", "vecnormalize"),
            workers=_as_processes(workers),
            progress=report,
        )
    if arguments.json:
        print_json(verdict.to_json())
    else:
        _show_verdict(verdict, verbose=arguments.verbose)
    return EXIT_CODES[verdict.verdict]


def _as_processes(workers: int | Workers | None) -> int | Workers:
    """Return processes for reruns; any number without torch, with which nothing is rerun."""
    try:
        from surefoot.api.setup import as_processes
    except ModuleNotFoundError:
        return 1
    return as_processes(workers)


def _show_verdict(verdict: Verdict, *, verbose: bool) -> None:
    """Print the result, the checks, and what was not checked."""
    passed = sum(check.result == "passed" for check in verdict.checks)
    # On one line: a folder of a stranger may be called so that its name looks like a verdict.
    print(f"{HEADINGS[verdict.verdict]}: {' '.join(verdict.run.split())}")
    rerun = ""
    if verdict.blocks is not None:
        rerun = f"; {len(verdict.replayed):,} of {verdict.blocks:,} blocks rerun"
    print(f"{passed} of {len(verdict.checks)} checks passed{rerun}\n")
    width = max((len(check.name) for check in verdict.checks), default=0)
    for check in verdict.checks:
        detail = check.detail
        if not verbose:
            detail = LONG_HASH.sub(r"\1...", detail)
        say(f"{MARKS[check.result]:7} {check.name:{width}}  {detail}", indent=" " * (width + 10))
    print()
    say(verdict.trust)
    # Bounds of fresh episodes support a certificate that nothing else speaks against.
    if verdict.verified:
        say(verdict.fresh_bounds)
    # Also of a certificate that is verified: what nothing checked is the reader's to believe.
    print("\nNot checked:")
    n_shown = len(verdict.not_checked)
    if not verbose:
        # What is special to this run may be what a dishonest author counts on.
        n_shown = max(SHOWN, n_shown - verdict.n_general)
    for line in verdict.not_checked[:n_shown]:
        say(f"- {line}", indent="  ")
    if len(verdict.not_checked) > n_shown:
        print(f"- and {len(verdict.not_checked) - n_shown} limitations of every verification: see --verbose")


def _parse_blocks(text: str) -> int | Literal["enough"] | None:
    if text == "enough":
        return "enough"
    if text == "all":
        return None
    # int() would take signs, spaces and digits of other scripts.
    if not text.isdecimal() or not text.isascii() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"must be a whole number or 'all', got {text!r:.60}")
    return int(text)
