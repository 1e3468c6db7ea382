"""One thread per process, for the tests share the cores; without torch only the light half is tested."""

import gc
from importlib.util import find_spec

import pytest
from hypothesis import settings

from needed import NEEDS
from slow_tests import function_of, slow_functions

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
    from surefoot.report import curves
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

    # So do the methods that its page compares: the same ones of the same episodes in test after test.
    ANSWER, answers = curves._answer, {}

    def known_answer(episodes, stated, method, spacing):
        asked = (episodes.sha256, *stated.budgets.tolist(), stated.confidence, method, spacing)
        if asked not in answers:
            answers[asked] = ANSWER(episodes, stated, method, spacing)
        return answers[asked]

    curves._answer = known_answer


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


@pytest.fixture
def computed_answers(monkeypatch):
    """Compute all that is on a page."""
    monkeypatch.setattr(curves, "_answer", ANSWER)
