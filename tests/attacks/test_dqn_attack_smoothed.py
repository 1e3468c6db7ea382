"""Algorithm 1 on a smoothed agent, batched, against a reference that follows the paper line by line.

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
from surefoot.attacks import dqn, victim
from surefoot.attacks.dqn import PaperAttack
from surefoot.attacks.victim import Smoothing, VictimBatch
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from toys import Recorded, short_pole

SIGMA, SAMPLES = 0.2, 6
STEPPED = PaperAttack.take_step


def reference(q, contexts, o, budget, lambda_q, samples, eta=0.01, nu=2.0):
    """Algorithm 1 for one row, in the paper's order.

    ``q(stacks)``         values of all actions, one row per stack
    ``contexts``          C and C', each (frames, *shape), the oldest frame first, or None when the episode begins
    ``samples``           noise on the clean stack, (m, frames, *shape), and for each target noise on o', (m, *shape)
    """
    clean_context, dirty_context = contexts
    clean_samples, samples_of_target = samples
    frames = clean_samples.shape[1]

    def push(context, newest):
        return newest[None].repeat(frames, 1) if context is None else torch.cat((context[1:], newest[None]))

    # Q(C; o, .): the mean over noise on both C and o.
    clean = q(torch.stack([push(clean_context, o) + noise for noise in clean_samples])).mean(dim=0)
    q_clean = clean.max()
    targets = [a for a in range(len(clean)) if clean[a] <= q_clean - lambda_q]
    q_worst, o_worst = q_clean, o
    for a in targets:
        moved = o.clone()
        for _ in range(math.floor(nu * budget / eta + 1e-9)):
            here = moved.clone().requires_grad_()
            # Q(C'; o', .): the mean over noise on o' alone; the first observation of an episode fills the stack.
            noisy = [push(dirty_context, here + noise) for noise in samples_of_target(a)]
            values = q(torch.stack(noisy)).mean(dim=0)
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

    def __init__(self, lambda_q, views):
        self.attack = PaperAttack(lambda_q, smoothing=Smoothing(SIGMA, SAMPLES))
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
        same = pairs == (len(stream.drawn[1]) if len(stream.drawn) > 1 else 0)
        self.gap = max(self.gap, float((fast - slow).abs().max()) if same else math.inf)
        self.moves += int((slow.norm(dim=1) > 1e-3).sum())
        return fast

    def _slow(self, view, row, number, drawn, first_pair):
        frames, step = view.policy.spaces.n_stack, int(view.step[row])
        # Copies of an episode's first observation share its noise: after ``step`` steps the oldest frames are copies.
        copies = max(0, frames - 1 - step)
        on_clean = SIGMA * drawn[0][number][:, [max(i, copies) for i in range(frames)]]
        order = {}

        def of_target(action):
            place = first_pair + order.setdefault(action, len(order))
            known = len(drawn) > 1 and place < len(drawn[1])  # unless the batched attack has other targets
            return SIGMA * drawn[1][place][:, 0] if known else torch.zeros(SAMPLES, *view.observation.shape[1:])

        contexts = (None, None) if step == 0 else (view.clean[row], view.memory[row])
        left, lambda_q = float(view.budget_left[row]), self.attack.lambda_q
        return reference(view.policy.network, contexts, view.observation[row], left, lambda_q, (on_clean, of_target))

    def describe(self):
        return {"name": "both"}


def compared(agent="cartpole-5-s0.2", lambda_q=0.02, budget=0.5, views=5):
    both = Both(lambda_q, views)
    task = short_pole(views + 4, agent.rsplit("-", 1)[0])  # no more is compared
    noise = Noise.of(SIGMA)
    play(Plan(task=task, policy=zoo.load(agent), noise=noise, n_episodes=6, attacker=both, budget=budget))
    return both


@pytest.mark.parametrize(("agent", "lambda_q", "budget"), [("cartpole-5-s0.2", 0.02, 0.5), ("cartpole-1-s0.2", 0, 0.3)])
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
        (dqn.PaperAttack, {"take_step": lambda self, m, g, s, left: STEPPED(self, m, -g, s, left)}),
    ],
    ids=["dirty context", "same samples", "mean", "copies", "sign"],
)
def test_planted_errors_are_noticed_by_that_comparison(monkeypatch, where, planted):
    for name, replacement in planted.items():
        monkeypatch.setattr(where, name, replacement)
    assert compared().gap > 1e-3
