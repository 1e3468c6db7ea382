"""Which tests ``make test-fast`` leaves out: those that ``tests/slow.txt`` names, more than 0.4 seconds each.

    python -m pytest -n 2 --dist loadfile -q --durations=0 > durations.log
    python tests/slow_tests.py durations.log       # writes tests/slow.txt

A test is a function: the times of all its parameters and of what it sets up count together.
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


def slow_functions() -> set[str]:
    """Return the functions that are left out."""
    return set(LIST.read_text().splitlines())


def measured(log: str) -> list[str]:
    """Return the functions whose times in a log of pytest sum up to more than the longest that is kept."""
    times: Counter[str] = Counter()
    for seconds, function in _LINE.findall(log):
        times[function] += float(seconds)  # type: ignore[assignment]
    return sorted(name for name, seconds in times.items() if seconds > LONGEST)


if __name__ == "__main__":
    LIST.write_text("\n".join(measured(Path(sys.argv[1]).read_text())) + "\n")
