"""The files of tests and the lists of those left out: every name exists, and times are summed over parameters."""

import re
from pathlib import Path

from needed import NEEDS
from slow_tests import function_of, measured, slow_names

HERE = Path(__file__).parent


def test_every_name_is_a_test():
    for name in slow_names():
        file, _, function = name.partition("::")
        text = (HERE / file).read_text()
        assert not function or re.search(rf"^def {function}\(", text, re.M), name


def test_no_two_files_have_one_name():
    """They are imported by it, and the second one cannot be."""
    names = [path.name for path in HERE.rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


def test_every_name_that_needs_a_package_exists():
    for names in NEEDS.values():
        assert not [name for name in names if not (HERE / name).exists()]


def test_a_log_is_summed_by_function():
    log = """
0.30s call     tests/a/test_b.py::test_c[1]
0.20s setup    tests/a/test_b.py::test_c[2-x]
0.15s call     tests/a/test_b.py::test_d
0.50s setup    tests/a/test_e.py::test_f
0.10s call     tests/a/test_e.py::test_g
"""
    assert measured(log) == ["a/test_b.py::test_c 0.5", "a/test_e.py 0.6"]
    assert function_of("tests/a/test_b.py::test_c[1]") == "a/test_b.py::test_c"
