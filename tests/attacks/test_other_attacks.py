"""The other adversaries: when to spend and how, the stronger PGD, and what all of them must obey."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import toys
from surefoot.agents import files as zoo
from surefoot.agents.policies import Policy, Spaces
from surefoot.attacks import victim
from surefoot.attacks.actions import CriticDescent, Push
from surefoot.attacks.adaptive_pgd import AdaptivePGD
from surefoot.attacks.composed import (
    Composed,
    ConstantDirection,
    EqualDirection,
    RandomDirection,
    SingleStep,
    Structured,
    UniformTiming,
    ValueGapTiming,
)
from surefoot.attacks.ddpg import DdpgAttack
from surefoot.attacks.dqn import PaperAttack
from surefoot.attacks.flips import FlipAttack, FlipRule, PushAttack
from surefoot.attacks.opposite_action import OppositeAction
from surefoot.attacks.registry import METHODS, Configuration
from surefoot.attacks.victim import Smoothing, VictimBatch, clean_values
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from toys import from_callable, plan_for, short_pole

SMOOTHING = Smoothing(0.2, 8)
EVERY = {
    "paper": PaperAttack(0.0, smoothing=SMOOTHING),
    "adaptive": Composed(ValueGapTiming(0.0, SMOOTHING), AdaptivePGD(SMOOTHING, iterations=4, tries=2)),
    "random": Composed(UniformTiming(0.4, 200), RandomDirection()),
    "one direction": Composed(UniformTiming(0.4, 200), ConstantDirection()),
    "at once": Composed(SingleStep(3), ConstantDirection()),
    "structured": Structured(),
    "learned flips": FlipAttack(0.4, FlipRule(budget=0.4, price=0.04, least_gap=0.01)),
    "learned pushes": PushAttack(0.4, 0.04, SMOOTHING),
}


def view_of(policy, rows=6, step=9, left=0.5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    observation = 0.05 * torch.randn(rows, 4, generator=generator)
    context = 0.05 * torch.randn(rows, policy.spaces.n_stack, 4, generator=generator)
    return toys.view_of(policy, observation, step=step, left=left, context=context, seed=seed)


def test_noise_is_averaged_over_as_each_feature_has_it():
    """Also where a feature has none."""
    view = view_of(zoo.load("cartpole-5-s0.2"))
    drawn = Smoothing((0.1, 0.0, 2.0, 0.5), 500).draw_noise(view, torch.arange(3), 5)
    assert drawn.shape == (3, 500, 5, 4)
    assert drawn.std(dim=(0, 1, 2)).tolist() == pytest.approx([0.1, 0.0, 2.0, 0.5], rel=0.05)


class Judge(torch.nn.Module):
    """A critic that likes every number of an action, and keeps what it was asked about."""

    def __init__(self):
        super().__init__()
        self.asked = []
        self.known = []

    def forward(self, memory, action):
        self.asked.append(action.detach())
        self.known.append(memory)
        return action.sum(dim=1)


def test_descent_on_the_critic_averages_over_the_noise_that_actions_will_have():
    """Around what was chosen, each episode with samples of its own."""
    judge = Judge()
    spaces = Spaces(shape=(4,), n_actions=None, low=[-1.0] * 2, high=[1.0] * 2)
    policy = Policy(torch.nn.Linear(4, 2).requires_grad_(False), spaces, critic=judge)
    chosen = torch.tensor([[0.0, 0.1], [0.2, -0.3], [-0.1, 0.0]])
    view = replace(toys.view_of(policy, torch.zeros(3, 4)), chosen=chosen)
    allowance = torch.full((3,), 0.05, dtype=torch.float64)
    found = CriticDescent(0.1, n_samples=400, iterations=3).perturbation(view, allowance)
    asked = judge.asked[0].reshape(3, 400, 2)
    assert torch.allclose(asked.mean(dim=1), chosen, atol=0.02)
    assert torch.allclose(asked.std(dim=1), torch.full((3, 2), 0.1), atol=0.02)
    assert not torch.equal(asked[0] - chosen[0], asked[1] - chosen[1])
    assert torch.allclose(found, torch.full((3, 2), -0.05 / 2**0.5), atol=1e-4)


def test_descent_on_the_critic_judges_by_what_is_true_and_not_by_what_the_agent_was_shown():
    judge = Judge()
    spaces = Spaces(shape=(4,), n_actions=None, low=[-1.0], high=[1.0])
    policy = Policy(torch.nn.Linear(4, 1).requires_grad_(False), spaces, critic=judge)
    view = replace(toys.view_of(policy, torch.zeros(2, 4)), chosen=torch.zeros(2, 1))
    view = replace(view, clean=torch.full_like(view.clean, 3.0), memory=torch.full_like(view.memory, 7.0))
    CriticDescent(0.1, n_samples=2, iterations=2).perturbation(view, torch.full((2,), 0.05, dtype=torch.float64))
    assert all((known == 3.0).all() for known in judge.known)
    assert judge.known


@pytest.mark.parametrize("name", EVERY)
def test_every_adversary_keeps_its_budget_and_repeats_itself(name):
    plan = plan_for(short_pole(30), zoo.load("cartpole-5-s0.2"), 0.2, 4, attacker=EVERY[name], budget=0.4)
    one, two = play(plan), play(plan)
    np.testing.assert_array_equal(one.returns, two.returns)
    np.testing.assert_array_equal(one.budget_used, two.budget_used)
    assert 0 < one.budget_used.max() <= 0.4 * (1 + 1e-6)


@pytest.mark.parametrize("name", EVERY)
def test_no_adversary_writes_into_its_view(name):
    view = view_of(zoo.load("cartpole-5-s0.2"))
    before = {key: value.clone() for key, value in vars(view).items() if isinstance(value, torch.Tensor)}
    EVERY[name].propose(view)
    for key, value in before.items():
        assert torch.equal(getattr(view, key), value), key


def test_evenly_spends_the_same_at_each_step():
    timing = UniformTiming(0.4, 200)
    policy = zoo.load("cartpole-5-s0.2")
    np.testing.assert_allclose(timing.allowance(view_of(policy)).numpy(), 0.4 / np.sqrt(200))
    np.testing.assert_allclose(timing.allowance(view_of(policy, step=200)).numpy(), 0.0)


def test_one_direction_is_the_same_at_every_step_of_an_episode_and_differs_between_episodes():
    policy = zoo.load("cartpole-5-s0.2")
    early, late = view_of(policy, step=1, seed=1), view_of(policy, step=2, seed=2)
    one = torch.ones(6, dtype=torch.float64)
    assert torch.equal(ConstantDirection().perturbation(early, one), ConstantDirection().perturbation(late, one))
    assert len(np.unique(ConstantDirection().perturbation(early, one).numpy(), axis=0)) == 6


def test_all_numbers_are_moved_alike_one_way_throughout_an_episode():
    """Back and forth it would cancel itself."""
    policy = zoo.load("cartpole-5-s0.2")
    one = torch.ones(6, dtype=torch.float64)
    for step in (4, 5):
        moved = EqualDirection().perturbation(view_of(policy, step=step), one)
        assert moved[:, 0].tolist() == [0.5, -0.5] * 3
        assert torch.equal(moved, moved[:, :1].expand(-1, 4))


def test_a_push_is_measured_from_the_middle_of_the_range_of_each_action():
    """The one halfway up its range is pushed up half as far as one at its end, the one in the middle not at all."""
    spaces = Spaces(shape=(4,), n_actions=None, low=[0.0, 10.0, -1.0], high=[1.0, 30.0, 1.0])
    policy = Policy(torch.nn.Linear(4, 3), spaces)
    chosen = torch.tensor([[1.0, 25.0, 0.0]])
    view = replace(toys.view_of(policy, torch.zeros(1, 4)), chosen=chosen)
    moved = Push((0.0,) * 3, (1.0,) * 3).perturbation(view, torch.ones(1, dtype=torch.float64))
    assert (moved / moved[0, 0]).tolist() == [[1.0, 0.5, 0.0]]
    assert float(moved.norm()) == pytest.approx(1.0)


def test_adaptive_pgd_reaches_what_a_brute_search_finds():
    """On a bare agent: wherever one of 4,000 random offsets of the allowed size flips the agent, adaptive PGD does."""
    policy = zoo.load("cartpole-5-s0")
    view = view_of(policy, rows=20, left=0.3)
    rows = torch.arange(20)
    target = clean_values(view, Smoothing()).argmin(dim=1)
    batch = VictimBatch.of(view, rows, Smoothing())
    generator = torch.Generator().manual_seed(1)
    flipped = torch.zeros(20, dtype=torch.bool)
    for _ in range(4_000):
        direction = torch.randn(20, 4, generator=generator)
        moved = view.observation + 0.3 * direction / direction.norm(dim=1, keepdim=True)
        flipped |= batch.share_choosing(moved, target) == 1
    offset = AdaptivePGD(certainty=1.0).perturbation(view, view.budget_left)
    found = batch.share_choosing(view.observation + offset, target) == 1
    assert flipped.any()
    assert (found | ~flipped).all()
    assert (offset.norm(dim=1) <= 0.3 * (1 + 1e-5)).all()


def test_random_starts_do_not_make_a_larger_offset():
    view = view_of(zoo.load("cartpole-5-s0"), rows=20, left=0.3)
    single = AdaptivePGD(tries=1).perturbation(view, view.budget_left).norm(dim=1)
    several = AdaptivePGD(tries=3).perturbation(view, view.budget_left).norm(dim=1)
    both = (single > 0) & (several > 0)
    assert both.any()
    assert (several[both] <= single[both] + 1e-6).all()


def test_the_clean_values_of_a_smoothed_agent_are_unbiased():
    """Mean of many estimates against a direct simulation of noisy stacks, at 1e-6 (normal approximation)."""
    policy = zoo.load("cartpole-5-s0.2")
    view = view_of(policy, rows=1, step=9)
    estimate = clean_values(view, Smoothing(0.2, 20_000))[0]
    stack = policy.memory.advance(view.clean, view.observation)
    noise = torch.from_numpy(np.random.default_rng(3).normal(0, 0.2, (20_000, 5, 4)).astype(np.float32))
    direct = policy.network(stack + noise)
    error = direct.std(dim=0) * np.sqrt(2 / 20_000)
    assert ((estimate - direct.mean(dim=0)).abs() < 4.9 * error).all()


def test_copies_of_the_first_observation_share_their_noise_in_the_clean_values():
    policy = zoo.load("cartpole-5-s0.2")
    view = view_of(policy, rows=1, step=0)
    estimate = clean_values(view, Smoothing(0.2, 20_000))[0]
    noise = torch.from_numpy(np.random.default_rng(4).normal(0, 0.2, (20_000, 1, 4)).astype(np.float32))
    direct = policy.network((view.observation.unsqueeze(1) + noise).expand(-1, 5, -1))
    apart = policy.network(
        view.observation.unsqueeze(1)
        + noise.new_tensor(np.random.default_rng(5).normal(0, 0.2, (20_000, 5, 4)).astype(np.float32))
    )
    error = direct.std(dim=0) * np.sqrt(2 / 20_000)
    assert ((estimate - direct.mean(dim=0)).abs() < 4.9 * error).all()
    assert ((estimate - apart.mean(dim=0)).abs() > 4.9 * error).any()  # the planted mistake would be seen


def test_share_choosing_counts_draws():
    policy = zoo.load("cartpole-5-s0.2")
    view = view_of(policy, rows=2)
    batch = VictimBatch.of(view, torch.arange(2), Smoothing(0.2, 400))
    share = batch.share_choosing(view.observation, torch.zeros(2, dtype=torch.long))
    rng = np.random.default_rng(6)
    for row in range(2):
        noise = torch.from_numpy(rng.normal(0, 0.2, (400, 4)).astype(np.float32))
        context = view.memory[row].unsqueeze(0).expand(400, -1, -1)
        chosen = policy.act(policy.memory.advance(context, view.observation[row] + noise)) == 0
        # Two shares of the same probability differ by less than 5 standard errors but for 6e-7.
        known = float(share[row])
        spread = max(np.sqrt(2 * known * (1 - known) / 400), 1 / 400)
        assert abs(float(chosen.double().mean()) - known) < 5 * spread
    assert 0 < float(share.mean()) < 1  # not both certain, or nothing was counted


def test_agents_without_gradients_and_continuous_agents_are_refused():
    blind = from_callable(lambda seen: 0, shape=(4,), n_actions=2, n_stack=5)
    with pytest.raises(ValueError, match="needs gradients"):
        PaperAttack(0.0).propose(view_of(blind))
    smooth = from_callable(lambda seen: [0.0], shape=(4,), n_actions=None, n_stack=5)
    with pytest.raises(ValueError, match="needs discrete actions"):
        AdaptivePGD().perturbation(view_of(smooth), torch.ones(6, dtype=torch.float64))


def attacked_function(method, *, sigma, budget, n_episodes=16):
    """Mean return of a rule that is a plain function of rows, under an attack that has no gradient of it."""
    rule = from_callable(
        lambda seen: (seen @ np.array([0.1, 0.3, 1.0, 0.5]) > 0).astype(int), shape=(4,), n_actions=2, batched=True
    )
    task = short_pole(40)
    configuration = Configuration(task=task, policy=rule, budget=budget, smoothing=Smoothing(sigma))
    attacker = None if method is None else METHODS[method].build(configuration)
    noise = Noise.of(sigma)
    return play(Plan(task=task, policy=rule, noise=noise, n_episodes=n_episodes, attacker=attacker, budget=budget))


@pytest.mark.parametrize(("sigma", "budget"), [(0.0, 0.6), (0.05, 2.0)])
def test_an_agent_without_gradients_is_attacked_by_differences(monkeypatch, sigma, budget):
    """Lower than without attack and than by chance; the planted twin compares values in no direction."""
    given = {"sigma": sigma, "budget": budget}
    clean, chance, found = (attacked_function(name, **given) for name in (None, "random", "adaptive"))
    assert found.returns.mean() < min(clean.returns.mean(), chance.returns.mean()) - 5
    assert 0 < found.budget_used.max() <= budget
    monkeypatch.setattr(victim, "_make_probes", lambda view: torch.zeros(1, 4))
    blind = attacked_function("adaptive", **given)
    assert blind.returns.mean() > found.returns.mean() + 2


def test_differences_point_where_gradients_do():
    """On an agent with gradients that are kept from the attacker, in small and in large observations."""
    agent = zoo.load("cartpole-5-s0.2")
    actions = torch.zeros(6, dtype=torch.long)
    gradients = []
    for policy in (agent, replace(agent, differentiable=False)):
        batch = VictimBatch.of(view_of(policy), torch.arange(6), Smoothing())
        reach = torch.full((6,), 1e-3, dtype=torch.float64)
        gradients.append(batch.values_and_gradient(batch.clean, actions, reach)[1])
    exact, estimated = gradients
    assert torch.allclose(estimated / 2e-3, exact, rtol=0.05, atol=0.05 * float(exact.abs().max()))
    monkeypatched = torch.cosine_similarity(exact.flatten(), -estimated.flatten(), dim=0)
    assert monkeypatched < -0.99


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: UniformTiming(1.0, 0), "steps must be at least 1, got 0"),
        (lambda: SingleStep(-1), "must be >= 0, got -1"),
        (lambda: ValueGapTiming(-0.5), "lambda_Q must be >= 0, got -0.5"),
        (lambda: AdaptivePGD(iterations=0), "must be at least 1, got 0"),
        (lambda: AdaptivePGD(certainty=2.0), "between 0 and 1, got 2"),
        (lambda: Smoothing(-1.0), "sigma must be >= 0, got -1"),
        (lambda: Smoothing(0.2, 0), "noise samples must be at least 1, got 0"),
        (lambda: PaperAttack(-1.0), "lambda_Q must be >= 0, got -1"),
        (lambda: PaperAttack(np.nan), "lambda_Q must be >= 0"),
        (lambda: PaperAttack(0.0, step=0.0), "must be > 0"),
        (lambda: DdpgAttack(-1.0), "lambda must be >= 0, got -1"),
        (lambda: DdpgAttack(np.nan), "lambda must be >= 0"),
        (lambda: DdpgAttack(0.0, step=0.0), "step must be > 0"),
        (lambda: DdpgAttack(0.0, steps=0), "steps >= 1"),
        (lambda: OppositeAction(iterations=0), "must be at least 1, got 0 and 2"),
    ],
)
def test_bad_settings(build, text):
    with pytest.raises(InputError, match=text):
        build()
