"""The list of planted errors still fits the code, and the tool that plants them tells killed from survived."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

import mutants
from mutants import BROKEN, KILLED, ROOT, SURVIVED, TIMEOUT, Mutant, Outcome

TABLE = mutants.table()


@pytest.mark.parametrize("mutant", TABLE, ids=lambda mutant: mutant.id)
def test_every_error_of_the_list_still_applies(mutant):
    """Where code has moved or changed, rewrite the error for the new code, or remove it if it cannot be made there."""
    mutant.planted(ROOT)
    assert mutant.harm
    assert mutant.tests
    for test in mutant.tests:
        path, _, name = test.partition("::")
        source = (ROOT / path).read_text()
        assert not name or f"def {name}(" in source, test


def test_the_list_is_long_and_every_name_stands_once():
    assert len({mutant.id for mutant in TABLE}) == len(TABLE) >= 60


def test_the_documentation_shows_the_last_result():
    result = json.loads(mutants.RESULTS.read_text())
    assert result["total"] == len(result["mutants"]) >= 60
    text = (ROOT / "docs" / "testing.md").read_text()
    assert f"On {result['date']} the tests noticed {result['killed']} of {result['total']} planted errors" in text
    for line in mutants.by_folder(mutants.RESULTS, TABLE):
        assert line in text


# --- the tool ---------------------------------------------------------------------------------------------------------

SOURCE = "import time\n\n\ndef twice(x):\n    return 2 * x\n\n\ndef thrice(x):\n    return 3 * x\n"
TESTS = "from surefoot.toy import thrice, twice\n\n\ndef test_twice():\n    assert twice(2) == 4\n"
TOY = Mutant(id="toy", file="toy.py", old="2 * x", new="x ** 2 + 1", harm="none", tests=("test_toy.py",))


@pytest.fixture
def repository(tmp_path):
    """A repository with one module, one tested function and one that is not."""
    package = tmp_path / "src" / "surefoot"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "toy.py").write_text(SOURCE)
    (tmp_path / "test_toy.py").write_text(TESTS)
    return tmp_path


PLANTED = {
    ("2 * x", "2 + x + 1"): (KILLED, "test_toy.py::test_twice"),
    ("2 * x", "2 + x"): (SURVIVED, ""),  # twice two is two plus two
    ("2 * x", "time.sleep(600)"): (TIMEOUT, "no end within 1 s"),
    ("def thrice", "def nice"): (BROKEN, "1 error"),  # the tests cannot be loaded, so none has looked
}
# In a process of its own: this one has loaded the package.
RUN = """
import json, sys
from pathlib import Path
from mutants import Mutant, tried
for row in json.loads(sys.argv[2]):
    outcome = tried(Mutant(**row), Path(sys.argv[1]), 1.0 if "sleep" in row["new"] else 120.0)
    print(json.dumps([outcome.result, outcome.by]))
"""


def test_the_tool_tells_killed_from_survived(repository):
    rows = [vars(replace(TOY, old=old, new=new)) for old, new in PLANTED]
    command = [sys.executable, "-c", RUN, str(repository), json.dumps(rows)]
    run = subprocess.run(command, cwd=ROOT / "tests", capture_output=True, text=True, check=True)
    for line, (result, by) in zip(run.stdout.splitlines(), PLANTED.values(), strict=True):
        found = json.loads(line)
        assert found[0] == result, found
        assert by in found[1], found
    assert (repository / "src" / "surefoot" / "toy.py").read_text() == SOURCE  # put back


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"old": "5 * x"}, "occurs 0 times in toy.py, not once"),
        ({"old": "* x"}, "occurs 2 times in toy.py, not once"),
        ({"file": "toys.py"}, "no file src/surefoot/toys.py"),
        ({"new": "(2 * x)"}, "changes nothing"),
    ],
)
def test_an_error_that_does_not_apply_is_named(repository, change, match):
    with pytest.raises(ValueError, match=match):
        replace(TOY, **change).planted(repository)


def test_results_of_errors_that_were_not_tried_are_kept(tmp_path):
    rows = [replace(TOY, id=name) for name in ("a", "b", "c")]
    first = [Outcome(id=name, result=SURVIVED, by="", seconds=1.0, date="2026-01-01") for name in ("a", "b", "gone")]
    mutants.write(tmp_path / "x.json", first, [*rows, replace(TOY, id="gone")])
    mutants.write(tmp_path / "x.json", [Outcome(id="b", result=KILLED, by="t", seconds=2.0)], rows)
    made = json.loads((tmp_path / "x.json").read_text())
    assert [(row["id"], row["result"]) for row in made["mutants"]] == [("a", SURVIVED), ("b", KILLED)]
    assert (made["total"], made["killed"], made["survived"], made["seconds"]) == (2, 1, 1, 3)
    assert made["date"] == made["mutants"][1]["date"] > "2026-01-01"


def test_unknown_names_are_refused():
    with pytest.raises(SystemExit, match="no such errors: nobody"):
        mutants.chosen(TABLE, ["nobody"])
