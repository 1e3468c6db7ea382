"""Every row of the table of forgeries, and random ones: none that claims too much is verified."""

import copy
import json
import shutil

import numpy as np
import pytest
from forgeries import BUDGETS, ROWS, Run, forge
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surefoot.agents import files as zoo
from surefoot.cli import main as cli
from surefoot.errors import InputError
from surefoot.play.tasks import get_task
from surefoot.proof.query import Query
from surefoot.proof.shared_budget import SharedBudget
from surefoot.proof.step_budget import StepBudget
from surefoot.proof.threats import EPISODE
from surefoot.runs.certified import certified_run
from surefoot.verification.verify import verify
from toys import plan_for
from verdicts import problems

THREATS = {"certificate.json": EPISODE, "shared.json": SharedBudget(5), "per-step.json": StepBudget()}


@pytest.fixture(scope="module")
def honest(tmp_path_factory, small_blocks):
    """A real run of four blocks for each kind of certificate, as the command leaves it."""
    folders = {}
    for name, threat in THREATS.items():
        plan = plan_for(
            get_task("cartpole-1"), zoo.load("cartpole-1-s0.4"), 0.4, 100, seed=5, per_step=name == "per-step.json"
        )
        method = "paper" if name == "certificate.json" else None
        folders[name] = tmp_path_factory.mktemp("honest") / "run"
        query = Query(budgets=tuple(BUDGETS[name]), threat=threat, method=method)
        certified_run(plan, query, folders[name], figure=False)
    return folders


def test_the_honest_runs_are_verified_and_so_is_what_the_table_writes_back(honest, tmp_path):
    for name, folder in honest.items():
        assert problems(verify(folder, fresh=8)) == {}
        shutil.copytree(folder, tmp_path / name)
        run = Run.read(tmp_path / name)
        run.recertify()
        run.write()
        assert problems(verify(tmp_path / name, fresh=8)) == {}


def test_a_certificate_of_another_schema_is_bad_input(honest, tmp_path):
    shutil.copytree(honest["certificate.json"], tmp_path / "run")
    run = Run.read(tmp_path / "run")
    schema = run.certificate["schema"]
    for other in (schema + 1, schema - 0.5, str(schema), True, None):
        run.certificate["schema"] = other
        run.write()
        with pytest.raises(InputError, match=f"this version reads {schema}"):
            verify(tmp_path / "run", blocks=0)


def test_the_table_is_long_and_has_every_threat():
    assert len({row for row, _ in ROWS}) >= 60
    assert len(ROWS) >= 150
    assert {name for _, name in ROWS} == set(THREATS)


@pytest.mark.parametrize(("row", "name"), ROWS, ids=[f"{row}, {name}" for row, name in ROWS])
def test_a_forgery_is_caught_by_the_check_that_the_table_names(row, name, honest, tmp_path):
    shutil.copytree(honest[name], tmp_path / "run")
    caught = forge(tmp_path / "run", row)
    expected = {*caught, *(f"{name}: {check}" for check in caught)}
    found = problems(verify(tmp_path / "run", blocks=0))
    if not expected & set(found):  # only then the episodes have to be rerun, as they are by default
        assert not found, found
        found = problems(verify(tmp_path / "run", fresh=8))
    assert expected & set(found), found or "verified"


# --- random forgeries -----------------------------------------------------------------------------------------------

SCRAPS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=5),
    st.just("\x1b[2J"),
)
JSON = st.recursive(
    SCRAPS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)
PLACES = st.sampled_from(["certificate", "certificate", "certificate", "setup", "written", "notes", "arrays"])


@st.composite
def changes(draw):
    """What to change: where, which of the keys there (or a new one), and into what."""
    return draw(PLACES), draw(st.integers(0, 40)), draw(st.one_of(JSON, st.floats(-1e3, 1e3), st.just("drop")))


def scrambled(values, change):
    if isinstance(values, list) and values and isinstance(change, float):
        return [*values[:-1], change]
    return change


def apply(run, place, which, change):
    target = getattr(run, place)
    keys = [*sorted(target), "new"]
    key = keys[which % len(keys)]
    if place == "arrays":
        old = np.asarray(target.get(key, np.zeros(3)))
        ways = [old * 2, old[::-1].copy(), old[:-1].copy(), old.astype(np.float32), np.vstack([old, old]), old + 1]
        target[key] = ways[which % len(ways)]
    elif change == "drop":
        target.pop(key, None)
    else:
        target[key] = scrambled(target.get(key), change)


def allowed(run, honest):
    """Return whether the certificate claims no more than the honest one does."""
    mine, true = run.certificate, honest.certificate
    same = all(mine.get(key) == true[key] for key in ("sigma", "confidence", "budgets", "floor", "ceiling", "method"))
    return same and all(a <= b + 1e-9 for a, b in zip(mine["lower"], true["lower"], strict=True))


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(THREATS)), st.lists(changes(), min_size=1, max_size=3), st.booleans())
def test_random_forgeries_are_caught_without_a_traceback(honest, tmp_path_factory, name, made, rehashed):
    folder = tmp_path_factory.mktemp("random")
    run = Run.read(honest[name])
    run.folder = folder
    for place, which, change in made:
        apply(run, place, which, copy.deepcopy(change))
    if rehashed:
        try:
            run.rehash()
        except (TypeError, ValueError, KeyError):
            return  # a setup that cannot even be hashed
    try:
        run.write()
    except (TypeError, ValueError, InputError):
        return  # what cannot be written cannot be read
    try:
        verdict = verify(folder, blocks=0)
        json.dumps(verdict.to_json(), allow_nan=False)
        if verdict.verified and not allowed(run, Run.read(honest[name])):
            assert not verify(folder).verified, made
    except InputError:
        return
    finally:
        shutil.rmtree(folder)


def test_ten_thousand_invented_returns_in_blocks_of_one(honest, tmp_path, capsys):
    """They were verified 30 times of 30, because four single episodes were rerun."""
    shutil.copytree(honest["certificate.json"], tmp_path / "run")
    run = Run.read(tmp_path / "run")
    run.setup.update(n_envs=1, block_size=1, n_planned=10_000)
    run.arrays = {"returns": np.full(10_000, 200.0), "lengths": np.full(10_000, 200)}
    run.recertify()
    run.write()
    assert cli.main(["verify", str(tmp_path / "run")]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("FAILED: ")
    assert "n_envs is 1 and 30" in shown
    assert "Do not rely on this certificate." in shown
