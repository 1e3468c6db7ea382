"""Shortest flips: found by a handful of gradients, also where these say little about how far it is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from surefoot.agents.networks import MLP
from surefoot.agents.policies import Policy, Spaces
from surefoot.api.attack import EFFORT, PAPER_EFFORT, attack_grid
from surefoot.attacks.shortest_flip import SEARCH_STEPS, ShortestFlip, find_shortest_flips
from surefoot.attacks.value_gaps import default_lambdas
from surefoot.attacks.victim import Smoothing, VictimBatch
from surefoot.play.rollout import play
from toys import balancer, short_pole, view_of

# The first action leads by 3 x0 - 4 x1: the shortest flip is a fifth of that long.
VALUES = np.array([[3, -4, 0, 0], [0, 0, 0, 0]], dtype=np.float32)
OBSERVED = torch.tensor([[0.1, 0.0, 0.0, 0.1], [0.2, -0.1, 0.0, 0.2], [0.02, 0.0, 0.0, 0.01]])
LEADS = torch.tensor([0.3, 1.0, 0.06])


def agent_of(network):
    return Policy(network, Spaces(shape=(4,), n_actions=2, n_stack=1), name="by hand", sha256="by-hand")


def linear():
    return agent_of(MLP([VALUES], [np.zeros(2, dtype=np.float32)]))


class Saturated(torch.nn.Module):
    """Two values that change places at x0 = 0 and are flat from a few tenths on."""

    def forward(self, history):
        slope = torch.tanh(8 * history.reshape(len(history), -1)[:, :1])
        return torch.cat([slope, -slope], dim=1)


def flips_of(policy, observed, longest, smoothing=None):
    view = view_of(policy, observed, left=longest)
    direction = ShortestFlip() if smoothing is None else ShortestFlip(smoothing)
    return direction.perturbation(view, torch.full((len(observed),), longest, dtype=torch.float64))


def test_the_shortest_flip_of_a_linear_agent_is_found():
    found = flips_of(linear(), OBSERVED, 1.0)
    assert (found.norm(dim=1) <= 1.03 * LEADS / 5).all()
    assert (linear().act((OBSERVED + found).unsqueeze(1)) == 1).all()


def test_the_flip_of_a_saturated_agent_is_found_where_its_gradient_says_it_is_far():
    """Linearized at 0.5 the boundary is 187 away."""
    observed = torch.tensor([[0.5, 0.0, 0.0, 0.0]])
    agent = agent_of(Saturated())
    found = flips_of(agent, observed, 1.0)
    assert agent.act((observed + found).unsqueeze(1)).tolist() == [1]
    assert 0.5 < found.norm() < 0.6


@pytest.mark.parametrize("longest", [0.05, 0.0])
def test_nothing_is_spent_on_a_flip_out_of_reach(longest):
    """It is .06 away."""
    assert not flips_of(linear(), OBSERVED[:1], longest).any()


def test_a_flip_that_has_happened_is_not_paid_for():
    """What the agent remembers makes it take the harmful action already; clean values call the other the best."""
    batch = VictimBatch.of(view_of(linear(), OBSERVED[:1], left=1.0), torch.tensor([0]), Smoothing())
    harmful = torch.tensor([[True, False]])
    assert not find_shortest_flips(batch, harmful, torch.tensor([0.3]), torch.tensor([1.0], dtype=torch.float64)).any()


def test_actions_of_equal_value_are_not_worth_a_flip():
    even = agent_of(MLP([np.zeros((2, 4), dtype=np.float32)], [np.zeros(2, dtype=np.float32)]))
    assert not flips_of(even, OBSERVED, 1.0).any()


@pytest.mark.parametrize(("longest", "gradients"), [(0.05, 1 + SEARCH_STEPS // 2), (1.0, 1 + SEARCH_STEPS)])
def test_what_cannot_be_flipped_is_given_up_early(longest, gradients, monkeypatch):
    asked = []
    plain = VictimBatch.lead_and_gradient
    monkeypatch.setattr(VictimBatch, "lead_and_gradient", lambda *given: asked.append(1) or plain(*given))
    flips_of(linear(), OBSERVED[:1], longest)
    assert len(asked) == gradients


def test_flips_of_a_smoothed_agent_are_longer_than_those_of_the_undefended_one():
    """Its mean values are those of a linear agent where no noise is clipped; of a saturated one they are wider."""
    torch.manual_seed(0)
    observed = torch.tensor([[0.2, 0.0, 0.0, 0.0]]).repeat(8, 1)
    found = flips_of(agent_of(Saturated()), observed, 2.0, Smoothing(0.3, 64))
    assert (found[:, 0] < 0).all()
    assert 0.1 < found.norm(dim=1).mean() < 0.4


def test_an_environment_of_ones_own_is_attacked_by_flips_with_few_episodes_and_samples():
    """Also that they take something: a pole that is always balanced falls."""
    task = replace(short_pole(30), paper=replace(short_pole(30).paper, budgets=()))
    run = {"budgets": [1.0], "method": None, "noise_samples": None, "n_episodes": None, "seed": 0}
    grid = attack_grid(task, balancer(5), lambdas=[0.0], **run)
    assert (grid.method, grid.base.n_episodes, grid.noise_samples) == ("flips", 100, 16)
    assert (EFFORT.n_episodes, EFFORT.noise_samples) == (100, 16)
    few = replace(grid.plan(1.0, 0.0), n_episodes=8)
    assert play(few).returns.mean() < play(replace(grid.twin, n_episodes=8)).returns.mean() - 1
    lambdas = default_lambdas(few, Smoothing())
    assert lambdas[0] == 0.0 < lambdas[-1]


def test_the_papers_tasks_keep_the_papers_effort():
    run = {"budgets": [1.0], "method": None, "noise_samples": None, "n_episodes": None, "seed": 0}
    grid = attack_grid("cartpole-1", "cartpole-1-s0", lambdas=[0.0], **run)
    assert (grid.method, grid.base.n_episodes, grid.noise_samples) == ("paper", 1_000, 128)
    assert (PAPER_EFFORT.n_episodes, PAPER_EFFORT.noise_samples) == (1_000, 128)
