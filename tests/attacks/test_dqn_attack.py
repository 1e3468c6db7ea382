"""Algorithm 1, batched, against a reference that follows the paper line by line."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from surefoot.agents import files as zoo
from surefoot.attacks.base import normalize_rows
from surefoot.attacks.dqn import PaperAttack
from surefoot.attacks.victim import Smoothing
from surefoot.noise import Noise
from surefoot.play.channel import View
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.tasks import get_task
from toys import short_pole


def reference(q, context, dirty, o, budget, margin, eta=0.01, nu=2.0):
    """Algorithm 1 for one row, in the paper's order; ``q(stack)`` returns the values of all actions."""
    push = lambda c, x: torch.cat((c[1:], x[None])) if c is not None else x[None].repeat(FRAMES[0], 1)  # noqa: E731
    clean = q(push(context, o))
    q_clean = clean.max()
    targets = [a for a in range(len(clean)) if clean[a] <= q_clean - margin]
    q_worst, o_worst = q_clean, o
    for a in targets:
        moved = o.clone()
        for _ in range(math.floor(nu * budget / eta + 1e-9)):
            here = moved.clone().requires_grad_()
            values = q(push(dirty, here))
            if values.argmax() == a:
                if clean[a] < q_worst:
                    o_worst, q_worst = moved, clean[a]
                break
            (d,) = torch.autograd.grad(torch.log_softmax(values, 0)[a], here)
            size = d.norm()
            if size > 0:
                moved = moved + eta * d / size
            if (moved - o).norm() > budget:
                moved = o + budget / (moved - o).norm() * (moved - o)
    return o_worst - o, math.sqrt(max(budget**2 - float((o_worst - o).norm()) ** 2, 0.0))


FRAMES = [5]


class LineByLine:
    """The reference as an adversary: one row after the other."""

    def __init__(self, margin):
        self.margin = margin

    def propose(self, view: View):
        FRAMES[0] = view.policy.spaces.n_stack
        rows = []
        for row in range(len(view.observation)):
            fresh = int(view.step[row]) == 0
            offset, _ = reference(
                lambda stack: view.policy.network(stack[None])[0],
                None if fresh else view.clean[row],
                None if fresh else view.memory[row],
                view.observation[row],
                float(view.budget_left[row]),
                self.margin,
            )
            rows.append(offset.detach())
        return torch.stack(rows)

    def describe(self):
        return {"name": "line by line", "margin": self.margin}


class Both:
    """Plays the reference and compares each proposal with that of the batched attack on the same view."""

    def __init__(self, margin):
        self.fast, self.slow, self.gap = PaperAttack(margin), LineByLine(margin), 0.0

    def propose(self, view: View):
        slow = self.slow.propose(view)
        self.gap = max(self.gap, float((slow - self.fast.propose(view)).abs().max()))
        return slow

    def describe(self):
        return {"name": "both"}


@pytest.mark.parametrize(("agent", "margin", "budget"), [("cartpole-5-s0", 0.02, 0.6), ("cartpole-1-s0", 0.02, 0.3)])
def test_the_batched_attack_equals_the_reference_step_by_step_and_over_whole_episodes(agent, margin, budget):
    policy, task = zoo.load(agent), short_pole(60, agent.rsplit("-", 1)[0])
    both = Both(margin)
    plan = Plan(task=task, policy=policy, noise=Noise.of(0.0), n_episodes=6, attacker=both, budget=budget)
    slow, fast = play(plan), play(replace(plan, attacker=both.fast))
    assert both.gap < 2e-5
    np.testing.assert_array_equal(fast.returns, slow.returns)
    np.testing.assert_allclose(fast.budget_used, slow.budget_used, atol=1e-4)
    assert fast.budget_used.max() > 0.1  # the comparison is about an attack that does something


def test_a_wrong_sign_is_noticed_by_that_comparison(monkeypatch):
    honest = PaperAttack.take_step
    monkeypatch.setattr(PaperAttack, "take_step", lambda self, m, g, s, left: honest(self, m, -g, s, left))
    both = Both(0.02)
    play(
        Plan(
            task=short_pole(12),
            policy=zoo.load("cartpole-5-s0"),
            noise=Noise.of(0.0),
            n_episodes=1,
            attacker=both,
            budget=0.4,
        )
    )
    assert both.gap > 1e-2


def test_nothing_is_spent_where_no_action_is_bad_enough():
    plan = Plan(
        task=get_task("cartpole-5"),
        policy=zoo.load("cartpole-5-s0"),
        noise=Noise.of(0.0),
        n_episodes=8,
        attacker=PaperAttack(1e6),
        budget=1.0,
    )
    assert play(plan).budget_used.max() == 0.0


def test_never_over_budget_and_deterministic():
    policy = zoo.load("cartpole-5-s0.2")
    adversary = PaperAttack(0.0, smoothing=Smoothing(0.2, 8))
    plan = Plan(task=short_pole(30), policy=policy, noise=Noise.of(0.2), n_episodes=6, attacker=adversary, budget=0.5)
    one, two = play(plan), play(plan)
    np.testing.assert_array_equal(one.returns, two.returns)
    np.testing.assert_array_equal(one.budget_used, two.budget_used)
    assert one.budget_used.max() <= 0.5 * (1 + 1e-6)
    assert one.budget_used.max() > 0.05


def test_the_attack_of_a_bare_agent_hurts_it():
    plan = Plan(
        task=get_task("cartpole-5"),
        policy=zoo.load("cartpole-5-s0"),
        noise=Noise.of(0.0),
        n_episodes=12,
        attacker=PaperAttack(0.0),
        budget=1.0,
    )
    assert play(plan).returns.mean() < 100


def test_steps_are_as_many_as_the_paper_allows():
    """floor(nu B / eta), where 0.3 / 0.01 counts as 30 although it is a little less."""
    left = torch.tensor([0.0, 0.0049, 0.005, 0.0149, 0.3, 1.0], dtype=torch.float64)
    assert PaperAttack(lambda_q=0.0).tries(left).tolist() == [0, 0, 1, 2, 60, 200]
    assert PaperAttack(lambda_q=0.0, step=0.03, multiplier=1.0).tries(left).tolist() == [0, 0, 0, 0, 10, 33]


def test_normalizing_leaves_zeros_alone():
    assert torch.equal(normalize_rows(torch.zeros(2, 3)), torch.zeros(2, 3))
    torch.testing.assert_close(normalize_rows(torch.tensor([[3.0, 4.0]])), torch.tensor([[0.6, 0.8]]))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"lambda_q": -1.0}, "lambda_Q must be >= 0, got -1"),
        ({"lambda_q": math.nan}, "lambda_Q must be >= 0"),
        ({"lambda_q": 0.0, "step": 0.0}, "must be > 0"),
    ],
)
def test_bad_settings(settings, text):
    with pytest.raises(ValueError, match=text):
        PaperAttack(**settings)


def test_no_samples_is_an_error():
    with pytest.raises(ValueError, match="noise samples must be at least 1, got 0"):
        Smoothing(0.2, 0)
