"""Budgets of another norm: which l2 budgets they need depends on how many observations one budget covers."""

from math import sqrt

import pytest

from surefoot.verification.bounds import check_norm
from surefoot.verification.recompute.run_files import Raw

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


@pytest.mark.parametrize("name", ["shared.json", "per-step.json"])
def test_budgets_of_other_threats_are_not_those_of_noise_on_actions(name):
    """Their sentences are about observations, by whose sigma budgets are then not divided."""
    plain = Raw(name, {"budgets": [0.1]}, {}, {}, None, None)
    assert check_norm(plain) == []
    noisy = Raw(name, {"budgets": [0.1], "action_sigma": 0.3}, {}, {}, None, None)
    assert check_norm(noisy) == ["noise on actions is certified against l2 budgets of whole episodes alone"]
    of_episodes = Raw("certificate.json", noisy.certificate, {}, {}, None, None)
    assert check_norm(of_episodes) == []
