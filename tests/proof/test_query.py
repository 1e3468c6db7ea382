"""What is asked where nothing was said: default budgets by task, noise, threat and norm; and units."""

import math
from dataclasses import replace

import pytest

from surefoot.agents.policies import Spaces
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.environments import make_task
from surefoot.play.tasks import TASKS, get_task
from surefoot.proof.query import Query, Units, default_budgets
from surefoot.proof.shared_budget import SharedBudget
from surefoot.proof.step_budget import StepBudget
from surefoot.proof.threats import EPISODE

FEW = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4)


def test_they_span_0_to_4_sigma_in_numbers_that_can_be_read():
    assert default_budgets(0.1) == FEW
    assert default_budgets(0.3) == (0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 1.05, 1.2)
    assert default_budgets(1e-3)[-1] == 0.004
    assert default_budgets(1 / 3)[-1] == 1.33


def test_the_papers_tasks_keep_its_budgets_for_what_the_paper_certifies():
    cartpole = get_task("cartpole-5")
    assert [Query.for_task(cartpole, sigma).budgets[-1] for sigma in (0.05, 0.2, 0.8)] == [1.0] * 3
    assert TASKS["freeway"].paper.budgets == FEW
    assert Query.for_task(cartpole, 0.2, budgets=[0, 3]).budgets == (0.0, 3.0)


def test_other_environments_and_returns_get_budgets_that_fit_their_sigma():
    cartpole = make_task("CartPole-v1", floor=0, ceiling=500)
    assert Query.for_task(cartpole, 0.1).budgets == FEW
    assert Query.for_task(None, [0.1, 0.3]).budgets == Query.for_task(None, Noise.of([0.1, 0.3])).budgets == FEW
    assert Query.for_task(None, 0.1, confidence=0.9).confidence == 0.9
    with pytest.raises(InputError, match="at least one budget"):
        Query.for_task(cartpole, 0.1, budgets=[])


@pytest.mark.parametrize(
    ("threat", "norm", "each"),
    [
        (StepBudget(), "l2", 1 / math.sqrt(200)),
        (EPISODE, "linf", 1 / math.sqrt(4 * 200)),
        (StepBudget(), "linf", 1 / math.sqrt(4 * 200)),
        (SharedBudget(16), "linf", 4 / math.sqrt(4 * 200 * 16)),
        (EPISODE, "l1", 1.0),
        (SharedBudget(16), "l2", 4.0),
    ],
)
def test_under_other_threats_they_are_worth_0_to_4_sigma_of_one_episode(threat, norm, each):
    asked = Query.for_task(get_task("cartpole-5"), 0.2, norm=norm, threat=threat)
    assert asked.budgets == pytest.approx([each * 0.1 * step for step in range(9)], rel=5e-3)


def test_an_l_infinity_budget_needs_a_task():
    assert Query.for_task(None, 0.2, norm="l1").norm.factor == 1
    with pytest.raises(InputError, match="needs the size of an observation"):
        Query.for_task(None, 0.2, norm="linf")


def test_one_more_budget_is_put_in_its_place():
    query = Query(budgets=(0.0, 0.4, 0.2))
    assert query.with_budget(0.4) is query
    assert query.with_budget(0.3).budgets == (0.0, 0.2, 0.3, 0.4)


def test_normalized_units_become_a_sigma_per_feature_and_the_least_scales_budgets():
    query, noise = Units((0.5, 2.0)).to_raw(Query(budgets=(0.0, 0.4)), Noise.of(0.1))
    assert query.budgets == (0.0, 0.2)
    assert noise == Noise.of([0.05, 0.2])
    raw = Units()
    assert raw.to_raw(query, noise) == (query, noise)
    assert raw.raw_unit == 1
    with pytest.raises(InputError, match="one sigma for all features"):
        Units((0.5, 2.0)).to_raw_noise(noise)


def test_what_takes_hours_to_bound_and_to_verify_is_refused_before_anything_is_run():
    budgets = tuple(0.01 * k for k in range(250))
    quantiles = tuple((k + 1) / 101 for k in range(100))
    Query(budgets=budgets, quantiles=quantiles)
    message = (
        "at most 25,000 bounds of thresholds, quantiles and cvars, .* got 101 of them and 250 budgets; ask for fewer"
    )
    for more in ({"thresholds": (1.0,)}, {"cvars": (0.5,)}):
        with pytest.raises(InputError, match=message):
            Query(budgets=budgets, quantiles=quantiles, **more)


@pytest.mark.parametrize(
    ("noise", "channel", "size"), [(Noise(0.1), "observations", 5), (Noise(0.0, action_sigma=0.2), "actions", 2)]
)
def test_a_norm_counts_the_numbers_of_what_has_noise(noise, channel, size):
    """Of observations there are more than of actions, or fewer: then l2 budgets would not include those asked for."""
    spaces = Spaces(shape=(5,), n_actions=None, low=(-1.0, -1.0), high=(1.0, 1.0))
    task = replace(get_task("mountain-car"), spaces=spaces)
    norm = Query.for_task(task, noise, budgets=[0.1], norm="linf").norm
    assert (norm.channel, norm.coordinates) == (channel, size)
