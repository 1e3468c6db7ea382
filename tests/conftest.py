"""One thread per process, for the tests share the cores; without torch only the light half is tested."""

import gc
from importlib.util import find_spec

import pytest
from hypothesis import settings

from needed import NEEDS
from slow_tests import function_of, slow_functions
from surefoot.proof import episode_budget
from surefoot.proof.planning.strategies import both_sides

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
    """Mark the tests that ``make test-fast`` leaves out."""
    slow = slow_functions()
    for item in items:
        if function_of(item.nodeid) in slow:
            item.add_marker(pytest.mark.slow)


missing = {package for package in NEEDS if find_spec(package) is None}
collect_ignore = sorted({name for package in missing for name in NEEDS[package]})
if "torch" not in missing:
    import torch

    torch.set_num_threads(1)

    import surefoot.cli.report  # noqa: F401 - draws what it is asked to draw, so it takes what follows as it is
    from surefoot.runs import finish, taped_episode

    # A report's recorded episode takes longer than all else in a small run; few tests look at it (``whole_tapes``).
    WHOLE = taped_episode.MOST_STEPS
    taped_episode.MOST_STEPS = 12

    # So does its figure, which few tests look at (``drawn_figures``): the others get an empty one.
    DRAWN = finish.write_figure

    def empty_figure(path, certificate, baseline):
        import matplotlib  # noqa: F401 - without it there is no figure

        path.write_bytes(b"\x89PNG\r\n\x1a\n")

    finish.write_figure = empty_figure


@pytest.fixture(scope="module")
def whole_tapes():
    """Record whole episodes in the tests of a module."""
    taped_episode.MOST_STEPS, short = WHOLE, taped_episode.MOST_STEPS
    yield
    taped_episode.MOST_STEPS = short


@pytest.fixture
def drawn_figures(monkeypatch):
    """Draw the figures of runs."""
    monkeypatch.setattr(finish, "write_figure", DRAWN)


ELSEWHERE = {"agents", "cli", "play", "report", "runs", "study", "train"}  # folders whose tests are not about bets
MADE = {}


def known_bets(returns, radii, *options, **more):
    asked = (returns.tobytes(), radii.tobytes(), *options, *more.values())
    if asked not in MADE:
        MADE[asked] = both_sides(returns, radii, *options, **more)
    return MADE[asked]


@pytest.hookimpl(tryfirst=True)  # before fixtures, which make runs too
def pytest_runtest_setup(item):
    """Bet once on the same returns: runs, and pages that compare methods, do it in test after test."""
    known = item.path.parent.name in ELSEWHERE and "computed_bets" not in item.fixturenames
    episode_budget.both_sides = known_bets if known else both_sides


@pytest.fixture
def computed_bets():
    """Bet each time."""
