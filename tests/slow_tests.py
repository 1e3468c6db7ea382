"""Which tests ``make test-fast`` leaves out: those that ``tests/slow.txt`` names, each with the seconds that it took.

    python -m pytest -n 2 --dist loadfile -q --durations=0 > durations.log
    python tests/slow_tests.py durations.log       # writes tests/slow.txt

A test is a function: the times of all its parameters count together. A file is left out as a whole where what its tests
share takes long to set up: without the test that paid for it the next one would. ``make test`` begins with the files
that take longest, so that no core waits for one of them at the end.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

LIST = Path(__file__).with_name("slow.txt")
LONGEST = 0.2  # seconds
_LINE = re.compile(r"\s*([\d.]+)s (call|setup|teardown)\s+tests/(\S+?::\w+)")


def function_of(node: str) -> str:
    """Return the file and the function of a test, without its parameters: ``cli/test_parser.py::test_help``."""
    return node.split("[", maxsplit=1)[0].removeprefix("tests/")


def file_of(node: str) -> str:
    """Return the file of a test."""
    return function_of(node).partition("::")[0]


def slow_names() -> dict[str, float]:
    """Return the functions and files that are left out, with their seconds, if they were measured."""
    found = {}
    for line in LIST.read_text().splitlines():
        name, _, seconds = line.partition(" ")
        found[name] = float(seconds or LONGEST)
    return found


def seconds_of_files() -> Counter[str]:
    """Return how long the slow tests of each file take together."""
    files: Counter[str] = Counter()
    for name, seconds in slow_names().items():
        files[file_of(name)] += seconds  # type: ignore[assignment]
    return files


def measured(log: str) -> list[str]:
    """Return a line for every function or file whose times in a log of pytest are longer than what is kept."""
    times: Counter[str] = Counter()
    whole = set()
    for seconds, phase, function in _LINE.findall(log):
        if phase == "setup" and float(seconds) > LONGEST:
            whole.add(file_of(function))
        times[function] += float(seconds)  # type: ignore[assignment]
    listed: Counter[str] = Counter()
    for function, total in times.items():
        if file_of(function) in whole:
            listed[file_of(function)] += total
        elif total > LONGEST:
            listed[function] += total
    return sorted(f"{name} {seconds:.1f}" for name, seconds in listed.items())


if __name__ == "__main__":
    LIST.write_text("\n".join(measured(Path(sys.argv[1]).read_text())) + "\n")
