"""A certificate in a session of Python: figure, table, page, file; probabilities that were asked for in advance."""

import builtins
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import surefoot
from surefoot.errors import InputError
from surefoot.proof.query import Norm, Query

RETURNS = np.random.default_rng(0).integers(60, 101, 400).astype(float)
EPISODES = surefoot.Episodes.from_returns(RETURNS, sigma=0.2, floor=0, ceiling=100, agent="<b>x</b>", task="toy")


def test_probabilities_and_quantiles_that_were_asked_for_in_advance():
    asked = surefoot.certify(EPISODES, [0.0, 0.2], thresholds=[70.0], quantiles=[0.5])
    assert asked.method == "band"
    [row] = asked.requested["probabilities"]
    assert row["lower"] == [asked.probability(70.0, budget).lower for budget in (0.0, 0.2)]
    assert row["lower"][0] < (RETURNS >= 70).mean() < row["upper"][0]
    [row] = asked.requested["quantiles"]
    assert row["lower"][0] <= np.median(RETURNS) <= row["upper"][0]
    assert np.array_equal(asked.lower, surefoot.certify(EPISODES, [0.0, 0.2], method="band").lower)
    plain = surefoot.certify(EPISODES, [0.0, 0.2])
    with pytest.raises(InputError, match=r"ask for them in advance: certify\(\.\.\., thresholds="):
        plain.probability(70.0, 0.2)
    with pytest.raises(InputError, match="need a band, and the method 'betting' bets"):
        surefoot.certify(EPISODES, [0.2], method="betting", thresholds=[70.0])


def test_the_table_has_the_bounds_in_the_norm_that_was_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=dict))
    plain = surefoot.certify(EPISODES, [0.0, 0.2])
    assert plain.to_frame() == {"budget": [0.0, 0.2], "lower": plain.lower.tolist(), "upper": plain.upper.tolist()}
    norm = Norm(name="linf", coordinates=4, observations=25)
    other = Query(budgets=(0.01,), norm=norm).answer(EPISODES)
    assert other.to_frame()["budget"] == [0.01]
    assert other.budgets[0] == pytest.approx(0.1)
    open_ended = surefoot.Episodes.from_returns(RETURNS, sigma=0.2, floor=0)
    assert surefoot.certify(open_ended, [0.1]).to_frame()["upper"] is None


def test_what_is_missing_is_named(monkeypatch):
    certificate = surefoot.certify(EPISODES, [0.2])
    real = builtins.__import__

    def without(name, *others, **named):
        if name.split(".")[0] in ("pandas", "matplotlib"):
            raise ImportError(name)
        return real(name, *others, **named)

    monkeypatch.delitem(sys.modules, "surefoot.report.certificate_figure", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    for method, package in ((certificate.to_frame, "pandas"), (certificate.plot, "matplotlib")):
        with pytest.raises(InputError, match=rf"{method.__name__}\(\) needs {package}.* pip install"):
            method()


def test_a_notebook_shows_every_bound_and_no_markup_of_others():
    certificate = surefoot.certify(EPISODES, [0.0, 0.2], thresholds=[70.0])
    page = certificate._repr_html_()
    assert page.count("<tr>") == 3
    assert f"<td>{np.floor(100 * certificate.lower[1]) / 100:.2f}</td>" in page
    assert "P(return &gt;= 70) is at least" in page
    assert "<b>" not in page


def test_a_figure_and_a_file(tmp_path):
    certificate = surefoot.certify(EPISODES, [0.0, 0.2])
    lines = certificate.plot().axes[0].get_lines()
    marks = next(line for line in lines if line.get_linestyle() == "None")
    assert np.array_equal(marks.get_ydata(), certificate.lower)
    assert certificate.save(tmp_path / "mine.json") == tmp_path / "mine.json"
    assert certificate.save(tmp_path / "run") == tmp_path / "run" / "certificate.json"
    for path in (tmp_path / "mine.json", tmp_path / "run"):
        read = surefoot.Certificate.load(path)
        assert np.array_equal(read.lower, certificate.lower)
        assert read._repr_html_() == certificate._repr_html_()
        read.plot()
