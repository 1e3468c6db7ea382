"""What a foreign environment may not do, each rule with an environment that breaks it and an honest twin."""

import multiprocessing

import gymnasium
import numpy as np
import pytest

import misbehaving
from surefoot.errors import InputError
from surefoot.play.environments import make_task
from surefoot.play.envs import trial


def task_of(kind):
    return make_task(kind, floor=0, ceiling=1, max_steps=misbehaving.STEPS)


@pytest.mark.parametrize(
    "kind",
    [misbehaving.Honest, misbehaving.Acting, misbehaving.GlobalDraws, misbehaving.Drifting, misbehaving.Drawless],
)
def test_honest_environments_are_accepted(kind):
    assert task_of(kind).scoring.max_steps == misbehaving.STEPS


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        (misbehaving.LateDraw, "with the same seed run different episodes"),
        (misbehaving.Harder, "that has run episodes runs others than a new copy after reset with the same seed"),
        (misbehaving.FatePerObject, "that has run episodes runs others than a new copy after reset with the same seed"),
        (misbehaving.Touching, "that are stepped in turn influence one another"),
        (misbehaving.OnceSeeded, "with the same seed run different episodes"),
        (misbehaving.Follower, "that are stepped in turn influence one another"),
        (misbehaving.Recognizing, "that has run episodes runs others than a new copy after reset with the same seed"),
        (misbehaving.DeafToSeeds, "with different seeds run the same episodes"),
    ],
)
def test_a_broken_rule_is_named(kind, rule):
    with pytest.raises(InputError, match=rf"cop(y|ies) of misbehaving:{kind.__name__} .*{rule}.*self\.np_random"):
        task_of(kind)


class Luck(gymnasium.RewardWrapper):
    """Pays what a generator says that all copies share."""

    def reward(self, reward):
        return float(misbehaving.shared.random())


def lucky(observation, reward, terminated, truncated, info):
    return bool(misbehaving.shared.random() < 0.5)


@pytest.mark.parametrize("made", [{"wrappers": [Luck], "floor": 0}, {"success": lucky}])
def test_a_known_environment_is_tried_with_what_is_around_it(made):
    """As it is registered it needs no trial; what is put around it is somebody's code."""
    with pytest.raises(InputError, match="copies of CartPole-v1 with the same seed run different episodes"):
        make_task("CartPole-v1", max_steps=20, **made)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (misbehaving.Leaves, r"trying misbehaving:Leaves: a worker process ended by itself \(exit code 0\)"),
        (misbehaving.LeavesAtBirth, r"opening misbehaving:LeavesAtBirth: a worker process ended by itself"),
        (misbehaving.Crashes, r"trying misbehaving:Crashes: a worker process crashed \(SIGSEGV\)"),
    ],
)
def test_a_trial_that_ends_its_process_is_an_error_here(kind, message):
    with pytest.raises(InputError, match=message):
        task_of(kind)
    assert not multiprocessing.active_children()


def test_what_fails_on_made_up_actions_is_not_judged():
    assert task_of(misbehaving.Exits).scoring.ceiling == 1


def test_nothing_is_run_in_this_process():
    """Environments meet no past in the processes that are forked for a run."""
    misbehaving.Patient.begun = 0
    task_of(misbehaving.Patient)
    assert misbehaving.Patient.begun == 0


def test_slow_environments_are_tried_for_fewer_steps(monkeypatch):
    """At least the fewest: LateDraw breaks its rule after them, and is accepted where a step takes too long."""
    monkeypatch.setattr(trial, "SECONDS", 0.0)
    monkeypatch.setattr(misbehaving, "STEPS", trial.FEWEST + 1)
    assert task_of(misbehaving.LateDraw)
    monkeypatch.setattr(misbehaving, "STEPS", trial.FEWEST)
    with pytest.raises(InputError, match="same seed"):
        task_of(misbehaving.LateDraw)


def test_what_is_shown_is_compared_bit_for_bit_in_each_of_its_parts():
    shown = [trial.ShownStep(np.array([1.0, 2.0]), 0.5, False)] * 2
    assert trial._are_equal(shown, list(shown))
    for change in (
        {"observation": np.array([1.0, np.nextafter(2.0, 3.0)])},
        {"reward": float(np.nextafter(0.5, 1.0))},
        {"over": True},
    ):
        assert not trial._are_equal(shown, [shown[0], shown[1]._replace(**change)]), change
    assert not trial._are_equal(shown, shown[:1])


def test_rounding_is_small():
    """The planted twin differs a hundred times as much."""
    shown = trial.ShownStep(np.array([1.0, 100.0]), 1.0, False)
    assert shown.is_alike(trial.ShownStep(np.array([1.001, 100.0]), 1.00001, False))
    assert not shown.is_alike(trial.ShownStep(np.array([1.1, 100.0]), 1.0, False))
    assert not shown.is_alike(trial.ShownStep(np.array([1.0, 100.0]), 0.99, False))
    assert not shown.is_alike(trial.ShownStep(np.array([1.0, 100.0]), 1.0, True))
