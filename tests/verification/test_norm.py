"""Budgets of another norm: which l2 budgets they need depends on how many observations one budget covers."""

from math import sqrt

import pytest

from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.verification.bounds import check_norm
from surefoot.verification.recompute.run_files import Raw
from surefoot.verification.rerun import _check_coordinates
from surefoot.verification.verdict import Verdict
from toys import balancer, short_pole

MAX_STEPS = 200
COORDINATES = 4
# How many observations the budget of each kind of certificate covers.
COVERED = {"certificate.json": MAX_STEPS, "shared.json": 5 * MAX_STEPS, "per-step.json": 1}


def claimed(file, /, **changes):
    """Return a certificate of l-infinity budgets, with one field of its norm changed."""
    observations = changes.get("observations", COVERED[file])
    norm = {"name": "linf", "budgets": [0.0, 0.1], "coordinates": COORDINATES, "observations": observations}
    factor = sqrt(norm["coordinates"] * observations)
    norm |= {"factor": factor, **changes}
    certificate = {"norm": norm, "budgets": [0.0, factor * 0.1]}
    if file == "shared.json":
        certificate["n_shared_episodes"] = 5
    return Raw(file, certificate, {"max_steps": MAX_STEPS}, {}, None, None)


@pytest.mark.parametrize("name", COVERED)
def test_a_norm_covers_as_many_observations_as_its_certificate(name):
    assert check_norm(claimed(name)) == []
    for other in {*COVERED.values()} - {COVERED[name]}:
        (wrong,) = check_norm(claimed(name, observations=other))
        assert wrong == f"the norm 'linf' over {other} observations is not that of the setup"


@pytest.mark.parametrize("changes", [{"factor": 1.0}, {"budgets": [0.0, 0.11]}, {"budgets": [0.0]}, {"name": "l1"}])
def test_the_l2_budgets_must_include_those_of_the_norm(changes):
    assert check_norm(claimed("certificate.json", **changes)) == ["the l2 budgets do not follow from the norm"]


@pytest.mark.parametrize("name", COVERED)
def test_no_norm_but_l2_puts_observations_and_actions_together(name):
    on_actions = claimed(name)
    on_actions.certificate.update(sigma=0.0, action_sigma=0.3)
    assert check_norm(on_actions) == []
    on_both = claimed(name)
    on_both.certificate.update(sigma=0.2, action_sigma=0.3)
    (wrong,) = check_norm(on_both)
    assert "no norm but l2" in wrong


@pytest.mark.parametrize("name", ["l2", "l0", "max", None])
def test_of_other_norms_nothing_is_known(name):
    """Without a factor its budgets would be those of l2, which other norms may exceed by any factor."""
    raw = claimed("certificate.json", name=name, factor=1.0)
    raw.certificate["budgets"] = [0.0, 0.1]
    (wrong,) = check_norm(raw)
    assert wrong.startswith(f"the norm {name!r} over")
    as_l1 = claimed("certificate.json", name="l1", factor=1.0)
    as_l1.certificate["budgets"] = [0.0, 0.1]
    assert check_norm(as_l1) == []


@pytest.mark.parametrize("coordinates", [[COORDINATES, COORDINATES], [COORDINATES, 3], [3, COORDINATES], [None, 5]])
def test_every_certificate_of_a_directory_says_how_many_coordinates_there_are(coordinates):
    """With fewer the l2 budgets are too small; the episode data do not say it, so that the plan must."""
    plan = Plan(task=short_pole(10), policy=balancer(), noise=Noise.of(0.2), n_episodes=10)
    verdict = Verdict(run="")
    names = ("certificate.json", "shared.json")
    raws = []
    for name, count in zip(names, coordinates, strict=True):
        raws.append(Raw(name, {"norm": {"coordinates": count}}, {}, {}, None, None))
    _check_coordinates(raws, plan, verdict)
    results = {check.name.partition(":")[0]: check.result for check in verdict.checks}
    expected = {}
    for name, count in zip(names, coordinates, strict=True):
        if count is not None:
            expected[name] = "passed" if count == COORDINATES else "failed"
    assert results == expected
