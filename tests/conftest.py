"""One thread per process, for the tests share the cores; without torch only the light half is tested."""

import gc
import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

from needed import NEEDS
from slow_tests import file_of, function_of, seconds_of_files, slow_names

# The same examples every time: a failure is the code's, never the draw's.
settings.register_profile("fixed", derandomize=True)
settings.load_profile("fixed")


# What the modules define stays: to look through it for garbage again and again takes a third of the collection.
gc.disable()


def pytest_collection_finish():
    """Look for garbage from now on, but not among what was imported."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items):
    """Mark the tests that ``make test-fast`` leaves out, and begin with the files that take longest."""
    slow = slow_names()
    for item in items:
        if function_of(item.nodeid) in slow or file_of(item.nodeid) in slow:
            item.add_marker(pytest.mark.slow)
    seconds = seconds_of_files()
    items.sort(key=lambda item: -seconds[file_of(item.nodeid)])


# Files are written safely, and a disk takes milliseconds for each: where there is room, the tests' folder is in memory.
MEMORY = Path("/dev/shm")
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4e9:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

missing = {package for package in NEEDS if find_spec(package) is None}
collect_ignore = sorted({name for package in missing for name in NEEDS[package]})
if "torch" not in missing:
    import torch

    torch.set_num_threads(1)


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    """Run in an empty folder."""
    monkeypatch.chdir(tmp_path)
