"""The search that a GPU replays, run step by step: it must find what the search of ``PaperAttack`` finds."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import cache

import pytest
import torch

from agents.test_networks import pixel_view, small
from surefoot.attacks import captured
from surefoot.attacks.captured import Climb, batch_size, can_capture
from surefoot.attacks.dqn import PaperAttack
from surefoot.attacks.victim import UNDEFENDED, Smoothing, VictimBatch

ATTACK = PaperAttack(0.0, step=0.1, low=(0.0,), high=(1.0,))
HASTY = replace(ATTACK, multiplier=0.2)  # so few steps that they, and not the ball, end a search
ROWS, ACTIONS = torch.tensor([0, 0, 1, 1, 2, 2, 3]), torch.tensor([0, 1, 0, 2, 1, 2, 1])


def view_of(budgets):
    view = pixel_view(small(), [5, 9, 7, 3])
    view.budget_left.copy_(torch.tensor(budgets))
    return view


def replayed(view, attack=ATTACK):
    batch, left = VictimBatch.of(view, ROWS, attack.smoothing), view.budget_left[ROWS]
    climb = Climb(attack, 16)
    climb.prepare_tensors(batch, left)
    return climb, climb.run_search(batch, ACTIONS, left)


def same(one, two):
    ends = torch.allclose(one[0], two[0], rtol=0, atol=1e-6)
    return ends and torch.equal(one[1], two[1])


@pytest.mark.parametrize("smoothing", [UNDEFENDED, Smoothing(0.1, 3)])
def test_it_finds_what_the_search_finds(smoothing):
    attack = replace(ATTACK, smoothing=smoothing)
    _, found = replayed(view_of([0.5, 2.0, 6.0, 0.05]), attack)
    view = view_of([0.5, 2.0, 6.0, 0.05])  # the same noise once more
    expected = attack.climb(view, ROWS, ACTIONS)
    assert same(found, expected)
    far = (expected[0] - view.observation[ROWS]).flatten(1).norm(dim=1)
    assert expected[1].any(), "some reach their target"
    assert not expected[1].all(), "some do not"
    assert float(far.max()) > 0.3, "some take several steps"


def test_it_gives_up_after_as_many_steps():
    counts = []
    for tries in range(1, 9):
        view = view_of([tries * ATTACK.step / HASTY.multiplier] * 4)
        expected = HASTY.climb(view, ROWS, ACTIONS)
        assert same(replayed(view, HASTY)[1], expected)
        counts.append(int(expected[1].sum()))
    assert len(set(counts)) > 2, "every step more may reach another target"


def test_what_an_earlier_search_left_does_not_matter():
    climb, _ = replayed(view_of([6.0, 6.0, 6.0, 6.0]))
    view = view_of([0.5, 2.0, 6.0, 0.05])
    rows, actions = ROWS[2:5], ACTIONS[2:5]
    batch = VictimBatch.of(view, rows, UNDEFENDED)
    assert same(climb.run_search(batch, actions, view.budget_left[rows]), ATTACK.climb(view, rows, actions))


@cache
def searched(attack):
    """Return what an attack finds without replaying; the honest search finds it too, or the test is about nothing."""
    view = view_of([0.5, 2.0, 6.0, 0.05])
    found = attack.climb(view, ROWS, ACTIONS)
    assert same(replayed(view, attack)[1], found)
    return found


@pytest.mark.parametrize(
    ("attack", "planted"),
    [
        (HASTY, lambda self: self.limit.add_(1)),  # never gives up
        (HASTY, lambda self: self.limit.sub_(1)),  # gives up early
        (ATTACK, lambda self: self.reached.zero_()),  # forgets what it reached
        (ATTACK, lambda self: self.reached.logical_or_(self.alive)),  # takes every target for reached
        (ATTACK, lambda self: self.left.mul_(0.9)),  # the ball shrinks
    ],
)
def test_a_planted_error_is_noticed(attack, planted, monkeypatch):
    view, expected = view_of([0.5, 2.0, 6.0, 0.05]), searched(attack)
    honest, count = Climb.iterate_once, []

    def wrong(self):
        honest(self)
        count.append(1)
        if len(count) < 60:
            planted(self)

    monkeypatch.setattr(Climb, "iterate_once", wrong)
    assert not same(replayed(view, attack)[1], expected)


SMOOTHED = replace(HASTY, smoothing=Smoothing(0.1, 3))
BUDGETS = [1.5, 2.0, 2.5, 3.0]


def overflow_above(most, monkeypatch):
    """Let half precision, which a CPU does not use, overflow for some pairs where their scale is above ``most``."""
    honest = VictimBatch._log_probability_gradient

    def overflowing(self, moved, actions, scale):
        values, gradient = honest(self, moved, actions, scale)
        gradient[(actions > 0) & (scale > most), 0, 0] = torch.inf
        return values, gradient

    monkeypatch.setattr(VictimBatch, "half_precision", True)
    monkeypatch.setattr(VictimBatch, "_autocast_noise", lambda _: nullcontext())
    monkeypatch.setattr(VictimBatch, "_log_probability_gradient", overflowing)


def both_ways():
    return [replayed(view_of(BUDGETS), SMOOTHED)[1], SMOOTHED.climb(view_of(BUDGETS), ROWS, ACTIONS)]


def test_a_gradient_that_overflows_is_computed_again_and_costs_no_step(monkeypatch):
    expected = SMOOTHED.climb(view_of(BUDGETS), ROWS, ACTIONS)
    overflow_above(1e-3, monkeypatch)  # several times
    assert all(same(found, expected) for found in both_ways())


def test_a_gradient_that_always_overflows_leads_nowhere(monkeypatch):
    expected, start = SMOOTHED.climb(view_of(BUDGETS), ROWS, ACTIONS), view_of(BUDGETS).observation[ROWS]
    overflow_above(0.0, monkeypatch)
    for ends, reached in both_ways():
        assert torch.equal(ends[ACTIONS > 0], start[ACTIONS > 0])
        assert torch.equal(reached[ACTIONS == 0], expected[1][ACTIONS == 0])


def test_planted_an_overflow_taken_for_a_gradient(monkeypatch):
    expected = SMOOTHED.climb(view_of(BUDGETS), ROWS, ACTIONS)
    overflow_above(1e-3, monkeypatch)
    never = lambda gradient, scale: (torch.zeros(len(scale), dtype=torch.bool), scale, gradient)  # noqa: E731
    for module in ("captured", "victim"):
        monkeypatch.setattr(f"surefoot.attacks.{module}.find_overflow", never)
    assert not any(same(found, expected) for found in both_ways())


def test_a_network_that_was_moved_is_recorded_again(monkeypatch):
    """Every run on a GPU begins with weights on the CPU: what was recorded in the run before reads freed memory."""
    view, prepare, recorded = view_of(BUDGETS), Climb.prepare_tensors, []
    monkeypatch.setattr("surefoot.attacks.dqn.can_capture", lambda _: True)
    monkeypatch.setattr(
        Climb, "prepare_tensors", lambda self, *given: recorded.append(self.size) or prepare(self, *given)
    )
    for _ in range(2):
        HASTY.climb(view, ROWS, ACTIONS)
    assert recorded == [16]
    *_, bias = view.policy.network.parameters()
    bias.data = bias.data.clone()
    HASTY.climb(view, ROWS, ACTIONS)
    assert recorded == [16, 16]


def test_which_searches_are_replayed(monkeypatch):
    view, cuda = pixel_view(small(), [5, 9, 7]), torch.device("cuda")
    rows = torch.arange(3)
    plain, noisy = VictimBatch.of(view, rows, UNDEFENDED), VictimBatch.of(view, rows, Smoothing(0.1, 2))
    fresh = VictimBatch.of(pixel_view(small(), [5, 0, 7]), rows, UNDEFENDED)
    assert not can_capture(plain), "only a GPU replays"

    class Elsewhere(torch.Tensor):
        device = cuda

    for batch in (plain, noisy, fresh):
        batch.clean = batch.clean.as_subclass(Elsewhere)
    assert [can_capture(batch) for batch in (plain, noisy, fresh)] == [True, True, False]
    monkeypatch.setattr(captured, "MOST", 5)
    assert [can_capture(batch) for batch in (plain, noisy)] == [True, False]


def test_every_batch_has_room():
    sizes = [batch_size(count, 1) for count in range(1, 300)]
    assert all(count <= size <= max(2, 1.5 * count) for count, size in enumerate(sizes, start=1))
    assert sizes[:7] == [2, 2, 3, 4, 6, 6, 8]
    assert len(set(sizes)) < 17
    assert batch_size(3, 16) == 16


@pytest.mark.parametrize("smoothing", [UNDEFENDED, Smoothing(0.1, 3)])
def test_an_attack_proposes_the_same_with_it(smoothing, monkeypatch):
    attack = replace(ATTACK, smoothing=smoothing)
    expected = attack.propose(view_of([0.5, 2.0, 6.0, 0.05]))
    monkeypatch.setattr("surefoot.attacks.dqn.can_capture", lambda _: True)
    searches = captured._climb_of.cache_info().currsize
    found = [attack.propose(view_of([0.5, 2.0, 6.0, 0.05])) for _ in range(2)]  # the second in the tensors of the first
    assert captured._climb_of.cache_info().currsize > searches
    assert expected.abs().max() > 0
    assert all(torch.allclose(one, expected, rtol=0, atol=1e-6) for one in found)
