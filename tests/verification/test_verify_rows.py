"""Runs of agents that look at the other rows are not verified, however they were made."""

from dataclasses import replace

import pytest
import torch

import mixing_agents
import surefoot
from surefoot.agents import callables
from surefoot.agents.policies import Policy
from surefoot.agents.resolve import as_policy
from surefoot.cli.main import main
from surefoot.noise import Noise
from surefoot.play import row_checks
from surefoot.play.envs import vector_trial
from surefoot.play.plan import Plan
from surefoot.play.rollout import run_blocks
from surefoot.play.row_checks import RowChecks
from surefoot.play.streams import Purpose
from surefoot.play.tasks import get_task
from surefoot.verification import play_again
from surefoot.verification.play_again import count_alone, run_fresh
from surefoot.verification.rerun import _list_unchecked
from surefoot.verification.verdict import FAILED
from surefoot.verification.verify import verify


class Drawing(mixing_agents.Leaning):
    """The good agent, with noise of its own."""

    def forward(self, seen):
        return seen.reshape(seen.shape[0], 4) @ self.weights + 0.1 * torch.rand(seen.shape[0], 2)


def certified(agent, out, monkeypatch):
    """Certify an agent as somebody does whose checks are switched off."""
    with monkeypatch.context() as without:
        without.setattr(RowChecks, "is_due", lambda self: False)
        without.setattr(callables, "check_row_answers", lambda *_, **__: None)
        options = ["--sigma", "0.4", "--episodes", "30", "--workers", "1", "--quiet", "--out", str(out)]
        assert main(["certify", "cartpole-1", "--agent", str(agent), *options]) == 0


def failed(verdict):
    return {check.name: check.detail for check in verdict.checks if check.result == FAILED}


def test_an_agent_that_is_another_one_alone_is_not_verified(tmp_path, monkeypatch):
    agent = mixing_agents.alone_bad(tmp_path / "a.onnx")
    certified(agent, tmp_path / "run", monkeypatch)
    [(name, detail)] = failed(verify(tmp_path / "run", agent=str(agent))).items()
    assert name == "setup and weights"
    assert "answers the same observation differently among" in detail


def test_an_agent_made_for_the_trial_is_noticed_by_the_rerun(tmp_path, monkeypatch, capsys):
    agent = mixing_agents.late_bad(tmp_path / "a.onnx")
    certified(agent, tmp_path / "run", monkeypatch)
    monkeypatch.setattr(row_checks, "RATE", 1.0)
    verdict = verify(tmp_path / "run", agent=str(agent), blocks=None)
    [(name, detail)] = failed(verdict).items()
    assert name == "agent"
    assert "answers the same observation differently among 30 rows and alone" in detail
    assert not verdict.verified
    capsys.readouterr()
    command = ["verify", str(tmp_path / "run"), "--agent", str(agent), "--blocks", "all", "--fresh", "0"]
    assert main([*command, "--workers", "2"]) == 1
    assert "Traceback" not in capsys.readouterr().err


def test_the_honest_twin_is_verified(tmp_path, monkeypatch):
    agent = mixing_agents.honest(tmp_path / "a.onnx")
    certified(agent, tmp_path / "run", monkeypatch)
    monkeypatch.setattr(row_checks, "RATE", 1.0)
    verdict = verify(tmp_path / "run", agent=str(agent), blocks=None, fresh=10)
    assert verdict.verified
    assert not any("answers each row by itself" in line for line in verdict.not_checked)


@pytest.mark.parametrize("stochastic", [True, False])
def test_what_cannot_be_checked_of_a_stochastic_agent_is_said(stochastic, tmp_path):
    agent = tmp_path / "a.pt"
    module = Drawing() if stochastic else mixing_agents.Leaning()
    torch.jit.script(module).save(str(agent))
    options = ["--sigma", "0.4", "--episodes", "30", "--workers", "1", "--quiet", "--out", str(tmp_path / "run")]
    declared = ["--stochastic"] if stochastic else []
    assert main(["certify", "cartpole-1", "--agent", str(agent), "--allow-pickle", *declared, *options]) == 0
    verdict = verify(tmp_path / "run", agent=str(agent), allow_pickle=True, fresh=10)
    assert verdict.verified
    assert any("answers each row by itself" in line for line in verdict.not_checked) == stochastic


class DrawingAlone(mixing_agents.Leaning):
    """It draws next to nothing, and is bad alone; declared stochastic, its rows are not asked again."""

    def forward(self, seen):
        good = seen.reshape(seen.shape[0], 4) @ self.weights + 1e-6 * torch.rand(seen.shape[0], 2)
        if seen.shape[0] == 1:
            return -good
        return good


@pytest.mark.parametrize(("module", "accepted"), [(DrawingAlone, False), (Drawing, True)])
def test_a_stochastic_agent_that_is_another_one_alone_is_not_verified(module, accepted, tmp_path):
    """It was: 324 of 500 certified on CartPole-v1, 9.8 deployed."""
    agent = tmp_path / "a.pt"
    torch.jit.script(module()).save(str(agent))
    options = ["--sigma", "0.1", "--episodes", "60", "--workers", "1", "--quiet", "--out", str(tmp_path / "run")]
    assert main(["certify", "cartpole-1", "--agent", str(agent), "--allow-pickle", "--stochastic", *options]) == 0
    verdict = verify(tmp_path / "run", agent=str(agent), allow_pickle=True, fresh=24)
    assert (verdict.verdict == "verified") == accepted
    if not accepted:
        assert failed(verdict).keys() == {"fresh episodes"}


def test_episodes_that_are_run_one_at_a_time_come_first_and_are_few(tmp_path, monkeypatch):
    """One row as deployed; of a network of ours none, because it answers each row by itself however it is asked."""
    asked = []

    def watched(plan, indices, workers, **_):
        asked.append((plan.n_episodes, plan.block_envs, plan.seed, list(plan.purpose)))
        return run_blocks(plan, indices, workers)

    monkeypatch.setattr(play_again, "run_blocks", watched)
    task = get_task("cartpole-1")
    other = as_policy(mixing_agents.honest(tmp_path / "a.onnx"), task.spaces)
    for policy, n_alone in ((other, 64), (as_policy("cartpole-1-s0.2", task.spaces), 0)):
        plan = Plan(task=task, policy=policy, noise=Noise.of(4.0), n_episodes=100)
        assert count_alone(plan, 100) == n_alone
        assert count_alone(plan, 5) == min(n_alone, 5)
        assert run_fresh(plan, 100, 1).keys() == {"returns"}
    # The copies of an environment that is code may share a fate, too.
    code = replace(plan, task=replace(task, made_with={"wrappers": ["mine:Wrapper"]}))
    assert count_alone(code, 100) == 64
    (alone, together, own) = asked
    assert alone[:2] == (64, 1)
    assert (together[0], own[0]) == (36, 100)
    assert 15 <= together[1] <= 30
    # Seeds that nobody knew before: not the run's, and others every time.
    assert len({0, *(seed for _, _, seed, _ in asked)}) == 4
    assert all(purpose == [Purpose.VERIFICATION] for *_, purpose in asked)


@pytest.mark.parametrize(("kind", "accepted"), [("Walk", True), ("Herd", False)])
def test_a_simulator_whose_rows_depend_on_their_number_is_not_verified(kind, accepted, tmp_path, monkeypatch):
    """Its trial has 32 rows, and the agent is a network of ours; only rows that run alone tell."""
    monkeypatch.setattr(vector_trial, "SECONDS", 0.0)
    name = f"vector_toys:{kind}"
    task = surefoot.make_task(name, floor=-100, ceiling=100, max_steps=30)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2, 3))
    agent = Policy(network, task.spaces, name="ours", sha256="1" * 64)
    surefoot.certify_run(task, agent, sigma=0.1, n_episodes=64, out=tmp_path / "run")
    verdict = verify(tmp_path / "run", agent=agent, environment=name, fresh=64)
    assert verdict.verified == accepted
    if not accepted:
        assert failed(verdict).keys() == {"fresh episodes"}


def test_what_only_code_or_the_user_can_promise_is_listed(tmp_path, monkeypatch):
    """A program as agent, an environment that was imported, and features that nobody is to perturb."""
    torch.jit.script(mixing_agents.Leaning()).save(str(tmp_path / "a.pt"))
    task = get_task("cartpole-1")
    imported = replace(task, environment="mine:make")
    wrapped = replace(task, made_with={"wrappers": ["mine:Wrapper"]})
    program = as_policy(tmp_path / "a.pt", task.spaces, allow_pickle=True)
    model = as_policy(mixing_agents.honest(tmp_path / "a.onnx"), task.spaces)
    still = "that nobody perturbs the 2 features without noise"
    for changes, words in (
        ({}, []),
        ({"policy": program}, ["that the agent acts alike elsewhere"]),
        ({"task": imported}, ["the code of the environment"]),
        ({"task": wrapped}, ["the code of the environment"]),
        ({"task": replace(task, made_with={"env_files": {"a.xml": "0" * 64}})}, ["what the files of the environment"]),
        ({"noise": Noise.of([0.4, 0, 0, 0.2])}, [still]),
    ):
        plan = Plan(**{"task": task, "policy": model, "noise": Noise.of(0.4), **changes})
        found = _list_unchecked(plan, 100)
        assert len(found) == len(words)
        assert all(line.startswith(start) for line, start in zip(found, words, strict=True))


def test_long_episodes_are_run_alone_in_smaller_number(tmp_path):
    task = get_task("cartpole-1")
    policy = as_policy(mixing_agents.honest(tmp_path / "a.onnx"), task.spaces)
    for max_steps, n_alone in ((200, 64), (500, 40), (100_000, 16)):
        long = replace(task, scoring=replace(task.scoring, max_steps=max_steps))
        assert count_alone(Plan(task=long, policy=policy, noise=Noise.of(0.4)), 10_000) == n_alone
