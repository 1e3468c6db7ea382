"""The discounted return: added up while playing, its limits, its certificate, and the check of it."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from surefoot.cli import main as cli
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.floors import of_rewards
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.tasks import discounted, get_task
from surefoot.verification.verify import verify
from toys import balancer, gate, geometric, pay_steps, plan_for, toy_task

GAMMA = 0.9


def toy(**more):
    facts = {"ceiling": 30.0, "max_steps": 30, "reward_range": (0.0, 1.0), **more}
    return toy_task(geometric(0.2, 30), pay_steps, **facts)


def test_a_step_counts_gamma_to_the_power_of_those_before():
    """Reward 1 a step: the discounted return of L steps is (1 - gamma^L) / (1 - gamma), in every slot and turn."""
    plan = plan_for(discounted(toy(), GAMMA), gate(0.5, 1.0), 1.0, 60, n_envs=7, episodes_per_env=3)
    played = play(plan)
    assert played.returns == pytest.approx((1 - GAMMA**played.lengths) / (1 - GAMMA), rel=1e-12)
    assert played.metadata["gamma"] == GAMMA
    plain = play(replace(plan, task=toy()))
    assert np.array_equal(plain.lengths, played.lengths)
    assert "gamma" not in plain.metadata


def test_the_limits_are_those_of_the_longest_episode():
    task = discounted(get_task("cartpole-1"), 0.99)
    assert task.scoring.floor == 0
    assert task.scoring.ceiling == pytest.approx((1 - 0.99**200) / 0.01, rel=1e-9)
    assert task.baseline is None  # it was measured on the plain return
    played = play(Plan(task=task, policy=balancer(), noise=Noise.of(0.05), n_episodes=50, n_envs=50))
    assert played.returns.max() <= task.scoring.ceiling
    signed = discounted(toy(reward_range=(-2.0, 1.0)), GAMMA)
    assert signed.scoring.floor == pytest.approx(-2 * (1 - GAMMA**30) / (1 - GAMMA))
    assert discounted(toy(reward_range=None), GAMMA, limits=(-1.0, None)).scoring.ceiling is None


@pytest.mark.parametrize(
    ("name", "gamma", "floor", "ceiling"),
    [
        ("cartpole-5", 0.99, 0, (1 - 0.99**200) / 0.01),
        ("mountain-car", 0.99, 0, 1),
        ("pong-1r", 0.99, 0, 1),
        ("pong-full", 0.99, -21, 21),
        ("pong-full", 0.5, -2, 2),
        ("freeway", 0.99, 0, 5),
        ("freeway", 0.5, 0, 2),
    ],
)
def test_every_task_has_limits_of_its_discounted_return(name, gamma, floor, ceiling):
    scoring = discounted(get_task(name), gamma).scoring
    assert (scoring.floor, scoring.ceiling) == (pytest.approx(floor), pytest.approx(ceiling))


@pytest.mark.parametrize("nearly", [1e-2, 1e-5, 1e-6, 1e-8, 1e-10, 1e-13])
def test_limits_hold_for_discounts_near_one(nearly):
    """A perfect episode of CartPole, added up in exact arithmetic, which 1 - gamma^200 in floats misses."""
    gamma = 1 - nearly
    exact = sum(Fraction(gamma) ** step for step in range(200))
    ceilings = discounted(get_task("cartpole-1"), gamma).scoring.ceiling, of_rewards(0, 1).limits(200, gamma)[1]
    for ceiling in ceilings:
        assert exact <= Fraction(ceiling) <= exact * Fraction(1 + 1e-7)


def test_the_plain_formula_would_be_too_low():
    gamma = 1 - 1e-10
    assert Fraction((1 - gamma**200) / (1 - gamma) * (1 + 1e-12)) < sum(Fraction(gamma) ** step for step in range(200))


def test_a_discounted_return_stays_where_the_rewards_so_far_stay():
    """Random walks of steps -1, 0 and 1 with a drift: their range holds for every discount, and no smaller one does."""
    rng = np.random.default_rng(0)
    closest = np.inf
    for _ in range(2_000):
        drift = rng.uniform(-0.5, 0.5)
        steps = rng.choice([-1, 0, 1], 60, p=np.array([1 - drift, 1, 1 + drift]) / 3)
        sums, gamma = np.cumsum(steps), 1 - 10 ** rng.uniform(-4, -0.5)
        value = float(np.sum(gamma ** np.arange(60) * steps))
        assert sums.min() - 1e-9 <= value <= sums.max() + 1e-9
        closest = min(closest, value - sums.min())
    assert closest < 0.05  # a floor higher by a tenth would be wrong


@pytest.mark.parametrize(
    ("name", "agent", "more"),
    [
        ("mountain-car", "mountain-car-s0.2", ("--gamma", "0.999")),
        ("mountain-car", "mountain-car-s0.2", ("--per-step",)),
        ("pong-1r", "pong-1r-s0.1", ("--per-step",)),
        ("freeway", "freeway-s0.1", ("--gamma", "0.99")),
    ],
)
def test_the_papers_tasks_are_certified_so_too(name, agent, more, tmp_path, capsys):
    run = ["certify", name, "--agent", agent, "--episodes", "3", "--workers", "1", "--quiet", "--json"]
    assert cli.main([*run, *more, "--budgets", "0,0.01", "--out", str(tmp_path / "run")]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["floor"] <= made["lower"][1] <= made["lower"][0] <= made["estimate"] <= made["ceiling"]
    assert verify(tmp_path / "run", blocks=0).bounds_recomputed


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: discounted(toy(), 1.0), "strictly between 0 and 1, got 1.0"),
        (lambda: discounted(toy(reward_range=None), GAMMA), "does not know the limits of a step's reward"),
        (
            lambda: Plan(task=discounted(toy(), GAMMA), policy=gate(0.5, 1.0), noise=Noise.of(1.0), per_step=True),
            "leave the discount out",
        ),
    ],
)
def test_bad_input_is_named(call, match):
    with pytest.raises(InputError, match=match):
        call()


def test_the_command_certifies_it_and_verify_checks_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = ["certify", "cartpole-1", "--sigma", "0.4", "--episodes", "300", "--workers", "1", "--budgets", "0,0.2"]
    assert cli.main([*run, "--gamma", "0.95", "--method", "paper"]) == 0
    shown = capsys.readouterr().out
    assert "the expected discounted return (gamma 0.95) of the" in shown
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.endswith("-discount0.95")
    made = json.loads((folder / "certificate.json").read_text())
    assert made["gamma"] == 0.95
    assert made["ceiling"] == pytest.approx(20, abs=1e-3)
    assert made["method"] == "band"
    assert "the expected discounted return (gamma 0.95) of" in made["statement"]
    assert verify(folder, blocks=None, fresh=8).verified
    (folder / "certificate.json").write_text(json.dumps({key: made[key] for key in made if key != "gamma"}))
    names = {check.name for check in verify(folder, blocks=0).checks if check.result == "failed"}
    assert names == {"certificate and episode data", "sentence"}
    (folder / "certificate.json").write_text(json.dumps(made))
    assert cli.main([*run, "--gamma", "0.95", "--shared-episodes", "3"]) == 0
    assert verify(folder, blocks=0).bounds_recomputed
