"""Attacks over a grid, their summary, the command, and the comparison with certificates."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from surefoot import certify
from surefoot.agents import files as zoo
from surefoot.attacks.registry import METHODS
from surefoot.cli import main as cli
from surefoot.episodes import Episodes
from surefoot.noise import Noise
from surefoot.play.loop import play_block
from surefoot.play.plan import Plan
from surefoot.runs.attacked import AttackGrid, attacked_run
from toys import from_callable, short_pole

TASK = short_pole(30)
BUDGETS = (0.1, 0.2)  # small ones take few steps of gradient ascent


def attack(policy=None, n_episodes=8, sigma=0.0, **more):
    policy = zoo.load("cartpole-5-s0") if policy is None else policy
    base = Plan(task=TASK, policy=policy, noise=Noise.of(sigma), n_episodes=n_episodes)
    return AttackGrid(base=base, **{"budgets": BUDGETS, "lambdas": (0.0, 0.2), **more})


def command(capsys, *arguments):
    code = cli.main(["attack", "cartpole-5", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_summary_is_that_of_the_records(tmp_path):
    result, records = attacked_run(attack(), tmp_path)
    assert result == json.loads((tmp_path / "attack.json").read_text())
    for row, budget in enumerate(BUDGETS):
        for column, margin in enumerate((0.0, 0.2)):
            record = Episodes.load(tmp_path / f"B{budget:g}-lambda{margin:g}" / "episodes.npz")
            assert record.attacked
            assert record.metadata["budget"] == budget
            assert record.metadata["attacker"]["lambda_q"] == margin
            assert result["mean"][row][column] == record.returns.mean()
            assert result["sem"][row][column] == pytest.approx(record.returns.std(ddof=1) / np.sqrt(8))
            assert record.budget_used.max() <= budget * (1 + 1e-6)
        assert result["curve"][row] == min(result["mean"][row])
        assert result["curve_lambda"][row] == (0.0, 0.2)[int(np.argmin(result["mean"][row]))]
    assert result["largest_budget_used"] == max(record.budget_used.max() for record in records)


def test_an_attack_and_its_twin_without_one_have_one_episode_per_environment():
    """A second one would begin with other noise where the first took longer."""
    grid = attack()
    several = replace(grid, base=replace(grid.base, n_envs=2, episodes_per_env=3))
    assert several.base.block_size == 6
    assert several.twin.block_size == several.plan(0.1, 0.0).block_size == 2


def test_spending_over_time_sums_to_what_was_spent(tmp_path):
    result, _ = attacked_run(attack(lambdas=(0.0,)), tmp_path)
    for budget, spending in zip(BUDGETS, result["budget_used_per_step"], strict=True):
        record = Episodes.load(tmp_path / f"B{budget:g}-lambda0" / "episodes.npz")
        assert record.budget_used.max() > 0
        assert sum(spending) == pytest.approx(float((record.budget_used**2).mean()), rel=1e-9)


def test_spending_is_told_up_to_the_last_offset(tmp_path):
    result, _ = attacked_run(attack(method="single-step", budgets=(0.0, 0.6)), tmp_path)
    assert result["budget_used_per_step"] == [[0.0], [pytest.approx(0.36)]], "all of it at the first step, of 30"


def test_workers_and_resuming_change_nothing(tmp_path):
    once, _ = attacked_run(attack(n_episodes=520, budgets=(0.6,), method="random"), tmp_path / "a", workers=2)
    again, _ = attacked_run(attack(n_episodes=520, budgets=(0.6,), method="random"), tmp_path / "b", workers=1)
    assert once == again
    record = tmp_path / "a" / "B0.6" / "episodes.npz"
    changed = record.stat().st_mtime_ns
    assert attacked_run(attack(n_episodes=520, budgets=(0.6,), method="random"), tmp_path / "a")[0] == once
    assert record.stat().st_mtime_ns == changed


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if not method.needs_learning])
def test_every_method_runs_on_a_smoothed_agent(tmp_path, method):
    smoothed = {"policy": zoo.load("cartpole-5-s0.2"), "sigma": 0.2, "noise_samples": 4, "n_episodes": 4}
    result, _ = attacked_run(attack(**smoothed, budgets=(0.3,), lambdas=(0.5,), method=method), tmp_path)
    assert result["lambdas"] == ([0.5] if METHODS[method].has_lambda else [None])
    assert result["noise_samples"] == 4
    assert result["largest_budget_used"] <= 0.3 * (1 + 1e-6)


def test_the_command_prints_one_document(tmp_path, capsys):
    code, out, err = command(
        capsys, "--budgets", "0.1", "--lambda-q", "0,0.2", "--episodes", "2", "--out", str(tmp_path / "x"), "--json"
    )
    document = json.loads(out)
    assert (code, err) == (0, "")
    for key in ("budgets", "lambdas", "mean", "sem", "curve", "curve_sem", "n_episodes", "largest_budget_used"):
        assert key in document
    assert np.shape(document["mean"]) == (1, 2)


def test_the_command_prints_a_table(tmp_path, capsys):
    code, out, err = command(
        capsys, "--budgets", "0.1", "--lambda-q", "0.2", "--episodes", "2", "--out", str(tmp_path / "x"), "--quiet"
    )
    assert (code, err) == (0, "")
    assert re.search(r"\nbudget +lowest mean +loss +changed\n +0\.1 ", out)
    assert "With 2 episodes a mean loss below 160 is invisible" in out.replace("\n", " ")
    assert "no certificate of this setup found" in out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--lambda-q", "-1"], "lambda_Q must be >= 0, got -1"),
        (["--lambda-q", "x"], "--lambda-q: must look like"),
        (["--noise-samples", "0", "--sigma", "0.2"], "noise samples must be at least 1, got 0"),
        (["--method", "nuke"], "method must be one of paper"),
        (["--budgets", "-1"], "budgets must be finite numbers >= 0"),
        (["--certificate", "nowhere"], "no file nowhere"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path, capsys, arguments, text):
    small = ["--budgets", "0.1"] if "--budgets" not in arguments else []
    code, _, err = command(capsys, *arguments, *small, "--episodes", "2", "--out", str(tmp_path / "x"))
    assert code == 2
    assert text in err
    assert err.count("\n") == 1
    assert err.startswith("surefoot: ")


def test_agents_that_cannot_be_attacked_so_are_refused():
    plain = from_callable(lambda seen: 0, shape=(4,), n_actions=2)
    with pytest.raises(ValueError, match="needs gradients"):
        attack(plain, budgets=(0.1,))
    assert attack(plain, budgets=(0.1,), method="random").configurations() == [(0.1, None)]


# --- inconsistencies ------------------------------------------------------------------------------------------------


def test_the_command_reports_a_planted_inconsistency_with_exit_code_3(tmp_path, capsys):
    policy = zoo.load("cartpole-5-s0.8")
    facts = {"task": "cartpole-5", "agent": policy.name, "agent_sha256": policy.sha256, "method": "dkw"}
    boast = certify(
        Episodes.from_returns(np.full(5_000, 200.0), sigma=0.8, floor=0, ceiling=200, **facts),
        [0.0, 0.5],
        method="paper",
    )
    (tmp_path / "boast").mkdir()
    (tmp_path / "boast" / "certificate.json").write_text(json.dumps(boast.to_json()))
    arguments = ["--sigma", "0.8", "--budgets", "0.2", "--method", "random", "--episodes", "60", "--quiet"]
    code, _, err = command(capsys, *arguments, "--out", str(tmp_path / "x"))
    assert code == 3
    assert err.startswith("surefoot: INCONSISTENCY with")


def test_attacks_average_over_the_noise_of_each_feature():
    """Not over the least sigma of all of them, which would be another agent's noise."""
    sigmas = (0.1, 0.0, 0.4, 0.8)
    grid = attack(sigma=sigmas)
    plan = grid.plan(0.2, 0.0)
    drawn = []

    class Watcher:
        def propose(self, view):
            drawn.append(grid.smoothing.draw_noise(view, torch.arange(len(view.observation)), 1))
            return torch.zeros_like(view.observation)

        def describe(self):
            return {"name": "watcher"}

    play_block(replace(plan, attacker=Watcher()), 0)
    spread = torch.cat([noise.reshape(-1, 4) for noise in drawn]).std(dim=0)
    assert spread.tolist() == pytest.approx(sigmas, rel=0.05)
    assert attack(sigma=0.2).smoothing.sigma == 0.2
