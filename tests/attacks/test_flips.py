"""The learned attacker of pixels: it finds the shortest flip, buys what pays, and learns what does."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import surefoot
from surefoot.agents.networks import MLP
from surefoot.agents.policies import Policy, Spaces
from surefoot.attacks import learning_flips, value_gaps
from surefoot.attacks.flips import FlipAttack, FlipRule, PixelAttacker, PushAttack, build_attack
from surefoot.attacks.learned import load_attacker
from surefoot.attacks.learning import AttackerTraining
from surefoot.attacks.learning_flips import train_rules
from surefoot.attacks.victim import UNDEFENDED, Smoothing, VictimBatch
from surefoot.errors import InputError
from surefoot.files import read_npz, write_npz
from surefoot.noise import Noise
from surefoot.play.channel import Scope
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.streams import Purpose
from toys import actor_with_critic, balancer, short_pole, view_of

POLE = short_pole(30)
# The first action leads by 3 x0 - 4 x1: the shortest flip is a fifth of that long.
VALUES = np.array([[3, -4, 0, 0], [0, 0, 0, 0], [0, 0, 0, -9]], dtype=np.float32)
OBSERVED = torch.tensor([[0.1, 0.0, 0.0, 0.1], [0.2, -0.1, 0.0, 0.2], [0.02, 0.0, 0.0, 0.01]])
LEADS = torch.tensor([0.3, 1.0, 0.06])
ALL = FlipRule(budget=1.0, price=0.0)


def linear():
    network = MLP([VALUES[:2]], [np.zeros(2, dtype=np.float32)])
    return Policy(network, Spaces(shape=(4,), n_actions=2, n_stack=1), name="linear", sha256="by-hand")


def plan_of(policy=None, sigma=0.0, task=POLE, **changes):
    return Plan(task=task, policy=policy or balancer(5), noise=Noise.of(sigma), n_episodes=24, **changes)


def proposed(rule, left, budget=None):
    return FlipAttack(budget or left, rule).propose(view_of(linear(), OBSERVED, left=left))


def test_the_shortest_flip_of_a_linear_agent_is_found():
    found = proposed(ALL, 1.0)
    sizes = found.norm(dim=1)
    assert (sizes >= LEADS / 5).all()
    assert (sizes <= 1.03 * LEADS / 5).all()
    assert (linear().act((OBSERVED + found).unsqueeze(1)) == 1).all()


def test_the_shortest_flip_of_a_bent_agent_is_found():
    """The first action's value is tanh(3 x0), the other's 0.5: the first step of the search goes half as far again."""
    weights = [np.array([[3, 0, 0, 0]], dtype=np.float32), np.array([[1], [0]], dtype=np.float32)]
    network = MLP(weights, [np.zeros(1, dtype=np.float32), np.array([0, 0.5], dtype=np.float32)], "tanh")
    policy = Policy(network, Spaces(shape=(4,), n_actions=2, n_stack=1), name="bent")
    found = FlipAttack(1.0, ALL).propose(view_of(policy, torch.tensor([[0.35, 0.0, 0.0, 0.0]]), left=1.0))
    shortest = 0.35 - np.arctanh(0.5) / 3
    assert shortest <= float(found.norm()) <= 1.05 * shortest


def test_a_flip_that_is_out_of_reach_costs_nothing():
    sizes = proposed(ALL, 0.1).norm(dim=1)
    assert sizes[1] == 0
    assert 0 < sizes[0] <= 0.1
    # Of a budget that is as good as spent nothing is tried.
    assert proposed(ALL, 0.1, budget=10).abs().sum() == 0


def test_a_rule_buys_what_is_worth_its_price():
    """Gaps .3, 1 and .06, costs .06, .2 and .012; planted: a rule that looks at one of the two alone."""
    rule = FlipRule(budget=1.0, price=0.0, least_gap=0.1)
    assert (proposed(rule, 0.25).norm(dim=1) > 0).tolist() == [True, True, False]
    # The second takes .64 of the squared budget and has to be worth 2 * .64 = 1.28; the first .0576: .1152.
    assert (proposed(replace(rule, price=2.0), 0.25).norm(dim=1) > 0).tolist() == [True, False, False]
    gaps = torch.tensor([0.05, 0.1, 0.39, 0.4])
    bought = replace(rule, price=0.4).pays(gaps, torch.tensor([0.0, 0.0, 1.0, 1.0]), 1.0)
    assert bought.tolist() == [False, True, False, True]


def test_a_rule_says_which_actions_are_harmful():
    """Of three actions the second is worse by .4 of the gap and nearer; planted: a fixed share."""
    weights = np.array([[0, 0, 0, 0], [4, 0, 0, 0], [0, 4, 0, 0]], dtype=np.float32)
    network = MLP([weights], [np.array([1.0, 0.6, 0.0], dtype=np.float32)])
    policy = Policy(network, Spaces(shape=(4,), n_actions=3, n_stack=1), name="three")
    observed = torch.zeros(1, 4)
    flips_to = {}
    for harmful in (0.4, 0.41):
        found = FlipAttack(1.0, replace(ALL, harmful=harmful)).propose(view_of(policy, observed, left=1.0))
        flips_to[harmful] = int(policy.act((observed + found).unsqueeze(1)))
    assert flips_to == {0.4: 1, 0.41: 2}


@pytest.mark.parametrize("sigma", [0.0, 0.2])
def test_its_gradient_is_that_of_the_lead_over_the_noise(sigma):
    """Against differences of an agent that is not linear, with two harmful actions."""
    weights = [np.random.default_rng(7).normal(size=size).astype(np.float32) for size in ((16, 8), (4, 16))]
    network = MLP(weights, [np.zeros(16, dtype=np.float32), np.zeros(4, dtype=np.float32)], "tanh")
    policy = Policy(network, Spaces(shape=(4,), n_actions=4, n_stack=2), name="bent")
    view = view_of(policy, OBSERVED, context=torch.zeros(3, 2, 4))
    batch = VictimBatch.of(view, torch.arange(3), Smoothing(sigma, 5))
    harmful = torch.tensor([[True, True, False, False]]).expand(3, 4)
    softness = torch.full((3,), 0.3)
    flipped, _, gradient = batch.lead_and_gradient(OBSERVED, harmful, softness)
    assert flipped.tolist() == (batch.values(OBSERVED).argmax(dim=1) < 2).tolist()
    for number, step in enumerate(0.01 * torch.eye(4)):
        ahead = batch.lead_and_gradient(OBSERVED + step, harmful, softness)[1]
        behind = batch.lead_and_gradient(OBSERVED - step, harmful, softness)[1]
        assert torch.allclose((ahead - behind) / 0.02, gradient[:, number], atol=2e-2)


def test_a_push_is_worth_the_most_for_its_cost():
    """With a price of 0.5 and a budget of 1; planted: half or twice the push, one in another direction, no price."""
    sigma, price = 0.2, 0.5
    smoothing = Smoothing(sigma, 20_000)
    view = view_of(linear(), OBSERVED, left=1.0)
    push = PushAttack(1.0, price, smoothing).propose(view)
    noise = sigma * torch.randn(20_000, 4, generator=torch.Generator().manual_seed(5))

    def profit(moved, cost):
        values = torch.einsum("ao,rno->rna", torch.from_numpy(VALUES[:2]), (OBSERVED + moved).unsqueeze(1) + noise)
        clean = OBSERVED @ torch.from_numpy(VALUES[:2]).T
        loss = clean.max(dim=1).values.unsqueeze(1) - clean
        choices = torch.softmax(values / (0.1 * loss.max(dim=1).values).view(-1, 1, 1), dim=2).mean(dim=1)
        return (choices * loss).sum(dim=1) - cost * moved.square().sum(dim=1)

    best = profit(push, price)
    turned = push[:, [1, 0, 2, 3]]
    for other in (0 * push, 0.5 * push, 2 * push, turned):
        assert (best > profit(other, price)).all()
    dear = PushAttack(1.0, 4 * price, smoothing).propose(view)
    assert (dear.norm(dim=1) < 0.9 * push.norm(dim=1)).all()
    assert PushAttack(1.0, 1e-9, smoothing).propose(view).norm(dim=1).max() <= 1 + 1e-6
    # Half the budget of the episode makes the same push four times as dear.
    assert torch.allclose(PushAttack(0.5, price, smoothing).propose(view), dear, atol=2e-3)


def test_pushes_harm_an_agent_with_noise_and_a_high_price_keeps_the_budget():
    rule = FlipRule(budget=1.0, price=1e-3)
    assert build_attack(1.0, rule, Smoothing(0.2, 4)) == PushAttack(1.0, 1e-3, Smoothing(0.2, 4))
    assert build_attack(1.0, rule, Smoothing()) == FlipAttack(1.0, rule)
    means = []
    for price in (1e-3, 1e9):
        attacker = PushAttack(3.0, price, Smoothing(0.1, 16))
        episodes = play(plan_of(sigma=0.1, task=short_pole(60, "cartpole-1"), attacker=attacker, budget=3.0))
        assert float(episodes.budget_used.max()) <= 3.0
        means.append(float(episodes.returns.mean()))
    assert means[0] < 55 < means[1]


def test_flips_harm_within_the_budget():
    """Planted: a rule that never pays leaves every episode as it is."""
    means = []
    for price in (0.0, 1e9):
        attacker = FlipAttack(2.0, FlipRule(budget=2.0, price=price, least_gap=0.01))
        task = short_pole(60, "cartpole-1")
        episodes = play(plan_of(balancer(), task=task, attacker=attacker, budget=2.0))
        assert float(episodes.budget_used.max()) <= 2.0
        means.append(float(episodes.returns.mean()))
    assert means[0] < 55 < means[1]


@pytest.fixture
def scripted(monkeypatch):
    """Episodes whose returns are scripted: the lower, the nearer a rule is to a certain one; and what was played."""
    played = []

    class Played:
        def __init__(self, plan):
            if isinstance(plan.attacker, PushAttack):
                distance = abs(plan.attacker.price - 0.4)
            else:
                rule = plan.attacker.rule
                distance = abs(rule.price - 0.6) + abs(rule.least_gap - 0.05) + abs(rule.harmful - 0.3)
            self.returns = np.full(plan.n_episodes, 10 + distance)

    def play_scripted(plan, block):
        played.append(plan)
        return Played(plan)

    monkeypatch.setattr(learning_flips, "play_block", play_scripted)
    monkeypatch.setattr(learning_flips, "default_lambdas", lambda plan, smoothing: (0.0, 0.1, 0.2, 0.3))
    return played


def test_the_rule_that_hurts_most_is_kept(scripted):
    attacker = train_rules(plan_of(), [0.4, 0.1], AttackerTraining(iterations=3))
    assert attacker.rules == tuple(
        FlipRule(budget=budget, price=6 * 0.1, least_gap=0.5 * 0.1, harmful=0.3) for budget in (0.1, 0.4)
    )
    assert attacker.card["selection"] == [10.0, 10.0]
    # Eight rules, four, two; each round has fresh episodes, the same for all rules, none of them those measured.
    purposes = [plan.purpose for plan in scripted[:14]]
    rounds = [(Purpose.ATTACK_SELECTION, number) for number in range(3)]
    assert purposes == [rounds[0]] * 8 + [rounds[1]] * 4 + [rounds[2]] * 2
    assert [plan.n_episodes for plan in scripted[7:9]] == [32, 64]


def test_of_an_agent_with_noise_the_price_of_pushes_is_learned(scripted):
    (rule,) = train_rules(plan_of(sigma=0.2), [0.4], AttackerTraining(iterations=5)).rules
    assert rule == FlipRule(budget=0.4, price=4 * 0.1)
    # Five prices, three, and the last two until the end.
    assert [plan.n_episodes for plan in scripted] == [32] * 5 + [64] * 3 + [128] * 2 + [256] * 4


def test_learning_ends_when_the_minutes_are_over(scripted, monkeypatch):
    clock = iter(range(10_000))
    monkeypatch.setattr(learning_flips.time, "monotonic", lambda: next(clock))
    seen = []
    attacker = train_rules(
        plan_of(), [0.1, 0.2], AttackerTraining(minutes=0.4), progress=lambda *given: seen.append(given)
    )
    assert len(scripted) < 40
    assert len(attacker.rules) == 2
    assert [share for share, _ in seen] == [0.5, 1.0]


def test_a_file_keeps_rules_and_each_budget_takes_the_nearest(tmp_path):
    rules = tuple(FlipRule(budget=budget, price=2.0, least_gap=budget, harmful=0.3) for budget in (0.1, 0.4))
    attacker = PixelAttacker(rules, {"budgets": [0.1, 0.4]})
    attacker.save(tmp_path / "attacker.npz")
    read = load_attacker(tmp_path / "attacker.npz")
    assert isinstance(read, PixelAttacker)
    assert (read.rules, read.card, read.sha256) == (rules, attacker.card, attacker.sha256)
    smoothing = Smoothing(0.1, 8)
    assert read.of_run(0.19, UNDEFENDED) == FlipAttack(0.19, rules[0])
    assert read.of_run(0.21, UNDEFENDED) == FlipAttack(0.21, rules[1])
    assert read.of_run(0.0, UNDEFENDED).rule == rules[0]
    assert read.of_run(0.21, smoothing) == PushAttack(0.21, rules[1].price, smoothing)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (np.zeros((1, 3)), "rules must be rows of a budget, a price, a gap and a share"),
        (np.zeros((0, 4)), "rules must be rows of a budget, a price, a gap and a share"),
        (np.array([[0.0, 1.0, 1.0, 0.5]]), "rules must be finite numbers of at least 0, with budgets above 0"),
        (np.array([[1.0, np.nan, 1.0, 0.5]]), "rules must be finite numbers of at least 0, with budgets above 0"),
        (np.array([[1.0, 0.0, 1.0, 0.5]]), "rules must have prices above 0, and shares of at most 1"),
        (np.array([[1.0, 1.0, 1.0, 1.5]]), "rules must have prices above 0, and shares of at most 1"),
        (np.array([[1.0, 2.0, 1.0, 0.5]]), "its weights are not those of its card"),
    ],
)
def test_a_damaged_file_of_rules_is_refused_in_one_line(rules, message, tmp_path):
    PixelAttacker((FlipRule(budget=1.0, price=1.0),)).save(tmp_path / "a.npz")
    header, _ = read_npz(tmp_path / "a.npz", "learned attacker")
    write_npz(tmp_path / "a.npz", header, {"rules": rules})
    with pytest.raises(InputError, match=message) as raised:
        load_attacker(tmp_path / "a.npz")
    assert "\n" not in str(raised.value)


@pytest.fixture
def few_numbers(monkeypatch):
    """What CartPole shows counts as pixels, and a short training will do."""
    monkeypatch.setattr("surefoot.attacks.learned.MOST_INPUTS", 10)
    monkeypatch.setattr(learning_flips, "FIRST_EPISODES", 2)
    monkeypatch.setattr(value_gaps, "EPISODES", 1)


@pytest.mark.usefixtures("few_numbers")
def test_pixels_are_attacked_by_rules_and_another_run_takes_the_file(tmp_path):
    agent = "cartpole-5-s0.2"
    how = {"sigma": 0.2, "n_episodes": 6, "noise_samples": 2}
    first = surefoot.attack(POLE, agent, budgets=[0.5], method="learned", minutes=0.001, **how, out=tmp_path / "a")
    assert isinstance(first.attacker, PixelAttacker)
    assert first.attacker.card["trained_on"]["sigma"] == 0.2
    setup = json.loads((tmp_path / "a" / "B0.5" / "setup.json").read_text())
    assert '"learned pushes"' in json.dumps(setup)
    other = surefoot.attack(POLE, agent, budgets=[0.3], attacker=tmp_path / "a" / "attacker.npz", **how)
    assert other.attacker.sha256 == first.attacker.sha256


@pytest.mark.usefixtures("few_numbers")
def test_what_has_no_flips_is_refused():
    with pytest.raises(InputError, match="needs discrete actions"):
        surefoot.attack("mountain-car", actor_with_critic(), sigma=0.1, budgets=[0.1], method="learned", n_episodes=2)
    with pytest.raises(InputError, match="leaves nothing to save for later"):
        train_rules(plan_of(scope=Scope(per_step=True)), [0.1], AttackerTraining(iterations=1))
