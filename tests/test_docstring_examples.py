"""Every public name has an example in its docstring, and what it shows is what it prints."""

import doctest
import inspect

import pytest

import surefoot


def examples_of(name):
    """Return the examples in the docstring of a public name, not those of its methods."""
    try:
        public = getattr(surefoot, name)
    except ModuleNotFoundError as error:  # without torch or gymnasium
        pytest.skip(str(error))
    parser = doctest.DocTestParser()
    return parser.get_doctest(inspect.getdoc(public) or "", {}, name, None, None)


def shown_otherwise(test):
    """Return how many examples print something else than they show."""
    return doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, clear_globs=False).failed


@pytest.mark.parametrize("name", surefoot.__all__)
def test_the_example_of_a_public_name_prints_what_it_shows(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    test = examples_of(name)
    assert test.examples, f"surefoot.{name} has no example"
    assert shown_otherwise(test) == 0


def test_planted_an_example_that_shows_something_else_is_found(capsys):
    wrong = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "planted", None, None)
    assert shown_otherwise(wrong) == 1
    assert "Expected:" in capsys.readouterr().out
