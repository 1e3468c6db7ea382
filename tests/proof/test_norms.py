"""Budgets in other norms: the inclusion itself, what the command makes of it, and the check of it."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.cli import main as cli
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.proof.query import Norm, Query
from surefoot.verification.verify import verify


@given(st.lists(st.floats(-10, 10), min_size=6, max_size=6))
def test_every_vector_is_included(entries):
    offsets = np.array(entries).reshape(3, 2)
    size = np.linalg.norm(offsets.ravel())
    assert size <= Norm(name="l1", coordinates=2, observations=3).in_l2([np.abs(offsets).sum()])[0]
    assert size <= Norm(name="linf", coordinates=2, observations=3).in_l2([np.abs(offsets).max()])[0]


def test_no_rounding_leaves_anything_outside():
    """Exactly: the square of the l2 budget is at least that of the other one times the number of entries."""
    rng = np.random.default_rng(0)
    for coordinates, observations in rng.integers(1, 10_000, (200, 2)).tolist():
        budget = float(rng.random())
        (in_l2,) = Norm(name="linf", coordinates=coordinates, observations=observations).in_l2([budget])
        assert Fraction(in_l2) ** 2 >= coordinates * observations * Fraction(budget) ** 2


NORM = Norm(name="linf", coordinates=2, observations=3)


def test_the_factor_is_attained():
    assert np.linalg.norm(np.full(6, 0.3)) == pytest.approx(0.3 * NORM.factor)
    assert Norm(name="l1", coordinates=None, observations=None).factor == 1
    assert Norm(name="linf", coordinates=4, observations=200).factor == pytest.approx(math.sqrt(800))


def test_all_else_that_is_asked_is_asked_in_any_norm():
    """The certificate is that of the larger l2 budgets, with the same method, confidence and quantiles."""
    episodes = Episodes.from_returns([3.0, 4.0, 9.0, 9.0] * 30, sigma=5.0, floor=0, ceiling=10)
    asked = {"method": "dkw", "confidence": 0.8, "quantiles": (0.5,)}
    made = Query(budgets=(0.0, 0.4), norm=NORM, **asked).answer(episodes)
    plain = Query(budgets=NORM.in_l2([0.0, 0.4]), **asked).answer(episodes)
    assert (made.method, made.confidence) == ("dkw", 0.8)
    assert made.lower.tolist() == plain.lower.tolist()
    assert made.requested["quantiles"] == plain.requested["quantiles"]
    assert made.requested["norm"]["budgets"] == [0.0, 0.4]


@pytest.mark.parametrize(
    ("norm", "match"), [(("l3", 1, 1), "norm must be one of l2, l1, linf"), (("linf", None, None), "size of an")]
)
def test_bad_input_is_named(norm, match):
    with pytest.raises(InputError, match=match):
        Norm(name=norm[0], coordinates=norm[1], observations=norm[2])


RUN = ["certify", "cartpole-1", "--sigma", "0.4", "--episodes", "60", "--workers", "1", "--out", "run", "--quiet"]


@pytest.mark.parametrize(
    ("options", "name", "factor"),
    [
        (["--norm", "linf", "--method", "paper"], "certificate.json", math.sqrt(4 * 200)),
        (["--norm", "l1", "--method", "paper"], "certificate.json", 1.0),
        (["--norm", "linf", "--shared-episodes", "3"], "shared.json", math.sqrt(4 * 200 * 3)),
        (["--norm", "linf", "--per-step"], "per-step.json", 2.0),
    ],
)
def test_the_command_converts_says_so_and_verify_checks_it(tmp_path, monkeypatch, capsys, options, name, factor):
    monkeypatch.chdir(tmp_path)
    assert cli.main([*RUN, *options, "--budgets", "0,0.01"]) == 0
    shown = capsys.readouterr().out
    assert f"Perturbations with {options[1]} norm b have an l2 norm of at most {factor:.6g} b." in shown
    assert f"with {options[1]} budget 0.01" in " ".join(shown.split())
    assert "0.010000000000" not in shown
    path = tmp_path / "run" / name
    made = json.loads(path.read_text())
    assert made["budgets"][1] == pytest.approx(0.01 * factor)
    assert made["norm"]["budgets"] == [0, 0.01]
    assert verify("run", blocks=1, fresh=8).verified
    prefix = "" if name == "certificate.json" else f"{name}: "
    for change in ({"budgets": [0, 0.02]}, {"factor": 0.5}, {"observations": 7}, {"name": "l0"}):
        path.write_text(json.dumps({**made, "norm": {**made["norm"], **change}}))
        failed = {check.name for check in verify("run", blocks=0).checks if check.result == "failed"}
        assert failed == {f"{prefix}bounds"}, change
    path.write_text(json.dumps({**made, "norm": {**made["norm"], "coordinates": 1}}))
    assert not verify("run", blocks=1, fresh=8).verified


def test_returns_know_no_coordinates(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save("r.npy", np.ones(10))
    given = ["certify", "--returns", "r.npy", "--sigma", "1", "--floor", "0", "--norm"]
    assert cli.main([*given, "linf"]) == 2
    assert "needs the size of an observation" in capsys.readouterr().err
    assert cli.main([*given, "l1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["norm"]["name"] == "l1"
