"""Attacks from Python: the same numbers as in a run directory, compared with a certificate."""

import json

import numpy as np
import pytest

import surefoot
from surefoot.api.attack import attack_grid
from surefoot.attacks.composed import Composed, ConstantDirection, UniformTiming
from surefoot.attacks.victim import Smoothing
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.runs import attacked
from surefoot.runs.attacked import AttackGrid, matched
from toys import actor_with_critic, balancer

AGENT = "cartpole-1-s0.2"
TASK = surefoot.make_task("CartPole-v1", floor=0, ceiling=30, max_steps=30)


class Away:
    """Shows the agent a pole that falls the other way."""

    def propose(self, view):
        return -2 * view.observation

    def describe(self):
        return {"name": "away"}


def test_an_attack_in_memory_and_one_in_a_folder_are_the_same(tmp_path):
    options = {"budgets": [0.0, 0.5], "sigma": 0.1, "method": "constant-direction", "n_episodes": 20}
    reported = []
    curve = surefoot.attack(TASK, AGENT, **options, progress_callback=lambda done, of: reported.append((done, of)))
    written = surefoot.attack(TASK, AGENT, **options, out=tmp_path / "run")
    assert np.array_equal(curve.mean, written.mean)
    assert curve.summary == json.loads((tmp_path / "run" / "attack.json").read_text())
    assert (tmp_path / "run" / "report.html").exists()
    assert reported[-1] == (60, 60)  # the same episodes without attack are among them
    assert [one.metadata["budget"] for one in curve.records] == [0.0, 0.5]
    assert curve.mean[:, 0].tolist() == [one.returns.mean() for one in curve.records] == curve.lowest.tolist()
    assert "budget 0.5: " in repr(curve)
    assert repr(curve).count("\n") == 2


class Told:
    """A record that says what it is told to say."""

    def __init__(self, returns, spending):
        self.returns = np.array(returns)
        self.budget_used_per_step = np.array(spending)
        self.budget_used = np.full(len(returns), 0.1)

    def __len__(self):
        return len(self.returns)


def test_an_episode_that_an_attack_has_helped_was_changed_too():
    base = Plan(task=TASK, policy=balancer(), noise=Noise.of(0.0), n_episodes=3)
    grid = AttackGrid(base=base, budgets=(0.1,), method="random")
    quiet = surefoot.Episodes.from_returns([5.0, 9.0, 9.0], sigma=0.0, floor=0, ceiling=30)
    made = matched(grid, {(0.1, None): Told([1.0, 9.0, 12.0], [0.0])}, quiet)
    assert made["n_changed"] == [[2]]


def test_gaps_are_those_within_reach_of_the_largest_budget(monkeypatch):
    """Of a smaller one they would be gaps that the attack never has to save for."""
    base = Plan(task=TASK, policy=balancer(), noise=Noise.of(0.3), n_episodes=3)
    grid = AttackGrid(base=base, budgets=(0.1, 0.4, 0.2), noise_samples=5)
    monkeypatch.setattr(attacked, "default_lambdas", lambda plan, smoothing: (plan.budget, smoothing))
    assert grid.default_lambdas() == (0.4, Smoothing(0.3, 5))


@pytest.mark.parametrize("name", ["cartpole-1", "mountain-car"])
def test_lambdas_of_the_paper_are_those_of_its_task(name):
    task = surefoot.get_task(name)
    agent = balancer() if name == "cartpole-1" else actor_with_critic()
    given = {"noise_samples": 2, "n_episodes": 2, "method": "paper"}
    grid = attack_grid(task, agent, budgets=[0.1, 0.2], lambdas="paper", **given)
    assert grid.lambdas == task.paper.lambdas
    assert len(grid.configurations()) == 2 * len(task.paper.lambdas)


def test_lambdas_are_the_agents_own_unless_given():
    chosen = surefoot.attack(TASK, AGENT, budgets=[0.3], n_episodes=4, lambdas=[0.0, 9e9])
    assert chosen.lambdas == (0.0, 9e9)
    assert chosen.mean.shape == (1, 2)
    assert chosen.lowest[0] == chosen.mean.min()
    assert len(surefoot.attack(TASK, AGENT, budgets=[1.0], n_episodes=2).lambdas) > 1
    with pytest.raises(InputError, match="this attack needs gradients"):
        surefoot.attack(TASK, lambda seen: 0, budgets=[0.1], method="paper")
    plain = surefoot.attack(TASK, lambda seen: 0, budgets=[0.1], n_episodes=2, lambdas=[0.0])
    assert plain.summary["method"] == "adaptive"


def test_episodes_under_an_attacker_of_ones_own():
    quiet = surefoot.rollout(TASK, AGENT, sigma=0.0, n_episodes=20)
    attacked = surefoot.rollout(TASK, AGENT, sigma=0.0, n_episodes=20, attacker=Away(), budget=5.0)
    assert attacked.attacked
    assert attacked.returns.mean() < quiet.returns.mean()
    assert 0 < attacked.budget_used.max() <= 5
    assert attacked.metadata["attacker"] == {"name": "away"}
    assert attacked.metadata["purpose"] != quiet.metadata["purpose"]
    even = Composed(UniformTiming(0.4, 30), ConstantDirection())
    assert surefoot.rollout(TASK, AGENT, sigma=0.1, n_episodes=2, attacker=even, budget=0.4).budget_used.max() <= 0.4
    with pytest.raises(InputError, match="needs episodes without attack"):
        surefoot.certify(surefoot.rollout(TASK, AGENT, sigma=0.1, n_episodes=2, attacker=even, budget=0.1), [0.1])
    with pytest.raises(InputError, match=r'a budget of 0\.4 needs an attacker that uses it: attacker="adaptive"'):
        surefoot.rollout(TASK, AGENT, sigma=0.1, n_episodes=2, budget=0.4)


def test_episodes_under_an_attack_by_name():
    """The same as those of ``surefoot.attack``, of episodes that differ; another seed, budget or attack gives others.

    Planted: a budget that is not handed on changes nothing.
    """
    options = {"sigma": 0.3, "n_episodes": 12, "seed": 3}
    task = surefoot.get_task("cartpole-1")
    name = "constant-direction"
    named = surefoot.rollout(task, AGENT, attacker=name, budget=2.0, **options)
    known = surefoot.attack(task, AGENT, method=name, budgets=[2.0], **options).records[0]
    assert named.returns.tolist() == known.returns.tolist()
    assert len(set(named.returns.tolist())) > 6  # none of this could be seen at the ceiling
    assert named.metadata == known.metadata
    assert 1.0 < named.budget_used.max() <= 2.0
    for other in ({"seed": 4}, {"sigma": 0.2}):
        assert (
            surefoot.rollout(task, AGENT, attacker=name, budget=2.0, **options | other).returns.tolist()
            != named.returns.tolist()
        )
    for attacker, budget in ((name, 1.0), ("random", 2.0)):
        another = surefoot.rollout(task, AGENT, attacker=attacker, budget=budget, **options)
        assert another.returns.tolist() != named.returns.tolist()
    assert surefoot.rollout(task, AGENT, attacker=name, **options).budget_used.max() == 0
    with pytest.raises(InputError, match=r"method must be one of paper, .* got 'adaptiv'; did you mean adaptive\?"):
        surefoot.rollout(TASK, AGENT, attacker="adaptiv", budget=0.6, **options)
    with pytest.raises(InputError, match="this attack needs gradients"):
        surefoot.rollout(TASK, lambda seen: 0, attacker="paper", budget=0.1, **options)


def test_rewards_of_each_step_are_kept_where_asked_for():
    episodes = surefoot.rollout("cartpole-1", AGENT, sigma=0.2, n_episodes=20, per_step=True)
    assert surefoot.certify_per_step(episodes, [0.0]).lower[0] > 0
    with pytest.raises(InputError, match="rewards of each step"):
        surefoot.certify_per_step(surefoot.rollout("cartpole-1", AGENT, sigma=0.2, n_episodes=20), [0.0])
