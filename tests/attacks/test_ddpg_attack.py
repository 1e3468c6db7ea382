"""Algorithm 2, batched, against a reference that follows the paper line by line (descending, as its text has it)."""

import numpy as np
import pytest
import torch

from surefoot.agents.policies import Policy, Spaces
from surefoot.attacks.ddpg import DdpgAttack
from surefoot.attacks.victim import Smoothing
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.tasks import get_task
from surefoot.runs.attacked import AttackGrid, attacked_run
from toys import Recorded, actor_with_critic, from_callable, run_episodes, view_of

TASK = get_task("mountain-car")


def grid(policy, n_episodes=10, **more):
    base = Plan(task=TASK, policy=policy, noise=Noise.of(0.0), n_episodes=n_episodes)
    return AttackGrid(base=base, budgets=(0.1,), lambdas=(0.001,), **more)


def push(context, observation, frames):
    if context is None:
        return observation[None].repeat(frames, 1)
    return torch.cat((context[1:], observation[None]))


def reference(policy, context, dirty, o, budget, weight, clean_noise, seen_noise, eta=0.01, tau=100):
    """Algorithm 2 for one row: the mean over noise draws where there are any, then step, ball and box."""
    low, high = (torch.tensor(limit) for limit in TASK.box)
    moved = o.clone()
    for _ in range(tau):
        here = moved.clone().requires_grad_()
        values = []
        for on_clean, on_seen in zip(clean_noise, seen_noise, strict=True):
            action = policy.act(push(dirty, here + on_seen, policy.spaces.n_stack)[None])
            values.append(policy.critic((push(context, o, policy.spaces.n_stack) + on_clean)[None], action)[0])
        objective = torch.stack(values).mean() + weight * ((here - o) ** 2).sum()
        (d,) = torch.autograd.grad(objective, here)
        if d.norm() / moved.norm() <= 0.001:
            break
        moved = moved - eta * d / d.norm()
        if (moved - o).norm() > budget:
            moved = o + budget / (moved - o).norm() * (moved - o)
        moved = torch.minimum(torch.maximum(moved, low), high)
    return moved - o


class Both:
    """Plays the batched attack and compares every proposal with the reference on the same view and the same draws."""

    def __init__(self, attack):
        self.attack, self.gap, self.moves = attack, 0.0, 0

    def propose(self, view):
        recorded = Recorded(view.stream)
        fast = self.attack.propose(type(view)(**{**vars(view), "stream": recorded}))
        slow = torch.zeros_like(fast)
        rows = (view.budget_left >= self.attack.least).nonzero().flatten().tolist()
        for number, row in enumerate(rows):
            slow[row] = self._slow(view, row, number, recorded.drawn)
        self.gap = max(self.gap, float((fast - slow).abs().max()))
        self.moves += int((slow.abs().sum(dim=1) > 1e-3).sum())
        return fast

    def _slow(self, view, row, number, drawn):
        frames, fresh = view.policy.spaces.n_stack, int(view.step[row]) == 0
        sigma = self.attack.smoothing.sigma
        clean, seen = [torch.zeros(frames, 2)], [torch.zeros(2)]
        if sigma > 0:
            copies = max(0, frames - 1 - int(view.step[row]))
            clean = [sigma * draw[[max(i, copies) for i in range(frames)]] for draw in drawn[0][number]]
            seen = [sigma * draw[0] for draw in drawn[1][number]]
        context, dirty = (None, None) if fresh else (view.clean[row], view.memory[row])
        weight = self.attack.weight
        return reference(
            view.policy, context, dirty, view.observation[row], float(view.budget_left[row]), weight, clean, seen
        )

    def describe(self):
        return {"name": "both"}


@pytest.mark.parametrize(
    ("sigma", "weight", "budget", "episodes"), [(0.0, 0.001, 0.3, 2), (0.0, 0.5, 0.4, 2), (0.2, 0.0001, 0.2, 2)]
)
def test_the_batched_attack_equals_the_reference_on_whole_episodes(sigma, weight, budget, episodes):
    low, high = TASK.box
    both = Both(DdpgAttack(weight, smoothing=Smoothing(sigma, 3), low=low, high=high))
    played = run_episodes(TASK, actor_with_critic(), sigma, episodes, attacker=both, budget=budget)
    assert both.gap < 2e-5
    assert both.moves >= episodes
    assert played.budget_used.max() > 0.1  # the comparison is about an attack that does something


def test_the_printed_ascent_is_noticed_by_that_comparison(monkeypatch):
    honest = DdpgAttack.descend_rows
    monkeypatch.setattr(
        DdpgAttack, "descend_rows", lambda self, view, rows: 2 * view.observation[rows] - honest(self, view, rows)
    )
    both = Both(DdpgAttack(0.001, low=TASK.box[0], high=TASK.box[1]))
    play(Plan(task=TASK, policy=actor_with_critic(), noise=Noise.of(0.0), n_episodes=2, attacker=both, budget=0.3))
    assert both.gap > 1e-2


def test_the_value_falls_and_the_box_and_the_budget_hold():
    """On the true value of the critic, for many rows at once; a proposal never leaves ball or box."""

    class Watch:
        fell, rows = 0, 0

        def propose(self, view):
            attack = DdpgAttack(0.0, low=TASK.box[0], high=TASK.box[1])
            offset = attack.propose(view)
            shown = view.observation + offset
            assert (offset.double().norm(dim=1) <= view.budget_left * (1 + 1e-6) + 1e-7).all()
            assert (shown >= torch.tensor(TASK.box[0])).all()
            assert (shown <= torch.tensor(TASK.box[1])).all()
            if int(view.step[0]) == 0:
                stack = view.observation[:, None].repeat(1, 5, 1)
                before = view.policy.critic(stack, view.policy.act(stack))
                after = view.policy.critic(stack, view.policy.act(shown[:, None].repeat(1, 5, 1)))
                Watch.fell += int((after <= before + 1e-6).sum())
                Watch.rows += len(after)
            return offset

        def describe(self):
            return {"name": "watch"}

    run_episodes(TASK, actor_with_critic(), 0.0, 100, n_envs=100, attacker=Watch(), budget=0.4)
    assert Watch.rows == 100
    assert Watch.fell >= 95  # steps of constant length may end slightly above where they began


def test_never_over_budget_deterministic_and_for_any_number_of_rows_at_once(monkeypatch):
    attack = DdpgAttack(0.001, smoothing=Smoothing(0.2, 4), low=TASK.box[0], high=TASK.box[1])
    plan = Plan(task=TASK, policy=actor_with_critic(), noise=Noise.of(0.2), n_episodes=6, attacker=attack, budget=0.3)
    one, two = play(plan), play(plan)
    np.testing.assert_array_equal(one.returns, two.returns)
    np.testing.assert_array_equal(one.budget_used, two.budget_used)
    assert 0.05 < one.budget_used.max() <= 0.3 * (1 + 1e-6)


def test_a_vanished_gradient_spends_nothing():
    policy = actor_with_critic()
    for layer in policy.network.network.linear:
        layer.weight.zero_()
    played = run_episodes(TASK, policy, 0.0, 1, attacker=DdpgAttack(0.001), budget=0.3)
    assert played.budget_used.max() == 0.0


def test_a_gradient_is_as_small_as_it_is_next_to_the_observation():
    """The paper stops at ||D|| <= tolerance ||o'||: the same gradient is small for a large observation alone."""

    class Judge(torch.nn.Module):
        def forward(self, memory, action):
            return action.sum(dim=1)

    network = torch.nn.Linear(4, 1).requires_grad_(False)
    network.weight.fill_(0.001)
    actor = torch.nn.Sequential(torch.nn.Flatten(), network)
    policy = Policy(actor, Spaces(shape=(4,), n_actions=None, low=[-1.0], high=[1.0]), critic=Judge())
    observed = torch.tensor([[100.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    moved = DdpgAttack(0.0, tolerance=0.001, steps=5).propose(view_of(policy, observed)).norm(dim=1)
    assert moved.tolist() == pytest.approx([0.0, 0.05], abs=1e-4)


def test_attacked_episodes_are_played_once(tmp_path):
    """The limits of the box are part of the setup that is compared when a folder is used again."""
    attack = grid(actor_with_critic(), n_episodes=2)
    first, _ = attacked_run(attack, tmp_path / "a")
    record = tmp_path / "a" / "B0.1-lambda0.001" / "episodes.npz"
    before = record.stat().st_mtime_ns
    assert attacked_run(attack, tmp_path / "a")[0] == first
    assert record.stat().st_mtime_ns == before


def test_agents_that_cannot_be_attacked_so_are_refused():
    plain = from_callable(lambda seen: [0.0], shape=(2,), n_actions=None, n_stack=5)
    with pytest.raises(InputError, match="needs gradients"):
        grid(plain)
    blindfolded = Policy(actor_with_critic().network, Spaces(shape=(2,), n_actions=None, n_stack=5), name="no critic")
    with pytest.raises(InputError, match="no critic has none"):
        grid(blindfolded)
