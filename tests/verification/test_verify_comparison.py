"""Verification of comparisons: an honest one has its bounds recomputed, and every forged number is noticed."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import surefoot
from surefoot.episodes import Episodes

SEEDS = list(range(60))


def record(returns, **metadata):
    known = {"episode_seeds": SEEDS, **metadata}
    if known["episode_seeds"] is None:
        del known["episode_seeds"]
    return Episodes.from_returns(returns, sigma=0.2, floor=0.0, ceiling=1.0, **known)


def made_of(kind):
    rng = np.random.default_rng(4)
    a = rng.beta(5, 1, 60)
    b = np.clip(a - 0.2 + 0.1 * rng.normal(size=60), 0, 1)
    if kind == "wins":
        return record(np.round(a), binary=True), record(np.round(b), binary=True)
    if kind == "unpaired":
        return record(a, episode_seeds=None), record(b[:50], episode_seeds=SEEDS[:50])
    return record(a), record(b)


@pytest.fixture(scope="module", params=["pairs", "wins", "unpaired"])
def honest(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param) / "run"
    budgets = (0.1,) if request.param == "pairs" else ()
    surefoot.compare(*made_of(request.param), budgets=budgets, margin=0.1, out=folder)
    return folder


def failed(folder):
    verdict = surefoot.verify(folder, blocks=0)
    return {check.name: check.detail for check in verdict.checks if check.result != "passed" and check.name != "replay"}


def test_an_honest_comparison_follows_from_its_returns(honest):
    assert failed(honest) == {}
    assert surefoot.verify(honest, blocks=0).bounds_recomputed


def forge(content, field):
    """Change one field for the better, or into something else."""
    better = {
        "low": content["low"] + 0.01,
        "high": content["high"] - 0.01,
        "resolution": content["resolution"] / 2,
        "confidence": 0.99,
        "winner": "B",
        "passed": not content["passed"],
        "pairing": "independent",
        "means": [content["means"][0] + 0.01, content["means"][1]],
        "n_episodes": [70, 70],
        "n_pairs": 70,
        "ceiling": 0.999,
        "gate": {"margin": 0.5},
        "anytime": True,
        "planner": -1,
        "attacked_by": "nobody",
        "budgets": [0.3],
        "unknown": 1,
    }
    return {**content, field: better[field]}


FIELDS = ("low", "high", "resolution", "confidence", "winner", "passed", "pairing", "means", "n_episodes", "n_pairs")
FIELDS += ("ceiling", "anytime", "planner", "attacked_by", "budgets", "unknown")


@pytest.mark.parametrize("field", FIELDS)
def test_every_forged_number_is_noticed(honest, field, tmp_path):
    folder = tmp_path / "forged"
    shutil.copytree(honest, folder)
    path = folder / "comparison.json"
    path.write_text(json.dumps(forge(json.loads(path.read_text()), field)))
    assert failed(folder)


@pytest.mark.parametrize("what", ["bound of A", "bound of B", "changed episode", "count"])
def test_rows_and_changes_are_checked_too(what, tmp_path):
    folder = tmp_path / "run"
    surefoot.compare(*made_of("pairs"), budgets=(0.1,), out=folder)
    path = folder / "comparison.json"
    content = json.loads(path.read_text())
    if what == "bound of A":
        content["attacked"][0]["lower"] += 0.01
    elif what == "bound of B":
        content["attacked"][0]["upper"] -= 0.01
    elif what == "changed episode":
        content["changes"]["largest"][0][1] += 0.01
    else:
        content["changes"]["higher"] += 1
    path.write_text(json.dumps(content))
    assert "bounds" in failed(folder)


def test_other_returns_and_rows_in_another_order_are_noticed(tmp_path):
    """Planted: B's seeds shifted by one, so that every episode is paired with that of another seed."""
    a, b = made_of("pairs")
    surefoot.compare(a, b, out=tmp_path / "run")
    for forged in (record(b.returns, episode_seeds=np.roll(SEEDS, 1).tolist()), record(np.sort(b.returns))):
        forged.save(tmp_path / "run" / "B" / "episodes.npz")
        assert "B: certificate and episode data" in failed(tmp_path / "run")


def test_a_seed_that_comes_twice_is_no_pairing(tmp_path):
    a, b = made_of("pairs")
    twice = record(b.returns, episode_seeds=[0, *SEEDS[:-1]])
    with pytest.raises(surefoot.InputError, match="none twice"):
        surefoot.compare(a, twice)
    surefoot.compare(a, b, out=tmp_path / "run")
    twice.save(tmp_path / "run" / "B" / "episodes.npz")
    assert "none twice" in failed(tmp_path / "run")["bounds"]


def test_a_damaged_comparison_is_no_crash(tmp_path):
    folder = tmp_path / "run"
    surefoot.compare(*made_of("pairs"), out=folder)
    content = json.loads((folder / "comparison.json").read_text())
    for wrong in ({"sides": {"A": {}}}, {"changes": 3}, {"confidence": "high"}, {"attacked": None}):
        (folder / "comparison.json").write_text(json.dumps({**content, **wrong}))
        assert failed(folder)
    Path(folder / "A" / "episodes.npz").write_bytes(b"nothing")
    assert failed(folder)
