"""The command: parses, shows progress, prints, exits. Bad input is one line on stderr and exit code 2."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout, suppress
from typing import Any, TextIO, cast

from surefoot import __version__
from surefoot.cli.agents import add_agents, add_export
from surefoot.cli.attack import add_attack
from surefoot.cli.baseline import add_baseline
from surefoot.cli.certify import add_certify
from surefoot.cli.compare import add_compare
from surefoot.cli.doctor import add_doctor
from surefoot.cli.explain import add_explain, add_faults
from surefoot.cli.merge import add_merge
from surefoot.cli.messages import in_options
from surefoot.cli.options import OutputClosedError
from surefoot.cli.parser import Parser
from surefoot.cli.plan import add_plan, add_tune
from surefoot.cli.report import add_report
from surefoot.cli.train import add_train
from surefoot.cli.verify import add_verify
from surefoot.errors import InputError, is_out_of_memory, printable
from surefoot.provenance import install_command

INTERRUPTED = 130
OUTPUT_CLOSED = 141  # as a shell reports a program that SIGPIPE ended
CRASHED = 70
# Packages that a plain installation lacks, and the extra that has them.
OPTIONAL_PACKAGES = {
    "torch": "play",
    "gymnasium": "play",
    "yaml": "play",
    "stable_baselines3": "train",
    "matplotlib": "plot",
    "ray": "ray",
}


class PlainText:
    """Standard output on which nothing but text can be written: names from untrusted files cannot move the cursor."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text, with control characters spelled out."""
        try:
            return self._stream.write(printable(text))
        except BrokenPipeError as error:
            raise OutputClosedError from error

    def flush(self) -> None:
        """Write what is left."""
        try:
            self._stream.flush()
        except BrokenPipeError as error:
            raise OutputClosedError from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Aside(PlainText):
    """Where everything goes but the document of ``--json``: environments and agents of users may print too."""

    def __init__(self, stream: TextIO, document: TextIO) -> None:
        super().__init__(stream)
        self.document = document


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    given = arguments
    if given is None:
        given = sys.argv[1:]
    return run_program(build_parser(), given or ["--help"])


def run_program(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> int:
    """Parse, run what the parser names, report what goes wrong, and return the exit code."""
    for stream in (sys.stdout, sys.stderr):
        # A sign that the terminal cannot show is no reason to fail.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        with redirect_stdout(cast("TextIO", PlainText(sys.stdout))):
            # The shell asks what could be typed next.
            if "_ARGCOMPLETE" in os.environ:
                _complete_words(parser)
            parser.set_defaults(command_line=f"{parser.prog} {shlex.join(arguments)}")
            parsed = parser.parse_args(arguments)
            with _aside() if getattr(parsed, "json", False) else nullcontext():
                code = _run_command(parsed)
            # Here, where a reader that is gone or a full disk is still reported, and not at the interpreter's end.
            sys.stdout.flush()
    except InputError as error:
        return _report_failure(str(error))
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        # Any other module that is missing is a fault of the package or of the user's code, shown with its traceback.
        if package not in OPTIONAL_PACKAGES:
            raise
        command = install_command(OPTIONAL_PACKAGES[package])
        return _report_failure(f"this needs the package {package}; install it with: {command}")
    except KeyboardInterrupt as stopped:
        # A run that keeps something says so (errors.Interrupted); the interpreter's own interrupt says nothing.
        kept = str(stopped) or "nothing is kept."
        print(printable(f"surefoot: interrupted; {kept}"), file=sys.stderr)
        return INTERRUPTED
    except OutputClosedError:
        # Whoever pipes to head has read enough, so nothing is printed; but 0 would say that all is proved or verified.
        _drop_output()
        return OUTPUT_CLOSED
    except OSError as error:
        # Without a file it was the output that could not be written.
        if error.filename is None:
            _drop_output()
            return _report_failure(error.strerror or str(error))
        return _report_failure(f"{error.strerror or error} ({error.filename})")
    except Exception as error:
        return _report_crash(error)
    return code


def _aside() -> AbstractContextManager[Any]:
    """Leave standard output to ``print_json``."""
    return redirect_stdout(cast("TextIO", Aside(sys.stderr, document=sys.stdout)))


def _run_command(parsed: argparse.Namespace) -> int:
    """Run a command; whatever code of others raises to end it is an error, sys.exit(0) above all."""
    try:
        return int(parsed.run(parsed) or 0)
    except InputError as error:
        raise InputError(in_options(str(error), parsed.parser)) from error
    except OutputClosedError:
        raise
    except BrokenPipeError as error:
        raise RuntimeError("a pipe of other code broke, not that of the output") from error
    except (Exception, KeyboardInterrupt, GeneratorExit):
        raise
    # SystemExit of an environment or agent: its exit code, 0 above all, would say that something is proved.
    except BaseException as error:
        raise InputError(
            f"the command was ended before it had finished, by {type(error).__name__}: {error}; the environment or the "
            "agent must not end its process"
        ) from error


def _report_crash(error: Exception) -> int:
    """Report an unexpected error; not with exit code 1, which says that something is not proved or not verified."""
    if is_out_of_memory(error):
        what = next(iter(str(error).strip().splitlines()), "nothing more is known")
        return _report_failure(f"out of memory ({what}); finished blocks are kept, run again with fewer --workers")
    print(printable(traceback.format_exc()), file=sys.stderr)
    return CRASHED


def _complete_words(parser: argparse.ArgumentParser) -> None:
    """Print what could be typed next, and exit; nothing without argcomplete."""
    with suppress(ModuleNotFoundError):
        import argcomplete

        argcomplete.autocomplete(parser)


def _drop_output() -> None:
    """Make the interpreter's last flush go nowhere."""
    with suppress(OSError, ValueError):
        output = sys.stdout.fileno()
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)


def _report_failure(message: str) -> int:
    print("surefoot: " + " ".join(printable(message).split()), file=sys.stderr)
    return 2


def build_parser() -> Parser:
    """Describe the command line."""
    parser = Parser(
        prog="surefoot",
        usage="surefoot COMMAND [options]",
        description="Certified lower bounds on the return of reinforcement-learning agents under observation attacks.",
        epilog="'surefoot COMMAND --help' shows a command's options, with examples. A first run: surefoot certify "
        "cartpole-5",
    )
    parser.add_argument("--version", action="version", version=f"surefoot {__version__}", help="show the version")
    commands = parser.add_subparsers(
        required=True, title="commands", metavar="COMMAND", parser_class=Parser, prog="surefoot"
    )
    proofs = (add_certify, add_verify, add_plan, add_tune, add_attack, add_compare, add_merge, add_report)
    for add in (*proofs, add_train, add_baseline, add_explain, add_faults, add_export, add_agents, add_doctor):
        add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
