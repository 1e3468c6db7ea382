"""What a certificate says of its setup is compared with that of its episodes, field by field."""

import numpy as np
import pytest

from surefoot.proof.certificate import _OPTIONAL_SETUP, _SETUP
from surefoot.verification.bounds import check_step_bounds
from surefoot.verification.claims import _COPIED, _check_facts
from surefoot.verification.recompute.bands import CannotRecomputeError
from surefoot.verification.recompute.run_files import Raw

HONEST = {"sigma": 0.2, "floor": 0.0, "ceiling": 1.0, "n_episodes": 2}


def raw_of(certificate, setup):
    return Raw("certificate.json", {**HONEST, **certificate}, {**HONEST, **setup}, {"returns": np.zeros(2)}, None, None)


def test_every_fact_that_a_certificate_copies_is_compared():
    """But for the limits that the user stated, which are checked against what is proved."""
    copied = {*_SETUP, *_OPTIONAL_SETUP, "sigma", "floor", "ceiling", "max_steps"}
    assert set(_COPIED) == copied - {"stated_by_user"}


@pytest.mark.parametrize("name", _COPIED)
def test_a_fact_of_another_setup_is_noticed(name):
    assert not any(text.startswith(f"{name} is") for text in _check_facts(raw_of({name: 0.5}, {name: 0.5})))
    assert f"{name} is 0.5 and 0.25" in _check_facts(raw_of({name: 0.5}, {name: 0.25}))
    assert f"{name} is 0.5 and None" in _check_facts(raw_of({name: 0.5}, {name: None}))
    assert f"{name} is None and 0.5" in _check_facts(raw_of({name: None}, {name: 0.5}))


@pytest.mark.parametrize(
    ("method", "block", "wrong"), [("sequential", 2, False), ("sequential", 3, True), ("dkw", 2, True)]
)
def test_only_a_sequential_run_ends_early_and_that_after_a_whole_block(method, block, wrong):
    found = _check_facts(raw_of({"method": method}, {"n_planned": 4, "block_size": block}))
    assert found == (["4 episodes were planned, the episode data have 2 returns"] if wrong else [])


@pytest.mark.parametrize("claimed", [[-2.0, 1.0], [-1.0, 2.0]])
def test_each_end_of_the_range_of_a_reward_is_that_of_the_setup(claimed):
    """A narrower one would be worth more, and the setup's alone is compared with what the rules prove."""
    claim = {"kind": "per-step", "method": "per-step", "confidence": 0.95, "sigma": 1.0, "floor": 0.0, "budgets": [0.1]}
    arrays = {"reward_values": np.ones(1)}
    raw = Raw("per-step.json", {**claim, "reward_range": claimed}, {"reward_range": [-1.0, 1.0]}, arrays, None, None)
    with pytest.raises(CannotRecomputeError, match=r"the setup has \[-1.0, 1.0\]"):
        check_step_bounds(raw)
