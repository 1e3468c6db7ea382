"""Every file of a run directory is looked at: the second certificate as well as the first, and one that is missing."""

import shutil

import numpy as np
import pytest

from surefoot.agents import files as zoo
from surefoot.files import read_json, write_json
from surefoot.play.tasks import get_task
from surefoot.proof.query import Query
from surefoot.proof.shared_budget import SharedBudget
from surefoot.proof.step_budget import StepBudget
from surefoot.runs.certified import certified_run
from surefoot.verification.verify import verify
from toys import plan_for

NAMES = {
    "certificate.json": Query(budgets=(0.0, 0.2)),
    "shared.json": Query(budgets=(0.0, 0.2), threat=SharedBudget(3)),
}
NAMES["per-step.json"] = Query(budgets=(0.0, 0.01), threat=StepBudget())


@pytest.fixture(scope="module")
def made(tmp_path_factory, small_blocks):
    """One run with certificates of all three kinds."""
    folder = tmp_path_factory.mktemp("run") / "run"
    plan = plan_for(get_task("cartpole-1"), zoo.load("cartpole-1-s0.2"), 0.2, 60, per_step=True)
    for query in NAMES.values():
        certified_run(plan, query, folder, figure=False)
    return folder


@pytest.fixture
def run(made, tmp_path):
    return shutil.copytree(made, tmp_path / "run")


def failed(folder):
    verdict = verify(folder, blocks=0)
    return [check.name for check in verdict.checks if check.result == "failed"]


def test_an_honest_run_with_all_kinds_is_verified(run):
    verdict = verify(run, blocks=0)
    assert failed(run) == []
    assert {name for name in NAMES if any(check.name.startswith(name) for check in verdict.checks)} == {
        "shared.json",
        "per-step.json",
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_raised_bound_is_noticed_in_whichever_certificate_it_is(run, name):
    content = read_json(run / name)
    lower = [min(float(np.nextafter(content["ceiling"], 0)), bound + 1.0) for bound in content["lower"]]
    write_json(run / name, {**content, "lower": lower})
    prefix = "" if name == "certificate.json" else f"{name}: "
    found = failed(run)
    assert found
    assert all(one.startswith(prefix) for one in found)


def test_a_run_that_was_run_and_has_no_setup_is_noticed(run):
    """setup.json is what was fixed before the first episode: without it nothing says what was."""
    (run / "setup.json").unlink()
    assert failed(run) == ["setup.json and episode data"]


def test_precomputed_returns_have_no_setup(run):
    (run / "setup.json").unlink()
    write_json(run / "run.json", {**read_json(run / "run.json"), "played": False})
    assert failed(run) == []


def test_another_setup_or_agent_than_that_of_the_episodes_is_noticed(run):
    for name, check in (("setup.json", "setup.json and episode data"), ("run.json", "run.json and episode data")):
        content = read_json(run / name)
        write_json(run / name, {**content, "agent_sha256": "0" * 64})
        assert failed(run) == [check]
        write_json(run / name, content)
