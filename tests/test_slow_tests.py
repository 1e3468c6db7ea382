"""The lists of tests that are left out: every name exists, and times are summed over parameters."""

import re
from pathlib import Path

from needed import NEEDS
from slow_tests import function_of, measured, slow_functions

HERE = Path(__file__).parent


def test_every_name_is_a_test():
    for name in slow_functions():
        file, function = name.split("::")
        assert re.search(rf"^def {function}\(", (HERE / file).read_text(), re.M), name


def test_every_name_that_needs_a_package_exists():
    for names in NEEDS.values():
        assert not [name for name in names if not (HERE / name).exists()]


def test_a_log_is_summed_by_function():
    log = """
0.30s call     tests/a/test_b.py::test_c[1]
0.20s setup    tests/a/test_b.py::test_c[2-x]
0.35s call     tests/a/test_b.py::test_d
"""
    assert measured(log) == ["a/test_b.py::test_c 0.5"]
    assert function_of("tests/a/test_b.py::test_c[1]") == "a/test_b.py::test_c"
