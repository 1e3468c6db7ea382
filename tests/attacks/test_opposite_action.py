"""The adaptive attack on continuous actions: it finds the best perturbation where that is known, and it harms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import surefoot
from surefoot.agents.networks import MLP
from surefoot.agents.policies import Policy, Spaces
from surefoot.attacks import opposite_action, victim
from surefoot.attacks.base import normalize_rows
from surefoot.attacks.opposite_action import ActionPath, OppositeAction
from surefoot.attacks.registry import METHODS, Configuration
from surefoot.attacks.victim import Smoothing, VictimBatch
from surefoot.cli.main import main
from surefoot.errors import InputError
from toys import from_callable, view_of

WEIGHTS = np.array([[3.0, -4.0, 0.0, 0.0]], dtype=np.float32)


def linear(low=-1.0, high=1.0, *, differentiable=True):
    """An agent whose action is 3 x0 - 4 x1, clipped: the best perturbation of length r moves it by 5 r."""
    network = MLP([WEIGHTS], [np.zeros(1, dtype=np.float32)], "relu")
    spaces = Spaces(shape=(4,), n_actions=None, low=[low], high=[high])
    return Policy(network, spaces, name="linear", differentiable=differentiable)


OBSERVED = torch.tensor([[0.05, 0.0, 1.0, 2.0], [-0.05, 0.0, 1.0, 2.0], [0.6, 0.0, 0.0, 0.0]])


@pytest.mark.parametrize("differentiable", [True, False])
def test_it_finds_the_best_perturbation_of_a_linear_agent(differentiable, monkeypatch):
    """Towards the other bound, at full length, without gradients too; planted: the bound on the agent's own side."""
    policy = linear(differentiable=differentiable)
    view = view_of(policy, OBSERVED)
    best = 0.1 * torch.tensor([[-0.6, 0.8, 0.0, 0.0], [0.6, -0.8, 0.0, 0.0]])
    attack = OppositeAction(iterations=10)
    found = attack.perturbation(view, view.budget_left)
    assert torch.allclose(found[:2], best, atol=2e-3)
    # The action of the third row is clipped: none of this length brings it below its bound.
    assert policy.act((OBSERVED + found).unsqueeze(1))[2] == 1.0
    assert (found.norm(dim=1) <= 0.1 * (1 + 1e-5)).all()

    whole = ActionPath.of
    monkeypatch.setattr(
        opposite_action.ActionPath, "of", lambda *given: replace(whole(*given), opposite=whole(*given).usual * 9)
    )
    assert not torch.allclose(attack.perturbation(view, view.budget_left)[:2], best, atol=2e-2)


def test_nothing_is_spent_without_allowance_and_the_view_stays_as_it_is():
    view = view_of(linear(), OBSERVED)
    before = view.observation.clone()
    allowance = torch.tensor([0.0, 0.1, 0.0], dtype=torch.float64)
    found = OppositeAction().perturbation(view, allowance)
    assert found[0].abs().sum() == found[2].abs().sum() == 0 < found[1].abs().sum()
    assert torch.equal(view.observation, before)


def test_actions_are_averaged_over_the_noise():
    """A step from -1 to 1: the mean action is 2 Phi(x / sigma) - 1, within 5 standard errors; not the step itself."""
    step = from_callable(lambda seen: np.sign(seen[:, :1]), shape=(4,), n_actions=None, batched=True)
    view = view_of(step, torch.tensor([[0.1, 0.0, 0.0, 0.0]]))
    batch = VictimBatch.of(view, torch.arange(1), Smoothing(0.2, 20_000))
    truth = 2 * 0.6914625 - 1
    assert abs(float(batch.actions(view.observation)[0, 0]) - truth) < 5 * 2 * (0.69 * 0.31 / 20_000) ** 0.5 < 1 - truth


@pytest.mark.parametrize(("low", "high", "opposite"), [(-1.0, 3.0, 3.0), (-np.inf, np.inf, -2.0)])
def test_the_opposite_is_on_the_other_side_of_the_center(low, high, opposite):
    """Without bounds twice as far as the action is, to the other side of 0."""
    policy = linear(low, high)
    batch = VictimBatch.of(view_of(policy, torch.tensor([[1 / 3, 0.0, 0.0, 0.0]])), torch.arange(1), Smoothing())
    assert float(ActionPath.of(batch, batch.clean).opposite) == pytest.approx(opposite)


def test_the_gradient_climbs_the_share_where_actions_have_different_ranges():
    """Against differences of the share itself: an action with a wide range counts for as much as one with a narrow."""
    generator = np.random.default_rng(0)
    network = MLP([generator.normal(size=(2, 4)).astype(np.float32)], [np.zeros(2, dtype=np.float32)], "relu")
    policy = Policy(network, Spaces(shape=(4,), n_actions=None, low=[-1.0, -30.0], high=[1.0, 30.0]), name="two")
    batch = VictimBatch.of(view_of(policy, 0.01 * OBSERVED[:1]), torch.arange(1), Smoothing())
    path = ActionPath.of(batch, batch.clean)
    reach = torch.ones(1, dtype=torch.float64)
    _, gradient = path.share_and_gradient(batch.clean, reach, torch.zeros(1, 4))
    slopes = []
    for direction in 0.01 * torch.eye(4):
        slopes.append(float(path.share_gone(batch.clean + direction) - path.share_gone(batch.clean - direction)))
    assert torch.allclose(normalize_rows(gradient), normalize_rows(torch.tensor([slopes])), atol=1e-3)


def swing(seen):
    """Swing Pendulum up by its energy and hold it there: a plain function of rows."""
    cosine, sine, speed = seen.T
    energy = speed**2 / 6 + 5 * (cosine - 1)
    torque = np.where(cosine > 0.8, -12 * sine - 3 * speed, np.sign(-energy * speed))
    return np.clip(2 * torque, -2, 2)[:, None]


def pendulum(method, budget=2.0, **options):
    task = surefoot.make_task("Pendulum-v1", max_steps=100)
    return surefoot.rollout(task, swing, sigma=0.0, n_episodes=8, attacker=method, budget=budget, **options)


def test_a_function_on_pendulum_loses_far_more_than_by_chance(monkeypatch):
    """The same initial states for all; planted: differences of nothing."""
    clean, chance, found = (pendulum(*given).returns for given in (("random", 0.0), ("random",), ("adaptive",)))
    assert found.mean() < chance.mean() - 150
    assert abs(chance.mean() - clean.mean()) < 50
    monkeypatch.setattr(victim, "_make_probes", lambda view: torch.zeros(1, 3))
    assert pendulum("adaptive").returns.mean() > found.mean() + 150


def test_the_command_attacks_an_agent_that_is_code(tmp_path, monkeypatch, capsys):
    """Without --method it is this attack, with its own lambdas; a lambda out of range is said before the run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def act(seen):\n    return [float(-seen[1] - seen[2])]\n")
    given = ["attack", "--env", "Pendulum-v1", "--agent", "mine:act", "--max-steps", "5", "--episodes", "2"]
    given += ["--budgets", "0.5", "--out", "run"]
    assert main(given) == 0
    said = capsys.readouterr().out
    assert "under attack (adaptive, 2" in " ".join(said.split())
    assert "0.75" in said
    assert main([*given, "--lambda", "1"]) == 2
    assert "share of the steps, at the end of an episode, that get no budget" in capsys.readouterr().err


def test_a_budget_is_spread_over_the_steps_that_get_some():
    policy = linear()
    task = surefoot.make_task("Pendulum-v1")
    for lambda_q, steps in ((0.0, 200), (0.75, 50), (0.999, 1)):
        configuration = Configuration(task=task, policy=policy, budget=1.0, smoothing=Smoothing(), lambda_q=lambda_q)
        assert METHODS["adaptive"].build(configuration).timing.steps == steps


def test_discrete_actions_have_no_opposite():
    chooser = from_callable(lambda seen: 0, shape=(4,), n_actions=2)
    with pytest.raises(InputError, match="needs continuous actions"):
        OppositeAction().perturbation(view_of(chooser, OBSERVED), torch.ones(3, dtype=torch.float64))
