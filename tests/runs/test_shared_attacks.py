"""Attackers that move one budget between rounds, through the real channel, against the certificate of T5.

An episode of the toy has M rounds of one step each, won independently with probability p under noise alone. So the
channel's ledger keeps one budget for all M rounds, and each round is an episode of its own to the theorem. Alarms go
off by chance with probability 1e-6 (``toys.ALARM``).
"""

import json
import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from surefoot.cli import main as cli
from surefoot.episodes import Episodes
from surefoot.noise import Noise
from surefoot.play.channel import View
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.proof.bounds.relative_entropy import least_chance
from surefoot.proof.query import certify_shared_budget
from surefoot.verification.verify import verify
from toys import fixed, gate, pay_first_choice, plan_for, run_episodes, shifted, too_few, toy_task

SIGMA, ROUNDS = 0.5, 21


@dataclass
class Mover:
    """Decides from the view how much of its budget to spend in this round, along the only coordinate that counts."""

    name: str
    size: object

    def propose(self, view: View) -> Tensor:
        sizes = torch.as_tensor(self.size(view), dtype=torch.float32).expand(len(view.observation))
        offset = torch.zeros_like(view.observation)
        offset[:, 0] = sizes
        return offset

    def describe(self):
        return {"name": self.name}


def rounds_task():
    return toy_task(fixed(ROUNDS), pay_first_choice, ceiling=float(ROUNDS), max_steps=ROUNDS)


def rounds_won(p: float, attacker=None, budget=0.0, episodes=4_000, seed=0) -> Episodes:
    plan = plan_for(
        rounds_task(), gate(p, SIGMA), SIGMA, episodes, seed=seed, n_envs=500, attacker=attacker, budget=budget
    )
    return play(plan)


def lost_last(view: View) -> Tensor:
    """Whether the round before was lost: the noise and the offset of it are known by now."""
    return view.action == 1 if view.action is not None else torch.zeros(len(view.observation), dtype=torch.bool)


BUDGET = 4 * SIGMA
MOVERS = (
    Mover("evenly", lambda view: BUDGET / math.sqrt(ROUNDS)),
    Mover("all in the first round", lambda view: BUDGET),
    Mover("two sigmas until it is gone", lambda view: 2 * SIGMA),
    Mover("half of what is left", lambda view: view.budget_left / 2),
    Mover("press on after a loss", lambda view: torch.where(lost_last(view), 1.5 * SIGMA, 0.6 * SIGMA)),
    Mover("save up for the end", lambda view: torch.where(view.step >= ROUNDS - 5, BUDGET / math.sqrt(5), 0.0)),
)


@pytest.fixture(scope="module")
def certified():
    """Rounds of unattacked play, each an episode of its own, and their certificate."""
    task = toy_task(fixed(1), pay_first_choice, binary=True)
    single = play(Plan(task=task, policy=gate(0.95, SIGMA), noise=Noise.of(SIGMA), n_episodes=20_000, n_envs=1_000))
    return certify_shared_budget(single, [BUDGET], ROUNDS, 0.999)


def test_the_certificate_is_near_its_theorem(certified):
    assert certified.method == "binary"
    truth = least_chance(0.95, 16 / 2 / ROUNDS)
    assert truth - 0.03 < certified.lower[0] < truth


@pytest.mark.parametrize("attacker", MOVERS, ids=lambda attacker: attacker.name)
def test_no_mover_gets_below_the_certificate(certified, attacker):
    played = rounds_won(0.95, attacker, BUDGET)
    assert played.budget_used.max() <= BUDGET
    assert played.budget_used.mean() > 0.5 * BUDGET
    wins, count = played.returns.sum(), ROUNDS * len(played)
    assert not too_few(wins, count, certified.lower[0])
    assert too_few(wins, count, 0.95)  # it does harm


def gambler(chance: float, size: float) -> Mover:
    """Spends nothing in most rounds and ``size`` in a few that it draws: only on average within a small budget."""
    return Mover("gambler", lambda view: size * (view.stream.uniform(0, 1, (len(view.observation),)) < chance))


def test_a_budget_on_average_is_not_an_average_budget():
    """p = 0.999. A gambler of mean square (sigma / 2)^2 per round refutes T1 at sigma / 2; T5 with M = 1 holds."""
    p, size = 0.999, 3 * SIGMA
    chance = (SIGMA / 2) ** 2 / size**2
    played = rounds_won(p, gambler(chance, size), budget=100.0, episodes=6_000)
    wins, count = played.returns.sum(), ROUNDS * len(played)
    spent = (played.budget_used**2).mean() / ROUNDS
    assert spent == pytest.approx((SIGMA / 2) ** 2, rel=0.05)
    assert too_few(wins, count, shifted(p, 0.5))  # the planted error: T1 charged with the average
    single = run_episodes(
        toy_task(fixed(1), pay_first_choice, binary=True), gate(p, SIGMA), SIGMA, 20_000, n_envs=1_000
    )
    made = certify_shared_budget(single, [SIGMA / 2], 1)
    assert not too_few(wins, count, made.lower[0])
    assert made.lower[0] > 0.9


def test_planted_the_share_of_one_round_for_all(certified):
    """Were the cost divided by M twice, the certificate would be refuted."""
    played = rounds_won(0.95, MOVERS[0], BUDGET)
    wrong = certified.at(BUDGET, ROUNDS * ROUNDS).lower
    assert too_few(played.returns.sum(), ROUNDS * len(played), wrong)


# --- the command ----------------------------------------------------------------------------------------------------


def test_the_command_certifies_a_shared_budget_and_verify_checks_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = ["certify", "cartpole-1", "--sigma", "0.4", "--episodes", "700", "--workers", "1", "--out", "run"]
    assert cli.main([*run, "--shared-episodes", "10", "--budgets", "0,0.4"]) == 0
    shown = capsys.readouterr().out
    said = "budget 0.4 (total l2 norm of the perturbations of 10 episodes together, root mean square over attacks)."
    assert said in " ".join(shown.split())
    assert "method betting" in shown
    assert not (tmp_path / "run" / "certificate.json").exists()
    made = json.loads((tmp_path / "run" / "shared.json").read_text())
    assert made["n_shared_episodes"] == 10
    assert verify("run", blocks=1, fresh=8).verified
    assert cli.main([*run, "--budgets", "0,0.4", "--method", "paper"]) == 0
    assert verify("run", blocks=0).bounds_recomputed  # both certificates
    for key, value in {
        "lower": [made["lower"][0], made["lower"][1] + 0.01],
        "n_shared_episodes": 11,
        "n_pilot_episodes": 1,
    }.items():
        (tmp_path / "run" / "shared.json").write_text(json.dumps({**made, key: value}))
        failed = {check.name for check in verify("run", blocks=0).checks if check.result != "passed"} - {"replay"}
        assert "shared.json: bounds" in failed


def test_returns_from_elsewhere_share_a_budget(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save("r.npy", np.repeat([0.0, 1.0], [10, 190]))
    given = ["certify", "--returns", "r.npy", "--sigma", "0.5", "--floor", "0", "--ceiling", "1", "--budgets", "0.5"]
    assert cli.main([*given, "--shared-episodes", "5", "--method", "binary", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["lower"][0] == pytest.approx(least_chance(0.916, 0.1), abs=0.01)
