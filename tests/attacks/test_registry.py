"""The attacks by name: what each is built with, and that it is the configuration's."""

from dataclasses import replace

import pytest
import torch

from surefoot.agents.policies import Policy, Spaces
from surefoot.attacks.adaptive_pgd import AdaptivePGD
from surefoot.attacks.composed import Composed, ValueGapTiming
from surefoot.attacks.ddpg import DdpgAttack
from surefoot.attacks.dqn import PaperAttack
from surefoot.attacks.opposite_action import OppositeAction
from surefoot.attacks.registry import METHODS, Configuration, default_method
from surefoot.attacks.shortest_flip import ShortestFlip
from surefoot.attacks.value_gaps import GapRecorder, default_lambdas
from surefoot.attacks.victim import UNDEFENDED, Smoothing
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.channel import Channel, Ledger, Rows
from surefoot.play.plan import Plan
from surefoot.play.streams import Stream, block_seeds
from surefoot.play.tasks import TASKS
from surefoot.runs.strongest import BATTERY
from toys import Spy, actor_with_critic, balancer, short_pole, view_of

POLE, CAR = short_pole(30), TASKS["mountain-car"]
SMOOTHING = Smoothing(0.3, 17)


def built(method, *, task=POLE, policy=None, smoothing=SMOOTHING, **changes):
    agent = policy or (balancer() if task is POLE else actor_with_critic())
    options = {"budget": 0.7, "lambda_q": 0.25, **changes}
    return METHODS[method].build(Configuration(task=task, policy=agent, smoothing=smoothing, **options))


def test_the_papers_attacks_stay_in_the_box_of_the_task():
    discrete, continuous = built("paper"), built("paper", task=CAR)
    assert isinstance(discrete, PaperAttack)
    assert isinstance(continuous, DdpgAttack)
    assert (discrete.low, discrete.high) == (None, None)
    assert (continuous.low, continuous.high) == CAR.box
    assert (discrete.lambda_q, continuous.weight) == (0.25, 0.25)
    assert discrete.smoothing == continuous.smoothing == SMOOTHING


def test_the_papers_attack_on_discrete_actions_stays_in_a_box_too():
    """No task of ours with discrete actions has one; a task of others may."""
    boxed = built("paper", task=replace(POLE, box=((-1.0,), (2.0,))), policy=balancer())
    assert (boxed.low, boxed.high) == ((-1.0,), (2.0,))


def test_a_single_step_is_the_first_and_has_the_whole_budget():
    timing = built("single-step").timing
    view = view_of(balancer(), torch.zeros(2, 4), left=0.7)
    for step, left in ((0, 0.7), (1, 0.0)):
        allowed = timing.allowance(replace(view, step=torch.full((2,), step)))
        assert allowed.tolist() == pytest.approx([left, left])


def test_of_two_channels_each_has_its_share_of_the_budget_in_units_of_its_own_noise():
    """The squares of both shares add up to that of the budget, which counts standard deviations."""
    given = Configuration(
        task=CAR,
        policy=actor_with_critic(),
        budget=2.0,
        smoothing=SMOOTHING,
        noise=Noise.of(0.3, 0.4),
        channels=("observations", "actions"),
    )
    seen, done = given.on("observations"), given.on("actions")
    assert (seen.channels, done.channels) == (("observations",), ("actions",))
    assert (seen.budget / 0.3) ** 2 == pytest.approx((done.budget / 0.4) ** 2) == pytest.approx(2.0)
    alone = replace(given, noise=Noise.of(0.3), channels=("observations",)).on("observations")
    assert alone.budget == 2.0


@pytest.mark.parametrize(("given", "used"), [(17, 8), (5, 5)])
def test_the_adaptive_attack_averages_over_fewer_samples_without_gradients(given, used):
    """But never over more than were asked for."""
    smoothing = Smoothing(0.3, given)
    blind = replace(balancer(), differentiable=False)
    for policy, samples, tries in ((None, given, 3), (blind, used, 2)):
        made = built("adaptive", policy=policy, smoothing=smoothing)
        assert isinstance(made.timing, ValueGapTiming)
        assert isinstance(made.direction, AdaptivePGD)
        assert made.timing.smoothing == made.direction.smoothing == Smoothing(0.3, samples)
        assert (made.timing.lambda_q, made.direction.tries) == (0.25, tries)


def test_the_adaptive_attack_on_continuous_actions_spends_its_budget_early():
    made = built("adaptive", task=CAR)
    assert isinstance(made.direction, OppositeAction)
    assert (made.timing.budget, made.timing.steps) == (0.7, round(0.75 * CAR.scoring.max_steps))
    assert made.direction.smoothing == SMOOTHING


@pytest.mark.parametrize("method", ["random", "constant-direction"])
def test_attacks_that_spend_evenly_do_so_over_the_longest_episode(method):
    made = built(method)
    assert (made.timing.budget, made.timing.steps) == (0.7, 30)


def test_the_strongest_attack_is_looked_for_among_all_that_have_a_name():
    assert sorted(BATTERY) == sorted(name for name, method in METHODS.items() if not method.is_battery)


@pytest.mark.parametrize(
    ("budgets", "per_step", "discrete", "continuous"),
    [
        ((0.2,), False, "paper", "paper"),
        ((0.2,), True, "paper", "paper"),
        ((), False, "flips", "adaptive"),
        ((), True, "paper", "adaptive"),
    ],
)
def test_the_papers_attack_is_the_default_on_its_tasks_and_flips_elsewhere(budgets, per_step, discrete, continuous):
    """With a budget for each step there is nothing to save, and with continuous actions nothing to flip."""
    for task, policy, method in ((POLE, balancer(), discrete), (CAR, actor_with_critic(), continuous)):
        here = replace(task, paper=replace(task.paper, budgets=budgets))
        assert default_method(here, policy, per_step=per_step) == method


@pytest.mark.parametrize("budgets", [(), (0.2,)])
def test_an_agent_without_gradients_or_critic_is_attacked_all_the_same(budgets):
    for task, policy in (
        (POLE, replace(balancer(), differentiable=False)),
        (CAR, replace(actor_with_critic(), critic=None)),
    ):
        here = replace(task, paper=replace(task.paper, budgets=budgets))
        assert default_method(here, policy, per_step=False) == "adaptive"


def test_flips_are_bought_where_the_gap_is_large_enough_and_refused_for_budgets_per_step():
    made = built("flips")
    assert isinstance(made.timing, ValueGapTiming)
    assert isinstance(made.direction, ShortestFlip)
    assert made.timing.smoothing == made.direction.smoothing == SMOOTHING
    assert made.timing.lambda_q == 0.25
    with pytest.raises(InputError, match="the method flips saves budget for later steps"):
        built("flips", per_step=True)


class Values(torch.nn.Module):
    """Values of three actions whose best and worst are 1 apart; the mean is elsewhere."""

    def forward(self, history):
        return torch.tensor([2.0, 1.25, 1.0]).repeat(len(history), 1)


class Sloped(torch.nn.Module):
    """Values of two actions, 1 apart where the first number is 0; they change places at -0.5."""

    def forward(self, history):
        x = history.reshape(len(history), -1)[:, 0]
        return torch.stack([x + 0.5, -x - 0.5], dim=1)


def shown(network=None, *, n_actions=3, budget=0.7):
    """Return what an attacker of such an agent is shown at its first step."""
    policy = Policy(network or Values(), Spaces(shape=(4,), n_actions=n_actions))
    spy, cpu = Spy(), torch.device("cpu")
    streams = [Stream(seeds, cpu) for seeds in block_seeds(0, (), 0)]
    ledger = Ledger(attacker=spy, budget=budget, policy=policy, stream=streams[2], n_envs=2, shape=(4,), max_steps=5)
    channel = Channel(noise=Noise.of(0.3), n_envs=2, shape=(4,), stream=streams[1], ledger=ledger)
    seen = []
    spy.what = lambda view: seen.append(view) or torch.zeros_like(view.observation)
    rows = Rows(
        episode=torch.arange(2),
        step=torch.zeros(2, dtype=torch.int64),
        episode_start=torch.ones(2, dtype=torch.bool),
        observation=torch.zeros(2, 4),
        state=None,
        memory=torch.zeros(2, 1, 4),
        action=None,
    )
    channel.send(torch.zeros(2, 4), rows)
    return seen[0]


@pytest.mark.parametrize(("lambda_q", "attacks"), [(0.9, True), (1.0, True), (1.1, False)])
def test_a_gap_as_large_as_the_threshold_matters(lambda_q, attacks):
    view = shown()
    allowed = ValueGapTiming(lambda_q, UNDEFENDED).allowance(view)
    assert allowed.tolist() == (view.budget_left.tolist() if attacks else [0.0, 0.0])
    assert view.budget_left.tolist() == pytest.approx([0.7, 0.7])


def test_the_gap_that_is_noted_is_from_the_best_to_the_worst_action():
    recorder = GapRecorder(UNDEFENDED)
    assert not recorder.propose(shown()).any()
    assert recorder.gaps[0].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("attack", [PaperAttack(0.0), Composed(ValueGapTiming(0.0), ShortestFlip())])
def test_gaps_of_an_attack_are_those_that_it_reaches(attack):
    """A budget of .7 is enough to move both rows to their worst action, one of .2 moves neither."""
    for budget, gaps in ((0.7, [1.0, 1.0]), (0.2, [])):
        view = shown(Sloped(), n_actions=2, budget=budget)
        recorder = GapRecorder(UNDEFENDED, attack)
        assert not recorder.propose(view).any()
        assert [gap for found in recorder.gaps for gap in found.tolist()] == gaps


def test_by_default_an_attack_without_a_threshold_is_among_those_tried():
    plan = Plan(task=POLE, policy=balancer(), noise=Noise.of(0.2), n_episodes=2)
    lambdas = default_lambdas(plan, Smoothing(0.2, 2))
    assert lambdas[0] == 0.0
    assert len(lambdas) == 4
    assert list(lambdas) == sorted(lambdas)
