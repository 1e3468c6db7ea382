"""Errors planted on purpose, one at a time: does a test go red on each?

``mutants.toml`` lists them: where, what is replaced by what, what would go wrong, and the tests that should see it.
Each error is planted into a copy of the repository, never into the working tree, and the tests named for it are run
there. An error is *killed* if one of them fails, and *survives* if all pass; an error whose snippet is not found
exactly once no longer applies, and has to be rewritten or removed.

    make mutants                                 all of them; writes bench/results/mutants.json
    python tests/mutants.py H37 H50              some of them
    python tests/mutants.py --list               what they are
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_suffix(".toml")
RESULTS = ROOT / "bench" / "results" / "mutants.json"
PACKAGE = Path("src/surefoot")

KILLED, SURVIVED, TIMEOUT, BROKEN = "killed", "survived", "timeout", "broken"
_PASSED, _FAILED = 0, 1  # pytest's exit codes; all others mean that the tests themselves could not be run
_CRASHED = 70
_SLOW_TO_LOAD = ("numpy", "scipy.optimize", "scipy.signal", "scipy.stats", "torch", "gymnasium")


@cache
def tree_of(source: str) -> str:
    """Return what a source means, without its layout and its comments."""
    return ast.dump(ast.parse(source))


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One error.

    Attributes:
        id: Its name.
        file: The module, below ``src/surefoot``.
        old: Source text that occurs in it exactly once.
        new: What stands there instead.
        harm: What would go wrong.
        tests: Files of tests, or tests by name, the likeliest first.
    """

    id: str
    file: str
    old: str
    new: str
    harm: str
    tests: tuple[str, ...]

    def planted(self, root: Path) -> str:
        """Return the module's text with the error in it.

        Raises:
            ValueError: If the error no longer applies.
        """
        path = root / PACKAGE / self.file
        if not path.is_file():
            raise ValueError(f"{self.id}: no file {PACKAGE / self.file}")
        source = path.read_text()
        if source.count(self.old) != 1:
            raise ValueError(f"{self.id}: the snippet occurs {source.count(self.old)} times in {self.file}, not once")
        changed = source.replace(self.old, self.new)
        if ast.dump(ast.parse(changed)) == tree_of(source):
            raise ValueError(f"{self.id}: the replacement changes nothing")
        return changed


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of an error.

    Attributes:
        id: Its name.
        result: Killed, survived, timeout, or broken if its tests could not be run.
        by: The first test that failed, or what happened instead.
        seconds: How long that took.
        date: When it was tried.
    """

    id: str
    result: str
    by: str
    seconds: float
    date: str = field(default_factory=lambda: datetime.now(UTC).date().isoformat())


def table(path: Path = TABLE) -> list[Mutant]:
    """Read the list of errors."""
    rows = tomllib.loads(path.read_text())["mutant"]
    return [Mutant(**{**row, "tests": tuple(row["tests"])}) for row in rows]


def copied(root: Path, to: Path) -> None:
    """Copy what belongs to the repository, changes and new files included."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
    )
    for name in listed.stdout.decode().split("\0"):
        if name and (root / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, to / name)


def run_tests(root: Path, tests: Iterable[str], timeout: float, *options: str) -> tuple[int | None, str]:
    """Run tests of a copy on the package of that copy; return pytest's exit code, None after the timeout, and output.

    They run in a fork of this process, which has loaded what is slow to load and nothing of the package.
    """
    shutil.rmtree(root / ".hypothesis", ignore_errors=True)  # or one error's counterexamples would be tried on another
    arguments = ["-q", "-n0", "-p", "no:cacheprovider", "--tb=no", "-rfE", *options, *tests]
    assert not any(name.partition(".")[0] == "surefoot" for name in sys.modules)
    with tempfile.TemporaryFile("w+") as output:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            _run_pytest(root, arguments, output.fileno())
        code = _waited(child, timeout)
        output.seek(0)
        return code, output.read()


def _run_pytest(root: Path, arguments: list[str], output: int) -> NoReturn:
    code = _CRASHED
    try:
        os.setsid()  # a group of its own: what the tests have started ends with them
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(root)
        # No bytecode: two versions of a file that are equally long and equally old would share it.
        os.environ |= {"PYTHONPATH": str(root / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        sys.dont_write_bytecode = True
        # Nothing of this checkout but its virtual environment, which is inside it.
        kept = [path for path in sys.path if path.startswith(sys.prefix) or not path.startswith(f"{ROOT}/")]
        sys.path = [str(root / "src"), *kept]
        code = int(pytest.main(arguments))
    finally:
        sys.stdout.flush()
        os._exit(code)


def _waited(child: int, timeout: float) -> int | None:
    """Return the exit code of a child; after the timeout None, and the child and its children are gone."""
    ends = time.monotonic() + timeout
    while time.monotonic() < ends:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.1)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def tried(mutant: Mutant, root: Path, timeout: float) -> Outcome:
    """Plant one error into a copy, run its tests, and take it out again."""
    began = time.perf_counter()
    path = root / PACKAGE / mutant.file
    before = path.read_text()
    path.write_text(mutant.planted(root))
    try:
        code, output = run_tests(root, mutant.tests, timeout, "-x")
    finally:
        path.write_text(before)
    seconds = round(time.perf_counter() - began, 1)
    if code is None:
        return Outcome(id=mutant.id, result=TIMEOUT, by=f"no end within {timeout:g} s", seconds=seconds)
    if code == _PASSED:
        return Outcome(id=mutant.id, result=SURVIVED, by="", seconds=seconds)
    failed = [line[7:].partition(" - ")[0] for line in output.splitlines() if line.startswith("FAILED ")]
    if code != _FAILED or not failed:
        last = (output.strip().splitlines() or ["nothing was printed"])[-1]
        return Outcome(id=mutant.id, result=BROKEN, by=last, seconds=seconds)
    return Outcome(id=mutant.id, result=KILLED, by=failed[0], seconds=seconds)


def check_clean(root: Path, mutants: Sequence[Mutant], timeout: float) -> None:
    """Make sure that without an error all tests pass: otherwise every error would count as killed."""
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    code, output = run_tests(root, tests, timeout)
    if code != _PASSED:
        raise SystemExit(f"without any planted error not all tests pass:\n{output[-3000:]}")


def summary(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """Return how many there are of each result."""
    counts = {result: sum(one.result == result for one in outcomes) for result in (KILLED, SURVIVED, TIMEOUT, BROKEN)}
    return {"total": len(outcomes), **counts}


def write(path: Path, outcomes: Sequence[Outcome], mutants: Sequence[Mutant]) -> None:
    """Write the results as JSON data; of errors that were not tried this time, the last results are kept."""
    before = json.loads(path.read_text())["mutants"] if path.exists() else []
    known = {one.id: one for one in [*(Outcome(**row) for row in before), *outcomes]}
    rows = [known[mutant.id] for mutant in mutants if mutant.id in known]
    content = {
        "date": max(one.date for one in rows),
        "seconds": round(sum(one.seconds for one in rows)),
        **summary(rows),
        "mutants": [vars(one) for one in rows],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


def by_folder(path: Path, mutants: Sequence[Mutant]) -> list[str]:
    """Return the results as rows of a Markdown table, one per folder: planted and noticed."""
    results = {row["id"]: row["result"] for row in json.loads(path.read_text())["mutants"]}
    folders: dict[str, list[str]] = {}
    for mutant in mutants:
        if mutant.id in results:
            folders.setdefault(mutant.file.rpartition("/")[0] or mutant.file, []).append(results[mutant.id])
    return [f"| `{folder}` | {len(found)} | {found.count(KILLED)} |" for folder, found in sorted(folders.items())]


def chosen(mutants: Sequence[Mutant], names: Sequence[str]) -> list[Mutant]:
    """Return the errors with these names, all without names."""
    unknown = set(names) - {mutant.id for mutant in mutants}
    if unknown:
        raise SystemExit(f"no such errors: {', '.join(sorted(unknown))}")
    return [mutant for mutant in mutants if not names or mutant.id in names]


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant the errors and report; 0 if every one of them was noticed."""
    parser = argparse.ArgumentParser(description="plant errors, one at a time, and see which the tests notice")
    parser.add_argument("ids", nargs="*", help="which errors (default: all)")
    parser.add_argument("--list", action="store_true", help="only list them")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for the tests of one error")
    parser.add_argument("--write", type=Path, help="add the results to a JSON file, keeping those of other errors")
    parser.add_argument("--trust-clean", action="store_true", help="do not run the tests without an error first")
    options = parser.parse_args(arguments)
    mutants = chosen(table(), options.ids)
    for mutant in mutants:
        mutant.planted(ROOT)
        if options.list:
            print(f"{mutant.id:34} {mutant.file:40} {mutant.harm}")
    if options.list:
        return 0
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded, or its threads would be lost in a fork
    for name in _SLOW_TO_LOAD:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory(prefix="mutants-") as place:
        root = Path(place)
        copied(ROOT, root)
        if not options.trust_clean:
            check_clean(root, mutants, 20 * options.timeout)
        outcomes = []
        for mutant in mutants:
            one = tried(mutant, root, options.timeout)
            outcomes.append(one)
            print(f"{one.id:34} {one.result:9} {one.seconds:6.1f} s  {one.by}", flush=True)
    print(json.dumps(summary(outcomes)))
    if options.write is not None:
        write(options.write, outcomes, table())
        print(*by_folder(options.write, table()), sep="\n")  # as docs/testing.md has it
    return 0 if all(one.result == KILLED for one in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
