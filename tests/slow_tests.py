"""Which tests ``make test-fast`` leaves out: those that ``tests/slow.txt`` names, each with the seconds that it took.

    python -m pytest -n 2 --dist loadfile -q --durations=0 > durations.log
    python tests/slow_tests.py durations.log       # writes tests/slow.txt

A test is a function: the times of all its parameters and of what it sets up count together. ``make test`` begins with
the files that take longest, so that no core waits for one of them at the end.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

LIST = Path(__file__).with_name("slow.txt")
LONGEST = 0.4  # seconds
_LINE = re.compile(r"\s*([\d.]+)s (?:call|setup|teardown)\s+tests/(\S+?::\w+)")


def function_of(node: str) -> str:
    """Return the file and the function of a test, without its parameters: ``cli/test_parser.py::test_help``."""
    return node.split("[", maxsplit=1)[0].removeprefix("tests/")


def slow_functions() -> dict[str, float]:
    """Return the functions that are left out, with their seconds, if they were measured."""
    found = {}
    for line in LIST.read_text().splitlines():
        function, _, seconds = line.partition(" ")
        found[function] = float(seconds or LONGEST)
    return found


def seconds_of_files() -> Counter[str]:
    """Return how long the slow tests of each file take together."""
    files: Counter[str] = Counter()
    for function, seconds in slow_functions().items():
        files[function.partition("::")[0]] += seconds  # type: ignore[assignment]
    return files


def measured(log: str) -> list[str]:
    """Return a line for every function whose times in a log of pytest sum up to more than the longest that is kept."""
    times: Counter[str] = Counter()
    for seconds, function in _LINE.findall(log):
        times[function] += float(seconds)  # type: ignore[assignment]
    return sorted(f"{name} {seconds:.1f}" for name, seconds in times.items() if seconds > LONGEST)


if __name__ == "__main__":
    LIST.write_text("\n".join(measured(Path(sys.argv[1]).read_text())) + "\n")
