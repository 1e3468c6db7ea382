"""The learned attacker: it learns through the channel, its file is data, and it fits what it was trained on."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import surefoot
from surefoot.agents import files as zoo
from surefoot.agents.policies import Policy
from surefoot.api.attack import _read_trials
from surefoot.attacks import learning
from surefoot.attacks.learned import ATTACKER_SCHEMA, LEAST_SCALE, LearnedAttacker, load_attacker, read_view, spend
from surefoot.attacks.learning import AttackerTraining, AttackLearner, Recorder, run_recorded, train_attacker
from surefoot.cli.main import main
from surefoot.errors import InputError
from surefoot.files import read_npz, write_npz
from surefoot.noise import Noise
from surefoot.play.channel import Scope, View
from surefoot.play.plan import Plan, attacked_channels
from surefoot.play.rollout import play
from surefoot.play.streams import Purpose
from surefoot.play.tasks import discounted
from surefoot.runs.attacked import AttackGrid, Trial, invisible_loss, matched
from surefoot.runs.strongest import _battery, choose_strongest
from toys import Spy, actor_with_critic, balancer, recurrent, short_pole, view_of

POLE = short_pole(30)
SWING = surefoot.make_task("Pendulum-v1", floor=-200, ceiling=0, max_steps=10)
PULL = Policy(nn.Sequential(nn.Flatten(), nn.Linear(3, 1)).requires_grad_(False), SWING.spaces)
SHORT = AttackerTraining(iterations=2, n_envs=24, width=8)


def plan_of(task=POLE, policy=None, sigma=0.2, **changes):
    return Plan(task=task, policy=policy or balancer(5), noise=Noise.of(sigma), n_episodes=24, **changes)


@pytest.fixture(scope="module")
def trained():
    return train_attacker(plan_of(), [0.5, 1.0], SHORT)


def test_a_training_of_so_many_iterations_is_the_same_each_time(trained):
    assert train_attacker(plan_of(), [1.0, 0.5], SHORT).sha256 == trained.sha256
    assert train_attacker(plan_of(seed=1), [0.5, 1.0], SHORT).sha256 != trained.sha256
    assert trained.card["trained_on"]["agent"] == balancer(5).name
    assert trained.card["budgets"] == [0.5, 1.0]


@pytest.mark.parametrize(
    ("task", "policy", "sigma"),
    [
        (POLE, None, 0.0),
        (POLE, None, (0.2, 0.4, 0.0, 0.2)),
        (POLE, recurrent(), 0.3),
        (SWING, PULL, 0.2),
        (surefoot.make_task("CartPole-v1", floor=0, ceiling=10, max_steps=10), lambda seen: 0, 0.1),
        (SWING, PULL, Noise.of(0.0, 0.2)),
    ],
    ids=["undefended", "sigma per feature", "recurrent", "continuous", "any environment and function", "actions"],
)
def test_agents_of_every_kind_are_attacked_within_the_budget(task, policy, sigma, tmp_path):
    """One feature without noise is never touched; the file proposes what the attacker proposed."""
    noise = sigma if isinstance(sigma, Noise) else Noise.of(sigma)
    plan = replace(plan_of(task, surefoot.as_policy(policy, task.spaces) if policy is not None else None), noise=noise)
    plan = replace(plan, channels=attacked_channels(noise, None))
    attacker = train_attacker(plan, [0.7], SHORT)
    attacker.save(tmp_path / "attacker.npz")
    returns = []
    for one in (attacker, load_attacker(tmp_path / "attacker.npz")):
        recorder = Recorder(one, torch.ones(one.unit.numel()), None)
        steps = run_recorded(replace(plan, purpose=(Purpose.ATTACK,)), recorder, torch.full((12,), 0.7))
        used = torch.zeros(12).index_add_(0, steps["episode"], steps["moved"].square().sum(dim=1)).sqrt()
        assert float(used.max()) <= 0.7 * (1 + 1e-6)
        assert float(used.min()) > 0
        returns.append(steps["moved"])
    assert torch.equal(*returns)
    if isinstance(sigma, tuple):
        assert attacker.unit.tolist() == [1.0, 2.0, 0.0, 1.0]


def test_each_episode_has_the_budget_it_was_given_in_the_ledger(trained):
    budgets = torch.tensor([0.0, 0.3, 1.2])
    recorder = Recorder(trained, torch.full((4,), 0.2), None)
    steps = run_recorded(replace(plan_of(), purpose=(Purpose.ATTACK_TRAINING, 7)), recorder, budgets)
    first = steps["left"][steps["step"] == 0]
    assert torch.allclose(first, budgets, atol=1e-6)


def test_the_noise_that_is_learned_from_is_the_noise_that_was_added(trained):
    """Standard normal, and the same for the same numbers whatever the attacker does (planted: twice the sigma)."""
    plan = replace(plan_of(), purpose=(Purpose.ATTACK_TRAINING, 3))
    spreads = []
    for sigma in (0.2, 0.4):
        recorder = Recorder(trained, torch.full((4,), sigma), None)
        steps = run_recorded(plan, recorder, torch.full((200,), 1.0))
        spreads.append(float(steps["noise"].std()))
    # More than 10,000 draws: five standard errors.
    assert abs(spreads[0] - 1) < 0.035
    assert abs(spreads[1] - 1) > 0.035


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_gradient_of_the_noise_points_where_the_return_falls(sign):
    """Planted: a reward that only the noise of the first feature decides, in either direction."""
    learner = AttackLearner(plan_of(sigma=0.5), [1.0], SHORT.on(plan_of()))
    steps = learner.collect(1.0, torch.full((24,), 1.0))
    advantage = sign * steps["noise"][:, 0]
    loss = learner._loss(steps, 0.5, advantage, torch.zeros_like(advantage))
    (gradient,) = torch.autograd.grad(loss, learner.attacker.network.last.bias)
    # Moving against the gradient moves the first feature towards what the attacker gained by.
    assert float(-sign * gradient[0]) > 3 * float(gradient[1:].abs().max())


def test_a_price_makes_the_attacker_save():
    learner = AttackLearner(plan_of(sigma=0.5), [1.0], SHORT.on(plan_of()))
    steps = learner.collect(1.0, torch.full((24,), 1.0))
    nothing = torch.zeros(len(steps["left"]))
    parameters = list(learner.attacker.network.parameters())
    before = steps["moved"].norm()
    gradients = torch.autograd.grad(learner._loss(steps, 0.5, nothing, nothing + 1), parameters)
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.sub_(0.05 * gradient)
    with torch.no_grad():
        after = spend(learner.attacker.network(steps["known"], steps["left"]), steps["left"]).norm()
    assert float(after) < float(before)


@pytest.mark.parametrize("scope", [Scope(), Scope(per_step=True, norm="linf")], ids=["l2", "linf"])
def test_what_is_proposed_is_what_was_learned_in_the_units_of_each_feature(scope):
    """The attacker of a run proposes as the one that was recorded while it learned; one feature has twice the noise."""
    plan = plan_of(sigma=(0.2, 0.4, 0.0, 0.2), scope=scope)
    attacker = train_attacker(plan, [0.7], SHORT)
    spy = Spy(attacker.propose)
    play(replace(plan, attacker=spy, budget=0.7, n_envs=24, episodes_per_env=1, purpose=(Purpose.ATTACK,)))
    for shown in spy.views[:3]:
        view = View(**shown)
        recorder = Recorder(attacker, torch.ones(4), None)
        assert torch.equal(attacker.propose(view), recorder.propose(view))
        assert attacker.propose(view)[:, 1].abs().max() > 0


def test_at_the_first_step_it_knows_what_the_agent_will_remember():
    """A first observation fills the frames; an agent that remembered zeros would do something else."""
    plan = plan_of(policy=zoo.load("cartpole-5-s0.2"))
    spy = Spy()
    play(replace(plan, attacker=spy, budget=0.0, purpose=(Purpose.ATTACK,)))
    view = View(**spy.views[0])
    policy = view.policy
    filled = view.observation.unsqueeze(1).expand(-1, policy.spaces.n_stack, -1)
    n_outputs = policy.spaces.n_outputs
    assert torch.equal(read_view(view, 30)[:, -n_outputs:], policy.network(filled))
    newest_alone = torch.cat([torch.zeros_like(filled[:, 1:]), filled[:, :1]], dim=1)
    assert not torch.equal(policy.network(filled), policy.network(newest_alone))


def test_every_iteration_learns_from_episodes_of_its_own():
    learner = AttackLearner(plan_of(), [1.0], SHORT.on(plan_of()))
    budgets = torch.full((24,), 1.0)
    one, other = (learner.collect(1.0, budgets)["observation"][:24] for _ in range(2))
    assert not torch.equal(one, other)


@pytest.mark.parametrize("gamma", [None, 0.9])
def test_what_is_learned_from_adds_up_to_the_return_that_is_certified(gamma):
    """With a discount too (planted: the rewards as they come are those of another return)."""
    learner = AttackLearner(plan_of(), [1.0], SHORT.on(plan_of()))
    learner.plan = plan_of(POLE if gamma is None else discounted(POLE, gamma), n_envs=24, episodes_per_env=1)
    purpose = (Purpose.ATTACK_TRAINING, learner.iteration)
    steps = learner.collect(1.0, torch.zeros(24))
    learned = torch.zeros(24, dtype=torch.float64).index_add_(0, steps["episode"], steps["reward"].double())
    assert np.allclose(learned, play(replace(learner.plan, purpose=purpose)).returns, rtol=1e-6)


def test_a_step_is_judged_by_all_that_follows_in_its_episode_and_nothing_else():
    """Against a loop over each episode: advantages, targets, and the price of what is left after the step.

    Episodes end at different steps, and one unit of squared budget is worth something else at each.
    """
    learner = AttackLearner(plan_of(), [1.0], SHORT.on(plan_of()))
    generator = torch.Generator().manual_seed(0)
    lengths = [1, 4, 3]
    places = [(episode, step) for step in range(4) for episode in range(3) if step < lengths[episode]]
    episode, step = torch.tensor(places).T
    draws = {name: torch.rand(len(places), generator=generator) for name in ("reward", "left", "worth")}
    steps = {"episode": episode, "step": step, "reward": draws["reward"].double(), "left": 0.1 + draws["left"]}
    steps["known"] = draws["worth"].unsqueeze(1)
    steps["observation"] = torch.randn(len(places), 4, generator=generator)
    learner.critic = lambda known, left: known * left.unsqueeze(1).square()
    advantage, target, price = learner._judge(steps)

    values = draws["worth"] * steps["left"].square()
    potential = learner.potential.at(steps["observation"])
    expected = torch.zeros(len(places))
    expected_price = torch.zeros(len(places))
    for number, (one, at) in reversed(list(enumerate(places))):
        expected[number] = -steps["reward"][number] * learner.reward_scale - potential[number] - values[number]
        if (one, at + 1) in places:
            after = places.index((one, at + 1))
            expected[number] += potential[after] + values[after] + learning.TRACE * expected[after]
            expected_price[number] = draws["worth"][after]
    spread = float(expected.std()) + learning.ALMOST_ZERO
    assert torch.allclose(advantage, (expected - expected.mean()) / spread, atol=1e-5)
    assert torch.allclose(target, expected + values, atol=1e-5)
    assert torch.allclose(price, expected_price / spread, atol=1e-5)


def learner_of(plan=None, budgets=(1.0,)):
    plan = plan or plan_of()
    return AttackLearner(plan, budgets, SHORT.on(plan))


def test_an_attacker_moves_each_feature_in_units_of_its_noise(monkeypatch):
    """As budgets count them; a feature without noise is not moved."""
    monkeypatch.setattr(AttackLearner, "_look_around", lambda self: None)
    monkeypatch.setattr(AttackLearner, "_start_from_direction", lambda self: None)
    assert learner_of(plan_of(sigma=(0.2, 0.4, 0.0, 0.3))).attacker.unit.tolist() == pytest.approx([1.0, 2.0, 0.0, 1.5])
    assert learner_of(plan_of(sigma=0.4)).attacker.unit.tolist() == [1.0] * 4
    assert learner_of(plan_of(sigma=0.0)).attacker.unit.tolist() == [1.0] * 4


def test_budgets_fall_from_large_ones_to_those_that_were_asked_for():
    learner = learner_of(budgets=[0.5, 2.0])
    learner.n_envs = 2_000
    for fraction, most in ((0.0, 10.0), (0.25, 2.0 * 5**0.5), (0.5, 2.2), (1.0, 2.2)):
        budgets = learner.budgets_at(fraction)
        assert most * learning.SMALLEST_BUDGETS <= float(budgets.min()) < 0.2 * most
        assert 0.95 * most < float(budgets.max()) <= most


def test_noise_to_explore_with_shrinks_and_an_agent_with_noise_keeps_its_own():
    learner = learner_of(plan_of(sigma=0.0), budgets=[0.5, 2.0])
    sigmas = [learner.noise_at(fraction).sigma for fraction in (0.0, 0.5, 1.0)]
    assert sigmas == pytest.approx([0.5, (0.5 * 0.06) ** 0.5, 0.06])
    assert learner_of(plan_of(sigma=0.3)).noise_at(0.2) == Noise.of(0.3)


def test_it_starts_from_the_direction_that_hurts_most(monkeypatch):
    """Planted: only episodes that are pushed down along the second feature lose anything."""
    collect = AttackLearner.collect

    def losing(self, fraction, budgets, direction=None):
        steps = collect(self, fraction, budgets, direction)
        if direction is not None:
            steps["reward"] = 1.0 - (direction[steps["episode"], 1] < 0).double()
        return steps

    monkeypatch.setattr(AttackLearner, "collect", losing)
    learner = learner_of()
    for network in (learner.attacker.network, learner.average):
        bias = network.last.bias.detach()
        assert float(bias[1]) < 0
        assert bias.count_nonzero() == 1


def test_inputs_and_budgets_are_in_units_of_what_episodes_without_attack_have():
    plan = plan_of()
    learner = learner_of(plan, budgets=[0.5, 2.0])
    spy = Recorder(learner.attacker, torch.full((4,), 0.2), None)
    steps = run_recorded(replace(plan, purpose=(Purpose.ATTACK_TRAINING, 0)), spy, torch.zeros(24))
    for network in (learner.attacker.network, learner.average, learner.critic):
        assert float(network.budget_scale) == 2.0
        assert torch.allclose(network.center, steps["known"].mean(dim=0))
        assert torch.allclose(1 / network.scale, steps["known"].std(dim=0).clamp_min(LEAST_SCALE))
    returns = [float(steps["reward"][steps["episode"] == number].sum()) for number in range(24)]
    assert learner.reward_scale == pytest.approx(learning.RETURN_SCALE / np.sqrt(np.mean(np.square(returns))))


def test_what_is_far_from_all_that_was_seen_is_no_farther_than_ten_deviations():
    network = learner_of().critic
    left = torch.ones(2)
    ends = [network.center + far / network.scale * torch.tensor([[1.0], [-1.0]]) for far in (10.0, 1e6, 5.0)]
    edge, beyond, inside = (network(end, left) for end in ends)
    assert torch.allclose(edge, beyond, atol=1e-5)
    assert not torch.allclose(edge, inside, atol=1e-5)


def test_the_loss_is_about_how_likely_what_the_agent_saw_is_now():
    """Against the densities of a normal distribution around either perturbation."""
    learner = learner_of(plan_of(sigma=0.5))
    steps = learner.collect(1.0, torch.full((24,), 1.0))
    count = len(steps["left"])
    advantage, price = torch.randn(2, count, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        learner.attacker.network.last.bias.add_(0.05)
        found = float(learner._loss(steps, 0.5, advantage, price))
        moved = spend(learner.attacker.network(steps["known"], steps["left"]), steps["left"])
    seen = steps["moved"] + 0.5 * steps["noise"]
    densities = [
        torch.distributions.Normal(center, 0.5).log_prob(seen).sum(dim=1) for center in (moved, steps["moved"])
    ]
    ratio = (densities[0] - densities[1]).exp()
    assert float((ratio - 1).abs().max()) > 2 * learning.RATIO_CLIP
    gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    assert found == pytest.approx(float((price * moved.square().sum(dim=1) - gain).mean()), rel=1e-3)


def test_an_attacker_sees_what_the_agent_remembers_and_not_what_it_would_without_noise():
    policy = balancer(5)
    observed = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    memory = torch.randn(3, policy.spaces.n_stack, 4, generator=torch.Generator().manual_seed(1))
    view = replace(view_of(policy, observed, step=6, context=memory), clean=0 * memory)
    known = read_view(view, 30)
    assert torch.equal(known[:, :4], observed)
    assert torch.equal(known[:, 4 : 4 + memory[0].numel()], memory.flatten(1))
    assert torch.allclose(known[:, 4 + memory[0].numel()], torch.full((3,), 0.2))


@pytest.mark.parametrize(("iteration", "kept"), [(1, 1 / 11), (10, 0.5), (1_000, learning.AVERAGING)])
def test_the_average_keeps_most_of_the_past_but_little_of_the_first_weights(iteration, kept):
    learner = AttackLearner(plan_of(), [1.0], SHORT.on(plan_of()))
    for average in learner.average.parameters():
        average.zero_()
    learner.iteration = iteration - 1
    learner.learn(0.5)
    for average, now in zip(learner.average.parameters(), learner.attacker.network.parameters(), strict=True):
        assert torch.allclose(average, (1 - kept) * now, rtol=1e-4)


def test_the_weights_that_hurt_most_are_kept(monkeypatch):
    """Of three rounds the second has the lowest sum over the budgets; its weights stay as they were then.

    At the first budget alone the first round would be the best, at the last alone the third.
    """
    means = iter([1.0, 9.0, 3.0, 4.0, 5.0, 3.0])
    rounds = []

    learners = []
    learn = AttackLearner.learn
    monkeypatch.setattr(AttackLearner, "learn", lambda self, fraction: learners.append(self) or learn(self, fraction))

    def mean(plan, candidate, *_):
        rounds.append(candidate.sha256)
        # The running average, not the last weights.
        assert candidate.sha256 == replace(learners[-1].attacker, network=learners[-1].average).sha256
        return next(means)

    monkeypatch.setattr(learning, "_selection_mean", mean)
    kept = train_attacker(plan_of(), [0.5, 1.0], AttackerTraining(iterations=7, n_envs=24, width=8))
    assert len(rounds) == 6
    assert kept.card["selection"] == [3.0, 4.0]
    assert kept.sha256 == rounds[2]
    assert len(set(rounds)) == 3


def damaged(path, tmp_path, change):
    header, arrays = read_npz(path, "learned attacker", "unit")
    change(header, arrays)
    write_npz(tmp_path / "damaged.npz", header, arrays)
    return tmp_path / "damaged.npz"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda header, arrays: header.update(schema=ATTACKER_SCHEMA + 1), "has schema 2, this version reads 1"),
        (lambda header, arrays: header.update(max_steps=0), "max_steps is not a whole number from 1 to 1,000,000"),
        (lambda header, arrays: header.update(channel="wires"), "channel is 'wires', expected one of observations"),
        (lambda header, arrays: header.pop("channel"), "channel"),
        (lambda header, arrays: header.update(max_steps=10**400), "max_steps is not a whole number"),
        (lambda header, arrays: header.pop("card"), "card"),
        (lambda header, arrays: arrays.update(more=np.zeros(2)), "is not a readable learned attacker"),
        (lambda header, arrays: arrays.update(unit=np.ones(3, np.float32)), "its units do not fit its network"),
        (lambda header, arrays: arrays["center"].fill(np.nan), "center must be finite numbers"),
        (lambda header, arrays: arrays.update(scale=np.ones(27)), "scale must be finite numbers of single precision"),
        (lambda header, arrays: arrays["budget_scale"].fill(-1), "budget_scale is not above 0"),
        # Its square would take all memory: 360 GB.
        (
            lambda header, arrays: arrays.update({"layers.0.weight": np.zeros((300_000, 1), np.float32)}),
            r"Error\(s\) in loading state_dict",
        ),
        (lambda header, arrays: arrays["layers.0.bias"].fill(0), "its weights are not those of its card"),
        (lambda header, arrays: arrays.pop("center"), "is not a readable learned attacker"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(trained, tmp_path, change, message):
    trained.save(tmp_path / "attacker.npz")
    with pytest.raises(InputError, match=message) as raised:
        load_attacker(damaged(tmp_path / "attacker.npz", tmp_path, change))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "paper"}, "attacker= is a learned attacker and goes with method='learned', got method='paper'"),
        ({"agent": "cartpole-1-s0.2"}, "the attacker looks at 27 numbers, the agent cartpole-1-s0.2 on cartpole-1 gi"),
        ({"attacker": "absent.npz"}, "no file absent.npz"),
        ({"attacker": None, "method": "learned", "minutes": 0}, "minutes must be a finite number > 0, got 0"),
        ({"attacker": None, "method": "learned", "budgets": [0]}, "needs a budget > 0 to learn to spend"),
    ],
)
def test_a_wrong_call_says_what_to_do(trained, options, message):
    call = {"agent": "cartpole-5-s0.2", "budgets": [0.5], "attacker": trained, "sigma": 0.2, "n_episodes": 4, **options}
    task = call["agent"][:10]
    with pytest.raises(InputError, match=message):
        surefoot.attack(task, **call)


def test_a_run_directory_keeps_the_attacker_and_another_run_takes_it(tmp_path):
    options = {"sigma": 0.2, "method": "learned", "minutes": 0.01, "n_episodes": 6}
    first = surefoot.attack(POLE, "cartpole-5-s0.2", budgets=[0.5], **options, out=tmp_path / "a")
    again = surefoot.attack(POLE, "cartpole-5-s0.2", budgets=[0.5], **options, out=tmp_path / "a")
    assert again.attacker.sha256 == first.attacker.sha256
    assert again.mean.tolist() == first.mean.tolist()
    setup = json.loads((tmp_path / "a" / "B0.5" / "setup.json").read_text())
    assert first.attacker.sha256 in json.dumps(setup)
    other = surefoot.attack(
        POLE, "cartpole-5-s0.2", sigma=0.2, budgets=[0.1], n_episodes=6, attacker=tmp_path / "a" / "attacker.npz"
    )
    assert isinstance(other.attacker, LearnedAttacker)
    assert other.summary["method"] == "learned"


def test_the_command_trains_for_the_minutes_given_and_takes_a_file(tmp_path, monkeypatch, capsys):
    given = []
    monkeypatch.setattr("surefoot.api.attack.AttackerTraining", lambda minutes, **_: given.append(minutes) or SHORT)
    call = ["attack", "cartpole-1", "--sigma", "0.2", "--budgets", "0.5", "--episodes", "4", "--json", "--out"]
    assert main([*call, str(tmp_path / "a"), "--method", "learned", "--minutes", "0.5"]) == 0
    assert given == [0.5]
    capsys.readouterr()
    file = str(tmp_path / "a" / "attacker.npz")
    assert main([*call, str(tmp_path / "b"), "--attacker", file]) == 0
    assert load_attacker(tmp_path / "b" / "attacker.npz").sha256 == load_attacker(file).sha256
    assert json.loads(capsys.readouterr().out)["method"] == "learned"
    assert given == [0.5]
    assert main([*call, str(tmp_path / "c"), "--method", "learned", "--blocks", "1/2"]) == 2
    assert "shares of one run need one attacker" in capsys.readouterr().err


def test_the_strongest_attack_is_chosen_on_other_episodes_than_it_is_measured_on(tmp_path, monkeypatch):
    """Every method that fits is tried; the lowest at each budget is measured; a second run chooses nothing."""
    options = {"sigma": 0.2, "method": "strongest", "minutes": 0.01, "n_episodes": 8, "noise_samples": 2}
    curve = surefoot.attack(POLE, balancer(5), budgets=[0.3, 1.0], **options)
    trials = curve.summary["trials"]
    assert {trial["method"] for trial in trials} >= {"learned"}
    for budget, chosen in zip([0.3, 1.0], curve.summary["chosen"], strict=True):
        assert chosen == min((t for t in trials if t["budget"] == budget), key=lambda t: t["mean"])
    measured = {tuple(one.metadata["purpose"]) for one in curve.records}
    assert measured == {(Purpose.ATTACK,)}
    first = surefoot.attack(POLE, "cartpole-5-s0.2", budgets=[0.5], **options, out=tmp_path / "a")
    kept = json.loads((tmp_path / "a" / "trials.json").read_text())["trials"]
    assert kept == json.loads(json.dumps(first.summary["trials"]))
    monkeypatch.setattr("surefoot.api.attack.choose_strongest", lambda *_, **__: pytest.fail("chosen once more"))
    again = surefoot.attack(POLE, "cartpole-5-s0.2", budgets=[0.5], **options, out=tmp_path / "a")
    assert again.summary == first.summary


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "nonsense"}, "'nonsense' is no method that was tried"),
        ({"method": "strongest"}, "'strongest' is no method that was tried"),
        ({"mean": "low"}, "expected a number, got 'low'"),
        ({"lambda_": []}, "expected a number"),
        ({"budget": 0.3}, "it has no trial of some budgets"),
        ({"more": 1}, "unexpected keyword argument 'more'"),
    ],
)
def test_a_damaged_list_of_trials_is_refused_in_one_line(tmp_path, change, message):
    trial = {"budget": 0.5, "method": "random", "lambda_": None, "mean": 3.0}
    base = plan_of(policy=replace(balancer(5), differentiable=False))
    grid = AttackGrid(base=base, budgets=(0.5,), method="strongest")
    path = tmp_path / "trials.json"
    path.write_text(json.dumps({"schema": 1, "trials": [trial]}))
    assert _read_trials(path, grid) == (Trial(**trial),)
    path.write_text(json.dumps({"schema": 1, "trials": [{**trial, **change}]}))
    with pytest.raises(InputError, match=message):
        _read_trials(path, grid)


def test_a_battery_tries_what_there_is_time_for(monkeypatch):
    """The first method that fits at every budget in any case; with more time, all that fit the agent."""
    monkeypatch.setattr("surefoot.runs.strongest.BATTERY", ("paper", "random", "structured"))
    base = plan_of(policy=replace(balancer(5), differentiable=False), sigma=1.5)
    grid = AttackGrid(base=base, budgets=(0.2, 0.4), method="strongest")
    hurried = choose_strongest(grid, seconds=0.0).trials
    assert [(trial.budget, trial.method) for trial in hurried] == [(0.2, "random"), (0.4, "random")]
    assert {trial.method for trial in choose_strongest(grid, seconds=60.0).trials} == {"random", "structured"}
    # On other episodes than those that are measured, whose means are others.
    measured = [float(play(replace(grid, method="random").plan(budget, None)).returns.mean()) for budget in (0.2, 0.4)]
    assert [trial.mean for trial in hurried] != measured


def test_every_method_of_a_battery_has_the_lambdas_that_it_would_have_alone():
    """With the lambda 0 alone its strongest attack may not be among those that are tried."""
    car = Plan(task=surefoot.get_task("mountain-car"), policy=actor_with_critic(), noise=Noise.of(0.2), n_episodes=4)
    tried = {one.method: one for one in _battery(AttackGrid(base=car, budgets=(0.2,), method="strongest"))}
    assert tried["adaptive"].lambdas == (0.0, 0.75, 0.95)
    assert tried["paper"].lambdas == car.task.paper.lambdas
    assert "learned" not in tried
    for name, one in tried.items():
        alone = AttackGrid(base=car, budgets=(0.2,), method=name)
        assert one.lambdas == alone.default_lambdas()


def test_attacked_episodes_and_their_twins_share_start_and_noise():
    """An attack that does nothing changes no episode; with several episodes per environment it would seem to."""
    grid = AttackGrid(base=plan_of(n_envs=6, episodes_per_env=4), budgets=(0.0, 2.0), method="random")
    assert grid.twin.block_size == 6
    records = {one: play(grid.plan(*one)) for one in grid.configurations()}
    result = matched(grid, records, play(grid.twin))
    assert result["loss"][0] == result["loss_sem"][0] == [0.0]
    assert result["n_changed"][0] == [0]
    assert result["n_changed"][1][0] > 0
    unmatched = play(replace(grid.twin, episodes_per_env=4))
    assert matched(grid, records, unmatched)["n_changed"][0] != [0]


def test_a_loss_is_what_the_attack_took():
    """Positive where the attacked return is lower, episode by episode."""
    grid = AttackGrid(base=plan_of(), budgets=(0.5,), method="random")
    attacked, quiet = (surefoot.Episodes.from_returns(r, sigma=0.2, floor=0, ceiling=30) for r in ([1, 9], [5, 9]))
    result = matched(grid, {(0.5, None): attacked}, quiet)
    assert (result["loss"], result["n_changed"]) == ([[2.0]], [[1]])
    assert result["loss_sem"] == [[2.0]]


@pytest.mark.parametrize("n", [16, 1_000])
@pytest.mark.parametrize("floor", [0, -300, 100])
def test_a_loss_that_is_called_invisible_is_missed_once_in_twenty(n, floor):
    """Of an attack that takes all of the return, down to the floor."""
    record = surefoot.Episodes.from_returns([200.0] * n, sigma=0.1, floor=floor, ceiling=200)
    share = invisible_loss(record) / (200 - floor)
    assert (1 - share) ** n == pytest.approx(0.05)
