"""Attacks with a budget for each step, in l2 and linf: it is kept, used up, and never taken for another budget."""

import json
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import nn

import surefoot
from surefoot.agents.policies import Policy
from surefoot.attacks.base import normalize_rows, project
from surefoot.attacks.ddpg import DdpgAttack
from surefoot.attacks.learned import spend
from surefoot.attacks.learning import AttackerTraining, AttackLearner, train_attacker
from surefoot.cli.main import main
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.channel import Scope
from surefoot.play.loop import play_block
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.report.charts import group_runs
from surefoot.report.sentences import budget_meanings
from surefoot.runs.attacked import AttackGrid
from surefoot.runs.read import neighbors, read_run
from toys import actor_with_critic, balancer, short_pole, view_of

POLE = short_pole(30)
SWING = surefoot.make_task("Pendulum-v1", floor=-200, ceiling=0, max_steps=10)
NUMBERS, LENGTHS = Scope(per_step=True, norm="linf"), Scope(per_step=True)
LINEAR = nn.Linear(3, 1)
SHORT = AttackerTraining(iterations=2, n_envs=24, width=8)


def swinger():
    with torch.no_grad():
        LINEAR.weight.copy_(torch.tensor([[0.4, -0.2, 0.1]]))
        LINEAR.bias.fill_(0.3)
    return Policy(nn.Sequential(nn.Flatten(), LINEAR).requires_grad_(False), SWING.spaces)


def plan_of(task, scope, sigma=0.0, **changes):
    policy = balancer(5) if task is POLE else swinger()
    return Plan(task=task, policy=policy, noise=Noise.of(sigma), n_episodes=6, scope=scope, **changes)


def perturbations(plan):
    """Return the perturbation of every step of every episode, of an agent without noise."""
    made = []
    play_block(plan, 0, watch=lambda step: made.append(step.seen.double() - step.observation.double()))
    return torch.cat(made)


def measured(moved, scope):
    return moved.abs().amax(dim=1) if scope.norm == "linf" else moved.norm(dim=1)


@pytest.mark.parametrize("scope", [NUMBERS, LENGTHS], ids=["linf", "l2"])
@pytest.mark.parametrize(
    ("method", "task"),
    [("paper", POLE), *product(["adaptive", "random", "constant-direction", "uniform", "single-step"], [POLE, SWING])],
)
def test_every_attack_keeps_its_budget_at_every_step_and_uses_it(method, task, scope):
    grid = AttackGrid(base=plan_of(task, scope), budgets=(0.3,), method=method)
    sizes = measured(perturbations(grid.plan(0.3, 0.0)), scope)
    # Observations are rounded to single precision after the perturbation was added.
    assert float(sizes.max()) == pytest.approx(0.3, rel=1e-3)
    assert float(sizes.max()) <= 0.3 + 1e-6
    full = (sizes > 0.3 * (1 - 1e-3)).double().mean()
    # Algorithm 1 stops as soon as the agent would choose the target.
    assert float(full) > {"paper": 0.02, "single-step": 0.02}.get(method, 0.95)


@pytest.mark.parametrize("scope", [NUMBERS, LENGTHS], ids=["linf", "l2"])
def test_algorithm_2_fills_the_ball_of_its_norm(scope):
    """In linf to a corner, which lies outside of the l2 ball."""
    observed = torch.tensor([[-0.5, 0.0], [-0.4, 0.01], [-0.6, -0.02]])
    view = replace(view_of(actor_with_critic(frames=1), observed, left=0.05), scope=scope)
    moved = DdpgAttack(0.0, steps=30).propose(view)
    assert torch.allclose(measured(moved, scope), torch.full((3,), 0.05), atol=1e-5)
    assert (float(moved.norm(dim=1).max()) > 0.06) == (scope is NUMBERS)


def test_a_budget_in_linf_reaches_farther_than_the_same_in_l2():
    lowest = {}
    for scope in (NUMBERS, LENGTHS):
        grid = AttackGrid(base=plan_of(POLE, scope), budgets=(0.3,), method="adaptive")
        lowest[scope.norm] = float(play(grid.plan(0.3, 0.0)).returns.mean())
    # The ball in l2 is inside of the one in linf.
    assert lowest["linf"] < lowest["l2"]


def test_against_a_linear_agent_the_best_of_a_linf_ball_is_a_corner():
    grid = AttackGrid(base=plan_of(SWING, NUMBERS), budgets=(0.2,), method="adaptive")
    moved = perturbations(grid.plan(0.2, 0.0))
    signs = torch.tensor([1.0, -1.0, 1.0])
    assert torch.allclose(moved.abs(), torch.full_like(moved, 0.2), atol=1e-6)
    assert (((moved.sign() == signs).all(dim=1)) | ((moved.sign() == -signs).all(dim=1))).all()


def test_an_agent_with_noise_is_pushed_as_far_as_the_budget_goes_at_every_step():
    """Not only as far as half of the noise samples need: what is left is lost."""
    base = plan_of(POLE, LENGTHS, sigma=0.3)
    plan = AttackGrid(base=base, budgets=(0.1,), method="adaptive", noise_samples=8).plan(0.1, 0.0)
    record = play(plan)
    steps = record.lengths.sum()
    assert record.budget_used_per_step.sum() == pytest.approx(0.01 * steps, rel=1e-3)
    assert record.budget_used.max() <= 0.1


def test_directions_and_projections_by_hand():
    rows = torch.tensor([[3.0, -4.0], [0.0, 0.1]])
    assert torch.equal(normalize_rows(rows, "linf"), torch.tensor([[1.0, -1.0], [0.0, 1.0]]))
    radius = torch.tensor([1.0, 0.5], dtype=torch.float64)
    assert torch.equal(project(rows, radius, "linf"), torch.tensor([[1.0, -1.0], [0.0, 0.1]]))
    assert torch.allclose(project(rows, radius), torch.tensor([[0.6, -0.8], [0.0, 0.1]]))
    spent = spend(100 * rows, radius.float(), "linf")
    assert torch.allclose(spent, torch.tensor([[1.0, -1.0], [0.0, 0.5]]), atol=0.01)
    assert (spent.abs() < radius[:, None]).all()


@pytest.mark.parametrize("scope", [NUMBERS, LENGTHS], ids=["linf", "l2"])
def test_an_attacker_is_learned_for_a_budget_per_step(scope):
    """Every episode has the budget that it was given at each of its steps, and nothing is saved for later."""
    attacker = train_attacker(plan_of(POLE, scope), [0.3], SHORT)
    assert attacker.card["trained_on"]["scope"] == scope.name
    grid = AttackGrid(base=plan_of(POLE, scope), budgets=(0.3,), method="learned", attacker=attacker)
    sizes = measured(perturbations(grid.plan(0.3, None)), scope)
    assert float(sizes.max()) <= 0.3 + 1e-6
    assert float(sizes.min()) > 0.05
    learner = AttackLearner(plan_of(POLE, scope), [0.3], SHORT.on(plan_of(POLE, scope)))
    budgets = torch.linspace(0.1, 0.5, learner.n_envs)
    steps = learner.collect(0.5, budgets)
    assert torch.allclose(steps["left"], budgets[steps["episode"]], atol=1e-6)
    assert not learner._judge(steps)[2].any()
    # Of a whole episode what is spent is missing later.
    whole = AttackLearner(plan_of(POLE, Scope()), [0.3], SHORT.on(plan_of(POLE, Scope())))
    assert whole._judge(whole.collect(0.5, budgets))[2].any()


def test_an_attacker_of_actions_is_learned_for_a_budget_per_step():
    scope = Scope(per_step=True, norm="linf")
    plan = replace(plan_of(SWING, scope), noise=Noise.of(0.0, 0.2), channels=("actions",))
    attacker = train_attacker(plan, [0.3], SHORT)
    grid = AttackGrid(base=plan, budgets=(0.3,), method="learned", attacker=attacker)
    used = play(grid.plan(0.3, None)).budget_used
    assert 0.05 < used.min() <= used.max() <= 0.3


def test_it_is_compared_with_no_certificate_and_drawn_with_none(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    agent = ("cartpole-1", "--agent", "cartpole-1-s0.2", "--sigma", "0.2")
    assert main(["certify", *agent, "--budgets", "0.1", "--episodes", "40", "--out", "runs/certified"]) == 0
    for name, scope in (("whole", ()), ("each", ("--per-step", "--norm", "linf"))):
        options = ("--budgets", "0.1", "--method", "uniform", "--episodes", "20", *scope)
        assert main(["attack", *agent, *options, "--out", f"runs/{name}"]) == 0
        said = capsys.readouterr().out
        assert ("Compared with: no certificate" in said) == (name == "each")
    made = json.loads((tmp_path / "runs/each/attack.json").read_text())
    assert made["scope"] == "linf per step"
    runs = {name: read_run(tmp_path / "runs" / name) for name in ("certified", "whole", "each")}
    assert [run.name for run in neighbors(tmp_path / "runs/certified", runs["certified"])] == ["whole"]
    assert neighbors(tmp_path / "runs/each", runs["each"]) == []
    groups = group_runs(list(runs.values()))
    assert [group.title for group in groups] == ["cartpole-1", "cartpole-1 (linf per step)"]
    assert budget_meanings(groups[1:]) == ["linf norm of the perturbation of each single observation"]
    page = (tmp_path / "runs/each/report.html").read_text()
    assert "linf norm of the perturbation of each single observation" in page
    assert "total l2 norm" not in page


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"norm": "linf"}, "goes with a budget for each step"),
        ({"norm": "l1", "per_step": True}, "norm must be one of l2, linf"),
        ({"per_step": True, "channel": "both", "sigma": 0.1, "action_sigma": 0.1}, "choose one with channel="),
    ],
)
def test_what_is_not_attacked_so_is_refused(changes, match):
    with pytest.raises(InputError, match=match):
        surefoot.attack(SWING, swinger(), budgets=[0.1], n_episodes=4, **changes)


def test_the_scope_is_part_of_the_setup_and_of_the_name():
    grids = [
        AttackGrid(base=plan_of(POLE, scope), budgets=(0.1,), method="random") for scope in (Scope(), LENGTHS, NUMBERS)
    ]
    assert len({grid.name for grid in grids}) == 3
    setups = [grid.plan(0.1, None).setup() for grid in grids]
    assert [setup.get("scope") for setup in setups] == [None, "l2 per step", "linf per step"]
    assert "scope" not in replace(grids[2].base, attacker=None).setup()
