"""Algorithm 1, batched, against a reference that follows the paper line by line; on smoothed agents and others.

The paper ("Attacks on Smoothed Agents"): whenever Q is evaluated or differentiated, take the mean over m noise samples,
the same at each step of the attack; the dirty context C' holds the noise really added, the clean context C gets samples
of its own, together with o.
"""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from surefoot.agents import files as zoo
from surefoot.agents.policies import Policy, Spaces
from surefoot.attacks import dqn, victim
from surefoot.attacks.base import normalize_rows
from surefoot.attacks.dqn import PaperAttack
from surefoot.attacks.victim import UNDEFENDED, Smoothing, VictimBatch
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.tasks import get_task
from toys import Recorded, plan_for, short_pole, view_of

SIGMA, SAMPLES = 0.2, 6
STEPPED = PaperAttack.take_step


def reference(clean, dirty, o, budget, lambda_q, samples_of_target, eta=0.01, nu=2.0):
    """Algorithm 1 for one row, in the paper's order.

    ``clean``              Q(C; o, .), values of all actions, the mean over noise on both C and o
    ``dirty(seen)``        Q(C'; seen, .) of noisy observations, one row each
    ``samples_of_target``  for each target noise on o', (m, *shape)
    """
    q_clean = clean.max()
    targets = [a for a in range(len(clean)) if clean[a] <= q_clean - lambda_q]
    q_worst, o_worst = q_clean, o
    for a in targets:
        moved = o.clone()
        for _ in range(math.floor(nu * budget / eta + 1e-9)):
            here = moved.clone().requires_grad_()
            # Q(C'; o', .): the mean over noise on o' alone.
            values = dirty(here + samples_of_target(a)).mean(dim=0)
            if values.argmax() == a:
                if clean[a] < q_worst:
                    o_worst, q_worst = moved, clean[a]
                break
            (d,) = torch.autograd.grad(torch.log_softmax(values, 0)[a], here)
            if d.norm() > 0:
                moved = moved + eta * d / d.norm()
            if (moved - o).norm() > budget:
                moved = o + budget / (moved - o).norm() * (moved - o)
    return (o_worst - o).detach(), targets


class Both:
    """Runs the batched attack and compares every proposal with the reference on the same view and noise samples."""

    def __init__(self, lambda_q, views, smoothing):
        self.attack = PaperAttack(lambda_q, smoothing=smoothing)
        self.gap, self.moves, self.views = 0.0, 0, views

    def propose(self, view):
        if self.views == 0:
            return torch.zeros_like(view.observation)
        self.views -= 1
        stream = Recorded(view.stream)
        fast = self.attack.propose(replace(view, stream=stream))
        slow, pairs = torch.zeros_like(fast), 0
        able = [row for row in range(len(fast)) if math.floor(2 * float(view.budget_left[row]) / 0.01 + 1e-9) > 0]
        for number, row in enumerate(able):
            slow[row], targets = self._slow(view, row, number, stream.drawn, pairs)
            pairs += len(targets)
        same = not stream.drawn or pairs == (len(stream.drawn[1]) if len(stream.drawn) > 1 else 0)
        self.gap = max(self.gap, float((fast - slow).abs().max()) if same else math.inf)
        self.moves += int((slow.norm(dim=1) > 1e-3).sum())
        return fast

    def _slow(self, view, row, number, drawn, first_pair):
        frames, step = view.policy.spaces.n_stack, int(view.step[row])
        # Copies of an episode's first observation share its noise: after ``step`` steps the oldest frames are copies.
        copies = max(0, frames - 1 - step)
        silent = torch.zeros(1, frames, *view.observation.shape[1:])  # without noise nothing is drawn
        on_clean = SIGMA * drawn[0][number][:, [max(i, copies) for i in range(frames)]] if drawn else silent
        order = {}

        def of_target(action):
            place = first_pair + order.setdefault(action, len(order))
            known = len(drawn) > 1 and place < len(drawn[1])  # unless the batched attack has other targets
            return SIGMA * drawn[1][place][:, 0] if known else silent[:, 0]

        def push(context, newest):
            # The first observation of an episode fills the stack.
            return newest[None].repeat(frames, 1) if step == 0 else torch.cat((context[row][1:], newest[None]))

        q, o = view.policy.network, view.observation[row]
        with torch.no_grad():
            clean = q(push(view.clean, o) + on_clean).mean(dim=0)

        def dirty(seen):
            return q(torch.stack([push(view.memory, one) for one in seen]))

        return reference(clean, dirty, o, float(view.budget_left[row]), self.attack.lambda_q, of_target)

    def describe(self):
        return {"name": "both"}


def compared(agent="cartpole-5-s0.2", lambda_q=0.02, budget=0.5, views=5):
    bare = agent.endswith("-s0")
    both = Both(lambda_q, views, UNDEFENDED if bare else Smoothing(SIGMA, SAMPLES))
    task = short_pole(views + 4, agent.rsplit("-", 1)[0])  # no more is compared
    noise = Noise.of(0.0 if bare else SIGMA)
    play(Plan(task=task, policy=zoo.load(agent), noise=noise, n_episodes=6, attacker=both, budget=budget))
    return both


@pytest.mark.parametrize(
    ("agent", "lambda_q", "budget"),
    [
        ("cartpole-5-s0.2", 0.02, 0.5),
        ("cartpole-1-s0.2", 0, 0.3),
        ("cartpole-5-s0", 0.02, 0.6),
        ("cartpole-1-s0", 0.02, 0.3),
    ],
)
def test_the_batched_attack_equals_the_reference_step_by_step(agent, lambda_q, budget):
    both = compared(agent, lambda_q, budget, views=12)
    assert both.gap < 2e-5
    assert both.moves >= 6  # the comparison is about an attack that does something


def clean_context_for_the_dirty(view, rows, smoothing):
    return VictimBatch.of(replace(view, memory=view.clean), rows, smoothing)


def first_sample_for_the_mean(values, rows, samples):
    return values.reshape(rows, samples, *values.shape[1:])[:, 0]


class FreshNoise(VictimBatch):
    """Draws other noise at every step of the search."""

    def values_and_gradient(self, moved, actions, *reach):
        self.noise, self.first_layer_output = SIGMA * torch.randn(self.noise.shape, generator=GENERATOR), None
        return super().values_and_gradient(moved, actions, *reach)


GENERATOR = torch.Generator().manual_seed(0)


@pytest.mark.parametrize(
    ("where", "planted"),
    [
        (dqn, {"VictimBatch": SimpleNamespace(of=clean_context_for_the_dirty)}),
        (dqn, {"VictimBatch": FreshNoise}),
        (victim, {"_mean_over_samples": first_sample_for_the_mean}),
        (victim, {"_share_among_copies": lambda noise, step: noise}),
        (dqn.PaperAttack, {"take_step": lambda self, m, g, s, left, norm: STEPPED(self, m, -g, s, left, norm)}),
    ],
    ids=["dirty context", "same samples", "mean", "copies", "sign"],
)
def test_planted_errors_are_noticed_by_that_comparison(monkeypatch, where, planted):
    for name, replacement in planted.items():
        monkeypatch.setattr(where, name, replacement)
    assert compared().gap > 1e-3


def test_nothing_is_spent_where_no_action_is_bad_enough():
    plan = plan_for(get_task("cartpole-5"), zoo.load("cartpole-5-s0"), 0.0, 8, attacker=PaperAttack(1e6), budget=1.0)
    assert play(plan).budget_used.max() == 0.0


def test_steps_are_as_many_as_the_paper_allows():
    """floor(nu B / eta), where 0.3 / 0.01 counts as 30 although it is a little less."""
    left = torch.tensor([0.0, 0.0049, 0.005, 0.0149, 0.3, 1.0], dtype=torch.float64)
    assert PaperAttack(lambda_q=0.0).tries(left).tolist() == [0, 0, 1, 2, 60, 200]
    assert PaperAttack(lambda_q=0.0, step=0.03, multiplier=1.0).tries(left).tolist() == [0, 0, 0, 0, 10, 33]


def test_normalizing_leaves_zeros_alone():
    assert torch.equal(normalize_rows(torch.zeros(2, 3)), torch.zeros(2, 3))
    torch.testing.assert_close(normalize_rows(torch.tensor([[3.0, 4.0]])), torch.tensor([[0.6, 0.8]]))


@pytest.mark.parametrize(("left", "moved"), [(0.035, 0.0), (0.039, 0.0), (0.041, 0.03), (0.09, 0.03)])
def test_a_target_is_looked_at_as_often_as_the_paper_says(left, moved):
    """At most floor(nu B / eta) times, of which the first look is before the first step: three steps take four."""
    network = torch.nn.Linear(4, 2, bias=False).requires_grad_(False)
    network.weight.copy_(torch.tensor([[0.0] * 4, [1.0, 0.0, 0.0, 0.0]]))
    policy = Policy(torch.nn.Sequential(torch.nn.Flatten(), network), Spaces(shape=(4,), n_actions=2))
    view = view_of(policy, torch.tensor([[-0.025, 0.0, 0.0, 0.0]]), left=left)
    found = PaperAttack(0.0, step=0.01, multiplier=1.0).propose(view)
    assert found.norm(dim=1).item() == pytest.approx(moved, abs=1e-6)
