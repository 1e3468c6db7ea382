"""Runs of agents that look at the other rows are not verified, however they were made."""

import pytest
import torch

import mixing_agents
from surefoot.agents import callables
from surefoot.cli.main import main
from surefoot.play import row_checks
from surefoot.play.row_checks import RowChecks
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
        without.setattr(callables, "check_rows", lambda *_, **__: None)
        options = ["--sigma", "0.4", "--episodes", "120", "--workers", "1", "--quiet", "--out", str(out)]
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
    assert main(["verify", str(tmp_path / "run"), "--agent", str(agent), "--blocks", "all", "--workers", "2"]) == 1
    assert "Traceback" not in capsys.readouterr().err


def test_the_honest_twin_is_verified(tmp_path, monkeypatch):
    agent = mixing_agents.honest(tmp_path / "a.onnx")
    certified(agent, tmp_path / "run", monkeypatch)
    monkeypatch.setattr(row_checks, "RATE", 1.0)
    verdict = verify(tmp_path / "run", agent=str(agent), blocks=None)
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
    verdict = verify(tmp_path / "run", agent=str(agent), allow_pickle=True)
    assert verdict.verified
    assert any("answers each row by itself" in line for line in verdict.not_checked) == stochastic
