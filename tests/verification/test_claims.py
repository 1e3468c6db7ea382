"""What a certificate says of its setup is compared with that of its episodes, field by field."""

import numpy as np
import pytest

from surefoot.proof.certificate import _OPTIONAL_SETUP, _SETUP
from surefoot.verification.bounds import check_step_bounds
from surefoot.verification.claims import _COPIED, _check_facts
from surefoot.verification.recompute.bands import CannotRecomputeError
from surefoot.verification.recompute.run_files import Raw, check_sums, same

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


@pytest.mark.parametrize("name", ["budget_used", "budget_used_per_step"])
def test_any_budget_that_was_used_says_that_episodes_were_attacked(name):
    """The first one alone may have been taken out of a record under attack."""
    raw = raw_of({}, {})
    assert _check_facts(raw) == []
    raw.arrays[name] = np.zeros(2)
    assert _check_facts(raw) == ["the episodes were attacked"]


@pytest.mark.parametrize(
    ("method", "n_draws", "wrong"), [("nested", 2, False), ("band", 1, False), ("band", 2, True), ("nested", 1, True)]
)
def test_draws_of_one_seed_are_for_the_nested_method_alone(method, n_draws, wrong):
    """Taken for independent episodes they would prove more than there is."""
    found = _check_facts(raw_of({"method": method, "draws_per_seed": n_draws}, {"draws_per_seed": n_draws}))
    message = f"bounds of certificate.json by the method {method!r} are not about {n_draws} draws per seed"
    assert found == ([message] if wrong else [])


def rewards_of(values, reward_range=(-1.0, 2.0), returns=(3.0, -1.0)):
    arrays = {"returns": np.array(returns), "reward_values": np.array(values), "lengths": np.array([2, 1])}
    arrays["reward_repeats"] = np.array([1, 1, 1])
    return Raw("per-step.json", {}, {"reward_range": list(reward_range)}, arrays, None, None)


@pytest.mark.parametrize("more", [1e-7, 1e-5, 1e-3, 1.0])
@pytest.mark.parametrize("place", range(3))
def test_rewards_that_do_not_add_up_to_the_return_are_refused(place, more):
    """Of better ones than those that were paid bounds would be too high; rounding is far below a millionth."""
    values = [1.0, 2.0, -1.0]
    assert check_sums(rewards_of(values)) == []
    values[place] += more
    assert check_sums(rewards_of(values)) == ["the rewards of an episode's steps do not add up to its return"]


@pytest.mark.parametrize("limits", [(0.5, 2.0), (-2.0, -0.5), (None, 1.0), (0.0, np.inf)])
def test_a_range_of_rewards_contains_0(limits):
    """Steps after the end of an episode pay nothing."""
    (wrong,) = check_sums(rewards_of([1.0, 2.0, -1.0], limits))
    assert wrong.endswith("are no range that contains 0")


def test_true_is_no_number_wherever_it_stands():
    """Python takes 1 for True: one draw per seed is not that there are draws."""
    for one, other in ((1, True), (0, False), ([1], [True]), ({"a": [0.0]}, {"a": [False]})):
        assert not same(one, other)
        assert not same(other, one)
    assert same([1, {"a": 0}], (1.0, {"a": 0.0}))
    assert same([True], [True])
