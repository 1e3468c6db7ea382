"""Noise and budget on the parts of an observation that are named; the others are out of every attacker's reach."""

import argparse
import shlex
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from scipy import stats

import surefoot
from surefoot.agents.policies import Policy, Spaces
from surefoot.cli.main import main
from surefoot.cli.options import parse_sigma
from surefoot.cli.task import check_units
from surefoot.errors import InputError
from surefoot.files import read_json, write_json
from surefoot.noise import Noise
from surefoot.play.channel import Channel
from surefoot.play.environments import make_task
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.streams import Stream
from surefoot.proof.query import Query
from surefoot.report.certificate_text import headline
from surefoot.runs.certified import certified_run
from surefoot.verification.verify import verify
from toys import Spy

SIGMA, P, BUDGET = 0.1, 0.9, 0.15


class Gates(gymnasium.Env):
    """One step; won if the first action is chosen. The camera shows 0, the clock a number far larger than any noise."""

    observation_space = Dict([("camera", Box(-1.0, 1.0, (1,))), ("clock", Box(0.0, 1e6, (1,)))])
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {"camera": np.zeros(1, np.float32), "clock": np.full(1, 5e5, np.float32)}, {}

    def step(self, action):
        return self.reset()[0], float(action == 0), True, False, {}


class Gate(torch.nn.Module):
    """The first action where the camera is at most the p-quantile of its noise and the clock is untouched."""

    def forward(self, history):
        seen = history[:, -1]
        wins = (seen[:, 0] <= SIGMA * stats.norm.ppf(P)) & (seen[:, 1] == 5e5)
        return torch.stack((wins.float(), (~wins).float()), dim=1)


def gates():
    return make_task(Gates, floor=0, ceiling=1, max_steps=1)


AGENT = Policy(Gate(), Spaces(shape=(2,), n_actions=2), name="gate", sha256="by-hand")


def test_sigmas_by_name():
    spaces = gates().spaces
    assert spaces.parts == (("camera", 1), ("clock", 1))
    assert spaces.sigma_of({"camera": 0.1}) == [0.1, 0.0]
    assert spaces.sigma_of(0.3) == 0.3
    assert Noise.of([0.1, 0.0]) == Noise(0.1, (0.1, 0.0))
    assert Noise.of([0.0, 0.0]) == Noise(0.0)
    assert parse_sigma("camera=0.1,a.b=2") == {"camera": 0.1, "a.b": 2.0}
    for wrong in ({"lidar": 0.1}, {}):
        with pytest.raises(InputError, match="its parts are camera, clock"):
            spaces.sigma_of(wrong)
    with pytest.raises(InputError, match="its parts are none: give one sigma for all of it"):
        Spaces(shape=(2,), n_actions=2).sigma_of({"camera": 0.1})
    for noise in ((0.0, (0.1, 0.0)), (0.2, (0.1, 0.2, 0.0)), (0.1, (0.1, 0.1))):
        with pytest.raises(InputError, match="sigma must be the least"):
            Noise(*noise)


def test_a_sigma_with_a_unit_must_have_the_units_of_its_part():
    sigma = parse_sigma("camera=1e-1 m,clock=2")
    assert (sigma, sigma.units) == ({"camera": 0.1, "clock": 2.0}, {"camera": "m"})
    assert parse_sigma("camera=.3m/s").units == {"camera": "m/s"}
    for wrong in ("camera=m", "camera=", "camera=0.1,m"):
        with pytest.raises(argparse.ArgumentTypeError, match=r"must look like camera=0\.1,pos=0\.3m"):
            parse_sigma(wrong)
    check_units(
        make_task(Gates, floor=0, ceiling=1, max_steps=1, feature_units={"camera": "m"}).features, sigma, "--sigma"
    )
    for units, known in (({"camera": "cm"}, "cm"), ({"clock": "m"}, "not declared")):
        task = make_task(Gates, floor=0, ceiling=1, max_steps=1, feature_units=units)
        with pytest.raises(InputError, match=f"--sigma gives camera in m, but its unit is {known}"):
            check_units(task.features, sigma, "--sigma")


def test_every_command_with_a_sigma_checks_its_unit(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    commands = [f"{name} --agent x --sigma camera=0.1m" for name in ("certify", "attack", "explain-fault")]
    commands += ["train --sigma camera=0.1m", "compare a b --sigma camera=0.1m"]
    commands += ["compare a b --sigma 0.1 --sigma-b camera=0.1m", "plan --agent x --require 0@1 --sigmas camera=0.1m"]
    commands += ["tune --agent x --budget 1 --sigmas 'camera=0.1; camera=0.1m'"]
    for command in commands:
        line = [*shlex.split(command), "--env", "test_named_parts:Gates", "--max-steps", "1"]
        assert main([*line, "--floor", "0", "--ceiling", "1"]) == 2
        assert "gives camera in m, but its unit is not declared" in capsys.readouterr().err


def test_there_is_no_noise_on_the_other_parts():
    stream = Stream(np.random.SeedSequence(0), torch.device("cpu"))
    channel = Channel(noise=Noise.of([SIGMA, 0.0]), n_envs=2_000, shape=(2,), stream=stream)
    seen = channel.send(torch.zeros(2_000, 2)).numpy()
    assert stats.kstest(seen[:, 0] / SIGMA, "norm").pvalue > 1e-6
    assert not seen[:, 1].any()


@pytest.mark.parametrize(("push", "expected"), [((1.0, 0.0), P), ((0.0, 1.0), None), ((1.0, 1e6), P)])
def test_an_attacker_reaches_the_named_parts_alone_with_all_of_its_budget(push, expected):
    """Win rate against Phi(Phi^-1(p) - B / sigma) at 5 standard errors; pushing the clock changes nothing."""
    spy = Spy(lambda view: torch.tensor([push]).expand(len(view.observation), 2))
    noise, n_episodes = Noise.of([SIGMA, 0.0]), 2_000
    task = gates()
    played = play(Plan(task=task, policy=AGENT, noise=noise, n_episodes=n_episodes, attacker=spy, budget=BUDGET))
    truth = P if expected is None else stats.norm.cdf(stats.norm.ppf(P) - BUDGET / SIGMA)
    assert abs(played.returns.mean() - truth) < 5 * np.sqrt(truth * (1 - truth) / n_episodes)
    assert played.budget_used.max() <= BUDGET
    assert (played.budget_used.max() == 0) == (expected is None)


def test_the_certificate_says_what_is_not_attacked_and_is_verified(tmp_path):
    task = gates()
    plan = Plan(task=task, policy=AGENT, noise=Noise.of([SIGMA, 0.0]), n_episodes=300)
    certificate = certified_run(plan, Query(budgets=(0.0, BUDGET), method="band"), tmp_path / "run", figure=False)
    assert certificate.lower[1] <= stats.norm.cdf(stats.norm.ppf(P) - BUDGET / SIGMA)
    assert "under any observation attack on camera (1 of 2 features) with budget " in headline(certificate)
    said = "features without noise (1 of 2) are taken not to be perturbed"
    made = read_json(tmp_path / "run" / "certificate.json")
    assert said in made["statement"]
    assert "clock without noise: taken not to be perturbed" in " ".join(str(certificate).split())
    assert verify(tmp_path / "run", blocks=0).bounds_recomputed
    write_json(tmp_path / "run" / "certificate.json", {**made, "statement": made["statement"].replace(f"; {said}", "")})
    assert not verify(tmp_path / "run", blocks=0).bounds_recomputed


def test_rollout_takes_names():
    played = surefoot.rollout(gates(), AGENT, sigma={"camera": SIGMA}, n_episodes=20)
    assert played.metadata["sigma_per_feature"] == [SIGMA, 0.0]
    with pytest.raises(InputError, match="times as large as the sigma of its noise"):
        surefoot.rollout(gates(), AGENT, sigma={"camera": SIGMA, "clock": 0.1}, n_episodes=20)


@pytest.mark.parametrize("sigma", [{"camera": SIGMA}, {"camera": 0.001}])
def test_attacks_reach_the_named_parts_alone(sigma):
    """A small noise on a part attacks what is nearly undefended there; a random direction would touch the clock."""
    curve = surefoot.attack(gates(), AGENT, budgets=[0.0, BUDGET], sigma=sigma, method="random", n_episodes=400)
    unattacked, attacked = curve.lowest
    if sigma["camera"] == SIGMA:
        # The budget is 1.5 sigma, of which the camera gets its share of a random direction.
        assert abs(unattacked - P) < 0.06
        assert P - 0.3 < attacked < P
    else:
        # The clock is untouched, or nothing would be won. Of all directions 17% go up by more than the gate.
        assert unattacked == 1
        assert abs(attacked - 0.826) < 0.1
