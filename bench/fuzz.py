"""Twenty thousand damaged files and senseless command lines: no traceback, nothing left behind, memory under 1 GiB.

    python bench/fuzz.py                 # writes bench/results/fuzz.json
    python bench/fuzz.py --first 123 --cases 1

Agents of every format with what is published next to them, run and attack directories, returns and arguments, each
case from its own seed.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

import fuzzing  # noqa: E402
from surefoot.files import write_json  # noqa: E402
from surefoot.provenance import versions  # noqa: E402


def main() -> None:
    """Run the cases and write what went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    began, wrong = time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder:
        good_place, work = Path(folder) / "good", Path(folder) / "work"
        good_place.mkdir()
        work.mkdir()
        good = fuzzing.originals(good_place)
        for number in range(arguments.first, arguments.first + arguments.cases):
            found = fuzzing.case(number, good, work)
            if found is not None:
                wrong.append(found)
                print(found, flush=True)
    # Of this process, and of the largest of those in which episodes were rerun.
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) * 1024
    result = {
        "cases": arguments.cases,
        "wrong": wrong,
        "peak_bytes": peak,
        "seconds": round(time.monotonic() - began, 1),
        "versions": versions(),
    }
    if arguments.first == 0:
        write_json(HERE / "results" / "fuzz.json", result)
    print(f"{arguments.cases} cases, {len(wrong)} went wrong, peak memory {peak / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
