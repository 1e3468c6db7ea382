"""A share of a run is refused before it runs where nothing can be certified of all shares together."""

import pytest

import surefoot
from surefoot.api import certify as calls
from surefoot.api.certify import can_afford_baseline, certify_share
from surefoot.api.setup import noise_of, plan_run
from surefoot.errors import InputError
from surefoot.proof.query import Query
from surefoot.proof.shared_budget import SharedBudget
from surefoot.proof.stopping import StoppingRule
from surefoot.runs.shares import Share


def test_a_share_of_what_cannot_be_certified_runs_nothing(tmp_path):
    impossible = Query(budgets=(0.2,), thresholds=(100.0,), threat=SharedBudget(2))
    given = {"share": Share(1, 2), "n_episodes": 8, "out": tmp_path / "share"}
    with pytest.raises(InputError, match="cannot be combined with a shared budget"):
        certify_share(surefoot.get_task("cartpole-1"), "cartpole-1-s0.2", query=impossible, **given)
    assert not (tmp_path / "share").exists()


def test_with_noise_on_actions_observations_have_none_unless_it_is_asked_for():
    """The paper's sigma belongs to agents whose observations alone have noise."""
    task = surefoot.get_task("mountain-car")
    assert noise_of(task, None).sigma == task.paper.sigma > 0
    assert (noise_of(task, None, 0.3).sigma, noise_of(task, None, 0.3).action_sigma) == (0.0, 0.3)
    assert noise_of(task, 0.2, 0.3).sigma == 0.2


def test_a_fixed_sequence_of_actions_is_no_baseline_where_actions_are_attacked():
    """Certificates above it would be called informative, and those below it uninformative, for no reason."""
    given = {"sigma": 0.2, "n_episodes": 4}
    task = surefoot.get_task("mountain-car")
    assert plan_run(task, "mountain-car-s0.2", **given).task.baseline is task.baseline is not None
    assert plan_run(task, "mountain-car-s0.2", action_sigma=0.3, **given).task.baseline is None


@pytest.mark.parametrize(("n_episodes", "affordable"), [(1_000, True), (999, False)])
def test_a_baseline_that_nobody_asked_for_takes_at_most_half_of_the_episodes(n_episodes, affordable, monkeypatch):
    monkeypatch.setattr(calls, "count_episodes", lambda task: 500)
    task = surefoot.make_task("CartPole-v1", max_steps=20)
    plan = plan_run(task, "cartpole-1-s0.4", sigma=0.4, n_episodes=n_episodes)
    assert can_afford_baseline(plan) == affordable


def test_the_budget_of_a_stopping_rule_is_among_those_that_are_certified(tmp_path):
    """Otherwise nothing would say what the run has proved where it was to prove something."""
    rule = StoppingRule(budget=0.13, require=10.0)
    how = {"sigma": 0.2, "n_episodes": 1_000, "out": tmp_path / "run"}
    run = surefoot.certify_run("cartpole-1", "cartpole-1-s0.2", stop=rule, **how)
    assert 0.13 in run.certificate.budgets
    assert run.certificate.method_selection["stopped"] == "proved"
